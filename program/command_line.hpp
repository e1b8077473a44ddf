#pragma once

#include "absl/flags/parse.h"
#include "absl/flags/usage.h"
#include "absl/flags/usage_config.h"
#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace deepum_program {

/// A flag as Abseil knows it: Abseil's names are those of C++ variables, so --warm-up is --warm_up there. What does not
/// begin with two dashes, and what follows the first '=', stays as it is.
[[nodiscard]] inline std::string with_underscores(std::string_view argument) {
  std::string text(argument);
  if (text.size() < 3 || text.compare(0, 2, "--") != 0) return text;
  for (std::size_t i = 2; i < text.size() && text[i] != '='; ++i) {
    text[i] = text[i] == '-' ? '_' : text[i];
  }
  return text;
}

/// Reads the flags, spelled with dashes or underscores. --help shows those of this repository.
/// @param usage  What the program does, for --help.
/// @returns      What is no flag, without the program's own name. Everything behind "--" is none.
/// @errors       Abseil ends the program where a flag is wrong.
inline std::vector<std::string> read_flags(int argc, char** argv, std::string_view usage) {
  absl::FlagsUsageConfig help;
  help.contains_help_flags = help.contains_helpshort_flags = [](absl::string_view file) {
    return absl::StrContains(file, "examples/") || absl::StrContains(file, "bench/");
  };
  absl::SetFlagsUsageConfig(std::move(help));
  absl::SetProgramUsageMessage(absl::StrCat(absl::string_view(usage.data(), usage.size()),
                                            "; a flag's name may have dashes in place of underscores"));
  std::vector<std::string> arguments;
  bool flags = true;
  for (int i = 0; i < argc; ++i) {
    flags = flags && std::string_view{argv[i]} != "--";
    arguments.push_back(flags && i != 0 ? with_underscores(argv[i]) : std::string(argv[i]));
  }
  std::vector<char*> pointers;
  for (std::string& argument : arguments) {
    pointers.push_back(argument.data());
  }
  pointers.push_back(nullptr);
  const std::vector<char*> rest = absl::ParseCommandLine(argc, pointers.data());
  return {rest.begin() + 1, rest.end()};
}

/// The same for a program that takes nothing but flags.
/// @errors  `InvalidArgument` with the first word that is no flag.
inline absl::Status read_flags_alone(int argc, char** argv, std::string_view usage) {
  const std::vector<std::string> rest = read_flags(argc, argv, usage);
  return rest.empty()
             ? absl::OkStatus()
             : absl::InvalidArgumentError(absl::StrCat("'", rest.front(), "' is no option; options begin with --"));
}

}  // namespace deepum_program
