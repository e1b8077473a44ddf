#pragma once

#include <deepum/arena/launch_access.hpp>
#include <deepum/arena/stream_copies.hpp>
#include <deepum/core/element_bytes.hpp>
#include <deepum/error.hpp>
#include <deepum/separate.hpp>

#include <algorithm>
#include <array>
#include <memory>
#include <optional>
#include <vector>

namespace deepum {
inline namespace v0 {
namespace detail {

DEEPUM_SEPARATE launch_id stream_copies::memcpy(void* to, const void* from, bytes size) {
  lending_arena* const to_other = rooms_.launches.other_arena(to);
  lending_arena* const from_other = rooms_.launches.other_arena(from);
  if (to_other != nullptr || from_other != nullptr) {
    return memcpy_between(to_other, static_cast<std::byte*>(to), from_other, static_cast<const std::byte*>(from), size);
  }
  return copy(to, from, size);
}

DEEPUM_SEPARATE launch_id stream_copies::copy(void* to, const void* from, bytes size) {
  check_transfer("memcpy", nullptr, {to, size, access::overwrite});
  check_transfer("memcpy", nullptr, {from, size, access::read});
  return in_pieces(to, from, size, [&](bytes begin, bytes piece) {
    std::byte* const begin_to = static_cast<std::byte*>(to) + begin.count;
    const std::byte* const begin_from = static_cast<const std::byte*>(from) + begin.count;
    if (!launches_.recorded && !fit_together(begin_to, begin_from)) {
      return copy_staged(nullptr, begin_to, nullptr, begin_from, piece);
    }
    const std::array<operand, 2> operands{operand{begin_to, piece, access::overwrite},
                                          operand{begin_from, piece, access::read}};
    return transfer("memcpy", operands, [&] { queue_.copy(begin_to, begin_from, piece.count); });
  });
}

DEEPUM_SEPARATE launch_id stream_copies::memset(void* to, int with, bytes size) {
  check_transfer("memset", nullptr, {to, size, access::overwrite});
  return in_pieces(to, nullptr, size, [&](bytes begin, bytes piece) {
    std::byte* const begin_to = static_cast<std::byte*>(to) + begin.count;
    const std::array<operand, 1> operands{operand{begin_to, piece, access::overwrite}};
    return transfer("memset", operands, [&] { queue_.fill(begin_to, with, piece.count); });
  });
}

DEEPUM_SEPARATE launch_id stream_copies::in_pieces(const void* to, const void* from, bytes size,
                                                   const std::function<launch_id(bytes begin, bytes piece)>& piece) {
  bytes most = bytes_of_elements<void>(size.count);  // all bytes is no size
  bool within_blocks = false;  // pieces end where blocks do: else one could touch two blocks on either side
  if (!rooms_.back.faults()) {
    most = rooms_.back.most_at_once();
    within_blocks = rooms_.back.engine().budget() < 4 * rooms_.back.block();
  }
  launch_id last{};
  for (bytes begin{}; begin < size;) {
    bytes length = std::min(most, size - begin);
    if (within_blocks) {
      length =
          std::min({length, most_of(nullptr, static_cast<const std::byte*>(to) + begin.count),
                    from == nullptr ? length : most_of(nullptr, static_cast<const std::byte*>(from) + begin.count)});
    }
    last = piece(begin, length);
    begin += length;
  }
  return last;
}

DEEPUM_SEPARATE bool stream_copies::fit_together(const void* a, const void* b) const {
  if (rooms_.back.faults()) {
    return true;
  }
  const std::optional<bytes> first = rooms_.front.offset_of(a);
  const std::optional<bytes> second = rooms_.front.offset_of(b);
  const bytes block = rooms_.back.block();
  return !first || !second || *first / block == *second / block || rooms_.back.engine().budget() >= 2 * block;
}

DEEPUM_SEPARATE void stream_copies::check_transfer(std::string_view name, lending_arena* other, const operand& o) {
  if (other != nullptr) {
    other->check(name, o);
  } else if (!rooms_.back.faults()) {
    rooms_.launches.check_operand(name, o);
  }
}

DEEPUM_SEPARATE bytes stream_copies::most_of(const lending_arena* other, const void* p) const {
  bytes most = operand::whole;
  bytes block{1};
  if (other != nullptr) {
    most = other->most();
    block = other->block();
  } else if (!rooms_.back.faults() && rooms_.front.contains(p)) {
    most = rooms_.back.most_at_once();
    block = rooms_.back.block();
  }
  return most - bytes{reinterpret_cast<std::uintptr_t>(p) % block.count};
}

// --- between arenas --------------------------------------------------------------------------------------------------

DEEPUM_SEPARATE launch_id stream_copies::memcpy_between(lending_arena* to_other, std::byte* to,
                                                        lending_arena* from_other, const std::byte* from, bytes size) {
  if (launches_.recorded || queue_.capturing()) {
    throw error(status::unsupported,
                "memcpy between arenas while its stream is captured: a graph can bring the memory of one arena only; "
                "copy before or after the graph");
  }
  const bool staged = (to_other != nullptr && !(to_other->device() == rooms_.device)) ||
                      (from_other != nullptr && !(from_other->device() == rooms_.device));
  if (staged) {
    queue_.synchronize();  // the other device does not wait for this stream
  }
  check_transfer("memcpy", to_other, {to, size, access::overwrite});
  check_transfer("memcpy", from_other, {from, size, access::read});
  launch_id last{};
  while (size.count != 0) {
    const bytes length = std::min({size, most_of(to_other, to), most_of(from_other, from), most_of(nullptr, to),
                                   most_of(nullptr, from), staged ? most_staged : size});
    last = staged ? copy_staged(to_other, to, from_other, from, length)
                  : copy_lent(to_other, to, from_other, from, length);
    to += length.count;
    from += length.count;
    size -= length;
  }
  return last;
}

DEEPUM_SEPARATE launch_id stream_copies::copy_lent(lending_arena* to_other, std::byte* to, lending_arena* from_other,
                                                   const std::byte* from, bytes size) {
  const operand written{to, size, access::overwrite};
  const operand read{from, size, access::read};
  struct part {
    lending_arena* lender = nullptr;  // none: this arena
    std::vector<operand> operands{};
  };
  // In one order in all threads, so that two of them do not wait for what the other one has been lent.
  const auto place = [this](const lending_arena* lender) -> const void* {
    return lender != nullptr ? lender : rooms_.lends_as();
  };
  std::vector<part> parts{{.lender = nullptr, .operands = {}}};
  const auto add = [&](lending_arena* lender, const operand& each) {
    auto it = std::find_if(parts.begin(), parts.end(), [&](const part& other) { return other.lender == lender; });
    if (it == parts.end()) {
      it = std::find_if(parts.begin(), parts.end(),
                        [&](const part& other) { return std::less<>()(place(lender), place(other.lender)); });
      it = parts.insert(it, part{lender, {}});
    }
    it->operands.push_back(each);
  };
  add(to_other, written);
  add(from_other, read);
  launch_id made{};
  const auto with_all_from = [&](auto&& self, std::size_t next_part) -> void {
    if (next_part == parts.size()) {
      queue_.copy(to, from, size.count);
      queue_.synchronize();
    } else if (parts[next_part].lender != nullptr) {
      parts[next_part].lender->lend("memcpy", parts[next_part].operands, [&] { self(self, next_part + 1); });
    } else {
      made = transfer("memcpy", parts[next_part].operands, [&] { self(self, next_part + 1); });
    }
  };
  with_all_from(with_all_from, 0);
  return made;
}

DEEPUM_SEPARATE launch_id stream_copies::copy_staged(lending_arena* to_other, std::byte* to, lending_arena* from_other,
                                                     const std::byte* from, bytes size) {
  std::vector<std::byte> stage(size.count);
  launch_id made{};
  if (from_other != nullptr) {
    from_other->copy("memcpy", stage.data(), from, size);
  } else {
    made = copy(stage.data(), from, size);
    queue_.synchronize();
  }
  if (to_other != nullptr) {
    to_other->copy("memcpy", to, stage.data(), size);
  } else {
    made = copy(to, stage.data(), size);
    queue_.synchronize();
  }
  return made;
}

// --- one of them -----------------------------------------------------------------------------------------------------

DEEPUM_SEPARATE void stream_copies::record_transfer(std::span<const operand> operands,
                                                    const std::function<void()>& enqueue) {
  if (rooms_.back.faults()) {
    enqueue();
    return;
  }
  recording& recorded = *launches_.recorded;
  declaration& declared = launches_.declared;
  launch_record graph;
  graph.name = recorded.name;
  rooms_.launches.declare(recorded.operands, graph.accesses);
  rooms_.back.engine().check(graph);  // else what is kept of it would wait for what is kept of it
  std::vector<operand> kept;
  for (const operand& o : operands) {
    if (rooms_.front.contains(o.address)) {
      kept.push_back({o.address, o.size, access::read});
    }
  }
  recorded.kept.push_back(std::make_unique<held_operands>(rooms_, kept));
  rooms_.launches.declare(declared.operands, declared.blocks);
  const access_for access(rooms_.back.memory(), declared.blocks, rooms_.order != nullptr);
  enqueue();
}

DEEPUM_SEPARATE launch_id stream_copies::transfer(std::string_view name, std::span<const operand> operands,
                                                  const std::function<void()>& enqueue) {
  open_launch opened(launches_, name, launches_.signature_of(name, operands), operands, true, true);
  if (launches_.recorded) {
    record_transfer(operands, enqueue);
  } else {
    enqueue();
  }
  return opened.issued();
}

}  // namespace detail
}  // namespace v0
}  // namespace deepum
