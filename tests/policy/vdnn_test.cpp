// A scripted list of scopes gives exactly these commands.

#include "policy/layered_bench.hpp"
#include <deepum/policy/make_policy.hpp>
#include <deepum/policy/saved_tables.hpp>
#include <deepum/policy/vdnn.hpp>

#include <doctest/doctest.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace vdnn_test {

using namespace deepum_test;

using bench = layered_bench;

// conv 0 (X 0-1, Y 2-3), pool 1 (X 2-3, Y 4), conv 2 (X 4, Y 5), fc 3 (X 5, Y 6): weights 8-9, gradients 16 and on.
void forward(bench& b) {
  b.no_layer();
  b.run({overwrites(0, 2)});  // the batch
  b.layer(0, layer_pass::forward, conv, {blocks(0, 2)});
  b.run({reads(0, 2), reads(8), overwrites(2, 2)});
  b.layer(1, layer_pass::forward, pool, {blocks(2, 2)});
  b.run({reads(2, 2), overwrites(4)});
  b.layer(2, layer_pass::forward, conv, {blocks(4)});
  b.run({reads(4), reads(9), overwrites(5)});
  b.layer(3, layer_pass::forward, fc, {blocks(5)});
  b.run({reads(5), overwrites(6)});
}
void backward(bench& b) {
  b.layer(3, layer_pass::backward);
  b.run({reads(5), overwrites(16)});
  b.layer(2, layer_pass::backward);
  b.run({reads(4), reads(9), reads(16), overwrites(17)});
  b.layer(1, layer_pass::backward);
  b.run({reads(2, 2), reads(4), reads(17), overwrites(18, 2)});
  b.layer(0, layer_pass::backward);
  b.run({reads(0, 2), reads(8), reads(18, 2)});
}

TEST_CASE("an input is copied beside its layer, and gives its room up when the layer is over") {
  bench b("vdnn", deepum::offload::all);
  b.layer(0, layer_pass::forward, conv, {blocks(0, 2)});
  const launch_id first = b.issue({overwrites(0, 2)});  // not of the net, but in its scope: X is made there
  CHECK(b.plan() == "prefetch 0+2");
  b.carry_out();
  CHECK(b.ready(first));
  b.finish();
  const launch_id conv_launch = b.issue({reads(0, 2), reads(8), overwrites(2, 2)});
  CHECK(b.plan() == "clean 0+2, prefetch 8, prefetch 2+2");
  CHECK_FALSE(b.ready(conv_launch));
  b.carry_out();
  CHECK(b.ready(conv_launch));
  CHECK(b.plan().empty());  // it is being read
  b.finish();
  b.layer(1, layer_pass::forward, pool, {blocks(2, 2)});
  const launch_id next = b.issue({reads(2, 2), overwrites(4)});
  CHECK_FALSE(b.ready(next));
  CHECK(b.plan() == "evict 0+2");
  b.carry_out();
  CHECK(b.out == 2);  // once
  CHECK(b.plan() == "clean 2+2, prefetch 4");
  b.carry_out();
  CHECK(b.ready(next));
}

TEST_CASE("vdnn waits at the end of a layer until its input has left; vdnn_ext waits for the computation alone") {
  for (const std::string name : {"vdnn", "vdnn_ext"}) {
    CAPTURE(name);
    bench b(name, deepum::offload::all);
    b.layer(0, layer_pass::forward, conv, {blocks(0, 2)});
    b.run({updates(0, 2), overwrites(2, 2)});  // as long as it may be writing X, nothing can be copied
    b.layer(1, layer_pass::forward, pool, {blocks(2, 2)});
    const launch_id next = b.issue({reads(2, 2), overwrites(4)});
    const std::string planned = b.plan();
    CHECK(planned == (name == "vdnn" ? "evict 0+2" : "evict 0+2, clean 2+2, prefetch 4"));
    if (name == "vdnn_ext") {
      for (const transfer& t : b.ordered) {  // Y gets its room, X is still on its way
        if (t.takes_room()) {
          b.map.arrive_empty(block_id{4});
          b.chooser->on_migrated(blocks(4), b.map.device(), b.map);
        }
      }
    }
    CHECK(b.map.resident(block_id{0}));
    CHECK(b.ready(next) == (name == "vdnn_ext"));
    if (name == "vdnn") {
      (void)b.settle();
      CHECK(b.ready(next));
    }
    CHECK(b.ready(next));
  }
}

