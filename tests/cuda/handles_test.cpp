#include "cuda/fake_gpu.hpp"
#include <deepum/cuda/device.hpp>
#include <deepum/cuda/handles.hpp>
#include <deepum/error.hpp>

#include <doctest/doctest.h>

#include <string>
#include <utility>

namespace handles_test {

using namespace deepum_test;
using namespace deepum::cuda;

TEST_CASE("a stream and an event end with their handles, wherever the thread is by then") {
  const fake_gpu gpu;  // finds out what is left behind
  fake_cuda::set_device_count(2);
  const device first{0};
  first.make_current();
  {
    const unique_stream s = make_stream(&first.context());
    const unique_event e = make_event(event_use::time, &first.context());
    CHECK(cudaEventRecord(e.get(), s.get()) == cudaSuccess);
    CHECK(cudaSetDevice(1) == cudaSuccess);
  }
  CHECK(fake_cuda::calls("cudaStreamDestroy") == 1);
  CHECK(fake_cuda::calls("cudaEventDestroy") == 1);
  int now = -1;
  CHECK(cudaGetDevice(&now) == cudaSuccess);
  CHECK(now == 1);
}

TEST_CASE("a handle that cannot be made is an error, or empty where that is asked for, and no error stays") {
  const fake_gpu gpu;
  fake_cuda::fail_all_calls("cudaStreamCreateWithFlags", cudaErrorMemoryAllocation);
  fake_cuda::fail_all_calls("cudaEventCreateWithFlags", cudaErrorMemoryAllocation);
  CHECK_THROWS_AS((void)make_stream(), deepum::error);
  CHECK_THROWS_AS((void)make_event(event_use::order), deepum::error);
  CHECK_FALSE(try_make_stream());
  CHECK_FALSE(try_make_event(event_use::order));
  CHECK_FALSE(event_pool().take());
  CHECK(cudaPeekAtLastError() == cudaSuccess);
}

TEST_CASE("a pool gives the events again that it was given back") {
  const fake_gpu gpu;
  event_pool pool;
  unique_event a = pool.take();
  const cudaEvent_t first = a.get();
  pool.give(std::move(a));
  pool.give({});  // counts for nothing
  a = pool.take();
  CHECK(a.get() == first);
  const unique_event b = pool.take();
  CHECK(b.get() != first);
  CHECK(fake_cuda::calls("cudaEventCreateWithFlags") == 2);
  pool.give(std::move(a));
  pool.clear();
  CHECK(fake_cuda::calls("cudaEventDestroy") == 1);
}

}  // namespace handles_test
