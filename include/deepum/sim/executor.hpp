#pragma once

#include <deepum/core/fifo.hpp>
#include <deepum/core/launch.hpp>
#include <deepum/core/sequence.hpp>
#include <deepum/error.hpp>
#include <deepum/sim/address_space.hpp>
#include <deepum/sim/event_loop.hpp>
#include <deepum/units.hpp>

#include <array>
#include <cstdint>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>

namespace deepum {
inline namespace v0 {
namespace sim {

class driver;
class executor;
class fabric;
class inlet;
class link;
struct profile;
class work;

/// What runs operations. Each runs one at a time; they run beside one another.
enum class engine_kind : std::uint8_t { compute, copy_in, copy_out };
inline constexpr unsigned engine_count = 3;

/// A moment in a stream that is or is not behind it.
struct moment {
  bool passed = false;
};

/// One entry of a stream.
struct operation {
  enum class kind : std::uint8_t {
    run,     ///< a kernel, copy or fill
    finish,  ///< the launch with this id is complete
    record,  ///< `when` has passed
    wait,    ///< for `when`
  };

  kind what = kind::run;
  launch_id launch{};
  std::shared_ptr<moment> when{};

  // run
  engine_kind engine = engine_kind::compute;
  double link_rate = 0;     ///< copies between host and device, or two devices: bytes a second; 0: no link is used
  bool copies = false;      ///< may touch memory of every device of the machine
  link* between = nullptr;  ///< of a copy between two devices; what it reads goes out over it
  inlet* into = nullptr;    ///< of the same: and comes in there
  std::function<void(work&)> describe{};
  std::function<void()> body{};
  walk touched{};

  // While it runs.
  std::uint64_t order = 0;  ///< of issue, over all streams
  nanoseconds compute{};
  std::uint64_t total = 0;  ///< bytes touched
  std::uint64_t behind = 0;
  std::optional<nanoseconds> waiting_since{};
  bool late = false;
};

/// The operations of one stream, in order.
struct stream_state {
  explicit stream_state(address_space& addresses) : space(&addresses) {}

  address_space* space;  ///< whose engine hears of the launches
  fifo<std::unique_ptr<operation>> queue{};
  bool started = false;      ///< the first one is running
  std::uint64_t number = 0;  ///< grows from stream to stream
  executor* runs_on = nullptr;

  /// A launch of which an operation has begun. They nest: one may end while those around it go on.
  struct running {
    launch_id launch{};
    nanoseconds began{};
    nanoseconds stalled{};
  };
  sequence<running> launches{};

  /// The launch of an operation that has begun or begins now.
  running& of(launch_id launch, nanoseconds now) {
    for (running& r : launches) {
      if (r.launch == launch) {
        return r;
      }
    }
    return launches.emplace_back(running{launch, now, {}});
  }
  /// The launch ends now. @returns  What is known of it.
  running take(launch_id launch, nanoseconds now) {
    const running r = of(launch, now);
    erase_if(launches, [launch](const running& other) { return other.launch == launch; });
    return r;
  }
};

/// Runs what streams hold: kernels and copies walk through their memory and wait for blocks; events order streams.
///
/// An operation that is ready starts in the order of issue. It runs to its end before the next one on its engine
/// starts, as kernels do that fill the device. Its time is spread evenly over the bytes that it touches, and it walks
/// through them in the order of its description. Its body runs when it ends. Not synchronised: used under the lock of
/// the event loop. No call walks streams but those that wait for an event of another one.
class executor {
 public:
  /// @param ordinal  Of its device, in the machine.
  executor(fabric& shared, int ordinal, driver& commands, const profile& rates);
  ~executor();
  executor(const executor&) = delete;
  executor& operator=(const executor&) = delete;

  [[nodiscard]] int ordinal() const { return ordinal_; }
  [[nodiscard]] driver& memory_driver() const { return driver_; }

  void add(address_space& space);
  void remove(address_space& space);
  void add(stream_state& stream);
  void remove(stream_state& stream);

  [[nodiscard]] address_space* space_of(const void* p) const;
  /// The space of any device of the machine that the address lies in; nullptr: none.
  [[nodiscard]] static address_space* space_of(const fabric& machine, const void* p);

  void enqueue(stream_state& stream, std::unique_ptr<operation> op);
  /// Streams that all calls so far have looked at, beside those that they name: what they cost.
  [[nodiscard]] std::uint64_t streams_visited() const { return streams_visited_; }

  /// The first failure of an operation. Like an error of CUDA it stays, and later operations do nothing.
  void fail(std::exception_ptr what);
  void fail(status code, const std::string& message);
  void rethrow() const;

 private:
  static constexpr std::uint32_t rows_at_once = 4096;  // that are touched over the link

  /// The stream may have something to start, and with it those that wait for it, on any device.
  void dispatch(stream_state& stream);
  /// Takes what needs no time from the front of a stream, and notes what it comes to: something to run, or to wait for.
  /// @returns  Whether others may have waited for what it took.
  bool pass_instant(stream_state& stream);
  /// Gives the engines that do nothing the oldest operation that is ready.
  void start_ready();
  void start_oldest(engine_kind engine);
  void begin(stream_state& stream);

  /// Spans to segments of one block each.
  void split(operation& op, const work& description);
  /// Calls `visit` with the driver of each device whose memory the operation touches, its own first.
  template <class Visit>
  void for_each_driver(const operation& op, Visit&& visit);
  void step(stream_state& stream);
  /// The next segments, as many as are touched over the link.
  void touch_rows(stream_state& stream, operation& op, driver& home);
  void wait(operation& op);
  void stop_waiting(stream_state& stream, operation& op);
  [[nodiscard]] nanoseconds slowed(nanoseconds time) const;
  /// The next `size` bytes' part of the compute time; the parts add up to the whole.
  [[nodiscard]] nanoseconds share_of(operation& op, std::uint64_t size) const;

  void end(stream_state& stream);
  void leave(stream_state& stream);

  template <class Visit>
  static void for_each_touched(const operation& op, Visit&& visit) {
    for (const segment& s : op.touched.segments) {
      if (s.space != nullptr) {
        visit(s);
      }
    }
  }
  template <class Code>
  void run_user_code(const Code& code) {
    std::exception_ptr thrown;
    loop_.unlocked([&] {
      try {
        code();
      } catch (...) {
        thrown = std::current_exception();
      }
    });
    if (thrown) {
      fail(thrown);
    }
  }

  fabric& fabric_;
  event_loop& loop_;
  const int ordinal_;
  driver& driver_;
  const profile& profile_;
  sequence<address_space*> spaces_;
  std::uint64_t streams_visited_ = 0;
  std::array<std::map<std::uint64_t, stream_state*>, engine_count> ready_;  // by engine and order: to be started
  std::array<bool, engine_count> busy_{};
  std::uint64_t issued_ = 0;
  std::exception_ptr failure_;
};

}  // namespace sim
}  // namespace v0
}  // namespace deepum

#ifndef DEEPUM_SEPARATE_COMPILATION
#include <deepum/sim/impl/executor.hpp>  // what it declares
#endif
