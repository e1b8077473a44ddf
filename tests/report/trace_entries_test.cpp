#include <deepum/tracing/trace_entries.hpp>

#include <doctest/doctest.h>

#include <cstdint>
#include <string>
#include <vector>

namespace trace_entries_test {

using namespace deepum;
using detail::trace_entries;
using detail::trace_entry;
using detail::trace_track;

trace_entry moved(trace_track what, std::uint32_t first, std::uint32_t count) {
  trace_entry e;
  e.what = what;
  e.range = {block_id{first}, count};
  return e;
}

std::vector<std::uint64_t> launches_of(const trace_entries& t) {
  std::vector<std::uint64_t> all;
  t.for_each([&](const trace_entry& e) { all.push_back(e.launch); });
  return all;
}

TEST_CASE("the latest entries are kept, the oldest first, and those that were forgotten are counted") {
  trace_entries t(3);
  CHECK(t.empty());
  for (std::uint64_t i = 1; i <= 5; ++i) {
    trace_entry e;
    e.what = trace_track::launch;
    e.launch = i;
    t.keep(e);
  }
  CHECK(launches_of(t) == std::vector<std::uint64_t>{3, 4, 5});
  CHECK(t.forgotten() == 2);
}

TEST_CASE("blocks count once however often they come, and what forgotten entries did is still known") {
  trace_entries t(1);
  const trace_entry comes = moved(trace_track::arrived, 2, 3);
  CHECK(t.note(comes) == 3);
  CHECK(t.note(moved(trace_track::arrived, 4, 2)) == 1);
  CHECK(t.note(moved(trace_track::departed, 0, 3)) == 1);
  CHECK(t.note(moved(trace_track::fault, 0, 3)) == 0);
  t.keep(comes);
  CHECK(t.resident_before().empty());
  t.keep(moved(trace_track::departed, 0, 3));
  CHECK(t.resident_before() == std::vector<bool>{false, false, true, true, true});
}

TEST_CASE("a text has one number, and stands for itself; there are not more than the limit") {
  detail::numbered_texts texts("(too many)");
  const std::uint32_t a = texts.number_of("a");
  CHECK(texts.number_of("b") != a);
  CHECK(texts.number_of("a") == a);
  CHECK(texts.texts()[a] == "a");
  for (int i = 0; i < 70000; ++i) {
    (void)texts.number_of(std::to_string(i));
  }
  CHECK(texts.texts()[texts.number_of("one more")] == "(too many)");
  CHECK(texts.number_of("a") == a);
}

}  // namespace trace_entries_test
