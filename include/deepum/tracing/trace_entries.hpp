#pragma once

#include <deepum/core/block.hpp>
#include <deepum/core/launch.hpp>
#include <deepum/core/location.hpp>
#include <deepum/core/plan.hpp>
#include <deepum/core/sequence.hpp>
#include <deepum/core/transfer.hpp>
#include <deepum/units.hpp>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace deepum {
inline namespace v0 {
namespace detail {

/// What an entry is about.
enum class trace_track : std::uint8_t {
  span,
  launch,
  refused,
  wait,
  fault,
  arrived,
  departed,
  copied,
  cleaned,
  elsewhere,
  died
};

/// What is kept of an event.
struct trace_entry {
  trace_track what = trace_track::span;
  access mode = access::read;
  reason why = reason::fault;
  location from = location::any();  // of the transfer, like the next three
  location to = location::any();
  afterwards then = afterwards::keep;
  payload contents = payload::current;
  bool commanded = false;  // else the driver or the host did it
  bool copied = false;
  bool timed = true;
  std::uint16_t stream = 0;
  std::uint32_t name = 0;
  block_range range{};
  std::uint32_t changed = 0;  // of those blocks, the ones that came or left with it; a fault may bring the rest of one
  std::uint32_t uses = 0;     // of a launch: the number of its list of blocks
  std::uint32_t period = 0;   // of a launch: of the step that it was recognised in
  std::uint64_t launch = 0;
  nanoseconds began{};
  nanoseconds at{};
  nanoseconds stalled{};
  bytes read_in_place{};  // of a launch, like the next one
  bytes written_in_place{};
};
/// Texts that come again and again, by number. Number 0 stands for those that came when it was full.
class numbered_texts {
 public:
  explicit numbered_texts(const std::string& one_too_many) : numbers_{{one_too_many, 0}}, texts_{one_too_many} {}
  [[nodiscard]] std::uint32_t number_of(std::string_view text);
  [[nodiscard]] const std::vector<std::string>& texts() const { return texts_; }

 private:
  static constexpr std::size_t most = 65536;
  std::map<std::string, std::uint32_t, std::less<>> numbers_;
  std::vector<std::string> texts_;
};

/// What a trace has recorded: the latest entries, and which blocks were on the device before the oldest of them.
///
/// Not synchronised.
class trace_entries {
 public:
  /// @param most  That are kept; older ones are forgotten.
  explicit trace_entries(std::size_t most) : most_(most) {}

  void keep(const trace_entry& e);
  /// Notes what an event does to the blocks that are on the device now. @returns  How many came or left.
  std::uint32_t note(const trace_entry& e) { return apply(e, resident_); }

  /// Visits them from the oldest on.
  template <class Visit>
  void for_each(Visit&& visit) const {
    for (std::size_t i = 0; i < ring_.size(); ++i) {
      visit(ring_[(next_ + i) % ring_.size()]);
    }
  }
  [[nodiscard]] bool empty() const { return ring_.empty(); }
  [[nodiscard]] std::uint64_t forgotten() const { return forgotten_; }
  /// By block, before the oldest entry.
  [[nodiscard]] const std::vector<bool>& resident_before() const { return resident_before_; }

  numbered_texts names{"(one name too many)"};
  numbered_texts uses{"[]"};  // of launches, as they are written: [first block, blocks, access] each

 private:
  static std::uint32_t apply(const trace_entry& e, std::vector<bool>& resident);

  std::size_t most_;
  sequence<trace_entry> ring_{};
  std::size_t next_ = 0;  // the oldest one, once the ring is full
  std::uint64_t forgotten_ = 0;
  std::vector<bool> resident_{};         // by block, now
  std::vector<bool> resident_before_{};  // before the oldest entry
};

}  // namespace detail
}  // namespace v0
}  // namespace deepum

#ifndef DEEPUM_SEPARATE_COMPILATION
#include <deepum/tracing/impl/trace_entries.hpp>  // what it declares
#endif
