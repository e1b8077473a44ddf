#pragma once

#include <deepum/core/plan.hpp>
#include <deepum/engine/accounting.hpp>
#include <deepum/engine/admission.hpp>
#include <deepum/engine/block_contents.hpp>
#include <deepum/engine/budget.hpp>
#include <deepum/engine/claims.hpp>
#include <deepum/engine/demand_pager.hpp>
#include <deepum/engine/device_event.hpp>
#include <deepum/engine/dispatcher.hpp>
#include <deepum/engine/engine_options.hpp>
#include <deepum/engine/event_intake.hpp>
#include <deepum/engine/fact_finder.hpp>
#include <deepum/engine/fact_intake.hpp>
#include <deepum/engine/gates.hpp>
#include <deepum/engine/host_access.hpp>
#include <deepum/engine/inbox.hpp>
#include <deepum/engine/launch_ends.hpp>
#include <deepum/engine/memory_space.hpp>
#include <deepum/engine/neighbour_tier.hpp>
#include <deepum/engine/records.hpp>
#include <deepum/engine/uploads.hpp>
#include <deepum/policy/policy.hpp>

#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

namespace deepum {
inline namespace v0 {
namespace detail {

/// The rooms of one engine, each behind those that it uses.
struct engine_rooms {
  engine_rooms(memory_space& space, std::unique_ptr<policy> chosen, engine_options given, inbox& mail)
      : options(with_depth(std::move(given), space.capabilities())),
        chooser(std::move(chosen)),
        state(static_cast<std::uint32_t>(space.capacity() / space.block()), space.places(), space.block()),
        claims(space.capabilities().faults ? nullptr : std::make_unique<block_claims>(state.ledger)),
        facts(state, claims.get()),
        tier(state, *chooser),
        host(claims ? std::make_unique<host_access>(space, state, *chooser, *claims, facts) : nullptr),
        pager(host ? std::make_unique<demand_pager>(space, state, *chooser, *claims, facts, *host, tier) : nullptr),
        account(state, options),
        contents(state, host.get()),
        filled(space, state, *chooser, contents, account),
        ends(state, *chooser, mail),
        pressure(mail, state, space.capabilities().faults, pager != nullptr || chooser->holds_launches(),
                 chooser->orders_launches()),
        admitting(space, state, *chooser, claims.get(), pager.get(), facts, pressure, contents, ends, filled, account),
        facts_in(space, state, *chooser, claims.get(), facts, contents, ends, filled, account),
        events_in(space, state, *chooser, claims.get(), pager.get(), contents, ends, filled, account),
        out(space, state, facts, account, options),
        room(space, state, pager.get(), pressure, account, options) {
    if (pager) {
      pager->await(filled);
    }
    state.ledger.set_keeps_home_copy(space.capabilities().keeps_home_copy);
    state.ledger.set_shortest_row(space.capabilities().shortest_row);
  }

  engine_options options;
  std::unique_ptr<policy> chooser;
  records state;
  std::unique_ptr<block_claims> claims;  // this and the next two: where the memory never faults
  fact_finder facts;
  neighbour_tier tier;
  std::unique_ptr<host_access> host;
  std::unique_ptr<demand_pager> pager;
  accounting account;
  block_contents contents;
  uploads filled;
  launch_ends ends;
  gates pressure;
  admission admitting;
  fact_intake facts_in;
  event_intake events_in;
  dispatcher out;
  budget room;
  plan made{};                         // reused
  std::vector<message> messages{};     // reused
  std::vector<device_event> events{};  // reused

 private:
  static engine_options with_depth(engine_options o, const memory_capabilities& can) {
    if (o.commands_in_flight == 0) {
      o.commands_in_flight = can.commands_in_flight;
    }
    if (o.bytes_in_flight.count == 0) {
      o.bytes_in_flight = can.bytes_in_flight;
    }
    return o;
  }
};

}  // namespace detail
}  // namespace v0
}  // namespace deepum
