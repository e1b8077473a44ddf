// The file that programs write their results to: there is one when there are results, and not before.

#include "program/json_file.hpp"

#include "nlohmann/json.hpp"
#include "run_program.hpp"

#include <doctest/doctest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

namespace json_file_test {

using deepum_program::json_file;

std::string contents_of(const std::string& path) {
  std::ifstream file{path};
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}
/// Where no file is.
std::string free_path(const char* name) {
  const auto path = std::filesystem::temp_directory_path() / ("deepum_json_file_test_" + std::string{name});
  std::filesystem::remove(path);
  return path.string();
}

TEST_CASE("looking whether a file can be written leaves none behind, and an older one as it is") {
  const std::string path = free_path("checked.json");
  CHECK(json_file{path}.check().ok());
  CHECK_FALSE(std::filesystem::exists(path));
  std::ofstream{path} << "older";
  CHECK(json_file{path}.check().ok());
  CHECK(contents_of(path) == "older");
}

TEST_CASE("a file that cannot be written is known before the work") {
  CHECK_FALSE(json_file{"/no/such/folder/x.json"}.check().ok());
  CHECK_FALSE(json_file{"/"}.check().ok());
  CHECK_FALSE(json_file{"/no/such/folder/x.json"}.save({{"a", 1}}).ok());
  CHECK(json_file{""}.check().ok());
  CHECK(json_file{""}.save({{"a", 1}}).ok());
}

TEST_CASE("what is saved last is all that the file holds") {
  const std::string path = free_path("saved.json");
  const json_file file{path, 1};
  CHECK(file.save({{"a", std::string(1000, 'x')}}).ok());
  CHECK(file.save({{"b", 2}}).ok());
  CHECK(contents_of(path) == "{\n \"b\": 2\n}\n");
}

TEST_CASE("a budget that is refused leaves no file that looks like results") {
  const std::string path = free_path("refused.json");
  const auto refused = deepum_test::run_program(
      "train_gpt",
      "--memory paged --policy um --budget 2MiB --layers 1 --width 512 --heads 4 --steps 1 --json " + path + " 2>&1");
  CHECK(refused.status == 1);
  CHECK(refused.output.find("the budget is") != std::string::npos);
  CHECK_FALSE(std::filesystem::exists(path));
}

}  // namespace json_file_test
