#include <deepum/arena/declaration.hpp>
#include <deepum/arena/given_up.hpp>
#include <deepum/units.hpp>

#include <doctest/doctest.h>

#include <array>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <vector>

namespace declaration_test {

using namespace deepum;
using namespace deepum::literals;
using deepum::access;  // not the one of POSIX

constexpr std::uintptr_t base = 0x100000000;
const void* at(bytes offset) { return reinterpret_cast<const void*>(base + offset.count); }

/// An arena's table, where 6 MiB and, behind them, 1 KiB are allocated.
struct machine {
  machine() {
    REQUIRE(table.try_allocate(6_MiB, 256_B, changes) == base);
    REQUIRE(table.try_allocate(1_KiB, 256_B, changes) == base + (6_MiB).count);
    changes.clear();
  }
  named_operand name(const operand& o, bool& known) {
    named_operand out;
    known = detail::name_operand(o, bytes{reinterpret_cast<std::uintptr_t>(o.address) - base}, table, "k", out);
    return out;
  }
  named_operand name(const operand& o) {
    bool known = false;
    const named_operand out = name(o, known);
    REQUIRE(known);
    return out;
  }
  std::string refusal(const operand& o) {
    try {
      (void)name(o);
    } catch (const error& e) {
      return e.what();
    }
    return "none";
  }

  std::vector<liveness_change> changes{};
  allocation_table table{base, 64_MiB, 2_MiB};
};

std::vector<block_access> blocks(std::initializer_list<named_operand> operands, bytes block = 2_MiB) {
  std::vector<block_access> out{{{block_id{99}, 1}, access::read}};
  detail::blocks_of(std::span<const named_operand>(operands.begin(), operands.size()), block_grid{block}, out);
  return out;
}
named_operand named(bytes offset, bytes size, access mode) { return {{{offset, size}}, mode, true}; }
using accesses = std::vector<block_access>;

TEST_CASE("an operand names its allocation, its part, or the bytes that it says") {
  machine m;
  CHECK(m.name({at(3_MiB), operand::whole, access::read}).where.span == byte_span{0_B, 6_MiB});
  CHECK_FALSE(m.name({at(3_MiB), operand::whole, access::read}).sized);
  CHECK(m.name({at(3_MiB), 1_MiB, access::overwrite}).where.span == byte_span{3_MiB, 1_MiB});
  CHECK(m.name({at(3_MiB), 3_MiB, access::overwrite}).sized);
  const std::array<bytes, 1> parts{2_MiB};
  m.table.split(base, parts);
  CHECK(m.name({at(1_MiB)}).where.span == byte_span{0_B, 2_MiB});
  CHECK(m.name({at(5_MiB)}).where.span == byte_span{2_MiB, 4_MiB});
  CHECK(m.name({at(1_MiB), 4_MiB}).where.span == byte_span{1_MiB, 4_MiB});
  CHECK(m.name({at(0_B)}).where.allocation != m.name({at(6_MiB)}).where.allocation);
}

TEST_CASE("an operand past its allocation or in free memory is refused by the launch's name; a plain pointer is not") {
  machine m;
  CHECK(m.refusal({at(5_MiB), 2_MiB}).find("launch 'k': 2097152 bytes at 0x100500000 reach beyond") == 0);
  CHECK(m.refusal({at(5_MiB), bytes{~std::uint64_t{0} - 1}}).find("launch 'k': ") == 0);
  CHECK(m.refusal({at(10_MiB), 1_B}).find("launch 'k': 0x100a00000 is not allocated") == 0);
  CHECK(m.refusal({at(10_MiB)}).find("launch 'k': 0x100a00000 is not allocated") == 0);
  bool known = true;
  (void)m.name({at(10_MiB), operand::whole, access::update, false}, known);
  CHECK_FALSE(known);
  m.table.free(base, launch_id{1}, false, m.changes);
  CHECK(m.refusal({at(1_MiB), 1_B}).find("launch 'k': 0x100100000 is not allocated") == 0);
}

TEST_CASE("operands touch blocks; an overwrite counts for those that it covers as a whole") {
  CHECK(blocks({}).empty());
  CHECK(blocks({named(1_MiB, 2_MiB, access::read)}) == accesses{{{block_id{0}, 2}, access::read}});
  CHECK(blocks({named(1_MiB, 6_MiB, access::overwrite)}) == accesses{{{block_id{0}, 1}, access::update},
                                                                     {{block_id{1}, 2}, access::overwrite},
                                                                     {{block_id{3}, 1}, access::update}});
  CHECK(blocks({named(1_MiB, 2_MiB, access::overwrite)}) == accesses{{{block_id{0}, 2}, access::update}});
  CHECK(blocks({named(0_B, 4_MiB, access::overwrite), named(3_MiB, 1_B, access::read)}) ==
        accesses{{{block_id{0}, 2}, access::update}, {{block_id{1}, 1}, access::read}});
  CHECK(blocks({named(16_MiB, 16_MiB, access::overwrite)}, 16_MiB) == accesses{{{block_id{1}, 1}, access::overwrite}});
}

TEST_CASE("what was given up must not be read, and is in use again where it is written") {
  machine m;
  detail::given_up_memory given_up(m.table);
  const std::array<named_operand, 1> read{m.name({at(2_MiB), 4_MiB, access::read})};
  const std::array<named_operand, 1> whole{m.name({at(2_MiB), operand::whole, access::read})};
  const std::array<named_operand, 2> both{read[0], m.name({at(2_MiB), 2_MiB, access::update})};
  CHECK_FALSE(given_up.is_used_by(read));
  m.table.mark_inactive(base + (2_MiB).count, 2_MiB, launch_id{}, m.changes);
  CHECK(given_up.is_used_by(read));
  CHECK_FALSE(given_up.is_used_by(std::array<named_operand, 1>{m.name({at(4_MiB), 2_MiB, access::read})}));
  CHECK_THROWS_AS(given_up.check_reads("k", read), error);
  CHECK_NOTHROW(given_up.check_reads("k", whole));  // some of it is of value
  CHECK_NOTHROW(given_up.check_reads("k", both));
  CHECK_THROWS_AS(given_up.check_updates("k", both), error);

  m.changes.clear();
  CHECK(given_up.use_again("k", read, m.changes).empty());
  CHECK(m.changes.empty());
  CHECK(given_up.use_again("k", both, m.changes).find("launch 'k' updates 2097152 bytes at offset 2097152") == 0);
  REQUIRE(m.changes.size() == 1);
  CHECK(m.changes[0].range == block_range{block_id{1}, 1});
  CHECK(m.changes[0].now == liveness::live);
  CHECK_FALSE(given_up.is_used_by(read));
  m.table.mark_inactive(base + (2_MiB).count, 2_MiB, launch_id{}, m.changes);
  CHECK(given_up.use_again("k", both, m.changes).empty());  // logged once
}

}  // namespace declaration_test
