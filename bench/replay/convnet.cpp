#include "replay/convnet.hpp"

#include "nlohmann/json.hpp"
#include "replay/convnet_times.hpp"

#include <algorithm>
#include <string>
#include <utility>

namespace deepum::replay {
namespace {

// Tensors: 0 the batch; for layer i from 8 (i + 1) on: Y, dY, W, dW, workspace forward, workspace backward.
constexpr std::int64_t per_layer = 8;
std::int64_t tensor_of(std::size_t layer, std::int64_t which) {
  return per_layer * (static_cast<std::int64_t>(layer) + 1) + which;
}
enum : std::int64_t { output, output_gradient, weights, weights_gradient, forward_workspace, backward_workspace };

class step_writer {
 public:
  step_writer(const convnet& net, std::uint32_t batch, const sim::profile& card, const choice_net& described,
              const chosen_algorithms& chosen)
      : net_(net),
        batch_(batch),
        card_(card),
        described_(described),
        chosen_(chosen) {
    made_.name = net.name + "_b" + std::to_string(batch) + "_" + card.name;
  }

  workload_description write() {
    add(0, described_.input, true);
    for (std::size_t i = 0; i != net_.layers.size(); ++i) {
      if (net_.layers[i].weights != 0) {
        add(tensor_of(i, weights), described_.layers[i].weights, true);
        add(tensor_of(i, weights_gradient), described_.layers[i].weights, true);
      }
      add(tensor_of(i, output), described_.layers[i].output, false);
      add(tensor_of(i, output_gradient), described_.layers[i].output, false);
      const bytes forward = workspace(i, convolution_part::forward);
      const bytes backward =
          std::max(workspace(i, convolution_part::backward_data), workspace(i, convolution_part::backward_filter));
      if (forward.count != 0) {
        add(tensor_of(i, forward_workspace), forward, false);
      }
      if (backward.count != 0) {
        add(tensor_of(i, backward_workspace), backward, false);
      }
    }
    for (std::size_t i = 0; i != net_.layers.size(); ++i) {
      forward(i);
    }
    for (std::size_t i = net_.layers.size(); i-- > 0;) {
      backward(i);
    }
    update();
    return std::move(made_);
  }

 private:
  void add(std::int64_t id, bytes size, bool persistent) {
    made_.tensors.push_back({.id = id, .size = size, .address = {}, .persistent = persistent, .freed_after = {}});
  }
  [[nodiscard]] const layer_algorithm* algorithm(std::size_t i, convolution_part part) const {
    const auto& found = described_.layers[i].algorithms[static_cast<std::size_t>(part)];
    return found.empty() ? nullptr : &found[chosen_[i][static_cast<std::size_t>(part)]];
  }
  [[nodiscard]] bytes workspace(std::size_t i, convolution_part part) const {
    const layer_algorithm* const a = algorithm(i, part);
    return a == nullptr ? bytes{} : a->workspace;
  }
  [[nodiscard]] std::vector<std::int64_t> inputs(std::size_t i) const {
    std::vector<std::int64_t> all;
    for (const std::size_t from : net_.layers[i].reads) {
      all.push_back(tensor_of(from, output));
    }
    return all.empty() ? std::vector<std::int64_t>{0} : all;
  }
  [[nodiscard]] double maps(std::size_t i) const {
    const double in = static_cast<double>(input_elements(net_, i)) *
                      static_cast<double>(std::max<std::size_t>(1, net_.layers[i].reads.size()));
    return element * batch_ * (in + static_cast<double>(net_.layers[i].elements()));
  }
  void launch(std::string kernel, nanoseconds time, std::vector<std::int64_t> in, std::vector<std::int64_t> out,
              std::optional<described_layer> layer) {
    made_.launches.push_back({.kernel = std::move(kernel),
                              .duration = time,
                              .in = std::move(in),
                              .out = std::move(out),
                              .blocks = {},
                              .layer = std::move(layer)});
  }

