#pragma once

#include "nlohmann/json.hpp"
#include <deepum/deepum.hpp>
#include <deepum/trace.hpp>

#include <doctest/doctest.h>

#include <cstdint>
#include <map>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

namespace trace_bench_of_tests {

using namespace deepum;
using namespace deepum::literals;
using kind = device_event::kind;
using json = nlohmann::json;

inline nanoseconds us(std::int64_t n) { return nanoseconds{1000 * n}; }
inline block_range blocks(std::uint32_t first, std::uint32_t count = 1) { return {block_id{first}, count}; }

struct recorder {
  trace made;

  explicit recorder(trace_options options = {}) : made(std::move(options)) {}

  void issue(std::uint64_t id, const std::string& name, std::uint16_t stream, nanoseconds at = {}) {
    const launch_record record{.id = launch_id{id}, .stream = stream_id{stream}, .name = name};
    made.see({.what = kind::launch_issued, .at = at, .record = &record, .block = block_size}, launch_id{id});
  }
  void finish(std::uint64_t id, nanoseconds began, nanoseconds at, nanoseconds stalled = {}) {
    made.see({.what = kind::launch_finished,
              .timed = began != nanoseconds{},
              .launch = launch_id{id},
              .at = at,
              .began = began,
              .stalled = stalled},
             launch_id{id});
  }
  void move(kind what, block_range range, nanoseconds began, nanoseconds at, reason why = reason::predicted,
            transfer did = transfer::prefetch(location::device(), reason::predicted), std::uint64_t ticket = 1) {
    made.see({.what = what,
              .why = why,
              .range = range,
              .at = at,
              .began = began,
              .ticket = ticket,
              .did = did,
              .block = block_size},
             {});
  }

  [[nodiscard]] std::string text() const {
    const trace* const one = &made;
    std::ostringstream out;
    trace::write(out, {&one, 1});
    return out.str();
  }
  [[nodiscard]] std::vector<json> events() const { return json::parse(text())["traceEvents"]; }
  [[nodiscard]] std::vector<json> events(const std::string& category) const {
    std::vector<json> chosen;
    for (const json& e : events()) {
      if (e.value("cat", "") == category) chosen.push_back(e);
    }
    return chosen;
  }
  [[nodiscard]] std::vector<std::uint64_t> residency() const {
    std::vector<std::uint64_t> bytes;
    for (const json& e : events()) {
      if (e["ph"] == "C") bytes.push_back(e["args"]["bytes"]);
    }
    return bytes;
  }
};

/// What viewers need of an event, and that slices of a row do not overlap.
inline void check_viewable(const std::vector<json>& events) {
  std::map<std::pair<int, int>, double> ends;
  for (const json& e : events) {
    CAPTURE(e.dump());
    const std::string phase = e["ph"];
    CHECK((phase == "X" || phase == "C" || phase == "i" || phase == "M"));
    CHECK(e["pid"].is_number_integer());
    CHECK(e["tid"].is_number_integer());
    CHECK(e["name"].is_string());
    if (phase == "M") continue;
    CHECK(e["ts"].get<double>() >= 0);
    if (phase == "i") CHECK(e["s"] == "t");
    if (phase == "X") {
      CHECK(e["dur"].get<double>() >= 0);
      double& end = ends[{e["pid"].get<int>(), e["tid"].get<int>()}];
      CHECK(e["ts"].get<double>() >= end - 0.0005);
      end = e["ts"].get<double>() + e["dur"].get<double>();
    }
  }
}

}  // namespace trace_bench_of_tests
