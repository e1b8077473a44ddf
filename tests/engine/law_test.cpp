// The law, for every record that a block with copies at three places can have, against a table written by hand.

#include <deepum/core/block_record.hpp>
#include <deepum/core/location.hpp>
#include <deepum/engine/law.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace law_test {

using namespace deepum;

constexpr location home = location::host();
constexpr location asked = location::device(0);  // the device that the questions are about
constexpr location other = location::device(1);

/// What a place may have of a block, one letter each: Absent, Room, the Current contents, Stale ones; the contents on
/// their way out (l), or something older or nothing (o); on the way in from Home, from the device that is asked about
/// (k), from its Neighbour (from itself: room alone).
constexpr std::string_view all_copies = "arcslohkn";
constexpr std::uint32_t newest = 7;

block_copy copy_of(char letter) {
  block_copy c;
  using phase = block_copy::phase;
  switch (letter) {
    case 'a':
      return c;
    case 'r':
    case 'c':
    case 's':
      c.is = phase::there;
      c.generation = letter == 'c' ? newest : letter == 's' ? newest - 1 : 0;
      return c;
    case 'l':
    case 'o':
      c.is = phase::leaving;
      c.generation = letter == 'l' ? newest : newest - 1;
      return c;
    default:
      c.is = phase::arriving;
      c.generation = newest;
      c.from = static_cast<std::uint8_t>((letter == 'h' ? home : letter == 'k' ? asked : other).index());
      return c;
  }
}

/// A record in letters: life (Live, Inactive, Unallocated); home, the device asked about, the other one; forgetting,
/// users, writers, views, views that write; home stays, in use, a writer executes, unknown users: any, before the
/// death.
constexpr std::size_t columns = 14;
using letters = std::array<char, columns>;

struct one_case {
  letters as{};
  block_record record{};
  std::array<block_copy, 3> copies{};
  law::circumstances around{};
  [[nodiscard]] block_view view() const { return {record, copies}; }
};

/// Calls `visit(one_case)` for every record: each combination of copies, no, one or two launches, no or one view, and
/// each flag.
template <class Visit>
void for_each_case(Visit&& visit) {
  const auto letter = [](std::uint64_t n) { return static_cast<char>('0' + n); };
  one_case c;
  c.record.generation = newest;
  for (const auto& [life, name] :
       {std::pair{liveness::unallocated, 'U'}, {liveness::live, 'L'}, {liveness::inactive, 'I'}}) {
    c.record.life = life;
    c.as[0] = name;
    for (std::size_t copies = 0; copies != all_copies.size() * all_copies.size() * all_copies.size(); ++copies) {
      for (std::size_t l = 0, rest = copies; l != 3; ++l, rest /= all_copies.size()) {
        c.as[1 + l] = all_copies[rest % all_copies.size()];
        c.copies[l] = copy_of(c.as[1 + l]);
      }
      for (const auto& [users, writers] : {std::pair{0U, 0U}, {1U, 0U}, {1U, 1U}, {2U, 0U}, {2U, 1U}, {2U, 2U}}) {
        c.record.users = users;
        c.record.writers = writers;
        c.as[5] = letter(users);
        c.as[6] = letter(writers);
        for (const auto& [views, writes] : {std::pair{0U, 0U}, {1U, 0U}, {1U, 1U}}) {
          c.record.host_views = views;
          c.record.host_writes = writes;
          c.as[7] = letter(views);
          c.as[8] = letter(writes);
          for (std::uint32_t bits = 0; bits != 64; ++bits) {
            const auto flag = [&](unsigned i) { return ((bits >> i) & 1U) != 0; };
            c.record.forgetting = flag(0);
            c.around = {.home_stays = flag(1),
                        .in_use = flag(2),
                        .writer_executes = flag(3),
                        .unknown_users = flag(4),
                        .unknown_before_death = flag(5)};
            c.as[4] = letter(flag(0) ? 1 : 0);
            for (unsigned i = 1; i != 6; ++i) {
              c.as[8 + i] = letter(flag(i) ? 1 : 0);
            }
            visit(std::as_const(c));
          }
        }
      }
    }
  }
}

