#include <deepum/core/execution_id.hpp>
#include <deepum/core/launch.hpp>
#include <deepum/core/strong_id.hpp>

#include <doctest/doctest.h>

#include <concepts>
#include <cstdint>
#include <unordered_set>

namespace strong_id_test {

using namespace deepum;

template <class Id>
concept has_none = requires(Id id) { id.valid(); };

// A kind of its own each, and no number.
static_assert(!std::same_as<block_id, execution_id>);
static_assert(!std::convertible_to<std::uint32_t, block_id> && !std::convertible_to<block_id, std::uint32_t>);
static_assert(!std::constructible_from<block_id, execution_id>);
static_assert(sizeof(block_id) == 4 && sizeof(stream_id) == 2 && sizeof(launch_id) == 8);
// 0 is a block and a stream, and no launch.
static_assert(!has_none<block_id> && !has_none<stream_id> && has_none<launch_id> && has_none<execution_id>);
static_assert(!launch_id{}.valid() && launch_id{1}.valid());

TEST_CASE("IDs of one kind are ordered and hashed by their number") {
  CHECK(block_id{3} == block_id{3});
  CHECK(block_id{3} < block_id{4});
  CHECK(launch_id{5} >= launch_id{4});
  const std::unordered_set<execution_id> seen{execution_id{1}, execution_id{2}, execution_id{1}};
  CHECK(seen.size() == 2);
}

}  // namespace strong_id_test
