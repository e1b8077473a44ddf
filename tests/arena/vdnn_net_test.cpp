// vdnn and vdnn_ext under a small net on the simulated GPU: what moves beside what, and that results stay.

#include <deepum/deepum.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

namespace vdnn_net_test {

using namespace deepum;
using namespace deepum::literals;

constexpr std::size_t per_block = 2 * 1024 * 1024 / sizeof(float);
constexpr std::size_t stride = 4096;

/// y = a x + b w, elements a stride apart; it computes for so long.
const auto forward_layer = sim::kernel(
    [](const float* x, const float* w, float* y, std::size_t n, double) {
      for (std::size_t i = 0; i < n; i += stride) {
        y[i] = x[i] * 0.5F + w[0];
      }
    },
    [](sim::work& work, const float* x, const float* w, float* y, std::size_t n, double flops) {
      work.reads(x, n * sizeof(float))
          .reads(w, per_block * sizeof(float))
          .overwrites(y, n * sizeof(float))
          .flops(flops);
    });
/// dx = x + dy, and w += x.
const auto backward_layer = sim::kernel(
    [](const float* x, const float* dy, float* dx, float* w, std::size_t n, double) {
      for (std::size_t i = 0; i < n; i += stride) {
        dx[i] = x[i] * 0.25F + dy[i];
        w[0] += x[i] * 0.001F;
      }
    },
    [](sim::work& work, const float* x, const float* dy, float* dx, float* w, std::size_t n, double flops) {
      work.reads(x, n * sizeof(float))
          .reads(dy, n * sizeof(float))
          .overwrites(dx, n * sizeof(float))
          .updates(w, per_block * sizeof(float))
          .flops(flops);
    });
const auto in_place = sim::kernel(
    [](float* y, std::size_t n) {
      for (std::size_t i = 0; i < n; i += stride) {
        y[i] = y[i] > 1.0F ? y[i] : 1.0F;
      }
    },
    [](sim::work& work, float* y, std::size_t n) { work.updates(y, n * sizeof(float)); });

struct options {
  std::string policy = "vdnn";
  deepum::offload offload = deepum::offload::all;
  bytes budget = 80_MiB;
  int steps = 3;
  bool late_activation = false;  // the activation of layer 1's input is issued within layer 1
  std::uint32_t blocks = 4;      // of a feature map
  double slow = 1e10;            // operations of a convolution: many times as long as its input travels
};

struct result {
  std::vector<float> weights{};
  statistics used{};
  std::uint64_t peak = 0;                           // blocks on the device at most
  std::vector<nanoseconds> began{};                 // of the forward launches of the last step, by layer
  std::map<std::uint32_t, nanoseconds> departed{};  // when the last block of each input did, in the last step
  nanoseconds time{};
  bool weights_moved = false;
};

/// conv, pool (which computes a tenth of the time that its input travels), conv, pool, conv, fc.
template <class Memory>
result train(const options& o) {
  constexpr std::size_t layers = 6;
  const std::size_t n = o.blocks * per_block;
  result r;
  sim::device_options with;
  with.memory = 512_MiB;
  sim::device gpu(sim::find_profile("titanx_pcie3"), with);
  std::vector<block_range> inputs;
  block_range weight_blocks{};
  std::vector<launch_id> forward_launches;
  bool last_step = false;
  arena_options with_policy{.capacity = 512_MiB, .device_budget = o.budget, .policy = o.policy, .log = {}};
  with_policy.tuning.offload = o.offload;
  std::map<std::uint64_t, nanoseconds> starts;
  std::set<std::uint32_t> there;
  with_policy.observer = [&](const device_event& e, launch_id) {
    if (e.what == device_event::kind::launch_finished) {
      starts[e.launch.value] = e.began;
    } else if (e.what == device_event::kind::arrived) {
      for (const block_id b : e.range) {
        there.insert(b.value);
      }
      r.peak = std::max<std::uint64_t>(r.peak, there.size());
    } else if (e.what == device_event::kind::departed || (e.what == device_event::kind::completed && e.did.forgets())) {
      for (const block_id b : e.did.forgets() ? e.did.blocks : e.range) {
        there.erase(b.value);
      }
      r.weights_moved = r.weights_moved || (e.why != reason::host && e.range.overlaps(weight_blocks));
      for (std::uint32_t i = 0; last_step && e.did.why == reason::make_room && i != inputs.size(); ++i) {
        if (inputs[i].overlaps(e.range)) {
          r.departed[i] = e.at;
        }
      }
    }
  };
  arena<Memory> memory(gpu, with_policy);
  stream s(memory);
  float* w = memory.template allocate<float>(per_block * layers);
  std::vector<float*> maps;
  for (std::size_t i = 0; i <= layers; ++i) {
    maps.push_back(memory.template allocate<float>(n));
  }
  std::vector<float*> gradients{memory.template allocate<float>(n), memory.template allocate<float>(n)};
  {
    const auto view = memory.host_overwrite(w, per_block * layers);
    for (std::size_t i = 0; i != layers; ++i) {
      view[i * per_block] = static_cast<float>(i);
    }
  }
  const auto blocks_of = [&](const float* p, std::size_t elements) {
    std::vector<block_access> found;
    const std::vector<operand> all{reads(p, elements)};
    memory.rooms().launches.declare(std::span<const operand>(all), found);
    return found[0].range;
  };
  weight_blocks = blocks_of(w, per_block * layers);
  for (std::size_t i = 0; i != layers; ++i) {
    inputs.push_back(blocks_of(maps[i], n));
  }
  const layer_kind kinds[layers] = {layer_kind::conv, layer_kind::pool, layer_kind::conv,
                                    layer_kind::pool, layer_kind::conv, layer_kind::fc};
  const auto flops = [&](std::size_t i) { return kinds[i] == layer_kind::pool ? o.slow / 100 : o.slow; };
  for (int step = 0; step != o.steps; ++step) {
    const nanoseconds began = gpu.now();
    last_step = step == o.steps - 1;
    {
      const auto view = memory.host_overwrite(maps[0], n);
      for (std::size_t i = 0; i < n; i += stride) {
        view[i] = static_cast<float>(i / stride % 13 + static_cast<std::size_t>(step));
      }
    }
    for (std::uint32_t i = 0; i != layers; ++i) {
      const auto at = s.layer({.layer = i, .kind = kinds[i], .input = {reads(maps[i], n)}});
      const auto id = s.launch("forward", 1, 1, 0, forward_layer, reads(maps[i], n),
                               reads(w + i * per_block, per_block), overwrites(maps[i + 1], n), n, flops(i));
      if (last_step) {
        forward_launches.push_back(id);
      }
      if (o.late_activation && i != 0) {
        s.launch("activation", 1, 1, 0, in_place, updates(maps[i], n), n);
      }
    }
    s.memset(gradients[layers % 2], 0, bytes{n * sizeof(float)});
    for (std::uint32_t i = layers; i-- > 0;) {
      const auto at = s.layer({.layer = i, .pass = layer_pass::backward});
      s.launch("backward", 1, 1, 0, backward_layer, reads(maps[i], n), reads(gradients[(i + 1) % 2], n),
               overwrites(gradients[i % 2], n), updates(w + i * per_block, per_block), n, 2 * flops(i));
      memory.mark_inactive(maps[i + 1], bytes{n * sizeof(float)});
      memory.mark_inactive(gradients[(i + 1) % 2], bytes{n * sizeof(float)});
    }
    s.synchronize();
    r.time = gpu.now() - began;
  }
  r.used = memory.statistics();
  for (const launch_id id : forward_launches) {
    r.began.push_back(starts[id.value]);
  }
  const auto view = memory.host_read(w, per_block * layers);
  for (std::size_t i = 0; i != layers; ++i) {
    r.weights.push_back(view[i * per_block]);
  }
  return r;
}

TEST_CASE_TEMPLATE("results do not depend on the policy, nor on what an activation that is issued late writes", Memory,
                   sim::managed_memory, sim::paged_memory) {
  for (const bool late : {false, true}) {
    CAPTURE(late);
    const result base = train<Memory>({.policy = "auto", .budget = 200_MiB, .late_activation = late});
    for (const std::string policy : {"vdnn", "vdnn_ext"}) {
      for (const deepum::offload which : {offload::none, offload::conv, offload::all, offload::alternate_conv}) {
        CAPTURE(policy);
        CAPTURE(to_string(which));
        const result r = train<Memory>({.policy = policy,
                                        .offload = which,
                                        .budget = which == offload::all ? 64_MiB : 120_MiB,
                                        .late_activation = late});
        CHECK(r.weights == base.weights);
        CHECK(r.used.refused_launches == 0);
      }
    }
  }
}

TEST_CASE("under vdnn_ext a layer begins before the input of the one before it has left, under vdnn never") {
  const result sync = train<sim::paged_memory>({.policy = "vdnn"});
  const result ext = train<sim::paged_memory>({.policy = "vdnn_ext"});
  for (const std::uint32_t pool : {1U, 3U}) {
    CAPTURE(pool);
    REQUIRE(sync.departed.count(pool) == 1);
    REQUIRE(ext.departed.count(pool) == 1);
    CHECK(sync.began[pool + 1] >= sync.departed.at(pool));
    CHECK(ext.began[pool + 1] < ext.departed.at(pool));
  }
  CHECK(ext.time < sync.time);
  CHECK(ext.peak <= sync.peak + sync.peak / 20);
}

TEST_CASE_TEMPLATE("inputs that leave are all that moves: no weights, no gradients", Memory, sim::managed_memory,
                   sim::paged_memory) {
  for (const std::string policy : {"vdnn", "vdnn_ext"}) {
    CAPTURE(policy);
    const result four = train<Memory>({.policy = policy, .steps = 4});
    const result three = train<Memory>({.policy = policy, .steps = 3});
    CHECK_FALSE(four.weights_moved);
    const statistics step = four.used - three.used;
    // Inputs of layers 0 to 4; that of layer 0 is on the host in any case where its copy stays.
    const std::uint64_t leave = std::is_same_v<Memory, sim::paged_memory> ? 4 : 5;
    CHECK(step.out().all_bytes() - step.out().bytes_for(reason::host) == leave * (std::uint64_t{8} << 20));
    CHECK(step.in().all_bytes() == 6 * (std::uint64_t{8} << 20));  // five, and the batch at its first use
  }
}

TEST_CASE("less is on the device the more layers give their inputs up, and the peak is measured") {
  std::uint64_t last = ~std::uint64_t{0};
  for (const deepum::offload which : {offload::none, offload::alternate_conv, offload::conv, offload::all}) {
    CAPTURE(to_string(which));
    const result r = train<sim::paged_memory>({.policy = "vdnn", .offload = which, .budget = 200_MiB});
    CHECK(r.peak < last);
    last = r.peak;
  }
}

TEST_CASE("a net that does not fit is refused with what it lacks, and weights stay") {
  try {
    (void)train<sim::paged_memory>({.policy = "vdnn", .offload = offload::none, .budget = 48_MiB});
    FAIL("trained all the same");
  } catch (const error& e) {
    CHECK(e.code() == status::out_of_device_memory);
    CHECK(std::string(e.what()).find("bytes of the budget of 50331648, and the policy 'vdnn' takes room from inputs") !=
          std::string::npos);
  }
}

}  // namespace vdnn_net_test
