// Runs a fuzz target without a fuzzer: on the inputs of its corpus, then on a fixed number of mutations of them. Input
// i is the same in every run, so a failure is repeated by its number.
//
// usage: PROGRAM CORPUS_DIR [NUMBER_OF_INPUT]

#include "support/test_scale.hpp"

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <string_view>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);
extern "C" void __sanitizer_set_death_callback(void (*)()) __attribute__((weak));

namespace {

using input = std::string;

std::vector<input> read_corpus(const char* folder) {
  std::vector<std::filesystem::path> paths;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    paths.push_back(entry.path());
  }
  std::sort(paths.begin(), paths.end());
  std::vector<input> corpus;
  for (const auto& path : paths) {
    std::ifstream file(path, std::ios::binary);
    corpus.emplace_back(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
  }
  return corpus;
}

// What the formats give a meaning to, and numbers at the edges of types.
constexpr std::string_view tokens[] = {"0",
                                       "1",
                                       "-1",
                                       "2097152",
                                       "4294967295",
                                       "4294967296",
                                       "9007199254740993",
                                       "9223372036854775808",
                                       "18446744073709551615",
                                       "1e999",
                                       "0.5",
                                       "null",
                                       "true",
                                       "[",
                                       "]",
                                       "[]",
                                       "[[0],[1]]",
                                       "{",
                                       "}",
                                       ",",
                                       ":",
                                       "\"",
                                       "\n",
                                       "\"tensor\"",
                                       "\"bytes\"",
                                       "\"addr\"",
                                       "\"persistent\":true",
                                       "\"free_after\"",
                                       "\"kernel\"",
                                       "\"in\"",
                                       "\"out\"",
                                       "\"blocks\":{\"0\":[0]}",
                                       "\"copy\":\"out\"",
                                       "\"count\"",
                                       "\"new\"",
                                       "\"drop\"",
                                       "\\ud800",
                                       "\xff\xff\xff\xff",
                                       std::string_view("\0\0\0\0", 4),
                                       std::string_view("\1\0\0\0", 4),
                                       std::string_view("\2\0\0\0\0\0\0\0", 8)};

input mutated(const std::vector<input>& corpus, std::uint64_t number) {
  std::mt19937_64 random{number};
  const auto draw = [&](std::size_t below) {
    return static_cast<std::size_t>(random() % std::max<std::size_t>(below, 1));
  };
  input made = corpus[draw(corpus.size())];
  do {
    const std::size_t at = draw(made.size());
    const std::size_t length = std::min(draw(16) + 1, made.size() - std::min(at, made.size()));
    const auto put = [&](std::string_view what) {
      if (draw(2) != 0) {
        made.insert(at, what);
      } else {
        made.replace(at, std::min(what.size(), made.size() - at), what);
      }
    };
    switch (draw(7)) {
      case 0:
        if (!made.empty()) made[at] = static_cast<char>(made[at] ^ (1 << draw(8)));
        break;
      case 1:
        if (!made.empty()) made[at] = static_cast<char>(random());
        break;
      case 2:
        made.erase(at, length);
        break;
      case 3:
        put(input(made, at, length));
        break;
      case 4:
        put(tokens[draw(std::size(tokens))]);
        break;
      case 5: {  // a piece of another input, which is often a line
        const input& other = corpus[draw(corpus.size())];
        const std::size_t begin = other.rfind('\n', draw(other.size())) + 1;
        made.insert(at, other, begin, other.find('\n', begin) - begin + 1);
        break;
      }
      case 6:
        made.resize(at);
        break;
    }
  } while (draw(2) != 0);
  return made;
}

std::uint64_t running = 0;

void name_input() {
  char text[64];
  const int length =
      std::snprintf(text, sizeof text, "fuzz_main: input %llu fails\n", static_cast<unsigned long long>(running));
  std::fwrite(text, 1, static_cast<std::size_t>(length), stderr);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2 || argc > 3) {
    std::fprintf(stderr, "usage: %s CORPUS_DIR [NUMBER_OF_INPUT]\n", argv[0]);
    return 2;
  }
  const std::vector<input> corpus = read_corpus(argv[1]);
  if (corpus.empty()) {
    std::fprintf(stderr, "fuzz_main: no inputs in %s\n", argv[1]);
    return 2;
  }
  std::signal(SIGABRT, [](int) { name_input(); });
  if (__sanitizer_set_death_callback != nullptr) {
    __sanitizer_set_death_callback(name_input);
  }

  const std::uint64_t inputs = corpus.size() + deepum_test::scaled(20000);
  const bool only_one = argc == 3;
  const std::uint64_t first = only_one ? std::strtoull(argv[2], nullptr, 10) : 0;
  using clock = std::chrono::steady_clock;
  for (running = first; running < (only_one ? first + 1 : inputs); ++running) {
    const input text = running < corpus.size() ? corpus[running] : mutated(corpus, running);
    const clock::time_point begin = clock::now();
    try {
      LLVMFuzzerTestOneInput(reinterpret_cast<const std::uint8_t*>(text.data()), text.size());
    } catch (const std::exception& e) {
      name_input();
      std::fprintf(stderr, "fuzz_main: an exception that it should not throw: %s\n", e.what());
      return 1;
    }
    if (clock::now() - begin > std::chrono::seconds(10)) {
      name_input();
      std::fprintf(stderr, "fuzz_main: it takes more than 10 seconds\n");
      return 1;
    }
  }
  std::printf("%llu inputs, of which %zu are the corpus\n", static_cast<unsigned long long>(running), corpus.size());
  return 0;
}
