#include "replay/schedule.hpp"

#include "replay/json_lines.hpp"
#include <deepum/error.hpp>

#include <doctest/doctest.h>

#include <cstdio>
#include <filesystem>
#include <string>
#include <vector>

namespace schedule_test {

using namespace deepum;
using namespace deepum::replay;

constexpr nanoseconds ns(std::int64_t n) { return nanoseconds{n}; }
constexpr block_range blocks(std::uint32_t first, std::uint32_t count) { return {block_id{first}, count}; }

const schedule sample{{bytes{42}, 50.8, 15.754, ns(2000)},
                      {{schedule_event::copy_in, blocks(7, 2), 0, 0, ns(0), ns(100)},
                       {schedule_event::make_new, blocks(3, 1), 0, 0, ns(90), ns(90)},
                       {schedule_event::launch, {}, 5, 6, ns(100), ns(120)},
                       {schedule_event::copy_clean, blocks(3, 1), 0, 0, ns(120), ns(150)},
                       {schedule_event::copy_out, blocks(7, 2), 0, 0, ns(150), ns(170)},
                       {schedule_event::drop, blocks(3, 1), 0, 0, ns(180), ns(180)}}};

class temporary_file {
 public:
  explicit temporary_file(const std::string& end)
      : path_((std::filesystem::temp_directory_path() /
               ("deepum_schedule_test_" + std::to_string(std::hash<const void*>{}(this)) + end))
                  .string()) {}
  ~temporary_file() { std::remove(path_.c_str()); }
  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  std::string path_;
};

void write(const std::string& path, const schedule& s) {
  schedule_writer writer(path, s.header);
  for (const schedule_entry& e : s.entries) {
    writer.write(e);
  }
  writer.finish();
}

std::string reason_to_refuse(const std::string& text) {
  try {
    (void)parse_schedule("s", R"({"deepum_schedule":1,"budget_bytes":1,"h2d_gbps":1,"d2h_gbps":1,"copy_latency_ns":0})"
                              "\n" +
                                  text);
  } catch (const error& e) {
    CHECK(e.code() == status::bad_format);
    return e.what();
  }
  return "read without complaint";
}

TEST_CASE("a schedule is written in the words of the referee") {
  const temporary_file file(".jsonl");
  write(file.path(), sample);
  CHECK(read_text(file.path()) ==
        R"({"deepum_schedule":1,"budget_bytes":42,"h2d_gbps":50.8,"d2h_gbps":15.754,"copy_latency_ns":2000}
{"copy":"in","block":7,"count":2,"start":0,"end":100}
{"new":3,"count":1,"at":90}
{"kernel":5,"step":6,"start":100,"end":120}
{"copy":"clean","block":3,"count":1,"start":120,"end":150}
{"copy":"out","block":7,"count":2,"start":150,"end":170}
{"drop":3,"count":1,"at":180}
)");
  std::FILE* const f = std::fopen(file.path().c_str(), "rb");
  REQUIRE(f != nullptr);
  CHECK(std::fgetc(f) == '{');
  std::fclose(f);
}

TEST_CASE("a schedule that was written is read as it was, plain or packed") {
  for (const char* const end : {".jsonl", ".jsonl.gz"}) {
    const temporary_file file(end);
    write(file.path(), sample);
    CHECK(read_schedule(file.path()) == sample);
  }
}

TEST_CASE("a path that ends in .gz gives a packed file") {
  const temporary_file file(".gz");
  write(file.path(), sample);
  std::FILE* const f = std::fopen(file.path().c_str(), "rb");
  REQUIRE(f != nullptr);
  CHECK(std::fgetc(f) == 0x1f);
  CHECK(std::fgetc(f) == 0x8b);
  std::fclose(f);
}

TEST_CASE("a schedule that was not finished leaves no file") {
  const temporary_file file(".jsonl");
  {
    schedule_writer writer(file.path(), sample.header);
    writer.write(sample.entries[0]);
  }
  CHECK_FALSE(std::filesystem::exists(file.path()));
}

TEST_CASE("a schedule that cannot be written is an error") {
  const auto code_of = [](auto&& run) {
    try {
      run();
    } catch (const error& e) {
      return e.code();
    }
    return status::unsupported;
  };
  CHECK(code_of([] { schedule_writer("/nowhere/at/all.jsonl", sample.header); }) == status::io_failure);
  if (std::filesystem::exists("/dev/full")) {
    const temporary_file link(".jsonl");
    std::filesystem::create_symlink("/dev/full", link.path());
    CHECK(code_of([&] { write(link.path(), sample); }) == status::io_failure);
  }
}

TEST_CASE("a malformed schedule is refused with the line and the reason") {
  const auto reason = [](const std::string& text) { return reason_to_refuse(text); };
  CHECK(reason("{\"copy\":\"up\"}") == "s:2: unknown copy \"up\"; it may be in, out or clean");
  CHECK(reason("{\"copy\":\"in\",\"block\":1,\"start\":0,\"end\":1}") == "s:2: \"count\" is missing");
  CHECK(reason("{\"copy\":\"in\",\"block\":1,\"count\":1,\"start\":2,\"end\":1}") == "s:2: ends before it starts");
  CHECK(reason("{\"copy\":\"in\",\"block\":-1,\"count\":1,\"start\":2,\"end\":3}")
            .starts_with("s:2: \"block\" is not a whole number"));
  CHECK(reason("{\"drop\":1,\"count\":0,\"at\":2}").starts_with("s:2: \"count\" is 0"));
  CHECK(reason("{\"new\":4294967295,\"count\":1,\"at\":2}").starts_with("s:2: \"count\" is 0, or the last block"));
  CHECK(
      reason("\n{\"kernel\":1,\"step\":1.5,\"start\":0,\"end\":0}").starts_with("s:3: \"step\" is not a whole number"));
  CHECK(reason("{\"other\":1}") == "s:2: neither a copy, drop, new nor kernel");
  CHECK_THROWS_WITH_AS((void)parse_schedule("s", ""), "s:1: empty; a schedule begins with its header", const error&);
  CHECK_THROWS_WITH_AS((void)parse_schedule("s", "{\"deepum_schedule\":2}"), "s:1: not a schedule, version 1",
                       const error&);
}

}  // namespace schedule_test
