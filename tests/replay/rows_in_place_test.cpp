// Rows that launches of a replay touch in place: files, and whole replays.

#include "replay/machine.hpp"
#include "replay/replay.hpp"
#include "replay/workload.hpp"
#include "schedule_checker.hpp"
#include "support/failure.hpp"
#include <deepum/policy/make_policy.hpp>

#include <doctest/doctest.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace rows_in_place_replay_test {

using namespace deepum;
using namespace deepum::replay;
using deepum_test::failure;
using deepum_test::mentions;
using deepum_test::schedule_checker;

constexpr nanoseconds ns(std::int64_t n) { return nanoseconds{n}; }

// A model whose tables are looked up: two of 64 blocks and a launch that reads all of one of them where `dense`.
std::shared_ptr<const workload> look_ups(bool dense) {
  std::string text = R"({"deepum_workload":1,"name":"look-ups"}
{"tensor":1,"bytes":134217728,"persistent":true}
{"tensor":2,"bytes":134217728,"persistent":true}
{"tensor":3,"bytes":4194304,"persistent":true}
{"tensor":4,"bytes":2097152}
{"kernel":"gather","ns":20000,"in":[1],"out":[4],"blocks":{"1":[[0,5,9,63],[1,5,40]]},"touched":{"1":{"row_bytes":256,"rows":512}}}
{"kernel":"mlp","ns":50000,"in":[3,4],"out":[3]}
{"kernel":"gather","ns":20000,"in":[2],"out":[4],"blocks":{"2":[3,4,5]},"touched":{"2":{"row_bytes":64,"rows":512}}}
{"kernel":"scatter","ns":20000,"in":[1,4],"out":[1],"blocks":{"1":[[0,5,9,63],[1,5,40]]},"touched":{"1":{"row_bytes":256,"rows":512}}}
)";
  text += dense ? "{\"kernel\":\"adamw\",\"ns\":90000,\"in\":[2],\"out\":[2]}\n" : "";
  return std::make_shared<const workload>(parse_workload("look-ups", text));
}

TEST_CASE("rows of tables that do not fit are touched in place, and launches that use a whole table have it brought") {
  machine on = parse_machine("m.json", R"({"budgets_gib": {"0": 0.15625}, "copy_latency_ns": 2000,
    "links": {"in": 50.8, "out": 50.8}, "routes": [["host", 0, ["in"]], [0, "host", ["out"]]],
    "row_rates": {"64": 28.6, "128": 50.8}})");
  on.fault_latency = ns(45'000);
  for (const bool dense : {false, true}) {
    CAPTURE(dense);
    program what{.name = "look-ups", .workloads = {look_ups(dense)}};
    for (std::size_t step = 0; step != 8; ++step) {
      what.turns.push_back({.variant = what.workloads[0]->variant_of(step)});
    }
    for (const char* name : {"auto", "um", "lru", "deepum"}) {
      for (const replay_memory memory : {replay_memory::home_copy, replay_memory::managed}) {
        CAPTURE(name);
        CAPTURE(memory);
        std::vector<schedule_entry> entries;
        const replay_result r = replay::replay(what, make_policy(name),
                                               {.memory = memory,
                                                .on = std::make_shared<const machine>(on),
                                                .schedule = [&](const schedule_entry& e) { entries.push_back(e); }});
        CHECK(schedule_checker(what, on).check(entries) == "");
        if (name == std::string("auto")) {
          const statistics& used = r.turns[6].used;
          CHECK(used.faults == 0);
          // What a launch uses as a whole stays, and then rows are found on the device.
          CHECK(used.read_in_place == 2 * 512 * 256 + (dense ? 0 : 512 * 64));
          CHECK(used.written_in_place == 512 * 256);
          CHECK(used.in().all_bytes() == 0);
          // 2 * 128 KiB at 50.8 GB/s, and 32 KiB at 28.6
          const std::int64_t alone = 110'000 + 2 * 2580 + (dense ? 90'000 : 1146);
          CHECK(r.turns[6].time.count() >= alone);
          CHECK(r.turns[6].time.count() <= alone + 10);
        }
      }
    }
  }
}

TEST_CASE("how much a launch touches is read with the blocks that it lies in") {
  const std::shared_ptr<const workload> w = look_ups(false);
  const touched_blocks& gather = w->launches[0].touches(1);
  REQUIRE(gather.rows.size() == 1);
  CHECK(gather.rows[0].row_bytes == 256);
  CHECK(gather.rows[0].rows == 512);
  CHECK(gather.rows[0].read);
  CHECK_FALSE(gather.rows[0].written);
  CHECK(block_count(gather.rows[0].blocks) == 3);
  CHECK(gather.rows[0].bytes_of(3) == 512 * 256);
  CHECK(gather.looked_up == gather.rows[0].blocks);
  CHECK(w->launches[3].touches(0).rows[0].written);
  CHECK(w->launches[1].touches(0).looked_up.empty());
}

TEST_CASE("a block that a launch uses otherwise, too, is not only looked up") {
  const workload w = parse_workload("shared", R"({"deepum_workload":1,"name":"shared"}
{"tensor":1,"bytes":5242880,"persistent":true,"addr":0}
{"tensor":2,"bytes":1024,"persistent":true,"addr":5242880}
{"kernel":"gather","ns":1,"in":[1,2],"out":[],"blocks":{"1":[0,1,2]},"touched":{"1":{"row_bytes":64,"rows":5}}}
)");
  CHECK(block_count(w.launches[0].touches(0).rows[0].blocks) == 3);
  CHECK(w.launches[0].touches(0).looked_up == block_set{{block_id{0}, 2}});
}

TEST_CASE("what is said of rows and cannot be is refused with its line") {
  const auto refusal = [](const std::string& touched) {
    return failure(status::bad_format, [&] {
      (void)parse_workload(
          "w",
          "{\"deepum_workload\":1}\n{\"tensor\":1,\"bytes\":64}\n{\"kernel\":\"k\",\"ns\":1,\"in\":[1],"
          "\"out\":[],\"touched\":" +
              touched + "}\n");
    });
  };
  CHECK(mentions(refusal("3"), "not an object"));
  CHECK(mentions(refusal("{\"x\":{}}"), "not the number of a tensor"));
  CHECK(mentions(refusal("{\"1\":{\"rows\":3}}"), "row_bytes"));
  CHECK(mentions(refusal("{\"1\":{\"rows\":3,\"row_bytes\":0}}"), "no bytes"));
  CHECK(mentions(refusal("{\"2\":{\"rows\":3,\"row_bytes\":4}}"), "not an operand"));
}

}  // namespace rows_in_place_replay_test
