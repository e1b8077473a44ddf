#include <deepum/sim/profile.hpp>

#include <doctest/doctest.h>

#include <cstdlib>
#include <string>
#include <utility>

namespace profile_test {

using namespace deepum;

TEST_CASE("the default profile is the first name, and every name finds its profile") {
  const auto names = sim::profile_names();
  REQUIRE(names.size() == 8);
  CHECK(names.front() == "h200_pcie5");
  for (const std::string& name : names) {
    CHECK(sim::find_profile(name).name == name);
  }
}

TEST_CASE("an unknown profile is an error that lists the names") {
  try {
    (void)sim::find_profile("b200");
    FAIL("found");
  } catch (const error& e) {
    CHECK(e.code() == status::invalid_argument);
    CHECK(std::string(e.what()) ==
          "no profile of a simulated GPU is named 'b200'; there are h200_pcie5, v100_pcie3, a100_pcie4, "
          "2x_h200_nvlink, 4x_h200_nvlink, 4x_v100_nvlink2, gtx970_pcie3, titanx_pcie3");
  }
}

TEST_CASE("the time of a prefetch call goes through the measured points and is linear between and beyond them") {
  const sim::profile& p = sim::find_profile("h200_pcie5");
  CHECK(prefetch_time(p, bytes{0}).count() == 0);
  for (const sim::transfer_point& point : p.prefetch_in) {
    CHECK(prefetch_time(p, point.size) == point.time);
  }
  const auto middle = (p.prefetch_in[0].time + p.prefetch_in[1].time) / 2;
  CHECK(std::abs((prefetch_time(p, 9_MiB) - middle).count()) <= 1);
  const auto slope = prefetch_time(p, 1_GiB) - prefetch_time(p, 512_MiB);
  CHECK(std::abs((prefetch_time(p, 1536_MiB) - prefetch_time(p, 1_GiB) - slope).count()) <= 1);
}

TEST_CASE("a faster link never has the costlier fault, copy or prefetch") {
  const sim::profile& v100 = sim::find_profile("v100_pcie3");
  const sim::profile& a100 = sim::find_profile("a100_pcie4");
  const sim::profile& h200 = sim::find_profile("h200_pcie5");
  for (const auto& pair : {std::pair{&v100, &a100}, std::pair{&a100, &h200}}) {
    const sim::profile* const slow = pair.first;
    const sim::profile* const fast = pair.second;
    CAPTURE(slow->name);
    CHECK(slow->memory < fast->memory);
    CHECK(slow->peak_flops < fast->peak_flops);
    CHECK(slow->memory_bandwidth < fast->memory_bandwidth);
    CHECK(slow->link_in < fast->link_in);
    CHECK(slow->prefetch_out < fast->prefetch_out);
    CHECK(slow->pinned < fast->pinned);
    CHECK(slow->fault_batch >= fast->fault_batch);
    for (std::size_t i = 0; i < fast->prefetch_in.size(); ++i) {
      CHECK(slow->prefetch_in[i].time > fast->prefetch_in[i].time);
    }
  }
}

}  // namespace profile_test
