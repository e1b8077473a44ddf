#include "nlohmann/json.hpp"
#include <deepum/metrics.hpp>

#include <doctest/doctest.h>
#include <sys/wait.h>

#include <cstdint>
#include <cstdio>
#include <map>
#include <regex>
#include <set>
#include <sstream>
#include <string>

namespace metrics_test {

using namespace deepum;

/// Every number is another one.
statistics filled() {
  statistics s;
  s.launches = 101;
  s.finished = 102;
  s.faults = 103;
  s.lost_faults = 104;
  s.fault_feed = "driver";
  s.discarded = 105;
  s.prefetches_used = 106;
  s.prefetches_late = 107;
  s.prefetches_wasted = 108;
  s.prefetches_cancelled = 109;
  s.stalled = nanoseconds{3'000'000'042};
  s.failed_calls = 110;
  s.refused = 111;
  s.dropped = 112;
  s.unprepared_launches = 113;
  s.oversized_launches = 114;
  s.refused_launches = 121;
  s.policy = {.launches = 115,
              .predicted = 116,
              .mispredicted = 117,
              .unpredicted = 118,
              .table_bytes = 119,
              .execution_ids = 120};
  for (unsigned r = 0; r < reason_count; ++r) {
    s.on(location::host(), location::device()).blocks[r] = 200 + r;
    s.on(location::host(), location::device()).bytes[r] = 300 + r;
    s.on(location::device(), location::host()).blocks[r] = 400 + r;
    s.on(location::device(), location::host()).bytes[r] = 500 + r;
  }
  return s;
}

/// The samples of a text by name and labels. Checks what OpenMetrics 1.0 asks for on the way.
std::map<std::string, std::string> samples_of(const std::string& text) {
  std::map<std::string, std::string> samples;
  std::set<std::string> families;
  std::string family;
  std::string type;
  std::string unit;
  REQUIRE(text.ends_with("\n# EOF\n"));
  std::istringstream lines{text.substr(0, text.size() - 6)};
  const std::regex sample{R"(([a-zA-Z_:][a-zA-Z0-9_:]*)(\{[^\n]*\})? ([0-9.]+))"};
  for (std::string line; std::getline(lines, line);) {
    CAPTURE(line);
    std::istringstream words{line};
    std::string hash;
    std::string what;
    std::string name;
    if (line.starts_with("#")) {
      words >> hash >> what >> name;
      if (what == "TYPE") {
        family = name;
        words >> type;
        unit.clear();
        CHECK(families.insert(family).second);
        CHECK((type == "counter" || type == "gauge" || type == "info"));
        CHECK_FALSE(family.ends_with("_total"));
      } else if (what == "UNIT") {
        words >> unit;
        CHECK(family.ends_with("_" + unit));
        CHECK(name == family);
      } else {
        CHECK(what == "HELP");
        CHECK(name == family);
        CHECK(line.size() > std::string("# HELP  ").size() + family.size());
      }
      continue;
    }
    std::smatch found;
    REQUIRE(std::regex_match(line, found, sample));
    CHECK(found[1] == family + (type == "counter" ? "_total" : type == "info" ? "_info" : ""));
    CHECK(samples.emplace(found[1].str() + found[2].str(), found[3]).second);
  }
  return samples;
}

TEST_CASE("statistics as OpenMetrics: every number, with its type, unit and help") {
  const std::string text = to_openmetrics(filled());
  std::map<std::string, std::string> samples = samples_of(text);
  std::set<std::string> values;
  for (const auto& [name, value] : samples)
    values.insert(value);
  for (int i = 101; i <= 120; ++i) {
    if (i != 115 && i != 118)
      CHECK(values.contains(std::to_string(i)));  // the engine counts launches; the rest of them
  }
  CHECK(samples["deepum_launches_total"] == "101");
  CHECK(samples["deepum_table_bytes"] == "119");
  CHECK(samples["deepum_stalled_seconds_total"] == "3.000000042");
  CHECK(samples["deepum_fault_feed_info{feed=\"driver\"}"] == "1");
  for (unsigned r = 0; r < reason_count; ++r) {
    const std::string in = std::string{"{direction=\"in\",reason=\""} + to_string(static_cast<reason>(r)) + "\"}";
    const std::string out = std::string{"{direction=\"out\",reason=\""} + to_string(static_cast<reason>(r)) + "\"}";
    CHECK(samples["deepum_moved_blocks_total" + in] == std::to_string(200 + r));
    CHECK(samples["deepum_copied_bytes_total" + in] == std::to_string(300 + r));
    CHECK(samples["deepum_moved_blocks_total" + out] == std::to_string(400 + r));
    CHECK(samples["deepum_copied_bytes_total" + out] == std::to_string(500 + r));
  }
}

TEST_CASE("labels go to every sample, and are escaped") {
  const std::string text = to_openmetrics(filled(), {{"arena", "a\"b\\c\nd"}, {"gpu", "0"}});
  std::map<std::string, std::string> samples = samples_of(text);
  const std::string labels = R"(arena="a\"b\\c\nd",gpu="0")";
  CHECK(samples["deepum_launches_total{" + labels + "}"] == "101");
  CHECK(samples["deepum_moved_blocks_total{" + labels + R"(,direction="in",reason="fault"})"] == "209");
  for (const auto& [name, value] : samples)
    CHECK(name.find('{' + labels) != std::string::npos);
}

TEST_CASE("labels that are not UTF-8, and differences that are negative, are text that can be read") {
  statistics s = filled();
  s.stalled = nanoseconds{-20};
  s.fault_feed = "feed\xff";
  const std::string text = to_openmetrics(s, {{"arena", "caf\xe9"}});
  CHECK(text.find("deepum_stalled_seconds_total{arena=\"caf\xef\xbf\xbd\"} -0.000000020\n") != std::string::npos);
  s.stalled = nanoseconds::min();
  CHECK(to_openmetrics(s).find(" -9223372036.854775808\n") != std::string::npos);
  CHECK(nlohmann::json::parse(to_json(s))["fault_feed"] == "feed\xef\xbf\xbd");
}

TEST_CASE("the parser of prometheus_client takes the text") {
  const std::string command = std::string{"python3 -B "} + DEEPUM_SOURCE_DIR + "/tests/report/parse_openmetrics.py";
  std::FILE* parser = popen(command.c_str(), "w");
  REQUIRE(parser != nullptr);
  const std::string text = to_openmetrics(filled(), {{"arena", "a\"b\\c\nd"}});
  CHECK(std::fwrite(text.data(), 1, text.size(), parser) == text.size());
  const int status = pclose(parser);
  REQUIRE(WIFEXITED(status));
  if (WEXITSTATUS(status) == 77 || WEXITSTATUS(status) == 127) {
    MESSAGE("not asked: python3 has no prometheus_client");
    return;
  }
  CHECK(WEXITSTATUS(status) == 0);
}

TEST_CASE("traffic is told by link, too, and what goes by way of a neighbour counts once for the device") {
  statistics s = filled();
  const location neighbour = location::device(1);
  s.on(location::host(), neighbour).bytes[static_cast<unsigned>(reason::issued)] = 7;
  s.on(neighbour, location::device()).bytes[static_cast<unsigned>(reason::issued)] = 7;
  CHECK(s.in().bytes_for(reason::issued) == 301 + 7);
  CHECK(s.out().bytes_for(reason::issued) == 501);
  CHECK(s.between(neighbour, location::device()).all_bytes() == 7);
  CHECK(s.between(neighbour, location::host()).all_bytes() == 0);
  const nlohmann::json json = nlohmann::json::parse(to_json(s));
  CHECK(json["bytes_in"]["issued"] == 308);
  REQUIRE(json["links"].size() == 4);
  CHECK(json["links"][0]["from"] == "host");
  CHECK(json["links"][0]["to"] == "device 0");
  CHECK(json["links"][0]["blocks"]["fault"] == 209);
  CHECK(json["links"][3]["from"] == "device 1");
  CHECK(json["links"][3]["bytes"]["issued"] == 7);
  std::map<std::string, std::string> samples = samples_of(to_openmetrics(s));
  CHECK(samples[R"(deepum_link_copied_bytes_total{from="host",to="device 1",reason="issued"})"] == "7");
  CHECK(samples[R"(deepum_link_moved_blocks_total{from="device 0",to="host",reason="fault"})"] == "409");
  const statistics later = s - filled();
  CHECK(later.in().bytes_for(reason::issued) == 7);
  CHECK(later.between(location::host(), location::device()).all_bytes() == 0);
}

TEST_CASE("statistics as JSON") {
  statistics s = filled();
  s.fault_feed = "a \"feed\"";
  const std::string text = to_json(s);
  CHECK(text.find('\n') == std::string::npos);
  const nlohmann::json json = nlohmann::json::parse(text);
  CHECK(json["launches"] == 101);
  CHECK(json["prefetches_wasted_blocks"] == 108);
  CHECK(json["launches_mispredicted"] == 117);
  CHECK(json["table_bytes"] == 119);
  CHECK(json["stalled_ns"] == 3'000'000'042);
  CHECK(json["fault_feed"] == "a \"feed\"");
  CHECK(json["blocks_in"]["fault"] == 209);
  CHECK(json["bytes_in"]["predicted"] == 300);
  CHECK(json["blocks_out"]["make_room"] == 403);
  CHECK(json["bytes_out"]["write_back"] == 506);
  CHECK(json["bytes_out"].size() == reason_count);
}

}  // namespace metrics_test
