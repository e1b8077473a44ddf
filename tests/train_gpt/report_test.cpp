#include "../../examples/train_gpt/report.hpp"

#include "../../examples/train_gpt/backend_sim.hpp"
#include "../../examples/train_gpt/options.hpp"
#include "../../examples/train_gpt/text.hpp"
#include "../../examples/train_gpt/training.hpp"
#include <deepum/error.hpp>
#include <deepum/policy/make_policy.hpp>

#include <doctest/doctest.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace report_test {

using namespace train_gpt;
using namespace deepum::literals;

TEST_CASE("the steady value is the median from the third step on") {
  CHECK(steady(std::vector{100, 90, 3, 1, 2}) == 2.0);
  CHECK(steady(std::vector{100, 90, 1, 2}) == 1.5);
  CHECK(steady(std::vector{5, 7}) == 6.0);
  CHECK(steady(std::vector{5}) == 5.0);
}

TEST_CASE("losses that differ in the last bit are found, with step and policy") {
  std::vector<policy_run> runs{{.name = "ideal", .loss = {2.0F, 1.0F}}, {.name = "um", .loss = {2.0F, 1.0F}}};
  CHECK_FALSE(difference_of_losses(runs, runs.front()));
  runs[1].loss[1] = std::nextafter(1.0F, 2.0F);
  REQUIRE(difference_of_losses(runs, runs.front()));
  CHECK(*difference_of_losses(runs, runs.front()) == "the loss of step 2 is 1 under ideal, but 1.00000012 under um");
}

TEST_CASE("a budget is bytes, with or without a unit, or a share of the footprint, in whole blocks") {
  const auto budget = [](const char* text) -> std::optional<std::uint64_t> {
    budget_flag flag;
    std::string error;
    if (!AbslParseFlag(text, &flag, &error)) return std::nullopt;
    return flag.of(100_MiB).count;
  };
  CHECK(budget("40%") == (40_MiB).count);
  CHECK(budget("41.5%") == (40_MiB).count);
  CHECK(budget("64MiB") == (64_MiB).count);
  CHECK(budget("2GiB") == (2_GiB).count);
  CHECK(budget("5000KiB") == (4_MiB).count);
  CHECK(budget("4194303") == (2_MiB).count);
  CHECK(budget("2097152B") == (2_MiB).count);
  for (const char* wrong :
       {"", "%", "0%", "-1%", "nan%", "x", "-5", "5MB", "1.5GiB", "MiB", "18446744073709551615GiB"}) {
    CAPTURE(wrong);
    CHECK_FALSE(budget(wrong));
  }
}

TEST_CASE("batches are pieces of the text with the bytes that follow, and repeat with their seed") {
  const std::string text = "abcdefghijklmnopqrstuvwxyz";
  batches a{text, 4, 5, 9};
  batches b{text, 4, 5, 9};
  for (int round = 0; round < 50; ++round) {
    a.next();
    b.next();
    CHECK(std::equal(a.tokens().begin(), a.tokens().end(), b.tokens().begin()));
    for (std::size_t i = 0; i < a.tokens().size(); ++i) {
      CHECK(a.targets()[i] == a.tokens()[i] + 1);
      CHECK((i % 5 == 0 || a.tokens()[i] == a.targets()[i - 1]));
    }
  }
}

TEST_CASE("a text of exactly the least size can be read, a shorter one cannot") {
  const std::string path = (std::filesystem::temp_directory_path() / "deepum_report_test.txt").string();
  std::ofstream(path) << "abcdef";
  CHECK(read_text(path, 6).value() == "abcdef");
  CHECK_FALSE(read_text(path, 7).ok());
  std::filesystem::remove(path);
  CHECK_FALSE(read_text(path, 1).ok());
}

TEST_CASE("the learning rate rises to its peak and then falls") {
  CHECK(learning_rate_of(0, 50, 1.0F) == doctest::Approx(0.2));
  CHECK(learning_rate_of(4, 50, 1.0F) > learning_rate_of(3, 50, 1.0F));
  CHECK(learning_rate_of(49, 50, 1.0F) == doctest::Approx(0.118));
  CHECK(learning_rate_of(0, 1, 1.0F) == doctest::Approx(1.0));
}