  void forward(std::size_t i) {
    const convnet_layer& l = net_.layers[i];
    const described_layer layer{
        .number = static_cast<std::uint32_t>(i), .pass = layer_pass::forward, .kind = l.kind, .input = inputs(i)};
    std::vector<std::int64_t> in = inputs(i);
    std::vector<std::int64_t> out{tensor_of(i, output)};
    if (l.weights != 0) {
      in.push_back(tensor_of(i, weights));
    }
    if (const layer_algorithm* const a = algorithm(i, convolution_part::forward)) {
      if (a->workspace.count != 0) {
        out.push_back(tensor_of(i, forward_workspace));
      }
      launch(l.name + "_forward", a->time, in, out, layer);
    } else {
      launch(l.name + "_forward", other_time(i, 1), in, out, layer);
    }
    const bool activated = l.kind == layer_kind::conv || (l.kind == layer_kind::fc && i + 2 < net_.layers.size());
    if (activated) {  // in place
      launch(l.name + "_relu", activation_time(i), out_alone(i), out_alone(i), layer);
    }
  }
  void backward(std::size_t i) {
    const convnet_layer& l = net_.layers[i];
    const described_layer layer{
        .number = static_cast<std::uint32_t>(i), .pass = layer_pass::backward, .kind = l.kind, .input = {}};
    const std::int64_t dy = tensor_of(i, output_gradient);
    std::vector<std::int64_t> dx;
    for (const std::size_t from : l.reads) {
      dx.push_back(tensor_of(from, output_gradient));
    }
    if (l.kind == layer_kind::softmax) {
      launch(l.name + "_backward", other_time(i, 1), {tensor_of(i, output)}, {dy}, layer);
      launch(l.name + "_backward_data", other_time(i, 1), {dy}, dx, layer);
      return;
    }
    if (l.kind == layer_kind::conv || l.kind == layer_kind::fc) {
      if (l.kind == layer_kind::conv || i + 2 < net_.layers.size()) {
        launch(l.name + "_relu_backward", activation_time(i), {tensor_of(i, output), dy}, {dy}, layer);
      }
      const bool conv = l.kind == layer_kind::conv;
      std::vector<std::int64_t> in = inputs(i);
      in.push_back(dy);
      std::vector<std::int64_t> out{tensor_of(i, weights_gradient)};
      add_workspace(i, convolution_part::backward_filter, out);
      launch(l.name + "_backward_filter",
             conv ? algorithm(i, convolution_part::backward_filter)->time : other_time(i, 1), in, out, layer);
      if (!dx.empty()) {
        out = dx;
        in = {tensor_of(i, weights), dy};
        add_read(dx, in);
        add_workspace(i, convolution_part::backward_data, out);
        launch(l.name + "_backward_data", conv ? algorithm(i, convolution_part::backward_data)->time : other_time(i, 1),
               in, out, layer);
      }
      return;
    }
    std::vector<std::int64_t> in = inputs(i);
    if (l.kind == layer_kind::pool) {
      in.push_back(tensor_of(i, output));
    }
    in.push_back(dy);
    std::vector<std::int64_t> out = dx;
    add_read(dx, in);
    launch(l.name + "_backward", other_time(i, 2), in, out, layer);
  }
  // Gradients that a later layer has begun are added to.
  void add_read(const std::vector<std::int64_t>& gradients, std::vector<std::int64_t>& in) {
    for (const std::int64_t g : gradients) {
      if (std::find(begun_.begin(), begun_.end(), g) != begun_.end()) {
        in.push_back(g);
      } else {
        begun_.push_back(g);
      }
    }
  }
  [[nodiscard]] std::vector<std::int64_t> out_alone(std::size_t i) const { return {tensor_of(i, output)}; }
  void add_workspace(std::size_t i, convolution_part part, std::vector<std::int64_t>& out) const {
    if (workspace(i, part).count != 0) {
      out.push_back(tensor_of(i, backward_workspace));
    }
  }
  // Of a layer that is no convolution: the maps, so many times, and the weights.
  [[nodiscard]] nanoseconds other_time(std::size_t i, double times) const {
    const convnet_layer& l = net_.layers[i];
    const double flops = l.kind == layer_kind::fc ? 2.0 * static_cast<double>(l.weights) * batch_ : 0;
    return roofline(flops, precomputed_gemm.small_filter, times * maps(i) + element * static_cast<double>(l.weights),
                    card_);
  }
  [[nodiscard]] nanoseconds activation_time(std::size_t i) const {
    return roofline(0, 1, element * 2 * batch_ * static_cast<double>(net_.layers[i].elements()), card_);
  }
  void update() {
    for (std::size_t i = 0; i != net_.layers.size(); ++i) {
      if (const std::uint64_t count = net_.layers[i].weights; count != 0) {
        launch(net_.layers[i].name + "_update", roofline(0, 1, element * 3 * static_cast<double>(count), card_),
               {tensor_of(i, weights), tensor_of(i, weights_gradient)}, {tensor_of(i, weights)}, {});
      }
    }
  }

  const convnet& net_;
  std::uint32_t batch_;
  const sim::profile& card_;
  const choice_net& described_;
  const chosen_algorithms& chosen_;
  workload_description made_{};
  std::vector<std::int64_t> begun_{};  // gradients
};

}  // namespace

workload_description make_step(const convnet& net, std::uint32_t batch, const sim::profile& card,
                               const choice_net& described, const chosen_algorithms& chosen) {
  return step_writer(net, batch, card, described, chosen).write();
}

std::string to_text(const workload_description& step) {
  std::string text = nlohmann::json{{"deepum_workload", 1},
                                    {"name", step.name},
                                    {"kernels", step.launches.size()},
                                    {"tensors", step.tensors.size()},
                                    {"source", "layer times by roofline"}}
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
