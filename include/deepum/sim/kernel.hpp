#pragma once

#include <deepum/core/launch.hpp>
#include <deepum/core/sequence.hpp>
#include <deepum/units.hpp>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>

namespace deepum {
inline namespace v0 {
namespace sim {

/// What one launch really touches, in the order of first touch, and how much it computes.
///
/// This is the truth about the kernel, as hardware would find it out. What the program declares to the stream wrapper
/// is another thing, and may be wrong.
class work {
 public:
  /// Bytes that are touched, and how.
  struct span {
    const void* address = nullptr;
    bytes size{};
    access mode = access::read;
  };

  work& reads(const void* address, std::size_t size) { return add(address, size, access::read); }
  work& updates(const void* address, std::size_t size) { return add(address, size, access::update); }
  work& overwrites(const void* address, std::size_t size) { return add(address, size, access::overwrite); }
  /// Operations of the launch, added up over all calls.
  work& flops(double operations) {
    flops_ += operations;
    return *this;
  }
  /// Bytes that move between device memory and the processors, where the spans do not say it: a kernel that reads its
  /// operands several times. Default: spans once, updated spans twice.
  work& traffic(bytes total) {
    traffic_ = total;
    return *this;
  }

  [[nodiscard]] const sequence<span>& spans() const { return spans_; }
  [[nodiscard]] double flops() const { return flops_; }
  [[nodiscard]] bytes traffic() const {
    if (traffic_) {
      return *traffic_;
    }
    bytes sum;
    for (const span& s : spans_) {
      sum += s.mode == access::update ? 2 * s.size : s.size;
    }
    return sum;
  }

 private:
  work& add(const void* address, std::size_t size, access mode) {
    if (size != 0) {
      spans_.push_back({address, bytes{size}, mode});
    }
    return *this;
  }

  sequence<span> spans_;
  double flops_ = 0;
  std::optional<bytes> traffic_;
};

/// A host function as a kernel of the simulated GPU.
///
/// `body(args...)` does the work. `describe(work&, args...)` says what the body will touch; it runs just before, may
/// read the memory that the kernel reads (index arrays), and must not write. Both run without a lock, one kernel at a
/// time.
template <class Body, class Describe>
struct kernel {
  kernel(Body does, Describe says) : kernel("kernel", std::move(does), std::move(says)) {}
  kernel(std::string called, Body does, Describe says)
      : name(std::move(called)),
        body(std::move(does)),
        describe(std::move(says)) {}

  std::string name;  ///< for messages
  Body body;
  Describe describe;
};

}  // namespace sim
}  // namespace v0
}  // namespace deepum
