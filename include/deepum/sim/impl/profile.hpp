#pragma once

#include <deepum/error.hpp>
#include <deepum/separate.hpp>
#include <deepum/sim/profile.hpp>
#include <deepum/units.hpp>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace deepum {
inline namespace v0 {
namespace sim {

DEEPUM_SEPARATE nanoseconds time_at(bytes n, double rate) {
  return nanoseconds{static_cast<std::int64_t>(std::llround(static_cast<double>(n.count) * 1e9 / rate))};
}

DEEPUM_SEPARATE nanoseconds prefetch_time(const profile& p, bytes n) {
  if (n.count == 0) {
    return {};
  }
  const auto& points = p.prefetch_in;
  std::size_t above = 1;
  while (above + 1 < points.size() && points[above].size < n) {
    ++above;
  }
  const transfer_point& a = points[above - 1];
  const transfer_point& b = points[above];
  const double slope = static_cast<double>((b.time - a.time).count()) / static_cast<double>((b.size - a.size).count);
  const double time =
      static_cast<double>(a.time.count()) + slope * (static_cast<double>(n.count) - static_cast<double>(a.size.count));
  return nanoseconds{static_cast<std::int64_t>(std::llround(time))};
}

DEEPUM_SEPARATE double row_rate(const profile& p, bytes row, bool chunks) {
  const std::span<const row_share> shares = chunks ? std::span<const row_share>(p.chunk_rows) : p.managed_rows;
  double share = shares.front().share *
                 std::min(1.0, static_cast<double>(row.count) /
                                   static_cast<double>(std::max<std::uint64_t>(1, shares.front().row.count)));
  for (const row_share& s : shares) {
    share = s.row <= row ? s.share : share;
  }
  return p.remote * share;
}

namespace detail {

/// NVIDIA H200 SXM, PCIe 5 x16, CUDA 13.0, driver 580. "measured": the table of docs/simulator.md, 1 GiB each.
[[nodiscard]] inline profile h200_pcie5() {
  using namespace std::chrono_literals;
  profile p;
  p.name = "h200_pcie5";
  p.memory = 139_GiB;             // measured: what the driver gives out
  p.peak_flops = 67e12;           // data sheet, FP32
  p.flops_efficiency = 0.7;       // estimate
  p.memory_bandwidth = 4.8e12;    // data sheet
  p.slowdown_beside_copy = 1.02;  // measured
  p.launch_latency = 2us;         // estimate
  p.host_launch = 2us;            // estimate
  p.host_record = 200ns;          // measured
  p.host_wait = 1100ns;           // measured (wait-value)
  p.host_query = 500ns;           // estimate
  p.worker_wake_up = 10us;        // estimate: a futex wake-up and a poll
  p.prefetch_in = {measured_at(2_MiB, 18e9), measured_at(16_MiB, 37e9), measured_at(1_GiB, 51e9)};
  p.link_in = 51e9;                                              // measured: a prefetch whose call costs vanish
  p.prefetch_out = 20e9;                                         // measured: 17-24
  p.prefetch_out_beside_in = 9e9;                                // measured
  p.pageable = 12e9;                                             // estimate
  p.remote = 51e9;                                               // measured
  p.managed_rows = {{{bytes{64}, 35.0 / 51}, {bytes{128}, 1}}};  // measured: bench/driver_facts, rows
  p.chunk_rows = {{{bytes{64}, 6.7 / 51}, {bytes{128}, 13.0 / 51}, {bytes{256}, 27.0 / 51}, {bytes{512}, 1}}};  // same
  p.pinned = 55.5e9;        // measured: 55.6 in, 55.4 out
  p.pinned_both = 50.8e9;   // measured
  p.fault_entries = 256;    // nvidia-uvm: uvm_perf_fault_batch_count
  p.fault_duplicates = 11;  // measured: 180,000 records per GiB are 11 for each 64 KiB page
  p.fault_window = 16_MiB;  // estimate
  p.fault_batch = 45us;     // fault latency of G10 (MICRO'23); 20-50 us in Kim et al. (ASPLOS'20)
  p.fault_block = 40us;     // these two: so that streaming faults reach the measured 8-10 GB/s
  p.fault_page = 3300ns;
  p.populate_block = 28us;        // measured: discard and prefetch of 512 blocks 18 ms, less the discard
  p.discard_block = 7us;          // measured: 512 blocks 3.6 ms
  p.pass_block = 1170ns;          // measured: read-mostly, prefetch to the host 0.6 ms per GiB
  p.duplicate_block = 110us;      // measured: 57 ms per GiB, the first time
  p.drop_block = 4300ns;          // measured: read-mostly unset 1.5 ms per GiB, then prefetch to the host 0.7 ms
  p.advise_call = 2us;            // estimate
  p.host_fault = 30us;            // estimate
  p.host_populate_block = 200us;  // estimate: about 10 GB/s of zeroed pages
  return p;
}

/// NVIDIA V100 PCIe 32 GB, PCIe 3 x16: the machine of the DeepUM paper. Costs without a source scale with the link.
[[nodiscard]] inline profile v100_pcie3() {
  using namespace std::chrono_literals;
  profile p = h200_pcie5();
  p.name = "v100_pcie3";
  p.memory = 32_GiB - 512_MiB;  // data sheet, less what the driver keeps (estimate)
  p.peak_flops = 14e12;         // data sheet of the PCIe card, FP32
  p.flops_efficiency = 0.9;     // estimate: large matrix products of cuBLAS
  p.memory_bandwidth = 900e9;   // data sheet
  p.launch_latency = 4us;       // estimate
  p.host_launch = 4us;          // estimate
  p.prefetch_in = {measured_at(2_MiB, 8e9), measured_at(16_MiB, 11e9),
                   measured_at(1_GiB, 12e9)};  // estimate: 15.75 GB/s
  p.link_in = 12e9;                            // is the link's limit, 12-13 what copies reach
  p.prefetch_out = 10e9;                       // estimate
  p.prefetch_out_beside_in = 8e9;              // estimate
  p.pageable = 6e9;                            // estimate
  p.remote = 11e9;                             // estimate
  p.pinned = 12.3e9;                           // estimate
  p.pinned_both = 11e9;                        // estimate
  // Fitted so that two times of figure 9(b) come out with the faults of table 5: docs/deepum_paper.md.
  p.fault_batch = 430us;
  p.fault_block = 18us;
  p.fault_page = 3us;
  p.fault_duplicates = 4;
  return p;
}

/// NVIDIA A100 PCIe 40 GB, PCIe 4 x16: the GPU of the G10 paper (which pairs it with a PCIe 3 link).
[[nodiscard]] inline profile a100_pcie4() {
  using namespace std::chrono_literals;
  profile p = h200_pcie5();
  p.name = "a100_pcie4";
  p.memory = 40_GiB - 512_MiB;  // data sheet, less what the driver keeps (estimate)
  p.peak_flops = 19.5e12;       // data sheet, FP32
  p.memory_bandwidth = 1555e9;  // data sheet
  p.launch_latency = 3us;       // estimate
  p.host_launch = 3us;          // estimate
  p.prefetch_in = {measured_at(2_MiB, 13e9), measured_at(16_MiB, 21e9),
                   measured_at(1_GiB, 24e9)};  // estimate: 31.5 GB/s
  p.link_in = 24e9;                            // is the link's limit, 24-26 what copies reach
  p.prefetch_out = 15e9;                       // estimate
  p.prefetch_out_beside_in = 9e9;              // estimate
  p.pageable = 10e9;                           // estimate
  p.remote = 23e9;                             // estimate
  p.pinned = 25e9;                             // estimate
  p.pinned_both = 22e9;                        // estimate
  p.fault_batch = 45us;                        // G10 (MICRO'23), table of its simulated system
  p.fault_block = 50us;                        // estimate
  p.fault_page = 3500ns;                       // estimate
  return p;
}

/// NVIDIA GeForce GTX 970, PCIe 3 x16: the card on which vDNNExt was measured (its report, section 5.1.2). Costs
/// without a source are those of `v100_pcie3`.
[[nodiscard]] inline profile gtx970_pcie3() {
  using namespace std::chrono_literals;
  profile p = v100_pcie3();
  p.name = "gtx970_pcie3";
  p.memory = 3584_MiB;         // the report: 3.5 GB
  p.peak_flops = 3.5e12;       // the report
  p.memory_bandwidth = 224e9;  // the report
  p.launch_latency = 5us;      // estimate
  p.host_launch = 5us;         // estimate
  p.prefetch_in = {measured_at(2_MiB, 9e9), measured_at(16_MiB, 11.5e9), measured_at(1_GiB, 12.5e9)};  // estimate
  p.link_in = 12.8e9;      // the report, section 3.1: what copies reach
  p.pinned = 12.8e9;       // the same
  p.pinned_both = 12.8e9;  // estimate: the link is full duplex, and the report counts no loss
  p.remote = 12e9;         // estimate
  return p;
}

/// NVIDIA Titan X (Maxwell), PCIe 3 x16: the card of vDNN, for which the report expects larger gains.
[[nodiscard]] inline profile titanx_pcie3() {
  profile p = gtx970_pcie3();
  p.name = "titanx_pcie3";
  p.memory = 12_GiB - 256_MiB;  // data sheet, less what the driver keeps (estimate)
  p.peak_flops = 7e12;          // the report
  p.memory_bandwidth = 336e9;   // the report
  return p;
}

/// Two of those that `h200_pcie5` is, on one host.
[[nodiscard]] inline profile two_h200_nvlink() {
  profile p = h200_pcie5();
  p.name = "2x_h200_nvlink";
  p.devices = 2;
  p.peer = 390e9;         // measured; NVLink 4 has 450 each way by the data sheet
  p.host_memory = 250e9;  // estimate
  return p;
}

/// Four of them.
[[nodiscard]] inline profile four_h200_nvlink() {
  profile p = two_h200_nvlink();
  p.name = "4x_h200_nvlink";
  p.devices = 4;
  return p;
}

/// NVIDIA V100 SXM2 16 GB, four on one host: the machine of memHarvester (ATC'22, table 1).
[[nodiscard]] inline profile four_v100_nvlink2() {
  profile p = v100_pcie3();
  p.name = "4x_v100_nvlink2";
  p.memory = 16_GiB - 512_MiB;  // data sheet, less what the driver keeps (estimate)
  p.devices = 4;
  p.pinned = 12.3e9;       // memHarvester
  p.pinned_both = 12.3e9;  // estimate: each direction has lanes of its own
  p.peer = 40.1e9;         // memHarvester
  p.host_memory = 100e9;   // estimate: six channels of DDR4
  return p;
}

[[nodiscard]] inline const std::vector<profile>& profiles() {
  static const std::vector<profile> all{h200_pcie5(),       v100_pcie3(),        a100_pcie4(),   two_h200_nvlink(),
                                        four_h200_nvlink(), four_v100_nvlink2(), gtx970_pcie3(), titanx_pcie3()};
  return all;
}

}  // namespace detail

DEEPUM_SEPARATE std::vector<std::string> profile_names() {
  std::vector<std::string> names;
  for (const profile& p : detail::profiles()) {
    names.push_back(p.name);
  }
  return names;
}

DEEPUM_SEPARATE const profile& find_profile(std::string_view name) {
  const auto& all = detail::profiles();
  const auto found = std::find_if(all.begin(), all.end(), [&](const profile& p) { return p.name == name; });
  if (found == all.end()) {
    std::string message = "no profile of a simulated GPU is named '" + std::string(name) + "'; there are";
    for (const profile& p : all) {
      message += (&p == &all.front() ? " " : ", ") + p.name;
    }
    throw error(status::invalid_argument, message);
  }
  return *found;
}

}  // namespace sim
}  // namespace v0
}  // namespace deepum
