#include "card.hpp"

#include "derived_workload.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <unordered_map>
#include <utility>

namespace deepum::replay {
namespace {

constexpr double bytes_of_element = 4;
constexpr unsigned pages_of_block = 32;
constexpr double streaming_efficiency = 0.8;  // of the memory's rate, what kernels that stream reach

bool begins_with(std::string_view text, std::string_view with) { return text.substr(0, with.size()) == with; }

/// Of the card: multiplications and additions a second that a good kernel reaches.
double flops_of(const sim::profile& card) { return card.peak_flops * card.flops_efficiency; }

nanoseconds times(nanoseconds t, double factor) {
  return nanoseconds{std::llround(static_cast<double>(t.count()) * factor)};
}

}  // namespace

link_costs costs_on(const sim::profile& card, bool home_copy, double entries_per_block) {
  constexpr double giga = 1e9;
  link_costs costs;
  const double entries =
      entries_per_block > 0 ? entries_per_block : double{pages_of_block} * std::max(1U, card.fault_duplicates);
  const double batches = entries / std::max(1U, card.fault_entries);
  costs.fault_latency = times(card.fault_batch, batches) + card.fault_block + card.fault_page * pages_of_block;
  if (home_copy) {
    costs.h2d_gbps = costs.d2h_gbps = card.pinned / giga;
    costs.both_gbps = 2 * card.pinned_both / giga;
  } else {
    costs.h2d_gbps = card.link_in / giga;
    costs.d2h_gbps = card.prefetch_out / giga;
    costs.both_gbps = (card.link_in + card.prefetch_out_beside_in) / giga;
  }
  costs.both_gbps = std::min(costs.both_gbps, costs.h2d_gbps + costs.d2h_gbps);
  return costs;
}

std::optional<double> products_of(std::string_view kernel, const std::vector<double>& read_elements,
                                  double written_elements) {
  const bool backward = begins_with(kernel, "convolution_backward.");
  const bool dense = begins_with(kernel, "mm.") || begins_with(kernel, "addmm.");
  if (!(dense || backward || begins_with(kernel, "convolution."))) {
    return std::nullopt;
  }
  std::vector<double> largest = read_elements;
  std::sort(largest.rbegin(), largest.rend());
  const std::size_t used = backward ? 3 : 2;  // the gradient, the input and the filters; biases are smaller
  if (largest.size() < used) {
    return std::nullopt;
  }
  double product = backward ? 1 : written_elements;
  for (std::size_t i = 0; i != used; ++i) {
    product *= largest[i];
  }
  return (backward ? 2 : 1) * std::sqrt(product);
}

workload_description on_card(const workload& of, const sim::profile& from, const sim::profile& to, nanoseconds latency,
                             std::vector<scaled_kernels>* kinds) {
  workload_description d = described(of);
  std::unordered_map<std::int64_t, double> elements;
  for (const described_tensor& t : d.tensors) {
    elements.emplace(t.id, static_cast<double>(t.size.count) / bytes_of_element);
  }
  const double by_bytes = from.memory_bandwidth / to.memory_bandwidth;
  const double by_rates = from.peak_flops / to.peak_flops;
  std::map<std::string, scaled_kernels> found;
  for (described_launch& l : d.launches) {
    const nanoseconds before = l.duration;
    const nanoseconds fixed = std::min(before, latency);
    std::vector<double> read;
    read.reserve(l.in.size());
    for (const std::int64_t id : l.in) {
      read.push_back(elements.at(id));
    }
    double written = 0;
    for (const std::int64_t id : l.out) {
      written = std::max(written, elements.at(id));
    }
    const std::optional<double> products = products_of(l.kernel, read, written);
    const bool layer = begins_with(l.kernel, "Linear_") || begins_with(l.kernel, "BatchMatMul_");
    nanoseconds moved = times(before - fixed, by_bytes);
    nanoseconds computed{};
    if (products) {
      // What it is slower by than its bytes may be its products; those have a time of their own.
      const double all = std::accumulate(read.begin(), read.end(), written) * bytes_of_element;
      moved = std::min(moved, nanoseconds{std::llround(all * 1e9 / (to.memory_bandwidth * streaming_efficiency))});
      computed = nanoseconds{std::llround(2 * *products * 1e9 / flops_of(to))};
    } else if (layer) {
      moved = nanoseconds{};
      computed = times(before - fixed, by_rates);
    }
    l.duration = fixed + std::max(moved, computed);
    scaled_kernels& k = found[l.kernel];
    k.kernel = l.kernel;
    ++k.launches;
    k.recorded += before;
    k.scaled += l.duration;
    k.by_products += computed > moved ? 1U : 0U;
  }
  if (kinds != nullptr) {
    for (auto& [name, k] : found) {
      kinds->push_back(std::move(k));
    }
    std::stable_sort(kinds->begin(), kinds->end(),
                     [](const scaled_kernels& a, const scaled_kernels& b) { return a.scaled > b.scaled; });
  }
  d.name += "/" + to.name;
  return d;
}

}  // namespace deepum::replay
