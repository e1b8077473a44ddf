// What the driver tells of kernels.

#include "driver.hpp"
#include "session.hpp"
#include "thread_owned.hpp"
#include <deepum/interpose/kernel_parameters.hpp>

#include <cuda.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

namespace deepum_run {

using deepum::interpose::kernel_description;
using deepum::interpose::kernel_parameter;

namespace {

std::atomic<std::uint64_t> kernels_epoch{1};

std::shared_ptr<const kernel_description> ask_driver(CUfunction kernel) {
  const own_driver& d = driver();
  const auto parameters_of = [&](CUfunction f, std::vector<kernel_parameter>& out) {
    if (d.cuFuncGetParamInfo == nullptr) {
      return false;
    }
    for (std::size_t i = 0;; ++i) {
      std::size_t offset = 0;
      std::size_t size = 0;
      const CUresult result = d.cuFuncGetParamInfo(f, i, &offset, &size);
      if (result != CUDA_SUCCESS) {
        return i != 0 || result == CUDA_ERROR_INVALID_VALUE;  // behind the last one
      }
      out.push_back({static_cast<std::uint32_t>(offset), static_cast<std::uint32_t>(size)});
    }
  };
  std::vector<kernel_parameter> parameters;
  CUfunction function = kernel;
  bool known = parameters_of(function, parameters);
  CUfunction made = nullptr;
  // A CUkernel in the place of a CUfunction has to be turned into one before it can be asked.
  if (parameters.empty() && d.cuKernelGetFunction != nullptr &&
      d.cuKernelGetFunction(&made, reinterpret_cast<CUkernel>(kernel)) == CUDA_SUCCESS && made != nullptr) {
    function = made;
    known = parameters_of(function, parameters);
  }
  const char* symbol = nullptr;
  if (d.cuFuncGetName == nullptr || d.cuFuncGetName(&symbol, function) != CUDA_SUCCESS) {
    symbol = nullptr;
  }
  return std::make_shared<const kernel_description>(deepum::interpose::describe_kernel(
      symbol == nullptr ? std::string() : std::string(symbol), std::move(parameters), known));
}

}  // namespace

namespace {
/// What a thread knows of kernels.
struct known_kernels {
  std::uint64_t epoch = 0;
  std::unordered_map<CUfunction, std::shared_ptr<const kernel_description>> known;
};
}  // namespace

std::shared_ptr<const kernel_description> described(CUfunction kernel) {
  known_kernels& mine = of_this_thread<known_kernels>();
  const std::uint64_t epoch = kernels_epoch.load(std::memory_order_acquire);
  if (mine.epoch != epoch) {
    mine.known.clear();
    mine.epoch = epoch;
  }
  std::shared_ptr<const kernel_description>& found = mine.known[kernel];
  if (!found) {
    found = ask_driver(kernel);
  }
  return found;
}

void forget_kernels() { kernels_epoch.fetch_add(1, std::memory_order_acq_rel); }

}  // namespace deepum_run
