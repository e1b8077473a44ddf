#include <deepum/core/launch.hpp>
#include <deepum/interpose/operand_scan.hpp>

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <vector>

namespace operand_scans {

using namespace deepum::interpose;
using deepum::access;
using deepum::bytes;
using deepum::operand;

constexpr std::uintptr_t base = 0x7f0000000000;
constexpr std::uintptr_t capacity = 0x1000000;

/// An arena at these addresses, whatever is there.
const auto offset_of = [](const void* p) {
  const std::uintptr_t offset = reinterpret_cast<std::uintptr_t>(p) - base;
  return offset < capacity ? std::optional<bytes>(bytes{offset}) : std::nullopt;
};
std::uintptr_t at(std::uintptr_t offset) { return base + offset; }

kernel_description kernel_of(std::vector<kernel_parameter> parameters) {
  kernel_description k;
  k.symbol = "k";
  k.parameters = std::move(parameters);
  k.layout_known = true;
  return k;
}
/// Scans a launch whose arguments are given one by one.
void scan(operand_scan& s, const kernel_description& k, std::vector<const void*> arguments) {
  s.scan(
      k, [&](std::size_t i, const kernel_parameter&) { return arguments[i]; }, offset_of);
}

TEST_CASE("pointers into the arena are operands without a size, others are none") {
  operand_scan s;
  const std::uintptr_t inside = at(4096);
  const std::uintptr_t outside = 0x1234;
  const float number = 2;
  scan(s, kernel_of({{0, 8, true}, {8, 8, false}, {16, 8, false}, {24, 4, false}}),
       {&inside, &inside, &outside, &number});
  REQUIRE(s.operands().size() == 2);
  CHECK(s.operands()[0].mode == access::read);
  CHECK(s.operands()[1].mode == access::update);
  for (const operand& o : s.operands()) {
    CHECK(o.address == reinterpret_cast<const void*>(inside));
    CHECK(o.size == operand::whole);
    CHECK_FALSE(o.declared);
  }
}

TEST_CASE(
    "pointers within classes are found where the compiler puts them, at multiples of eight bytes of the arguments") {
  operand_scan s;
  struct {
    std::uint32_t first[2];
    std::uintptr_t pointers[3];
  } in{{1, 2}, {at(0), 7, at(512)}};
  scan(s, kernel_of({{16, sizeof in, false}}), {&in});
  REQUIRE(s.operands().size() == 2);
  CHECK(s.operands()[0].address == reinterpret_cast<const void*>(at(0)));
  CHECK(s.operands()[1].address == reinterpret_cast<const void*>(at(512)));

  // The same bytes four bytes further on are no pointers.
  std::byte shifted[12] = {};
  std::memcpy(shifted + 4, in.pointers, 8);
  scan(s, kernel_of({{0, 12, false}}), {shifted});
  CHECK(s.operands().empty());
  scan(s, kernel_of({{4, 12, false}}), {shifted});
  CHECK(s.operands().size() == 1);
}

TEST_CASE("an argument that is shorter than an address is none") {
  operand_scan s;
  const std::uint32_t small = 7;
  scan(s, kernel_of({{0, 4, false}}), {&small});
  CHECK(s.operands().empty());
}

TEST_CASE("a launch on another place of the same block is the same one, on another block another") {
  operand_scan s;
  std::vector<std::uint64_t> found;
  for (const std::uintptr_t place : {at(4096), at(8192), at(0x200000)}) {
    scan(s, kernel_of({{0, 8, false}}), {&place});
    found.push_back(s.signature().exact);
  }
  CHECK(found[0] == found[1]);
  CHECK(found[0] != found[2]);
}

TEST_CASE("many pointers by value are all found") {
  operand_scan s;
  std::vector<std::uintptr_t> list(150);
  for (std::size_t i = 0; i < list.size(); ++i)
    list[i] = at(i * 512);
  scan(s, kernel_of({{0, 1200, false}}), {list.data()});
  CHECK(s.operands().size() == 150);
}

TEST_CASE("numbers make no other launch, addresses and another grid do") {
  operand_scan s;
  const auto signature = [&](std::uintptr_t p, int number, int grid) {
    scan(s, kernel_of({{0, 8, false}, {8, 4, false}}), {&p, &number});
    s.add_shape(&grid, sizeof grid);
    return s.signature();
  };
  const deepum::launch_signature one = signature(at(0), 1, 1);
  CHECK(signature(at(0), 2, 1) == one);
  CHECK(signature(at(0x200000), 1, 1).shape != one.shape);
  CHECK(signature(at(0), 1, 2).exact != one.exact);
  CHECK(signature(at(0), 1, 2).shape == one.shape);
}

TEST_CASE("bytes of classes that are no addresses do not count: nobody sets what lies between their members") {
  operand_scan s;
  struct {
    std::uintptr_t p;
    std::uint64_t other;
  } in{at(512), 1};
  const auto signature = [&] {
    scan(s, kernel_of({{0, sizeof in, false}}), {&in});
    return s.signature();
  };
  const deepum::launch_signature one = signature();
  in.other = 2;
  CHECK(signature() == one);
  in.other = at(1024);
  CHECK(signature().shape != one.shape);
}

TEST_CASE("a parameter whose bytes are not given is left out") {
  operand_scan s;
  scan(s, kernel_of({{0, 8, false}}), {nullptr});
  CHECK(s.operands().empty());
}

}  // namespace operand_scans
