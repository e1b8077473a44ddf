#pragma once

#include <deepum/core/block.hpp>
#include <deepum/core/launch.hpp>
#include <deepum/separate.hpp>
#include <deepum/sim/contents.hpp>
#include <deepum/sim/paged_contents.hpp>
#include <deepum/units.hpp>

#include <cstddef>
#include <cstring>

namespace deepum {
inline namespace v0 {
namespace sim {

DEEPUM_SEPARATE void paged_contents::give_up(block_id b) {
  if (copies_[b.value] == state::newer) {
    data_.restore_older(b);
  }
  copies_[b.value] = state::garbage;
}

DEEPUM_SEPARATE void paged_contents::use(block_id b, access mode) {
  state& copy = copies_[b.value];
  if (copy == state::garbage) {
    data_.keep_older(b);
    data_.poison(b);
    copy = state::newer;
  } else if (copy == state::same && mode != access::read) {
    data_.keep_older(b);
    copy = state::newer;
  }
}

DEEPUM_SEPARATE void paged_contents::host_to_device(block_id b) {
  give_up(b);
  copies_[b.value] = state::same;
}

DEEPUM_SEPARATE void paged_contents::device_to_host(block_id b) {
  state& copy = copies_[b.value];
  if (copy == state::garbage) {
    data_.poison(b);
  } else if (copy == state::newer) {
    data_.forget_older(b);
  }
  copy = state::same;
}

DEEPUM_SEPARATE void paged_contents::host_to(block_id b, std::byte* other) {
  copies_[b.value] == state::newer ? data_.read_older(b, other) : data_.read(b, other);
}

DEEPUM_SEPARATE void paged_contents::device_to(block_id b, std::byte* other, bool written_meanwhile) {
  if (written_meanwhile || copies_[b.value] == state::garbage) {
    std::memset(other, contents::poison_byte, block_size.count);
  } else {
    data_.read(b, other);
  }
}

DEEPUM_SEPARATE void paged_contents::to_host(block_id b, const std::byte* other) {
  state& copy = copies_[b.value];
  if (copy == state::garbage) {
    data_.write(b, other);
    return;
  }
  if (copy == state::same) {
    data_.keep_older(b);
    copy = state::newer;
  }
  data_.write_older(b, other);
}

DEEPUM_SEPARATE void paged_contents::to_device(block_id b, const std::byte* other) {
  give_up(b);
  data_.keep_older(b);
  data_.write(b, other);
  copies_[b.value] = state::newer;
}

DEEPUM_SEPARATE void paged_contents::lose_host(block_id b) {
  state& copy = copies_[b.value];
  if (copy == state::garbage) {
    data_.poison(b);
    return;
  }
  if (copy == state::same) {
    data_.keep_older(b);
    copy = state::newer;
  }
  data_.poison_older(b);
}

}  // namespace sim
}  // namespace v0
}  // namespace deepum
