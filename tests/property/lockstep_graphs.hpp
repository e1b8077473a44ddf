#pragma once

#include "property/lockstep_sides.hpp"
#include "property/lockstep_step.hpp"
#include "property/lockstep_verdicts.hpp"
#include "property/lockstep_world.hpp"
#include "property/shadow.hpp"

#include <algorithm>
#include <utility>
#include <vector>

namespace deepum_test {

/// The graphs of a program in lockstep, on machines that have some.
template <class Machine>
class lockstep_graphs {
 public:
  using kind = step::kind;
  using stream_type = typename lockstep_sides<Machine>::stream_type;
  using expectation = typename lockstep_verdicts<Machine>::expectation;

  /// All outlive it.
  lockstep_graphs(lockstep_sides<Machine>& sides, lockstep_verdicts<Machine>& verdicts)
      : sides_(sides),
        verdicts_(verdicts) {}

  /// Does a step that records, launches or drops a graph.
  void take(const step& s) {
    if constexpr (requires(stream_type& t) { t.record_graph("", [] {}); }) {
      if (s.what == kind::record_graph) {
        record(s);
      } else if (s.what == kind::launch_graph) {
        launch(s);
      } else {
        sides_.synchronize();
        graphs_.erase(graphs_.begin() + s.value);
        sides_.world.graphs.erase(sides_.world.graphs.begin() + s.value);
      }
    }
  }
  void clear() {
    graphs_.clear();
    sides_.world.graphs.clear();
  }

 private:
  void record(const step& s) {
    const shadow& m = sides_.world.memory;
    lockstep_world::graph g;
    g.inner = s.inner;
    g.stream = s.stream;
    (void)verdicts_.attempt({.may_lack_space = true}, false, [&] {
      graphs_.push_back(sides_.streams[s.stream]->record_graph("graph", [&] {
        for (const step& i : s.inner) {
          bool enqueued = false;
          sides_.launcher.launch(*sides_.streams[s.stream], sides_.libraries[s.stream].get(), i, m.operands(i),
                                 enqueued);
        }
      }));
    });
    if (graphs_.size() == sides_.world.graphs.size()) {
      return;  // a library found no room for its scratch memory
    }
    for (const step& i : s.inner) {
      g.operands.push_back(m.operands(i));
      for (const shadow::named& o : g.operands.back()) {
        g.generations.push_back(m.of(o.what).generation);
      }
    }
    sides_.world.graphs.push_back(std::move(g));
  }
  void launch(const step& s) {
    shadow& m = sides_.world.memory;
    const lockstep_world::graph& g = sides_.world.graphs[s.value];
    expectation e;
    e.refused = sides_.world.lost_memory(g);
    std::vector<piece> used;
    std::vector<shadow::named> all;
    for (std::size_t i = 0; i < g.inner.size() && !e.refused; ++i) {
      const std::vector<piece> more = shadow::pieces(g.operands[i]);
      used.insert(used.end(), more.begin(), more.end());
      all.insert(all.end(), g.operands[i].begin(), g.operands[i].end());
    }
    e.refused = e.refused || m.reads_given_up(all);
    const bool scratch =
        std::any_of(g.inner.begin(), g.inner.end(), [](const step& i) { return i.what == kind::scratch; });
    e = verdicts_.expected(used, e.refused, scratch);
    stream_type& stream = e.refused ? *sides_.streams[s.stream] : sides_.behind(s.stream, used);
    const bool fails = !e.refused && s.ends == step::ending::device_refuses && sides_.machine.refuse(s);
    const bool made = verdicts_.attempt(e, fails, [&] { stream.launch(graphs_[s.value]); });
    if (fails) {
      sides_.machine.relent();
    }
    if (made) {
      for (std::size_t i = 0; i < g.inner.size(); ++i) {
        m.declare(g.operands[i]);
        m.compute(g.inner[i]);
      }
    } else if (!e.refused) {
      verdicts_.use_again(all);
    }
  }

  struct nothing {};
  template <class Stream, bool Has>
  struct graph_of {
    using type = nothing;
  };
  template <class Stream>
  struct graph_of<Stream, true> {
    using type = decltype(std::declval<Stream&>().record_graph("", [] {}));
  };
  using graph_type = typename graph_of<stream_type, requires(stream_type& s) { s.record_graph("", [] {}); }>::type;

  lockstep_sides<Machine>& sides_;
  lockstep_verdicts<Machine>& verdicts_;
  std::vector<graph_type> graphs_{};
};

}  // namespace deepum_test
