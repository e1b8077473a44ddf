#include "../../examples/serve/server_metrics.hpp"

#include <doctest/doctest.h>

#include <chrono>
#include <set>
#include <sstream>
#include <string>

namespace server_metrics_test {

using namespace serve;
using namespace std::chrono_literals;

bool has_line(const std::string& text, const std::string& line) {
  return ("\n" + text).find("\n" + line + "\n") != std::string::npos;
}

TEST_CASE("answers are counted by endpoint and status, texts by how they ended") {
  server_metrics m{2};
  m.answered("/generate", 200);
  m.answered("/generate", 200);
  m.answered("/generate", 503);
  m.answered("other", 404);
  m.refused();
  m.ended(outcome::finished, 1ms);
  m.ended(outcome::timed_out, 1ms);
  m.ended(outcome::timed_out, 1ms);
  m.token(1);
  const std::string text = m.text({.waiting = 3, .in_flight = 4, .connections = 5});
  for (const char* line : {"serve_http_requests_total{path=\"/generate\",status=\"200\"} 2",
                           "serve_http_requests_total{path=\"/generate\",status=\"503\"} 1",
                           "serve_http_requests_total{path=\"other\",status=\"404\"} 1", "serve_refused_total 1",
                           "serve_texts_total{outcome=\"finished\"} 1", "serve_texts_total{outcome=\"timed_out\"} 2",
                           "serve_texts_total{outcome=\"cancelled\"} 0", "serve_texts_total{outcome=\"failed\"} 0",
                           "serve_tokens_total{model=\"0\"} 0", "serve_tokens_total{model=\"1\"} 1", "serve_waiting 3",
                           "serve_in_flight 4", "serve_connections 5"}) {
    CAPTURE(line);
    CHECK(has_line(text, line));
  }
}

TEST_CASE("a histogram counts a time in every bucket that is not shorter") {
  server_metrics m{1};
  m.first_byte(5ms);  // a bound belongs to its bucket
  m.first_byte(6ms);
  m.first_byte(2s);
  m.first_byte(1h);
  const std::string text = m.text({});
  for (const char* line :
       {"serve_first_byte_seconds_bucket{le=\"0.005\"} 1", "serve_first_byte_seconds_bucket{le=\"0.02\"} 2",
        "serve_first_byte_seconds_bucket{le=\"1.0\"} 2", "serve_first_byte_seconds_bucket{le=\"2.5\"} 3",
        "serve_first_byte_seconds_bucket{le=\"30.0\"} 3", "serve_first_byte_seconds_bucket{le=\"+Inf\"} 4",
        "serve_first_byte_seconds_count 4", "serve_first_byte_seconds_sum 3602.011000", "serve_wait_seconds_count 0"}) {
    CAPTURE(line);
    CHECK(has_line(text, line));
  }
}

TEST_CASE("the clock of a simulated device is said to be virtual, and all others to be the wall's") {
  const server_metrics m{1};
  CHECK(has_line(m.text({.device_seconds = 1.5, .simulated_clock = true}),
                 "serve_device_clock_seconds{clock=\"virtual\"} 1.500000000"));
  CHECK(has_line(m.text({.device_seconds = 1.5}), "serve_device_clock_seconds{clock=\"wall\"} 1.500000000"));
  std::istringstream text{m.text({})};
  for (std::string line; std::getline(text, line);) {
    if (line.starts_with("# HELP") && line.find("_seconds ") != std::string::npos &&
        line.find("serve_device") == std::string::npos) {
      CHECK(line.find("Wall-clock") != std::string::npos);
    }
  }
}

TEST_CASE("every family is announced once, and its samples follow it") {
  server_metrics m{2};
  m.answered("/metrics", 200);
  std::istringstream text{m.text({})};
  std::set<std::string> seen;
  std::string family;
  for (std::string line; std::getline(text, line);) {
    CAPTURE(line);
    if (line.starts_with("# TYPE ")) {
      family = line.substr(7, line.find(' ', 7) - 7);
      CHECK(seen.insert(family).second);
    } else if (line.starts_with("# ")) {
      CHECK(line.substr(7, family.size() + 1) == family + " ");
    } else {
      CHECK(line.starts_with(family));
    }
  }
  CHECK(seen.size() == 12);
}

}  // namespace server_metrics_test
