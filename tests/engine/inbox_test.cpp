#include "engine/fake_memory.hpp"
#include <deepum/engine/inbox.hpp>

#include <doctest/doctest.h>

#include <cstdint>
#include <vector>

namespace inbox_test {

using namespace deepum;
using deepum_test::fake_memory;
using deepum_test::paged_fake_memory;
using detail::inbox;
using detail::message;

block_range blocks(std::uint32_t first, std::uint32_t count) { return {block_id{first}, count}; }
message request(const transfer& what) {
  message m{message::kind::request};
  transfer t = what;
  t.blocks = blocks(0, 1);
  m.request = t;
  return m;
}
std::vector<message> taken(inbox& in) {
  std::vector<message> out;
  in.take(out);
  return out;
}

TEST_CASE("launches are numbered in the order in which they and the facts beside them are taken") {
  fake_memory memory(8);
  inbox in(memory);
  CHECK(!in.last_launch().valid());
  CHECK(in.push_launch({}) == launch_id{1});
  in.push(message{message::kind::dead});
  CHECK(in.push_launch({}) == launch_id{2});
  CHECK(in.last_launch() == launch_id{2});
  const std::vector<message> all = taken(in);
  REQUIRE(all.size() == 3);
  CHECK(all[0].record.id == launch_id{1});
  CHECK(all[1].what == message::kind::dead);
  CHECK(all[2].record.id == launch_id{2});
  CHECK(taken(in).empty());
}

TEST_CASE("the first message notifies the memory, and the next ones do not until it has been taken") {
  fake_memory memory(8);
  inbox in(memory);
  in.push_launch({});
  in.push_launch({});
  CHECK(memory.notifications == 1);
  (void)taken(in);
  in.push_launch({});
  CHECK(memory.notifications == 2);
}

TEST_CASE("4096 messages between two pumps are a crowd, taken or not") {
  fake_memory memory(8);
  inbox in(memory);
  for (std::size_t i = 1; i != inbox::most_messages; ++i)
    in.push_launch({});
  CHECK(!in.crowded());
  (void)taken(in);
  in.push_launch({});
  CHECK(in.crowded());
  in.pumped();
  CHECK(!in.crowded());
}

TEST_CASE("blocks come alive at once while they fit and nothing is given up") {
  fake_memory memory(8);
  inbox in(memory);
  CHECK(!in.push_live(blocks(0, 1)));  // nothing is known yet
  (void)taken(in);
  in.set_spare(2, 6);
  CHECK(in.push_live(blocks(0, 3)));
  CHECK(!in.push_live(blocks(3, 2)));  // one more would
  CHECK(in.push_live(blocks(3, 1)));
  in.set_spare(2, 9);  // six of the seven are in the inbox
  CHECK(in.push_live(blocks(4, 1)));
  CHECK(!in.push_live(blocks(5, 1)));
}

TEST_CASE("nothing comes alive at once between the announcement of discards and their end") {
  fake_memory memory(8);
  inbox in(memory);
  in.set_spare(0, 8);
  CHECK(!in.announce_discards());
  CHECK(in.announce_discards());
  CHECK(!in.push_live(blocks(0, 1)));
  in.no_discards();
  CHECK(in.push_live(blocks(0, 1)));
  in.push(request(transfer::prefetch(location::device(), reason::requested)));
  CHECK(in.push_live(blocks(1, 1)));
  in.push(request(transfer::discard(reason::requested)));  // the program asks for one
  CHECK(!in.push_live(blocks(2, 1)));
  in.no_discards();  // but for that
  CHECK(!in.push_live(blocks(2, 1)));
  (void)taken(in);
  in.no_discards();
  CHECK(in.push_live(blocks(2, 1)));
}

TEST_CASE("on memory that never faults nothing comes alive at once") {
  paged_fake_memory memory(8);
  inbox in(memory);
  in.set_spare(0, 8);
  CHECK(!in.push_live(blocks(0, 1)));
}

TEST_CASE("a number of a stream that is given back is the next one, and too many closing ones give out none") {
  fake_memory memory(8);
  inbox in(memory);
  CHECK(in.take_stream_number(1) == stream_id{0});
  CHECK(in.take_stream_number(1) == stream_id{1});
  in.push(message{message::kind::close_stream});
  CHECK(!in.take_stream_number(1));
  CHECK(in.take_stream_number(2) == stream_id{2});
  in.give_back(stream_id{1});
  CHECK(in.take_stream_number(1) == stream_id{1});
  CHECK(in.take_stream_number(1) == stream_id{3});
}

}  // namespace inbox_test
