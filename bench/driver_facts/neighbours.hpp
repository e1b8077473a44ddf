#pragma once

#include "absl/strings/str_cat.h"
#include "gpu/library/hand_memory.hpp"
#include "mapping.hpp"
#include "probe.hpp"
#include "report.hpp"
#include <deepum/cuda/check.hpp>
#include <deepum/cuda/virtual_memory.hpp>
#include <deepum/error.hpp>
#include <deepum/units.hpp>

#include <cuda.h>
#include <cuda_runtime_api.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

// What a second GPU beside this one is good for: its link to the host, and its memory. At most 1 GiB on each device.
namespace deepum::driver_facts {

/// Makes a device the calling thread's, for as long as it lives.
class on_device {
 public:
  explicit on_device(int ordinal) {
    cuda::check(cudaGetDevice(&before_), "cudaGetDevice");
    cuda::check(cudaSetDevice(ordinal), "cudaSetDevice");
  }
  ~on_device() { (void)cuda::succeeded(cudaSetDevice(before_)); }
  on_device(const on_device&) = delete;
  on_device& operator=(const on_device&) = delete;

 private:
  int before_ = 0;
};

/// The first device beside this one whose memory it can use, and the other way around.
/// @errors  `status::unsupported` where there is none.
[[nodiscard]] inline int find_neighbour(int ordinal) {
  int count = 0;
  cuda::check(cudaGetDeviceCount(&count), "cudaGetDeviceCount");
  for (int other = 0; other != count; ++other) {
    int there = 0;
    int back = 0;
    if (other != ordinal) {
      cuda::check(cudaDeviceCanAccessPeer(&there, ordinal, other), "cudaDeviceCanAccessPeer");
      cuda::check(cudaDeviceCanAccessPeer(&back, other, ordinal), "cudaDeviceCanAccessPeer");
    }
    if (there != 0 && back != 0) {
      return other;
    }
  }
  throw error(status::unsupported, "there is no second GPU with peer access");
}

/// A piece of memory, of the host or a device, as a copy needs it.
class place {
 public:
  /// @param ordinal  Negative: pinned memory of the host.
  place(int ordinal, bytes size) {
    if (ordinal < 0) {
      pool_.emplace(memory_pool::kind::pinned, size);
      std::memset(pool_->base(), 1, size.count);
    } else {
      const on_device here(ordinal);
      pool_.emplace(memory_pool::kind::device, size);
    }
  }
  [[nodiscard]] std::byte* base() const { return pool_->base(); }

 private:
  std::optional<memory_pool> pool_{};
};

/// Copies of pieces one behind the other by a stream of a device, over and over, until it is stopped.
class traffic {
 public:
  static constexpr bytes piece = 16_MiB;

  /// @param by        The device of the stream.
  /// @param from, to  Devices, or negative: the host.
  /// @param through   Not negative: a device in the memory of which two pieces are staged, in turn.
  traffic(int by, int from, int to, const std::atomic<bool>& go, int through = -1)
      : from_(from, piece),
        to_(to, piece),
        thread_(by, nullptr, go, [this, through](cudaStream_t q) { work(through, q); }) {}
  ~traffic() { stop_ = true; }
  traffic(const traffic&) = delete;
  traffic& operator=(const traffic&) = delete;

  /// Ends it. Once.
  [[nodiscard]] double gigabytes_per_second() {
    stop_ = true;
    const double seconds = thread_.seconds();
    return driver_facts::gigabytes_per_second(piece * done_, seconds);
  }

