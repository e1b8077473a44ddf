#pragma once

#include <deepum/planning/algorithm_choice.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <utility>
#include <vector>

namespace deepum_test {

using namespace deepum;
using enum deepum::layer_kind;

// What is in use at one computation, found by asking of each piece of memory by itself when it is there.
struct moment {
  std::size_t layer = 0;
  convolution_part part = convolution_part::forward;
  std::uint64_t in_use = 0;  // when it is computed, without its workspace
  std::uint64_t before = 0;  // when its layer begins
};

class naive_step {
 public:
  naive_step(const choice_net& of, std::vector<bool> which) : net_(of), leaves_(std::move(which)) {
    const std::size_t n = net_.layers.size();
    // Times: forward of layer i is i, backward of layer i is 2n - 1 - i.
    comes_back_.assign(n + 1, 0);
    std::vector<bool> away(n + 1);
    std::vector<bool> chosen(n);
    for (std::size_t m = 0; m <= n; ++m) {
      away[m] = last_reader(m) && leaves_[*last_reader(m)];
    }
    for (std::size_t i = n; i-- > 0;) {
      for (std::size_t j = i; j-- > 0;) {
        bool anything = false;
        for (std::size_t m = 0; m <= n; ++m) {
          anything = anything || (away[m] && last_reader(m) == j);
        }
        if (anything && !chosen[j]) {
          chosen[j] = true;
          for (std::size_t m = 0; m <= n; ++m) {
            if (away[m] && last_reader(m) == j && comes_back_[m] == 0) {
              comes_back_[m] = 2 * n - 1 - i;
            }
          }
          break;
        }
        if (net_.layers[j].kind == conv) {
          break;
        }
      }
      for (std::size_t m = 0; m <= n; ++m) {  // at the latest where it is read
        if (away[m] && reads(i, m) && comes_back_[m] == 0) {
          comes_back_[m] = 2 * n - 1 - i;
        }
      }
    }
    away_ = away;
  }

  [[nodiscard]] std::vector<moment> moments() const {
    const std::size_t n = net_.layers.size();
    std::vector<moment> all;
    for (std::size_t t = 0; t != 2 * n; ++t) {
      const std::size_t layer = t < n ? t : 2 * n - 1 - t;
      if (t < n) {
        all.push_back({layer, convolution_part::forward, in_use(t, false), in_use(t, true)});
      } else {
        all.push_back({layer, convolution_part::backward_filter, in_use(t, false), in_use(t, true)});
        if (!net_.layers[layer].reads.empty()) {
          all.push_back({layer, convolution_part::backward_data, in_use(t, false), in_use(t, true)});
        }
      }
    }
    return all;
  }

 private:
  [[nodiscard]] bool reads(std::size_t layer, std::size_t map) const {
    const std::vector<std::size_t>& from = net_.layers[layer].reads;
    return map == 0 ? from.empty() : std::find(from.begin(), from.end(), map - 1) != from.end();
  }
  [[nodiscard]] std::optional<std::size_t> last_reader(std::size_t map) const {
    for (std::size_t i = net_.layers.size(); i-- > 0;) {
      if (reads(i, map)) {
        return i;
      }
    }
    return std::nullopt;
  }
  [[nodiscard]] std::uint64_t rounded(bytes size) const {
    return (size.count + net_.block.count - 1) / net_.block.count * net_.block.count;
  }
  [[nodiscard]] std::uint64_t in_use(std::size_t t, bool before) const {
    const std::size_t n = net_.layers.size();
    std::uint64_t sum = 0;
    for (const choice_layer& l : net_.layers) {
      sum += 2 * rounded(l.weights);
    }
    for (std::size_t m = 0; m <= n; ++m) {
      const std::size_t born = m == 0 ? 0 : m - 1;
      const std::size_t dies = m == 0 ? 2 * n : 2 * n - m;  // the backward pass of the layer that made it
      bool there = t >= born && t <= dies && !(before && m != 0 && t == born);
      if (away_[m] && t > *last_reader(m) && (t < comes_back_[m] || (before && t == comes_back_[m]))) {
        there = false;
      }
      sum += there ? rounded(m == 0 ? net_.input : net_.layers[m - 1].output) : 0;
      // Its gradient: from the first layer that gives it one to the layer that made it.
      const std::size_t first = m == n ? n : last_reader(m) ? 2 * n - 1 - *last_reader(m) : 2 * n;
      const bool comes = before && t == first && m != n;  // that of the last one is there already
      sum += m != 0 && t >= first && t <= dies && !comes ? rounded(net_.layers[m - 1].output) : 0;
    }
    return sum;
  }

  const choice_net& net_;
  std::vector<bool> leaves_;
  std::vector<bool> away_{};
  std::vector<std::size_t> comes_back_{};
};

inline std::vector<bool> leaving(const choice_net& net, offload chosen) {
  std::vector<bool> all;
  std::size_t last = net.layers.size();
  for (std::size_t i = 0; i != net.layers.size(); ++i) {
    const layer_kind k = net.layers[i].kind;
    all.push_back(chosen == offload::all    ? k == conv || k == pool || k == other
                  : chosen == offload::conv ? k == conv
                                            : false);
    last = k != softmax && k != activation ? i : last;
  }
  if (last != net.layers.size()) {
    all[last] = false;
  }
  return all;
}

// A pool as a row of bytes.
class naive_pool {
 public:
  naive_pool(const choice_net& of, offload which, std::uint64_t budget)
      : net_(of),
        leaves_(leaving(of, which)),
        row_(budget) {}

