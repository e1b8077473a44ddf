#include "cuda/fake_driver_feed.hpp"
#include "cuda/fake_gpu.hpp"
#include <deepum/cuda.hpp>
#include <deepum/cuda/faults/driver_fault_feed.hpp>
#include <deepum/cuda/faults/find_fault_feed.hpp>
#include <deepum/error.hpp>

#include <doctest/doctest.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace fault_feed_test {

using namespace deepum_test;
using namespace deepum::literals;
using deepum::access;  // not the one of POSIX
using deepum::nanoseconds;
using deepum::status;
using deepum::cuda::device_options;
using deepum::cuda::fault_feed;
using deepum::cuda::fault_feed_maker;
using deepum::cuda::fault_sample;
using deepum::cuda::fault_source;
using deepum::cuda::find_fault_feed;

/// A feed that tells what the test gave it, every time.
struct scripted_feed final : fault_feed {
  [[nodiscard]] std::string name() const override { return "scripted"; }
  void take(std::vector<fault_sample>& out) override { out.insert(out.end(), faults.begin(), faults.end()); }
  [[nodiscard]] bool alive() const override { return true; }
  [[nodiscard]] std::uint64_t lost() const override { return 0; }
  std::vector<fault_sample> faults{};
};

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }
deepum::cuda::found_feed find(device_options options, bool works = true) {
  return find_fault_feed(deepum::cuda::device(0, options), nullptr, 4_MiB, [works](fault_feed&) { return works; });
}
deepum::cuda::found_feed find_own(fault_feed_maker maker, bool works = true) {
  return find_fault_feed(deepum::cuda::device(0, {}, std::move(maker)), nullptr, 4_MiB,
                         [works](fault_feed&) { return works; });
}

TEST_CASE("the environment chooses the source where the program does not") {
  using deepum::cuda::chosen_source;
  ::unsetenv("DEEPUM_FAULT_FEED");
  CHECK(chosen_source(fault_source::automatic) == fault_source::automatic);
  CHECK(chosen_source(fault_source::cupti) == fault_source::cupti);
  const std::vector<std::pair<const char*, fault_source>> names{{"auto", fault_source::automatic},
                                                                {"", fault_source::automatic},
                                                                {"driver", fault_source::driver},
                                                                {"cupti", fault_source::cupti},
                                                                {"none", fault_source::none}};
  for (const auto& [name, source] : names) {
    CAPTURE(std::string(name));
    const environment set("DEEPUM_FAULT_FEED", name);
    CHECK(chosen_source(fault_source::automatic) == source);
    CHECK(chosen_source(fault_source::driver) == fault_source::driver);
  }
  const environment wrong("DEEPUM_FAULT_FEED", "Driver");
  CHECK(chosen_source(fault_source::none) == fault_source::none);
  try {
    (void)chosen_source(fault_source::automatic);
    CHECK(false);
  } catch (const deepum::error& e) {
    CHECK(e.code() == status::invalid_argument);
    CHECK(contains(e.what(), "'Driver'; it may be auto, driver, cupti or none"));
  }
}

TEST_CASE("feeds are tried from the best to none, and the description says what was wrong with each") {
  const fake_gpu gpu;  // for which there is neither
  const auto nothing_works = [](fault_source source) {
    device_options o;
    o.faults = source;
    const auto found = find(o, false);
    CHECK_FALSE(found.feed);
    CHECK(contains(found.description, "page faults are not seen"));
    return found.description;
  };
  const std::string all = nothing_works(fault_source::automatic);
  const std::size_t driver = all.find("driver: ");
  const std::size_t cupti = all.find("; cupti: ");
  REQUIRE(driver != std::string::npos);
  REQUIRE(cupti != std::string::npos);
  CHECK(driver < cupti);
  const std::string only_driver = nothing_works(fault_source::driver);
  CHECK(contains(only_driver, "driver: "));
  CHECK_FALSE(contains(only_driver, "cupti"));
  const std::string only_cupti = nothing_works(fault_source::cupti);
  CHECK_FALSE(contains(only_cupti, "driver: "));
  CHECK(contains(only_cupti, "cupti: "));
  CHECK_FALSE(contains(nothing_works(fault_source::none), "("));
}