TEST_CASE("the table gives each policy's share of ideal speed, and its faults against demand paging") {
  const auto run = [](const char* name, std::int64_t ns, std::uint64_t faults) {
    return policy_run{.name = name,
                      .step_ns = {9, 9, ns},
                      .faults = {7, 7, faults},
                      .faults_changing = {0, 0, 0},
                      .bytes_in = {0, 0, 0},
                      .bytes_out = {0, 0, 0},
                      .stall_ns = {0, 0, 0},
                      .loss = {3, 2, 1}};
  };
  const report r{"a device", 4_MiB, 2_MiB, {run("ideal", 1000, 0), run("um", 4000, 200), run("auto", 1250, 1)}};
  const std::string table = table_of(r);
  CHECK(table.find("25.0") != std::string::npos);
  CHECK(table.find("80.0") != std::string::npos);
  CHECK(table.find("ideal 0.00 % auto 0.50 %") != std::string::npos);
}

TEST_CASE("the least possible is a row beside the policies, and each policy's share of it is shown") {
  const auto run = [](const char* name, std::int64_t ns) {
    return policy_run{.name = name,
                      .step_ns = {9, 9, ns},
                      .faults = {0, 0, 0},
                      .faults_changing = {0, 0, 0},
                      .bytes_in = {0, 0, 0},
                      .bytes_out = {0, 0, 0},
                      .stall_ns = {0, 0, 0},
                      .loss = {3, 2, 1}};
  };
  report managed{"a device", 4_MiB, 2_MiB, {run("ideal", 1000000), run("auto", 8000000)}};
  CHECK(table_of(managed).find("least possible") == std::string::npos);
  CHECK_FALSE(json_of(managed).contains("least"));
  managed.least = {.ns = 3e6, .in = 1 << 21, .out = 1 << 20};
  CHECK(json_of(managed)["least"]["step_ns"] == 3e6);
  const std::string alone = table_of(managed);
  CHECK(alone.find("\nleast possible     3.000      33.3       100.0") > alone.find("\nideal"));
  CHECK(alone.find("\nauto               8.000      12.5        37.5") > alone.find("\nleast possible"));

  report paged = managed;
  paged.memory = "paged";
  paged.runs.back().step_ns.back() = 4000000;
  const std::string both = table_of(managed, paged);
  CHECK(both.find("managed memory  ") < both.find("| paged memory\n"));
  CHECK(both.find("\nleast possible     3.000       100.0              2.0      1.0 |     3.000       100.0") !=
        std::string::npos);
  CHECK(both.find("\nauto               8.000        37.5       0      0.0      0.0 |     4.000        75.0") !=
        std::string::npos);
  managed.least = paged.least = {};
  CHECK(table_of(managed, paged).find("least possible") == std::string::npos);
}

TEST_CASE("the JSON report names precision and mode, and what belongs to a GPU only where there is one") {
  report r{"sim:x",
           4_MiB,
           2_MiB,
           {policy_run{.name = "um",
                       .step_ns = {1},
                       .faults = {0},
                       .faults_changing = {0},
                       .bytes_in = {0},
                       .bytes_out = {0},
                       .stall_ns = {0},
                       .loss = {1}}}};
  nlohmann::ordered_json json = json_of(r);
  CHECK(json["precision"] == "fp32");
  CHECK(json["evaluate"] == false);
  CHECK_FALSE(json.contains("driver"));
  CHECK_FALSE(json["policies"][0].contains("fault_feed"));
  CHECK(table_of(r).find("blocks leave") == std::string::npos);
  CHECK(table_of(r).find("forward pass alone") == std::string::npos);

  r.precision = "bf16";
  r.evaluate = true;
  r.driver = "13.0";
  r.runs[0].fault_feed = "driver";
  json = json_of(r);
  CHECK(json["precision"] == "bf16");
  CHECK(json["evaluate"] == true);
  CHECK(json["driver"] == "13.0");
  CHECK(json["policies"][0]["fault_feed"] == "driver");
  CHECK(table_of(r).find("sim:x, managed memory, bf16, forward pass alone, footprint") != std::string::npos);
  CHECK(table_of(r).find("Under um, blocks leave beside the faults") != std::string::npos);
  r.runs[0].name = "auto";
  CHECK(table_of(r).find("blocks leave") == std::string::npos);
}

