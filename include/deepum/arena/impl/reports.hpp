#pragma once

#include <deepum/arena/reports.hpp>
#include <deepum/core/regular_file.hpp>
#include <deepum/environment.hpp>
#include <deepum/metrics.hpp>
#include <deepum/separate.hpp>
#include <deepum/trace.hpp>

#include <atomic>
#include <cstddef>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>

namespace deepum {
inline namespace v0 {
namespace detail {

struct arena_reports::files {
  std::function<void(std::string_view)> log{};
  unsigned number = 0;  // of the arena in the process
  std::string statistics{};
  std::string trace{};
  std::unique_ptr<deepum::trace> recorded{};

  /// run.json, run.2.json ...
  [[nodiscard]] std::string numbered(const std::string& path) const {
    if (number == 1) {
      return path;
    }
    const std::size_t name = path.rfind('/') + 1;  // 0 where there is no folder
    const std::size_t dot = path.rfind('.');
    const std::size_t at = dot == std::string::npos || dot <= name ? path.size() : dot;
    return path.substr(0, at) + '.' + std::to_string(number) + path.substr(at);
  }
  void save(const std::string& path, const std::string& text) const {
    replace_regular_file(numbered(path), std::as_bytes(std::span<const char>(text)));
  }
};

DEEPUM_SEPARATE arena_reports::arena_reports(const std::function<void(std::string_view)>& log) {
  const std::optional<std::string> statistics = environment::statistics_file(log);
  const std::optional<std::string> trace = environment::trace_file(log);
  if (statistics || trace) {
    static std::atomic<unsigned> arenas{0};
    files_ = std::make_unique<files>(
        files{.log = log, .number = ++arenas, .statistics = statistics.value_or(""), .trace = trace.value_or("")});
  }
}

DEEPUM_SEPARATE arena_reports::~arena_reports() = default;

DEEPUM_SEPARATE arena_reports::observer arena_reports::observed(observer own, std::string_view policy) {
  if (!files_ || files_->trace.empty()) {
    return own;
  }
  files_->recorded =
      std::make_unique<trace>(trace_options{.name = std::string(policy) + ", arena " + std::to_string(files_->number)});
  return [own = std::move(own), &recorded = *files_->recorded](const device_event& e, launch_id launch) {
    if (own) {
      own(e, launch);
    }
    recorded.see(e, launch);
  };
}

DEEPUM_SEPARATE void arena_reports::write(const statistics& last) noexcept {
  if (!files_) {
    return;
  }
  const auto attempt = [&](auto&& save) {
    try {
      save();
    } catch (const std::exception& e) {
      if (files_->log) {
        files_->log(e.what());
      }
    }
  };
  if (!files_->statistics.empty()) {
    attempt([&] { files_->save(files_->statistics, to_json(last) + '\n'); });
  }
  if (files_->recorded) {
    attempt([&] {
      std::ostringstream text;
      const trace* const recorded = files_->recorded.get();
      trace::write(text, {&recorded, 1});
      files_->save(files_->trace, std::move(text).str());
    });
  }
}

}  // namespace detail
}  // namespace v0
}  // namespace deepum
