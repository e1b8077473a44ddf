#include "nlohmann/json.hpp"
#include "run_program.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace train_gpt_test {

using deepum_test::outcome;

outcome run(const std::string& arguments) { return deepum_test::run_program("train_gpt", arguments); }

std::string file_in_temporary_folder(const char* name) {
  return (std::filesystem::temp_directory_path() / ("deepum_train_gpt_test_" + std::string{name})).string();
}

constexpr const char* small = " --layers 3 --width 128 --heads 4 --context 32 --batch 4 --steps 4 --sample 8 ";

TEST_CASE("bad input gives one clear line and a failure") {
  const std::string empty = file_in_temporary_folder("empty.txt");
  std::ofstream{empty}.close();
  const std::pair<std::string, std::string_view> cases[] = {
      {"--corpus /no/such/file", "cannot read the corpus"},
      {"--corpus /", "cannot read the corpus"},
      {"--corpus " + empty, "has 0 bytes"},
      {"--context 40000", "needs 40001 at least"},
      {"--policy best", "there is no policy 'best'"},
      {"--policy um,,auto", "there is no policy ''"},
      {"--policy um,um", "twice"},
      {"--budget 1MiB", "below one block"},
      {"--budget 0", "below one block"},
      {"--budget 0.1%", "below one block"},
      {"--budget much", "budget"},
      {"--layers 0", "--layers"},
      {"--width 0", "--width"},
      {"--heads 0", "--heads"},
      {"--heads 5", "does not divide"},
      {"--context 0", "--context"},
      {"--batch 0", "--batch"},
      {"--batch -1", "--batch"},
      {"--steps 0", "--steps"},
      {"--steps many", "steps"},
      {"--lookahead 0", "lookahead"},
      {"--learning_rate 0", "--learning_rate"},
      {"--compute_slowdown 0", "--compute_slowdown"},
      {"--device sim:z9000", "there is no profile 'z9000'"},
      {"--device abacus", "there is no device"},
      {"--json /no/such/folder/x.json", "cannot write"},
      {"--json /", "cannot write"},
      {"--tables x --policy all", "goes with one policy"},
      {"--memory paper", "there is no memory 'paper'"},
      {"--memory both --tables x", "goes with one policy on one memory"},
      {"--memory paged --chunk 4MiB", "--chunk is for --device cuda"},
      {"--chunk 4MiB", "--chunk is of paged memory"},
      {"--chunk 3MiB", "from 2MiB to 32MiB"},
      {"--memory paged --evicted host-mapped", "--evicted is for --device cuda"},
      {"--evicted host-mapped", "--evicted is of paged memory"},
      {"--memory paged --evicted away", "unmapped or host-mapped"},
      {"--memory paged --budget 1MiB", "below one block"},
      {"--memory paged --steps 1 --budget 2MiB", "the budget is 2097152: raise it"},
      {"--no_such_flag", "no_such_flag"},
      {"file.txt", "'file.txt'"},
  };
  for (const auto& [arguments, words] : cases) {
    CAPTURE(arguments);
    const outcome o = run(arguments + " 2>&1 >/dev/null");
    CAPTURE(o.output);
    CHECK(o.status != 0);
    CHECK(o.status != -1);
    CHECK(std::count(o.output.begin(), o.output.end(), '\n') == 1);
    CHECK(o.output.find(words) != std::string::npos);
  }
  std::filesystem::remove(empty);
}

TEST_CASE("a variable that would replace the policy is refused") {
  REQUIRE(setenv("DEEPUM_POLICY", "um", 1) == 0);
  const outcome o = run("2>&1");
  REQUIRE(unsetenv("DEEPUM_POLICY") == 0);
  CHECK(o.status != 0);
  CHECK(o.output.find("DEEPUM_POLICY") != std::string::npos);
}

TEST_CASE("all policies train side by side, and the JSON file has one entry for each step") {
  const std::string path = file_in_temporary_folder("run.json");
  const outcome o = run("--policy all --budget 40% --json " + path + small + "2>/dev/null");
  CHECK(o.status == 0);
  for (const char* words : {"ideal", "um", "lru", "deepum", "auto", "The trained model writes: The "}) {
    CHECK(o.output.find(words) != std::string::npos);
  }

  std::ifstream file{path};
  const nlohmann::json json = nlohmann::json::parse(file);
  file.close();
  std::filesystem::remove(path);
  CHECK(json["device"] == "sim:h200_pcie5");
  CHECK(json["budget_bytes"] <= json["footprint_bytes"].get<double>() * 0.4);
  REQUIRE(json["policies"].size() == 5);
  const char* names[] = {"ideal", "um", "lru", "deepum", "auto"};
  for (std::size_t i = 0; i < 5; ++i) {
    const nlohmann::json& p = json["policies"][i];
    CHECK(p["name"] == names[i]);
    for (const char* key : {"step_ns", "faults", "faults_changing", "bytes_in", "bytes_out", "stall_ns", "loss"}) {
      CAPTURE(key);
      CHECK(p[key].size() == 4);
    }
    CHECK(p["table_bytes"].is_number_unsigned());
    CHECK(p["loss"] == json["policies"][0]["loss"]);
  }
  CHECK(json["policies"][0]["faults"][3] == 0);
  CHECK(json["policies"][1]["faults"][3] > 0);
  CHECK(json["policies"][1]["faults_changing"][3] <= json["policies"][1]["faults"][3]);
  CHECK(json["policies"][3]["table_bytes"] > 0);
}

