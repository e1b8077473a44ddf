#pragma once

#include "property/lockstep_launcher.hpp"
#include "property/lockstep_step.hpp"
#include "property/lockstep_world.hpp"
#include "property/shadow.hpp"
#include "property/story.hpp"
#include "property/traffic_watch.hpp"
#include <deepum/arena.hpp>
#include <deepum/core/launch.hpp>
#include <deepum/host_view.hpp>
#include <deepum/stream.hpp>
#include <deepum/units.hpp>

#include <cstdint>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

namespace deepum_test {

/// Ends a program in lockstep: the library has done what it must not.
[[noreturn]] inline void wrong(const std::string& what) { throw std::runtime_error(what); }

/// The two sides of a program in lockstep: arenas and streams, and what the shadow knows; and the order between
/// streams, which is the program's own.
template <class Machine>
struct lockstep_sides {
  using arena_type = deepum::arena<typename Machine::memory_type>;
  using stream_type = deepum::stream<typename Machine::memory_type>;
  using library_type = typename lockstep_launcher<Machine>::library_type;
  using word = shadow::word;

  /// @param on  Those of `options.arenas`. All outlive it.
  lockstep_sides(Machine& device, std::span<const std::unique_ptr<arena_type>> on, const lockstep_options& options,
                 const std::string& name, traffic_watch* watcher)
      : machine(device),
        watch(watcher),
        story(name + ", seed " + std::to_string(options.seed)) {
    world.options = options;
    world.paged = arena_type::host_uses_other_addresses;
    world.has_graphs = requires(stream_type& s) { s.record_graph("", [] {}); };
    world.has_scratch = Machine::has_scratch;
    world.block = on.front()->block().count;
    world.budget = static_cast<std::uint32_t>(on.front()->budget().count / world.block);
    for (const auto& a : on) {
      arenas.push_back(a.get());
    }
    for (std::uint8_t a = 0; a < options.arenas; ++a) {
      for (std::uint8_t s = 0; s < options.streams; ++s) {
        open_stream(a);
      }
    }
    slot = arenas.front()->template allocate<word*>(world.block / sizeof(word*));
    launcher.set_slot(slot);
    if (watch != nullptr) {
      watch->spare(slot, world.block, world.block);
    }
  }
  lockstep_sides(const lockstep_sides&) = delete;
  lockstep_sides& operator=(const lockstep_sides&) = delete;

  void open_stream(std::uint8_t arena) {
    streams.push_back(std::make_unique<stream_type>(*arenas[arena]));
    libraries.push_back(machine.open_library(*arenas[arena], *streams.back()));
  }
  /// A stream, behind all that uses the buffers already.
  stream_type& behind(std::uint8_t number, const std::vector<piece>& used) {
    for (const piece& p : used) {
      shadow::buffer& b = world.memory.of(p);
      if (b.stream != number) {
        typename stream_type::event_type done;
        machine.insist([&] { streams[b.stream]->record(done); });
        machine.insist([&] { streams[number]->wait(done); });
        b.stream = number;
      }
    }
    return *streams[number];
  }
  /// With all streams.
  void synchronize() {
    for (const auto& s : streams) {
      machine.insist([&] { s->synchronize(); });
    }
    if (watch != nullptr && world.holds.empty()) {
      watch->settled(world, machine.now());
    }
  }
  /// What uses the buffer has ended.
  void await(const piece& p) {
    machine.insist([&] { streams[world.memory.of(p).stream]->synchronize(); });
  }
  /// The stream is closed, and another one opened.
  void reopen(std::uint8_t number) {
    libraries[number].reset();
    streams[number].reset();
    streams[number] = std::make_unique<stream_type>(*arenas[world.arena_of(number)]);
    libraries[number] = machine.open_library(*arenas[world.arena_of(number)], *streams[number]);
  }
  /// Launches that chase the pointer find the piece.
  void point_at(const piece& target) {
    synchronize();
    const deepum::host_view<word*> view(*arenas.front(), slot, 1, deepum::access::overwrite);
    machine.host_touched(view.data(), sizeof(word*), deepum::access::overwrite);
    view[0] = world.memory.address(target);
  }

  [[nodiscard]] arena_type& arena_of(const piece& p) { return *arenas[world.memory.of(p).arena]; }
  [[nodiscard]] deepum::bytes size(const piece& p) const { return deepum::bytes{world.memory.words(p) * sizeof(word)}; }

  Machine& machine;
  traffic_watch* watch;
  watched_story story;
  lockstep_world world{};
  lockstep_launcher<Machine> launcher{machine, world.memory};
  std::vector<arena_type*> arenas{};
  word** slot = nullptr;  ///< where launches that chase a pointer find it
  std::vector<std::unique_ptr<stream_type>> streams{};
  std::vector<std::unique_ptr<library_type>> libraries{};
  std::uint64_t launches = 0;   ///< that were made, refused ones too
  std::uint64_t tolerated = 0;  ///< refusals that were not expected and that nobody may wonder at
};

}  // namespace deepum_test