  // Plays a step; `pick(algorithms, largest gap)` gives a place. Whether all had room.
  template <class Pick>
  bool play(Pick&& pick) {
    const std::size_t n = net_.layers.size();
    for (const choice_layer& l : net_.layers) {
      put(l.weights, next_++);
      put(l.weights, next_++);
    }
    std::vector<bool> away(n);
    std::vector<bool> wanted(n);
    place(0, false);
    for (std::size_t i = 0; i != n; ++i) {
      take_workspace(i, {0}, pick);
      place(i + 1, false);
      for (const std::size_t m : read_by(i)) {
        if (leaves_[i] && last_reader(m) == i) {
          away[i] = true;
          remove(m, false);
        }
      }
      clear(workspace_);
    }
    place(n, true);
    for (std::size_t i = n; i-- > 0;) {
      take_workspace(i, net_.layers[i].reads.empty() ? std::vector<std::size_t>{2} : std::vector<std::size_t>{1, 2},
                     pick);
      for (std::size_t j = i; j-- > 0;) {
        if (away[j] && !wanted[j]) {
          wanted[j] = true;
          for (const std::size_t m : read_by(j)) {
            if (last_reader(m) == j) {
              place(m, false);
            }
          }
          break;
        }
        if (net_.layers[j].kind == conv) {
          break;
        }
      }
      for (const std::size_t m : read_by(i)) {
        place(m, false);
        if (m != 0) {
          place(m, true);
        }
      }
      remove(i + 1, false);
      remove(i + 1, true);
      clear(workspace_);
    }
    return fits_;
  }

 private:
  [[nodiscard]] std::vector<std::size_t> read_by(std::size_t layer) const {
    std::vector<std::size_t> all;
    for (const std::size_t from : net_.layers[layer].reads) {
      all.push_back(from + 1);
    }
    return all.empty() ? std::vector<std::size_t>{0} : all;
  }
  [[nodiscard]] std::size_t last_reader(std::size_t map) const {
    std::size_t last = 0;
    for (std::size_t i = 0; i != net_.layers.size(); ++i) {
      const auto all = read_by(i);
      last = std::find(all.begin(), all.end(), map) != all.end() ? i : last;
    }
    return last;
  }
  [[nodiscard]] std::uint64_t rounded(bytes size) const {
    return (size.count + net_.block.count - 1) / net_.block.count * net_.block.count;
  }
  // Runs of zeros: begin and length.
  [[nodiscard]] std::vector<std::pair<std::size_t, std::size_t>> gaps() const {
    std::vector<std::pair<std::size_t, std::size_t>> all;
    for (std::size_t i = 0; i != row_.size(); ++i) {
      if (row_[i] == 0) {
        if (i == 0 || row_[i - 1] != 0) {
          all.emplace_back(i, 0);
        }
        ++all.back().second;
      }
    }
    return all;
  }
  void put(bytes size, int owner) {
    const std::uint64_t needed = rounded(size);
    const auto all = gaps();
    auto best = all.end();
    for (auto it = all.begin(); needed != 0 && it != all.end(); ++it) {
      best = it->second >= needed && (best == all.end() || it->second < best->second) ? it : best;
    }
    fits_ = fits_ && (needed == 0 || best != all.end());
    if (best != all.end()) {
      std::fill_n(row_.begin() + static_cast<std::ptrdiff_t>(best->first), needed, owner);
    }
  }
  void clear(int owner) { std::replace(row_.begin(), row_.end(), owner, 0); }
  void place(std::size_t map, bool gradient) {
    if (owners_.count({map, gradient}) == 0) {
      owners_[{map, gradient}] = next_;
      put(map == 0 ? net_.input : net_.layers[map - 1].output, next_++);
    }
  }
  void remove(std::size_t map, bool gradient) {
    if (const auto it = owners_.find({map, gradient}); it != owners_.end()) {
      clear(it->second);
      owners_.erase(it);
    }
  }
  template <class Pick>
  void take_workspace(std::size_t layer, const std::vector<std::size_t>& parts, Pick&& pick) {
    std::uint64_t largest = 0;
    for (const auto& gap : gaps()) {
      largest = std::max<std::uint64_t>(largest, gap.second);
    }
    bytes size{};
    for (const std::size_t part : parts) {
      const auto& found = net_.layers[layer].algorithms[part];
      size = found.empty() ? size : std::max<bytes>(size, found[pick(found, largest)].workspace);
    }
    workspace_ = next_++;
    put(size, workspace_);
  }

  const choice_net& net_;
  std::vector<bool> leaves_;
  std::vector<int> row_;
  std::map<std::pair<std::size_t, bool>, int> owners_{};
  int next_ = 1;
  int workspace_ = 0;
  bool fits_ = true;
};

}  // namespace deepum_test
