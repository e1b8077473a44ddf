#include <deepum/core/fifo.hpp>
#include <deepum/core/sequence.hpp>

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <iterator>
#include <memory>
#include <new>
#include <random>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace sequence_test {

using deepum::fifo;
using deepum::sequence;

struct counted {
  explicit counted(int n) : number(n) { ++alive; }
  counted(const counted& other) : number(other.number) {
    if (copies_until_failure > 0 && --copies_until_failure == 0) {
      throw std::runtime_error("no copy");
    }
    ++alive;
  }
  counted(counted&& other) noexcept : number(std::exchange(other.number, -1)) { ++alive; }
  counted& operator=(const counted&) = default;
  counted& operator=(counted&& other) noexcept {
    number = std::exchange(other.number, -1);
    return *this;
  }
  ~counted() { --alive; }
  friend bool operator==(const counted& a, const counted& b) { return a.number == b.number; }

  int number;
  inline static int alive = 0;
  inline static int copies_until_failure = 0;
};

/// A value as an element: a number, or what owns memory.
template <class T>
T made(std::uint32_t n) {
  if constexpr (std::is_same_v<T, std::string>) {
    return std::string(40, 'x') + std::to_string(n);
  } else {
    return T{n};
  }
}

template <class Ours, class Model>
void check_same(const Ours& ours, const Model& model) {
  REQUIRE(ours.size() == model.size());
  CHECK(ours.empty() == model.empty());
  CHECK(std::equal(ours.begin(), ours.end(), model.begin()));
  CHECK(std::equal(ours.rbegin(), ours.rend(), model.rbegin()));
}

/// Random calls, beside the standard's own container.
template <class T>
void random_calls_of_a_sequence(std::uint32_t seed) {
  std::mt19937 random(seed);
  sequence<T> ours;
  std::vector<T> model;
  for (std::uint32_t step = 0; step != 2000; ++step) {
    const T value = made<T>(step);
    const std::size_t at = model.empty() ? 0 : random() % model.size();
    const auto offset = static_cast<std::ptrdiff_t>(at);
    const auto end = static_cast<std::ptrdiff_t>(at + (model.size() - at) / 2);
    switch (random() % 12) {
      case 0:
      case 1:
        ours.push_back(value);
        model.push_back(value);
        break;
      case 2:
        if (!model.empty()) {
          ours.push_back(ours.front());  // its own element, which may move
          model.push_back(T(model.front()));
        }
        break;
      case 3:
        if (!model.empty()) {
          ours.pop_back();
          model.pop_back();
        }
        break;
      case 4:
        CHECK(*ours.insert(ours.begin() + offset, value) == value);
        model.insert(model.begin() + offset, value);
        break;
      case 5:
        if (!model.empty()) {
          ours.insert(ours.begin() + offset, ours.back());
          model.insert(model.begin() + offset, T(model.back()));
        }
        break;
      case 6:
        CHECK(ours.erase(ours.begin() + offset, ours.begin() + end) == ours.begin() + offset);
        model.erase(model.begin() + offset, model.begin() + end);
        break;
      case 7:
        ours.resize(at + 3);
        model.resize(at + 3);
        break;
      case 8:
        ours.resize(at + 2, value);
        model.resize(at + 2, value);
        break;
      case 9: {
        sequence<T> copy(ours);
        CHECK(copy == ours);
        copy.push_back(value);
        CHECK_FALSE(copy == ours);
        ours.shrink_to_fit();
        ours = copy;
        ours = std::as_const(ours);
        model.push_back(value);
        break;
      }
      case 10: {
        sequence<T> moved(std::move(ours));
        CHECK(ours.empty());  // NOLINT(bugprone-use-after-move): it promises so
        ours.push_back(value);
        ours = std::move(moved);
        CHECK(moved.empty());  // NOLINT(bugprone-use-after-move)
        break;
      }
      default:
        ours.reserve(model.size() + 5);
        CHECK(ours.capacity() >= model.size() + 5);
        CHECK(erase(ours, value) == 0);
    }
    check_same(ours, model);
  }
  ours.assign(model.rbegin(), model.rend());
  CHECK(std::equal(ours.begin(), ours.end(), model.rbegin(), model.rend()));
  ours.assign(3, made<T>(1));
  check_same(ours, std::vector<T>(3, made<T>(1)));
}

