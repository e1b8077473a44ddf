#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

namespace deepum_test {

/// One operation of a random program. Buffers are named by number; their elements are 32-bit words.
struct operation {
  enum class kind : std::uint8_t {
    allocate,    // buffer a, n words; followed by a fill
    release,     // buffer a
    fill,        // launch: a overwritten as a whole with f(i, value)
    fill_part,   // launch through an interior pointer: a[first, first + n) written, the rest kept
    mix,         // launch: a updated from b
    gather,      // launch: a[i] updated from b[index[i] % size], index = c (data-dependent)
    chase,       // launch: a updated from b, which it finds through a pointer stored in memory
    copy,        // memcpy a <- b, n words
    set_bytes,   // memset of n words of a
    host_read,   // words [first, first + n) go into the checksum
    host_write,  // words [first, first + n) are set by the host
    forget,      // contents of a declared dead (mark_inactive or discard), then filled again
    hint,        // prefetch or advise a: never changes contents
    synchronize,
  };
  kind what = kind::synchronize;
  std::uint16_t stream = 0;
  std::uint32_t a = 0, b = 0, c = 0;
  std::uint32_t first = 0, n = 0;
  std::uint32_t value = 0;
};

/// A program that is valid on any memory: no word is read before it was written, and none after its buffer is freed.
struct random_program {
  std::vector<operation> operations;
  std::uint32_t buffers = 0;
  std::uint64_t peak_words = 0;
};

struct program_options {
  std::uint32_t loop_length = 24;  // launches and the like in the repeated part
  std::uint32_t repetitions = 6;
  std::uint32_t max_buffers = 10;
  std::uint32_t max_words = 1U << 20;  // 4 MiB
};

/// The same seed gives the same program. A prologue allocates, a loop recurs (with a change now and then), so that the
/// tables learn something, and some of what they learn turns out to be wrong.
inline random_program make_random_program(std::uint64_t seed, const program_options& options) {
  std::mt19937_64 random(seed);
  const auto below = [&](std::uint64_t n) { return static_cast<std::uint32_t>(random() % n); };
  random_program program;
  std::vector<std::uint32_t> words;  // by buffer; 0 = freed
  std::uint64_t live_words = 0;
  using kind = operation::kind;

  const auto pick_words = [&] {
    const std::uint32_t shape = below(4);
    if (shape == 0) {
      return 1 + below(2000);  // small: shares its block with others
    }
    return 1 + below(shape == 1 ? options.max_words / 8 : options.max_words);
  };
  const auto allocate = [&](std::uint16_t stream) {
    const std::uint32_t id = static_cast<std::uint32_t>(words.size());
    words.push_back(pick_words());
    live_words += words[id];
    program.peak_words = std::max(program.peak_words, live_words);
    program.operations.push_back({kind::allocate, stream, id, 0, 0, 0, words[id], 0});
    program.operations.push_back({kind::fill, stream, id, 0, 0, 0, words[id], below(1U << 30)});
  };
  const auto pick_live = [&] {
    for (;;) {
      const std::uint32_t id = below(words.size());
      if (words[id] != 0) {
        return id;
      }
    }
  };
  const auto count_live = [&] {
    std::uint32_t n = 0;
    for (const std::uint32_t w : words) {
      n += w != 0 ? 1 : 0;
    }
    return n;
  };
  const auto random_operation = [&](std::uint16_t stream) {
    operation op;
    op.stream = stream;
    op.value = below(1U << 30);
    op.a = pick_live();
    op.b = pick_live();
    op.c = pick_live();
    const std::uint32_t size = words[op.a];
    op.first = below(size);
    op.n = 1 + below(size - op.first);
    switch (below(16)) {
      case 0:
        op.what = kind::fill;
        break;
      case 1:
        op.what = kind::fill_part;
        break;
      case 2:
      case 3:
      case 4:
      case 5:
        op.what = kind::mix;
        break;
      case 6:
      case 7:
        op.what = kind::gather;
        break;
      case 8:
        op.what = kind::chase;
        break;
      case 9:
        op.what = kind::copy;
        op.n = 1 + below(std::min(size, words[op.b]));
        break;
      case 10:
        op.what = kind::set_bytes;
        op.first = 0;
        op.n = 1 + below(size);
        break;
      case 11:
        op.what = kind::host_read;
        break;
      case 12:
        op.what = kind::host_write;
        break;
      case 13:
        op.what = kind::forget;
        break;
      case 14:
        op.what = kind::hint;
        break;
      default:
        op.what = kind::synchronize;
        break;
    }
    return op;
  };

  for (std::uint32_t i = 0; i < 3 + below(options.max_buffers - 3); ++i) {
    allocate(0);
  }
  std::vector<operation> loop;
  for (std::uint32_t i = 0; i < options.loop_length; ++i) {
    loop.push_back(random_operation(static_cast<std::uint16_t>(below(4) == 0 ? 1 : 0)));
  }
  for (std::uint32_t r = 0; r < options.repetitions; ++r) {
    for (operation& op : loop) {
      op.value += op.value % 8 == 7 ? 8 : 0;  // some scalars change from step to step
      program.operations.push_back(op);
    }
    if (below(3) == 0) {  // a change: another operation here, a buffer freed or born there
      loop[below(loop.size())] = random_operation(0);
    }
    if (below(3) == 0 && count_live() > 3) {
      const std::uint32_t victim = pick_live();
      live_words -= words[victim];
      program.operations.push_back({kind::release, 0, victim, 0, 0, 0, 0, 0});
      words[victim] = 0;
      if (below(2) == 0) {
        allocate(static_cast<std::uint16_t>(below(2)));
      }
      for (operation& op : loop) {
        if (words[op.a] == 0 || words[op.b] == 0 || words[op.c] == 0) {
          op = random_operation(op.stream);
        }
      }
    }
  }
  program.buffers = static_cast<std::uint32_t>(words.size());
  return program;
}

/// What the kernels compute, word by word; shared by the reference and the arena run so that only memory can differ.
inline std::uint32_t filled(std::uint32_t i, std::uint32_t value) { return (i * 2654435761U) ^ value; }
inline std::uint32_t mixed(std::uint32_t old, std::uint32_t other, std::uint32_t value) {
  return old * 3U + (other ^ value) + 1U;
}
inline std::uint64_t folded(std::uint64_t sum, std::uint32_t word) { return (sum ^ word) * 0x100000001b3ULL; }

/// The naive twin: the program on plain vectors.
class reference_run {
 public:
  std::uint64_t run(const random_program& program) {
    buffers_.resize(program.buffers);
    std::uint64_t sum = 0xcbf29ce484222325ULL;
    for (const operation& op : program.operations) {
      step(op, sum);
    }
    for (const auto& buffer : buffers_) {
      for (const std::uint32_t word : buffer) {
        sum = folded(sum, word);
      }
    }
    return sum;
  }

