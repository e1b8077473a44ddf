#include "replay/workload.hpp"

#include <deepum/error.hpp>

#include <doctest/doctest.h>
#include <zlib.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

namespace workload_test {

using namespace deepum;
using namespace deepum::replay;

constexpr const char* header = R"({"deepum_workload":1,"name":"small"})"
                               "\n";

std::string tensor(int id, std::uint64_t size, const std::string& more = "") {
  return R"({"tensor":)" + std::to_string(id) + R"(,"bytes":)" + std::to_string(size) + more + "}\n";
}
std::string at_block(std::uint64_t b) { return R"(,"addr":)" + std::to_string(b * block_size.count); }
std::string launch(const std::string& in, const std::string& out, const std::string& more = "") {
  return R"({"kernel":"k","ns":10,"in":[)" + in + R"(],"out":[)" + out + "]" + more + "}\n";
}
workload parse(const std::string& body) { return parse_workload("w.jsonl", header + body); }

constexpr std::uint64_t one_block = block_size.count;

std::vector<std::uint32_t> blocks(const block_set& set) {
  std::vector<std::uint32_t> all;
  for (const block_range r : set) {
    for (std::uint32_t b = r.begin_value(); b != r.end_value(); ++b) {
      all.push_back(b);
    }
  }
  return all;
}
using numbers = std::vector<std::uint32_t>;

std::string reason_to_refuse(const std::string& text) {
  try {
    (void)parse_workload("w.jsonl", text);
  } catch (const error& e) {
    CHECK(e.code() == status::bad_format);
    return e.what();
  }
  return "read without complaint";
}

struct temporary_file {
  std::string path = (std::filesystem::temp_directory_path() /
                      ("deepum_workload_test_" + std::to_string(std::hash<const void*>{}(this)) + ".gz"))
                         .string();
  ~temporary_file() { std::remove(path.c_str()); }
};

TEST_CASE("a workload says what its launches read and write, how long they take, and how much there is of it") {
  const workload w = parse(tensor(7, 3 * one_block, at_block(4) + R"(,"persistent":true)") +
                           tensor(8, one_block + 1, at_block(10)) + launch("7", "8") + launch("7,8", "7"));
  CHECK(w.name == "small");
  CHECK(w.warnings.empty());
  REQUIRE(w.launches.size() == 2);
  CHECK(w.launches[0].kernel == "k");
  CHECK(w.launches[0].duration == nanoseconds{10});
  CHECK(w.launches[0].operands ==
        std::vector<workload_operand>{{0, access::read, false}, {1, access::overwrite, false}});
  CHECK(w.launches[1].operands == std::vector<workload_operand>{{0, access::update, false}, {1, access::read, false}});
  CHECK(blocks(w.launches[0].touches(0).reads) == numbers{4, 5, 6});
  CHECK(blocks(w.launches[0].touches(0).writes) == numbers{10, 11});
  CHECK(blocks(w.launches[1].touches(0).reads) == numbers{4, 5, 6, 10, 11});
  CHECK(blocks(w.launches[1].touches(0).writes) == numbers{4, 5, 6});
  CHECK(blocks(w.launches[1].touches(0).all()) == numbers{4, 5, 6, 10, 11});
  CHECK(blocks(w.persistent) == numbers{4, 5, 6});
  CHECK(w.compute == nanoseconds{20});
  CHECK(w.blocks == 5);
  CHECK(w.largest_launch == 5);
  CHECK(w.end_block == 12);
  CHECK(w.variants == 1);
}

TEST_CASE("tensors without an address lie one after another, large ones on a block boundary") {
  const workload w = parse(tensor(0, 1) + tensor(1, 513) + tensor(2, one_block) + tensor(3, 5) +
                           tensor(4, one_block, at_block(100)) + tensor(5, 5) + launch("0,1,2,3,4,5", ""));
  std::vector<std::uint64_t> addresses;
  for (const workload_tensor& t : w.tensors) {
    addresses.push_back(t.address.count);
  }
  CHECK(addresses ==
        std::vector<std::uint64_t>{0, 512, one_block, 2 * one_block, 100 * one_block, 2 * one_block + 512});
  CHECK(w.tensors[1].span == block_range{block_id{0}, 1});
}

TEST_CASE("contents die with the last launch that uses them, or later where a later free is stated") {
  const workload w =
      parse(tensor(0, one_block, at_block(0)) + tensor(1, one_block, at_block(1) + R"(,"free_after":2)") +
            tensor(2, one_block, at_block(2) + R"(,"free_after":0)") +
            tensor(3, one_block, at_block(3) + R"(,"free_after":99)") +
            tensor(4, one_block, at_block(4) + R"(,"persistent":true)") + launch("", "0,1,2,3") + launch("0,2,4", "") +
            launch("", "") + launch("", ""));
  CHECK(w.launches[0].dead.empty());
  CHECK(blocks(w.launches[1].dead) == numbers{0, 2});
  CHECK(blocks(w.launches[2].dead) == numbers{1});
  CHECK(blocks(w.launches[3].dead) == numbers{3});
}

TEST_CASE("a block that several tensors share dies with the last of them") {
  const workload w = parse(tensor(0, 10, R"(,"addr":0)") + tensor(1, 10, R"(,"addr":512)") + launch("", "0") +
                           launch("0", "1") + launch("1", ""));
  CHECK(w.launches[0].dead.empty());
  CHECK(w.launches[1].dead.empty());
  CHECK(blocks(w.launches[2].dead) == numbers{0});
}

TEST_CASE("an address that is used again dies with each of its tensors") {
  const workload w = parse(tensor(0, one_block, at_block(3)) + tensor(1, one_block, at_block(3)) + launch("", "0") +
                           launch("0", "") + launch("", "1") + launch("1", ""));
  CHECK(blocks(w.launches[1].dead) == numbers{3});
  CHECK(blocks(w.launches[3].dead) == numbers{3});
  CHECK(blocks(w.launches[0].touches(0).fresh) == numbers{3});
  CHECK(blocks(w.launches[2].touches(0).fresh) == numbers{3});
}

TEST_CASE("what a launch is the first to write is fresh, unless it reads it or something else is alive there") {
  const workload w = parse(tensor(0, one_block, at_block(0)) + tensor(1, one_block, at_block(1)) +
                           tensor(2, 10, R"(,"addr":4194304)") + tensor(3, 2 * one_block - 512, R"(,"addr":4194816)") +
                           tensor(4, one_block, at_block(6) + R"(,"persistent":true)") + launch("1", "0,1,4") +
                           launch("", "0,2") + launch("2", "3"));
  CHECK(blocks(w.launches[0].touches(0).fresh) == numbers{0});
  CHECK(blocks(w.launches[1].touches(0).fresh) == numbers{2});
  CHECK(blocks(w.launches[2].touches(0).writes) == numbers{2, 3});
  CHECK(blocks(w.launches[2].touches(0).fresh) == numbers{3});
}

TEST_CASE("what a launch reads is not fresh, not even where it is the first to name it") {
  const workload shared = parse(tensor(0, 10, R"(,"addr":0)") + tensor(1, 10, R"(,"addr":512)") + launch("1", "0"));
  CHECK(shared.launches[0].touches(0).fresh.empty());
  const workload in_part = parse(tensor(0, 4 * one_block) + launch("0", "0", R"(,"blocks":{"0":[1]})"));
  CHECK(in_part.launches[0].touches(0).fresh.empty());
}

TEST_CASE("data-dependent accesses touch the blocks listed, one list for all steps or one a step in turn") {
  const workload w =
      parse(tensor(0, 8 * one_block, at_block(10) + R"(,"persistent":true)") + tensor(1, 8 * one_block, at_block(20)) +
            launch("0", "1", R"(,"blocks":{"0":[[0,1],[5],[]],"1":[3,2]})") + launch("0,1", "") +
            launch("0,1", "", R"(,"blocks":{"0":[[0],[1]],"1":[[2],[3],[4]]})"));
  CHECK(w.variants == 3);
  const auto reads = [&](std::size_t launch, std::size_t step) {
    return blocks(w.launches[launch].touches(w.variant_of(step)).reads);
  };
  CHECK(reads(0, 0) == numbers{10, 11});
  CHECK(reads(0, 1) == numbers{15});
  CHECK(reads(0, 2).empty());
  CHECK(reads(0, 3) == numbers{10, 11});
  CHECK(blocks(w.launches[0].touches(1).writes) == numbers{22, 23});
  CHECK(reads(1, 1).size() == 16);
  CHECK(reads(2, 0) == numbers{10, 22});
  CHECK(reads(2, 1) == numbers{11, 23});
  CHECK(reads(2, 2) == numbers{10, 24});
  CHECK(reads(2, 3) == numbers{10, 22});
  CHECK(w.launches[0].operands == std::vector<workload_operand>{{0, access::read, true}, {1, access::update, true}});
}

TEST_CASE("launches may come before the tensors, blank lines count for nothing, and fractions of time are rounded up") {
  const workload w = parse_workload(
      "w", header + std::string("\n  \r\n") + R"({"kernel":"a","ns":1.25,"in":[5],"out":[]})" + "\n" + tensor(5, 1));
  CHECK(w.launches[0].duration == nanoseconds{2});
  CHECK(w.blocks == 1);
}

TEST_CASE("a header that counts something else than there is gives a warning") {
  const workload w = parse_workload("w.jsonl", R"({"deepum_workload":1,"name":"x","kernels":2,"tensors":1})"
                                               "\n" +
                                                   tensor(0, 1) + launch("0", ""));
  REQUIRE(w.warnings.size() == 1);
  CHECK(w.warnings[0] == "w.jsonl: the header says 2 launches, the file has 1");
}

TEST_CASE("a malformed workload is refused with the line and the reason") {
  const std::string h = header;
  const auto reason = [](const std::string& text) { return reason_to_refuse(text); };
  CHECK(reason("") == "w.jsonl:1: empty; a workload begins with its header");
  CHECK(reason("[]\n") == "w.jsonl:1: not a JSON object");
  CHECK(reason("{}\n") == "w.jsonl:1: not a workload: the header lacks \"deepum_workload\"");
  CHECK(reason("{\"deepum_workload\":2}\n") == "w.jsonl:1: version 2 of the format; only version 1 is known");
  CHECK(reason(h) == "w.jsonl:1: the file ends without a launch");
  CHECK(reason(h + tensor(0, 1)) == "w.jsonl:2: the file ends without a launch");
  CHECK(reason(h + "\n{\"tensor\":0,").starts_with("w.jsonl:3: not JSON: column 13: "));
  CHECK(reason(h + "{\"other\":1}") == "w.jsonl:2: neither a tensor nor a launch");
  CHECK(reason(h + "{\"tensor\":1,\"kernel\":1}") == "w.jsonl:2: both a tensor and a launch");
  CHECK(reason(h + "{\"tensor\":1}") == "w.jsonl:2: \"bytes\" is missing");
  CHECK(reason(h + "{\"tensor\":1,\"bytes\":-1}").starts_with("w.jsonl:2: \"bytes\" is not a whole number from 0 to "));
  CHECK(reason(h + "{\"tensor\":1,\"bytes\":1.5}").starts_with("w.jsonl:2: \"bytes\" is not a whole number"));
  CHECK(reason(h + "{\"tensor\":1,\"bytes\":99999999999999999999}").starts_with("w.jsonl:2: \"bytes\" is not a whole"));
  CHECK(reason(h + tensor(1, 1) + tensor(1, 1)) == "w.jsonl:3: tensor 1 is there twice");
  CHECK(reason(h + tensor(1, 1, R"(,"persistent":1)")) == "w.jsonl:2: \"persistent\" is neither true nor false");
  CHECK(reason(h + tensor(1, one_block << 31U) + tensor(2, one_block << 31U) + launch("1", "2")) ==
        "w.jsonl:3: tensor 2 ends beyond 8 PiB");
  CHECK(reason(h + "{\"kernel\":\"k\",\"ns\":-1,\"in\":[],\"out\":[]}") ==
        "w.jsonl:2: \"ns\" is not a number of at least 0");
  CHECK(reason(h + "{\"kernel\":\"k\",\"ns\":1e300,\"in\":[],\"out\":[]}") == "w.jsonl:2: \"ns\" is more than a day");
  CHECK(reason(h + "{\"kernel\":5,\"ns\":1,\"in\":[],\"out\":[]}") == "w.jsonl:2: \"kernel\" is not a string");
  CHECK(reason(h + "{\"kernel\":\"k\",\"ns\":1,\"in\":3,\"out\":[]}") == "w.jsonl:2: in is not a list");
  CHECK(reason(h + launch("\"a\"", "")) == "w.jsonl:2: in names a tensor by something else than a whole number");
  CHECK(reason(h + tensor(0, 1) + launch("0", "") + launch("", "3")) == "w.jsonl:4: tensor 3 is not in the file");
  const std::string t = h + tensor(0, 2 * one_block);
  CHECK(reason(t + launch("0", "", R"(,"blocks":[])")) == "w.jsonl:3: \"blocks\" is not an object of lists");
  CHECK(reason(t + launch("0", "", R"(,"blocks":{"x":[]})")) ==
        "w.jsonl:3: \"blocks\" names \"x\", which is not the number of a tensor");
  CHECK(reason(t + launch("0", "", R"(,"blocks":{"0":[],"00":[]})")) == "w.jsonl:3: \"blocks\" names tensor 0 twice");
  CHECK(reason(t + launch("0", "", R"(,"blocks":{"0":[[1],1]})")) ==
        "w.jsonl:3: \"blocks\" mixes lists of blocks with something else");
  CHECK(reason(t + launch("0", "", R"(,"blocks":{"0":[2]})")) ==
        "w.jsonl:3: \"blocks\" names block 2 of tensor 0, which lies in 2");
  CHECK(reason(t + launch("0", "", R"(,"blocks":{"9":[2]})")) == "w.jsonl:3: tensor 9 is not in the file");
}

TEST_CASE("a small file that would take much memory is refused") {
  // Each of 3000 tensors begins where no other does and ends with all of them: pieces in the square of their number.
  std::string overlapping = header;
  std::string all;
  for (int i = 0; i < 3000; ++i) {
    overlapping += tensor(i, one_block * static_cast<std::uint64_t>(3000 - i), at_block(static_cast<std::uint64_t>(i)));
    all += i != 0 ? "," : "";
    all += std::to_string(i);
  }
  CHECK(reason_to_refuse(overlapping + launch(all, "")).ends_with(": too many tensors overlap"));

  std::string lists = "[[]";
  for (int i = 0; i < 30000; ++i) {
    lists += ",[]";
  }
  std::string differing =
      header + tensor(0, one_block) + tensor(1, one_block) + launch("0", "", R"(,"blocks":{"0":)" + lists + "]}");
  for (int i = 0; i < 1000; ++i) {
    differing += launch("0,1", "", R"(,"blocks":{"0":[[0],[]],"1":[[0],[],[0]]})");
  }
  CHECK(reason_to_refuse(differing).ends_with(": too many look-ups that differ from step to step"));

  // Address space itself costs nothing.
  CHECK(parse(tensor(0, one_block << 31U) + launch("0", "")).blocks == std::uint32_t{1} << 31U);
}

TEST_CASE("deeply nested JSON is refused like any other") {
  CHECK(reason_to_refuse(header + std::string(R"({"tensor":)") + std::string(100000, '[')).starts_with("w.jsonl:2: "));
  CHECK(reason_to_refuse(header + std::string(R"({"tensor":)") + std::string(100000, '[') + std::string(100000, ']') +
                         "}")
            .starts_with("w.jsonl:2: "));
}

TEST_CASE("a file is read plain or packed, and damage to the packing is noticed") {
  const temporary_file file;
  const std::string text = header + tensor(0, 1) + launch("0", "");
  const auto put = [&](const void* data, std::size_t n) {
    std::FILE* const f = std::fopen(file.path.c_str(), "wb");
    REQUIRE(f != nullptr);
    REQUIRE(std::fwrite(data, 1, n, f) == n);
    REQUIRE(std::fclose(f) == 0);
  };
  put(text.data(), text.size());
  CHECK(read_workload(file.path).blocks == 1);

  std::vector<unsigned char> packed(1000);
  z_stream stream{};
  REQUIRE(deflateInit2(&stream, 6, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY) == Z_OK);
  std::string source = text;
  stream.next_in = reinterpret_cast<unsigned char*>(source.data());
  stream.avail_in = static_cast<unsigned>(source.size());
  stream.next_out = packed.data();
  stream.avail_out = static_cast<unsigned>(packed.size());
  REQUIRE(deflate(&stream, Z_FINISH) == Z_STREAM_END);
  packed.resize(stream.total_out);
  deflateEnd(&stream);
  put(packed.data(), packed.size());
  CHECK(read_workload(file.path).blocks == 1);

  put(packed.data(), packed.size() - 9);
  CHECK_THROWS_AS((void)read_workload(file.path), const error&);
  packed[packed.size() / 2] ^= 0x10;
  put(packed.data(), packed.size());
  CHECK_THROWS_AS((void)read_workload(file.path), const error&);

  std::remove(file.path.c_str());
  try {
    (void)read_workload(file.path);
    FAIL("a missing file was read");
  } catch (const error& e) {
    CHECK(e.code() == status::io_failure);
    CHECK(std::string(e.what()) == file.path + ": No such file or directory");
  }
}

TEST_CASE("a program describes a workload as a file does, and is told what is wrong without a line") {
  const workload read = parse(tensor(7, 3 * one_block, at_block(4) + R"(,"persistent":true)") + tensor(8, 600) +
                              tensor(9, one_block, R"(,"free_after":2)") + launch("7", "8,9") +
                              launch("7", "7", R"(,"blocks":{"7":[[0],[2]]})") + launch("8", ""));
  const workload built = build_workload(
      "program",
      {.name = "small",
       .tensors = {{.id = 7, .size = bytes{3 * one_block}, .address = bytes{4 * one_block}, .persistent = true},
                   {.id = 8, .size = bytes{600}},
                   {.id = 9, .size = bytes{one_block}, .freed_after = 2}},
       .launches = {{.kernel = "k", .duration = nanoseconds{10}, .in = {7}, .out = {8, 9}},
                    {.kernel = "k", .duration = nanoseconds{10}, .in = {7}, .out = {7}, .blocks = {{7, {{0}, {2}}}}},
                    {.kernel = "k", .duration = nanoseconds{10}, .in = {8}}}});
  for (const workload* w : {&read, &built}) {
    CHECK(w->name == "small");
    CHECK(w->variants == 2);
    CHECK(w->compute == nanoseconds{30});
    CHECK(w->blocks == 5);
    CHECK(blocks(w->launches[0].touches(0).fresh) == numbers{0, 1});
    CHECK(blocks(w->launches[1].touches(1).writes) == numbers{6});
    CHECK(blocks(w->launches[2].dead) == numbers{0, 1});
    REQUIRE(w->description != nullptr);
    CHECK(w->description->tensors.size() == 3);
    CHECK_FALSE(w->description->tensors[1].address.has_value());
    CHECK(w->description->launches[1].blocks.at(7) == described_launch::lists{{0}, {2}});
  }

  const auto reason = [](const workload_description& d) {
    try {
      (void)build_workload("program", d);
    } catch (const error& e) {
      CHECK(e.code() == status::bad_format);
      return std::string(e.what());
    }
    return std::string("built without complaint");
  };
  CHECK(reason({}) == "program: there is no launch");
  CHECK(reason({.tensors = {{.id = 3}, {.id = 3}}, .launches = {{}}}) == "program: tensor 3 is there twice");
  CHECK(reason({.launches = {{.in = {1}}}}) == "program: tensor 1 is not in the description");
  CHECK(reason({.tensors = {{.id = 3, .size = bytes{8}, .address = bytes{~std::uint64_t{3}}}}, .launches = {{}}}) ==
        "program: tensor 3 ends beyond 8 PiB");
}

TEST_CASE("recorded workloads have the sizes that the referee finds" *
          doctest::skip(!std::getenv("DEEPUM_WORKLOADS"))) {
  struct expected {
    const char* file;
    std::size_t launches;
    std::int64_t compute_ns;
    std::uint32_t blocks;
    std::uint32_t largest_launch;
    std::size_t variants;
  };
  constexpr expected all[] = {{"bert_base_b256_a100", 1369, 8742558777, 75970, 1152, 1},
                              {"dlrm_b2k", 76, 2387645, 9491, 609, 8},
                              {"gpt2_xl_b4", 7936, 573968242, 49075, 1179, 1},
                              {"opt_13b_infer_b8", 865, 344868811, 28941, 924, 1},
                              {"resnet152_b256", 2591, 300606905, 23354, 1179, 1}};
  for (const expected& e : all) {
    CAPTURE(e.file);
    const workload w = read_workload(std::string(std::getenv("DEEPUM_WORKLOADS")) + "/" + e.file + ".jsonl.gz");
    CHECK(w.warnings.empty());
    CHECK(w.launches.size() == e.launches);
    CHECK(w.compute == nanoseconds{e.compute_ns});
    CHECK(w.blocks == e.blocks);
    CHECK(w.largest_launch == e.largest_launch);
    CHECK(w.variants == e.variants);
  }
}

}  // namespace workload_test
