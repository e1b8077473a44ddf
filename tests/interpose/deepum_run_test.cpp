// deepum-run as users run it: program.c under it, on a driver that is none (fake_driver/).

#include "../examples/run_program.hpp"

#include <doctest/doctest.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string>

namespace deepum_runs {

const std::string folder = DEEPUM_FAKE_RUN;

using deepum_test::outcome;

/// What it writes on standard error is part of the output.
outcome shell(const std::string& command) { return deepum_test::shell("(" + command + ") 2>&1"); }
/// Twelve MiB of device memory, 32 MiB in all.
outcome run(const std::string& command, const std::string& options = "--budget 12MiB --capacity 32MiB",
            const std::string& environment = "") {
  return shell("cd " + folder + " && LD_LIBRARY_PATH=. DEEPUM_FAULT_FEED=none " + environment +
               " timeout 60 ./deepum-run " + options + " -- " + command);
}
bool has(const outcome& o, const std::string& text) {
  if (o.output.find(text) != std::string::npos) return true;
  MESSAGE(o.output);
  return false;
}
std::string contents(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

TEST_CASE("a program runs past its budget, and the last line says how") {
  const outcome o = run("./program steps");
  CHECK(o.status == 0);
  CHECK(has(o, "24.0 MiB at most, of which 12.0 MiB did not fit the budget of 12.0 MiB; 332 launches, a step of 11"));
  CHECK(has(o, "policy auto"));
}

TEST_CASE("a step that allocates and frees in stream order recurs, also where a result outlives it") {
  const outcome o = run("./program temporaries");
  CHECK(o.status == 0);
  CHECK(has(o, "a step of 13 takes"));
}

TEST_CASE("every way to tell a kernel its arguments works, with either kind of default stream") {
  for (const std::string kind : {"", " per_thread"}) {
    const outcome o = run("./program layouts" + kind);
    CHECK(o.status == 0);
    CHECK(has(o, "19 launches"));
  }
}

TEST_CASE("operands are found where the driver tells the layout") {
  const std::string trace = folder + "/operands.json";
  CHECK(run("./program layouts", "--budget 12MiB --capacity 32MiB --record " + trace).status == 0);  // no step recurs
  CHECK(run("./program steps", "--budget 12MiB --capacity 32MiB --record " + trace).status == 0);
  const std::string step = contents(trace);
  CHECK(step.find("\"kernels\":11,\"tensors\":12") != std::string::npos);
  // scale(float*, const float*, float, int): the first is written, the second only read.
  CHECK(step.find("{\"kernel\":\"scale\"") != std::string::npos);
  CHECK(step.find("\"in\":[0,1],\"out\":[1]") != std::string::npos);
  (void)::unlink(trace.c_str());
}

TEST_CASE("statistics, a trace and a page of a run are written, and what is learned serves the next run") {
  const std::string at = folder + "/written";
  REQUIRE(std::system(("rm -rf " + at + " && mkdir " + at).c_str()) == 0);
  CHECK(run("./program steps",
            "--budget 12MiB --capacity 32MiB --statistics written/s.json --trace written/t.json --tables "
            "written/tables --report written/page.html")
            .status == 0);
  CHECK(contents(at + "/s.json").find("\"launches\"") != std::string::npos);
  CHECK(contents(at + "/t.json").find("scale") != std::string::npos);
  CHECK(contents(at + "/page.html").find("<html") != std::string::npos);
  CHECK(contents(at + "/tables").size() > 100);
  const outcome again = run("./program steps", "--budget 12MiB --capacity 32MiB --tables written/tables --policy lru");
  CHECK(again.status == 0);
  CHECK(has(again, "policy lru"));
  REQUIRE(std::system(("rm -r " + at).c_str()) == 0);
}

TEST_CASE("a program is told of its memory as if it were the device's") {
  const outcome o = run("./program numbers");
  CHECK(o.status == 0);
  CHECK(has(o, "cuMemCreate"));
}

TEST_CASE("memory runs out when all of it is taken, and nothing else is taken instead") {
  CHECK(run("./program runs_out").status == 0);
  CHECK(run("./program runs_out", "--budget 12MiB", "DEEPUM_MANAGED_LIMIT=32MiB").status == 0);
  CHECK(run("./program runs_out", "--budget 12MiB --capacity 64MiB", "DEEPUM_MANAGED_LIMIT=32MiB").status == 0);
}

TEST_CASE("without room for a block there is one line, and the program is told") {
  const outcome o = run("./program numbers", "--budget 12MiB", "DEEPUM_MANAGED_LIMIT=1MiB");
  CHECK(o.status == 99);
  CHECK(has(o, "the program gets no memory"));
}

TEST_CASE("errors of the driver are the program's") { CHECK(run("./program failures").status == 0); }

TEST_CASE("nothing is put into a capture, and graphs find what they use") {
  const outcome o = run("./program capture");
  CHECK(o.status == 0);
  CHECK(has(o, "9 launches"));  // two copies of one number, a launch before, five of the graph, one copy
}

/// A program with the library linked into it, started by itself.
outcome run_linked(const std::string& words,
                   const std::string& environment = "DEEPUM_BUDGET=12MiB DEEPUM_RUN_CAPACITY=32MiB") {
  return shell("cd " + folder + " && env -u LD_PRELOAD LD_LIBRARY_PATH=. DEEPUM_FAULT_FEED=none " + environment +
               " timeout 60 ./linked_program " + words);
}

TEST_CASE("a program that the library is linked into needs nobody to start it") {
  const outcome o = run_linked("steps");
  CHECK(o.status == 0);
  CHECK(has(o, "24.0 MiB at most, of which 12.0 MiB did not fit the budget of 12.0 MiB; 332 launches, a step of 11"));
  for (const std::string words : {"symbols", "layouts per_thread", "capture", "numbers", "runs_out", "temporaries"}) {
    CHECK(run_linked(words).status == 0);
  }
  CHECK(run_linked("in_flight").status == 3);
  const outcome wrong = run_linked("layouts", "DEEPUM_BUDGET=12MiB DEEPUM_RUN_CAPACITY=many");
  CHECK(wrong.status == 0);
  CHECK(has(wrong, "DEEPUM_RUN_CAPACITY is 'many' and not used"));
  // Without a program of the tree, and under one that loads it too.
  CHECK(run_linked("nothing").output.empty());
  CHECK(has(run("./linked_program steps"), "332 launches"));
}

TEST_CASE("several threads may use one stream") {
  CHECK(run("./program threads").status == 0);
  CHECK(run("./program threads per_thread").status == 0);
}

TEST_CASE("what a fork or a started program leaves behind is its own") {
  const outcome o = run("./program forks");
  CHECK(o.status == 0);
  CHECK(has(o, "2 launches"));
}

TEST_CASE("a program may end while work is in flight that never ends") {
  CHECK(run("./program in_flight").status == 3);
}

TEST_CASE("look-ups find what they should") { CHECK(run("./program symbols").status == 0); }

TEST_CASE("processes at the same time share budget and memory") {
  const outcome o = run("sh -c './program steps & ./program steps & wait'", "--budget 24MiB --capacity 64MiB");
  CHECK(o.status == 0);
  // The first that asks is given all of the memory; what it leaves is for the next one.
  CHECK(has(o, "did not fit the budget of"));
}

TEST_CASE("the status of the program is passed on, also where it was killed") {
  CHECK(run("sh -c 'exit 7'").status == 7);
  CHECK(run("sh -c 'kill -TERM $$'; echo $?").output.find("143") != std::string::npos);
}

TEST_CASE("a signal to deepum-run reaches the program") {
  const outcome o = shell(
      "cd " + folder + " && ./deepum-run -- sh -c 'trap \"exit 9\" TERM; kill -TERM $PPID; sleep 20 & wait'; echo $?");
  CHECK(o.output.find("\n9\n") != std::string::npos);
}

TEST_CASE("a program without CUDA runs as ever, with one line") {
  const outcome o = run("./program nothing");
  CHECK(o.status == 0);
  CHECK(has(o, "no memory of a GPU was asked for"));
}

TEST_CASE("without a GPU there is a line, and the program's own status") {
  const outcome o = run("./program steps", "--budget 12MiB", "FAKE_DRIVER_NO_DEVICE=1");
  CHECK(o.status == 42);
  CHECK(has(o, "there is no GPU"));
}

TEST_CASE("bad use gives one line and a status of its own") {
  CHECK(has(run("true", "--budget 1MiB"), "less than a block of 2 MiB"));
  CHECK(run("true", "--budget 1MiB").status == 125);
  CHECK(has(run("true", "--budget many"), "--budget is 'many'"));
  CHECK(has(run("true", "--budget 120%"), "up to 100%"));
  CHECK(has(run("true", "--capacity 50%"), "--capacity is '50%'"));
  CHECK(has(run("true", "--policy fifo"), "--policy is 'fifo': there are"));
  CHECK(has(run("true", "--memory paged"), "--memory paged needs programs that declare"));
  CHECK(has(run("true", "--memory stone"), "--memory is 'stone'"));
  CHECK(has(run("", ""), "which program?"));
  CHECK(run("", "").status == 125);
  CHECK(run("./there-is-no-such-program").status == 127);
  CHECK(run("no-such-program-in-path").status == 127);
  CHECK(run("/etc/passwd").status == 126);
  CHECK(run("true", "--no-such-option").status != 0);
}

TEST_CASE("checked mode is for programs that declare something") {
  const outcome o = run("./program layouts", "--budget 12MiB --capacity 32MiB", "DEEPUM_CHECK=1");
  CHECK(o.status == 0);
  CHECK(has(o, "DEEPUM_CHECK is ignored"));
}

TEST_CASE("programs into which no library can be loaded are refused") {
  const std::string path = folder + "/refused";
  // An ELF header of 32 bits, and one of 64 bits without a loader.
  for (const char bits : {'\1', '\2'}) {
    std::ofstream file(path, std::ios::binary);
    file << "\x7f"
         << "ELF" << bits << std::string(200, '\0');
    file.close();
    REQUIRE(std::system(("chmod +x " + path).c_str()) == 0);
    const outcome o = run("./refused");
    CHECK(o.status == 126);
    CHECK(has(o, bits == '\1' ? "is a 32-bit program" : "is linked statically"));
  }
  (void)::unlink(path.c_str());
}

}  // namespace deepum_runs
