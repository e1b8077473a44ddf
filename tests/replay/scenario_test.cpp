#include "replay/scenario.hpp"

#include "replay/placement.hpp"
#include <deepum/error.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

namespace scenario_test {

using namespace deepum;
using namespace deepum::replay;

constexpr std::uint64_t one_block = block_size.count;

/// A training step of a chain of layers: forward, backward, optimiser. Per layer, a weight and a moment persist;
/// results, gradients and a workspace do not.
struct chain {
  static constexpr std::int64_t of_layer = 10;
  enum kind : std::int64_t { weight, moment, result, result_gradient, weight_gradient, workspace, small };
  static std::int64_t id(int layer, kind k) { return layer * of_layer + k; }

  explicit chain(int layers) {
    d.name = "chain";
    // The weights and moments lie among the rest, as they do where an allocator was asked for them first.
    for (int l = 0; l < layers; ++l) {
      add(id(l, weight), 3 * one_block, true);
      add(id(l, moment), 3 * one_block, true);
      add(id(l, result), 4 * one_block + 4096);
      add(id(l, result_gradient), 4 * one_block + 4096);
      add(id(l, weight_gradient), 3 * one_block);
      add(id(l, workspace), 2 * one_block);
      add(id(l, small), 1000);
    }
    for (int l = 0; l < layers; ++l) {
      launch("forward", 1000, l == 0 ? ids{id(0, weight)} : ids{id(l, weight), id(l - 1, result)},
             {id(l, result), id(l, workspace)});
      launch("statistics", 10, {id(l, workspace), id(l, moment)}, {id(l, moment), id(l, small)});
    }
    launch("loss", 100, {id(layers - 1, result)}, {id(layers - 1, result_gradient)});
    for (int l = layers - 1; l >= 0; --l) {
      ids in{id(l, weight), id(l, result), id(l, result_gradient), id(l, small)};
      ids out{id(l, weight_gradient)};
      if (l != 0) {
        out.push_back(id(l - 1, result_gradient));
      }
      launch("backward", 2000, in, out);
    }
    for (int l = 0; l < layers; ++l) {
      launch("optimiser", 301, {id(l, weight), id(l, moment), id(l, weight_gradient)}, {id(l, weight), id(l, moment)});
    }
  }

  using ids = std::vector<std::int64_t>;
  void add(std::int64_t number, std::uint64_t size, bool persistent = false) {
    d.tensors.push_back({.id = number, .size = bytes{size}, .persistent = persistent});
  }
  void launch(const char* kernel, std::int64_t ns, ids in, ids out) {
    d.launches.push_back(
        {.kernel = kernel, .duration = nanoseconds{ns}, .in = std::move(in), .out = std::move(out), .blocks = {}});
  }
  void free_after(std::int64_t number, std::uint32_t launch) {
    std::find_if(d.tensors.begin(), d.tensors.end(), [&](const described_tensor& t) {
      return t.id == number;
    })->freed_after = launch;
  }
  [[nodiscard]] std::shared_ptr<const workload> build(bool reuse) {
    place(d, {.which = std::vector<bool>(d.tensors.size(), true), .taken = {}, .from_block = 5, .reuse = reuse});
    return std::make_shared<const workload>(build_workload("chain", d));
  }

