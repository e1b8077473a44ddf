#include "replay/convnet_step.hpp"

#include "nlohmann/json.hpp"

#include <algorithm>
#include <string>
#include <utility>

namespace deepum::replay {
namespace {

bytes in_bytes(std::uint64_t elements) { return bytes{elements * sizeof(float)}; }

class step_writer {
 public:
  step_writer(const convnet& net, const choice_net& choice, const chosen_algorithms& chosen)
      : net_(net),
        choice_(choice),
        chosen_(chosen) {}

  convnet_step write(const std::string& name) {
    made_.described.name = name;
    add(convnet_batch, choice_.input, true);
    for (std::size_t i = 0; i != net_.layers.size(); ++i) {
      if (net_.layers[i].weights != 0) {
        add(tensor(i, convnet_tensor::weights), in_bytes(net_.layers[i].weights), true);
        add(tensor(i, convnet_tensor::weights_gradient), in_bytes(net_.layers[i].weights), true);
      }
      add(output(i), choice_.layers[i].output, false);
      add(gradient(i), choice_.layers[i].output, false);
      const bytes forward = workspace(i, convolution_part::forward);
      const bytes backward =
          std::max(workspace(i, convolution_part::backward_data), workspace(i, convolution_part::backward_filter));
      if (forward.count != 0) {
        add(tensor(i, convnet_tensor::forward_workspace), forward, false);
      }
      if (backward.count != 0) {
        add(tensor(i, convnet_tensor::backward_workspace), backward, false);
      }
    }
    for (std::size_t i = 0; i != net_.layers.size(); ++i) {
      go_forward(i);
    }
    for (std::size_t i = net_.layers.size(); i-- > 0;) {
      go_backward(i);
    }
    for (std::size_t i = 0; i != net_.layers.size(); ++i) {
      if (net_.layers[i].weights != 0) {
        const std::int64_t w = tensor(i, convnet_tensor::weights);
        launch(convnet_work::update, i, "_update", {w, tensor(i, convnet_tensor::weights_gradient)}, {w}, {});
      }
    }
    return std::move(made_);
  }

 private:
  static std::int64_t tensor(std::size_t layer, convnet_tensor which) { return convnet_tensor_of(layer, which); }
  static std::int64_t output(std::size_t layer) { return tensor(layer, convnet_tensor::output); }
  static std::int64_t gradient(std::size_t layer) { return tensor(layer, convnet_tensor::output_gradient); }
  void add(std::int64_t id, bytes size, bool persistent) {
    made_.described.tensors.push_back(
        {.id = id, .size = size, .address = {}, .persistent = persistent, .freed_after = {}});
  }
  [[nodiscard]] std::optional<layer_algorithm> algorithm(std::size_t i, convolution_part part) const {
    const auto& found = choice_.layers[i].algorithms[static_cast<std::size_t>(part)];
    return found.empty() ? std::nullopt : std::optional(found[chosen_[i][static_cast<std::size_t>(part)]]);
  }
  [[nodiscard]] bytes workspace(std::size_t i, convolution_part part) const {
    const std::optional<layer_algorithm> a = algorithm(i, part);
    return a ? a->workspace : bytes{};
  }
  [[nodiscard]] std::vector<std::int64_t> inputs(std::size_t i) const {
    std::vector<std::int64_t> all;
    for (const std::size_t from : net_.layers[i].reads) {
      all.push_back(output(from));
    }
    return all.empty() ? std::vector<std::int64_t>{convnet_batch} : all;
  }
  void launch(convnet_work what, std::size_t i, const char* name, std::vector<std::int64_t> in,
              std::vector<std::int64_t> out, std::optional<described_layer> layer,
              std::optional<layer_algorithm> algorithm = {}) {
    made_.launches.push_back({what, i});
    made_.algorithms.push_back(algorithm);
    made_.described.launches.push_back({.kernel = net_.layers[i].name + name,
                                        .duration = {},
                                        .in = std::move(in),
                                        .out = std::move(out),
                                        .blocks = {},
                                        .layer = std::move(layer)});
  }

