#include "../support/test_scale.hpp"
#include <deepum/core/signature.hpp>

#include <doctest/doctest.h>

#include <bit>
#include <cstdint>
#include <initializer_list>
#include <random>
#include <set>
#include <string>
#include <tuple>
#include <vector>

namespace signature_test {

using namespace deepum;

struct argument {
  bool is_operand = false;
  std::uint64_t address = 0;
  std::uint64_t size = 0;
  deepum::access mode = access::read;
  std::string value{};

  bool operator==(const argument&) const = default;
  bool operator<(const argument& o) const {
    return std::tie(is_operand, address, size, mode, value) <
           std::tie(o.is_operand, o.address, o.size, o.mode, o.value);
  }
};

argument pointer(std::uint64_t address, std::uint64_t size, deepum::access mode) {
  return {true, address, size, mode, {}};
}
argument value(std::string bits) { return {false, 0, 0, access::read, std::move(bits)}; }

launch_signature sign(std::string_view name, const std::vector<argument>& arguments) {
  signature_builder builder{name};
  for (const argument& a : arguments) {
    if (a.is_operand) {
      builder.operand(a.address, a.size, a.mode);
    } else {
      builder.scalar(a.value.data(), a.value.size());
    }
  }
  return builder.finish();
}

TEST_CASE("equal launches have equal signatures") {
  const std::vector<argument> arguments{pointer(0x1000, 64, access::read), value("step 17"),
                                        pointer(0x2000, 64, access::overwrite)};
  CHECK(sign("relu", arguments) == sign("relu", arguments));
}

TEST_CASE("a signature can be read while the launch is still being described") {
  signature_builder builder{"relu"};
  builder.operand(0x1000, 64, access::read);
  const launch_signature early = builder.finish();
  CHECK(builder.finish() == early);
  builder.operand(0x2000, 64, access::update);
  CHECK(builder.finish() == sign("relu", {pointer(0x1000, 64, access::read), pointer(0x2000, 64, access::update)}));
  CHECK(builder.finish().shape != early.shape);
}

TEST_CASE("scalars change the exact hash and leave the shape alone") {
  const argument x = pointer(0x1000, 64, access::update);
  const launch_signature one = sign("adamw", {x, value("1")});
  const launch_signature two = sign("adamw", {x, value("2")});
  const launch_signature without = sign("adamw", {x});
  CHECK(one.exact != two.exact);
  CHECK(one.exact != without.exact);
  CHECK(one.shape == two.shape);
  CHECK(one.shape == without.shape);
}

TEST_CASE("name, address, size, mode and order of operands change both hashes") {
  const argument a = pointer(0x1000, 64, access::read);
  const argument b = pointer(0x2000, 64, access::read);
  const std::vector<launch_signature> all{
      sign("f", {a, b}),
      sign("g", {a, b}),
      sign("", {a, b}),
      sign("f", {b, a}),
      sign("f", {a}),
      sign("f", {a, b, b}),
      sign("f", {a, pointer(0x2001, 64, access::read)}),
      sign("f", {a, pointer(0x2000, 65, access::read)}),
      sign("f", {a, pointer(0x2000, 64, access::update)}),
      sign("f", {a, pointer(0x2000, 64, access::overwrite)}),
      sign("f", {a, pointer(0x2000, 0, access::read)}),
  };
  std::set<std::uint64_t> exact;
  std::set<std::uint64_t> shape;
  for (const launch_signature& s : all) {
    exact.insert(s.exact);
    shape.insert(s.shape);
  }
  CHECK(exact.size() == all.size());
  CHECK(shape.size() == all.size());
}

TEST_CASE("addresses in an argument change the exact hash, by where they are and what they name") {
  const std::uint64_t nothing[2] = {};
  const auto sign = [&](std::uint64_t at, std::uint64_t offset) {
    return signature_builder("k").address(at, offset).scalar(nothing, sizeof nothing).finish();
  };
  const launch_signature without = signature_builder("k").scalar(nothing, sizeof nothing).finish();
  CHECK(sign(0, 4096) == sign(0, 4096));
  for (const launch_signature& other : {sign(8, 4096), sign(0, 8192), without}) {
    CHECK(sign(0, 4096).exact != other.exact);
    CHECK(sign(0, 4096).shape == other.shape);
  }
}

TEST_CASE("where an argument ends and the next begins matters to the exact hash") {
  const std::string zeros(32, '\0');
  const auto zero = [&](std::size_t n) { return value(zeros.substr(0, n)); };
  const std::vector<std::vector<argument>> lists{
      {},
      {zero(0)},
      {zero(0), zero(0)},
      {zero(1)},
      {zero(4)},
      {zero(8)},
      {zero(9)},
      {zero(16)},
      {zero(17)},
      {zero(24)},
      {zero(4), zero(4)},
      {zero(8), zero(8)},
      {zero(8), zero(16)},
      {zero(16), zero(8)},
      {zero(4), zero(8)},
      {zero(8), zero(4)},
      {pointer(0, 0, access::read)},
      {pointer(0, 8, access::read)},
      {pointer(0, 8, access::update)},
      {pointer(0, 8, access::read), zero(8)},
      {zero(8), pointer(0, 8, access::read)},
      {value("ab"), value("c")},
      {value("a"), value("bc")},
      {value("abc")},
      {value("abcdefgh"), value("ijklmnop")},
      {value("abcdefghijklmnop")},
      {value("ijklmnop"), value("abcdefgh")},
  };
  std::set<std::uint64_t> seen;
  for (const char* name : {"", "f", "fg"}) {
    for (const auto& list : lists) {
      seen.insert(sign(name, list).exact);
    }
  }
  CHECK(seen.size() == 3 * lists.size());
  CHECK(sign("f", {value("g")}).exact != sign("fg", {}).exact);
}

TEST_CASE("one flipped bit anywhere flips about half of a hash") {
  std::mt19937_64 random{7};
  const std::uint64_t base = 0x7f0000000000ULL;
  int least = 64;
  int most = 0;
  double sum = 0;
  int count = 0;
  const auto compare = [&](std::uint64_t a, std::uint64_t b) {
    const int flipped = std::popcount(a ^ b);
    least = std::min(least, flipped);
    most = std::max(most, flipped);
    sum += flipped;
    ++count;
  };
  for (int round = 0; round < 20; ++round) {
    const std::uint64_t address = base + random() % (1ULL << 40U);
    const std::uint64_t size = random() % (1ULL << 34U);
    std::string scalar(24, '\0');
    for (char& c : scalar) {
      c = static_cast<char>(random());
    }
    const argument p = pointer(address, size, access::read);
    const launch_signature s = sign("gemm", {p, value(scalar), p});
    for (unsigned bit = 0; bit < 48; ++bit) {
      const launch_signature t = sign("gemm", {pointer(address ^ (1ULL << bit), size, access::read), value(scalar), p});
      compare(s.exact, t.exact);
      compare(s.shape, t.shape);
      const launch_signature u = sign("gemm", {p, value(scalar), pointer(address, size ^ (1ULL << bit), access::read)});
      compare(s.exact, u.exact);
      compare(s.shape, u.shape);
    }
    for (unsigned bit = 0; bit < 24 * 8; ++bit) {
      std::string other = scalar;
      other[bit / 8] = static_cast<char>(other[bit / 8] ^ (1 << bit % 8));
      compare(s.exact, sign("gemm", {p, value(other), p}).exact);
    }
  }
  CHECK(sum / count == doctest::Approx(32).epsilon(0.02));
  CHECK(least >= 10);
  CHECK(most <= 54);
}

TEST_CASE("many launches that look alike do not collide, not even in the low half of the hash") {
  std::set<std::uint64_t> exact;
  std::set<std::uint32_t> low;
  std::size_t launches = 0;
  for (std::uint64_t layer = 0; layer < 64; ++layer) {
    for (std::uint32_t step = 0; step < 256; ++step) {
      const std::uint64_t address = 0x7f0000000000ULL + layer * 2097152;
      const std::uint64_t h = signature_builder{"adamw"}
                                  .operand(address, 4096, access::update)
                                  .operand(address + 4096, 4096, access::read)
                                  .scalar(&step, sizeof step)
                                  .finish()
                                  .exact;
      exact.insert(h);
      low.insert(static_cast<std::uint32_t>(h));
      ++launches;
    }
  }
  CHECK(exact.size() == launches);
  CHECK(low.size() + 2 >= launches);  // 0.03 collisions are to be expected
}

TEST_CASE("random argument lists have equal hashes exactly where they are equal") {
  for (std::uint64_t seed = 1; seed <= deepum_test::scaled(5); ++seed) {
    CAPTURE(seed);
    std::mt19937_64 random{seed};
    std::set<std::vector<argument>> lists;
    std::set<std::vector<argument>> shapes;
    std::set<std::uint64_t> exact;
    std::set<std::uint64_t> shape;
    for (int i = 0; i < 4000; ++i) {
      std::vector<argument> list(random() % 4);
      std::vector<argument> operands;
      for (argument& a : list) {
        if (random() % 2 != 0) {
          a = pointer(random() % 3, random() % 3, static_cast<deepum::access>(random() % 3));
          operands.push_back(a);
        } else {
          a = value(std::string(random() % 20, static_cast<char>(random() % 2)));
        }
      }
      const launch_signature s = sign("f", list);
      lists.insert(list);
      shapes.insert(operands);
      exact.insert(s.exact);
      shape.insert(s.shape);
    }
    CHECK(exact.size() == lists.size());
    CHECK(shape.size() == shapes.size());
  }
}

}  // namespace signature_test
