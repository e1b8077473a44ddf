#include "nlohmann/json.hpp"
#include "run_program.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <utility>

namespace deepum_replay_test {

const std::string program = std::string{DEEPUM_BIN_DIR} + "/deepum-replay";

using deepum_test::outcome;

outcome run(const std::string& arguments) { return deepum_test::run_program("deepum-replay", arguments); }

/// A file with these contents, as long as it lives.
class file {
 public:
  explicit file(const char* name, const std::string& text = {})
      : path_((std::filesystem::temp_directory_path() / ("deepum_replay_test_" + std::string{name})).string()) {
    std::filesystem::remove(path_);
    if (!text.empty()) std::ofstream{path_} << text;
  }
  ~file() { std::filesystem::remove(path_); }
  file(const file&) = delete;
  file& operator=(const file&) = delete;
  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  std::string path_;
};

constexpr const char* header = "{\"deepum_workload\":1,\"name\":\"small\"}\n";
const std::string small = std::string{header} + R"({"tensor":0,"bytes":8388608,"persistent":true}
{"tensor":1,"bytes":8388608,"persistent":true}
{"tensor":2,"bytes":4194304}
{"kernel":"a","ns":100000,"in":[0],"out":[2]}
{"kernel":"b","ns":100000,"in":[1,2],"out":[1]}
)";

// The program is built where the replay is.
bool absent() { return !std::filesystem::exists(program); }

TEST_CASE("bad input gives one clear line and a failure" * doctest::skip(absent())) {
  const file good("good.jsonl", small);
  const file broken("broken.jsonl", std::string{header} + "{\"tensor\":0,\"bytes\":1}\n{\"tensor\":0,\"bytes\":1}\n");
  const file no_launch("no_launch.jsonl", header);
  const file written("not_written.jsonl");
  const std::string w = ' ' + good.path();
  const std::pair<std::string, std::string> cases[] = {
      {"", "give one workload"},
      {w + w, "give one workload"},
      {"/no/such/file", "/no/such/file"},
      {broken.path(), broken.path() + ":3: tensor 0 is there twice"},
      {no_launch.path(), "without a launch"},
      {"--offload some" + w, "--offload is none, conv, all or alternate_conv, not 'some'"},
      {"--policy best" + w,
       "there is no policy 'best'; there are ideal, um, lru, vdnn, vdnn_ext, harvest, deepum, auto, oracle and all"},
      {"--policy um,,auto" + w, "there is no policy ''"},
      {"--policy um,um" + w, "names 'um' twice"},
      {"--policy um,auto --schedule " + written.path() + w, "--schedule is of one policy"},
      {"--scenario steady --schedule " + written.path() + w, "not of a --scenario"},
      {"--scenario nothing" + w, "nothing"},
      {"--scenario steady --policy oracle" + w, "the oracle knows one step"},
      {"--budget 10MiB" + w, "'small' uses 6 blocks of 2 MiB, and the budget holds 5"},
      {"--budget much" + w, "budget"},
      {"--steps 0" + w, "--steps has to be from 1"},
      {"--h2d 0" + w, "--h2d has to be from"},
      {"--d2h -1" + w, "--d2h has to be from"},
      {"--run_ahead -1" + w, "--run_ahead has to be from 0"},
      {"--copy_latency 2s" + w, "--copy_latency has to be from 0 to a second"},
      {"--fault_latency -1s" + w, "--fault_latency has to be from 0 to a second"},
      {"--memory good" + w, "--memory is auto, managed or home-copy, not 'good'"},
      {"--lookahead 0" + w, "lookahead"},
      {"--json /no/such/folder/x.json" + w, "cannot write to the JSON file '/no/such/folder/x.json'"},
      {"--schedule /no/such/folder/x.jsonl" + w, "/no/such/folder/x.jsonl"},
      {"--no_such_flag" + w, "no_such_flag"},
  };
  for (const auto& [arguments, words] : cases) {
    CAPTURE(arguments);
    const outcome o = run(arguments + " 2>&1 >/dev/null");
    CAPTURE(o.output);
    CHECK(o.status == 1);
    CHECK(std::count(o.output.begin(), o.output.end(), '\n') == 1);
    CHECK(o.output.find(words) != std::string::npos);
  }
  CHECK_FALSE(std::filesystem::exists(written.path()));
}

