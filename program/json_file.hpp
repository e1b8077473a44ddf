#pragma once

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "nlohmann/json.hpp"

#include <filesystem>
#include <fstream>
#include <string>
#include <system_error>
#include <utility>

namespace deepum_program {

/// `--json`: the file for what was measured. Until there are results there is no file, and an older one stays as it is,
/// so that a run which is refused leaves nothing behind that looks like results.
class json_file {
 public:
  /// @param path    Empty: nothing is asked for, and saving does nothing.
  /// @param indent  Of the text.
  explicit json_file(std::string path, int indent = 2) : path_(std::move(path)), indent_(indent) {}

  /// Whether there can be such a file: before hours of work, not after them.
  [[nodiscard]] absl::Status check() const {
    if (path_.empty()) return absl::OkStatus();
    std::error_code none;
    const bool there = std::filesystem::exists(path_, none);
    const bool opened = std::ofstream{path_, std::ios::app}.is_open();
    if (!there && opened) std::filesystem::remove(path_, none);
    return opened ? absl::OkStatus()
                  : absl::PermissionDeniedError(absl::StrCat("cannot write to the JSON file '", path_, "'"));
  }
  /// Replaces what was saved before.
  [[nodiscard]] absl::Status save(const nlohmann::ordered_json& results) const {
    if (path_.empty()) return absl::OkStatus();
    std::ofstream file{path_};
    file << results.dump(indent_, ' ', false, nlohmann::json::error_handler_t::replace) << '\n';
    file.close();
    return file ? absl::OkStatus()
                : absl::DataLossError(absl::StrCat("could not write all of the JSON file '", path_, "'"));
  }

 private:
  std::string path_;
  int indent_;
};

}  // namespace deepum_program