TEST_CASE("both kinds of memory train to the same losses under all policies, and the reports name them") {
  const auto train = [](const std::string& memory) {
    const std::string path = file_in_temporary_folder("memory.json");
    const outcome o = run("--policy all --budget 20MiB --memory " + memory + " --json " + path +
                          " --layers 5 --width 160 --heads 4 --context 32 --batch 4 --steps 3 --sample 8 2>/dev/null");
    CHECK(o.status == 0);
    CHECK(o.output.find(memory + " memory") != std::string::npos);
    std::ifstream file{path};
    const nlohmann::json json = nlohmann::json::parse(file);
    file.close();
    std::filesystem::remove(path);
    CHECK(json["memory"] == memory);
    return json["policies"];
  };
  const nlohmann::json managed = train("managed");
  const nlohmann::json paged = train("paged");
  REQUIRE(paged.size() == 5);
  for (const nlohmann::json& p : paged) {
    CAPTURE(p["name"].get<std::string>());
    CHECK(p["loss"] == managed[0]["loss"]);
    CHECK((p["bytes_out"][2] == 0) == (p["name"] == "ideal"));
  }
}

TEST_CASE("both kinds of memory side by side, with what no schedule can beat") {
  const std::string path = file_in_temporary_folder("both.json");
  const outcome o = run("--policy all --budget 20MiB --memory both --json " + path +
                        " --layers 4 --width 256 --heads 4 --context 32 --batch 4 --steps 3 --sample 0 2>/dev/null");
  CHECK(o.status == 0);
  CHECK(o.output.find("\nleast possible ") != std::string::npos);
  std::ifstream file{path};
  const nlohmann::json json = nlohmann::json::parse(file);
  file.close();
  std::filesystem::remove(path);
  REQUIRE(json["memories"].size() == 2);
  CHECK(json["memories"][0]["memory"] == "managed");
  CHECK(json["memories"][1]["memory"] == "paged");
  const double least = json["memories"][0]["least"]["step_ns"];
  CHECK(json["memories"][1]["least"]["step_ns"] == least);
  CHECK(least > json["memories"][0]["policies"][0]["step_ns"][2].get<double>());  // more than ideal
  for (const nlohmann::json& m : json["memories"]) {
    for (const nlohmann::json& p : m["policies"]) {
      CAPTURE(p["name"].get<std::string>());
      CHECK((p["step_ns"][2].get<double>() < least) == (p["name"] == "ideal"));
    }
  }
}

TEST_CASE("one policy alone, another profile, and the same run twice") {
  const std::string options = "--policy auto --budget 4MiB --lookahead 8 --device sim:v100_pcie3" + std::string{small};
  const outcome first = run(options + "2>&1");
  CHECK(first.status == 0);
  CHECK(first.output.find("sim:v100_pcie3") != std::string::npos);
  CHECK(run(options + "2>&1").output == first.output);
}

TEST_CASE("a second run with the tables of the first stalls less in its first step") {
  const std::string tables = file_in_temporary_folder("tables");
  std::filesystem::remove(tables);
  const auto train = [&](const char* policy) {
    const std::string path = file_in_temporary_folder("warm.json");
    const outcome o = run("--layers 4 --width 192 --heads 4 --context 32 --batch 4 --steps 2 --sample 0 --policy " +
                          std::string{policy} + " --tables " + tables + " --json " + path + " 2>&1");
    CHECK(o.status == 0);
    std::ifstream file{path};
    const nlohmann::json json = nlohmann::json::parse(file);
    file.close();
    std::filesystem::remove(path);
    return std::pair(json["policies"][0], o.output.find("the policy begins without tables") != std::string::npos);
  };
  const auto [cold, refused_nothing] = train("auto");
  CHECK_FALSE(refused_nothing);
  const auto [warm, refused_own] = train("auto");
  CHECK_FALSE(refused_own);
  CHECK(warm["loss"] == cold["loss"]);
  CHECK(warm["stall_ns"][0].get<std::int64_t>() < cold["stall_ns"][0].get<std::int64_t>());
  CHECK(train("deepum").second);
  CHECK_FALSE(train("deepum").second);  // which has replaced the file
  std::filesystem::remove(tables);
  const outcome o = run("--tables /no/such/folder/x --policy um" + std::string{small} + "2>&1");
  CHECK(o.status != 0);
  CHECK(o.output.find("/no/such/folder/x: cannot be written") != std::string::npos);
}

TEST_CASE("a device of a single block trains") {
  CHECK(run("--policy all --budget 2MiB --sample 0" + std::string{small} + "2>&1").status == 0);
}

}  // namespace train_gpt_test