  void go_forward(std::size_t i) {
    const convnet_layer& l = net_.layers[i];
    const described_layer layer{
        .number = static_cast<std::uint32_t>(i), .pass = layer_pass::forward, .kind = l.kind, .input = inputs(i)};
    std::vector<std::int64_t> in = inputs(i);
    std::vector<std::int64_t> out{output(i)};
    if (l.weights != 0) {
      in.push_back(tensor(i, convnet_tensor::weights));
    }
    if (workspace(i, convolution_part::forward).count != 0) {
      out.push_back(tensor(i, convnet_tensor::forward_workspace));
    }
    launch(convnet_work::forward, i, "_forward", in, out, layer, algorithm(i, convolution_part::forward));
    if (net_.activates(i)) {
      launch(convnet_work::activation, i, "_relu", {output(i)}, {output(i)}, layer);
    }
  }
  void go_backward(std::size_t i) {
    const convnet_layer& l = net_.layers[i];
    const described_layer layer{
        .number = static_cast<std::uint32_t>(i), .pass = layer_pass::backward, .kind = l.kind, .input = {}};
    const std::int64_t dy = gradient(i);
    std::vector<std::int64_t> dx;
    dx.reserve(l.reads.size());
    for (const std::size_t from : l.reads) {
      dx.push_back(gradient(from));
    }
    if (l.kind == layer_kind::softmax) {
      launch(convnet_work::loss_gradient, i, "_backward", {output(i)}, {dy}, layer);
      launch(convnet_work::data_gradient, i, "_backward_data", {dy}, dx, layer);
      return;
    }
    if (net_.activates(i)) {
      launch(convnet_work::activation_gradient, i, "_relu_backward", {output(i), dy}, {dy}, layer);
    }
    if (l.weights != 0) {
      std::vector<std::int64_t> in = inputs(i);
      in.push_back(dy);
      std::vector<std::int64_t> out{tensor(i, convnet_tensor::weights_gradient)};
      add_workspace(i, convolution_part::backward_filter, out);
      launch(convnet_work::filter_gradient, i, "_backward_filter", in, out, layer,
             algorithm(i, convolution_part::backward_filter));
      if (!dx.empty()) {
        out = dx;
        in = {tensor(i, convnet_tensor::weights), dy};
        add_begun(dx, in);
        add_workspace(i, convolution_part::backward_data, out);
        launch(convnet_work::data_gradient, i, "_backward_data", in, out, layer,
               algorithm(i, convolution_part::backward_data));
      }
      return;
    }
    std::vector<std::int64_t> in = inputs(i);
    if (l.kind == layer_kind::pool) {
      in.push_back(output(i));
    }
    in.push_back(dy);
    add_begun(dx, in);
    launch(convnet_work::gradient, i, "_backward", in, dx, layer);
  }
  // Gradients that a later layer has begun are added to.
  void add_begun(const std::vector<std::int64_t>& gradients, std::vector<std::int64_t>& in) {
    for (const std::int64_t g : gradients) {
      if (std::find(begun_.begin(), begun_.end(), g) != begun_.end()) {
        in.push_back(g);
      } else {
        begun_.push_back(g);
      }
    }
  }
  void add_workspace(std::size_t i, convolution_part part, std::vector<std::int64_t>& out) const {
    if (workspace(i, part).count != 0) {
      out.push_back(tensor(i, convnet_tensor::backward_workspace));
    }
  }

  const convnet& net_;
  const choice_net& choice_;
  const chosen_algorithms& chosen_;
  convnet_step made_{};
  std::vector<std::int64_t> begun_{};  // gradients
};

}  // namespace

choice_net describe(const convnet& net, std::uint32_t batch, bytes block,
                    const std::function<std::vector<layer_algorithm>(std::size_t, convolution_part)>& found) {
  choice_net made{.input = in_bytes(std::uint64_t{3} * net.side * net.side * batch), .layers = {}, .block = block};
  bytes small{};  // weights that share blocks: they are taken for those of the first layer
  for (std::size_t i = 0; i != net.layers.size(); ++i) {
    const convnet_layer& l = net.layers[i];
    const bytes weights = in_bytes(l.weights);
    small += weights < block ? weights : bytes{};
    choice_layer c{.kind = l.kind,
                   .output = in_bytes(l.elements() * batch),
                   .weights = weights < block ? bytes{} : weights,
                   .reads = l.reads,
                   .algorithms = {}};
    for (std::size_t part = 0; l.kind == layer_kind::conv && part != convolution_parts; ++part) {
      c.algorithms[part] = found(i, static_cast<convolution_part>(part));
    }
    made.layers.push_back(std::move(c));
  }
  made.layers.front().weights += small;
  return made;
}

chosen_algorithms choose_algorithms(const choice_net& net, bool fastest) {
  chosen_algorithms chosen(net.layers.size());
  for (std::size_t i = 0; i != net.layers.size(); ++i) {
    for (std::size_t part = 0; part != convolution_parts; ++part) {
      const std::vector<layer_algorithm>& found = net.layers[i].algorithms[part];
      chosen[i][part] =
          found.empty() ? 0 : detail::best_algorithm(found, fastest ? detail::is_faster : detail::is_smaller);
    }
  }
  return chosen;
}

convnet_step make_step(const convnet& net, const std::string& name, const choice_net& choice,
                       const chosen_algorithms& chosen) {
  return step_writer(net, choice, chosen).write(name);
}

std::string to_text(const workload_description& step, const std::string& source) {
  std::string text = nlohmann::json{{"deepum_workload", 1},
                                    {"name", step.name},
                                    {"kernels", step.launches.size()},
                                    {"tensors", step.tensors.size()},
                                    {"source", source}}
                         .dump() +
                     "\n";
  for (const described_tensor& t : step.tensors) {
    nlohmann::json line{{"tensor", t.id}, {"bytes", t.size.count}};
    if (t.persistent) {
      line["persistent"] = true;
    }
    text += line.dump() + "\n";
  }
  for (const described_launch& l : step.launches) {
    nlohmann::json line{{"kernel", l.kernel}, {"ns", l.duration.count()}, {"in", l.in}, {"out", l.out}};
    if (l.layer) {
      line["layer"] = {
          {"number", l.layer->number}, {"pass", to_string(l.layer->pass)}, {"kind", to_string(l.layer->kind)}};
      if (!l.layer->input.empty()) {
        line["layer"]["input"] = l.layer->input;
      }
    }
    text += line.dump() + "\n";
  }
  return text;
}

}  // namespace deepum::replay
