// Temporary storage of Thrust and CUB, on the fake GPU: what their launches declare, and what becomes of storage that
// is too small. Their algorithms need nvcc and a GPU (tests/nvcc, tests/gpu).

#include "interop/recorded_arena.hpp"
#include <deepum/interop/cub.hpp>
#include <deepum/interop/temporary_storage.hpp>
#include <deepum/interop/thrust.hpp>

#include <doctest/doctest.h>

#include <thrust/memory.h>

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <initializer_list>
#include <limits>
#include <new>
#include <optional>
#include <set>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace thrust_test {

using namespace deepum_test;
using namespace deepum::literals;
using deepum::access;
using deepum::bytes;

/// CUDA's pool, which the fake runtime does not have.
struct pool_state {
  std::set<void*> live{};
  std::vector<std::size_t> sizes{};
  std::set<cudaStream_t> streams{};
  bool empty = false;
};
pool_state pool;

}  // namespace thrust_test

extern "C" {
cudaError_t cudaMallocAsync(void** p, std::size_t size, cudaStream_t stream) {
  if (thrust_test::pool.empty) {
    return cudaErrorMemoryAllocation;
  }
  *p = std::malloc(size);
  thrust_test::pool.live.insert(*p);
  thrust_test::pool.sizes.push_back(size);
  thrust_test::pool.streams.insert(stream);
  return cudaSuccess;
}
cudaError_t cudaFreeAsync(void* p, cudaStream_t stream) {
  thrust_test::pool.streams.insert(stream);
  CHECK(thrust_test::pool.live.erase(p) == 1);
  std::free(p);
  return cudaSuccess;
}
}

