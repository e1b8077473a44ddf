#pragma once

#include <deepum/core/json_text.hpp>
#include <deepum/separate.hpp>
#include <deepum/tracing/trace_file.hpp>

#include <algorithm>
#include <cstdint>
#include <map>
#include <ostream>
#include <set>
#include <string_view>

namespace deepum {
inline namespace v0 {
namespace detail {

/// One line for each event of the trace event format; times are microseconds there.
class trace_file::events {
 public:
  explicit events(std::ostream& json) : out_(json) { out_ << "{\"displayTimeUnit\":\"ms\",\"traceEvents\":["; }
  void finish() { out_ << "\n]}\n"; }

  /// Begins an event. What it has beside follows with `number` and `text`, then `end`.
  void begin(char phase, int process, std::int64_t thread, std::string_view name, std::string_view category = {}) {
    line_ = first_ ? "\n{\"ph\":\"" : ",\n{\"ph\":\"";
    first_ = false;
    line_ += phase;
    line_ += "\",\"pid\":" + std::to_string(process) + ",\"tid\":" + std::to_string(thread) + ",\"name\":";
    detail::append_json_string(line_, name);
    if (!category.empty()) {
      line_ += ",\"cat\":";
      detail::append_json_string(line_, category);
    }
  }
  void time(const char* key, nanoseconds t) {
    line_ += std::string(",\"") + key + "\":" + detail::decimal_text(t.count(), 3);
  }
  void raw(std::string_view text) { line_ += text; }
  /// Begins what belongs to the event itself, or goes on with it.
  void number(std::string_view key, std::uint64_t value) { argument(key, std::to_string(value)); }
  void text(std::string_view key, std::string_view value) {
    std::string quoted;
    detail::append_json_string(quoted, value);
    argument(key, quoted);
  }
  void end() {
    line_ += arguments_ ? "}}" : "}";
    arguments_ = false;
    out_ << line_;
  }

 private:
  void argument(std::string_view key, std::string_view value) {
    line_ += arguments_ ? ",\"" : ",\"args\":{\"";
    arguments_ = true;
    line_ += key;
    line_ += "\":";
    line_ += value;
  }

  std::ostream& out_;
  std::string line_;
  bool first_ = true;
  bool arguments_ = false;
};

/// One run.
class trace_file::run_writer {
 public:
  run_writer(events& to, int process, const trace_entries& recorded, const std::string& run_name, bytes block_bytes)
      : to_(to),
        process_(process),
        run_(recorded),
        name_(run_name),
        block_(block_bytes) {}

  void write() const;

 private:
  static constexpr std::int64_t spans_row = 1;
  static constexpr std::int64_t faults_row = 2;
  static constexpr std::int64_t in_row = 3;
  static constexpr std::int64_t out_row = 4;
  static constexpr std::int64_t evictions_row = 5;
  static constexpr std::int64_t elsewhere_row = 6;
  static std::int64_t launches_row(std::uint16_t stream) { return 10 + 2 * std::int64_t{stream}; }
  static std::int64_t waits_row(std::uint16_t stream) { return 11 + 2 * std::int64_t{stream}; }

  void write_names(const std::set<std::uint16_t>& streams) const;
  /// The lists of blocks that launches name: each launch says the number of its list.
  void write_uses(const std::set<std::uint32_t>& lists) const;
  void write_residency(nanoseconds at, std::uint64_t blocks) const;
  /// What was on the device when the oldest event that is kept happened.
  void write_blocks_before() const;
  void begin_instant(std::int64_t row, std::string_view name, std::string_view category, nanoseconds at) const;
  void begin_slice(std::int64_t row, std::string_view name, std::string_view category, nanoseconds at,
                   nanoseconds length) const;
  /// @param changed  Of the blocks, those that count: statistics count each copy of a block once, too.
  void write_range(block_range range, std::uint32_t changed) const;

  void write_entry(const trace_entry& e, nanoseconds origin) const;
  /// Where a copy came from and went to, where that is not between the host and the device where launches run.
  void write_link(const trace_entry& e) const;

  events& to_;
  const int process_;
  const trace_entries& run_;
  const std::string& name_;
  const bytes block_;
};

DEEPUM_SEPARATE trace_file::trace_file(std::ostream& json) : to_(std::make_unique<events>(json)) {}

DEEPUM_SEPARATE trace_file::~trace_file() = default;

DEEPUM_SEPARATE void trace_file::add(const trace_entries& run, const std::string& name, bytes block) {
  run_writer(*to_, ++runs_, run, name, block).write();
}

DEEPUM_SEPARATE void trace_file::finish() { to_->finish(); }

DEEPUM_SEPARATE void trace_file::run_writer::write() const {
  nanoseconds origin = nanoseconds::max();
  std::set<std::uint16_t> streams;
  std::set<std::uint32_t> lists;
  run_.for_each([&](const trace_entry& e) {
    const bool lasts =
        e.copied || e.what == trace_track::span || e.what == trace_track::launch || e.what == trace_track::wait;
    origin = std::min(origin, lasts ? e.began : e.at);
    if (e.what == trace_track::launch || e.what == trace_track::refused || e.what == trace_track::wait) {
      streams.insert(e.stream);
    }
    if (e.uses != 0) {
      lists.insert(e.uses);
    }
  });
  write_names(streams);
  write_uses(lists);
  auto count =
      static_cast<std::uint64_t>(std::count(run_.resident_before().begin(), run_.resident_before().end(), true));
  if (!run_.empty()) {
    write_residency(nanoseconds{}, count);
    write_blocks_before();
  }
  run_.for_each([&](const trace_entry& e) {
    write_entry(e, origin);
    if (e.changed != 0 && (e.what == trace_track::arrived || e.what == trace_track::departed)) {
      count = e.what == trace_track::arrived ? count + e.changed : count - e.changed;
      write_residency(e.at - origin, count);
    }
  });
}

DEEPUM_SEPARATE void trace_file::run_writer::write_names(const std::set<std::uint16_t>& streams) const {
  to_.begin('M', process_, 0, "process_name");
  to_.text("name", name_);
  to_.end();
  std::map<std::int64_t, std::string> rows{{spans_row, "steps"},
                                           {faults_row, "faults"},
                                           {in_row, "copies to the device"},
                                           {out_row, "copies to the host"},
                                           {evictions_row, "evictions"}};
  run_.for_each([&](const trace_entry& e) {
    if (e.what == trace_track::elsewhere) {
      rows[elsewhere_row] = "copies between other places";
    }
  });
  for (const std::uint16_t s : streams) {
    rows[launches_row(s)] = "stream " + std::to_string(s);
    rows[waits_row(s)] = "stream " + std::to_string(s) + " stalls";
  }
  for (const auto& [row, name] : rows) {
    to_.begin('M', process_, row, "thread_name");
    to_.text("name", name);
    to_.end();
    to_.begin('M', process_, row, "thread_sort_index");
    to_.number("sort_index", static_cast<std::uint64_t>(row));
    to_.end();
  }
  to_.begin('M', process_, 0, "deepum");
  to_.number("block_bytes", block_.count);
  to_.number("forgotten", run_.forgotten());
  to_.end();
}

DEEPUM_SEPARATE void trace_file::run_writer::write_uses(const std::set<std::uint32_t>& lists) const {
  for (const std::uint32_t number : lists) {
    to_.begin('M', process_, 0, "uses");
    to_.number("number", number);
    to_.raw(",\"blocks\":" + run_.uses.texts()[number]);
    to_.end();
  }
}

DEEPUM_SEPARATE void trace_file::run_writer::write_residency(nanoseconds at, std::uint64_t blocks) const {
  to_.begin('C', process_, 0, "on the device");
  to_.time("ts", at);
  to_.number("bytes", (block_ * blocks).count);
  to_.end();
}

DEEPUM_SEPARATE void trace_file::run_writer::write_blocks_before() const {
  for (std::uint32_t b = 0; b < run_.resident_before().size();) {
    const std::uint32_t first = b;
    while (b < run_.resident_before().size() && run_.resident_before()[b]) {
      ++b;
    }
    if (b != first) {
      begin_instant(in_row, "before", "arrived", nanoseconds{});
      write_range({block_id{first}, b - first}, b - first);
      to_.end();
    } else {
      ++b;
    }
  }
}

DEEPUM_SEPARATE void trace_file::run_writer::begin_instant(std::int64_t row, std::string_view name,
                                                           std::string_view category, nanoseconds at) const {
  to_.begin('i', process_, row, name, category);
  to_.raw(",\"s\":\"t\"");
  to_.time("ts", at);
}

DEEPUM_SEPARATE void trace_file::run_writer::begin_slice(std::int64_t row, std::string_view name,
                                                         std::string_view category, nanoseconds at,
                                                         nanoseconds length) const {
  to_.begin('X', process_, row, name, category);
  to_.time("ts", at);
  to_.time("dur", length);
}

DEEPUM_SEPARATE void trace_file::run_writer::write_range(block_range range, std::uint32_t changed) const {
  to_.number("first", range.first.value);
  to_.number("blocks", range.count);
  to_.number("bytes", (block_ * changed).count);
}

DEEPUM_SEPARATE void trace_file::run_writer::write_link(const trace_entry& e) const {
  if (e.commanded && (e.what == trace_track::elsewhere || (e.from.is_device() && e.to.is_device() && e.from != e.to))) {
    to_.text("from", to_string(e.from));
    to_.text("to", to_string(e.to));
  }
}

DEEPUM_SEPARATE void trace_file::run_writer::write_entry(const trace_entry& e, nanoseconds origin) const {
  const nanoseconds began = e.began - origin;
  const nanoseconds at = e.at - origin;
  const nanoseconds length = std::max(e.at - e.began, nanoseconds{});  // viewers refuse others
  switch (e.what) {
    case trace_track::span:
      begin_slice(spans_row, run_.names.texts()[e.name], "step", began, length);
      to_.end();
      break;
    case trace_track::launch:
      begin_slice(launches_row(e.stream), run_.names.texts()[e.name], "launch", began, length);
      to_.number("launch", e.launch);
      to_.number("stalled_ns", static_cast<std::uint64_t>(std::max(e.stalled, nanoseconds{}).count()));
      to_.raw(e.timed ? ",\"timed\":true" : ",\"timed\":false");
      if (e.uses != 0) {
        to_.number("uses", e.uses);
      }
      if (e.period != 0) {
        to_.number("period", e.period);
      }
      if (e.read_in_place.count != 0) {
        to_.number("read_in_place", e.read_in_place.count);
      }
      if (e.written_in_place.count != 0) {
        to_.number("written_in_place", e.written_in_place.count);
      }
      to_.end();
      break;
    case trace_track::refused:
      begin_instant(launches_row(e.stream), "refused", "refused", at);
      to_.number("launch", e.launch);
      to_.text("name", run_.names.texts()[e.name]);
      to_.end();
      break;
    case trace_track::wait:
      begin_slice(waits_row(e.stream), e.commanded ? "held back" : "waits for blocks", "stall", began, length);
      to_.number("launch", e.launch);
      to_.text("name", run_.names.texts()[e.name]);
      to_.end();
      break;
    case trace_track::died:
      begin_instant(evictions_row, "dead", "died", at);
      to_.number("first", e.range.first.value);
      to_.number("blocks", e.range.count);
      to_.number("launch", e.launch);
      to_.end();
      break;
    case trace_track::fault:
      begin_instant(faults_row, e.mode == access::read ? "read" : "write", "fault", at);
      to_.number("first", e.range.first.value);
      to_.number("launch", e.launch);
      to_.end();
      break;
    case trace_track::arrived:
      if (e.copied) {
        begin_slice(in_row, to_string(e.why), "copy_in", began, length);
      } else {
        begin_instant(in_row, to_string(e.why), "arrived", at);
      }
      write_range(e.range, e.changed);
      write_link(e);
      to_.end();
      break;
    case trace_track::departed:
      if (e.copied) {
        begin_slice(out_row, to_string(e.why), "copy_out", began, length);
        write_range(e.range, e.changed);
        to_.end();
      }
      begin_instant(evictions_row, to_string(e.why), "evicted", at);
      write_range(e.range, e.changed);
      to_.text("how", e.commanded
                          ? to_string(transfer{.from = e.from, .to = e.to, .then = e.then, .contents = e.contents})
                          : std::string_view{e.why == reason::host ? "host" : "driver"});
      to_.end();
      break;
    case trace_track::elsewhere:
      begin_slice(elsewhere_row, to_string(e.why), "copy_elsewhere", began, length);
      write_range(e.range, e.changed);
      write_link(e);
      to_.end();
      break;
    case trace_track::copied:
      begin_slice(in_row, to_string(e.why), "copy_in", began, length);
      write_range(e.range, e.changed);
      write_link(e);
      to_.end();
      break;
    case trace_track::cleaned:
      begin_slice(out_row, to_string(e.why), "copy_out", began, length);
      write_range(e.range, e.changed);
      write_link(e);
      to_.end();
      break;
  }
}

}  // namespace detail
}  // namespace v0
}  // namespace deepum