TEST_CASE("a feed of the program's own is taken if it works, and nothing else is tried if not") {
  const fake_gpu gpu;
  const fault_feed_maker scripted = [](std::byte*, deepum::bytes size) {
    CHECK(size == 4_MiB);
    return std::make_unique<scripted_feed>();
  };
  auto found = find_own(scripted);
  REQUIRE(found.feed);
  CHECK(found.description == "page faults are learned from: scripted");

  found = find_own(scripted, false);
  CHECK_FALSE(found.feed);
  CHECK(contains(found.description, "own: it tells of no fault"));
  CHECK_FALSE(contains(found.description, "driver"));

  CHECK_FALSE(find_own([](std::byte*, deepum::bytes) { return std::unique_ptr<fault_feed>(); }).feed);
  found = find_own([](std::byte*, deepum::bytes) -> std::unique_ptr<fault_feed> {
    throw deepum::error(status::unsupported, "not today");
  });
  CHECK_FALSE(found.feed);
  CHECK(contains(found.description, "own: not today"));
  CHECK_THROWS_AS((void)find_own([](std::byte*, deepum::bytes) -> std::unique_ptr<fault_feed> {
                    throw std::runtime_error("a bug");
                  }),
                  std::runtime_error);
}

// --- The driver's feed, on a fake of the driver. ---

struct driver_bench {
  driver_bench() : feed(base, 64_MiB, tools.system()) {}
  std::vector<fault_sample> take() {
    std::vector<fault_sample> out;
    feed.take(out);
    return out;
  }
  static inline std::byte* const base = reinterpret_cast<std::byte*>(std::uintptr_t{1} << 40);
  [[nodiscard]] static std::uint64_t at(std::uint64_t offset) { return (std::uint64_t{1} << 40) + offset; }

  fake_uvm_tools tools;
  deepum::cuda::driver_fault_feed feed;
};

TEST_CASE(
    "the driver's faults are told in order, with how and when; those elsewhere and prefetch instructions are not") {
  driver_bench b;
  CHECK(b.feed.name() == "driver");
  b.tools.push_fault(b.at(0), DEEPUM_UVM_READ, 100);
  b.tools.push_fault(b.at((2_MiB).count), DEEPUM_UVM_WRITE, 200);
  b.tools.push_fault(b.at((4_MiB).count), DEEPUM_UVM_ATOMIC, 300);
  b.tools.push_fault(b.at((6_MiB).count), DEEPUM_UVM_PREFETCH_ACCESS, 400);
  b.tools.push_fault(b.at((64_MiB).count), DEEPUM_UVM_READ, 500);
  b.tools.push_fault(b.at(0) - 4096, DEEPUM_UVM_READ, 600);
  b.tools.push_migration(b.at(0), 4096);
  const auto out = b.take();
  REQUIRE(out.size() == 3);
  const access modes[]{access::read, access::update, access::update};
  for (std::size_t i = 0; i < 3; ++i) {
    CHECK(out[i].address == b.at(i * (2_MiB).count));
    CHECK(out[i].mode == modes[i]);
    CHECK(out[i].at == nanoseconds{static_cast<std::int64_t>(i + 1) * 100});
  }
  CHECK(b.take().empty());
  CHECK(b.feed.lost() == 0);
  CHECK(b.feed.alive());
}

TEST_CASE("more faults than one call of the reader hands over are all told") {
  driver_bench b;
  for (std::uint32_t i = 0; i < 5000; ++i) {
    b.tools.push_fault(b.at(std::uint64_t{i % 32} * (2_MiB).count), DEEPUM_UVM_READ, i + 1, i);
  }
  const auto out = b.take();
  REQUIRE(out.size() == 5000);
  CHECK(out.back().at == nanoseconds{5000});
  CHECK(b.feed.lost() == 0);
}

