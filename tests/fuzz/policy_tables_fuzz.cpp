// The tables that a policy begins with: an input is refused and leaves the policy as a new one, or makes a policy that
// saves what it loaded and keeps to the law. The checksum stops almost every input, so each is tried with its header
// put right as well.

#include "policy/saved_policies.hpp"
#include <deepum/error.hpp>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

using namespace deepum;
using deepum_test::archive, deepum_test::saved_kind;

namespace {

/// A policy of that kind, and what it saves while it knows nothing.
struct target {
  saved_kind kind{};
  archive nothing{};
};

void check(const target& t, const archive& a) {
  const std::unique_ptr<policy> p = t.kind.make();
  try {
    load_tables(*p, a, deepum_test::law_blocks, deepum::block_size);
  } catch (const error& e) {
    expects(e.code() == status::bad_format, "refused for another reason than its format");
    expects(save_tables(*p, block_size) == t.nothing, "a policy is not as a new one after a refusal");
    return;
  }
  expects(save_tables(*p, block_size) == a, "tables change when they are loaded and saved again");
  deepum_test::driver d{*p, deepum_test::law_blocks, 9};
  deepum_test::small_program(1).run(d, 10);
  expects(d.lost.empty(), "a policy with loaded tables loses contents");
  (void)save_tables(*p, block_size);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const std::vector<target> targets = [] {
    std::vector<target> all;
    for (const saved_kind& kind : deepum_test::saved_kinds()) {
      all.push_back({kind, save_tables(*kind.make(), block_size)});
    }
    return all;
  }();
  const std::span<const std::byte> input = std::as_bytes(std::span(data, size));
  archive_writer out(block_size);
  out.put_bytes(input.subspan(std::min(size, sizeof(detail::archive_header))));
  const archive sealed = out.finish();
  for (const target& t : targets) {
    check(t, {input.begin(), input.end()});
    check(t, sealed);
  }
  return 0;
}
