// The law, for every record that there can be, against a table written by hand.

#include <deepum/engine/law.hpp>

#include <doctest/doctest.h>

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace law_test {

using namespace deepum;
using law::block_facts;

constexpr std::array both{false, true};

/// Calls `visit(block_facts)` for every record: each flag, and no, one or two launches and views.
template <class Visit>
void for_each_record(Visit&& visit) {
  constexpr unsigned flags = 11;
  for (const liveness life : {liveness::unallocated, liveness::live, liveness::inactive}) {
    for (std::uint32_t bits = 0; bits != 1U << flags; ++bits) {
      for (const auto& [users, writers] : {std::pair{0U, 0U}, {1U, 0U}, {1U, 1U}, {2U, 0U}, {2U, 1U}, {2U, 2U}}) {
        for (const auto& [views, writes] : {std::pair{0U, 0U}, {1U, 0U}, {1U, 1U}}) {
          unsigned next = 0;
          const auto flag = [&] { return ((bits >> next++) & 1U) != 0; };
          block_facts f;
          f.life = life;
          f.on_device = flag();
          f.arriving = flag();
          f.moving = flag();
          f.written = flag();
          f.current_on_device = flag();
          f.current_at_home = flag();
          f.home_stays = flag();
          f.in_use = flag();
          f.writer_executes = flag();
          f.unknown_users = flag();
          f.unknown_before_death = flag();
          f.users = users;
          f.writers = writers;
          f.host_views = views;
          f.host_writes = writes;
          visit(f);
        }
      }
    }
  }
}

/// A row of the table: one letter for each fact, and `.` where it does not matter. Flags are 0 or 1, numbers 0, 1 or 2;
/// life is L (live), I (inactive), U (unallocated), D (not live) or A (not unallocated).
bool matches(std::string_view row, const block_facts& f) {
  const auto letter = [](std::uint64_t n) { return static_cast<char>('0' + n); };
  const std::string facts{letter(f.on_device),
                          letter(f.arriving),
                          letter(f.moving),
                          letter(f.written),
                          letter(f.current_on_device),
                          letter(f.current_at_home),
                          letter(f.home_stays),
                          letter(f.in_use),
                          letter(f.writer_executes),
                          letter(f.unknown_users),
                          letter(f.unknown_before_death),
                          letter(f.users),
                          letter(f.writers),
                          letter(f.host_views),
                          letter(f.host_writes)};
  std::string wanted;
  for (const char c : row) {
    if (c != ' ') wanted += c;
  }
  REQUIRE(wanted.size() == facts.size() + 1);
  const char life = f.life == liveness::live ? 'L' : f.life == liveness::inactive ? 'I' : 'U';
  const bool alive =
      wanted[0] == '.' || wanted[0] == life || (wanted[0] == 'D' && life != 'L') || (wanted[0] == 'A' && life != 'U');
  for (std::size_t i = 0; i != facts.size(); ++i) {
    if (wanted[i + 1] != '.' && wanted[i + 1] != facts[i]) return false;
  }
  return alive;
}

struct article {
  const char* name;
  bool (*allows)(const block_facts&);
  std::vector<const char*> rows;  ///< what it allows; everything else it forbids
};

//   life  on_device arriving moving  written  on device, at home  home_stays  in_use  writer_executes
//   unknown users: any, before death   users writers   views writes
const std::vector<article>& table() {
  static const std::vector<article> articles{
      {"may_arrive", [](const block_facts& f) { return law::may_arrive(f); }, {"A 000 . .. . . . .. .. .0"}},
      {"may_leave", [](const block_facts& f) { return law::may_leave(f); }, {". 1.0 . .. . 0 . .. .. .."}},
      {"may_release",
       [](const block_facts& f) { return law::may_release(f); },
       {". ... 0 .1 0 . . .. .. ..", ". ... 0 .1 1 . . 0. .. ..",    // the host has the same
        ". ... 0 00 0 . . .. .. ..", ". ... 0 00 1 . . 0. .. .."}},  // nobody has anything
      {"may_copy_out", [](const block_facts& f) { return law::may_copy_out(f, false); }, {"L 1.0 1 .. 1 . . 0. .0 .."}},
      {"may_copy_out for the host",
       [](const block_facts& f) { return law::may_copy_out(f, true); },
       {"L 1.0 1 .. 1 . . 0. .0 ..", "L 1.0 1 .. 1 . 0 0. .. .."}},
      {"may_forget what died",
       [](const block_facts& f) { return law::may_forget(f, law::because::died); },
       {"D ..0 . .. . . . .0 0. .."}},
      {"may_forget what the program asks for",
       [](const block_facts& f) { return law::may_forget(f, law::because::requested); },
       {". ..0 . .. . . . 0. 0. .."}},
      {"may_forget what is overwritten",
       [](const block_facts& f) { return law::may_forget(f, law::because::overwritten); },
       {". 000 . .. . . . 0. 1. .."}},
      {"may_release_home",
       [](const block_facts& f) { return law::may_release_home(f); },
       {". ..0 . 11 . . . .. .. 0."}},
      {"may_reclaim_home",
       [](const block_facts& f) { return law::may_reclaim_home(f); },
       {". ..0 1 .. . . . .. .. 0.", ". ..0 . 00 . . . .. 0. 0."}}};
  return articles;
}

TEST_CASE("the law allows what the table says, and nothing else") {
  for (const article& a : table()) {
    CAPTURE(a.name);
    std::uint64_t wrong = 0;
    std::uint64_t allowed = 0;
    for_each_record([&](const block_facts& f) {
      bool listed = false;
      for (const char* row : a.rows) {
        listed = listed || matches(row, f);
      }
      wrong += listed != a.allows(f) ? 1 : 0;
      allowed += listed ? 1 : 0;
    });
    CHECK(wrong == 0);
    CHECK(allowed != 0);
  }
}

TEST_CASE("contents that matter stay current somewhere, whatever the law allows") {
  for_each_record([](const block_facts& f) {
    if (f.nowhere()) return;  // there is nothing to lose
    if (law::may_leave(f) && law::may_release(f)) REQUIRE(f.current_at_home);
    if (law::may_release_home(f)) REQUIRE(f.current_on_device);
    if (law::may_forget(f, law::because::died)) REQUIRE(f.life != liveness::live);
  });
}

TEST_CASE("nothing that a command moves is given to another command") {
  for_each_record([](const block_facts& f) {
    if (!f.moving) return;
    for (const bool for_host : both) {
      REQUIRE(!law::may_copy_out(f, for_host));
    }
    for (const auto why : {law::because::died, law::because::requested, law::because::overwritten}) {
      REQUIRE(!law::may_forget(f, why));
    }
    REQUIRE(!(law::may_arrive(f) || law::may_leave(f) || law::may_release_home(f) || law::may_reclaim_home(f)));
  });
}

}  // namespace law_test