 private:
  void work(int through, cudaStream_t q) {
    std::vector<std::unique_ptr<place>> staged;
    std::vector<std::unique_ptr<event>> filled;
    std::vector<std::unique_ptr<event>> emptied;
    std::optional<stream> second;
    for (int i = 0; through >= 0 && i != 2; ++i) {
      staged.push_back(std::make_unique<place>(through, piece));
      filled.push_back(std::make_unique<event>(cudaEventDisableTiming));
      emptied.push_back(std::make_unique<event>(cudaEventDisableTiming));
    }
    if (through >= 0) {
      second.emplace();
    }
    const event paced(cudaEventDisableTiming);
    for (; !stop_.load() || done_ == 0; ++done_) {
      if (through < 0) {
        copy(to_.base(), from_.base(), q);
      } else {
        const std::size_t turn = done_ % 2;
        cuda::check(cudaStreamWaitEvent(q, emptied[turn]->get(), 0), "cudaStreamWaitEvent");
        copy(staged[turn]->base(), from_.base(), q);
        filled[turn]->record(q);
        cuda::check(cudaStreamWaitEvent(second->get(), filled[turn]->get(), 0), "cudaStreamWaitEvent");
        copy(to_.base(), staged[turn]->base(), second->get());
        emptied[turn]->record(*second);
      }
      if (done_ % 4 == 3) {  // not without end ahead
        paced.record(through < 0 ? q : second->get());
        paced.wait();
      }
    }
    if (second) {
      second->wait();
    }
    cuda::check(cudaStreamSynchronize(q), "cudaStreamSynchronize");
  }
  static void copy(std::byte* to, const std::byte* from, cudaStream_t q) {
    cuda::check(cudaMemcpyAsync(to, from, piece.count, cudaMemcpyDefault, q), "cudaMemcpyAsync");
  }