TEST_CASE("neither lets a layer begin before the one before it has computed") {
  for (const std::string name : {"vdnn", "vdnn_ext"}) {
    bench b(name, deepum::offload::none);
    b.layer(0, layer_pass::forward, conv, {blocks(0, 2)});
    const launch_id first = b.issue({overwrites(0, 2)});
    b.layer(1, layer_pass::forward, pool, {blocks(2)});
    const launch_id second = b.issue({reads(2)});
    CHECK(b.settle() == "prefetch 0+2");
    CHECK(b.ready(first));
    CHECK_FALSE(b.ready(second));
    b.finish();
    CHECK(b.settle() == "prefetch 2");
    CHECK(b.ready(second));
  }
}

TEST_CASE("the second step of a net moves every input but the fully connected layer's out once and in once") {
  for (const std::string name : {"vdnn", "vdnn_ext"}) {
    CAPTURE(name);
    bench b(name, deepum::offload::all);
    forward(b);
    (void)b.settle();
    for (std::uint32_t x : {0, 1, 2, 3, 4}) {
      CHECK_FALSE(b.map.present(block_id{x}));
    }
    CHECK(b.map.resident(block_id{5}));
    CHECK(b.map.resident(block_id{8}));
    backward(b);
    (void)b.settle();
    const std::uint64_t before_in = b.in;
    const std::uint64_t before_out = b.out;
    forward(b);
    backward(b);
    CHECK(b.in - before_in == 5);
    CHECK(b.out - before_out == 5);
    CHECK(b.map.resident(block_id{8}));
    CHECK(b.map.resident(block_id{9}));
  }
}

TEST_CASE("the walk of the backward pass: a pool computes while the input of the convolution before it comes back") {
  for (const std::string name : {"vdnn", "vdnn_ext"}) {
    CAPTURE(name);
    bench b(name, deepum::offload::conv);
    forward(b);
    (void)b.settle();
    b.layer(3, layer_pass::backward);
    const launch_id fc_launch = b.issue({reads(5), overwrites(16)});
    CHECK(b.plan() == "prefetch 16, prefetch 4");
    b.carry_out();
    CHECK(b.ready(fc_launch));
    b.finish();
    b.layer(2, layer_pass::backward);
    const launch_id conv_launch = b.issue({reads(4), reads(9), reads(16), overwrites(17)});
    CHECK(b.plan() == "prefetch 17, prefetch 0+2");  // past the pool, which keeps its input
    b.has_room(17);
    CHECK(b.ready(conv_launch));
    b.finish();
    b.layer(1, layer_pass::backward);
    const launch_id pool_launch = b.issue({reads(2, 2), reads(4), reads(17), overwrites(18, 2)});
    CHECK(b.plan() == (name == "vdnn" ? "prefetch 0+2" : "prefetch 18+2, prefetch 0+2"));
    if (name == "vdnn_ext") {
      b.has_room(18);
      b.has_room(19);
      CHECK(b.ready(pool_launch));
    } else {
      CHECK_FALSE(b.ready(pool_launch));
      (void)b.settle();
      CHECK(b.ready(pool_launch));
    }
    b.finish();
    b.layer(0, layer_pass::backward);
    const launch_id last_launch = b.issue({reads(8)});  // a launch of the layer that does not need X waits for it, too
    CHECK(b.ready(last_launch) == (name == "vdnn"));
    (void)b.settle();
    CHECK(b.ready(last_launch));
  }
}

TEST_CASE("where all inputs leave, vdnn_ext waits in the backward pass as vdnn does: each layer for its own") {
  for (const std::string name : {"vdnn", "vdnn_ext"}) {
    CAPTURE(name);
    bench b(name, deepum::offload::all);
    forward(b);
    (void)b.settle();
    b.layer(3, layer_pass::backward);
    b.run({reads(5), overwrites(16)});
    b.layer(2, layer_pass::backward);
    (void)b.issue({reads(4), reads(9), reads(16), overwrites(17)});
    CHECK(b.plan() == "prefetch 17, prefetch 2+2");
    b.has_room(17);
    b.finish();
    b.layer(1, layer_pass::backward);
    const launch_id pool_launch = b.issue({reads(17)});
    (void)b.plan();
    CHECK_FALSE(b.ready(pool_launch));
    (void)b.settle();
    CHECK(b.ready(pool_launch));
  }
}

TEST_CASE("the backward pass begins when all inputs have left") {
  bench b("vdnn_ext", deepum::offload::all);
  b.layer(0, layer_pass::forward, conv, {blocks(0, 2)});
  b.run({updates(0, 2), overwrites(2)});
  b.layer(1, layer_pass::forward, fc, {blocks(2)});
  const launch_id last = b.issue({reads(2), overwrites(3)});
  CHECK(b.plan() == "evict 0+2, prefetch 3");
  b.map.arrive_empty(block_id{3});
  b.chooser->on_migrated(blocks(3), b.map.device(), b.map);
  CHECK(b.ready(last));
  b.finish();
  b.layer(1, layer_pass::backward);
  const launch_id back = b.issue({reads(2), reads(3)});
  CHECK(b.plan() == "evict 0+2");
  CHECK_FALSE(b.ready(back));
  (void)b.settle();
  CHECK(b.ready(back));
}

