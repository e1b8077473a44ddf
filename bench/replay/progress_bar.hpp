#pragma once

#include "absl/strings/str_format.h"

#include <unistd.h>

#include <cstddef>
#include <cstdio>
#include <string>
#include <utility>

namespace deepum::replay {

/// One line that is rewritten on a terminal; nothing elsewhere.
class progress_bar {
 public:
  progress_bar(std::string title, std::size_t turns) : title_(std::move(title)), turns_(turns) {}
  ~progress_bar() {
    if (shown_) std::fputs("\r\x1b[K", stderr);
  }
  progress_bar(const progress_bar&) = delete;
  progress_bar& operator=(const progress_bar&) = delete;

  void show(std::size_t done) {
    if (isatty(STDERR_FILENO) != 1) return;
    constexpr std::size_t width = 40;
    const std::size_t full = width * done / turns_;
    absl::FPrintF(stderr, "\r%-7s [%s%s] %d/%d", title_, std::string(full, '#'), std::string(width - full, '.'), done,
                  turns_);
    std::fflush(stderr);
    shown_ = true;
  }

 private:
  std::string title_;
  std::size_t turns_;
  bool shown_ = false;
};

}  // namespace deepum::replay
