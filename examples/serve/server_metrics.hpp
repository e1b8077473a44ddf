#pragma once

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/string_view.h"
#include "generation.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace serve {

/// Counts of times by their length.
class time_histogram {
 public:
  static constexpr std::array<double, 10> bounds{0.005, 0.02, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 10, 30};  // seconds

  void add(wall_clock::duration time) {
    const double seconds = std::max(0.0, std::chrono::duration<double>(time).count());
    const auto bound = std::lower_bound(bounds.begin(), bounds.end(), seconds);
    ++counts_[static_cast<std::size_t>(bound - bounds.begin())];
    sum_ += seconds;
  }
  /// Appends the samples of an OpenMetrics histogram.
  void append_to(std::string& out, const char* name) const {
    std::uint64_t so_far = 0;
    for (std::size_t i = 0; i < bounds.size(); ++i) {
      so_far += counts_[i];
      // OpenMetrics wants a bound of one second to be written as 1.0.
      const char* const point = bounds[i] == static_cast<double>(static_cast<int>(bounds[i])) ? ".0" : "";
      absl::StrAppend(&out, name, "_bucket{le=\"", bounds[i], point, "\"} ", so_far, "\n");
    }
    so_far += counts_.back();
    absl::StrAppend(&out, name, "_bucket{le=\"+Inf\"} ", so_far, "\n", name, "_count ", so_far, "\n");
    absl::StrAppendFormat(&out, "%s_sum %.6f\n", name, sum_);
  }

 private:
  std::array<std::uint64_t, bounds.size() + 1> counts_{};  // the last one: longer than every bound
  double sum_ = 0;
};

/// What the server counts about itself. All times are of the wall clock, on the simulated GPU too.
///
/// Threads: every member, any thread.
class server_metrics {
 public:
  /// What is so at this moment; the server knows it.
  struct levels {
    std::size_t waiting = 0;       ///< texts that the worker has not begun
    std::size_t in_flight = 0;     ///< texts that were taken and not yet answered to their end
    std::size_t connections = 0;   ///< open
    double device_seconds = 0;     ///< the device's own clock
    bool simulated_clock = false;  ///< whose seconds are virtual
  };

  explicit server_metrics(std::size_t models) : tokens_(models) {}

  /// @param path  One of the endpoints, or `other`: labels must not grow with what clients ask for.
  void answered(std::string_view path, int status) {
    const std::lock_guard lock(mutex_);
    ++answers_[{std::string{path}, status}];
  }
  /// Full queues, and a server that is about to end.
  void refused() {
    const std::lock_guard lock(mutex_);
    ++refused_;
  }
  void began(wall_clock::duration waited) {
    const std::lock_guard lock(mutex_);
    waited_.add(waited);
  }
  void first_byte(wall_clock::duration after) {
    const std::lock_guard lock(mutex_);
    first_.add(after);
  }
  void ended(outcome how, wall_clock::duration after) {
    const std::lock_guard lock(mutex_);
    ++outcomes_[static_cast<std::size_t>(how)];
    whole_.add(after);
  }
  void token(std::size_t model) {
    const std::lock_guard lock(mutex_);
    ++tokens_[model];
  }
  void changed_model() {
    const std::lock_guard lock(mutex_);
    ++changes_;
  }

  /// OpenMetrics text without its last line, `# EOF`: that of the arena follows.
  [[nodiscard]] std::string text(const levels& now) const {
    const std::lock_guard lock(mutex_);
    std::string out;
    const auto family = [&](const char* name, const char* type, absl::string_view unit, const char* help) {
      absl::StrAppend(&out, "# TYPE ", name, " ", type, "\n");
      if (!unit.empty()) absl::StrAppend(&out, "# UNIT ", name, " ", unit, "\n");
      absl::StrAppend(&out, "# HELP ", name, " ", help, "\n");
    };
    family("serve_http_requests", "counter", "", "HTTP requests by endpoint and status of the answer.");
    for (const auto& [key, count] : answers_) {
      absl::StrAppend(&out, "serve_http_requests_total{path=\"", key.first, "\",status=\"", key.second, "\"} ", count,
                      "\n");
    }
    family("serve_refused", "counter", "", "Texts that were refused, because the queue was full or the server ended.");
    absl::StrAppend(&out, "serve_refused_total ", refused_, "\n");
    family("serve_texts", "counter", "", "Texts that were taken, by how they ended.");
    for (std::size_t i = 0; i < outcome_count; ++i) {
      absl::StrAppend(&out, "serve_texts_total{outcome=\"", to_string(static_cast<outcome>(i)), "\"} ", outcomes_[i],
                      "\n");
    }
    family("serve_tokens", "counter", "", "Bytes of text that a model wrote.");
    for (std::size_t i = 0; i < tokens_.size(); ++i)
      absl::StrAppend(&out, "serve_tokens_total{model=\"", i, "\"} ", tokens_[i], "\n");
    family("serve_model_changes", "counter", "", "Times that the device went on with another model.");
    absl::StrAppend(&out, "serve_model_changes_total ", changes_, "\n");
    family("serve_waiting", "gauge", "", "Texts in the queue.");
    absl::StrAppend(&out, "serve_waiting ", now.waiting, "\n");
    family("serve_in_flight", "gauge", "", "Texts that were taken and not yet answered to their end.");
    absl::StrAppend(&out, "serve_in_flight ", now.in_flight, "\n");
    family("serve_connections", "gauge", "", "Open connections.");
    absl::StrAppend(&out, "serve_connections ", now.connections, "\n");
    family("serve_wait_seconds", "histogram", "seconds", "Wall-clock time of a text in the queue.");
    waited_.append_to(out, "serve_wait_seconds");
    family("serve_first_byte_seconds", "histogram", "seconds",
           "Wall-clock time from the request to the first byte of its text.");
    first_.append_to(out, "serve_first_byte_seconds");
    family("serve_text_seconds", "histogram", "seconds",
           "Wall-clock time from the request to the end of its text, however it ended.");
    whole_.append_to(out, "serve_text_seconds");
    family("serve_device_clock_seconds", "gauge", "seconds",
           "Clock of the device. That of a simulated one is virtual: it passes with launches and copies alone.");
    absl::StrAppendFormat(&out, "serve_device_clock_seconds{clock=\"%s\"} %.9f\n",
                          now.simulated_clock ? "virtual" : "wall", now.device_seconds);
    return out;
  }

 private:
  mutable std::mutex mutex_;
  std::map<std::pair<std::string, int>, std::uint64_t> answers_;
  std::array<std::uint64_t, outcome_count> outcomes_{};
  std::vector<std::uint64_t> tokens_;
  std::uint64_t refused_ = 0;
  std::uint64_t changes_ = 0;
  time_histogram waited_;
  time_histogram first_;
  time_histogram whole_;
};

}  // namespace serve