/// A row of the table: for each column the letters that it takes, `.` for any, `!` before those that it does not.
class row {
 public:
  explicit row(const std::string& text) {
    std::istringstream words{text};
    std::string word;
    std::size_t n = 0;
    for (; words >> word; ++n) {
      REQUIRE(n != columns);
      const bool not_these = word.front() == '!';
      for (unsigned char c = 0; c != 128; ++c) {
        const bool named = word.find(static_cast<char>(c), not_these ? 1 : 0) != std::string::npos;
        takes_[n][c] = word == "." || named != not_these;
      }
    }
    REQUIRE(n == columns);
  }
  [[nodiscard]] bool matches(const letters& as) const {
    for (std::size_t i = 0; i != columns; ++i) {
      if (!takes_[i][static_cast<unsigned char>(as[i])]) return false;
    }
    return true;
  }

 private:
  std::array<std::array<bool, 128>, columns> takes_{};
};

struct article {
  const char* name;
  bool (*allows)(const one_case&);
  std::vector<row> rows;  ///< what it allows; everything else it forbids
};

/// The same question about the other device.
one_case mirrored(const one_case& c) {
  one_case m = c;
  std::swap(m.copies[1], m.copies[2]);
  for (block_copy& copy : m.copies) {
    copy.from = static_cast<std::uint8_t>(copy.from == 0 ? 0 : 3 - copy.from);
  }
  return m;
}

const std::vector<article>& table() {
  //  life  home, asked, other  forgetting  users writers  views writes  home_stays in_use executes unknown before_death
  static const std::vector<article> articles{
      {"may_arrive",
       [](const one_case& c) { return law::may_arrive(c.view(), asked); },
       {row("LI  c   a .    0  . .  . 0  . . . . ."),    // the host has it, and keeps it
        row("LI  .   a c    0  . .  . 0  . . . . ."),    // the neighbour does
        row("LI  ars a ars  0  . .  . 0  . . . . .")}},  // nobody has, and nobody is getting any
      {"may_leave",
       [](const one_case& c) { return law::may_leave(c.view(), asked, c.around); },
       {row(".  !k  rcs !k  0  . .  . .  . 0 . . .")}},  // what is copied from stays
      {"may_release",
       [](const one_case& c) { return law::may_release(c.view(), asked, c.around); },
       {row(".  .  !cl .    .  . .  . .  0 . . . ."),  // it has nothing that is worth anything
        row(".  .  !cl .    .  . .  . .  1 . . 0 ."),
        row(".  c   cl .    .  . .  . .  0 . . . ."),  // the host has the same, and keeps it
        row(".  c   cl .    .  . .  . .  1 . . 0 ."),
        row(".  .   cl c    .  . .  . .  0 . . . ."),  // the neighbour has
        row(".  .   cl c    .  . .  . .  1 . . 0 .")}},
      {"may_copy to the other device",
       [](const one_case& c) { return law::may_copy(c.view(), asked, other, c.around); },
       {row("L  !kn c a     0  . 0  . .  1 . . 0 .")}},
      {"may_copy home",
       [](const one_case& c) { return law::may_copy(c.view(), asked, home, c.around); },
       {row("L  ars c !hk   0  . 0  . .  1 . . 0 .")}},
      {"may_copy home for the host",
       [](const one_case& c) { return law::may_copy(c.view(), asked, home, c.around, true); },
       {row("L  ars c !hk   0  . 0  . .  1 . . 0 ."), row("L  ars c !hk   0  . .  . .  1 . 0 0 .")}},
      {"may_forget what died",
       [](const one_case& c) { return law::may_forget(c.view(), law::because::died, c.around); },
       {row("IU arcs arcs arcs  0  0 .  . .  . . . . 0")}},
      {"may_forget what the program asks for",
       [](const one_case& c) { return law::may_forget(c.view(), law::because::requested, c.around); },
       {row(".  arcs arcs arcs  0  0 .  . .  . . . 0 .")}},
      {"may_forget what is overwritten",
       [](const one_case& c) { return law::may_forget(c.view(), law::because::overwritten, c.around); },
       {row(".  arcs a a        0  1 .  . .  . . . 0 .")}},
      {"may_release_home",
       [](const one_case& c) { return law::may_release_home(c.view()); },
       {row(".  c c arcs  0  . .  0 .  . . . . ."), row(".  c arcs c  0  . .  0 .  . . . . .")}},
      {"may_reclaim_home",
       [](const one_case& c) { return law::may_reclaim_home(c.view()); },
       {row(".  ars c arcs   0  . .  0 .  . . . . ."), row(".  ars arcs c  0  . .  0 .  . . . . ."),
        row(".  ars ars ars  0  0 .  0 .  . . . . .")}}};
  return articles;
}

