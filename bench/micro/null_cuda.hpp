#pragma once

#include <cstdint>
#include <map>
#include <string>

/// A CUDA runtime that does nothing: every call returns at once, all work is done as soon as it is enqueued, and no
/// kernel runs. null_cuda.cpp defines the functions of the runtime and the driver that a launch of the library needs.
/// What a program costs on it is what the library costs beside CUDA. It checks nothing: tests/cuda/fake_cuda.hpp does.
namespace deepum_bench::null_cuda {

/// Calls of each function that the calling thread has made so far.
[[nodiscard]] std::map<std::string, std::uint64_t> calls();

}  // namespace deepum_bench::null_cuda