TEST_CASE("an activation in place that is issued late is copied again") {
  bench b("vdnn", deepum::offload::all);
  b.layer(0, layer_pass::forward, conv, {blocks(0)});
  b.run({overwrites(0)});
  const launch_id conv_launch = b.issue({reads(0), overwrites(2)});
  CHECK(b.settle() == "clean 0, prefetch 2");
  CHECK(b.ready(conv_launch));
  const launch_id relu = b.issue({updates(0)});
  CHECK(b.ready(relu));
  b.finish();
  b.finish();
  b.layer(1, layer_pass::forward, pool, {blocks(2)});
  (void)b.issue({reads(2)});
  CHECK(b.settle() == "evict 0; clean 2");
  CHECK(b.out == 3);  // 0 twice
}

TEST_CASE("where no home copy stays, inputs leave behind their layers, with a copy") {
  bench b("vdnn", deepum::offload::all, 64, false);
  b.layer(0, layer_pass::forward, conv, {blocks(0)});
  b.run({updates(0), overwrites(2)});
  b.layer(1, layer_pass::forward, pool, {blocks(2)});
  const launch_id next = b.issue({reads(2), overwrites(3)});
  CHECK_FALSE(b.ready(next));
  CHECK(b.settle() == "evict 0; prefetch 3");
  CHECK(b.ready(next));
}

// Layers 0 and 2 read blocks 0-1; layer 1 reads what layer 0 made.
void forked_forward(bench& b) {
  b.layer(0, layer_pass::forward, conv, {blocks(0, 2)});
  b.run({reads(0, 2), overwrites(2)});
  b.layer(1, layer_pass::forward, conv, {blocks(2)});
  b.run({reads(2), overwrites(3)});
  b.layer(2, layer_pass::forward, other, {blocks(0, 2), blocks(3)});
  b.run({reads(0, 2), reads(3), overwrites(4)});
  b.layer(3, layer_pass::forward, fc, {blocks(4)});
  b.run({reads(4), overwrites(5)});
}

TEST_CASE("an input of a fork stays until its last reader has run, and leaves then") {
  bench b("vdnn", deepum::offload::all);
  b.no_layer();
  b.run({overwrites(0, 2)});
  forked_forward(b);
  for (std::uint32_t l : {3, 2, 1, 0}) {
    b.layer(l, layer_pass::backward);
    b.run({reads(0, 2)});
  }
  (void)b.settle();
  const std::uint64_t in = b.in;
  const std::uint64_t out = b.out;
  b.no_layer();
  b.run({overwrites(0, 2)});
  b.layer(0, layer_pass::forward, conv, {blocks(0, 2)});
  b.run({reads(0, 2), overwrites(2)});
  b.layer(1, layer_pass::forward, conv, {blocks(2)});
  b.run({reads(2), overwrites(3)});
  CHECK(b.map.resident(block_id{0}));
  b.layer(2, layer_pass::forward, other, {blocks(0, 2), blocks(3)});
  b.run({reads(0, 2), reads(3), overwrites(4)});
  b.layer(3, layer_pass::forward, fc, {blocks(4)});
  b.run({reads(4), overwrites(5)});
  (void)b.settle();
  CHECK_FALSE(b.map.present(block_id{0}));
  CHECK(b.in == in);        // nothing came back in the forward pass
  CHECK(b.out - out == 4);  // each input once
}

TEST_CASE("the last layer keeps its input from the second step on") {
  bench b("vdnn", deepum::offload::all);
  const auto step = [&] {
    b.layer(0, layer_pass::forward, conv, {blocks(0)});
    b.run({overwrites(0), overwrites(1)});
    b.layer(1, layer_pass::forward, conv, {blocks(1)});
    b.run({reads(1), overwrites(2)});
    b.layer(2, layer_pass::forward, softmax, {blocks(2)});
    b.run({updates(2)});
    b.layer(2, layer_pass::backward);
    b.run({reads(2)});
    b.layer(1, layer_pass::backward);
    b.run({reads(1)});
    b.layer(0, layer_pass::backward);
    b.run({reads(0)});
    (void)b.settle();
  };
  step();
  CHECK(b.out == 2);
  step();
  CHECK(b.out == 3);
  step();
  CHECK(b.out == 4);
}