TEST_CASE("the law allows what the table says, and nothing else") {
  for (const article& a : table()) {
    CAPTURE(a.name);
    std::uint64_t wrong = 0;
    std::uint64_t allowed = 0;
    for_each_case([&](const one_case& c) {
      bool listed = false;
      for (const row& r : a.rows) {
        listed = listed || r.matches(c.as);
      }
      wrong += listed != a.allows(c) ? 1 : 0;
      allowed += listed ? 1 : 0;
    });
    CHECK(wrong == 0);
    CHECK(allowed != 0);
  }
}

TEST_CASE("what an upload has claimed comes nowhere before it is written, and goes whatever launches wait for it") {
  std::uint64_t wrong = 0;
  for_each_case([&](const one_case& c) {
    one_case claimed = c;
    claimed.record.filling = true;
    wrong += law::may_arrive(claimed.view(), asked) || law::may_arrive(claimed.view(), other) ? 1 : 0;
    wrong += law::may_forget(claimed.view(), law::because::uploaded, c.around) != !claimed.view().in_motion() ? 1 : 0;
    wrong += law::may_forget(c.view(), law::because::uploaded, c.around) ? 1 : 0;
  });
  CHECK(wrong == 0);
}

TEST_CASE("the law is the same for every device") {
  std::uint64_t differ = 0;
  for_each_case([&](const one_case& c) {
    const one_case m = mirrored(c);
    const auto same = [&](bool here, bool there) { differ += here != there ? 1 : 0; };
    same(law::may_arrive(c.view(), asked), law::may_arrive(m.view(), other));
    same(law::may_leave(c.view(), asked, c.around), law::may_leave(m.view(), other, c.around));
    same(law::may_release(c.view(), asked, c.around), law::may_release(m.view(), other, c.around));
    same(law::may_copy(c.view(), asked, home, c.around, true), law::may_copy(m.view(), other, home, c.around, true));
    same(law::may_copy(c.view(), asked, other, c.around), law::may_copy(m.view(), other, asked, m.around));
    for (const auto why : {law::because::died, law::because::requested, law::because::overwritten}) {
      same(law::may_forget(c.view(), why, c.around), law::may_forget(m.view(), why, c.around));
    }
    same(law::may_release_home(c.view()), law::may_release_home(m.view()));
    same(law::may_reclaim_home(c.view()), law::may_reclaim_home(m.view()));
  });
  CHECK(differ == 0);
}

TEST_CASE("the law says of each of two blocks what it says of it alone, whatever the other one is") {
  // Every pair of two blocks with copies at three places, as they lie in a ledger; one live, one that died.
  std::array<std::vector<one_case>, 2> cases;
  for_each_case([&](const one_case& c) {
    const std::string_view around{&c.as[4], columns - 4};
    if (c.as[0] == 'L' && around == "0000010000") cases[0].push_back(c);
    if (c.as[0] == 'I' && around == "0000010000") cases[1].push_back(c);
  });
  REQUIRE(cases[0].size() == 729);
  REQUIRE(cases[1].size() == 729);
  const auto answers = [](const one_case& c, bool by_table) {
    std::uint32_t bits = 0;
    for (const article& a : table()) {
      bool allowed = !by_table && a.allows(c);
      for (const row& r : a.rows) {
        allowed = allowed || (by_table && r.matches(c.as));
      }
      bits = 2 * bits + (allowed ? 1 : 0);
    }
    return bits;
  };
  std::array<std::vector<std::uint32_t>, 2> listed;
  for (std::size_t block = 0; block != 2; ++block) {
    for (const one_case& c : cases[block]) {
      listed[block].push_back(answers(c, true));
    }
  }
  std::uint64_t wrong = 0;
  std::array<block_copy, 6> ledger;
  for (std::size_t i = 0; i != 729; ++i) {
    std::copy(cases[0][i].copies.begin(), cases[0][i].copies.end(), ledger.begin());
    for (std::size_t j = 0; j != 729; ++j) {
      std::copy(cases[1][j].copies.begin(), cases[1][j].copies.end(), ledger.begin() + 3);
      for (std::size_t block = 0; block != 2; ++block) {
        one_case c = cases[block][block == 0 ? i : j];
        std::copy_n(ledger.begin() + static_cast<std::ptrdiff_t>(3 * block), 3, c.copies.begin());
        wrong += answers(c, false) != listed[block][block == 0 ? i : j] ? 1 : 0;
      }
    }
  }
  CHECK(wrong == 0);
}

}  // namespace law_test
