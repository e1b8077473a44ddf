#pragma once

#include <deepum/error.hpp>
#include <deepum/separate.hpp>
#include <deepum/trace.hpp>
#include <deepum/tracing/trace_file.hpp>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>

namespace deepum {
inline namespace v0 {

DEEPUM_SEPARATE trace::trace(trace_options chosen) : options_(std::move(chosen)), kept_(options_.events) {
  if (options_.events == 0) {
    throw error(status::invalid_argument, "a trace keeps one event at least");
  }
}

DEEPUM_SEPARATE void trace::see(const device_event& e, launch_id launch) {
  const std::lock_guard lock(mutex_);
  if (e.block.count != 0) {
    block_ = e.block;
  }
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
      kept_.keep({.what = track::fault, .mode = e.mode, .range = e.range, .launch = launch.value, .at = e.at});
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
      kept_.keep({.what = track::died, .range = e.range, .launch = launch.value, .at = e.at});
      break;
    case device_event::kind::failed:
    case device_event::kind::reachable:
    case device_event::kind::unreachable:
      break;
  }
}

DEEPUM_SEPARATE void trace::span(std::string_view name, nanoseconds began, nanoseconds ended) {
  const std::lock_guard lock(mutex_);
  kept_.keep({.what = track::span, .name = kept_.names.number_of(name), .began = began, .at = ended});
}

DEEPUM_SEPARATE std::uint64_t trace::forgotten() const {
  const std::lock_guard lock(mutex_);
  return kept_.forgotten();
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
  detail::trace_file file(out);
  for (const trace* run : runs) {
    const std::lock_guard lock(run->mutex_);
    file.add(run->kept_, run->options_.name, run->block_);
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
  in_flight_[launch.value] = {kept_.names.number_of(e.record->name), kept_.uses.number_of(uses + ']'), e.period,
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
  kept_.keep({.what = track::launch,
              .timed = e.timed,
              .stream = l.stream,
              .name = l.name,
              .uses = l.uses,
              .period = l.period,
              .launch = e.launch.value,
              .began = began,
              .at = e.at,
              .stalled = e.stalled,
              .read_in_place = e.read_in_place,
              .written_in_place = e.written_in_place});
  last.launch = e.at;
}

DEEPUM_SEPARATE void trace::see_refusal(const device_event& e) {
  if (const auto found = in_flight_.find(e.launch.value); found != in_flight_.end()) {
    kept_.keep({.what = track::refused,
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
    kept_.keep(e);
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
  kept.changed =
      what == track::cleaned || what == track::copied || what == track::elsewhere ? e.range.count : kept_.note(kept);
  kept_.keep(kept);
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
  kept.changed = kept_.note(kept);
  if (kept.changed != 0) {
    kept_.keep(kept);
  }
}

}  // namespace v0
}  // namespace deepum
