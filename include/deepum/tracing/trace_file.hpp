#pragma once

#include <deepum/tracing/trace_entries.hpp>
#include <deepum/units.hpp>

#include <iosfwd>
#include <memory>
#include <string>

namespace deepum {
inline namespace v0 {
namespace detail {

/// Writes runs that were recorded as one file in the trace event format (Perfetto), each as a process of its own. Each
/// begins at the time 0.
class trace_file {
 public:
  /// @param json  Where the text goes. It says whether that worked.
  explicit trace_file(std::ostream& json);
  ~trace_file();
  trace_file(const trace_file&) = delete;
  trace_file& operator=(const trace_file&) = delete;

  /// @param name   Of the run, for the viewer.
  /// @param block  What a block has.
  void add(const trace_entries& run, const std::string& name, bytes block);
  void finish();

 private:
  class events;
  class run_writer;

  std::unique_ptr<events> to_;
  int runs_ = 0;
};

}  // namespace detail
}  // namespace v0
}  // namespace deepum

#ifndef DEEPUM_SEPARATE_COMPILATION
#include <deepum/tracing/impl/trace_file.hpp>  // what it declares
#endif
