#include <deepum/deepum.hpp>

#include <doctest/doctest.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

namespace tables_test {

using namespace deepum;
using namespace deepum::literals;

constexpr std::size_t n = std::size_t{6} * 1024 * 1024 / sizeof(float);
constexpr std::size_t stride = 4096;

const auto scale = sim::kernel(
    [](float* y, const float* x, float a, std::size_t count) {
      for (std::size_t i = 0; i < count; i += stride)
        y[i] = y[i] * 0.5F + x[i] * a;
    },
    [](sim::work& w, float* y, const float* x, float, std::size_t count) {
      w.updates(y, count * sizeof(float)).reads(x, count * sizeof(float)).flops(static_cast<double>(count) * 3);
    });

bool mentions(std::string_view line, std::string_view what) { return line.find(what) != std::string_view::npos; }

/// A file that is not there, and is gone in the end.
struct temporary_file {
  temporary_file()
      : path((std::filesystem::temp_directory_path() / ("deepum_tables_test_" + std::to_string(std::random_device{}())))
                 .string()) {}
  ~temporary_file() { std::filesystem::remove(path); }
  temporary_file(const temporary_file&) = delete;
  temporary_file& operator=(const temporary_file&) = delete;

  [[nodiscard]] std::string contents() const {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  }
  void replace(const std::string& with) const { std::ofstream(path, std::ios::binary) << with; }

  std::string path;
};

/// One run of a program: a device of its own, an arena and the host's data somewhere else in memory.
struct machine {
  explicit machine(std::string policy, std::string tables = {}, bytes capacity = 128_MiB)
      : gpu(sim::find_profile("h200_pcie5"), {.memory = 36_MiB}),
        memory(gpu, {.capacity = capacity,
                     .device_budget = 32_MiB,
                     .policy = std::move(policy),
                     .tables = std::move(tables),
                     .log = [this](std::string_view line) { log.emplace_back(line); }}) {
    for (std::size_t i = 0; i < n; i += stride)
      data[i] = static_cast<float>(i / stride % 17);
  }

