// Weight files: what the header says is checked, so that no upload reads beyond the file.

#include "../../examples/serve/weight_file.hpp"

#include <doctest/doctest.h>
#include <unistd.h>

#include <cstdio>
#include <numeric>
#include <string>
#include <vector>

namespace weight_file_test {

struct temporary {
  temporary() {
    char name[] = "/tmp/weights_XXXXXX";
    const int made = mkstemp(name);
    REQUIRE(made >= 0);
    ::close(made);
    path = name;
  }
  ~temporary() { std::remove(path.c_str()); }
  temporary(const temporary&) = delete;
  temporary& operator=(const temporary&) = delete;
  void write(const std::string& header, std::size_t data, std::uint64_t length) const {
    std::FILE* const f = std::fopen(path.c_str(), "wb");
    REQUIRE(f != nullptr);
    for (unsigned i = 0; i != 8; ++i)
      std::fputc(static_cast<int>(length >> (8 * i) & 0xffU), f);
    std::fwrite(header.data(), 1, header.size(), f);
    const std::string rest(data, 'x');
    std::fwrite(rest.data(), 1, rest.size(), f);
    std::fclose(f);
  }
  std::string path;
};

TEST_CASE("what was written is found, at multiples of a page") {
  const temporary file;
  std::vector<float> a(1000);
  std::iota(a.begin(), a.end(), 1.0F);
  std::vector<float> b(3, 7.0F);
  REQUIRE(serve::write_weight_file(file.path, {{"a", {a.data(), a.size()}}, {"b", {b.data(), b.size()}}}).ok());
  const auto opened = serve::weight_file::open(file.path);
  REQUIRE(opened.ok());
  CHECK(opened->tensors().size() == 2);
  const auto found = opened->floats("a", 1000);
  REQUIRE(found.ok());
  CHECK(found->offset % 4096 == 0);
  std::vector<float> read(1000);
  REQUIRE(::pread(opened->descriptor(), read.data(), found->size, static_cast<off_t>(found->offset)) == 4000);
  CHECK(read == a);
  CHECK(opened->floats("b", 3)->offset % 4096 == 0);
  CHECK_FALSE(opened->floats("a", 999).ok());
  CHECK_FALSE(opened->floats("c", 3).ok());
}

TEST_CASE("files that are none, or are too short, are refused") {
  const temporary file;
  CHECK(serve::weight_file::open("/nowhere/at/all").status().code() == absl::StatusCode::kNotFound);
  CHECK_FALSE(serve::weight_file::open("/tmp").ok());
  const auto refused = [&](const std::string& header, std::size_t data, std::uint64_t length) {
    file.write(header, data, length);
    return !serve::weight_file::open(file.path).ok();
  };
  const std::string good = R"({"__metadata__":{"by":"x"},"a":{"dtype":"F32","shape":[2,1],"data_offsets":[0,8]}})";
  CHECK_FALSE(refused(good, 8, good.size()));
  CHECK(refused(good, 7, good.size()));
  CHECK(refused(good, 8, good.size() + 9));
  CHECK(refused(good, 8, std::uint64_t{1} << 40U));
  CHECK(refused("", 0, 5));
  for (const std::string text : {"[]", "{", R"({"a":1})", R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0]}})",
                                 R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[8,0]}})",
                                 R"({"a":{"dtype":"F32","shape":[3],"data_offsets":[0,8]}})",
                                 R"({"a":{"dtype":"F32","shape":[-2],"data_offsets":[0,8]}})",
                                 R"({"a":{"dtype":"F32","shape":[4611686018427387904,4],"data_offsets":[0,8]}})"}) {
    CAPTURE(text);
    CHECK(refused(text, 8, text.size()));
  }
}

}  // namespace weight_file_test
