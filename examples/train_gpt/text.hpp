#pragma once

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

namespace train_gpt {

/// The bytes of a text file.
/// @errors  A file that cannot be read, or has fewer than `least` bytes.
[[nodiscard]] inline absl::StatusOr<std::string> read_text(const std::string& path, std::int64_t least) {
  std::error_code ignored;
  std::ifstream file{path, std::ios::binary};
  if (!file || std::filesystem::is_directory(path, ignored)) {  // a folder can be opened, but not read
    return absl::NotFoundError(absl::StrCat("cannot read the corpus '", path, "'"));
  }
  std::string text{std::istreambuf_iterator<char>{file}, {}};
  if (std::ssize(text) < least) {
    return absl::InvalidArgumentError(absl::StrCat("the corpus '", path, "' has ", text.size(),
                                                   " bytes; with this context it needs ", least, " at least"));
  }
  return text;
}

/// Sequences from random places of a text, and for each byte the one that follows it. The same seed, the same
/// sequences.
class batches {
 public:
  /// @param text     Outlives this. Longer than `context`.
  /// @param batch    Sequences in one batch.
  /// @param context  Bytes in one sequence.
  batches(const std::string& text, std::int64_t batch, std::int64_t context, std::uint64_t seed)
      : text_(text),
        context_(context),
        random_(seed),
        tokens_(size(batch * context)),
        targets_(tokens_.size()) {}

  void next() {
    const std::uint64_t starts = text_.size() - size(context_);
    for (std::size_t i = 0; i < tokens_.size();) {
      const std::uint64_t start = random_() % starts;
      for (std::uint64_t t = 0; t < size(context_); ++t, ++i) {
        tokens_[i] = static_cast<unsigned char>(text_[start + t]);
        targets_[i] = static_cast<unsigned char>(text_[start + t + 1]);
      }
    }
  }

  [[nodiscard]] std::span<const std::int32_t> tokens() const { return tokens_; }
  [[nodiscard]] std::span<const std::int32_t> targets() const { return targets_; }

 private:
  static std::size_t size(std::int64_t n) { return static_cast<std::size_t>(n); }

  const std::string& text_;
  std::int64_t context_;
  std::mt19937_64 random_;
  std::vector<std::int32_t> tokens_;
  std::vector<std::int32_t> targets_;
};

/// Lets the model go on with `prompt`, byte by byte, for `length` bytes. Below 1, `temperature` prefers the likely.
/// @returns  One line: what cannot be printed is a space.
template <class Model>
[[nodiscard]] std::string write_text(Model& model, std::string prompt, std::int64_t length, std::uint64_t seed,
                                     double temperature = 0.6) {
  std::mt19937_64 random{seed};
  for (std::int64_t n = 0; n < length; ++n) {
    const auto seen = std::min(prompt.size(), static_cast<std::size_t>(model.shape().context));
    std::vector<std::int32_t> tokens;
    for (const char c : std::string_view{prompt}.substr(prompt.size() - seen)) {
      tokens.push_back(static_cast<unsigned char>(c));
    }
    std::vector<float> logits = model.predict(tokens);
    const float most = *std::max_element(logits.begin(), logits.end());
    std::vector<double> shares;
    double total = 0;
    for (const float l : logits) {
      shares.push_back(std::exp(static_cast<double>(l - most) / temperature));
      total += shares.back();
    }
    double left = static_cast<double>(random() >> 11) * 0x1p-53 * total;
    std::size_t choice = 0;
    while (choice + 1 < shares.size() && left >= shares[choice])
      left -= shares[choice++];
    prompt.push_back(static_cast<char>(choice));
  }
  std::replace_if(
      prompt.begin(), prompt.end(), [](char c) { return c < ' ' || c > '~'; }, ' ');
  return prompt;
}

}  // namespace train_gpt
