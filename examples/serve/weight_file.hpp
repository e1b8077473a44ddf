#pragma once

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "nlohmann/json.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace serve {

/// Where a tensor lies in a weight file.
struct file_tensor {
  std::string type{};                  ///< as the format names it: F32, BF16, ...
  std::vector<std::uint64_t> shape{};  ///< elements of each dimension
  std::uint64_t offset = 0;            ///< of its first byte in the file
  std::uint64_t size = 0;              ///< bytes
};

/// A file of weights in the format of safetensors: the length of a header (8 bytes, little-endian), the header in JSON,
/// and the bytes of all tensors, at offsets that the header names. It stays open for as long as this lives, so that
/// uploads can read it.
class weight_file {
 public:
  /// Opens a file and reads its header. Nothing of the tensors is read.
  /// @errors  `kNotFound`; `kInvalidArgument` where it is no such file, or is shorter than its header says.
  [[nodiscard]] static absl::StatusOr<weight_file> open(const std::string& path) {
    weight_file made;
    made.descriptor_ = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
    if (made.descriptor_ < 0) return absl::NotFoundError(absl::StrCat(path, ": ", std::strerror(errno)));
    struct stat about {};
    if (::fstat(made.descriptor_, &about) != 0 || !S_ISREG(about.st_mode)) {
      return absl::InvalidArgumentError(absl::StrCat(path, ": is no regular file"));
    }
    if (absl::Status read = made.read_header(static_cast<std::uint64_t>(about.st_size)); !read.ok()) {
      return absl::Status(read.code(), absl::StrCat(path, ": ", read.message()));
    }
    return made;
  }
  weight_file(weight_file&& other) noexcept
      : descriptor_(std::exchange(other.descriptor_, -1)),
        tensors_(std::move(other.tensors_)) {}
  weight_file& operator=(weight_file&& other) noexcept {
    std::swap(descriptor_, other.descriptor_);
    std::swap(tensors_, other.tensors_);
    return *this;
  }
  ~weight_file() {
    if (descriptor_ >= 0) ::close(descriptor_);
  }

  [[nodiscard]] int descriptor() const { return descriptor_; }
  [[nodiscard]] const std::map<std::string, file_tensor>& tensors() const { return tensors_; }
  /// A tensor of 32-bit floats with so many elements.
  /// @errors  `kInvalidArgument` where there is none of that name, type and size.
  [[nodiscard]] absl::StatusOr<file_tensor> floats(const std::string& name, std::uint64_t elements) const {
    const auto it = tensors_.find(name);
    if (it == tensors_.end()) return absl::InvalidArgumentError(absl::StrCat("there is no tensor '", name, "'"));
    if (it->second.type != "F32" || it->second.size != elements * sizeof(float)) {
      return absl::InvalidArgumentError(absl::StrCat("tensor '", name, "' has ", it->second.size, " bytes of ",
                                                     it->second.type, ", not ", elements, " elements of F32"));
    }
    return it->second;
  }

 private:
  static constexpr std::uint64_t longest_header = std::uint64_t{100} << 20;  // as the format says

  weight_file() = default;

  absl::Status read_at(std::uint64_t offset, char* to, std::uint64_t size) const {
    while (size != 0) {
      const ssize_t got = ::pread(descriptor_, to, size, static_cast<off_t>(offset));
      if (got < 0 && errno == EINTR) continue;
      if (got <= 0) return absl::InvalidArgumentError("ends within its header");
      offset += static_cast<std::uint64_t>(got);
      to += got;
      size -= static_cast<std::uint64_t>(got);
    }
    return absl::OkStatus();
  }

  absl::Status read_header(std::uint64_t file_size) {
    std::array<char, 8> bytes_of_length{};
    if (absl::Status read = read_at(0, bytes_of_length.data(), bytes_of_length.size()); !read.ok()) return read;
    std::uint64_t length = 0;
    for (std::size_t i = bytes_of_length.size(); i-- != 0;)
      length = length << 8U | static_cast<unsigned char>(bytes_of_length[i]);
    if (length > longest_header || length > file_size - bytes_of_length.size()) {
      return absl::InvalidArgumentError(absl::StrCat("a header of ", length, " bytes is longer than it can be"));
    }
    std::string text(length, ' ');
    if (absl::Status read = read_at(bytes_of_length.size(), text.data(), length); !read.ok()) return read;
    const nlohmann::json header = nlohmann::json::parse(text, nullptr, false);
    if (!header.is_object()) return absl::InvalidArgumentError("the header is no JSON object");
    const std::uint64_t begin = bytes_of_length.size() + length;
    for (const auto& each : header.items()) {
      if (each.key() == "__metadata__") continue;
      if (absl::Status added = add(each.key(), each.value(), begin, file_size); !added.ok()) return added;
    }
    return absl::OkStatus();
  }

