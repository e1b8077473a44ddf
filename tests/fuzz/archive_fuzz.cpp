// The loader of saved tables: an input is refused, or makes tables that work and are saved as they were loaded. The
// checksum stops almost every input, so each is tried with its header put right as well.

#include "prediction/saved_tables.hpp"
#include <deepum/error.hpp>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>

using namespace deepum;
using deepum_test::archive, deepum_test::events, deepum_test::tables;

namespace {

void check(const archive& a) {
  std::optional<tables> loaded;
  try {
    loaded = tables::load(a);
  } catch (const error& e) {
    expects(e.code() == status::bad_format, "refused for another reason than its format");
    return;
  }
  expects(loaded->save() == a, "tables change when they are loaded and saved again");
  for (std::uint32_t id = 1; id <= loaded->ids.size(); ++id) {
    if (const footprint* f = loaded->footprints.find(execution_id{id})) {
      std::uint32_t contained = 0;
      for (std::uint32_t b = 0; b < deepum_test::arena_blocks; ++b) {
        contained += f->contains(block_id{b}) ? 1 : 0;
      }
      expects(contained == f->block_count(), "a footprint counts blocks that it does not contain");
    }
  }
  events e(1);
  for (int i = 0; i < 10; ++i) {
    e.apply(*loaded);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::span<const std::byte> input = std::as_bytes(std::span(data, size));
  check({input.begin(), input.end()});
  archive_writer out(block_size);
  out.put_bytes(input.subspan(std::min(size, sizeof(detail::archive_header))));
  check(out.finish());
  return 0;
}
