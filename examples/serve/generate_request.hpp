#pragma once

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "nlohmann/json.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace serve {

/// What a request may ask for.
struct request_limits {
  std::size_t body = std::size_t{16} << 10;  ///< bytes of JSON
  std::size_t prompt = 4096;                 ///< bytes
  std::int64_t tokens = 256;                 ///< bytes of text to write
  std::size_t models = 2;
};

/// One text to write. It decides the answer, together with the weights of the model.
struct generate_request {
  std::size_t model = 0;
  std::string prompt{};
  std::int64_t tokens = 0;
  std::uint64_t seed = 0;
  double temperature = 0;  ///< 0: always the likeliest byte
};

inline constexpr double most_temperature = 100;
inline constexpr std::int64_t default_tokens = 64;
inline constexpr double default_temperature = 0.6;

/// A message for people as the JSON of an answer. Bytes of the message that are no UTF-8 are replaced.
[[nodiscard]] inline std::string error_json(absl::string_view message) {
  const nlohmann::json answer{{"error", std::string{message}}};
  return answer.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + '\n';
}

namespace detail {

/// A whole number of a request that has it.
[[nodiscard]] inline absl::StatusOr<std::uint64_t> whole_number(const nlohmann::json& from, const char* name,
                                                                std::uint64_t least, std::uint64_t most) {
  const nlohmann::json& value = from[name];
  if (!value.is_number_unsigned() || value.get<std::uint64_t>() < least || value.get<std::uint64_t>() > most) {
    return absl::InvalidArgumentError(absl::StrCat("'", name, "' has to be a whole number from ", least, " to ", most));
  }
  return value.get<std::uint64_t>();
}

}  // namespace detail

/// The request that the body of a POST asks for: a JSON object with `model` and `prompt`, and where the defaults are
/// not wanted `tokens`, `seed` and `temperature`.
/// @errors  `kInvalidArgument`, with a message that names the field. Nothing else, whatever the bytes.
[[nodiscard]] inline absl::StatusOr<generate_request> parse_request(std::string_view body,
                                                                    const request_limits& limits) {
  nlohmann::json json;
  try {
    json = nlohmann::json::parse(body);
  } catch (const nlohmann::json::exception& e) {
    return absl::InvalidArgumentError(absl::StrCat("the body is no JSON: ", e.what()));
  }
  if (!json.is_object()) return absl::InvalidArgumentError("the body has to be a JSON object");
  constexpr std::array<std::string_view, 5> known{"model", "prompt", "tokens", "seed", "temperature"};
  for (const auto& each : json.items()) {
    if (std::find(known.begin(), known.end(), each.key()) == known.end()) {
      return absl::InvalidArgumentError(
          absl::StrCat("there is no field '", each.key(), "'; there are model, prompt, tokens, seed and temperature"));
    }
  }
  for (const char* const needed : {"model", "prompt"}) {
    if (!json.contains(needed)) return absl::InvalidArgumentError(absl::StrCat("'", needed, "' is missing"));
  }

  generate_request request{.tokens = std::min(default_tokens, limits.tokens), .temperature = default_temperature};
  const absl::StatusOr<std::uint64_t> model = detail::whole_number(json, "model", 0, limits.models - 1);
  if (!model.ok()) return model.status();
  request.model = *model;
  if (!json["prompt"].is_string()) return absl::InvalidArgumentError("'prompt' has to be a string");
  request.prompt = json["prompt"].get<std::string>();
  if (request.prompt.empty() || request.prompt.size() > limits.prompt) {
    return absl::InvalidArgumentError(
        absl::StrCat("'prompt' has to have 1 to ", limits.prompt, " bytes, not ", request.prompt.size()));
  }
  if (json.contains("tokens")) {
    const absl::StatusOr<std::uint64_t> tokens =
        detail::whole_number(json, "tokens", 1, static_cast<std::uint64_t>(limits.tokens));
    if (!tokens.ok()) return tokens.status();
    request.tokens = static_cast<std::int64_t>(*tokens);
  }
  if (json.contains("seed")) {
    const absl::StatusOr<std::uint64_t> seed = detail::whole_number(json, "seed", 0, UINT64_MAX);
    if (!seed.ok()) return seed.status();
    request.seed = *seed;
  }
  if (json.contains("temperature")) {
    const nlohmann::json& t = json["temperature"];
    if (!t.is_number() || !(t.get<double>() >= 0 && t.get<double>() <= most_temperature)) {
      return absl::InvalidArgumentError(absl::StrCat("'temperature' has to be a number from 0 to ", most_temperature));
    }
    request.temperature = t.get<double>();
  }
  return request;
}

}  // namespace serve
