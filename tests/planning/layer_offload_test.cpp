#include <deepum/planning/layer_offload.hpp>

#include <doctest/doctest.h>

#include <optional>
#include <string>
#include <vector>

namespace layer_offload_test {

using namespace deepum;
using enum layer_kind;

const std::vector<layer_kind> alexnet{conv, pool, conv, pool, conv, conv, conv, pool, fc, fc, fc, softmax};

std::string leaving(offload chosen, const std::vector<layer_kind>& net) {
  std::string text;
  for (const bool leaves : offloaded_layers(chosen, net)) {
    text += leaves ? '1' : '0';
  }
  return text;
}

TEST_CASE("the inputs of convolutions leave, of all layers, of every other convolution, or none") {
  CHECK(leaving(offload::none, alexnet) == "000000000000");
  CHECK(leaving(offload::conv, alexnet) == "101011100000");
  CHECK(leaving(offload::all, alexnet) == "111111110000");
  CHECK(leaving(offload::alternate_conv, alexnet) == "100010100000");
}

TEST_CASE("activations, softmax and fully connected layers keep their inputs; normalisation and additions do not") {
  CHECK(leaving(offload::all, {conv, activation, other, fc, softmax}) == "10100");
}

TEST_CASE("the last layer that is neither softmax nor activation keeps its input: it would come straight back") {
  CHECK(leaving(offload::all, {conv, conv, pool, activation, softmax}) == "11000");
  CHECK(leaving(offload::conv, {pool, conv, softmax}) == "000");
  CHECK(leaving(offload::all, {softmax}) == "0");
  CHECK(leaving(offload::all, {}).empty());
}

TEST_CASE("every choice has a word") {
  for (const std::string_view word : offload_names) {
    REQUIRE(try_parse_offload(word));
    CHECK(to_string(*try_parse_offload(word)) == word);
  }
  CHECK_FALSE(try_parse_offload("All"));
  CHECK_FALSE(try_parse_offload(""));
}

std::vector<layer_mark> marked(offload chosen, const std::vector<layer_kind>& net) {
  std::vector<layer_mark> marks;
  const std::vector<bool> leaves = offloaded_layers(chosen, net);
  for (std::size_t i = 0; i != net.size(); ++i) {
    marks.push_back({.kind = net[i], .offloaded = leaves[i]});
  }
  return marks;
}
// For each layer, last one first, the one that comes back beside it; -1: none.
std::vector<int> walked(offload chosen, const std::vector<layer_kind>& net) {
  std::vector<layer_mark> marks = marked(chosen, net);
  std::vector<int> chosen_beside;
  for (std::size_t i = net.size(); i-- > 0;) {
    const std::optional<std::size_t> found = find_prefetch_layer(marks, i);
    chosen_beside.push_back(found ? static_cast<int>(*found) : -1);
  }
  return chosen_beside;
}

TEST_CASE("the walk chooses one input a layer, the nearest that has not come, and none beyond a convolution") {
  // Beside softmax the pool's, beside fc8 the last convolution's; beside fc7 that one ends the walk.
  CHECK(walked(offload::all, alexnet) == std::vector<int>{7, 6, -1, -1, -1, 5, 4, 3, 2, 1, 0, -1});
}

TEST_CASE("where convolutions alone leave, pools are passed over, and start none of their own") {
  CHECK(walked(offload::conv, alexnet) == std::vector<int>{6, -1, -1, -1, -1, 5, 4, 2, -1, 0, -1, -1});
}

TEST_CASE("a convolution that keeps its input ends the walk") {
  CHECK(walked(offload::alternate_conv, {conv, conv, conv, conv, pool, fc}) == std::vector<int>{-1, -1, 2, -1, 0, -1});
  CHECK(walked(offload::none, alexnet) == std::vector<int>(12, -1));
}

}  // namespace layer_offload_test
