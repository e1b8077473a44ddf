#include <deepum/core/plan.hpp>
#include <deepum/core/transfer.hpp>

#include <doctest/doctest.h>

#include <string>

namespace transfer_test {

using namespace deepum;

constexpr block_range some{block_id{3}, 4};
constexpr location neighbour = location::device(1);

TEST_CASE("each composition says what it takes, gives up and copies") {
  struct expected {
    transfer what;
    std::string word;
    bool takes_room, releases, forgets, copies, cleans;
  };
  for (const expected& e :
       {expected{transfer::prefetch(location::device(), reason::issued, some), "prefetch", true, false, false, true,
                 false},
        {transfer::populate(location::device(), reason::issued, some), "prefetch", true, false, false, false, false},
        {transfer::clean(reason::issued, some), "clean", false, false, false, true, true},
        {transfer::evict(location::host(), reason::issued, some), "evict", false, true, false, true, false},
        {transfer::drop(reason::issued, some), "drop", false, true, false, false, false},
        {transfer::discard(reason::issued, some), "discard", false, false, true, false, false}}) {
    CAPTURE(e.word);
    CHECK(e.what.blocks == some);
    CHECK(e.what.why == reason::issued);
    CHECK(e.what.from.is_any());  // the engine's business
    CHECK(to_string(e.what) == e.word);
    CHECK(e.what.takes_room() == e.takes_room);
    CHECK(e.what.releases() == e.releases);
    CHECK(e.what.forgets() == e.forgets);
    CHECK(e.what.copies() == e.copies);
    CHECK(e.what.cleans() == e.cleans);
  }
}

TEST_CASE("what leaves for a neighbour takes room there, and has a word of its own when its source is known") {
  transfer t = transfer::evict(neighbour, reason::make_room, some);
  CHECK(t.takes_room());
  CHECK(t.releases());
  t.from = location::device();
  CHECK(to_string(t) == "move");
}

TEST_CASE("any place is neither the host nor a device") {
  CHECK(location::any().is_any());
  CHECK_FALSE(location::any().is_host());
  CHECK_FALSE(location::any().is_device());
  CHECK(location::device(location::limit - 2).is_device());
}

TEST_CASE("a plan is empty without hints and transfers, and forgets both") {
  plan p;
  CHECK(p.empty());
  p.hints.push_back({.blocks = some, .what = advice::set_read_mostly});
  CHECK_FALSE(p.empty());
  p.clear();
  p.transfers.push_back(transfer::clean(reason::write_back, some));
  CHECK_FALSE(p.empty());
  p.supersedes = true;
  p.clear();
  CHECK(p.empty());
  CHECK_FALSE(p.supersedes);
}

}  // namespace transfer_test
