// The names before paged memory, which are taken for one version: headers, types and the concept.
#include <deepum/engine/memory_kind.hpp>
#include <deepum/sim/managed_memory.hpp>
#include <deepum/sim/mapped_memory.hpp>

#include <doctest/doctest.h>

#include <type_traits>

namespace old_names_test {

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"

TEST_CASE("paged memory is found under its old names") {
  CHECK(std::is_same_v<deepum::sim::mapped_memory, deepum::sim::paged_memory>);
  CHECK(deepum::faultless_memory_kind<deepum::sim::mapped_memory>);
  CHECK(!deepum::faultless_memory_kind<deepum::sim::managed_memory>);
}

#pragma GCC diagnostic pop

}  // namespace old_names_test
