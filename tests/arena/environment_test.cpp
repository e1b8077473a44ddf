#include "support/failure.hpp"
#include <deepum/core/size_text.hpp>
#include <deepum/deepum.hpp>

#include <doctest/doctest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace environment_test {

using namespace deepum;
using namespace deepum::literals;
using deepum_test::mentions;
using simulated_arena = arena<sim::managed_memory>;

/// A variable of the environment, for as long as it lives.
struct variable {
  variable(const char* name, const char* value) : name_(name) {
    if (const char* const before = std::getenv(name)) before_ = before;
    ::setenv(name, value, 1);
  }
  ~variable() { before_ ? ::setenv(name_, before_->c_str(), 1) : ::unsetenv(name_); }
  variable(const variable&) = delete;
  variable& operator=(const variable&) = delete;

 private:
  const char* name_;
  std::optional<std::string> before_{};
};

/// What a policy is made with, and that it is the program's own.
struct machine {
  sim::device gpu{sim::find_profile("h200_pcie5"), {.memory = 64_MiB}};
  std::vector<std::string> lines{};

  arena_options with(arena_options o) {
    o.capacity = 128_MiB;
    o.headroom = 4_MiB;
    o.log = [this](std::string_view line) { lines.emplace_back(line); };
    return o;
  }
};

TEST_CASE("a size is a number of bytes, or one with a binary unit, and nothing else") {
  CHECK(try_parse_size("0") == 0_B);
  CHECK(try_parse_size("1073741824") == 1_GiB);
  CHECK(try_parse_size("3KiB") == bytes{3072});
  CHECK(try_parse_size("512MiB") == 512_MiB);
  CHECK(try_parse_size("2GiB") == 2_GiB);
  CHECK(try_parse_size("1TiB") == 1024_GiB);
  CHECK(try_parse_size("18446744073709551615") == bytes{std::numeric_limits<std::uint64_t>::max()});
  CHECK(try_parse_size("16777215TiB") == 16777215 * 1024_GiB);
  for (const char* bad : {"", "GiB", " 1GiB", "1 GiB", "1GiB ", "1GB", "1gib", "1G", "-1", "+1", "0x10", "1.5GiB",
                          "1e9", "18446744073709551616", "16777216TiB", "17179869184GiB", "1GiBGiB"}) {
    CAPTURE(std::string(bad));
    CHECK_FALSE(try_parse_size(bad).has_value());
  }
}

TEST_CASE("DEEPUM_BUDGET goes before the program's budget, in bytes or as a share of the device's memory") {
  const struct {
    const char* value;
    bytes budget;
  } cases[] = {{"16MiB", 16_MiB}, {"20971520", 20_MiB}, {"50%", 32_MiB},
               {"37.5%", 24_MiB}, {"100%", 64_MiB},     {"0", 60_MiB}};  // what is free, less the headroom
  for (const auto& c : cases) {
    CAPTURE(std::string(c.value));
    const variable set("DEEPUM_BUDGET", c.value);
    machine m;
    simulated_arena memory(m.gpu, m.with({.device_budget = 8_MiB}));
    CHECK(memory.budget() == c.budget);
    CHECK(m.lines.empty());
    memory.set_budget(10_MiB);  // what the program asks for later is another matter
    CHECK(memory.budget() == 10_MiB);
  }
}

TEST_CASE("a value that cannot be used is one line, and the program goes on as without it") {
  const struct {
    const char* name;
    const char* value;
    const char* what;
  } cases[] = {{"DEEPUM_BUDGET", "plenty", "no budget"},
               {"DEEPUM_BUDGET", "2 GiB", "no budget"},
               {"DEEPUM_BUDGET", "0%", "no budget"},
               {"DEEPUM_BUDGET", "101%", "no budget"},
               {"DEEPUM_BUDGET", "-5%", "no budget"},
               {"DEEPUM_BUDGET", "nan%", "no budget"},
               {"DEEPUM_BUDGET", "1e1%", "no budget"},
               {"DEEPUM_BUDGET", "50 %", "no budget"},
               {"DEEPUM_BUDGET", "1MiB", "less than a block of 2097152 bytes"},
               {"DEEPUM_BUDGET", "0.001%", "less than a block"},
               {"DEEPUM_CHECK", "yes", "neither 1"},
               {"DEEPUM_POLICY", "wrong",
                "no policy: there are ideal, um, lru, vdnn, vdnn_ext, harvest, deepum, auto, and off, which is um"}};
  for (const auto& c : cases) {
    CAPTURE(std::string(c.name));
    CAPTURE(std::string(c.value));
    const variable set(c.name, c.value);
    machine m;
    const simulated_arena memory(m.gpu, m.with({.device_budget = 8_MiB, .policy = "lru"}));
    CHECK(memory.budget() == 8_MiB);
    CHECK(memory.policy_name() == "lru");
    REQUIRE(m.lines.size() == 1);
    CHECK(mentions(m.lines[0], std::string(c.name) + " is '" + c.value + "', "));
    CHECK(mentions(m.lines[0], c.what));
    CHECK(mentions(m.lines[0], "; it is ignored"));
  }
}

