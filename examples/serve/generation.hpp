#pragma once

#include "generate_request.hpp"

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

namespace serve {

using wall_clock = std::chrono::steady_clock;

/// How a text ended.
enum class outcome : std::uint8_t {
  finished,   ///< all of it was written
  timed_out,  ///< its time was over before
  cancelled,  ///< nobody reads it any more
  failed,     ///< the device did
};
inline constexpr std::size_t outcome_count = 4;

[[nodiscard]] inline const char* to_string(outcome o) {
  constexpr const char* names[outcome_count] = {"finished", "timed_out", "cancelled", "failed"};
  return names[static_cast<std::size_t>(o)];
}

/// A text on its way from the worker, which writes it, to the connection, which sends it.
///
/// Threads: every member, any thread. However many end it, the first one decides how it ended.
class generation {
 public:
  /// What has been written since the last look.
  struct piece {
    std::string text{};
    std::optional<outcome> end{};  ///< nothing follows
  };

  generation(generate_request request, wall_clock::time_point deadline)
      : request_(std::move(request)),
        began_(wall_clock::now()),
        deadline_(deadline) {}

  [[nodiscard]] const generate_request& request() const { return request_; }
  [[nodiscard]] wall_clock::time_point began() const { return began_; }
  [[nodiscard]] wall_clock::time_point deadline() const { return deadline_; }

  /// Adds a byte; behind the end it is lost.
  void append(char byte) {
    const std::lock_guard lock(mutex_);
    if (end_) return;
    text_.push_back(byte);
    changed_.notify_all();
  }
  /// @param why  Of a failure, for people.
  void end(outcome how, std::string why = {}) {
    const std::lock_guard lock(mutex_);
    if (end_) return;
    end_ = how;
    why_ = std::move(why);
    changed_.notify_all();
  }
  [[nodiscard]] bool ended() const {
    const std::lock_guard lock(mutex_);
    return end_.has_value();
  }
  [[nodiscard]] std::string why() const {
    const std::lock_guard lock(mutex_);
    return why_;
  }

  /// Waits for text or for the end. Ends what has not ended by its deadline, so that nobody waits for a worker that is
  /// busy.
  [[nodiscard]] piece wait() {
    std::unique_lock lock(mutex_);
    if (!changed_.wait_until(lock, deadline_, [&] { return end_ || !text_.empty(); })) end_ = outcome::timed_out;
    return {.text = std::exchange(text_, {}), .end = end_};
  }

 private:
  const generate_request request_;
  const wall_clock::time_point began_;
  const wall_clock::time_point deadline_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::string text_{};
  std::string why_{};
  std::optional<outcome> end_{};
};

}  // namespace serve
