// The schedule reader: what it refuses, it refuses with a line; what it takes is the same after it was written again.

#include "replay/schedule.hpp"
#include <deepum/error.hpp>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

using namespace deepum;
using namespace deepum::replay;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  std::optional<schedule> read;
  try {
    read = parse_schedule("fuzz", {reinterpret_cast<const char*>(data), size});
  } catch (const error& e) {
    expects(e.code() == status::bad_format, "refused for another reason than its format");
    expects(std::string_view(e.what()).starts_with("fuzz:"), "refused without a line");
    return 0;
  }
  std::string text = schedule_line(read->header);
  for (const schedule_entry& e : read->entries) {
    text += schedule_line(e);
  }
  expects(parse_schedule("again", text) == *read, "a schedule changes when it is written and read again");
  return 0;
}
