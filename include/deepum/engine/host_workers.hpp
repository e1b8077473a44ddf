#pragma once

#include <deepum/units.hpp>

#include <functional>
#include <optional>

namespace deepum {
inline namespace v0 {
namespace detail {

/// Work of the host that takes time: mostly the copy of some bytes.
struct host_job {
  bytes size{};
  std::function<void()> run{};
};

/// Does work of the host beside the program: threads, or on a simulated device events of its clock.
class host_workers {
 public:
  /// What there is to do next; nothing: wait until woken. Threads: those of the workers.
  using next_job = std::function<std::optional<host_job>()>;

  host_workers(const host_workers&) = delete;
  host_workers& operator=(const host_workers&) = delete;
  /// Ends when jobs that have begun are done.
  virtual ~host_workers() = default;

  /// There may be something to do. Threads: any, under any lock that jobs do not wait for with theirs.
  virtual void wake() = 0;

 protected:
  host_workers() = default;
};

}  // namespace detail
}  // namespace v0
}  // namespace deepum
