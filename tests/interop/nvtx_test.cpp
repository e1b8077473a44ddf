// Marks and ranges for Nsight, as a tool sees them: this file is the tool.

#include <deepum/deepum.hpp>
#include <deepum/interop/nvtx.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

namespace nvtx_test {

using namespace deepum::literals;
using deepum::device_event;
using deepum::launch_id;
using kind = device_event::kind;
using namespace std::chrono_literals;

/// What the tool was told, in order.
struct tool_state {
  std::mutex mutex{};
  std::vector<std::string> seen{};
  std::map<nvtxRangeId_t, std::string> open{};
  nvtxRangeId_t ranges = 0;
  bool refuses = false;  // as without a tool: no domain
};
tool_state tool;

void add(const std::string& line) {
  const std::lock_guard lock(tool.mutex);
  tool.seen.push_back(line);
}
std::string text(const nvtxEventAttributes_t* a) {
  std::string s = a->message.ascii;
  if (a->category != 0) {
    s += " [" + std::to_string(a->category) + "]";
  }
  if (a->payloadType == NVTX_PAYLOAD_TYPE_UNSIGNED_INT64) {
    s += " " + std::to_string(a->payload.ullValue);
  }
  return s;
}
std::vector<std::string> taken() {
  const std::lock_guard lock(tool.mutex);
  return std::exchange(tool.seen, {});
}

nvtxDomainHandle_t create_domain(const char* name) {
  add(std::string("domain ") + name);
  return tool.refuses ? nullptr : reinterpret_cast<nvtxDomainHandle_t>(&tool);
}
void destroy_domain(nvtxDomainHandle_t /*d*/) { add("destroyed"); }
void name_category(nvtxDomainHandle_t /*d*/, std::uint32_t category, const char* name) {
  add("category " + std::to_string(category) + " " + name);
}
void mark(nvtxDomainHandle_t /*d*/, const nvtxEventAttributes_t* a) { add("mark " + text(a)); }
nvtxRangeId_t start_range(nvtxDomainHandle_t /*d*/, const nvtxEventAttributes_t* a) {
  add("begin " + text(a));
  const std::lock_guard lock(tool.mutex);
  tool.open[++tool.ranges] = a->message.ascii;
  return tool.ranges;
}
void end_range(nvtxDomainHandle_t /*d*/, nvtxRangeId_t id) {
  std::string name;
  {
    const std::lock_guard lock(tool.mutex);
    name = tool.open.at(id);
    tool.open.erase(id);
  }
  add("end " + name);
}
int push_range(nvtxDomainHandle_t /*d*/, const nvtxEventAttributes_t* a) {
  add("push " + text(a));
  return 0;
}
int pop_range(nvtxDomainHandle_t /*d*/) {
  add("pop");
  return 0;
}

int attach(NvtxGetExportTableFunc_t table) {
  const auto* callbacks = static_cast<const NvtxExportTableCallbacks*>(table(NVTX_ETID_CALLBACKS));
  NvtxFunctionTable functions = nullptr;
  unsigned size = 0;
  if (callbacks->GetModuleFunctionTable(NVTX_CB_MODULE_CORE2, &functions, &size) == 0) {
    return 0;
  }
  const auto set = [&](unsigned id, auto* function) {
    if (id < size) {
      *functions[id] = reinterpret_cast<NvtxFunctionPointer>(function);
    }
  };
  set(NVTX_CBID_CORE2_DomainCreateA, create_domain);
  set(NVTX_CBID_CORE2_DomainDestroy, destroy_domain);
  set(NVTX_CBID_CORE2_DomainNameCategoryA, name_category);
  set(NVTX_CBID_CORE2_DomainMarkEx, mark);
  set(NVTX_CBID_CORE2_DomainRangeStartEx, start_range);
  set(NVTX_CBID_CORE2_DomainRangeEnd, end_range);
  set(NVTX_CBID_CORE2_DomainRangePushEx, push_range);
  set(NVTX_CBID_CORE2_DomainRangePop, pop_range);
  return 1;
}
// Where NVTX looks for a tool when it is called for the first time.
const bool attaches = (InitializeInjectionNvtx2_fnptr = attach, true);

device_event event(kind what) {
  device_event e;
  e.what = what;
  e.block = 4_MiB;
  return e;
}

TEST_CASE("the domain is named, its categories too, and it ends with its owner") {
  (void)taken();
  { const deepum::interop::nvtx_marks marks; }
  const std::vector<std::string> seen = taken();
  REQUIRE(seen.size() == 7);
  CHECK(seen.front() == "domain deepum");
  CHECK(seen[1] == "category 1 launch");
  CHECK(seen.back() == "destroyed");
}

TEST_CASE("launches are ranges, what moves blocks are marks") {
  deepum::interop::nvtx_marks marks;
  const auto observe = marks.observer();
  REQUIRE(observe);
  (void)taken();
  const auto see = [&](const device_event& e, std::uint64_t launch = 0) {
    observe(e, launch_id{launch});
    return taken();
  };
  using lines = std::vector<std::string>;

  deepum::launch_record record;
  record.name = "relu";
  device_event issued = event(kind::launch_issued);
  issued.record = &record;
  CHECK(see(issued, 7) == lines{"begin relu [1] 7"});
  device_event released = event(kind::launch_released);
  released.began = 1us;
  released.at = 3us;
  CHECK(see(released, 7) == lines{"mark stall relu [5] 2000"});

  device_event move = event(kind::arrived);
  move.range = {deepum::block_id{3}, 2};
  move.ticket = 1;
  move.why = deepum::reason::predicted;
  CHECK(see(move) == lines{"mark prefetch predicted [2] 8388608"});
  move.what = kind::departed;
  move.did = deepum::transfer::discard(deepum::reason::dead);
  move.why = deepum::reason::dead;
  CHECK(see(move) == lines{"mark discard dead [3] 8388608"});
  move.ticket = 0;  // the driver's own doing
  move.did = deepum::transfer::prefetch(deepum::location::device(), deepum::reason::predicted);
  move.why = deepum::reason::make_room;
  CHECK(see(move) == lines{"mark migrate make_room [3] 8388608"});
  move.what = kind::completed;
  move.ticket = 2;
  CHECK(see(move).empty());
  move.did = deepum::transfer::clean(deepum::reason::write_back);
  move.why = deepum::reason::write_back;
  CHECK(see(move) == lines{"mark clean write_back [3] 8388608"});
  move.what = kind::failed;
  move.did = deepum::transfer::evict(deepum::location::host(), deepum::reason::over_budget);
  move.why = deepum::reason::over_budget;
  CHECK(see(move) == lines{"mark failed evict over_budget [3] 8388608"});
  device_event fault = event(kind::fault);
  fault.range = {deepum::block_id{9}, 1};
  fault.mode = deepum::access::update;
  CHECK(see(fault) == lines{"mark fault write [4] 9"});

  device_event finished = event(kind::launch_finished);
  finished.launch = launch_id{7};
  finished.stalled = 5us;
  CHECK(see(finished, 7) == lines{"mark stall relu [5] 5000", "end relu"});
  CHECK(see(finished, 7) == lines{"mark stall of a launch [5] 5000"});  // of one that it has not seen begin
}

TEST_CASE("a launch that is refused ends, with a mark") {
  deepum::interop::nvtx_marks marks;
  deepum::launch_record record;
  record.name = "large";
  device_event issued = event(kind::launch_issued);
  issued.record = &record;
  marks.see(issued, launch_id{3});
  (void)taken();
  device_event refused = event(kind::launch_refused);
  refused.launch = launch_id{3};
  marks.see(refused, launch_id{3});
  CHECK(taken() == std::vector<std::string>{"mark refused large [1] 3", "end large"});
  marks.see(refused, launch_id{3});
  CHECK(taken().empty());
}

TEST_CASE("ranges that are open end with their owner") {
  (void)taken();
  deepum::launch_record record;
  record.name = "relu";
  device_event issued = event(kind::launch_issued);
  issued.record = &record;
  {
    deepum::interop::nvtx_marks marks;
    marks.see(issued, launch_id{1});
    (void)taken();
  }
  CHECK(taken() == std::vector<std::string>{"end relu", "destroyed"});
}

TEST_CASE("parts of the program are ranges of their thread") {
  const deepum::interop::nvtx_marks marks;
  (void)taken();
  {
    const auto step = marks.range("step");
    CHECK(taken() == std::vector<std::string>{"push step"});
  }
  CHECK(taken() == std::vector<std::string>{"pop"});
}

TEST_CASE("without a tool nothing is called, and the arena gets no observer") {
  tool.refuses = true;
  (void)taken();
  {
    deepum::interop::nvtx_marks marks;
    CHECK(!marks.listened_to());
    CHECK(!marks.observer());
    int called = 0;
    const auto next = marks.observer([&](const device_event&, launch_id) { ++called; });
    next(event(kind::fault), {});
    CHECK(called == 1);
    marks.see(event(kind::fault), {});
    const auto step = marks.range("step");
  }
  CHECK(taken() == std::vector<std::string>{"domain deepum"});
  tool.refuses = false;
}

TEST_CASE("an arena shows its launches and migrations, and goes on telling another observer") {
  const auto touch = deepum::sim::kernel(
      [](char*, std::size_t) {}, [](deepum::sim::work& w, char* p, std::size_t n) { w.updates(p, n).flops(1e9); });
  deepum::sim::device_options small;
  small.memory = 64_MiB;
  deepum::sim::device gpu{deepum::sim::find_profile("h200_pcie5"), small};
  deepum::interop::nvtx_marks marks;
  int also_told = 0;
  deepum::arena_options options;
  options.capacity = 128_MiB;
  options.device_budget = 16_MiB;
  options.policy = "lru";
  options.log = [](std::string_view) {};
  options.observer = marks.observer([&](const device_event&, launch_id) { ++also_told; });
  std::vector<std::string> seen;
  {
    deepum::arena arena{gpu, options};
    deepum::stream s{arena};
    std::vector<char*> x;
    for (int i = 0; i < 6; ++i) {
      x.push_back(arena.allocate<char>((4_MiB).count));
      for (char& c : arena.host_overwrite(x.back(), (4_MiB).count)) {
        c = 1;
      }
    }
    (void)taken();
    for (int pass = 0; pass < 2; ++pass) {
      for (char* p : x) {
        s.launch("touch", 1, 1, 0, touch, p, (4_MiB).count);
      }
    }
    s.synchronize();
    (void)arena.statistics();
    seen = taken();
  }
  const auto lines = [&](std::string_view beginning) {
    return std::count_if(seen.begin(), seen.end(), [&](const std::string& s) { return s.starts_with(beginning); });
  };
  CHECK(lines("begin touch [1]") == 12);
  CHECK(lines("end touch") == 12);
  CHECK(lines("mark prefetch issued [2]") >= 1);
  CHECK(lines("mark evict ") >= 1);
  CHECK(also_told > 24);
}

}  // namespace nvtx_test
