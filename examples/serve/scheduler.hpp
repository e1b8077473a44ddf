#pragma once

#include "generation.hpp"
#include "request_queue.hpp"
#include "sampler.hpp"
#include "server_metrics.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace serve {

using generation_ptr = std::shared_ptr<generation>;
using generation_queue = request_queue<generation_ptr>;

/// Writes the texts of all requests, a byte of each in turn. The one thread that runs it is the only user of the
/// models.
///
/// In each round every text of one model gets a byte, then every text of the next model, so that the weights of a model
/// have to be on the device once for all its texts. Texts have nothing in common but the weights: which others are
/// written beside it, and in which order, does not change a text.
/// @tparam Models  `count()`, `context()`, and `predict(model, tokens)`: the logits of the byte that follows 1 to
///                 `context()` others, which depend on those alone.
template <class Models>
class scheduler {
 public:
  /// @param active  Texts that are written at once, at most; the others wait in the queue.
  scheduler(Models& models, generation_queue& queue, std::size_t active, server_metrics& metrics)
      : models_(models),
        queue_(queue),
        most_active_(active),
        metrics_(metrics) {
    tokens_.reserve(models.context());
  }

  /// Returns when the queue is closed and all that was in it has ended.
  void run() {
    while (admit()) {
      for (std::size_t model = 0; model < models_.count(); ++model) {
        for (text& t : active_) {
          if (t.of->request().model == model) go_on_with(t);
        }
      }
      std::erase_if(active_, [](const text& t) { return t.of->ended(); });
    }
  }

 private:
  struct text {
    generation_ptr of;
    sampler draws;
    std::string seen;  // the end of the text so far, as much as the model looks at
    std::int64_t left;
  };

  // Waits for a text where there is none. Whether there is one to go on with.
  bool admit() {
    queue_.remove_if([](const generation_ptr& g) { return is_over(*g); });
    while (active_.size() < most_active_) {
      std::optional<generation_ptr> next = active_.empty() ? queue_.pop() : queue_.try_pop();
      if (!next) break;
      if (is_over(**next)) continue;
      const generate_request& r = (*next)->request();
      metrics_.began(wall_clock::now() - (*next)->began());
      active_.push_back({.of = *next,
                         .draws = sampler(r.seed, r.temperature),
                         .seen = r.prompt.substr(r.prompt.size() - std::min(r.prompt.size(), models_.context())),
                         .left = r.tokens});
    }
    return !active_.empty();
  }

  // Ends what has no time left.
  static bool is_over(generation& g) {
    if (wall_clock::now() >= g.deadline()) g.end(outcome::timed_out);
    return g.ended();
  }

  void go_on_with(text& t) {
    if (is_over(*t.of)) return;
    const std::size_t model = t.of->request().model;
    if (model != last_model_) metrics_.changed_model();
    last_model_ = model;
    // At the same address each time: a launch that reads it is then one that the policy knows.
    tokens_.clear();
    for (const char c : t.seen)
      tokens_.push_back(static_cast<unsigned char>(c));
    std::size_t byte = 0;
    try {
      byte = t.draws.draw(models_.predict(model, tokens_));
    } catch (const std::exception& e) {
      t.of->end(outcome::failed, e.what());
      return;
    }
    if (t.seen.size() == models_.context()) t.seen.erase(0, 1);
    t.seen.push_back(static_cast<char>(byte));
    metrics_.token(model);
    t.of->append(printable(static_cast<char>(byte)));
    if (--t.left == 0) t.of->end(outcome::finished);
  }

  // The model writes bytes, and the answer is text.
  static char printable(char c) { return c == '\n' || (c >= ' ' && c <= '~') ? c : ' '; }

  Models& models_;
  generation_queue& queue_;
  const std::size_t most_active_;
  server_metrics& metrics_;
  std::vector<text> active_{};
  std::vector<std::int32_t> tokens_{};
  std::size_t last_model_ = SIZE_MAX;
};

}  // namespace serve
