#pragma once

#include <deepum/core/launch.hpp>
#include <deepum/engine/inbox.hpp>
#include <deepum/engine/records.hpp>
#include <deepum/policy/policy.hpp>

namespace deepum {
inline namespace v0 {
namespace detail {

/// What the end of a launch and of a stream means, whether the launch ran or was taken back.
///
/// Not synchronised: used under the engine's state lock.
class launch_ends {
 public:
  /// All outlive it.
  launch_ends(records& shared, policy& chooser, inbox& mail) : state_(shared), policy_(chooser), inbox_(mail) {}

  /// The launch is not in flight any more.
  void ended(launch_id id, stream_id stream) {
    policy_.on_finish(id, stream, state_.ledger);
    give_back_if_over(stream);
  }
  /// No more launches come on the stream.
  void close(stream_id stream) {
    state_.launches.close(stream);
    give_back_if_over(stream);
  }

 private:
  /// The number of a stream is free when the stream has been closed and nothing of it is in flight.
  void give_back_if_over(stream_id stream) {
    if (state_.launches.over(stream)) {
      policy_.on_stream_closed(stream);
      inbox_.give_back(stream);
    }
  }

  records& state_;
  policy& policy_;
  inbox& inbox_;
};

}  // namespace detail
}  // namespace v0
}  // namespace deepum
