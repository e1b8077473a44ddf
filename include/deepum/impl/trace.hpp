#pragma once

#include <deepum/core/json_text.hpp>
#include <deepum/error.hpp>
#include <deepum/separate.hpp>
#include <deepum/trace.hpp>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>

namespace deepum {
inline namespace v0 {

/// One line for each event of the trace event format; times are microseconds there.
class trace::writer {
 public:
  explicit writer(std::ostream& json) : out_(json) { out_ << "{\"displayTimeUnit\":\"ms\",\"traceEvents\":["; }
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

DEEPUM_SEPARATE trace::trace(trace_options chosen) : options_(std::move(chosen)) {
  if (options_.events == 0) {
    throw error(status::invalid_argument, "a trace keeps one event at least");
  }
}

DEEPUM_SEPARATE void trace::see(const device_event& e, launch_id launch) {
  const std::lock_guard lock(mutex_);
  switch (e.what) {
    case device_event::kind::launch_issued:
      see_issue(e, launch);
      break;
    case device_event::kind::launch_released:
      see_wait(e, launch);
      break;
    case device_event::kind::launch_refused:
      see_refusal(e);
      break;
    case device_event::kind::launch_finished:
      see_launch(e);
      break;
    case device_event::kind::fault:
      keep({.what = track::fault, .mode = e.mode, .range = e.range, .launch = launch.value, .at = e.at});
      break;
    case device_event::kind::arrived:
      if (e.ticket != 0 && elsewhere(e.did.to)) {
        see_other_place(e);
      } else {
        see_copy(e, track::arrived, copied_in_until_);
      }
      break;
    case device_event::kind::departed:
      if (e.ticket != 0 && elsewhere(e.did.from)) {
        see_other_place(e);
      } else {
        see_copy(e, track::departed, copied_out_until_);
      }
      break;
    case device_event::kind::completed:
      if (e.did.cleans() && e.began != nanoseconds{}) {
        if (elsewhere(e.did.from)) {
          see_other_place(e);
        } else {
          see_copy(e, track::cleaned, copied_out_until_);
        }
      } else if (e.did.forgets()) {
        see_discard(e);
      }
      break;
    case device_event::kind::copied:
      see_copy(e, track::copied, copied_in_until_);
      break;
    case device_event::kind::died:
      keep({.what = track::died, .range = e.range, .launch = launch.value, .at = e.at});
      break;
    case device_event::kind::failed:
      break;
  }
}

DEEPUM_SEPARATE void trace::span(std::string_view name, nanoseconds began, nanoseconds ended) {
  const std::lock_guard lock(mutex_);
  keep({.what = track::span, .name = names_.number_of(name), .began = began, .at = ended});
}

DEEPUM_SEPARATE std::uint64_t trace::forgotten() const {
  const std::lock_guard lock(mutex_);
  return forgotten_;
}

DEEPUM_SEPARATE void trace::save(const std::string& path) const {
  const trace* const self = this;
  save(path, {&self, 1});
}

DEEPUM_SEPARATE void trace::save(const std::string& path, std::span<const trace* const> runs) {
  errno = 0;
  std::ofstream out(path);
  write(out, runs);
  out.close();
  if (!out) {
    const int why = errno;
    throw error(status::io_failure, "cannot write the trace '" + path + "': " + std::strerror(why), "write", why);
  }
}

DEEPUM_SEPARATE void trace::write(std::ostream& out, std::span<const trace* const> runs) {
  writer file(out);
  int process = 0;
  for (const trace* run : runs) {
    const std::lock_guard lock(run->mutex_);
    run->write_run(file, ++process);
  }
  file.finish();
}

DEEPUM_SEPARATE void trace::see_issue(const device_event& e, launch_id launch) {
  std::string uses = "[";
  for (const block_access& a : e.record->accesses) {
    uses += uses.size() == 1 ? "[" : ",[";
    uses += std::to_string(a.range.first.value) + ',' + std::to_string(a.range.count);
    uses += a.mode == access::read ? ",\"read\"]" : a.mode == access::update ? ",\"update\"]" : ",\"overwrite\"]";
  }
  in_flight_[launch.value] = {names_.number_of(e.record->name), uses_.number_of(uses + ']'), e.period,
                              e.record->stream.value, e.at};
}

DEEPUM_SEPARATE void trace::see_launch(const device_event& e) {
  const auto found = in_flight_.find(e.launch.value);
  if (found == in_flight_.end()) {
    return;
  }
  const open_launch l = found->second;
  in_flight_.erase(found);
  stream_end& last = ends_[l.stream];
  const nanoseconds free = std::max(last.launch, std::min(l.issued, e.at));
  const nanoseconds began = std::clamp(e.began, std::min(free, e.at), e.at);
  if (e.stalled > nanoseconds{}) {
    // Some devices wait before a launch begins, others while it runs.
    const bool before = began - free >= e.stalled;
    keep_wait({.what = track::wait,
               .stream = l.stream,
               .name = l.name,
               .launch = e.launch.value,
               .began = before ? began - e.stalled : began,
               .at = before ? began : std::min(began + e.stalled, e.at)});
  }
  keep({.what = track::launch,
        .timed = e.timed,
        .stream = l.stream,
        .name = l.name,
        .uses = l.uses,
        .period = l.period,
        .launch = e.launch.value,
        .began = began,
        .at = e.at,
        .stalled = e.stalled});
  last.launch = e.at;
}

DEEPUM_SEPARATE void trace::see_refusal(const device_event& e) {
  if (const auto found = in_flight_.find(e.launch.value); found != in_flight_.end()) {
    keep({.what = track::refused,
          .stream = found->second.stream,
          .name = found->second.name,
          .launch = e.launch.value,
          .at = e.at});
    in_flight_.erase(found);
  }
}

DEEPUM_SEPARATE void trace::see_wait(const device_event& e, launch_id launch) {
  if (const auto found = in_flight_.find(launch.value); found != in_flight_.end()) {
    keep_wait({.what = track::wait,
               .commanded = true,
               .stream = found->second.stream,
               .name = found->second.name,
               .launch = launch.value,
               .began = e.began,
               .at = e.at});
  }
}

DEEPUM_SEPARATE void trace::keep_wait(entry e) {
  nanoseconds& until = ends_[e.stream].wait;
  e.began = std::max(e.began, until);
  if (e.at > e.began) {
    keep(e);
    until = e.at;
  }
}

DEEPUM_SEPARATE void trace::see_copy(const device_event& e, track what, nanoseconds& until) {
  entry kept{.what = what,
             .why = e.why,
             .from = e.did.from,
             .to = e.did.to,
             .then = e.did.then,
             .contents = e.did.contents,
             .commanded = e.ticket != 0,
             .copied = e.began != nanoseconds{},
             .range = e.range,
             .at = e.at};
  if (kept.copied) {
    kept.began = std::min(std::max(e.began, until), e.at);
    until = std::max(until, e.at);
  }
  kept.changed = what == track::cleaned || what == track::copied || what == track::elsewhere ? e.range.count
                                                                                             : apply(kept, resident_);
  keep(kept);
}

DEEPUM_SEPARATE void trace::see_other_place(const device_event& e) {
  if (e.began == nanoseconds{}) {
    return;  // nothing was copied
  }
  const bool leaves = e.did.from == options_.runs_on;
  see_copy(e, leaves ? track::cleaned : track::elsewhere, leaves ? copied_out_until_ : copied_elsewhere_until_);
}

DEEPUM_SEPARATE void trace::see_discard(const device_event& e) {
  entry kept{.what = track::departed,
             .why = e.why,
             .then = e.did.then,
             .contents = e.did.contents,
             .commanded = true,
             .range = e.range,
             .at = e.at};
  kept.changed = apply(kept, resident_);
  if (kept.changed != 0) {
    keep(kept);
  }
}

DEEPUM_SEPARATE void trace::keep(const entry& e) {
  if (ring_.size() < options_.events) {
    ring_.push_back(e);
    return;
  }
  entry& oldest = ring_[next_];
  (void)apply(oldest, resident_before_);
  ++forgotten_;
  oldest = e;
  next_ = (next_ + 1) % ring_.size();
}

DEEPUM_SEPARATE std::uint32_t trace::apply(const entry& e, std::vector<bool>& resident) {
  if (e.what != track::arrived && e.what != track::departed) {
    return 0;
  }
  if (resident.size() < e.range.end_value()) {
    resident.resize(e.range.end_value());
  }
  const bool there = e.what == track::arrived;
  const auto first = resident.begin() + e.range.begin_value();
  const auto changed = static_cast<std::uint32_t>(std::count(first, first + e.range.count, !there));
  std::fill_n(first, e.range.count, there);
  return changed;
}

DEEPUM_SEPARATE std::uint32_t trace::numbered_texts::number_of(std::string_view text) {
  auto known = numbers_.find(text);
  if (known == numbers_.end()) {
    if (texts_.size() == most) {
      return 0;
    }
    known = numbers_.emplace(std::string{text}, static_cast<std::uint32_t>(texts_.size())).first;
    texts_.emplace_back(text);
  }
  return known->second;
}

template <class Visit>
void trace::for_each(Visit&& visit) const {
  for (std::size_t i = 0; i < ring_.size(); ++i) {
    visit(ring_[(next_ + i) % ring_.size()]);
  }
}

DEEPUM_SEPARATE void trace::write_run(writer& file, int process) const {
  nanoseconds origin = nanoseconds::max();
  std::set<std::uint16_t> streams;
  std::set<std::uint32_t> lists;
  for_each([&](const entry& e) {
    const bool lasts = e.copied || e.what == track::span || e.what == track::launch || e.what == track::wait;
    origin = std::min(origin, lasts ? e.began : e.at);
    if (e.what == track::launch || e.what == track::refused || e.what == track::wait) {
      streams.insert(e.stream);
    }
    if (e.uses != 0) {
      lists.insert(e.uses);
    }
  });
  write_names(file, process, streams);
  write_uses(file, process, lists);
  auto count = static_cast<std::uint64_t>(std::count(resident_before_.begin(), resident_before_.end(), true));
  if (!ring_.empty()) {
    write_residency(file, process, nanoseconds{}, count);
    write_blocks_before(file, process);
  }
  for_each([&](const entry& e) {
    write_entry(file, process, e, origin);
    if (e.changed != 0 && (e.what == track::arrived || e.what == track::departed)) {
      count = e.what == track::arrived ? count + e.changed : count - e.changed;
      write_residency(file, process, e.at - origin, count);
    }
  });
}

DEEPUM_SEPARATE void trace::write_names(writer& file, int process, const std::set<std::uint16_t>& streams) const {
  file.begin('M', process, 0, "process_name");
  file.text("name", options_.name);
  file.end();
  std::map<std::int64_t, std::string> rows{{spans_row, "steps"},
                                           {faults_row, "faults"},
                                           {in_row, "copies to the device"},
                                           {out_row, "copies to the host"},
                                           {evictions_row, "evictions"}};
  for_each([&](const entry& e) {
    if (e.what == track::elsewhere) {
      rows[elsewhere_row] = "copies between other places";
    }
  });
  for (const std::uint16_t s : streams) {
    rows[launches_row(s)] = "stream " + std::to_string(s);
    rows[waits_row(s)] = "stream " + std::to_string(s) + " stalls";
  }
  for (const auto& [row, name] : rows) {
    file.begin('M', process, row, "thread_name");
    file.text("name", name);
    file.end();
    file.begin('M', process, row, "thread_sort_index");
    file.number("sort_index", static_cast<std::uint64_t>(row));
    file.end();
  }
  file.begin('M', process, 0, "deepum");
  file.number("block_bytes", options_.block.count);
  file.number("forgotten", forgotten_);
  file.end();
}

/// The lists of blocks that launches name: each launch says the number of its list.
DEEPUM_SEPARATE void trace::write_uses(writer& file, int process, const std::set<std::uint32_t>& lists) const {
  for (const std::uint32_t number : lists) {
    file.begin('M', process, 0, "uses");
    file.number("number", number);
    file.raw(",\"blocks\":" + uses_.texts()[number]);
    file.end();
  }
}

DEEPUM_SEPARATE void trace::write_residency(writer& file, int process, nanoseconds at, std::uint64_t blocks) const {
  file.begin('C', process, 0, "on the device");
  file.time("ts", at);
  file.number("bytes", (options_.block * blocks).count);
  file.end();
}

DEEPUM_SEPARATE void trace::write_blocks_before(writer& file, int process) const {
  for (std::uint32_t b = 0; b < resident_before_.size();) {
    const std::uint32_t first = b;
    while (b < resident_before_.size() && resident_before_[b]) {
      ++b;
    }
    if (b != first) {
      begin_instant(file, process, in_row, "before", "arrived", nanoseconds{});
      write_range(file, {block_id{first}, b - first}, b - first);
      file.end();
    } else {
      ++b;
    }
  }
}

DEEPUM_SEPARATE void trace::begin_instant(writer& file, int process, std::int64_t row, std::string_view name,
                                          std::string_view category, nanoseconds at) {
  file.begin('i', process, row, name, category);
  file.raw(",\"s\":\"t\"");
  file.time("ts", at);
}

DEEPUM_SEPARATE void trace::begin_slice(writer& file, int process, std::int64_t row, std::string_view name,
                                        std::string_view category, nanoseconds at, nanoseconds length) {
  file.begin('X', process, row, name, category);
  file.time("ts", at);
  file.time("dur", length);
}

DEEPUM_SEPARATE void trace::write_range(writer& file, block_range range, std::uint32_t changed) const {
  file.number("first", range.first.value);
  file.number("blocks", range.count);
  file.number("bytes", (options_.block * changed).count);
}

DEEPUM_SEPARATE void trace::write_link(writer& file, const entry& e) {
  if (e.commanded && (e.what == track::elsewhere || (e.from.is_device() && e.to.is_device() && e.from != e.to))) {
    file.text("from", to_string(e.from));
    file.text("to", to_string(e.to));
  }
}

DEEPUM_SEPARATE void trace::write_entry(writer& file, int process, const entry& e, nanoseconds origin) const {
  const nanoseconds began = e.began - origin;
  const nanoseconds at = e.at - origin;
  const nanoseconds length = std::max(e.at - e.began, nanoseconds{});  // viewers refuse others
  switch (e.what) {
    case track::span:
      begin_slice(file, process, spans_row, names_.texts()[e.name], "step", began, length);
      file.end();
      break;
    case track::launch:
      begin_slice(file, process, launches_row(e.stream), names_.texts()[e.name], "launch", began, length);
      file.number("launch", e.launch);
      file.number("stalled_ns", static_cast<std::uint64_t>(std::max(e.stalled, nanoseconds{}).count()));
      file.raw(e.timed ? ",\"timed\":true" : ",\"timed\":false");
      if (e.uses != 0) {
        file.number("uses", e.uses);
      }
      if (e.period != 0) {
        file.number("period", e.period);
      }
      file.end();
      break;
    case track::refused:
      begin_instant(file, process, launches_row(e.stream), "refused", "refused", at);
      file.number("launch", e.launch);
      file.text("name", names_.texts()[e.name]);
      file.end();
      break;
    case track::wait:
      begin_slice(file, process, waits_row(e.stream), e.commanded ? "held back" : "waits for blocks", "stall", began,
                  length);
      file.number("launch", e.launch);
      file.text("name", names_.texts()[e.name]);
      file.end();
      break;
    case track::died:
      begin_instant(file, process, evictions_row, "dead", "died", at);
      file.number("first", e.range.first.value);
      file.number("blocks", e.range.count);
      file.number("launch", e.launch);
      file.end();
      break;
    case track::fault:
      begin_instant(file, process, faults_row, e.mode == access::read ? "read" : "write", "fault", at);
      file.number("first", e.range.first.value);
      file.number("launch", e.launch);
      file.end();
      break;
    case track::arrived:
      if (e.copied) {
        begin_slice(file, process, in_row, to_string(e.why), "copy_in", began, length);
      } else {
        begin_instant(file, process, in_row, to_string(e.why), "arrived", at);
      }
      write_range(file, e.range, e.changed);
      write_link(file, e);
      file.end();
      break;
    case track::departed:
      if (e.copied) {
        begin_slice(file, process, out_row, to_string(e.why), "copy_out", began, length);
        write_range(file, e.range, e.changed);
        file.end();
      }
      begin_instant(file, process, evictions_row, to_string(e.why), "evicted", at);
      write_range(file, e.range, e.changed);
      file.text("how", e.commanded
                           ? to_string(transfer{.from = e.from, .to = e.to, .then = e.then, .contents = e.contents})
                           : std::string_view{e.why == reason::host ? "host" : "driver"});
      file.end();
      break;
    case track::elsewhere:
      begin_slice(file, process, elsewhere_row, to_string(e.why), "copy_elsewhere", began, length);
      write_range(file, e.range, e.changed);
      write_link(file, e);
      file.end();
      break;
    case track::copied:
      begin_slice(file, process, in_row, to_string(e.why), "copy_in", began, length);
      write_range(file, e.range, e.changed);
      write_link(file, e);
      file.end();
      break;
    case track::cleaned:
      begin_slice(file, process, out_row, to_string(e.why), "copy_out", began, length);
      write_range(file, e.range, e.changed);
      write_link(file, e);
      file.end();
      break;
  }
}

}  // namespace v0
}  // namespace deepum
