// Flags are spelled with dashes or with underscores, as their owner likes.

#include "program/command_line.hpp"

#include "run_program.hpp"

#include <doctest/doctest.h>

#include <string>

namespace command_line_test {

using deepum_program::with_underscores;

TEST_CASE("dashes in the name of a flag are underscores, and its value stays as it is") {
  CHECK(with_underscores("--warm-up=3") == "--warm_up=3");
  CHECK(with_underscores("--warm_up=3") == "--warm_up=3");
  CHECK(with_underscores("--evicted=host-mapped") == "--evicted=host-mapped");
  CHECK(with_underscores("--pre-evict") == "--pre_evict");
  CHECK(with_underscores("--a-b=--c-d") == "--a_b=--c-d");
}

TEST_CASE("what is no flag stays as it is") {
  CHECK(with_underscores("a-file.json") == "a-file.json");
  CHECK(with_underscores("-x-y") == "-x-y");
  CHECK(with_underscores("--") == "--");
  CHECK(with_underscores("-") == "-");
  CHECK(with_underscores("") == "");
}

TEST_CASE("a program takes both spellings, and refuses a flag that it does not know in both") {
  const std::string small = "--layers 3 --width 128 --heads 4 --context 32 --batch 4 --steps 2 --policy um ";
  for (const std::string spelling : {"--learning-rate=0.001", "--learning_rate=0.001"}) {
    CAPTURE(spelling);
    CHECK(deepum_test::run_program("train_gpt", small + spelling).status == 0);
  }
  for (const std::string spelling : {"--learning-rat=0.001", "--learning_rat=0.001"}) {
    CAPTURE(spelling);
    CHECK(deepum_test::run_program("train_gpt", small + spelling + " 2>&1").status != 0);
  }
}

}  // namespace command_line_test
