#include "cuda/fake_gpu.hpp"
#include <deepum/core/block.hpp>
#include <deepum/cuda/completion/gpu_clock.hpp>
#include <deepum/cuda/completion/launch_watch.hpp>
#include <deepum/cuda/device.hpp>
#include <deepum/cuda/faults/fault_intake.hpp>

#include <doctest/doctest.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

namespace fault_intake_test {

using namespace deepum_test;
using deepum::block_id;
using deepum::nanoseconds;
using deepum::cuda::fault_intake;
using deepum::cuda::fault_sample;

/// What the feed of a test tells.
struct script {
  std::vector<fault_sample> told{};
  bool alive = true;
  std::uint64_t lost = 0;
};

/// Tells the faults of the fake GPU, and those of the script.
class scripted_feed : public deepum::cuda::fault_feed {
 public:
  explicit scripted_feed(std::shared_ptr<script> s) : script_(std::move(s)) {
    fake_cuda::set_fault_sink([this](const void* p, deepum::access mode, nanoseconds at) {
      const std::lock_guard lock(mutex_);
      of_gpu_.push_back({reinterpret_cast<std::uintptr_t>(p), mode, at});
    });
  }
  ~scripted_feed() override { fake_cuda::set_fault_sink({}); }
  [[nodiscard]] std::string name() const override { return "script"; }
  void take(std::vector<fault_sample>& out) override {
    const std::lock_guard lock(mutex_);
    for (auto* from : {&of_gpu_, &script_->told}) {
      out.insert(out.end(), from->begin(), from->end());
      from->clear();
    }
  }
  [[nodiscard]] bool alive() const override { return script_->alive; }
  [[nodiscard]] std::uint64_t lost() const override { return script_->lost; }

 private:
  std::shared_ptr<script> script_;
  std::mutex mutex_;
  std::vector<fault_sample> of_gpu_{};
};

/// A managed range of four blocks, and its faults.
struct machine {
  explicit machine(bool with_feed = true)
      : device(0, {.faults = deepum::cuda::fault_source::none}, maker(with_feed, feed)) {
    void* p = nullptr;
    REQUIRE(cudaMallocManaged(&p, 4 * deepum::block_size.count, cudaMemAttachGlobal) == cudaSuccess);
    base = static_cast<std::byte*>(p);
    watch = std::make_unique<deepum::cuda::launch_watch>(device);
    intake = std::make_unique<fault_intake>(device, *watch, base, deepum::block_size * 4);
  }
  ~machine() {
    intake.reset();
    watch.reset();
    (void)cudaFree(base);
  }
  machine(const machine&) = delete;
  machine& operator=(const machine&) = delete;

  static deepum::cuda::fault_feed_maker maker(bool with_feed, const std::shared_ptr<script>& feed) {
    if (!with_feed) {
      return {};
    }
    return [feed](std::byte*, deepum::bytes) { return std::make_unique<scripted_feed>(feed); };
  }
  void tell(std::int64_t offset, nanoseconds at) const {
    feed->told.push_back(
        {reinterpret_cast<std::uintptr_t>(base) + static_cast<std::uintptr_t>(offset), deepum::access::read, at});
  }

  fake_gpu gpu{};
  std::shared_ptr<script> feed = std::make_shared<script>();
  deepum::cuda::device device;
  std::byte* base = nullptr;
  std::unique_ptr<deepum::cuda::launch_watch> watch{};
  std::unique_ptr<fault_intake> intake{};
};

TEST_CASE("faults of the range are told as blocks, in order; others are not told") {
  const machine m;
  CHECK(m.intake->name() == "script");
  CHECK(m.intake->alive());
  const nanoseconds now = deepum::cuda::gpu_clock::host_now();
  const auto block = static_cast<std::int64_t>(deepum::block_size.count);
  m.tell(3 * block + 5, now);
  m.tell(-1, now);
  m.tell(4 * block, now);
  m.tell(block - 1, now);
  const auto faults = m.intake->take(false, true, now);
  REQUIRE(faults.size() == 2);
  CHECK(faults[0].block == block_id{3});
  CHECK(faults[1].block == block_id{0});
  CHECK(faults[0].certain);
  CHECK(m.intake->take(false, true, now).empty());
}

TEST_CASE("while launches are in flight a fault waits that came after their ends were looked for") {
  const machine m;
  const nanoseconds looked = deepum::cuda::gpu_clock::host_now();
  m.tell(0, looked - std::chrono::seconds(1));
  m.tell(1, looked + std::chrono::seconds(1));
  CHECK(m.intake->take(true, true, looked).size() == 1);
  CHECK(m.intake->take(true, true, looked).empty());
  CHECK(m.intake->take(true, true, looked + std::chrono::seconds(2)).size() == 1);
}

TEST_CASE("launches are timed for a while after a fault, and for longer where faults recur after that") {
  const machine m;
  const auto timed = [&] {
    int n = 0;
    while (m.intake->time_launches()) {
      ++n;
    }
    return n;
  };
  const nanoseconds now = deepum::cuda::gpu_clock::host_now();
  const int at_first = timed();
  CHECK(at_first > 0);
  m.tell(0, now);
  (void)m.intake->take(false, true, now);
  CHECK(timed() == 4 * at_first);
  m.tell(0, now);
  (void)m.intake->take(false, true, now);
  (void)m.intake->time_launches();
  m.tell(0, now);
  (void)m.intake->take(false, true, now);  // it recurs before that
  CHECK(timed() == 16 * at_first);
}

TEST_CASE("a feed that dies or loses faults says so") {
  const machine m;
  m.feed->alive = false;
  m.feed->lost = 3;
  CHECK(m.intake->take(false, true, {}).empty());
  CHECK_FALSE(m.intake->alive());
  CHECK(m.intake->lost() == 3);
}
TEST_CASE("without a feed no fault is told") {
  const machine m(false);
  CHECK(m.intake->name() == "none");
  CHECK_FALSE(m.intake->alive());
  m.tell(0, {});
  CHECK(m.intake->take(false, true, {}).empty());
}

}  // namespace fault_intake_test