  std::vector<float> data = std::vector<float>(n, 1.0F);
  std::vector<std::string> log{};
  sim::device gpu;
  arena<sim::managed_memory> memory;
};

struct step {
  std::uint64_t faults = 0;
  nanoseconds stalled{};
};
struct run_result {
  std::vector<step> steps{};
  std::vector<float> values{};
  policy_statistics policy{};
};

/// A few layers forth and back, twice as large as the device. A third of the launches declare nothing, and a third have
/// a scalar that is new in each step.
run_result train(machine& m, int steps = 3) {
  constexpr std::size_t layers = 6;
  arena<sim::managed_memory>& memory = m.memory;
  run_result result;
  std::vector<float*> w;
  std::vector<float*> x;
  for (std::size_t i = 0; i < layers; ++i) {
    w.push_back(memory.allocate<float>(n));
    x.push_back(memory.allocate<float>(n));
  }
  stream s{memory};
  for (float* p : w)
    s.memset(p, 0, bytes{n * sizeof(float)});
  s.memcpy(x[0], m.data.data(), bytes{n * sizeof(float)});
  s.synchronize();
  statistics before = memory.statistics();
  for (int k = 0; k < steps; ++k) {
    for (std::size_t i = 1; i < layers; ++i)
      s.launch("forward", 1, 1, 0, scale, x[i], static_cast<const float*>(x[i - 1]), 0.25F, n);
    for (std::size_t i = layers; i-- > 0;) {
      s.call("backward " + std::to_string(i), {},
             [&](sim::stream& q) { q.launch(1, 1, 0, scale, w[i], static_cast<const float*>(x[i]), 0.5F, n); });
    }
    for (std::size_t i = 0; i < layers; ++i)
      s.launch("update", 1, 1, 0, scale, w[i], static_cast<const float*>(w[i]), 1.0F / static_cast<float>(k + 1), n);
    s.synchronize();
    const statistics now = memory.statistics();
    const statistics difference = now - before;
    before = now;
    result.steps.push_back({difference.faults, difference.stalled});
  }
  for (float* p : w) {
    const auto view = memory.host_read(p, n);
    for (std::size_t i = 0; i < n; i += stride)
      result.values.push_back(view[i]);
  }
  result.policy = memory.statistics().policy;
  return result;
}

TEST_CASE("a second run that begins with the tables of the first has a first step like the others") {
  for (const std::string policy : {"auto", "deepum"}) {
    CAPTURE(policy);
    const temporary_file file;
    machine first(policy, file.path);
    const run_result cold = train(first);
    first.memory.save_tables(file.path);
    CHECK(first.log.empty());

    machine second(policy, file.path);  // the first one is still there
    REQUIRE(second.memory.memory().base() != first.memory.memory().base());
    const run_result warm = train(second);
    CHECK(second.log.empty());
    CHECK(warm.values == cold.values);
    CHECK(warm.steps.front().faults < cold.steps.front().faults);
    CHECK(warm.steps.front().stalled < cold.steps.front().stalled);
    if (policy == "auto") {
      CHECK(cold.steps.front().faults > 20);
      CHECK(warm.steps.front().faults <= 2);
      CHECK(warm.policy.execution_ids == cold.policy.execution_ids);
      CHECK(warm.policy.unpredicted == 1);  // the first launch of all
      CHECK(warm.policy.mispredicted == 0);
    }
  }
}

struct hidden {
  float* y;
  const float* x;
};
const auto scale_hidden = sim::kernel(
    [](hidden h, std::size_t count) {
      for (std::size_t i = 0; i < count; i += stride)
        h.y[i] += h.x[i];
    },
    [](sim::work& w, hidden h, std::size_t count) {
      w.updates(h.y, count * sizeof(float)).reads(h.x, count * sizeof(float)).flops(static_cast<double>(count));
    });

/// @returns  Faults of the first of some steps whose launches hide their pointers in a struct.
std::uint64_t hidden_first_step(machine& m, const std::string& tables) {
  stream<sim::managed_memory> s(m.memory);
  std::vector<float*> x;
  for (int i = 0; i < 8; ++i) {
    x.push_back(m.memory.allocate<float>(n));
    std::ranges::fill(m.memory.host_overwrite(x.back(), n), 0.0F);
  }
  std::uint64_t first = 0;
  for (int step = 0; step < 4; ++step) {
    const std::uint64_t before = m.memory.statistics().faults;
    for (std::size_t i = 1; i < x.size(); ++i)
      s.launch("hidden", 1, 1, 0, scale_hidden, hidden{x[i], x[i - 1]}, n);
    s.synchronize();
    first = step == 0 ? m.memory.statistics().faults - before : first;
  }
  m.memory.save_tables(tables);
  return first;
}

TEST_CASE("pointers in a struct are recognised where the arena of the next run lies at another address") {
  const temporary_file tables;
  machine cold("auto", tables.path);
  CHECK(hidden_first_step(cold, tables.path) > 0);
  machine next("auto", tables.path);
  REQUIRE(next.memory.memory().base() != cold.memory.memory().base());
  // At most one launch's: what a launch before had brought never faulted, so it may have taught nothing.
  CHECK(hidden_first_step(next, tables.path) <= 3);
  CHECK(next.memory.statistics().policy.execution_ids == cold.memory.statistics().policy.execution_ids);
  CHECK(next.memory.statistics().policy.mispredicted == 0);
}

TEST_CASE("a file that is not there is no error, and one that cannot be read is reported") {
  const temporary_file file;
  machine without("auto", file.path);
  CHECK(without.log.empty());
  CHECK(train(without).values == [] {
    machine um("um");
    return train(um).values;
  }());

  const std::string folder = std::filesystem::temp_directory_path().string();
  machine unreadable("auto", folder);
  REQUIRE(unreadable.log.size() == 1);
  CHECK(unreadable.log[0].starts_with(folder + ": cannot be read: "));
  CHECK(unreadable.log[0].ends_with("; the policy begins without tables"));
}

TEST_CASE("a file that is damaged, or of something else, is refused with one line, and the run starts cold") {
  const temporary_file file;
  machine m("auto");
  const run_result cold = train(m);
  m.memory.save_tables(file.path);
  const std::string whole = file.contents();
  const auto refusal = [&](machine&& second) {
    const run_result o = train(second);
    CHECK(o.values == cold.values);
    CHECK(o.steps.front().faults == cold.steps.front().faults);
    CHECK(o.policy.unpredicted == cold.policy.unpredicted);
    REQUIRE(second.log.size() == 1);
    CHECK(second.log[0].starts_with(file.path + ": saved tables are refused: "));
    CHECK(second.log[0].ends_with("; the policy begins without tables"));
    return second.log[0];
  };
  std::string damaged = whole;
  damaged[whole.size() / 2] ^= 1;
  file.replace(damaged);
  CHECK(mentions(refusal(machine("auto", file.path)), "damaged: the checksum is wrong"));
  file.replace(whole.substr(0, whole.size() / 2));
  CHECK(mentions(refusal(machine("auto", file.path)), "the header says"));
  file.replace("");
  CHECK(mentions(refusal(machine("auto", file.path)), "shorter than its header"));
  file.replace(std::string(1000, 'x'));
  CHECK(mentions(refusal(machine("auto", file.path)), "not an archive of tables"));

  file.replace(whole);
  machine other("deepum", file.path);
  REQUIRE(other.log.size() == 1);
  CHECK(mentions(other.log[0], "they are of the policy 'auto', not of 'deepum'"));
  machine smaller("auto", file.path, 32_MiB);
  REQUIRE(smaller.log.size() == 1);
  CHECK(mentions(smaller.log[0], "names a block that the arena does not have"));
  machine same("auto", file.path);
  CHECK(same.log.empty());
}

TEST_CASE("tables that cannot be saved are an error, and leave the file as it was") {
  const temporary_file file;
  machine m("auto");
  (void)train(m, 1);
  m.memory.save_tables(file.path);
  const std::string before = file.contents();
  CHECK(before.size() > 100);
  try {
    m.memory.save_tables(file.path + "/no/such/folder");
    FAIL_CHECK("nothing was thrown");
  } catch (const error& e) {
    CHECK(e.code() == status::io_failure);
  }
  CHECK(file.contents() == before);
}

/// A folder of its own, gone in the end.
struct temporary_folder {
  temporary_folder() { std::filesystem::create_directory(path); }
  ~temporary_folder() { std::filesystem::remove_all(path); }
  temporary_folder(const temporary_folder&) = delete;
  temporary_folder& operator=(const temporary_folder&) = delete;

