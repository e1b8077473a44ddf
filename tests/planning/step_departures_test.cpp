#include <deepum/core/block_ledger.hpp>
#include <deepum/planning/step_departures.hpp>

#include <doctest/doctest.h>

#include <cstdint>
#include <string>

namespace step_departures_test {

using namespace deepum;
using deepum::access;  // not the one of POSIX

constexpr block_range written{block_id{0}, 100};     // by the first launch
constexpr block_range only_read{block_id{100}, 16};  // by the second launch and the fourth one
constexpr block_range large{block_id{116}, 200};     // the third launch needs all of the room for it

// The third launch is next: the other blocks should leave, those that were written are needed later than the others.
struct two_that_leave {
  explicit two_that_leave(bool keeps_home_copy) {
    map.set_keeps_home_copy(keeps_home_copy);
    for (std::uint32_t b = 0; b != large.end_value(); ++b) {
      map.set_liveness(block_id{b}, liveness::live);
      map.write_on_host(block_id{b});
    }
    for (std::uint32_t b = 0; b != only_read.end_value(); ++b) {
      map.start_arriving(block_id{b});
      map.arrive(block_id{b}, true);
      if (written.contains(block_id{b})) {
        map.write(block_id{b});
      }
    }
    for (std::uint32_t s = 0; s != schedule.step().segments().size(); ++s) {
      segment_of.resize(schedule.step().segments()[s].blocks.end_value(), s);
    }
    schedule.advance();
    schedule.advance();
  }
  static step_description step() {
    step_description d;
    for (const auto& [blocks, mode] : {std::pair{written, access::update},
                                       {only_read, access::read},
                                       {large, access::read},
                                       {only_read, access::read}}) {
      d.add_launch();
      d.add_use(blocks, mode);
    }
    return d;
  }
  // The blocks that are asked to leave, in order.
  std::string write(std::uint64_t keep = 0) {
    plan p;
    const std::int64_t count = departures.write(map, schedule, segment_of, keep, p);
    std::string text;
    std::uint32_t blocks = 0;
    for (const transfer& t : p.transfers) {
      blocks += t.blocks.count;
      text += std::string(to_string(t)) + " " + std::to_string(t.blocks.begin_value()) + "+" +
              std::to_string(t.blocks.count) + " ";
    }
    CHECK(blocks == count);
    return text;
  }

  block_ledger map{large.end_value(), location::device(), 200, um_grid};
  step_schedule schedule{step(), {200, nanoseconds{10}, nanoseconds{10}}, 0};
  detail::step_departures departures{map};
  sequence<std::uint32_t> segment_of{};
};

TEST_CASE("what needs no copy leaves before what has to be copied, and beside a whole plan of that") {
  two_that_leave s(true);
  const std::string text = s.write();
  CHECK(text.substr(0, 25) == "evict 100+8 evict 108+8 e");
  CHECK(text.find("evict 0+8 ") != std::string::npos);
  CHECK(s.departures.copies() == written.count);
  CHECK(s.departures.is_full());
  // As long as it is there it is asked for again.
  CHECK(s.write() == text);
  for (const block_id b : only_read) {
    s.map.start_leaving(b);
    s.map.depart(b);
  }
  CHECK(s.write().find("evict 100+8") == std::string::npos);
}

TEST_CASE("where the host keeps no copy everything is copied, what is needed last first") {
  two_that_leave s(false);
  CHECK(s.write().find("evict 100+8") == std::string::npos);
  CHECK(s.departures.copies() == written.count);
}

TEST_CASE("what is needed as soon as what has been fetched stays") {
  two_that_leave s(true);
  CHECK(s.write(2).find("evict 100+8") == std::string::npos);
  CHECK(s.write(1).find("evict 100+8") == 0);
}

}  // namespace step_departures_test
