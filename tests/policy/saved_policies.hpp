#pragma once

#include "policy/driver.hpp"
#include <deepum/policy/make_policy.hpp>
#include <deepum/policy/saved_tables.hpp>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <vector>

namespace deepum_test {

using archive = std::vector<std::byte>;

inline constexpr std::uint32_t law_blocks = 32;

/// A policy that has tables, as it is made.
struct saved_kind {
  std::string label{};
  std::function<std::unique_ptr<policy>()> make{};
};

inline std::vector<saved_kind> saved_kinds() {
  policy_options small;
  small.block_table = {8, 2, 3};
  small.max_execution_ids = 10;
  small.max_execution_records = 40;
  return {{"deepum", [small] { return make_policy("deepum", small); }},
          {"auto", [small] { return make_policy("auto", small); }}};
}

/// A program that repeats some random kernels, mostly in the same order, on memory that is all alive.
class small_program {
 public:
  explicit small_program(std::uint32_t seed) : random_(seed) {
    kernels_.resize(3 + below(10));
    for (std::size_t i = 0; i < kernels_.size(); ++i) {
      kernel& k = kernels_[i];
      k.name = "k" + std::to_string(i);
      k.complete = below(3) != 0;
      for (std::uint32_t at = below(12); at < law_blocks; at += 4 + below(12)) {
        k.touched.push_back(
            {blocks(at, 1 + below(std::min(3U, law_blocks - at))), static_cast<deepum::access>(below(3))});
        if (k.complete || below(2) == 0) k.declared.push_back(k.touched.back());
      }
    }
  }

  void run(driver& d, int launches) {
    d.make_live(blocks(0, law_blocks));
    for (int i = 0; i < launches; ++i) {
      at_ = below(12) == 0 ? below(static_cast<std::uint32_t>(kernels_.size()))
                           : (at_ + 1) % static_cast<std::uint32_t>(kernels_.size());
      kernel k = kernels_[at_];
      k.scalar = below(8) == 0 ? below(5) : 0;
      d.issue(k);
      while (d.in_flight(0) > below(4)) {
        d.execute();
      }
    }
    while (d.in_flight(0) != 0) {
      d.execute();
    }
  }

 private:
  std::uint32_t below(std::uint32_t n) { return static_cast<std::uint32_t>(random_() % n); }

  std::mt19937 random_;
  std::vector<kernel> kernels_{};
  std::uint32_t at_ = 0;
};

}  // namespace deepum_test
