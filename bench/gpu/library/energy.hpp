#pragma once

#include <dlfcn.h>

#include <cuda_runtime_api.h>

#include <array>
#include <cstdint>
#include <optional>
#include <string>

namespace deepum::gpu_bench {

/// Energy of a GPU and the version of its driver, as NVML tells them. The library is loaded at run time.
class energy_meter {
 public:
  /// @param ordinal  As CUDA counts.
  explicit energy_meter(int ordinal) {
    library_ = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
    std::array<char, 32> bus{};
    if (library_ == nullptr ||
        cudaDeviceGetPCIBusId(bus.data(), static_cast<int>(bus.size()), ordinal) != cudaSuccess) {
      (void)cudaGetLastError();
      return;
    }
    const auto begin = find<int (*)()>("nvmlInit_v2");
    const auto by_bus = find<int (*)(const char*, void**)>("nvmlDeviceGetHandleByPciBusId_v2");
    const auto version = find<int (*)(char*, unsigned)>("nvmlSystemGetDriverVersion");
    energy_ = find<int (*)(void*, unsigned long long*)>("nvmlDeviceGetTotalEnergyConsumption");
    end_ = find<int (*)()>("nvmlShutdown");
    if (begin == nullptr || begin() != 0) {
      energy_ = nullptr;
      end_ = nullptr;
      return;
    }
    std::array<char, 96> text{};
    if (version != nullptr && version(text.data(), static_cast<unsigned>(text.size())) == 0) {
      driver_ = text.data();
    }
    if (by_bus == nullptr || by_bus(bus.data(), &device_) != 0) {
      energy_ = nullptr;
    }
  }
  ~energy_meter() {
    if (end_ != nullptr) {
      (void)end_();
    }
    if (library_ != nullptr) {
      (void)dlclose(library_);
    }
  }
  energy_meter(const energy_meter&) = delete;
  energy_meter& operator=(const energy_meter&) = delete;

  /// Joules since the driver was loaded. Costs 3 ms: around whole runs alone.
  [[nodiscard]] std::optional<double> joules() const {
    unsigned long long millijoules = 0;
    if (energy_ == nullptr || energy_(device_, &millijoules) != 0) {
      return std::nullopt;
    }
    return static_cast<double>(millijoules) / 1e3;
  }
  /// As 580.65.06; empty where it is not known.
  [[nodiscard]] const std::string& driver() const { return driver_; }

 private:
  template <class Function>
  Function find(const char* name) const {
    return reinterpret_cast<Function>(dlsym(library_, name));
  }

  void* library_ = nullptr;
  void* device_ = nullptr;
  int (*energy_)(void*, unsigned long long*) = nullptr;
  int (*end_)() = nullptr;
  std::string driver_{};
};

}  // namespace deepum::gpu_bench
