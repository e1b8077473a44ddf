#include "../../examples/serve/generate_request.hpp"

#include "nlohmann/json.hpp"

#include <doctest/doctest.h>

#include <cstdint>
#include <random>
#include <string>
#include <utility>

namespace generate_request_test {

using namespace serve;

const request_limits limits{.body = 1000, .prompt = 10, .tokens = 50, .models = 2};

TEST_CASE("a request says what to write, and what it leaves out has a default") {
  const auto all = parse_request(
      R"({"model":1,"prompt":"Tä\n","tokens":50,"seed":18446744073709551615,"temperature":0.25})", limits);
  REQUIRE(all.ok());
  CHECK(all->model == 1);
  CHECK(all->prompt == "T\xC3\xA4\n");
  CHECK(all->tokens == 50);
  CHECK(all->seed == UINT64_MAX);
  CHECK(all->temperature == 0.25);

  const auto least = parse_request(R"({"prompt":"x","model":0})", limits);
  REQUIRE(least.ok());
  CHECK(least->tokens == 50);  // the default is more than is allowed here
  CHECK(least->seed == 0);
  CHECK(least->temperature == default_temperature);
  CHECK(parse_request(R"({"prompt":"x","model":0})", {})->tokens == default_tokens);
}

TEST_CASE("the limits themselves are allowed") {
  for (const char* body : {R"({"model":0,"prompt":"0123456789"})", R"({"model":0,"prompt":"x","tokens":1})",
                           R"({"model":0,"prompt":"x","temperature":0})", R"({"model":0,"prompt":"\u0000"})",
                           R"({"model":0,"prompt":"x","temperature":100})"}) {
    CAPTURE(body);
    CHECK(parse_request(body, limits).ok());
  }
}

TEST_CASE("bad input is refused with a message that says what is wrong") {
  const std::pair<std::string, std::string> cases[] = {
      {"", "no JSON"},
      {"{", "no JSON"},
      {R"({"model":0,"prompt":"x"} {})", "no JSON"},
      {"{\"model\":0,\"prompt\":\"\xff\"}", "no JSON"},
      {R"({"model":0,"prompt":"x","temperature":1e999})", "no JSON"},
      {"[]", "JSON object"},
      {"null", "JSON object"},
      {R"({"model":0})", "'prompt' is missing"},
      {R"({"prompt":"x"})", "'model' is missing"},
      {R"({"model":2,"prompt":"x"})", "'model' has to be a whole number from 0 to 1"},
      {R"({"model":-1,"prompt":"x"})", "'model'"},
      {R"({"model":0.0,"prompt":"x"})", "'model'"},
      {R"({"model":"0","prompt":"x"})", "'model'"},
      {R"({"model":null,"prompt":"x"})", "'model'"},
      {R"({"model":0,"prompt":""})", "1 to 10 bytes, not 0"},
      {R"({"model":0,"prompt":"01234567890"})", "1 to 10 bytes, not 11"},
      {R"({"model":0,"prompt":["x"]})", "'prompt' has to be a string"},
      {R"({"model":0,"prompt":"x","tokens":0})", "'tokens' has to be a whole number from 1 to 50"},
      {R"({"model":0,"prompt":"x","tokens":51})", "'tokens'"},
      {R"({"model":0,"prompt":"x","tokens":-1})", "'tokens'"},
      {R"({"model":0,"prompt":"x","tokens":1.5})", "'tokens'"},
      {R"({"model":0,"prompt":"x","tokens":18446744073709551617})", "'tokens'"},
      {R"({"model":0,"prompt":"x","tokens":true})", "'tokens'"},
      {R"({"model":0,"prompt":"x","seed":-1})", "'seed'"},
      {R"({"model":0,"prompt":"x","seed":18446744073709551616})", "'seed'"},
      {R"({"model":0,"prompt":"x","temperature":-0.1})", "'temperature'"},
      {R"({"model":0,"prompt":"x","temperature":100.1})", "'temperature'"},
      {R"({"model":0,"prompt":"x","temperature":"hot"})", "'temperature'"},
      {R"({"model":0,"prompt":"x","token":5})", "there is no field 'token'"},
      {std::string(900, '['), "no JSON"},
  };
  for (const auto& [body, words] : cases) {
    CAPTURE(body);
    const auto request = parse_request(body, limits);
    REQUIRE_FALSE(request.ok());
    CHECK(request.status().code() == absl::StatusCode::kInvalidArgument);
    const std::string message{request.status().message()};
    CAPTURE(message);
    CHECK(message.find(words) != std::string::npos);
    CHECK(nlohmann::json::accept(error_json(message)));  // bytes of the request may be in it, and no UTF-8
  }
}

TEST_CASE("damaged requests are refused or mean something else, and never more") {
  const std::string good = R"({"model":1,"prompt":"The \u00e4","tokens":12,"seed":7,"temperature":0.5})";
  std::mt19937_64 random{1};
  int refused = 0;
  for (int i = 0; i < 20'000; ++i) {
    std::string body = good;
    for (std::uint64_t n = random() % 3 + 1; n != 0; --n) {
      const std::size_t at = random() % body.size();
      if (random() % 3 == 0) {
        body.erase(at, random() % 4 + 1);
        if (body.empty()) body = "x";
      } else {
        body[at] = static_cast<char>(random());
      }
    }
    const auto request = parse_request(body, limits);
    if (!request.ok()) {
      ++refused;
      REQUIRE(nlohmann::json::accept(error_json(request.status().message())));
      continue;
    }
    REQUIRE(request->model < limits.models);
    REQUIRE(!request->prompt.empty());
    REQUIRE(request->prompt.size() <= limits.prompt);
    REQUIRE(request->tokens >= 1);
    REQUIRE(request->tokens <= limits.tokens);
    REQUIRE(request->temperature >= 0);
    REQUIRE(request->temperature <= most_temperature);
  }
  CHECK(refused > 10'000);
  CHECK(refused < 20'000);
}

}  // namespace generate_request_test
