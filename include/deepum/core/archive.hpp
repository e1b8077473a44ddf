#pragma once

#include <deepum/core/block.hpp>
#include <deepum/core/hash.hpp>
#include <deepum/core/regular_file.hpp>
#include <deepum/error.hpp>

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace deepum {
inline namespace v0 {

/// Names what a section of an archive holds: four characters.
enum class archive_tag : std::uint32_t {};
[[nodiscard]] constexpr archive_tag make_archive_tag(const char (&name)[5]) {
  return archive_tag{std::bit_cast<std::uint32_t>(std::array<char, 4>{name[0], name[1], name[2], name[3]})};
}

namespace detail {

/// What an archive begins with. Whole numbers are in the byte order of the machine that wrote it.
struct archive_header {
  // The bytes that end lines show a transfer as text, as they do in a PNG file.
  static constexpr std::array<char, 8> right_magic{'\x8f', 'd', 'p', 'u', 'm', '\r', '\n', '\n'};
  static constexpr std::uint32_t right_byte_order = 0x01020304U;
  static constexpr std::uint32_t current_version = 1;

  std::array<char, 8> magic = right_magic;
  std::uint32_t byte_order = right_byte_order;
  std::uint32_t version = current_version;
  std::uint64_t block_bytes = block_size.count;
  std::uint64_t payload_bytes = 0;
  std::uint64_t checksum = 0;

  [[nodiscard]] static std::uint64_t checksum_of(std::span<const std::byte> payload) {
    return absorb_bytes(hash_key_c, payload.size(), payload.data(), payload.size());
  }
};
static_assert(sizeof(archive_header) == 40 && std::is_trivially_copyable_v<archive_header>);

}  // namespace detail

/// Collects tables in the format in which they are kept between runs: a header with magic, byte order, version, block
/// size and checksum, then sections of a tag, a length and contents.
///
/// Not synchronised.
class archive_writer {
 public:
  /// @param unit  Size of the blocks that the tables name.
  explicit archive_writer(bytes unit) : data_(sizeof(detail::archive_header)), block_(unit) {}

  /// Appends a whole number, `bool` or enumerator.
  template <class T>
    requires(std::is_integral_v<T> || std::is_enum_v<T>)
  void put(T value) {
    put_bytes(&value, sizeof value);
  }
  void put_bytes(std::span<const std::byte> bytes) { put_bytes(bytes.data(), bytes.size()); }
  void put_bytes(const void* data, std::size_t n) {
    const auto* const first = static_cast<const std::byte*>(data);
    data_.insert(data_.end(), first, first + n);
  }

  /// A section, which may have sections inside. `body()` appends its contents.
  template <class Body>
  void section(archive_tag tag, Body&& body) {
    put(tag);
    const std::size_t length_at = data_.size();
    put(std::uint64_t{0});
    const std::size_t begin = data_.size();
    body();
    const std::uint64_t length = data_.size() - begin;
    std::memcpy(data_.data() + length_at, &length, sizeof length);
  }

  /// The archive. Nothing is left in the writer.
  [[nodiscard]] std::vector<std::byte> finish() {
    detail::archive_header header;
    const std::span<const std::byte> payload{data_.data() + sizeof header, data_.size() - sizeof header};
    header.block_bytes = block_.count;
    header.payload_bytes = payload.size();
    header.checksum = detail::archive_header::checksum_of(payload);
    std::memcpy(data_.data(), &header, sizeof header);
    return std::exchange(data_, std::vector<std::byte>(sizeof header));
  }

 private:
  std::vector<std::byte> data_;  // room for the header, then the payload
  bytes block_;
};

/// Takes tables out of an archive. Everything that is read is checked, so that nothing damaged or foreign gets in, and
/// memory is taken only for what is there.
///
/// All of its functions throw `error` with `status::bad_format`, and say why. Not synchronised.
class archive_reader {
 public:
  /// @param archive  Must outlive the reader.
  /// @param unit     Size of the blocks that its tables have to name.
  archive_reader(std::span<const std::byte> archive, bytes unit) {
    detail::archive_header header;
    if (archive.size() < sizeof header) {
      refuse("shorter than its header");
    }
    std::memcpy(&header, archive.data(), sizeof header);
    if (header.magic != detail::archive_header::right_magic) {
      refuse("not an archive of tables");
    }
    if (header.byte_order != detail::archive_header::right_byte_order) {
      refuse("written on a machine of another byte order");
    }
    if (header.version != detail::archive_header::current_version) {
      refuse("version " + std::to_string(header.version) + " of the format; only version " +
             std::to_string(detail::archive_header::current_version) + " is known");
    }
    if (header.block_bytes != unit.count) {
      refuse("written for blocks of " + std::to_string(header.block_bytes) + " bytes");
    }
    rest_ = archive.subspan(sizeof header);
    if (header.payload_bytes != rest_.size()) {
      refuse("the header says " + std::to_string(header.payload_bytes) + " bytes, " + std::to_string(rest_.size()) +
             " follow it");
    }
    if (header.checksum != detail::archive_header::checksum_of(rest_)) {
      refuse("damaged: the checksum is wrong");
    }
  }

  /// The next whole number of this type.
  template <class T>
    requires(std::is_integral_v<T> && !std::is_same_v<T, bool>)
  [[nodiscard]] T get() {
    T value{};
    std::memcpy(&value, get_bytes(sizeof value).data(), sizeof value);
    return value;
  }
  [[nodiscard]] bool get_bool() {
    const auto value = get<std::uint8_t>();
    if (value > 1) {
      refuse("neither true nor false");
    }
    return value == 1;
  }
  /// @param last  The enumerator of the highest value; they begin at 0.
  template <class Enum>
  [[nodiscard]] Enum get_enum(Enum last) {
    const auto value = get<std::underlying_type_t<Enum>>();
    if (value > static_cast<std::underlying_type_t<Enum>>(last)) {
      refuse("an enumerator that does not exist");
    }
    return static_cast<Enum>(value);
  }
  /// A number of things that follow, each of at least so many bytes.
  [[nodiscard]] std::size_t get_count(std::size_t bytes_each) {
    const auto count = get<std::uint64_t>();
    if (count > rest_.size() / bytes_each) {
      refuse("a section ends before its contents do");
    }
    return static_cast<std::size_t>(count);
  }
  [[nodiscard]] std::span<const std::byte> get_bytes(std::size_t n) {
    if (n > rest_.size()) {
      refuse("a section ends before its contents do");
    }
    const std::span<const std::byte> taken = rest_.first(n);
    rest_ = rest_.subspan(n);
    return taken;
  }

  /// The next section, which must be of this kind. `body()` must read all of it.
  /// @returns  What `body()` returns.
  template <class Body>
  auto section(archive_tag tag, Body&& body) {
    if (get<std::uint32_t>() != static_cast<std::uint32_t>(tag)) {
      refuse("a section is missing or out of place");
    }
    const std::span<const std::byte> contents = get_bytes(get_count(1));
    const std::span<const std::byte> after = std::exchange(rest_, contents);
    auto result = body();
    finish();
    rest_ = after;
    return result;
  }

  /// Everything must have been read.
  void finish() const {
    if (!rest_.empty()) {
      refuse("more contents than expected");
    }
  }

  /// @param why  What is wrong with the archive.
  [[noreturn]] static void refuse(const std::string& why) {
    throw error(status::bad_format, "saved tables are refused: " + why);
  }

 private:
  std::span<const std::byte> rest_{};  // of the innermost section
};

/// Replaces a regular file as a whole: who reads it finds the old contents or the new ones, never a part.
/// @errors  `status::io_failure`; then the file is as it was.
inline void save_archive(const std::string& path, std::span<const std::byte> archive) {
  replace_regular_file(path, archive);
}

/// The contents of a file that `save_archive` wrote. Nothing in them has been checked but their length.
/// @errors  `status::io_failure` where it cannot be read, or is no regular file; `status::bad_format` where it is
///          longer than a GiB.
[[nodiscard]] inline std::vector<std::byte> load_archive(const std::string& path) {
  constexpr std::size_t longest = std::size_t{1} << 30U;
  std::vector<std::byte> archive = read_regular_file(path, longest);
  if (archive.size() > longest) {
    throw error(status::bad_format, path + ": too long for saved tables");
  }
  return archive;
}

}  // namespace v0
}  // namespace deepum