  place from_;
  place to_;
  std::atomic<bool> stop_{false};
  std::uint64_t done_ = 0;
  worker thread_;  // uses the others
};

/// One stream of copies of a measurement.
struct flow {
  int by = 0;
  int from = -1;
  int to = 0;
  int through = -1;
};

/// Rates of several flows at once.
[[nodiscard]] inline std::vector<double> rates_of(const std::vector<flow>& flows) {
  std::atomic<bool> go{false};
  std::vector<std::unique_ptr<traffic>> all;
  for (const flow& f : flows) {
    all.push_back(std::make_unique<traffic>(f.by, f.from, f.to, go, f.through));
  }
  go = true;
  std::this_thread::sleep_for(std::chrono::milliseconds(60));
  std::vector<double> rates;
  for (auto& t : all) {
    rates.push_back(t->gigabytes_per_second());
  }
  return rates;
}

/// What a neighbour costs before it is used: memory, and whether it needs a context.
inline void neighbour_context(probe& p, int other) {
  {
    // So far nothing has made a context of it for this program.
    const cuda::virtual_memory memory(other);
    cuda::virtual_memory::handle chunk = 0;
    const bool made = memory.create(false, um_block, chunk) == CUDA_SUCCESS;
    p.out().add("a chunk is made there without a context of it (1: yes)", "", made ? 1 : 0);
    if (made) {
      memory.release(chunk);
    }
  }
  const on_device there(other);
  const stopwatch elapsed;
  cuda::check(cudaFree(nullptr), "cudaFree");
  p.out().add("its context", "ms", 1e3 * elapsed());
  std::size_t free = 0;
  std::size_t total = 0;
  cuda::check(cudaMemGetInfo(&free, &total), "cudaMemGetInfo");
  p.out().add("memory of it that is not free with a context there, of all processes", "MiB",
              mebibytes(bytes{total - free}));
}

/// The neighbour's link to the host, for copies that end or begin here.
inline void neighbour_links(probe& p, int other) {
  const int here = p.ordinal();
  constexpr int host = -1;
  struct row {
    const char* name;
    std::vector<flow> flows;
  };
  const flow in{here, host, here};
  const flow out{here, here, host};
  const flow in_by{other, host, here};
  const flow out_by{other, here, host};
  const flow in_staged{other, host, here, other};
  const flow out_staged{other, here, host, other};
  for (const row& r :
       {row{"in, by this device", {in}}, row{"in, by a stream of the neighbour", {in_by}},
        row{"in, staged at the neighbour", {in_staged}}, row{"out, by a stream of the neighbour", {out_by}},
        row{"out, staged at the neighbour", {out_staged}},
        row{"in, by this device and by a stream of the neighbour", {in, in_by}},
        row{"in, by this device and staged at the neighbour", {in, in_staged}},
        row{"out, by this device and by a stream of the neighbour", {out, out_by}},
        row{"out, by this device and staged at the neighbour", {out, out_staged}},
        row{"both ways, by this device and by a stream of the neighbour", {in, in_by, out, out_by}},
        row{"both ways, by this device and staged at the neighbour", {in, in_staged, out, out_staged}},
        row{"into each device from the host", {in, {other, host, other}}},
        row{"both ways between each device and the host", {in, out, {other, host, other}, {other, other, host}}},
        row{"from the neighbour", {{here, other, here}}}, row{"to the neighbour", {{here, here, other}}},
        row{"between the devices, both ways", {{here, other, here}, {here, here, other}}}}) {
    for (int i = 0; i != p.repeats(); ++i) {
      double sum = 0;
      for (const double rate : rates_of(r.flows)) {
        sum += rate;
      }
      p.out().add(absl::StrCat(r.name, r.flows.size() > 1 ? ", together" : ""), "GB/s", sum);
    }
  }
}

/// What the memory of the host gives: all links both ways, beside threads that copy.
inline void host_memory_beside_links(probe& p, int other) {
  constexpr std::size_t threads = 8;
  constexpr bytes size = 64_MiB;
  const int here = p.ordinal();
  constexpr int host = -1;
  for (const bool beside : {false, true}) {
    for (int i = 0; i != p.repeats(); ++i) {
      std::atomic<bool> stop{false};
      std::atomic<std::uint64_t> copied{0};
      std::vector<std::thread> copiers;
      for (std::size_t t = 0; beside && t != threads; ++t) {
        copiers.emplace_back([&] {
          std::vector<std::byte> a(size.count, std::byte{1});
          std::vector<std::byte> b(size.count);
          while (!stop) {
            std::memcpy(b.data(), a.data(), size.count);
            copied += size.count;
          }
        });
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(beside ? 100 : 0));
      const stopwatch elapsed;
      copied = 0;
      double sum = 0;
      for (const double rate :
           rates_of({{here, host, here}, {here, here, host}, {other, host, other}, {other, other, host}})) {
        sum += rate;
      }
      const double seconds = elapsed();
      stop = true;
      for (std::thread& t : copiers) {
        t.join();
      }
      const std::string name =
          beside ? "two links both ways beside eight threads that copy" : "two links both ways alone";
      p.out().add(name, "GB/s", sum);
      if (beside) {
        p.out().add("the threads beside them, read and written", "GB/s",
                    2 * gigabytes_per_second(bytes{copied.load()}, seconds));
      }
    }
  }
}

/// Mapping a chunk while copies between devices, and through the neighbour, go on.
inline void mapping_beside_peers(probe& p, int other) {
  const int here = p.ordinal();
  constexpr int host = -1;
  struct row {
    const char* name;
    flow beside;
  };
  for (const bytes chunk : {2_MiB, 16_MiB, 32_MiB}) {
    for (const row& r :
         {row{"copies from the neighbour", {here, other, here}}, row{"copies to the neighbour", {here, here, other}},
          row{"copies in by a stream of the neighbour", {other, host, here}},
          row{"copies out by a stream of the neighbour", {other, here, host}}}) {
      for (int i = 0; i != p.repeats(); ++i) {
        mapped_chunks moved(here, chunk);
        const std::atomic<bool> go{true};
        traffic beside(r.beside.by, r.beside.from, r.beside.to, go);
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
        std::vector<double> unmapping(32);
        std::vector<double> allowing(32);
        for (std::size_t c = 0; c != unmapping.size(); ++c) {
          moved.move_one(unmapping[c], allowing[c]);
        }
        const std::string name = absl::StrCat(in_mib(chunk), " beside ", r.name);
        p.out().add(absl::StrCat(name, ": cuMemUnmap"), "us", quantile(unmapping, 0.5));
        p.out().add(absl::StrCat(name, ": cuMemSetAccess"), "us", quantile(allowing, 0.5));
        p.out().add(absl::StrCat(name, ": the copies"), "GB/s", beside.gigabytes_per_second());
      }
    }
  }
}

/// Kernels here that read and write memory of the neighbour in place, and what its own kernels notice.
inline void neighbour_in_place(probe& p, int other) {
  constexpr bytes size = 256_MiB;
  const place theirs(other, size);
  const place own(other, size);
  region remote{reinterpret_cast<word*>(theirs.base()), size.count / sizeof(word), 0};
  for (int i = 0; i != p.repeats(); ++i) {
    p.out().add("written in place", "GB/s", gigabytes_per_second(size, p.timed([&] { p.write(remote); })));
    p.out().add("read in place", "GB/s", gigabytes_per_second(size, p.timed([&] { p.read(remote); })));
    p.verify(remote, "writes in place", true);
    const auto at_home = [&](bool beside) {
      const on_device there(other);
      const stream q;
      if (beside) {
        const on_device back(p.ordinal());
        p.read(remote);
      }
      const stopwatch elapsed;
      probe::launch(q, 1056, 512, probe::kernels().fill, reinterpret_cast<word*>(own.base()), size.count / sizeof(word),
                    word{7});
      q.wait();
      return gigabytes_per_second(size, elapsed());
    };
    p.out().add("a kernel of the neighbour writes its own memory", "GB/s", at_home(false));
    p.out().add("the same while this device reads there", "GB/s", at_home(true));
    p.settle();
  }
}

/// Managed memory between the two devices, by prefetches. Nothing is filled.
inline void managed_between_devices(probe& p, int other) {
  constexpr bytes size = 256_MiB;
  area moved(size);
  region& r = moved.all();
  p.settle_in(r);
  p.write(r);
  p.settle();
  const auto to = [&](int ordinal) {
    cuda::check(cuda::api::prefetch(r.address(), size.count, {.on_host = false, .device = ordinal}, p.moves().get()),
                "cudaMemPrefetchAsync");
  };
  for (int i = 0; i != p.repeats(); ++i) {
    p.out().add("prefetched to the neighbour", "GB/s", gigabytes_per_second(size, p.timed([&] { to(other); })));
    p.out().add("prefetched back", "GB/s", gigabytes_per_second(size, p.timed([&] { to(p.ordinal()); })));
    p.verify(r, "prefetches between devices");
    p.settle_out(r);
    p.out().add("prefetched from the host to the neighbour", "GB/s",
                gigabytes_per_second(size, p.timed([&] { to(other); })));
    p.out().add("and on from there", "GB/s", gigabytes_per_second(size, p.timed([&] { to(p.ordinal()); })));
    p.verify(r, "prefetches by way of the neighbour");
  }
}

/// All of that. @errors  `status::unsupported` where there is no neighbour.
inline void neighbours(probe& p) {
  const int other = find_neighbour(p.ordinal());
  neighbour_context(p, other);
  const auto allow = [](int from, int to) {
    const on_device here(from);
    const cudaError_t done = cudaDeviceEnablePeerAccess(to, 0);
    if (done == cudaErrorPeerAccessAlreadyEnabled) {
      (void)cudaGetLastError();
    } else {
      cuda::check(done, "cudaDeviceEnablePeerAccess");
    }
  };
  allow(p.ordinal(), other);
  allow(other, p.ordinal());
  neighbour_links(p, other);
  host_memory_beside_links(p, other);
  mapping_beside_peers(p, other);
  neighbour_in_place(p, other);
  managed_between_devices(p, other);
}

}  // namespace deepum::driver_facts
