#pragma once

#include <deepum/core/block.hpp>
#include <deepum/core/launch.hpp>
#include <deepum/core/location.hpp>
#include <deepum/core/plan.hpp>
#include <deepum/engine/device_event.hpp>
#include <deepum/engine/uploads.hpp>
#include <deepum/error.hpp>
#include <deepum/separate.hpp>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

namespace deepum {
inline namespace v0 {
namespace detail {

// --- facts -----------------------------------------------------------------------------------------------------------

DEEPUM_SEPARATE void uploads::submitted(const launch_record& record) {
  std::uint32_t all = 0;
  for (const block_access& a : record.accesses) {
    forget_failures(a.range);
    for (const block_id b : a.range) {
      // A hold uses no memory itself, and ends when the program likes.
      const std::uint32_t users = state_.ledger.users(b);
      const std::uint32_t earlier = users - (users != 0 ? state_.launches.holds_on(b) : 0);
      std::deque<pending>& line = blocks_[b.value];
      line.push_back({.upload = record.id, .earlier = earlier});
      state_.ledger.add_user(b, access::overwrite);
      if (earlier == 0) {
        next_.push_back(b.value);
      } else {
        delayed_.push_back({record.id, b});
        news_ = true;
      }
    }
    all += a.range.count;
    policy_.on_host_access(a.range, access::overwrite, state_.ledger);
  }
  left_.emplace(record.id.value, all);
  state_.all_there = false;
  ++state_.statistics.uploads;
}

DEEPUM_SEPARATE void uploads::launch_submitted(const launch_record& record) {
  if (failed_.empty()) {
    return;
  }
  for (const block_access& a : record.accesses) {
    if (a.mode == access::overwrite) {
      forget_failures(a.range);
    }
  }
}

DEEPUM_SEPARATE void uploads::launch_ended(const launch_record& record) {
  if (blocks_.empty() || record.hold) {
    return;
  }
  for (const block_access& a : record.accesses) {
    for (auto at = blocks_.lower_bound(a.range.begin_value()); at != blocks_.end() && at->first < a.range.end_value();
         ++at) {
      for (pending& p : at->second) {
        if (p.upload > record.id && --p.earlier == 0) {
          next_.push_back(at->first);
        }
      }
    }
  }
}

DEEPUM_SEPARATE bool uploads::written(upload_block which, const std::string& failure) {
  const auto at = blocks_.find(which.block.value);
  expects(at != blocks_.end() && at->second.front().upload == which.upload && at->second.front().is == phase::writable,
          "a block is written that no upload may write");
  if (!failure.empty() && state_.ledger.life(which.block) == liveness::live) {
    failed_[which.block.value] = {which.upload, failure};
    state_.failed_uploads = failed_.size();
  }
  end_block(at, failure.empty());
  const auto left = left_.find(which.upload.value);
  if (--left->second != 0) {
    return false;
  }
  left_.erase(left);
  end_upload(which.upload);
  return true;
}

DEEPUM_SEPARATE void uploads::end_block(pending_of::iterator at, bool done) {
  const block_id b{at->first};
  at->second.pop_front();
  for (pending& p : at->second) {
    if (--p.earlier == 0) {
      next_.push_back(b.value);
    }
  }
  if (at->second.empty()) {
    blocks_.erase(at);
  }
  state_.ledger.end_fill(b, done);
  state_.ledger.remove_user(b, access::overwrite);
  contents_.note_home_copy(b);
  state_.policy_due = true;
  if (done) {
    forget_failures({b, 1});
    ++state_.statistics.uploaded;
    bring(b);
  }
}

DEEPUM_SEPARATE void uploads::end_upload(launch_id upload) {
  (void)state_.launches.finish(upload, {}, memory_.now(), false);
  if (account_.observed()) {
    account_.notify({.what = device_event::kind::launch_finished, .launch = upload, .at = memory_.now()}, upload);
  }
}

DEEPUM_SEPARATE void uploads::bring(block_id b) {
  const location here = state_.ledger.device();
  const transfer t = transfer::prefetch(here, reason::requested, {b, 1});
  std::deque<queue_entry>& queue = state_.queue_of(t).requested;
  std::uint64_t asked = 0;
  for (queue_entry& e : queue) {
    asked += blocks_of(e).count;
  }
  if (state_.ledger.life(b) != liveness::live || asked >= state_.room()) {
    return;  // launches get what they need, and the policy knows best what else is worth the room
  }
  if (!queue.empty() && blocks_of(queue.back()).end_value() == b.value) {
    ++blocks_of(queue.back()).count;
  } else {
    queue.emplace_back(t);
  }
}

DEEPUM_SEPARATE void uploads::forget_failures(block_range range) {
  failed_.erase(failed_.lower_bound(range.begin_value()), failed_.lower_bound(range.end_value()));
  state_.failed_uploads = failed_.size();
}

// --- questions -------------------------------------------------------------------------------------------------------

DEEPUM_SEPARATE bool uploads::hold_back(const launch_record& record) const {
  if (blocks_.empty() || record.upload) {
    return false;
  }
  if (!record.complete) {
    return left_.begin()->first < record.id.value;
  }
  for (const block_access& a : record.accesses) {
    for (auto at = blocks_.lower_bound(a.range.begin_value()); at != blocks_.end() && at->first < a.range.end_value();
         ++at) {
      if (at->second.front().upload < record.id) {
        return true;
      }
    }
  }
  return false;
}

DEEPUM_SEPARATE bool uploads::any_on(block_range range) const {
  const auto at = blocks_.lower_bound(range.begin_value());
  return at != blocks_.end() && at->first < range.end_value();
}

DEEPUM_SEPARATE void uploads::refuse_failed(block_range range, const std::string& reader, launch_id before) const {
  for (auto at = failed_.lower_bound(range.begin_value()); at != failed_.end() && at->first < range.end_value(); ++at) {
    const auto coming = blocks_.find(at->first);
    const bool comes_again = coming != blocks_.end() && before.valid() && coming->second.front().upload < before;
    if (!comes_again && (!before.valid() || at->second.first < before)) {
      throw error(status::io_failure, reader + " needs what an upload could not bring: " + at->second.second +
                                          "; upload it again, or overwrite it");
    }
  }
}

DEEPUM_SEPARATE void uploads::refuse_failed(block_range range, const std::string& reader) const {
  refuse_failed(range, reader, {});
}

DEEPUM_SEPARATE void uploads::refuse_failed(const launch_record& record) const {
  for (const block_access& a : record.accesses) {
    if (a.mode != access::overwrite && !failed_.empty()) {
      refuse_failed(a.range, "launch '" + record.name + "'", record.id);
    }
  }
}

DEEPUM_SEPARATE bool uploads::forget(block_range range) {
  bool asked = false;
  if (state_.launches.incomplete_in_flight()) {
    return asked;
  }
  for_each_run(
      range,
      [this](block_id b) {
        return state_.ledger.of(b).on_any_device() && state_.ledger.users(b) == 0 && state_.still(b);
      },
      [&](block_range run) {
        asked = true;
        if (!state_.discarding(run)) {
          state_.queues.forgotten.requested.emplace_back(transfer::discard(reason::requested, run));
        }
      });
  state_.policy_due = state_.policy_due || asked;
  return asked;
}

// --- for those that write --------------------------------------------------------------------------------------------

DEEPUM_SEPARATE bool uploads::advance() {
  asked_ = false;
  for (std::size_t rest = clearing_.size(); rest != 0; --rest) {
    const block_id b{clearing_.front()};
    clearing_.pop_front();
    pending& p = blocks_.find(b.value)->second.front();
    if (try_clear(b, p)) {
      make_writable(b, p);
    } else {
      clearing_.push_back(b.value);
    }
  }
  for (std::size_t rest = next_.size(); rest != 0 && clearing_.size() < most_cleared; --rest) {
    const block_id b{next_.front()};
    next_.pop_front();
    pending& p = blocks_.find(b.value)->second.front();
    if (state_.launches.incomplete_up_to(p.upload) || state_.ledger.of(b)->host_writes != 0) {
      next_.push_back(b.value);
      continue;
    }
    state_.ledger.claim_for_upload(b);
    p.is = phase::clearing;
    if (try_clear(b, p)) {
      make_writable(b, p);
    } else {
      clearing_.push_back(b.value);
    }
  }
  if (asked_) {
    state_.policy_due = true;
    memory_.notify();
  }
  return std::exchange(news_, false);
}

DEEPUM_SEPARATE bool uploads::try_clear(block_id b, pending& p) {
  if (!state_.still(b)) {
    return false;
  }
  if (!state_.ledger.of(b).on_any_device()) {
    return true;
  }
  if (++p.tries % most_tries != 0) {
    state_.queues.forgotten.demanded.emplace_back(transfer::discard(reason::host, {b, 1}));
  } else {  // the device cannot give them up: then they move like others
    const transfer t = transfer::evict(location::host(), reason::host, {b, 1});
    state_.queue_of(t).requested.emplace_front(t);
  }
  asked_ = true;
  return false;
}

DEEPUM_SEPARATE void uploads::make_writable(block_id b, pending& p) {
  state_.ledger.begin_fill(b);
  p.is = phase::writable;
  writable_.push_back({p.upload, b});
  news_ = true;
}

DEEPUM_SEPARATE void uploads::take(std::vector<upload_block>& writable, std::vector<upload_block>& delayed) {
  writable.insert(writable.end(), writable_.begin(), writable_.end());
  delayed.insert(delayed.end(), delayed_.begin(), delayed_.end());
  writable_.clear();
  delayed_.clear();
}

DEEPUM_SEPARATE void uploads::list_demanded(std::vector<upload_block>& out) const {
  out.clear();
  if (blocks_.empty()) {
    return;
  }
  const held_launch* oldest = nullptr;
  const launch_record* wanted = nullptr;
  for (const held_launch& h : state_.held) {
    const launch_record* record = state_.launches.find(h.id, h.stream);
    if ((oldest == nullptr || h.id < oldest->id) && hold_back(*record)) {
      oldest = &h;
      wanted = record;
    }
  }
  if (wanted == nullptr) {
    return;
  }
  for (const block_access& a : wanted->accesses) {
    for (auto at = blocks_.lower_bound(a.range.begin_value());
         at != blocks_.end() && at->first < a.range.end_value() && out.size() < most_demanded; ++at) {
      if (at->second.front().upload < wanted->id) {
        out.push_back({at->second.front().upload, block_id{at->first}});
      }
    }
  }
}

}  // namespace detail
}  // namespace v0
}  // namespace deepum