template <class T>
void random_calls_of_a_fifo(std::uint32_t seed) {
  std::mt19937 random(seed);
  fifo<T> ours;
  std::deque<T> model;
  for (std::uint32_t step = 0; step != 3000; ++step) {
    const T value = made<T>(step);
    const auto offset = static_cast<std::ptrdiff_t>(model.empty() ? 0 : random() % model.size());
    switch (random() % 10) {
      case 0:
      case 1:
      case 2:
        ours.push_back(value);
        model.push_back(value);
        break;
      case 3:
        ours.push_front(value);
        model.push_front(value);
        break;
      case 4:
      case 5:
        if (!model.empty()) {
          ours.pop_front();
          model.pop_front();
        }
        break;
      case 6:
        if (!model.empty()) {
          ours.pop_back();
          model.pop_back();
        }
        break;
      case 7:
        if (!model.empty()) {
          const auto* const next = ours.erase(ours.begin() + offset);
          CHECK(next == ours.begin() + offset);
          model.erase(model.begin() + offset);
        }
        break;
      case 8:
        ours.insert(ours.begin() + offset, value);
        model.insert(model.begin() + offset, value);
        break;
      default:
        ours.resize(model.size() + 1);
        model.resize(model.size() + 1);
    }
    check_same(ours, model);
    if (!model.empty()) {
      CHECK(ours.front() == model.front());
      CHECK(ours.back() == model.back());
      CHECK(ours[ours.size() / 2] == model[model.size() / 2]);
    }
  }
  ours.clear();
  CHECK(ours.empty());
}

TEST_CASE("a sequence does what a vector does") {
  for (std::uint32_t seed = 1; seed != 6; ++seed) {
    random_calls_of_a_sequence<std::uint32_t>(seed);
    random_calls_of_a_sequence<std::string>(seed);
  }
}

TEST_CASE("a fifo does what a deque does") {
  for (std::uint32_t seed = 1; seed != 6; ++seed) {
    random_calls_of_a_fifo<std::uint64_t>(seed);
    random_calls_of_a_fifo<std::string>(seed);
  }
}

TEST_CASE("plain elements are inserted in one go") {
  const std::vector<std::uint32_t> more{7, 8, 9};
  sequence<std::uint32_t> s{1, 2, 3};
  CHECK(*s.insert(s.begin() + 1, more.begin(), more.end()) == 7);
  CHECK(s == sequence<std::uint32_t>{1, 7, 8, 9, 2, 3});
  CHECK(*s.insert(s.end(), 2, 5) == 5);
  CHECK(s == sequence<std::uint32_t>{1, 7, 8, 9, 2, 3, 5, 5});
  CHECK(erase_if(s, [](std::uint32_t n) { return n > 4; }) == 5);
  CHECK(s == sequence<std::uint32_t>{1, 2, 3});
}

TEST_CASE("elements end once each, also where a copy fails") {
  {
    sequence<counted> s;
    for (int i = 0; i != 100; ++i) {
      s.emplace_back(i);
    }
    CHECK(erase_if(s, [](const counted& c) { return c.number % 2 == 0; }) == 50);
    CHECK(counted::alive == 50);
    s.erase(s.begin());
    CHECK(counted::alive == 49);
    CHECK(s.front().number == 3);
    counted::copies_until_failure = 10;
    CHECK_THROWS_AS((sequence<counted>(s)), std::runtime_error);
    CHECK(counted::alive == 49);
    CHECK(s.size() == 49);
    s.clear();
    CHECK(counted::alive == 0);
    fifo<counted> f;
    for (int i = 0; i != 100; ++i) {
      f.emplace_back(i);
    }
    f.erase(f.begin());
    CHECK(f.front().number == 1);
  }
  CHECK(counted::alive == 0);
}

TEST_CASE("what leaves a fifo gives back at once what it holds") {
  const auto held = std::make_shared<int>(1);
  fifo<std::shared_ptr<int>> f;
  for (int i = 0; i != 10; ++i) {
    f.push_back(held);
  }
  f.pop_front();
  CHECK(held.use_count() == 10);
  f.pop_back();
  CHECK(held.use_count() == 9);
}

TEST_CASE("a fifo that is as long as ever takes no more memory") {
  fifo<std::uint32_t> f;
  f.reserve(64);
  for (std::uint32_t i = 0; i != 16; ++i) {
    f.push_back(i);
  }
  const std::uint32_t* const first = f.begin();
  for (std::uint32_t i = 16; i != 10'000; ++i) {
    f.push_back(i);
    f.pop_front();
    REQUIRE(f.front() == i - 15);
    REQUIRE(f.begin() >= first);
    REQUIRE(f.end() <= first + 64);
  }
}

TEST_CASE("more elements than there can be are refused") {
  sequence<std::uint64_t> s{1};
  CHECK_THROWS_AS(s.reserve(static_cast<std::size_t>(-1) / 8), std::bad_alloc);
  CHECK(s.size() == 1);
  CHECK(s[0] == 1);
}

}  // namespace sequence_test