namespace thrust_test {

TEST_CASE("temporary storage is cut from its buffer, and used again when it is given back") {
  pool = {};
  std::vector<std::byte> memory(2048);
  std::byte* const base = memory.data();
  const auto offset = [&](const char* p) { return reinterpret_cast<const std::byte*>(p) - base; };
  deepum::interop::temporary_storage storage(base, bytes{2048}, nullptr);

  char* const a = storage.allocate(1);
  char* const b = storage.allocate(300);
  char* const c = storage.allocate(256);
  CHECK(offset(a) == 0);
  CHECK(offset(b) == 256);
  CHECK(offset(c) == 768);
  storage.deallocate(c, 256);
  CHECK(storage.allocate(512) == c);  // the last one is cut back
  storage.deallocate(a, 1);           // one in the middle is not
  char* const d = storage.allocate(256);
  CHECK(offset(d) == 1280);
  storage.deallocate(b, 300);
  storage.deallocate(c, 512);
  storage.deallocate(d, 256);
  CHECK(offset(storage.allocate(2048)) == 0);  // all of it was given back
  CHECK(pool.sizes.empty());
  CHECK(storage.needed() == bytes{2048});
}

TEST_CASE("what does not fit into the buffer comes from the pool, in the order of the stream") {
  pool = {};
  std::vector<std::byte> memory(1024);
  auto* const stream = reinterpret_cast<cudaStream_t>(&memory);
  deepum::interop::temporary_storage storage(memory.data(), bytes{1024}, stream);
  char* const a = storage.allocate(512);
  char* const b = storage.allocate(1000);
  CHECK(pool.live.contains(b));
  char* const c = storage.allocate(512);
  CHECK(c == a + 512);
  CHECK(storage.needed() == bytes{2048});
  storage.deallocate(b, 1000);
  CHECK(pool.live.empty());
  CHECK(pool.streams == std::set<cudaStream_t>{stream});
  storage.deallocate(a, 512);
  storage.deallocate(c, 512);
  CHECK(storage.allocate(1024) == a);
  CHECK(storage.needed() == bytes{2048});

  for (const std::ptrdiff_t n : {std::ptrdiff_t{-1}, std::numeric_limits<std::ptrdiff_t>::max()}) {
    CHECK_THROWS_AS((void)storage.allocate(n), deepum::error);  // a few bytes would do, rounded up
  }
  pool.empty = true;
  CHECK_THROWS_AS((void)storage.allocate(1), deepum::error);
  CHECK(storage.needed() == bytes{2048});
}

template <class Memory>
struct machine : recorded_arena<Memory> {
  machine() { pool = {}; }
  float* x = this->template blocks<float>(2);
};

TEST_CASE_TEMPLATE("Thrust's temporary storage grows to what a launch was short of", Memory,
                   deepum::cuda::managed_memory, deepum::cuda::paged_memory) {
  machine<Memory> m;
  deepum::interop::thrust_calls on{m.memory, m.stream};
  const void* found = nullptr;
  const auto algorithm = [&](auto& policy) {  // what Thrust does for its algorithms
    CHECK(thrust::cuda_cub::stream(policy) == m.stream.native().native());
    const auto buffer = thrust::get_temporary_buffer<char>(policy, (3_MiB).count);
    found = buffer.first.get();
    thrust::return_temporary_buffer(policy, buffer.first, static_cast<std::ptrdiff_t>((3_MiB).count));
  };
  auto id = on.call("sort", {deepum::updates(m.x, 16)}, algorithm);
  CHECK(m.declared(id) == m.of(access::update, m.x, 64));
  CHECK(!m.memory.contains(found));
  CHECK(pool.sizes.size() == 1);
  CHECK(pool.live.empty());

  id = on.call("sort", {deepum::updates(m.x, 16)}, algorithm);
  CHECK(m.memory.contains(found));
  CHECK(pool.sizes.size() == 1);
  CHECK(on.storage_size() == 3_MiB);
  // Its second block is not covered as a whole.
  CHECK(m.declared(id) == m.of(access::update, m.x, 64) + m.of(access::overwrite, found, (2_MiB).count) +
                              m.of(access::update, static_cast<const char*>(found) + (2_MiB).count, 1));
  m.stream.synchronize();
}

TEST_CASE("an algorithm that throws leaves the stream and its storage usable") {
  machine<deepum::cuda::managed_memory> m;
  deepum::interop::thrust_calls on{m.memory, m.stream, 2_MiB};
  CHECK_THROWS_AS(on.call("fails", {deepum::updates(m.x, 16)}, [](auto&) { throw std::runtime_error("x"); }),
                  std::runtime_error);
  const auto id = on.call("anything", {}, [](auto&) {});
  CHECK(m.declared(id) == "unknown, ");
  m.stream.synchronize();
}

TEST_CASE_TEMPLATE("CUB's two calls are one launch, with the storage that the first one asks for", Memory,
                   deepum::cuda::managed_memory, deepum::cuda::paged_memory) {
  machine<Memory> m;
  deepum::interop::cub_calls on{m.memory, m.stream};
  std::vector<std::pair<void*, std::size_t>> seen;
  std::size_t asked = (2_MiB).count;
  const auto both = [&](void* storage, std::size_t& size, cudaStream_t q) {
    CHECK(q == m.stream.native().native());
    if (storage == nullptr) {
      size = asked;
    }
    seen.emplace_back(storage, size);
    return cudaSuccess;
  };
  auto id = on.call("sum", {deepum::reads(m.x, 16)}, both);
  REQUIRE(seen.size() == 2);
  CHECK(seen[0].first == nullptr);
  CHECK(m.memory.contains(seen[1].first));
  CHECK(seen[1].second == asked);
  CHECK(m.declared(id) == m.of(access::read, m.x, 64) + m.of(access::overwrite, seen[1].first, asked));

  asked = 0;  // then CUB has to be given some address all the same
  deepum::interop::cub_calls fresh{m.memory, m.stream};
  fresh.call("copy", {deepum::reads(m.x, 16)}, both);
  CHECK(seen[3].first != nullptr);
  asked = (4_MiB).count;
  on.call("sort", {deepum::reads(m.x, 16)}, both);
  CHECK(on.storage_size() == 4_MiB);
  CHECK(on.call("anything", {}, both).valid());
  m.stream.synchronize();
}

TEST_CASE("CUB's errors are errors, of either call") {
  machine<deepum::cuda::managed_memory> m;
  deepum::interop::cub_calls on{m.memory, m.stream};
  for (const bool in_first : {false, true}) {
    CHECK_THROWS_AS(on.call("fails", {deepum::reads(m.x, 16)},
                            [&](void* storage, std::size_t& size, cudaStream_t) {
                              size = 8;
                              return (storage == nullptr) == in_first ? cudaErrorInvalidValue : cudaSuccess;
                            }),
                    deepum::error);
  }
}

/// Writes its storage, as an algorithm does.
void fill_storage(std::byte* storage, std::size_t n, int value) {
  device_touch(storage, n, access::overwrite);
  std::memset(storage, value, n);
}

/// A graph with CUB calls whose storage grew while and after it was recorded.
template <class Memory>
struct grown_after_recording : machine<Memory> {
  void call(std::size_t size) {
    cub->call("algorithm", {deepum::reads(this->x, 16)}, [&](void* storage, std::size_t& n, cudaStream_t q) {
      n = size;
      if (storage != nullptr) {
        enqueue(q, fill_storage, static_cast<std::byte*>(storage), size, 0xEE);
      }
      return cudaSuccess;
    });
  }
  /// Takes all the memory that is left in pieces of 2 MiB, writes it, and launches the graph.
  /// @returns  Pieces that the graph has written into.
  template <class Graph>
  int pieces_that_it_writes(const Graph& graph) {
    constexpr std::size_t piece = (2_MiB).count;
    std::vector<char*> pieces;
    for (int i = 0; i < 24; ++i) {
      pieces.push_back(this->memory.template allocate<char>(piece));
      this->stream.memset(pieces.back(), i, 2_MiB);
    }
    this->stream.launch(graph);
    this->stream.synchronize();
    int written = 0;
    for (int i = 0; i < 24; ++i) {
      const auto view = this->memory.host_read(pieces[static_cast<std::size_t>(i)], piece);
      written += std::count(view.begin(), view.end(), static_cast<char>(i)) != static_cast<std::ptrdiff_t>(piece);
      this->memory.deallocate(pieces[static_cast<std::size_t>(i)]);
    }
    return written;
  }
  std::optional<deepum::interop::cub_calls<Memory>> cub{std::in_place, this->memory, this->stream};
  std::vector<deepum::array<char, Memory>> spacers{};
};

TEST_CASE_TEMPLATE("storage that grows stays for the graphs that write it, and goes with them", Memory,
                   deepum::cuda::managed_memory, deepum::cuda::paged_memory) {
  grown_after_recording<Memory> m;
  const bytes before = m.memory.footprint().allocated;
  {
    auto graph = m.stream.record_graph("two calls", [&] {
      m.call((2_MiB).count);
      m.spacers.push_back(m.memory.template make_array<char>((2_MiB).count));  // so that it does not grow in place
      m.call((4_MiB).count);
      m.call((4_MiB).count);
    });
    m.spacers.push_back(m.memory.template make_array<char>((2_MiB).count));
    CHECK(m.pieces_that_it_writes(graph) == 0);
    m.call((6_MiB).count);
    CHECK(m.pieces_that_it_writes(graph) == 0);
    m.cub.reset();
    CHECK(m.pieces_that_it_writes(graph) == 0);
    CHECK(m.memory.footprint().allocated == before + 10_MiB);  // 2 + 4 of the graph, the spacers
  }
  m.spacers.clear();
  CHECK(m.memory.footprint().allocated == before);
}

TEST_CASE("a recording that fails keeps nothing") {
  grown_after_recording<deepum::cuda::managed_memory> m;
  const bytes before = m.memory.footprint().allocated;
  CHECK_THROWS_AS((void)m.stream.record_graph("fails",
                                              [&] {
                                                m.call((2_MiB).count);
                                                throw std::runtime_error("x");
                                              }),
                  std::runtime_error);
  m.cub.reset();
  CHECK(m.memory.footprint().allocated == before);
}

TEST_CASE("storage that a capture of the program's own has taken in stays until the calls end") {
  grown_after_recording<deepum::cuda::managed_memory> m;
  const cudaStream_t q = m.stream.native().native();
  REQUIRE(cudaStreamBeginCapture(q, cudaStreamCaptureModeThreadLocal) == cudaSuccess);
  m.call((2_MiB).count);
  cudaGraph_t captured = nullptr;
  REQUIRE(cudaStreamEndCapture(q, &captured) == cudaSuccess);
  m.spacers.push_back(m.memory.make_array<char>((2_MiB).count));
  m.call((4_MiB).count);
  const bytes with_both = m.memory.footprint().allocated;
  {
    const deepum::cuda::graph graph(captured);
    char* const other = m.memory.allocate<char>((2_MiB).count);
    m.stream.memset(other, 1, 2_MiB);
    m.stream.call("graph", {}, [&](cudaStream_t s) { CHECK(cudaGraphLaunch(graph.native(), s) == cudaSuccess); });
    m.stream.synchronize();
    const auto view = m.memory.host_read(other, (2_MiB).count);
    CHECK(std::count(view.begin(), view.end(), 1) == static_cast<std::ptrdiff_t>((2_MiB).count));
    m.memory.deallocate(other);
  }
  m.cub.reset();
  CHECK(m.memory.footprint().allocated == with_both - 6_MiB);
}

TEST_CASE_TEMPLATE("Thrust's storage stays for graphs, too", Memory, deepum::cuda::managed_memory,
                   deepum::cuda::paged_memory) {
  grown_after_recording<Memory> m;
  deepum::interop::thrust_calls on{m.memory, m.stream, 2_MiB};
  const auto algorithm = [&](std::size_t size) {
    on.call("algorithm", {deepum::updates(m.x, 16)}, [&](auto& policy) {
      const auto buffer = thrust::get_temporary_buffer<char>(policy, static_cast<std::ptrdiff_t>(size));
      const auto inside = std::min<std::size_t>(size, m.memory.contains(buffer.first.get()) ? size : 0);
      enqueue(m.stream.native().native(), fill_storage, reinterpret_cast<std::byte*>(buffer.first.get()), inside, 0xEE);
      thrust::return_temporary_buffer(policy, buffer.first, static_cast<std::ptrdiff_t>(size));
    });
  };
  const auto graph = m.stream.record_graph("one call", [&] { algorithm((2_MiB).count); });
  m.spacers.push_back(m.memory.template make_array<char>((2_MiB).count));  // so that it does not grow in place
  algorithm((4_MiB).count);
  algorithm((4_MiB).count);
  CHECK(on.storage_size() == 4_MiB);
  CHECK(m.pieces_that_it_writes(graph) == 0);
}

/// What Thrust does for an algorithm that needs so much.
template <class Memory>
struct needy_algorithms : machine<Memory> {
  auto call(std::size_t size, std::initializer_list<deepum::operand> operands) {
    return on->call("algorithm", operands, [size, this](auto& policy) {
      const auto buffer = thrust::get_temporary_buffer<char>(policy, static_cast<std::ptrdiff_t>(size));
      if (buffer.second == 0) {
        throw std::bad_alloc();
      }
      in_arena = this->memory.contains(buffer.first.get());
      thrust::return_temporary_buffer(policy, buffer.first, buffer.second);
    });
  }
  bool in_arena = false;
  std::optional<deepum::interop::thrust_calls<Memory>> on{std::in_place, this->memory, this->stream};
};

TEST_CASE_TEMPLATE("an algorithm that is larger than the budget gets its storage of the pool, and breaks no other",
                   Memory, deepum::cuda::managed_memory, deepum::cuda::paged_memory) {
  for (const bytes large : {200_MiB, 127_MiB, 1024_MiB}) {  // the budget is 128 MiB, x has 4, the arena 256
    CAPTURE(large.count);
    needy_algorithms<Memory> m;
    for (int i = 0; i < 3; ++i) {
      m.call(large.count, {deepum::updates(m.x)});
      CHECK(!m.in_arena);
      m.call((2_MiB).count, {deepum::updates(m.x)});
      CHECK(m.in_arena == (i > 0));
    }
    CHECK(m.on->storage_size() == 2_MiB);
    m.stream.synchronize();
  }
}

TEST_CASE_TEMPLATE("a launch gets as much of the storage as fits beside its operands", Memory,
                   deepum::cuda::managed_memory, deepum::cuda::paged_memory) {
  needy_algorithms<Memory> m;
  float* const y = m.template blocks<float>(50);
  m.call((100_MiB).count, {deepum::updates(m.x)});
  m.call((100_MiB).count, {deepum::updates(m.x)});
  CHECK(m.in_arena);
  CHECK(m.on->storage_size() == 100_MiB);
  auto id = m.call((28_MiB).count, {deepum::updates(y)});
  CHECK(m.in_arena);
  if (deepum::paged_memory_kind<Memory>) {
    CHECK(m.declared(id).find("overwrite") != std::string::npos);
    CHECK(m.declared(id).find("+14, ") != std::string::npos);  // 128 MiB less 50 blocks
  }
  m.memory.set_budget(100_MiB);  // exactly y
  id = m.call((28_MiB).count, {deepum::updates(y)});
  CHECK(m.in_arena == !deepum::paged_memory_kind<Memory>);
  m.stream.synchronize();
}

TEST_CASE_TEMPLATE("an algorithm for which the pool had nothing finds its storage in the arena the next time", Memory,
                   deepum::cuda::managed_memory, deepum::cuda::paged_memory) {
  needy_algorithms<Memory> m;
  pool.empty = true;
  CHECK_THROWS((void)m.call((8_MiB).count, {deepum::updates(m.x)}));
  m.call((8_MiB).count, {deepum::updates(m.x)});
  CHECK(m.in_arena);
  m.stream.synchronize();
}

TEST_CASE_TEMPLATE("storage for which the arena has no room stays as large as it was", Memory,
                   deepum::cuda::managed_memory, deepum::cuda::paged_memory) {
  needy_algorithms<Memory> m;
  m.call((2_MiB).count, {deepum::updates(m.x)});
  const auto rest = m.memory.template make_array<char>((240_MiB).count);
  for (int i = 0; i < 3; ++i) {
    m.call((64_MiB).count, {deepum::updates(m.x)});
    CHECK(!m.in_arena);
    m.call((2_MiB).count, {deepum::updates(m.x)});
    CHECK(m.in_arena);
  }
  CHECK(m.on->storage_size() == 2_MiB);
  m.stream.synchronize();
}

TEST_CASE("memory of a device_vector comes from the arena and goes back there") {
  machine<deepum::cuda::managed_memory> m;
  const bytes before = m.memory.footprint().allocated;
  deepum::interop::thrust_allocator<float, deepum::cuda::managed_memory> from{m.memory};
  const auto p = from.allocate(1000);
  CHECK(m.memory.contains(p.get()));
  CHECK(m.memory.footprint().allocated > before);
  decltype(from)::rebind<double>::other other{from};
  CHECK(other == from);
  from.deallocate(p, 1000);
  CHECK(m.memory.footprint().allocated == before);
}

}  // namespace thrust_test
