#pragma once

#include <deepum/units.hpp>

#include <cstdint>

namespace deepum {
inline namespace v0 {

/// How uploads are carried out.
struct upload_options {
  unsigned threads = 8;  ///< that copy, at most as many as the host has; they begin with the first upload
  bytes piece{std::uint64_t{2} << 20};  ///< that one of them copies at a time
  bytes staged{
      std::uint64_t{256} << 20};  ///< memory for what is read before it may be written, because launches use it
};

}  // namespace v0
}  // namespace deepum