  [[nodiscard]] std::size_t files() const {
    return static_cast<std::size_t>(std::distance(std::filesystem::directory_iterator(path), {}));
  }

  std::filesystem::path path =
      std::filesystem::temp_directory_path() / ("deepum_tables_test_" + std::to_string(std::random_device{}()));
};

/// Things with a path that are no regular files, each with what the message calls it.
std::vector<std::pair<std::string, std::string>> no_regular_files(const temporary_folder& in) {
  const std::string fifo = in.path / "fifo";
  const std::string folder = in.path / "folder";
  const std::string socket = in.path / "socket";
  CHECK(::mkfifo(fifo.c_str(), 0600) == 0);
  std::filesystem::create_directory(folder);
  CHECK(::mknod(socket.c_str(), S_IFSOCK | 0600, 0) == 0);
  return {{fifo, "a FIFO"}, {folder, "a folder"}, {socket, "a socket"}, {"/dev/null", "a device"}};
}

TEST_CASE("an arena begins without tables where the file of tables is no regular file, and says so") {
  const temporary_folder folder;
  for (const auto& [path, what] : no_regular_files(folder)) {
    CAPTURE(path);
    const machine m("auto", path);  // nobody writes to the FIFO: this must not wait
    REQUIRE(m.log.size() == 1);
    CHECK(mentions(m.log[0], path + ": cannot be read: it is " + what));
    CHECK(mentions(m.log[0], "the policy begins without tables"));
  }
}

TEST_CASE("tables are saved to regular files only, and nothing else is touched") {
  const temporary_folder folder;
  machine m("auto");
  std::vector<std::pair<std::string, std::string>> targets = no_regular_files(folder);
  const std::string link = folder.path / "link";
  const std::string dangling = folder.path / "dangling";
  const std::string target = folder.path / "target";
  std::ofstream(target) << "mine";
  std::filesystem::create_symlink(target, link);
  std::filesystem::create_symlink(folder.path / "nowhere", dangling);
  targets.emplace_back(link, "a symbolic link");
  targets.emplace_back(dangling, "a symbolic link");
  const std::size_t before = folder.files();
  for (const auto& [path, what] : targets) {
    CAPTURE(path);
    const std::filesystem::file_type type = std::filesystem::symlink_status(path).type();
    try {
      m.memory.save_tables(path);
      FAIL_CHECK("nothing was thrown");
    } catch (const error& e) {
      CHECK(e.code() == status::io_failure);
      CHECK(mentions(e.what(), path + ": cannot be written: it is " + what));
    }
    CHECK(std::filesystem::symlink_status(path).type() == type);
  }
  CHECK(folder.files() == before);
  std::string contents;
  std::ifstream(target) >> contents;
  CHECK(contents == "mine");
}

TEST_CASE("no other file is written while tables are saved, whatever its name") {
  const temporary_folder folder;
  const std::string path = folder.path / "tables";
  const std::string victim = folder.path / "victim";
  std::ofstream(victim) << "mine";
  std::filesystem::create_symlink(victim, path + ".part");
  machine m("auto");
  (void)train(m, 1);
  m.memory.save_tables(path);
  std::filesystem::permissions(path, std::filesystem::perms::owner_read);
  m.memory.save_tables(path);
  CHECK(std::filesystem::status(path).permissions() == std::filesystem::perms::owner_read);
  std::string contents;
  std::ifstream(victim) >> contents;
  CHECK(contents == "mine");
  CHECK(std::filesystem::is_symlink(path + ".part"));
  CHECK(std::filesystem::is_regular_file(std::filesystem::symlink_status(path)));
  CHECK(folder.files() == 3);
  CHECK(machine("auto", path).log.empty());
}

TEST_CASE("tables are saved where the program is, and under long names") {
  const temporary_folder folder;
  machine m("auto");
  const std::string path = folder.path / std::string(255, 'x');  // the longest that there is
  m.memory.save_tables(path);
  CHECK(machine("auto", path).log.empty());
  const std::filesystem::path was = std::filesystem::current_path();
  std::filesystem::current_path(folder.path);
  m.memory.save_tables("here");
  std::filesystem::current_path(was);
  CHECK(machine("auto", folder.path / "here").log.empty());
  CHECK(folder.files() == 2);
}

TEST_CASE("many threads save tables under one name") {
  const temporary_folder folder;
  machine m("auto");
  (void)train(m, 1);
  const std::string path = folder.path / "tables";
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      for (int k = 0; k < 5; ++k) {
        m.memory.save_tables(path);
      }
    });
  }
  for (std::thread& t : threads) {
    t.join();
  }
  CHECK(machine("auto", path).log.empty());
  CHECK(folder.files() == 1);
}

}  // namespace tables_test