TEST_CASE("faults that the driver had no room for are counted as lost") {
  driver_bench b;
  b.tools.fail_polls(EIO);  // nobody empties the queue
  REQUIRE(comes([&] { return b.feed.counts().thread_alive == 0; }));
  constexpr std::uint32_t pushed = 70'000;
  for (std::uint32_t i = 0; i < pushed; ++i) {
    b.tools.push_fault(b.at(std::uint64_t{i % 32} * (2_MiB).count), DEEPUM_UVM_READ, i + 1, i);
  }
  const auto out = b.take();
  CHECK(out.size() < pushed);
  CHECK(b.feed.lost() == pushed - out.size());
}

TEST_CASE("without its thread the feed goes on") {
  driver_bench b;
  b.tools.fail_polls(EIO);
  REQUIRE(comes([&] { return b.feed.counts().thread_alive == 0; }));
  b.tools.push_fault(b.at(0), DEEPUM_UVM_READ, 100);
  CHECK(b.take().size() == 1);
  CHECK(b.feed.alive());
}

TEST_CASE("a driver that refuses is unsupported, with its number and words") {
  fake_uvm_tools tools;
  tools.fail_open(EACCES);
  try {
    const deepum::cuda::driver_fault_feed feed(driver_bench::base, 4_MiB, tools.system());
    CHECK(false);
  } catch (const deepum::error& e) {
    CHECK(e.code() == status::unsupported);
    CHECK(e.native_code() == EACCES);
    CHECK(std::string(e.what()).size() > 20);
  }
}

// --- A feed and managed memory. ---

TEST_CASE("memory takes the driver's feed when it tells of the faults that are made for it") {
  const fake_gpu gpu;
  const fake_driver_feed driver;
  deepum::cuda::device device(0, {}, driver.maker());
  const deepum::cuda::managed_memory memory(device, 8_MiB);
  CHECK(memory.sees_faults());
  CHECK(memory.fault_feed() == "driver");
  CHECK(memory.description() == "page faults are learned from: driver");
  CHECK(memory.lost_faults() == 0);
}

TEST_CASE("a feed that opens and tells nothing is not taken") {
  const fake_gpu gpu;
  const fake_driver_feed driver;
  fake_cuda::set_fault_sink({});
  deepum::cuda::device device(0, {}, driver.maker());
  const deepum::cuda::managed_memory memory(device, 8_MiB);
  CHECK_FALSE(memory.sees_faults());
  CHECK(memory.fault_feed() == "none");
  CHECK(contains(memory.description(), "own: it tells of no fault"));
}

TEST_CASE("a feed that tells of the faults of others alone is not taken") {
  const fake_gpu gpu;
  deepum::cuda::device device(0, {}, [](std::byte* base, deepum::bytes size) {
    auto feed = std::make_unique<scripted_feed>();
    for (const std::uintptr_t offset : {~std::uintptr_t{0}, size.count}) {
      feed->faults.push_back({reinterpret_cast<std::uintptr_t>(base) + offset, access::read, nanoseconds{5}});
    }
    return feed;
  });
  const deepum::cuda::managed_memory memory(device, 8_MiB);
  CHECK_FALSE(memory.sees_faults());
}

TEST_CASE("the calibration works whatever call of it fails, or does without the feed") {
  for (const char* name : {"cudaStreamCreateWithFlags", "cudaEventCreateWithFlags", "cudaEventRecord",
                           "cudaMemsetAsync", "cudaStreamSynchronize", "cudaEventElapsedTime"}) {
    CAPTURE(std::string(name));
    const fake_gpu gpu;
    fake_driver_feed driver;
    const auto maker = [&](std::byte* base, deepum::bytes size) {  // called when the rest has been set up
      if (std::string(name) == "cudaStreamSynchronize") {
        fake_cuda::fail_call(name, 1, cudaErrorInvalidValue);  // all: then it cannot be known when the fault is over
      } else {
        fake_cuda::fail_all_calls(name, cudaErrorInvalidValue);
      }
      return driver.open(base, size);
    };
    deepum::cuda::device device(0, {}, maker);
    const deepum::cuda::managed_memory memory(device, 8_MiB);
    CHECK(memory.sees_faults() == (memory.fault_feed() == "driver"));
    CHECK(cudaPeekAtLastError() == cudaSuccess);
  }
}

}  // namespace fault_feed_test
