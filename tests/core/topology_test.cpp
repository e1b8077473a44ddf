#include <deepum/core/topology.hpp>
#include <deepum/error.hpp>

#include <doctest/doctest.h>

#include <cstdint>
#include <vector>

namespace topology_test {

using namespace deepum;

constexpr location host = location::host();
constexpr location here = location::device(0);
constexpr location neighbour = location::device(1);

/// A device with a neighbour: 50 to the host each, 390 between them.
topology with_neighbour() {
  return {here,
          {bytes{}, bytes{}, 8 * block_size},
          {{host, here, 50},
           {here, host, 50},
           {host, neighbour, 50},
           {neighbour, host, 50},
           {here, neighbour, 390},
           {neighbour, here, 390}},
          {{std::uint8_t{2}, std::uint8_t{5}}, {std::uint8_t{4}, std::uint8_t{3}}}};
}

TEST_CASE("a device alone has the host and a link each way") {
  const topology t;
  CHECK(t.places() == 2);
  CHECK(t.runs_on() == here);
  CHECK(t.links().size() == 2);
  CHECK(t.cheapest(host, here) == 0);
  CHECK(t.cheapest(here, host) == 1);
  CHECK(t.rank(here) == 0);
  CHECK(t.rank(host) == 1);
}

TEST_CASE("routes are the links, and the pairs of them that can be taken, the fastest first") {
  const topology t = with_neighbour();
  CHECK(t.routes().size() == 8);
  REQUIRE(t.between(host, here).size() == 2);
  CHECK(t.between(host, here)[0] == 0);
  CHECK(t.between(host, here)[1] == 6);
  CHECK(t.routes()[6].links[0] == 2);
  CHECK(t.routes()[6].links[1] == 5);
  CHECK_FALSE(t.routes()[6].direct());
  CHECK(t.rate(6) == 50);
  CHECK(t.between(host, host).empty());
  CHECK(t.cheapest(host, host) == route::none);
  CHECK(t.rate(route::none) == 0);
}

TEST_CASE("the slower the way to where launches run, the higher is the rank") {
  const topology t = with_neighbour();
  CHECK(t.rank(here) == 0);
  CHECK(t.rank(neighbour) == 1);
  CHECK(t.rank(host) == 2);
  const topology same{here, std::vector<bytes>(3), {{host, here}, {here, host}, {neighbour, here}, {here, neighbour}}};
  CHECK(same.rank(neighbour) == same.rank(host));
}

TEST_CASE("a fast detour goes before a slow link") {
  const topology t{here,
                   std::vector<bytes>(3),
                   {{host, here, 10}, {here, host, 10}, {host, neighbour, 50}, {neighbour, here, 390}},
                   {{std::uint8_t{2}, std::uint8_t{3}}}};
  CHECK(t.cheapest(host, here) == 4);
}

}  // namespace topology_test