TEST_CASE("the reports name the kind of memory, and explain what counts as a fault where none happens") {
  report r{"cuda:x",
           64_MiB,
           32_MiB,
           {policy_run{.name = "um",
                       .step_ns = {1},
                       .faults = {0},
                       .faults_changing = {0},
                       .bytes_in = {0},
                       .bytes_out = {0},
                       .stall_ns = {0},
                       .loss = {1}}}};
  r.driver = "13.0";
  CHECK(json_of(r)["memory"] == "managed");
  CHECK_FALSE(json_of(r).contains("chunk_bytes"));
  CHECK(table_of(r).find("cuda:x, managed memory, footprint") != std::string::npos);
  CHECK(table_of(r).find("No page faults") == std::string::npos);
  r.memory = "paged";
  r.chunk = 16_MiB;
  CHECK(json_of(r)["memory"] == "paged");
  CHECK(json_of(r)["chunk_bytes"] == (16_MiB).count);
  CHECK(table_of(r).find("cuda:x, paged memory in chunks of 16 MiB, footprint") != std::string::npos);
  CHECK(table_of(r).find("No page faults") != std::string::npos);
  CHECK(table_of(r).find("blocks leave beside the faults") == std::string::npos);
  CHECK_FALSE(json_of(r).contains("evicted"));
  r.host_mapped = true;
  CHECK(json_of(r)["evicted"] == "host-mapped");
  CHECK(table_of(r).find("in chunks of 16 MiB, evicted ones host-mapped, footprint") != std::string::npos);
}

TEST_CASE("a chunk is a power of two from 2 MiB to 32 MiB") {
  const auto chunk = [](const char* text) -> std::optional<std::uint64_t> {
    chunk_flag flag{1_MiB};
    std::string error;
    if (!AbslParseFlag(text, &flag, &error)) return std::nullopt;
    return flag.size.count;
  };
  CHECK(chunk("auto") == 0);
  for (const bytes right : {2_MiB, 4_MiB, 8_MiB, 16_MiB, 32_MiB}) {
    CHECK(chunk(AbslUnparseFlag(chunk_flag{right}).c_str()) == right.count);
  }
  CHECK(chunk("4194304") == (4_MiB).count);
  for (const char* wrong : {"", "0", "1MiB", "3MiB", "64MiB", "10%", "-2MiB", "much"}) {
    CAPTURE(wrong);
    CHECK_FALSE(chunk(wrong));
  }
}

TEST_CASE("the training loop evaluates where it is told to: no step changes the weights") {
  std::string text;
  for (int i = 0; i < 500; ++i)
    text.push_back(static_cast<char>('a' + i * 7 % 26));
  run_options options{.profile = "h200_pcie5", .budget = 4_MiB, .steps = 3, .learning_rate = 1e-2F, .seed = 2};
  options.shape = {.layers = 2, .width = 32, .heads = 2, .context = 16, .batch = 2};
  const auto run = [&](purpose use, const char* policy) {
    options.use = use;
    return train<sim_backend>(
        options, policy, text, [](const policy_run&) {}, nullptr);
  };
  const policy_run evaluated = run(purpose::evaluation, "auto");
  const policy_run trained = run(purpose::training, "auto");
  REQUIRE(evaluated.loss.size() == 3);
  CHECK(evaluated.loss[0] == trained.loss[0]);
  CHECK(evaluated.loss[2] > trained.loss[2]);  // which has learned something
  CHECK(run(purpose::evaluation, "ideal").loss == evaluated.loss);
  CHECK(evaluated.faults_changing == std::vector<std::uint64_t>(3));
  CHECK(evaluated.fault_feed.empty());
}

TEST_CASE("the training loop finds the same losses on both kinds of memory, under every policy") {
  std::string text;
  for (int i = 0; i < 500; ++i)
    text.push_back(static_cast<char>('a' + i * 7 % 26));
  run_options options{.profile = "h200_pcie5", .budget = 20_MiB, .steps = 3, .learning_rate = 1e-2F, .seed = 2};
  options.shape = {.layers = 5, .width = 160, .heads = 4, .context = 16, .batch = 2};
  REQUIRE(sim_backend::device_budget("auto", 20_MiB) < 20_MiB);
  REQUIRE(paged_sim_backend::device_budget("auto", 20_MiB) == 20_MiB);
  const auto run = [&]<class Backend>(const std::string& policy) {
    return train<Backend>(
        options, policy, text, [](const policy_run&) {}, nullptr);
  };
  const policy_run expected = run.operator()<sim_backend>("ideal");
  for (const std::string_view name : deepum::policy_names()) {
    const std::string policy{name};
    CAPTURE(policy);
    const policy_run found = run.operator()<paged_sim_backend>(policy);
    CHECK(found.loss == expected.loss);
    CHECK((found.bytes_out.back() == 0) == (policy == "ideal"));
  }
  options.budget = 2_MiB;
  CHECK_THROWS_WITH_AS(run.operator()<paged_sim_backend>("auto"),
                       doctest::Contains("the budget is 2097152: raise it, or launch less at a time"), deepum::error);
}

}  // namespace report_test
