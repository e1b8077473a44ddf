#pragma once

#include <deepum/core/archive.hpp>
#include <deepum/policy/policy.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace deepum {
inline namespace v0 {

/// Version of what policies save. It counts up with every change to that, and to the signatures of launches.
inline constexpr std::uint32_t policy_tables_version = 3;

namespace detail {
inline constexpr archive_tag saved_policy_tag = make_archive_tag("plcy");
}

/// The tables of a policy as an archive: version, the policy's name, what it saves.
///
/// They mean the same to a program that allocates in the same order: blocks and operands are named by their place in
/// the arena. Cost: linear in the memory of the tables.
/// @param block  Size of a block.
[[nodiscard]] inline std::vector<std::byte> save_tables(const policy& from, bytes block) {
  archive_writer out(block);
  out.section(detail::saved_policy_tag, [&] {
    const std::string_view name = from.name();
    out.put(policy_tables_version);
    out.put(std::uint64_t{name.size()});
    out.put_bytes(name.data(), name.size());
  });
  from.save(out);
  return out.finish();
}

/// Gives a policy the tables of an earlier run. It has been told of no event yet.
/// @param archive  As `save_tables` made it; anything else is refused.
/// @param blocks   Of the arena; the tables may name no others.
/// @param block    Size of one.
/// @errors         `status::bad_format`: damaged, of another policy, of another version or of other options, and says
///                 which. Then the policy is as it was.
inline void load_tables(policy& into, std::span<const std::byte> archive, std::uint32_t blocks, bytes block) {
  archive_reader in(archive, block);
  const std::string name = in.section(detail::saved_policy_tag, [&] {
    const auto format = in.get<std::uint32_t>();
    if (format != policy_tables_version) {
      in.refuse("version " + std::to_string(format) + " of the tables; only version " +
                std::to_string(policy_tables_version) + " is known");
    }
    std::string saved;
    for (const std::byte b : in.get_bytes(in.get_count(1))) {
      saved += static_cast<char>(b);
    }
    return saved;
  });
  if (name != into.name()) {
    const bool speakable =
        name.size() <= 32 && std::all_of(name.begin(), name.end(), [](char c) { return c > ' ' && c <= '~'; });
    in.refuse("they are of " + (speakable ? "the policy '" + name + "'" : "another policy") + ", not of '" +
              std::string(into.name()) + "'");
  }
  into.load(in, blocks);
}

}  // namespace v0
}  // namespace deepum