TEST_CASE("files that cannot be written are found out before the work begins" * doctest::skip(absent())) {
  const file good("before.jsonl", small);
  for (const char* const flag : {"--json", "--schedule"}) {
    const outcome o = run(std::string{flag} + " /no/such/folder/x " + good.path() + " 2>/dev/null");
    CHECK(o.status == 1);
    CHECK(o.output.empty());  // no table of a run that was made all the same
  }
}

TEST_CASE("all policies run side by side, and the JSON file has what was measured" * doctest::skip(absent())) {
  const file good("all.jsonl", small);
  const file json_file("all.json");
  const outcome o =
      run("--policy all --budget 14MiB --steps 5 --json " + json_file.path() + ' ' + good.path() + " 2>&1");
  CAPTURE(o.output);
  REQUIRE(o.status == 0);
  std::ifstream in{json_file.path()};
  const nlohmann::json json = nlohmann::json::parse(in);
  CHECK(json["workload"] == "small");
  CHECK(json["launches"] == 2);
  CHECK(json["compute_ns"] == 200'000);
  CHECK(json["footprint_bytes"] == 10 * (2 << 20));
  CHECK(json["budget_bytes"] == 7 * (2 << 20));
  const char* names[] = {"ideal", "um", "lru", "vdnn", "vdnn_ext", "harvest", "deepum", "auto", "oracle"};
  REQUIRE(json["runs"].size() == 9);
  for (std::size_t i = 0; i != 9; ++i) {
    CHECK(o.output.find(names[i]) != std::string::npos);
    const nlohmann::json& r = json["runs"][i];
    CHECK(r["policy"] == names[i]);
    CHECK(r["memory"] == (i == 1 || i == 6 ? "managed" : "home-copy"));
    REQUIRE(r["steps"].size() == 5);
    CHECK(r["steps"][4]["ns"] >= 200'000);
    CHECK(r["percent_of_ideal"].get<double>() <= 100.0);
  }
  CHECK(json["runs"][0]["steps"][4]["in_bytes"] == 0);
  CHECK(json["runs"][0]["percent_of_ideal"] == 100.0);
  CHECK(json["runs"][1]["steps"][4]["faults"] > 0);
  CHECK(json["runs"][1]["steady_step_ns"] > json["runs"][0]["steady_step_ns"]);
}

TEST_CASE("the schedule of a policy is written line by line, the same each time" * doctest::skip(absent())) {
  const file good("schedule.jsonl", small);
  const file out("schedule_out.jsonl");
  std::string first;
  for (int i = 0; i != 2; ++i) {
    CHECK(run("--budget 14MiB --steps 6 --schedule " + out.path() + ' ' + good.path() + " 2>&1").status == 0);
    std::ifstream in{out.path()};
    std::string text;
    std::size_t launches = 0;
    for (std::string line; std::getline(in, line); text += line + '\n') {
      const nlohmann::json entry = nlohmann::json::parse(line);
      if (text.empty()) {
        CHECK(entry["deepum_schedule"] == 1);
        CHECK(entry["budget_bytes"] == 7 * (2 << 20));
      }
      launches += entry.contains("kernel") ? 1 : 0;
    }
    CHECK(launches == 12);
    CHECK((first.empty() || first == text));
    first = text;
  }
}

TEST_CASE("a scenario shows how every regime went" * doctest::skip(absent())) {
  const file good("scenario.jsonl", small);
  const file json_file("scenario.json");
  const outcome o = run("--scenario two_models --policy um,auto --steps 2 --budget 14MiB --json " + json_file.path() +
                        ' ' + good.path() + " 2>&1");
  CAPTURE(o.output);
  REQUIRE(o.status == 0);
  std::ifstream in{json_file.path()};
  const nlohmann::json json = nlohmann::json::parse(in);
  REQUIRE(json["runs"].size() == 2);
  CHECK_FALSE(json["runs"][0]["regimes"].empty());
  CHECK(json["runs"][1]["steps"].size() >= 12);
}

}  // namespace deepum_replay_test