  workload_description d{};
};

bool overlap(const block_set& set, block_range r) {
  return std::any_of(set.begin(), set.end(), [&](block_range s) { return s.overlaps(r); });
}

std::set<std::int64_t> read_before_written(const workload& w) {
  std::set<std::int64_t> found;
  for (std::uint32_t k = 0; k != w.launches.size(); ++k) {
    for (const workload_operand& o : w.launches[k].operands) {
      const workload_tensor& t = w.tensors[o.tensor];
      const auto& out = w.description->launches[k].out;
      const auto& in = w.description->launches[k].in;
      const bool reads = std::find(in.begin(), in.end(), t.id) != in.end();
      if (!t.persistent && t.first_launch == k && (reads || std::find(out.begin(), out.end(), t.id) == out.end())) {
        found.insert(t.id);
      }
    }
  }
  return found;
}

/// How many tensors have bytes in common with another one when they are born.
std::size_t overlaps(const workload& w) {
  std::map<std::uint64_t, std::uint64_t> alive;  // begin -> end
  std::size_t found = 0;
  const auto begin = [&](const workload_tensor& t) {
    if (t.size.count == 0) {
      return;
    }
    const std::uint64_t from = t.address.count;
    const std::uint64_t to = from + t.size.count;
    const auto after = alive.lower_bound(from);
    if ((after != alive.end() && after->first < to) || (after != alive.begin() && std::prev(after)->second > from)) {
      ++found;
    } else {
      alive.emplace(from, to);
    }
  };
  std::vector<std::vector<std::uint32_t>> born(w.launches.size());
  std::vector<std::vector<std::uint32_t>> freed(w.launches.size());
  for (std::uint32_t i = 0; i != w.tensors.size(); ++i) {
    const workload_tensor& t = w.tensors[i];
    if (t.persistent) {
      begin(t);
    } else if (t.first_launch) {
      born[*t.first_launch].push_back(i);
      freed[t.freed_after].push_back(i);
    }
  }
  for (std::size_t k = 0; k != w.launches.size(); ++k) {
    for (const std::uint32_t i : born[k]) {
      begin(w.tensors[i]);
    }
    for (const std::uint32_t i : freed[k]) {
      alive.erase(w.tensors[i].address.count);
    }
  }
  return found;
}

void check_valid(const program& p) {
  REQUIRE_FALSE(p.turns.empty());
  for (const program_turn& t : p.turns) {
    REQUIRE(t.workload < p.workloads.size());
    CHECK(t.variant < p.workloads[t.workload]->variants);
  }
  const workload& base = *p.workloads.front();
  const std::set<std::int64_t> excused = read_before_written(base);
  std::set<std::int64_t> numbers;
  for (const workload_tensor& t : base.tensors) {
    numbers.insert(t.id);
  }
  for (const auto& w : p.workloads) {
    CAPTURE(w->name);
    CHECK(overlaps(*w) <= overlaps(base));
    for (const auto& other : p.workloads) {
      bool apart = true;
      for (const workload_tensor& t : w->tensors) {
        if (!t.persistent && t.first_launch && overlap(other->persistent, t.span) && !overlap(w->persistent, t.span)) {
          apart = false;
        }
      }
      CHECK_MESSAGE(apart, other->name);
    }
    for (const std::int64_t id : read_before_written(*w)) {
      CHECK_MESSAGE((excused.contains(id) || (!excused.empty() && !numbers.contains(id))), "tensor ", id);
    }
  }
}

std::string turns_of(const program& p) {
  std::string text;
  for (const program_turn& t : p.turns) {
    text += static_cast<char>('0' + t.workload);
  }
  return text;
}
std::string regimes_of(const program& p) {
  std::string text;
  for (const program_turn& t : p.turns) {
    text += static_cast<char>('0' + t.regime);
  }
  return text;
}

bool same(const program& a, const program& b) {
  if (a.workloads.size() != b.workloads.size() || turns_of(a) != turns_of(b) || regimes_of(a) != regimes_of(b)) {
    return false;
  }
  for (std::size_t i = 0; i != a.workloads.size(); ++i) {
    const workload& v = *a.workloads[i];
    const workload& w = *b.workloads[i];
    if (v.tensors.size() != w.tensors.size() || v.launches.size() != w.launches.size()) {
      return false;
    }
    for (std::size_t k = 0; k != v.tensors.size(); ++k) {
      if (v.tensors[k].address != w.tensors[k].address) {
        return false;
      }
    }
    for (std::size_t k = 0; k != v.launches.size(); ++k) {
      if (v.launches[k].operands != w.launches[k].operands ||
          v.description->launches[k].blocks != w.description->launches[k].blocks) {
        return false;
      }
    }
  }
  return true;
}

const workload_tensor& tensor(const workload& w, std::int64_t id) {
  return *std::find_if(w.tensors.begin(), w.tensors.end(), [&](const workload_tensor& t) { return t.id == id; });
}

std::vector<std::string> kernels(const workload& w) {
  std::vector<std::string> all;
  for (const workload_launch& l : w.launches) {
    all.push_back(l.kernel);
  }
  return all;
}

TEST_CASE("every scenario is a valid program that only its seed decides") {
  for (const bool reuse : {true, false}) {
    for (const int layers : {1, 2, 12, 40}) {
      const auto base = chain(layers).build(reuse);
      for (const std::string_view name : scenario_names()) {
        CAPTURE(name);
        CAPTURE(layers);
        const program p = make_scenario(name, base, {.steps = 4, .seed = 5});
        CHECK(p.name == "chain: " + std::string(name));
        CHECK(p.workloads.front() == base);
        check_valid(p);
        CHECK(same(p, make_scenario(name, base, {.steps = 4, .seed = 5})));
        if (layers == 40 && (name == "random" || name == "reuse" || name == "lookups" || name == "two_models")) {
          CHECK_FALSE(same(p, make_scenario(name, base, {.steps = 4, .seed = 6})));
        }
      }
    }
  }
}

TEST_CASE("names that are no scenario are refused with those that are") {
  try {
    (void)make_scenario("chaos", chain(1).build(true), {});
    FAIL("a scenario without a name was made");
  } catch (const error& e) {
    CHECK(e.code() == status::invalid_argument);
    CHECK(std::string(e.what()) ==
          "there is no scenario 'chaos'; there are steady, batch, validation, two_models, growth, reuse, random, "
          "lookups");
  }
}

TEST_CASE("steady: the workload again and again, with its look-ups in turn") {
  chain c(2);
  c.d.launches[0].blocks[chain::id(0, chain::weight)] = {{0}, {1}, {2}};
  const auto base = c.build(true);
  const program p = make_scenario("steady", base, {.steps = 2});
  REQUIRE(p.turns.size() == 6);
  for (std::size_t i = 0; i != 6; ++i) {
    CHECK(p.turns[i].variant == i % 3);
    CHECK(p.turns[i].regime == 0);
  }
}

TEST_CASE("batch: what depends on the batch shrinks, and the time of the launches that use it") {
  chain c(8);
  c.d.launches[0].blocks[chain::id(0, chain::weight)] = {{0, 1, 2}, {2}, {}};
  c.d.launches[0].blocks[chain::id(0, chain::workspace)] = {{0, 1}, {1}, {0}};
  const auto base = c.build(true);
  const program p = make_scenario("batch", base, {.steps = 3});
  CHECK(turns_of(p) == "000111000222");
  CHECK(regimes_of(p) == "000111000222");
  for (const auto& [index, factor] : {std::pair{1U, 0.5}, {2U, 0.75}}) {
    const workload& w = *p.workloads[index];
    CHECK(tensor(w, chain::id(3, chain::weight)).size == bytes{3 * one_block});
    CHECK(tensor(w, chain::id(3, chain::weight)).address == tensor(*base, chain::id(3, chain::weight)).address);
    CHECK(tensor(w, chain::id(3, chain::weight_gradient)).size == bytes{3 * one_block});
    CHECK(static_cast<double>(tensor(w, chain::id(3, chain::result)).size.count) ==
          factor * static_cast<double>(4 * one_block + 4096));
    // Only the optimiser does not care for the batch.
    std::int64_t compute = 0;
    for (const workload_launch& l : base->launches) {
      const auto ns = static_cast<double>(l.duration.count());
      compute += static_cast<std::int64_t>(l.kernel == "optimiser" ? ns : std::ceil(ns * factor));
    }
    CHECK(w.compute == nanoseconds{compute});
    CHECK(w.blocks < base->blocks);
    CHECK(w.persistent == base->persistent);
  }
  const auto& half = p.workloads[1]->description->launches[0].blocks;
  CHECK(half.at(chain::id(0, chain::weight)) == described_launch::lists{{0, 2}, {2}, {}});
  CHECK(half.at(chain::id(0, chain::workspace)) == described_launch::lists{{0}, {0}, {0}});
}

TEST_CASE("validation: a forward pass that updates nothing follows every so many steps") {
  chain c(6);
  c.free_after(chain::id(0, chain::result), 20);
  const auto base = c.build(true);
  const program p = make_scenario("validation", base, {.steps = 3, .validation = 2});
  CHECK(turns_of(p) == "0010010010010");
  CHECK(regimes_of(p) == turns_of(p));
  const workload& w = *p.workloads[1];
  // The most is alive at the first launch of the backward pass. Statistics write a small tensor too.
  std::vector<std::string> expected;
  for (int l = 0; l != 6; ++l) {
    expected.insert(expected.end(), {"forward", "statistics"});
  }
  expected.insert(expected.end(), {"loss", "backward"});
  CHECK(kernels(w) == expected);
  for (std::size_t k = 0; k != w.launches.size(); ++k) {
    for (const workload_operand& o : w.launches[k].operands) {
      CHECK((!w.tensors[o.tensor].persistent || o.mode == deepum::access::read));
    }
  }
  // Results are needed by the next layer only, and so take turns in the same blocks.
  CHECK(tensor(w, chain::id(0, chain::result)).freed_after == 2);
  CHECK(w.blocks < base->blocks);
  CHECK(w.compute == nanoseconds{6 * 1010 + 100 + 2000});

  chain only_updates(1);
  only_updates.d.launches.resize(2);
  for (auto& l : only_updates.d.launches) {
    l.out = {chain::id(0, chain::moment)};
  }
  const auto no_forward = only_updates.build(true);
  CHECK_THROWS_AS((void)make_scenario("validation", no_forward, {}), const error&);
}

TEST_CASE("two models: another one, half as large, on a stream and at addresses of its own, in several orders") {
  const auto base = chain(6).build(true);
  const program p = make_scenario("two_models", base, {.steps = 3});
  const std::string turns = turns_of(p);
  CHECK(
      turns.starts_with("001011"
                        "1001"
                        "1001"));
  CHECK(turns.size() == 6 + 8 + 6);
  CHECK(regimes_of(p) == turns);
  for (const program_turn& t : p.turns) {
    CHECK(t.stream.value == t.workload);
  }
  const workload& other = *p.workloads[1];
  CHECK(other.name == "chain/half");
  CHECK(other.launches.size() == base->launches.size());
  CHECK(other.compute == nanoseconds{6 * 500 + 6 * 5 + 50 + 6 * 1000 + 6 * 151});
  for (const workload_tensor& t : other.tensors) {
    CHECK(t.span.begin_value() >= base->end_block);
    CHECK(t.size.count == (tensor(*base, t.id).size.count + 1) / 2);
  }
}

TEST_CASE("growth: a layer more, with weights of its own, forward and backward") {
  chain c(16);
  c.d.launches[16].blocks[chain::id(8, chain::weight)] = {{1}, {2}};
  c.free_after(chain::id(3, chain::result), 60);
  const auto base = c.build(true);
  const program p = make_scenario("growth", base, {.steps = 2});
  CHECK(turns_of(p) == "001111");
  CHECK(regimes_of(p) == turns_of(p));
  const workload& w = *p.workloads[1];
  // 16 layers of two launches, the loss and the first launch backward: a sixteenth is two launches, and those in the
  // middle are of layer 8. Its results are used once more backward.
  std::vector<std::string> expected = kernels(*base);
  const auto backward = std::find(expected.begin(), expected.end(), "backward") + (15 - 8);
  expected.insert(backward + 1, "backward");
  expected.insert(expected.begin() + 18, {"forward", "statistics"});
  CHECK(kernels(w) == expected);
  CHECK(w.compute - base->compute == nanoseconds{1000 + 10 + 2000});
  CHECK(w.blocks > base->blocks);
  CHECK(block_count(w.persistent) == block_count(base->persistent) + 6);
  CHECK(w.persistent.back().begin_value() >= base->end_block);
  CHECK(tensor(*base, chain::id(3, chain::result)).freed_after == 60);
  CHECK(tensor(w, chain::id(3, chain::result)).freed_after == 63);

  // The second layer reads the first one's input, and writes nothing that the first one wrote.
  const workload_launch& first = w.launches[16];
  const workload_launch& second = w.launches[18];
  REQUIRE(first.operands.size() == second.operands.size());
  for (std::size_t o = 0; o != first.operands.size(); ++o) {
    const workload_tensor& t = w.tensors[first.operands[o].tensor];
    CHECK((first.operands[o] == second.operands[o]) == (t.id == chain::id(7, chain::result)));
  }
  CHECK(second.touches(1).reads.back().count == 1);
  // Going backward, it uses its own weight, which is the same that it has going forward, and its own result.
  const auto first_backward =
      static_cast<std::size_t>(std::find(expected.begin(), expected.end(), "backward") - expected.begin());
  const workload_launch& second_backward = w.launches[first_backward + (15 - 8) + 1];
  std::set<std::uint32_t> of_second;
  for (const workload_operand& o : second.operands) {
    of_second.insert(o.tensor);
  }
  std::size_t shared = 0;
  for (const workload_operand& o : second_backward.operands) {
    shared += of_second.contains(o.tensor) ? 1 : 0;
    CHECK(w.tensors[o.tensor].id != chain::id(8, chain::weight));
  }
  CHECK(shared == 2);
}

TEST_CASE("growth: an input that would be freed before the second layer reads it is at an address of its own") {
  workload_description d{.name = "inference"};
  for (std::int64_t i = 0; i != 20; ++i) {
    d.tensors.push_back({.id = i, .size = bytes{one_block}, .address = bytes{(i % 2 == 0 ? 1 : 2) * one_block}});
    d.launches.push_back({.kernel = "k", .duration = nanoseconds{1}, .in = {}, .out = {i}, .blocks = {}});
    if (i != 0) {
      d.launches.back().in = {i - 1};
    }
  }
  const auto base = std::make_shared<const workload>(build_workload("inference", d));
  const program p = make_scenario("growth", base, {});
  check_valid(p);
  CHECK(p.workloads[1]->launches.size() == 21);
}

TEST_CASE("reuse: what does not persist lies elsewhere, and the launches are the same") {
  const auto base = chain(12).build(true);
  const program p = make_scenario("reuse", base, {.steps = 2});
  CHECK(turns_of(p) == "001122");
  CHECK(regimes_of(p) == turns_of(p));
  for (const std::size_t i : {1U, 2U}) {
    const workload& w = *p.workloads[i];
    CHECK(w.compute == base->compute);
    CHECK(w.blocks == base->blocks);
    CHECK(w.largest_launch == base->largest_launch);
    CHECK(w.persistent == base->persistent);
    std::size_t moved = 0;
    std::size_t transient = 0;
    for (std::size_t k = 0; k != w.tensors.size(); ++k) {
      const workload_tensor& t = w.tensors[k];
      CHECK(t.freed_after == base->tensors[k].freed_after);
      CHECK(t.span.count == base->tensors[k].span.count);
      moved += t.address != base->tensors[k].address ? 1 : 0;
      transient += t.persistent ? 0 : 1;
    }
    CHECK(moved > transient / 2);
    CHECK(moved <= transient);
  }
}

TEST_CASE("reuse: what shares blocks with something that persists stays, and nothing else comes there") {
  // Blocks 0 and 1 hold tensors 0 and 1, of which one persists; those from 2 on hold one tensor each.
  workload_description d{.name = "d"};
  d.tensors = {{.id = 0, .size = bytes{512}, .address = bytes{0}, .persistent = true},
               {.id = 1, .size = bytes{one_block}, .address = bytes{512}}};
  d.launches = {{.kernel = "k", .duration = nanoseconds{1}, .in = {0}, .out = {1}, .blocks = {}}};
  for (std::int64_t i = 2; i != 10; ++i) {
    d.tensors.push_back(
        {.id = i, .size = bytes{one_block}, .address = bytes{static_cast<std::uint64_t>(i) * one_block}});
    d.launches.front().out.push_back(i);
  }
  const auto base = std::make_shared<const workload>(build_workload("d", d));
  const program p = make_scenario("reuse", base, {});
  check_valid(p);
  for (const std::size_t i : {1U, 2U}) {
    const workload& w = *p.workloads[i];
    CHECK(w.tensors[1].address == bytes{512});
    CHECK(w.blocks == base->blocks);
    CHECK(w.end_block == base->end_block);
  }
}

TEST_CASE("random: every step has an order of its own, in which tensors are born before they are used") {
  chain c(12);
  c.free_after(chain::id(11, chain::workspace), 40);
  const auto base = c.build(true);
  const program p = make_scenario("random", base, {.steps = 3});
  CHECK(turns_of(p) == "000123000");
  CHECK(regimes_of(p) == "000111000");
  std::set<std::vector<std::string>> orders{kernels(*base)};
  for (std::size_t i = 1; i <= 3; ++i) {
    const workload& w = *p.workloads[i];
    orders.insert(kernels(w));
    CHECK(w.compute == base->compute);
    std::vector<std::string> sorted = kernels(w);
    std::vector<std::string> original = kernels(*base);
    std::sort(sorted.begin(), sorted.end());
    std::sort(original.begin(), original.end());
    CHECK(sorted == original);
    // Its statistics are its last use.
    const std::uint32_t freed = tensor(w, chain::id(11, chain::workspace)).freed_after;
    CHECK(w.launches[freed].kernel == "statistics");
    CHECK(w.tensors[w.launches[freed].operands.front().tensor].id == chain::id(11, chain::workspace));
  }
  CHECK(orders.size() == 4);
}

TEST_CASE("lookups: the workload's own in turn, or random ones of its largest tensor") {
  chain with_own(2);
  with_own.d.launches[0].blocks[chain::id(0, chain::weight)] = {{0}, {1}, {2}};
  const program own = make_scenario("lookups", with_own.build(true), {.steps = 2});
  CHECK(own.workloads.size() == 1);
  CHECK(own.turns[4].variant == 1);

  chain c(2);
  c.d.tensors[0].size = bytes{80 * one_block};
  const auto base = c.build(true);
  const program p = make_scenario("lookups", base, {.steps = 3});
  CHECK(turns_of(p) == "000111111");
  const workload& w = *p.workloads[1];
  CHECK(w.variants == 6);
  std::set<std::vector<std::uint32_t>> lists;
  for (const program_turn& t : p.turns) {
    const block_set& reads = w.launches[0].touches(t.variant).reads;
    if (t.workload == 1) {
      CHECK(block_count(reads) == 10);
      lists.insert(w.description->launches[0].blocks.at(0).at(t.variant));
    }
  }
  CHECK(lists.size() == 6);
  // The optimiser updates what was looked up.
  CHECK(w.launches.back().kernel == "optimiser");
  CHECK(w.description->launches[w.launches.size() - 2].blocks == w.description->launches[0].blocks);
}

TEST_CASE("addresses come from the smallest gap, are used again where that is asked for, and keep off what is taken") {
  workload_description d{.name = "d"};
  const auto add = [&](std::int64_t id, std::uint64_t size, std::uint32_t from, std::uint32_t to) {
    d.tensors.push_back({.id = id, .size = bytes{size}});
    d.launches.resize(std::max<std::size_t>(d.launches.size(), to + 1));
    d.launches[from].out.push_back(id);
    d.launches[to].in.push_back(id);
  };
  add(0, 3 * one_block, 0, 1);
  add(1, one_block, 0, 4);
  add(2, 2 * one_block, 0, 2);
  add(3, 10, 0, 1);
  add(4, 600, 0, 4);
  add(5, one_block + 1, 3, 4);  // the gaps are 3 blocks and 2
  add(6, 10, 3, 4);
  const auto blocks = [&](const placement& how) {
    place(d, how);
    std::vector<std::uint64_t> at;
    for (const described_tensor& t : d.tensors) {
      at.push_back(*t.address / bytes{512});
    }
    return at;
  };
  constexpr std::uint64_t b = one_block / 512;
  const std::vector<bool> all(7, true);
  CHECK(blocks({.which = all}) == std::vector<std::uint64_t>{0, 3 * b, 4 * b, 6 * b, 6 * b + 1, 4 * b, 6 * b});
  CHECK(blocks({.which = all, .reuse = false}) ==
        std::vector<std::uint64_t>{0, 3 * b, 4 * b, 6 * b, 6 * b + 1, 7 * b, 6 * b + 3});
  CHECK(blocks({.which = all, .taken = {{block_id{1}, 2}, {block_id{4}, 1}}, .from_block = 1}) ==
        std::vector<std::uint64_t>{5 * b, 3 * b, 8 * b, 10 * b, 10 * b + 1, 5 * b, 10 * b});
  std::vector<bool> some(7);
  some[6] = true;
  CHECK(blocks({.which = some, .from_block = 50}) ==
        std::vector<std::uint64_t>{5 * b, 3 * b, 8 * b, 10 * b, 10 * b + 1, 5 * b, 50 * b});
}

TEST_CASE("scenarios of recorded workloads are valid programs" * doctest::skip(!std::getenv("DEEPUM_WORKLOADS"))) {
  for (const char* file : {"bert_base_b256_a100", "dlrm_b2k", "gpt2_xl_b4", "opt_13b_infer_b8", "resnet152_b256"}) {
    CAPTURE(file);
    const auto base = std::make_shared<const workload>(
        read_workload(std::string(std::getenv("DEEPUM_WORKLOADS")) + "/" + file + ".jsonl.gz"));
    for (const std::string_view name : scenario_names()) {
      CAPTURE(name);
      const program p = make_scenario(name, base, {.steps = 2});
      check_valid(p);
      const workload& last = *p.workloads.back();
      if (name == "growth") {
        CHECK(last.launches.size() > base->launches.size());
        CHECK(last.blocks > base->blocks);
        CHECK(last.compute > base->compute);
      } else if (name == "batch") {
        CHECK(p.workloads[1]->compute < last.compute);
        CHECK(last.compute < base->compute);
        CHECK(p.workloads[1]->blocks < last.blocks);
        CHECK(last.blocks < base->blocks);
      } else if (name == "validation" || name == "two_models") {
        CHECK(last.compute < base->compute);
      } else {
        CHECK(last.compute == base->compute);
      }
    }
  }
}

}  // namespace scenario_test