TEST_CASE("dead contents give their room up at once, and inputs that came back when the layer that made them is done") {
  bench b("vdnn", deepum::offload::all);
  forward(b);
  b.layer(3, layer_pass::backward);
  b.run({reads(5), overwrites(16)});
  b.make_dead(blocks(6));
  CHECK(b.settle() == "discard 6");
  b.layer(2, layer_pass::backward);
  b.run({reads(4), reads(9), reads(16), overwrites(17)});
  b.layer(1, layer_pass::backward);
  b.run({reads(2, 2), reads(4), reads(17), overwrites(18, 2)});
  CHECK(b.map.resident(block_id{4}));
  b.layer(0, layer_pass::backward);
  (void)b.issue({reads(0, 2), reads(8), reads(18, 2)});
  CHECK(b.settle().find("drop 4") != std::string::npos);
}

TEST_CASE("room is taken from inputs alone once a layer was named, and from anything before") {
  bench b("vdnn", deepum::offload::all);
  CHECK(b.chooser->gives_up(block_id{8}, b.map));
  forward(b);
  CHECK_FALSE(b.chooser->gives_up(block_id{8}, b.map));
  CHECK_FALSE(b.chooser->gives_up(block_id{5}, b.map));
  CHECK(b.chooser->gives_up(block_id{2}, b.map));
  CHECK(b.chooser->orders_launches());
}

TEST_CASE("a program that names no layer is served as by lru") {
  bench b("vdnn", deepum::offload::all, 4);
  bench same("lru", deepum::offload::all, 4);
  for (std::uint32_t i = 0; i != 8; ++i) {
    for (bench* each : {&b, &same}) {
      (void)each->issue({reads(2 * (i % 3), 2)});
    }
    CHECK(b.settle() == same.settle());
    b.finish();
    same.finish();
  }
}

TEST_CASE("a smaller budget takes inputs first") {
  bench b("vdnn", deepum::offload::none, 8);
  b.no_layer();
  b.run({overwrites(8, 2)});
  b.layer(0, layer_pass::forward, conv, {blocks(0, 2)});
  b.run({reads(0, 2), reads(8, 2), overwrites(2)});
  b.map.set_budget(4);
  CHECK(b.settle() == "evict 8");
  bench with_inputs("vdnn", deepum::offload::all, 8);
  with_inputs.layer(0, layer_pass::forward, conv, {blocks(0, 2)});
  with_inputs.run({reads(8, 2), overwrites(0, 2)});  // all of them as recently
  with_inputs.map.set_budget(3);
  CHECK(with_inputs.settle() == "clean 0+2, evict 0");
}

TEST_CASE("what was learned of a net is saved and loaded") {
  bench taught("vdnn_ext", deepum::offload::all);
  const auto step = [](bench& b) {
    b.no_layer();
    b.run({overwrites(0, 2)});
    forked_forward(b);
    for (std::uint32_t l : {3, 2, 1, 0}) {
      b.layer(l, layer_pass::backward);
      b.run({reads(0, 2)});
    }
    (void)b.settle();
  };
  step(taught);
  const std::vector<std::byte> tables = save_tables(*taught.chooser, um_grid.block());
  bench fresh("vdnn_ext", deepum::offload::all);
  load_tables(*fresh.chooser, tables, 64, um_grid.block());
  step(fresh);
  step(taught);
  bench untaught("vdnn_ext", deepum::offload::all);
  step(untaught);
  CHECK(fresh.in < untaught.in);  // the input of the fork does not leave and come back between its readers
  CHECK(save_tables(*fresh.chooser, um_grid.block()) == tables);

  bench other_choice("vdnn_ext", deepum::offload::conv);
  CHECK_THROWS_WITH_AS(load_tables(*other_choice.chooser, tables, 64, um_grid.block()),
                       doctest::Contains("another choice of layers"), error);
  bench other_policy("vdnn", deepum::offload::all);
  CHECK_THROWS_AS(load_tables(*other_policy.chooser, tables, 64, um_grid.block()), error);
}

TEST_CASE("layers of two streams run in the order of their first launches, and none waits for ever") {
  bench b("vdnn", deepum::offload::none);
  b.layer(0, layer_pass::forward, conv, {blocks(0)});
  const auto first = b.at;
  (void)b.issue({overwrites(0)}, 0);
  b.layer(1, layer_pass::forward, conv, {blocks(1)});
  const auto second = b.at;
  const launch_id other_stream = b.issue({overwrites(1)}, 1);
  (void)b.settle();
  CHECK_FALSE(b.ready(other_stream));
  b.finish();
  (void)b.settle();
  CHECK(b.ready(other_stream));
  b.at = first;
  const launch_id again = b.issue({updates(0)}, 0);  // of the layer that the other one has overtaken
  (void)b.settle();
  CHECK_FALSE(b.ready(again));
  b.finish();
  (void)b.settle();
  CHECK(b.ready(again));
}

}  // namespace vdnn_test
