#pragma once

#include <deepum/cuda/check.hpp>
#include <deepum/cuda/current_device.hpp>

#include <cuda_runtime_api.h>

#include <memory>
#include <optional>
#include <type_traits>
#include <utility>
#include <vector>

namespace deepum {
inline namespace v0 {
namespace cuda {

/// Destroys a stream or an event. An error is cleared.
struct destroy_handle {
  const primary_context* on = nullptr;  ///< its device; nullptr: it is current then

  void operator()(cudaStream_t s) const { destroy(cudaStreamDestroy, s); }
  void operator()(cudaEvent_t e) const { destroy(cudaEventDestroy, e); }

 private:
  template <class Handle>
  void destroy(cudaError_t (*call)(Handle), Handle h) const {
    std::optional<own_calls> calls;
    if (on != nullptr) {
      calls.emplace(*on);
    }
    (void)succeeded(call(h));
  }
};

/// A stream of the library's own. Its work goes on when it is destroyed.
using unique_stream = std::unique_ptr<std::remove_pointer_t<cudaStream_t>, destroy_handle>;
/// An event of the library's own.
using unique_event = std::unique_ptr<std::remove_pointer_t<cudaEvent_t>, destroy_handle>;

/// A stream that is not ordered with the default stream; empty where the runtime makes none.
/// @param on  Its device, which is current now; nullptr: it is current when the stream is destroyed, too.
[[nodiscard]] inline unique_stream try_make_stream(const primary_context* on = nullptr) noexcept {
  cudaStream_t made = nullptr;
  const bool ok = succeeded(cudaStreamCreateWithFlags(&made, cudaStreamNonBlocking));
  return {ok ? made : nullptr, destroy_handle{on}};
}
/// The same. @errors  `status::device_failure`.
[[nodiscard]] inline unique_stream make_stream(const primary_context* on = nullptr) {
  cudaStream_t made = nullptr;
  check(cudaStreamCreateWithFlags(&made, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
  return {made, destroy_handle{on}};
}

/// What an event is for.
enum class event_use : unsigned {
  order = cudaEventDisableTiming,  ///< to be waited for or asked
  time = cudaEventDefault,         ///< to tell the time, too
};

/// An event; empty where the runtime makes none.
/// @param on  As above.
[[nodiscard]] inline unique_event try_make_event(event_use use, const primary_context* on = nullptr) noexcept {
  cudaEvent_t made = nullptr;
  const bool ok = succeeded(cudaEventCreateWithFlags(&made, static_cast<unsigned>(use)));
  return {ok ? made : nullptr, destroy_handle{on}};
}
/// The same. @errors  `status::device_failure`.
[[nodiscard]] inline unique_event make_event(event_use use, const primary_context* on = nullptr) {
  cudaEvent_t made = nullptr;
  check(cudaEventCreateWithFlags(&made, static_cast<unsigned>(use)), "cudaEventCreateWithFlags");
  return {made, destroy_handle{on}};
}

/// Events to be used again and again, so that none is made while work goes on.
///
/// Threads: one at a time.
class event_pool {
 public:
  /// One of those that were given back, else a new one; empty where the runtime makes none.
  [[nodiscard]] unique_event take() {
    if (spare_.empty()) {
      return try_make_event(event_use::order);
    }
    unique_event e = std::move(spare_.back());
    spare_.pop_back();
    return e;
  }
  /// @param e  May be empty.
  void give(unique_event e) {
    if (e) {
      spare_.push_back(std::move(e));
    }
  }
  /// Destroys the spare ones.
  void clear() { spare_.clear(); }

 private:
  std::vector<unique_event> spare_{};
};

}  // namespace cuda
}  // namespace v0
}  // namespace deepum