TEST_CASE("an empty value is none") {
  const variable budget("DEEPUM_BUDGET", "");
  const variable policy("DEEPUM_POLICY", "");
  const variable check("DEEPUM_CHECK", "");
  machine m;
  const simulated_arena memory(m.gpu, m.with({.device_budget = 8_MiB, .policy = "lru"}));
  CHECK(memory.budget() == 8_MiB);
  CHECK(memory.policy_name() == "lru");
  CHECK(m.lines.empty());
}

/// A folder that is removed in the end.
struct folder {
  folder() : path("/tmp/deepum-environment-XXXXXX") { REQUIRE(::mkdtemp(path.data()) != nullptr); }
  ~folder() { std::filesystem::remove_all(path); }
  folder(const folder&) = delete;
  folder& operator=(const folder&) = delete;
  [[nodiscard]] std::string text(const std::string& name) const {
    std::ifstream in(path + '/' + name);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  std::string path;
};

const auto put = sim::kernel([](int* p, int value) { *p = value; },
                             [](sim::work& w, int* p, int) { w.updates(p, sizeof *p).flops(1e6); });

TEST_CASE("DEEPUM_STATISTICS and DEEPUM_TRACE are written when the arena ends, a file for each arena") {
  const folder f;
  const variable statistics("DEEPUM_STATISTICS", (f.path + "/run.json").c_str());
  const variable trace("DEEPUM_TRACE", (f.path + "/trace").c_str());
  // How many arenas of this process had files before is not known here.
  for (int i = 0; i < 2; ++i) {
    machine m;
    int seen = 0;
    arena_options o = m.with({});
    o.observer = [&](const device_event&, launch_id) { ++seen; };
    {
      simulated_arena memory(m.gpu, o);
      stream s{memory};
      int* const x = memory.allocate<int>(1);
      for (int k = 0; k < 5; ++k) {
        s.launch("set", 1, 1, 0, put, updates(x, 1), k);
      }
    }
    CHECK(seen >= 10);  // the program's own observer sees all as well
    CHECK(m.lines.empty());
  }
  int reports = 0;
  int traces = 0;
  for (const auto& entry : std::filesystem::directory_iterator(f.path)) {
    const std::string name = entry.path().filename();
    const std::string text = f.text(name);
    CAPTURE(name);
    if (name.starts_with("run")) {
      ++reports;
      CHECK(name.ends_with(".json"));
      CHECK(mentions(text, "\"launches\":5,\"launches_finished\":5,"));
      CHECK(text.ends_with("}\n"));
    } else {
      ++traces;
      CHECK(mentions(text, "\"traceEvents\":["));
      CHECK(mentions(text, "\"name\":\"set\""));
    }
  }
  CHECK(reports == 2);
  CHECK(traces == 2);
}

TEST_CASE("a file that cannot be written is one line, at the beginning, and nothing waits for a FIFO") {
  const folder f;
  const std::string fifo = f.path + "/fifo";
  REQUIRE(::mkfifo(fifo.c_str(), 0600) == 0);
  for (const char* name : {"DEEPUM_STATISTICS", "DEEPUM_TRACE"}) {
    for (const std::string& path : {f.path, fifo, f.path + "/none/run.json", std::string("/dev/null")}) {
      CAPTURE(std::string(name));
      CAPTURE(path);
      const variable set(name, path.c_str());
      machine m;
      { const simulated_arena memory(m.gpu, m.with({})); }
      REQUIRE(m.lines.size() == 1);
      CHECK(mentions(m.lines[0], std::string(name) + " is '" + path + "', which cannot be written: "));
    }
  }
}

TEST_CASE("DEEPUM_POLICY goes before the name of a policy, not before the program's own policy") {
  const variable set("DEEPUM_POLICY", "um");
  machine m;
  CHECK(simulated_arena(m.gpu, m.with({.policy = "lru"})).policy_name() == "um");
  arena_options own;
  own.make_policy = [](const policy_options& o) { return make_policy("deepum", o); };
  CHECK(simulated_arena(m.gpu, m.with(own)).policy_name() == "deepum");
  CHECK(m.lines.empty());
}

}  // namespace environment_test
