#pragma once

#include <deepum/units.hpp>

#include <mutex>
#include <optional>

namespace deepum {
inline namespace v0 {
namespace cuda {

/// How much managed memory this process may have in all its arenas: DEEPUM_MANAGED_LIMIT in the environment.
///
/// Managed memory that outgrows the device can make the driver, and with it all programs on the card, very slow.
/// The limit is checked before the driver is asked for anything.
class managed_limit {
 public:
  static constexpr const char* variable = "DEEPUM_MANAGED_LIMIT";

  /// The limit, a size as `try_parse_size` reads it; nothing where none is set.
  /// @errors  `status::invalid_argument` for a value that is no size.
  [[nodiscard]] static std::optional<bytes> from_environment();

  /// What may still be taken, whole blocks; nothing where there is no limit. Threads: any.
  [[nodiscard]] static std::optional<bytes> left();

  /// A share of the limit, given back at the end. Threads: any.
  class share {
   public:
    /// @param wanted  Managed memory that is about to be allocated.
    /// @errors  `status::out_of_arena_space`, with the numbers; then nothing was taken.
    explicit share(bytes wanted);
    ~share();
    share(const share&) = delete;
    share& operator=(const share&) = delete;

   private:
    bytes size_;
  };

 private:
  static managed_limit& the();

  std::mutex mutex_;
  bytes taken_{};
};

}  // namespace cuda
}  // namespace v0
}  // namespace deepum

#ifndef DEEPUM_SEPARATE_COMPILATION
#include <deepum/cuda/impl/managed_limit.hpp>  // what it declares
#endif