  absl::Status add(const std::string& name, const nlohmann::json& from, std::uint64_t begin, std::uint64_t file_size) {
    const auto wrong = [&](std::string_view what) {
      return absl::InvalidArgumentError(
          absl::StrCat("tensor '", name, "' ", absl::string_view(what.data(), what.size())));
    };
    const auto numbers = [](const nlohmann::json& list) {
      return list.is_array() &&
             std::all_of(list.begin(), list.end(), [](const nlohmann::json& n) { return n.is_number_unsigned(); });
    };
    if (!from.is_object() || !from.contains("dtype") || !from["dtype"].is_string() || !from.contains("shape") ||
        !numbers(from["shape"]) || !from.contains("data_offsets") || !numbers(from["data_offsets"]) ||
        from["data_offsets"].size() != 2) {
      return wrong("lacks dtype, shape or data_offsets");
    }
    file_tensor t;
    t.type = from["dtype"].get<std::string>();
    t.shape = from["shape"].get<std::vector<std::uint64_t>>();
    const auto first = from["data_offsets"][0].get<std::uint64_t>();
    const auto end = from["data_offsets"][1].get<std::uint64_t>();
    if (end < first || end > file_size - begin) return wrong("lies beyond the end of the file");
    t.offset = begin + first;
    t.size = end - first;
    if (const std::uint64_t element = element_size(t.type); element != 0) {
      std::uint64_t expected = element;
      for (const std::uint64_t n : t.shape) {
        if (n != 0 && expected > UINT64_MAX / n) return wrong("has more elements than can be counted");
        expected *= n;
      }
      if (expected != t.size) return wrong("has a shape that does not go with its bytes");
    }
    tensors_.emplace(name, std::move(t));
    return absl::OkStatus();
  }

  // 0: not known here.
  static std::uint64_t element_size(std::string_view type) {
    constexpr std::array<std::pair<std::string_view, std::uint64_t>, 8> known{
        {{"F64", 8}, {"I64", 8}, {"F32", 4}, {"I32", 4}, {"F16", 2}, {"BF16", 2}, {"I8", 1}, {"U8", 1}}};
    for (const auto& [name, size] : known)
      if (name == type) return size;
    return 0;
  }

  int descriptor_ = -1;
  std::map<std::string, file_tensor> tensors_{};
};

/// Writes tensors of floats as such a file, one after the other, each at a multiple of 4 KiB.
/// @errors  `kUnknown`, with what the system says.
[[nodiscard]] inline absl::Status write_weight_file(
    const std::string& path,
    const std::vector<std::pair<std::string, std::pair<const float*, std::uint64_t>>>& tensors) {
  constexpr std::uint64_t unit = 4096;
  nlohmann::json header = nlohmann::json::object();
  std::uint64_t end = 0;
  for (const auto& [name, data] : tensors) {
    const std::uint64_t size = data.second * sizeof(float);
    header[name] = {{"dtype", "F32"}, {"shape", {data.second}}, {"data_offsets", {end, end + size}}};
    end = (end + size + unit - 1) / unit * unit;
  }
  std::string text = header.dump();
  text.append((unit - (8 + text.size()) % unit) % unit, ' ');  // so that the first tensor lies at such a place, too
  std::FILE* const file = std::fopen(path.c_str(), "wbe");
  if (file == nullptr) return absl::UnknownError(absl::StrCat(path, ": ", std::strerror(errno)));
  std::array<unsigned char, 8> length{};
  for (std::size_t i = 0; i != length.size(); ++i)
    length[i] = static_cast<unsigned char>(text.size() >> (8 * i));
  bool ok = std::fwrite(length.data(), 1, length.size(), file) == length.size() &&
            std::fwrite(text.data(), 1, text.size(), file) == text.size();
  const std::string gap(unit, '\0');
  for (const auto& [name, data] : tensors) {
    const std::uint64_t size = data.second * sizeof(float);
    const std::uint64_t rest = (unit - size % unit) % unit;
    ok = ok && std::fwrite(data.first, sizeof(float), data.second, file) == data.second &&
         std::fwrite(gap.data(), 1, rest, file) == rest;
  }
  ok = std::fclose(file) == 0 && ok;
  return ok ? absl::OkStatus() : absl::UnknownError(absl::StrCat(path, ": cannot be written"));
}

}  // namespace serve