 private:
  void step(const operation& op, std::uint64_t& sum) {
    using kind = operation::kind;
    auto& a = buffers_[op.a];
    const auto& b = buffers_[op.b];
    const auto& c = buffers_[op.c];
    const auto size = static_cast<std::uint32_t>(a.size());
    switch (op.what) {
      case kind::allocate:
        a.assign(op.n, 0);
        break;
      case kind::release:
        a = {};
        break;
      case kind::fill:
      case kind::forget:
        for (std::uint32_t i = 0; i < size; ++i) {
          a[i] = filled(i, op.value);
        }
        break;
      case kind::fill_part:
        for (std::uint32_t i = 0; i < op.n; ++i) {
          a[op.first + i] = filled(i, op.value);
        }
        break;
      case kind::mix:
      case kind::chase:
        for (std::uint32_t i = 0; i < size; ++i) {
          a[i] = mixed(a[i], b[i % b.size()], op.value);
        }
        break;
      case kind::gather:
        for (std::uint32_t i = 0; i < size; ++i) {
          a[i] = mixed(a[i], b[c[i % c.size()] % b.size()], op.value);
        }
        break;
      case kind::copy:
        for (std::uint32_t i = 0; i < op.n; ++i) {
          a[i] = b[i];
        }
        break;
      case kind::set_bytes:
        for (std::uint32_t i = 0; i < op.n; ++i) {
          a[i] = (op.value & 0xffU) * 0x01010101U;
        }
        break;
      case kind::host_read:
        for (std::uint32_t i = 0; i < op.n; ++i) {
          sum = folded(sum, a[op.first + i]);
        }
        break;
      case kind::host_write:
        for (std::uint32_t i = 0; i < op.n; ++i) {
          a[op.first + i] = filled(i, op.value);
        }
        break;
      case kind::hint:
      case kind::synchronize:
        break;
    }
  }

  std::vector<std::vector<std::uint32_t>> buffers_;
};

}  // namespace deepum_test
