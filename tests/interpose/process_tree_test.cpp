#include <deepum/interpose/process_tree.hpp>
#include <deepum/units.hpp>

#include <doctest/doctest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstddef>
#include <fstream>
#include <string>

namespace process_trees {

using deepum::interpose::process_tree;
using namespace deepum::literals;
using deepum::bytes;

struct made_file {
  std::string path = "/tmp/deepum-process-tree-test-" + std::to_string(::getpid());
  made_file() { REQUIRE(process_tree::make(path)); }
  ~made_file() { (void)::unlink(path.c_str()); }
};

TEST_CASE("processes on one device are counted, those on others apart") {
  const made_file file;
  process_tree one(file.path);
  process_tree other(file.path);  // as another process maps it
  const std::size_t place = one.join(::getpid(), 7, 1_GiB);
  CHECK(place < process_tree::most_members);
  CHECK(other.users_of(7).count == 1);
  CHECK(other.users_of(7).memory == 1_GiB);
  CHECK(other.users_of(8).count == 0);
  (void)other.join(::getpid(), 7, 2_GiB);
  (void)other.join(::getpid(), 8, 1_MiB);
  CHECK(one.users_of(7).count == 2);
  CHECK(one.memory() == 3_GiB + 1_MiB);
  CHECK(one.joined() == 3);
  one.leave(place);
  CHECK(other.users_of(7).count == 1);
  CHECK(other.joined() == 3);
}

TEST_CASE("a process that has ended without a word holds nothing any more") {
  const made_file file;
  process_tree tree(file.path);
  const pid_t child = ::fork();
  if (child == 0) {
    ::_exit(0);
  }
  (void)tree.join(child, 7, 1_GiB);
  CHECK(tree.users_of(7).count == 1);  // at least until somebody has waited for it
  CHECK(::waitpid(child, nullptr, 0) == child);
  CHECK(tree.users_of(7).count == 0);
  CHECK(tree.memory() == bytes{});
}

TEST_CASE("without a file, or with another one, nobody is known") {
  process_tree none("");
  CHECK(none.join(::getpid(), 7, 1_GiB) == process_tree::most_members);
  CHECK(none.users_of(7).count == 0);
  CHECK(none.joined() == 0);
  none.leave(0);
  const made_file file;
  CHECK_FALSE(process_tree::make(file.path));  // it is there already
  std::ofstream(file.path) << "something else";
  process_tree wrong(file.path);
  CHECK(wrong.join(::getpid(), 7, 1_GiB) == process_tree::most_members);
}

TEST_CASE("there are so many places and no more") {
  const made_file file;
  process_tree tree(file.path);
  for (std::size_t i = 0; i < process_tree::most_members; ++i) {
    CHECK(tree.join(::getpid(), 1, bytes{1}) == i);
  }
  CHECK(tree.join(::getpid(), 1, bytes{1}) == process_tree::most_members);
  tree.leave(process_tree::most_members);
  tree.leave(3);
  CHECK(tree.join(::getpid(), 1, bytes{1}) == 3);
}

}  // namespace process_trees
