#pragma once

#include <deepum/core/block.hpp>
#include <deepum/core/block_record.hpp>
#include <deepum/core/launch.hpp>
#include <deepum/core/location.hpp>
#include <deepum/core/plan.hpp>
#include <deepum/engine/declared_blocks.hpp>
#include <deepum/engine/device_event.hpp>
#include <deepum/engine/fact_intake.hpp>
#include <deepum/engine/inbox.hpp>
#include <deepum/engine/law.hpp>
#include <deepum/engine/records.hpp>
#include <deepum/separate.hpp>

#include <cstdint>
#include <deque>
#include <string>
#include <utility>
#include <variant>

namespace deepum {
inline namespace v0 {
namespace detail {

DEEPUM_SEPARATE void fact_intake::apply(message& m) {
  switch (m.what) {
    case message::kind::open_stream:
      state_.launches.open(m.record.stream);
      policy_.on_stream(m.record.stream, m.lookahead);
      break;
    case message::kind::close_stream:
      ends_.close(m.record.stream);
      break;
    case message::kind::launch:
      take_launch(std::move(m.record));
      break;
    case message::kind::abandon:
      if (const launch_record* record = state_.launches.find(m.last, m.record.stream)) {
        contents_.remember(*record);
      }
      break;
    case message::kind::dead:
      take_death(m);
      break;
    case message::kind::live:
      revive(m.range);
      break;
    case message::kind::host_access:
      take_host_access(m.range, m.mode);
      break;
    case message::kind::request:
      take_request(m.request);
      break;
  }
}

DEEPUM_SEPARATE void fact_intake::take_launch(launch_record&& r) {
  const launch_record& record = state_.launches.issue(std::move(r));
  state_.statistics.launches += record.upload ? 0 : 1;
  if (account_.observed()) {
    account_.notify(
        {.what = device_event::kind::launch_issued, .at = memory_.now(), .record = &record, .period = policy_.period()},
        record.id);
  }
  if (record.upload) {
    uploads_.submitted(record);
    end_read_mostly(record);
    return;
  }
  uploads_.launch_submitted(record);
  const bool rows_in_place = state_.ledger.shortest_row().count != 0;
  std::uint64_t declared = 0;
  for (const block_access& a : record.accesses) {
    for (const block_id b : a.range) {
      state_.ledger.add_user(b, a.mode);
    }
    declared += a.sparse && rows_in_place ? 0 : a.range.count;
  }
  state_.held.submitted(record);
  if (claims_ != nullptr) {
    claims_->pin(record);                              // until it is known to be held back
    for_each_declared_block(record, [&](block_id b) {  // it may read a block of which nothing is in use
      state_.all_there = state_.all_there && state_.ledger.ready(b);
    });
  }
  if (state_.ledger.keeps_home_copy()) {
    take_writes(record);
  }
  end_read_mostly(record);
  if (declared > state_.ledger.budget() && distinct_blocks(record, !rows_in_place) > state_.ledger.budget()) {
    ++state_.statistics.oversized_launches;
    account_.log_once(logged_oversized_, "launch '" + record.name + "' touches more than the budget of " +
                                             std::to_string(state_.ledger.budget()) +
                                             " blocks; what fits is prefetched and the rest faults (logged once)");
  }
  policy_.on_launch(record, state_.ledger);
}

DEEPUM_SEPARATE void fact_intake::take_writes(const launch_record& record) {
  if (!record.complete) {
    state_.queues.for_each([&](const transfer_queue& q) {
      for (const outstanding& o : q.issued) {
        if (o.what.copies() && o.what.from == state_.ledger.device()) {
          for (const block_id b : o.what.blocks) {
            state_.ledger.may_be_written(b);
          }
        }
      }
    });
  }
  for (const block_access& a : record.accesses) {
    if (a.mode == access::read) {
      continue;
    }
    for (const block_id b : a.range) {
      state_.ledger.may_be_written(b);
      state_.ledger.settle_overwriter(b);  // what the host has may be older than what an earlier launch writes
      if (a.mode == access::overwrite && facts_.may_forget(b, law::because::overwritten)) {
        state_.ledger.forget(b, record.id);
      }
    }
  }
}

DEEPUM_SEPARATE void fact_intake::end_read_mostly(const launch_record& record) {
  for (const block_access& a : record.accesses) {
    if (a.mode == access::read) {
      continue;
    }
    for_each_run(
        a.range, [&](block_id b) { return state_.ledger.of(b)->read_mostly; },
        [&](block_range run) {
          state_.queues.urgent.push_back(
              {.blocks = run, .what = advice::unset_read_mostly, .where = state_.ledger.device()});
        });
  }
}

DEEPUM_SEPARATE void fact_intake::revive(block_range range) {
  for (const block_id b : range) {
    set_liveness(b, liveness::live);
  }
  policy_.on_live(range, state_.ledger);
}

DEEPUM_SEPARATE void fact_intake::take_death(const message& m) {
  uploads_.died(m.range);
  const auto was_alive = [&](block_id b) { return state_.ledger.life(b) == liveness::live; };
  block_range rest = m.range;
  while (!rest.empty()) {
    const bool died = was_alive(rest.first);
    const std::uint32_t run = count_prefix(rest, [&](block_id b) { return was_alive(b) == died; });
    const block_range part{rest.first, run};
    for (const block_id b : part) {
      set_liveness(b, m.life);
      state_.ledger.set_dead_after(b, m.last);
    }
    if (died) {
      policy_.on_dead(part, m.last, state_.ledger);
      if (account_.observed()) {
        account_.notify({.what = device_event::kind::died, .launch = m.last, .range = part, .at = memory_.now()},
                        m.last);
      }
    }
    advance(rest, run);
  }
}

DEEPUM_SEPARATE void fact_intake::set_liveness(block_id b, liveness life) {
  state_.live += life == liveness::live ? 1 : 0;
  state_.live -= state_.ledger.life(b) == liveness::live ? 1 : 0;
  state_.note_live();
  state_.ledger.set_liveness(b, life);
  if (life == liveness::live) {
    state_.all_there = state_.all_there && state_.ledger.ready(b);
  }
}

DEEPUM_SEPARATE void fact_intake::take_host_access(block_range range, access mode) {
  if (mode != access::read) {
    for (const block_id b : range) {
      // Contents on the device are on their way to the host then, and the device will report that.
      if (!state_.ledger.current(b, state_.ledger.device())) {
        state_.ledger.write_on_host(b);
      }
    }
  }
  policy_.on_host_access(range, mode, state_.ledger);
}

DEEPUM_SEPARATE void fact_intake::take_request(const queue_entry& asked) {
  if (const driver_hint* const h = std::get_if<driver_hint>(&asked);
      h != nullptr && (h->what == advice::set_in_place || h->what == advice::unset_in_place)) {
    state_.queues.urgent.push_back(*h);  // before what the next launch misses is brought
    return;
  }
  std::deque<queue_entry>& requested =
      std::visit([this](const auto& what) -> transfer_queue& { return state_.queue_of(what); }, asked).requested;
  const transfer* const t = std::get_if<transfer>(&asked);
  if ((t == nullptr || !t->forgets()) && requested.size() >= most_requests) {
    state_.statistics.dropped += std::visit([](const auto& what) { return what.blocks.count; }, asked);
    return;
  }
  requested.push_back(asked);
}

}  // namespace detail
}  // namespace v0
}  // namespace deepum
