#pragma once

#include <deepum/core/json_text.hpp>
#include <deepum/core/location.hpp>
#include <deepum/core/transfer.hpp>
#include <deepum/engine/statistics.hpp>
#include <deepum/units.hpp>

#include <array>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>

namespace deepum {
inline namespace v0 {

/// A label that every sample of an exposition gets, such as {"arena", "weights"}. The name is a letter, then letters,
/// digits and underscores.
struct metric_label {
  std::string_view name;
  std::string_view value;
};

namespace detail {

/// A number of `statistics`, as both formats name it.
struct metric {
  std::string_view name;  // with its unit at the end, where it has one
  std::string_view unit;  // of OpenMetrics; empty: none
  std::string_view help;
  std::uint64_t value = 0;
  bool level = false;  // else it only grows
};

[[nodiscard]] inline std::array<metric, 24> metrics_of(const statistics& s) {
  const policy_statistics& p = s.policy;
  return {{
      {"launches", "", "Launches that were issued.", s.launches},
      {"launches_finished", "", "Launches that finished.", s.finished},
      {"launches_refused", "", "Launches that were issued and refused: they can never begin.", s.refused_launches},
      {"faults", "", "Page faults that the device reported.", s.faults},
      {"faults_lost", "", "Page faults that happened and were not reported.", s.lost_faults},
      {"read_in_place_bytes", "bytes", "Rows that launches read on the host, as far as they said.", s.read_in_place},
      {"written_in_place_bytes", "bytes", "Rows that launches wrote on the host, as far as they said.",
       s.written_in_place},
      {"discarded_blocks", "blocks", "Blocks whose contents a fact said were dead.", s.discarded},
      {"prefetches_used_blocks", "blocks", "Prefetched blocks that a launch used.", s.prefetches_used},
      {"prefetches_late_blocks", "blocks", "Blocks that faulted while their prefetch was under way.",
       s.prefetches_late},
      {"prefetches_wasted_blocks", "blocks", "Prefetched blocks that left unused.", s.prefetches_wasted},
      {"prefetches_cancelled_blocks", "blocks", "Prefetches that were planned and never issued.",
       s.prefetches_cancelled},
      {"failed_calls", "", "Device calls and commands that failed.", s.failed_calls},
      {"refused_blocks", "blocks", "Blocks that a policy wanted given up without a fact to allow it.", s.refused},
      {"dropped_blocks", "blocks", "Blocks of commands that could not be carried out.", s.dropped},
      {"launches_unprepared", "", "Launches that began without what they miss.", s.unprepared_launches},
      {"launches_oversized", "", "Launches that declared more than the budget.", s.oversized_launches},
      {"uploads", "", "Uploads that began.", s.uploads},
      {"uploaded_blocks", "blocks", "Blocks that uploads wrote in host memory.", s.uploaded},
      {"launches_predicted", "", "Launches that the one before them had predicted.", p.predicted},
      {"launches_mispredicted", "", "Launches for which another one was predicted.", p.mispredicted},
      {"shared_blocks", "blocks", "Blocks of layers' inputs that stay, because other memory lies in them.",
       p.shared_blocks},
      {"table_bytes", "bytes", "Memory of the policy's tables.", p.table_bytes, true},
      {"execution_ids", "", "Execution IDs that the policy knows.", p.execution_ids, true},
  }};
}

/// Seconds with all nine digits, so that nothing is rounded.
[[nodiscard]] inline std::string seconds_text(nanoseconds t) { return decimal_text(t.count(), 9); }

/// A label's value in quotes, as OpenMetrics escapes it. Bytes that are no UTF-8 become U+FFFD.
inline void append_label(std::string& out, std::string_view name, std::string_view value) {
  out += name;
  out += "=\"";
  while (!value.empty()) {
    const std::string_view c = take_utf8(value);
    if (c == "\n") {
      out += "\\n";
    } else {
      out += c == "\"" || c == "\\" ? "\\" : "";
      out += c;
    }
  }
  out += '"';
}

}  // namespace detail

/// Statistics as a JSON object on one line: each number by its name, traffic by direction and reason, and by link.
[[nodiscard]] inline std::string to_json(const statistics& s) {
  std::string out = "{";
  for (const detail::metric& m : detail::metrics_of(s)) {
    detail::append_json_string(out, m.name);
    out += ':' + std::to_string(m.value) + ',';
  }
  out += "\"stalled_ns\":" + std::to_string(s.stalled.count()) + ",\"fault_feed\":";
  detail::append_json_string(out, s.fault_feed);
  const auto by_reason = [&](std::string_view name, const std::array<std::uint64_t, reason_count>& counts) {
    out += ',';
    detail::append_json_string(out, name);
    char between = '{';
    out += ':';
    for (unsigned r = 0; r < reason_count; ++r) {
      out += between;
      detail::append_json_string(out, to_string(static_cast<reason>(r)));
      out += ':' + std::to_string(counts[r]);
      between = ',';
    }
    out += '}';
  };
  by_reason("blocks_in", s.in().blocks);
  by_reason("bytes_in", s.in().bytes);
  by_reason("blocks_out", s.out().blocks);
  by_reason("bytes_out", s.out().bytes);
  out += ",\"links\":[";
  for (const link_traffic& l : s.links) {
    out += &l == s.links.data() ? "{\"from\":" : ",{\"from\":";
    detail::append_json_string(out, to_string(l.from));
    out += ",\"to\":";
    detail::append_json_string(out, to_string(l.to));
    by_reason("blocks", l.moved.blocks);
    by_reason("bytes", l.moved.bytes);
    out += '}';
  }
  return out + "]}";
}

/// Statistics as OpenMetrics text (`application/openmetrics-text; version=1.0.0`), for an endpoint that Prometheus
/// reads or a file that its node exporter does. Take a whole snapshot, not a difference: counters must not fall.
[[nodiscard]] inline std::string to_openmetrics(const statistics& s, std::initializer_list<metric_label> labels = {}) {
  std::string out;
  const auto family = [&](std::string_view name, std::string_view type, std::string_view unit, std::string_view help) {
    const std::string full = "deepum_" + std::string(name);
    out += "# TYPE " + full + ' ' + std::string(type) + '\n';
    if (!unit.empty()) {
      out += "# UNIT " + full + ' ' + std::string(unit) + '\n';
    }
    out += "# HELP " + full + ' ' + std::string(help) + '\n';
  };
  const auto sample = [&](std::string_view name, std::string_view suffix, std::initializer_list<metric_label> own,
                          const std::string& value) {
    out += "deepum_" + std::string(name) + std::string(suffix);
    char between = '{';
    for (const std::initializer_list<metric_label>& list : {labels, own}) {
      for (const metric_label& l : list) {
        out += between;
        detail::append_label(out, l.name, l.value);
        between = ',';
      }
    }
    out += std::string(between == ',' ? "} " : " ") + value + '\n';
  };
  for (const detail::metric& m : detail::metrics_of(s)) {
    family(m.name, m.level ? "gauge" : "counter", m.unit, m.help);
    sample(m.name, m.level ? "" : "_total", {}, std::to_string(m.value));
  }
  family("stalled_seconds", "counter", "seconds", "Time that launches waited for blocks.");
  sample("stalled_seconds", "_total", {}, detail::seconds_text(s.stalled));
  const auto by_reason = [&](std::string_view name, std::string_view unit, std::string_view help,
                             std::array<std::uint64_t, reason_count> traffic::*counts) {
    family(name, "counter", unit, help);
    for (const auto& [direction, moved] : {std::pair<const char*, traffic>{"in", s.in()}, {"out", s.out()}}) {
      for (unsigned r = 0; r < reason_count; ++r) {
        sample(name, "_total", {{"direction", direction}, {"reason", to_string(static_cast<reason>(r))}},
               std::to_string((moved.*counts)[r]));
      }
    }
  };
  by_reason("moved_blocks", "blocks", "Blocks that got room on the device (in) or gave it up (out).", &traffic::blocks);
  by_reason("copied_bytes", "bytes", "Bytes of the blocks that were copied.", &traffic::bytes);
  const auto by_link = [&](std::string_view name, std::string_view unit, std::string_view help,
                           std::array<std::uint64_t, reason_count> traffic::*counts) {
    family(name, "counter", unit, help);
    for (const link_traffic& l : s.links) {
      const std::string from = to_string(l.from);
      const std::string to = to_string(l.to);
      for (unsigned r = 0; r < reason_count; ++r) {
        sample(name, "_total", {{"from", from}, {"to", to}, {"reason", to_string(static_cast<reason>(r))}},
               std::to_string((l.moved.*counts)[r]));
      }
    }
  };
  by_link("link_moved_blocks", "blocks", "Blocks that got or gave up room by way of a link.", &traffic::blocks);
  by_link("link_copied_bytes", "bytes", "Bytes of the blocks that were copied over a link.", &traffic::bytes);
  family("fault_feed", "info", "", "Who reports page faults.");
  sample("fault_feed", "_info", {{"feed", s.fault_feed}}, "1");
  return out + "# EOF\n";
}

}  // namespace v0
}  // namespace deepum
