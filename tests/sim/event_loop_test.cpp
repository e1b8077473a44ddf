#include <deepum/sim/event_loop.hpp>
#include <deepum/sim/link.hpp>

#include <doctest/doctest.h>

#include <chrono>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace event_loop_test {

using namespace deepum;
using namespace std::chrono_literals;
using sim::event_loop;

TEST_CASE("events run in order of time, and those of one moment in the order in which they were scheduled") {
  event_loop loop;
  std::string order;
  event_loop::host_call call(loop);
  loop.after(20ns, [&] { order += 'c'; });
  loop.after(10ns, [&] { order += 'a'; });
  loop.after(10ns, [&] { order += 'b'; });
  call.spend(15ns);
  CHECK(order == "ab");
  CHECK(loop.now() == 15ns);
  call.wait([&] { return order.size() == 3; });
  CHECK(loop.now() == 20ns);
}

TEST_CASE("an event may let time pass in place only up to the next event and the end of the host's call") {
  event_loop loop;
  std::vector<bool> passed;
  event_loop::host_call call(loop);
  loop.after(10ns, [&] { passed = {loop.try_pass(10ns), loop.try_pass(5ns), loop.try_pass(4ns)}; });
  loop.after(25ns, [] {});
  call.spend(40ns);
  CHECK(passed == std::vector<bool>{true, false, true});
  loop.after(5ns, [&] { passed = {loop.try_pass(6ns), loop.try_pass(5ns)}; });
  call.spend(10ns);
  CHECK(passed == std::vector<bool>{false, true});
}

TEST_CASE("who waits for a motion is called once, also when it waits again at once") {
  event_loop loop;
  int calls = 0;
  event_loop::host_call call(loop);
  loop.on_motion_end([&] {
    ++calls;
    loop.on_motion_end([&] { ++calls; });
  });
  loop.motion_ended();
  CHECK(calls == 1);
  loop.motion_ended();
  loop.motion_ended();
  CHECK(calls == 2);
}

TEST_CASE("host threads take turns between two events: a short call does not wait for a long one") {
  event_loop loop;
  bool stop = false;
  std::function<void()> tick = [&] { loop.after(10ns, tick); };
  {
    event_loop::host_call call(loop);
    tick();
  }
  std::thread patient([&] { event_loop::host_call(loop).wait([&] { return stop; }); });
  for (int i = 0; i < 100; ++i) {
    event_loop::host_call(loop).spend(25ns);
  }
  {
    event_loop::host_call call(loop);
    stop = true;
  }
  patient.join();
  CHECK(loop.now() >= 2500ns);
}

TEST_CASE("code of the program runs without the lock, and the clock stands still meanwhile") {
  event_loop loop;
  nanoseconds seen{-1};
  event_loop::host_call call(loop);
  loop.after(10ns, [&] {
    loop.unlocked([&] {
      std::thread other([&] {
        const auto lock = loop.lock();
        seen = loop.now();
      });
      other.join();
    });
  });
  call.spend(20ns);
  CHECK(seen == 10ns);
}

TEST_CASE("a link moves one thing at a time, page faults first") {
  event_loop loop;
  sim::link link(loop);
  std::string order;
  const auto submit = [&](sim::urgency who, char name) {
    link.submit(
        who, [] { return nanoseconds{10}; }, [&order, name] { order += name; });
  };
  event_loop::host_call call(loop);
  submit(sim::urgency::command, 'a');
  submit(sim::urgency::command, 'b');
  submit(sim::urgency::fault, 'f');
  CHECK(link.busy());
  call.spend(25ns);
  CHECK(order == "af");
  call.spend(5ns);
  CHECK(order == "afb");
  CHECK_FALSE(link.busy());
}

TEST_CASE("what a transfer submits when it ends queues up behind what waited longer") {
  event_loop loop;
  sim::link link(loop);
  std::string order;
  const auto ten = [] { return nanoseconds{10}; };
  event_loop::host_call call(loop);
  link.submit(sim::urgency::command, ten, [&] { link.submit(sim::urgency::command, ten, [&] { order += 'b'; }); });
  link.submit(sim::urgency::command, ten, [&] { order += 'a'; });
  call.spend(30ns);
  CHECK(order == "ab");
}

}  // namespace event_loop_test
