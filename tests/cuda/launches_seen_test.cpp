// A launch that is refused after it was issued, as those who count launches see it.

#include "cuda/fake_cuda.hpp"
#include "cuda/fake_gpu.hpp"
#include "nlohmann/json.hpp"
#include <deepum/arena.hpp>
#include <deepum/cuda.hpp>
#include <deepum/stream.hpp>
#include <deepum/trace.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <span>
#include <sstream>
#include <string>
#include <vector>

namespace launches_seen_test {

using namespace deepum_test;
using namespace deepum::literals;
using kind = deepum::device_event::kind;

TEST_CASE("a launch that is refused is over for statistics, observers and traces") {
  fake_gpu gpu;
  deepum::cuda::device device{0, {.chunk = 2_MiB}};
  deepum::trace trace;
  std::vector<std::string> seen;
  const auto observe = trace.observer();
  deepum::arena<deepum::cuda::paged_memory> arena{
      device,
      {.capacity = 64_MiB,
       .device_budget = 16_MiB,
       .log = {},
       .observer = [&](const deepum::device_event& e, deepum::launch_id launch) {
         observe(e, launch);
         if (e.what == kind::launch_issued || e.what == kind::launch_finished || e.what == kind::launch_refused) {
           seen.push_back((e.what == kind::launch_issued    ? "issued "
                           : e.what == kind::launch_refused ? "refused "
                                                            : "finished ") +
                          std::to_string(launch.value));
         }
       }}};
  deepum::stream s{arena};
  auto* const a = arena.allocate<std::byte>((12_MiB).count);
  auto* const b = arena.allocate<std::byte>((12_MiB).count);
  const auto use = [&](std::byte* p) {
    s.call("use", {deepum::updates(p, (12_MiB).count)}, [](cudaStream_t) {});
    s.synchronize();
  };
  use(a);
  fake_cuda::set_host_memory(4_MiB);  // nowhere for what has to leave
  CHECK_THROWS_AS(use(b), deepum::error);
  fake_cuda::set_host_memory(1024_MiB);
  use(b);
  CHECK(comes([&] { return arena.statistics().finished == 2; }));
  const deepum::statistics now = arena.statistics();
  CHECK(now.launches == 3);
  CHECK(now.refused_launches == 1);
  // Each end comes behind its beginning; it may be noticed when the next launch has been issued.
  const auto place = [&](const char* what) { return std::find(seen.begin(), seen.end(), what); };
  CHECK(place("issued 1") < place("finished 1"));
  CHECK(place("issued 2") < place("refused 2"));
  CHECK(place("refused 2") < place("issued 3"));
  CHECK(place("issued 3") < place("finished 3"));
  std::sort(seen.begin(), seen.end());
  CHECK(seen == std::vector<std::string>{"finished 1", "finished 3", "issued 1", "issued 2", "issued 3", "refused 2"});

  std::ostringstream text;
  const deepum::trace* const one = &trace;
  deepum::trace::write(text, {&one, 1});
  std::string drawn;
  const nlohmann::json file = nlohmann::json::parse(text.str());
  for (const auto& e : file["traceEvents"]) {
    const std::string category = e.value("cat", "");
    if (category == "launch" || category == "refused") {
      drawn += category + " " + std::to_string(e["args"]["launch"].get<int>()) + ", ";
    }
  }
  CHECK(drawn == "launch 1, refused 2, launch 3, ");
}

}  // namespace launches_seen_test
