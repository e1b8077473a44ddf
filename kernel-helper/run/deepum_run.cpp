// deepum-run: runs a CUDA program that nobody edited past a budget of device memory (docs/run.md).

#include "absl/flags/flag.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "program/command_line.hpp"
#include <deepum/core/block.hpp>
#include <deepum/core/size_text.hpp>
#include <deepum/interpose/process_tree.hpp>
#include <deepum/policy/make_policy.hpp>

#include <elf.h>
#include <fcntl.h>
#include <spawn.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

ABSL_FLAG(
    std::string, budget, "",
    "device memory that the program's contents hold at most: bytes, a number with KiB, MiB or GiB, or a share of the "
    "device's memory such as 50%; empty: what is free, less 512 MiB");
ABSL_FLAG(std::string, memory, "managed",
          "kind of memory: managed, or paged, which is refused for programs that declare nothing");
ABSL_FLAG(std::string, policy, "", "the policy that moves memory; empty: auto");
ABSL_FLAG(
    std::string, capacity, "",
    "memory that the program finds in all, a size as for the budget; empty: the budget and the host's free memory");
ABSL_FLAG(std::string, statistics, "", "file for statistics (JSON)");
ABSL_FLAG(std::string, trace, "", "file for a trace (JSON, for a trace viewer)");
ABSL_FLAG(std::string, tables, "",
          "file of what the policy learns: read in the beginning where it is there, written in the end");
ABSL_FLAG(std::string, report, "", "file for a page that draws the run (HTML); needs python3");
ABSL_FLAG(std::string, record, "", "file for a step of the program as a workload for deepum-replay");

extern char** environ;  // NOLINT(readability-redundant-declaration): not everywhere in a header

namespace {

// As env(1), nohup(1) and timeout(1) have it.
constexpr int failed_itself = 125;
constexpr int cannot_execute = 126;
constexpr int not_found = 127;

[[noreturn]] void fail(int exit_status, const std::string& why) {
  std::fprintf(stderr, "deepum-run: %s\n", why.c_str());
  std::exit(exit_status);  // NOLINT(concurrency-mt-unsafe): one thread
}

/// Refuses a size that the library would only ignore.
void check_size(const char* flag, const std::string& text, bool may_be_share) {
  if (text.empty()) {
    return;
  }
  double percent = 0;
  absl::string_view number = text;
  if (may_be_share && absl::ConsumeSuffix(&number, "%")) {
    if (absl::SimpleAtod(number, &percent) && percent > 0 && percent <= 100) {
      return;
    }
    fail(failed_itself,
         absl::StrCat("--", flag, " is '", text, "': a share of the device's memory is above 0% and up to 100%"));
  }
  const std::optional<deepum::bytes> size = deepum::try_parse_size(text);
  if (!size) {
    fail(failed_itself, absl::StrCat("--", flag, " is '", text, "': give bytes, a number with KiB, MiB or GiB",
                                     may_be_share ? ", or a share such as 50%" : ""));
  }
  if (*size < deepum::block_size) {
    fail(failed_itself, absl::StrCat("--", flag, " is '", text, "', which is less than a block of 2 MiB"));
  }
}

/// The program as a file, looked for as the shell does.
std::string found_in_path(const std::string& program) {
  if (program.find('/') != std::string::npos) {
    if (::access(program.c_str(), F_OK) != 0) {
      fail(not_found, absl::StrCat("'", program, "' is not there"));
    }
    return program;
  }
  const char* const variable = std::getenv("PATH");  // NOLINT(concurrency-mt-unsafe)
  std::string_view path = variable == nullptr ? "/usr/bin:/bin" : variable;
  while (!path.empty()) {
    const std::string_view folder = path.substr(0, path.find(':'));
    path.remove_prefix(std::min(path.size(), folder.size() + 1));
    const std::string file = (folder.empty() ? std::string(".") : std::string(folder)) + "/" + program;
    if (::access(file.c_str(), X_OK) == 0 && !std::filesystem::is_directory(file)) {
      return file;
    }
  }
  fail(not_found, absl::StrCat("'", program, "' is in no folder of PATH"));
}

/// Refuses files into which no library can be loaded. Scripts are fine: their interpreter is looked at by nobody.
void check_program(const std::string& path) {
  if (::access(path.c_str(), X_OK) != 0 || std::filesystem::is_directory(path)) {
    fail(cannot_execute, absl::StrCat("'", path, "' cannot be executed"));
  }
  struct stat about {};
  if (::stat(path.c_str(), &about) == 0 && (about.st_mode & (S_ISUID | S_ISGID)) != 0) {
    fail(cannot_execute,
         absl::StrCat("'", path, "' runs with the rights of another user, so that no library can be loaded into it"));
  }
  std::ifstream file(path, std::ios::binary);
  std::array<char, sizeof(Elf64_Ehdr)> bytes{};
  file.read(bytes.data(), bytes.size());
  if (file.gcount() < EI_NIDENT || std::memcmp(bytes.data(), ELFMAG, SELFMAG) != 0) {
    return;
  }
  if (bytes[EI_CLASS] != ELFCLASS64) {
    fail(cannot_execute,
         absl::StrCat("'", path, "' is a 32-bit program; CUDA has none any more, and deepum-run is for 64 bits"));
  }
  Elf64_Ehdr header{};
  std::memcpy(&header, bytes.data(), sizeof header);
  bool has_loader = false;
  for (unsigned i = 0; i < header.e_phnum; ++i) {
    Elf64_Phdr segment{};
    file.seekg(static_cast<std::streamoff>(header.e_phoff + std::uint64_t{i} * header.e_phentsize));
    file.read(reinterpret_cast<char*>(&segment), sizeof segment);  // NOLINT: bytes of a file
    has_loader = has_loader || (file && segment.p_type == PT_INTERP);
  }
  if (!has_loader) {
    fail(cannot_execute, absl::StrCat("'", path, "' is linked statically, so that no library can be loaded into it"));
  }
}

/// The library that is loaded into the program: beside this one, or where it is installed.
std::string library() {
  std::error_code none;
  const std::filesystem::path folder = std::filesystem::read_symlink("/proc/self/exe", none).parent_path();
  for (const std::filesystem::path& file :
       {folder / "libdeepum_run.so", folder.parent_path() / "lib" / "libdeepum_run.so"}) {
    if (std::filesystem::exists(file, none)) {
      return file.string();
    }
  }
  fail(failed_itself,
       absl::StrCat("libdeepum_run.so is neither beside this program nor in ../lib; it is built with it"));
}

void set(const char* variable, const std::string& value) {
  if (!value.empty()) {
    ::setenv(variable, value.c_str(), 1);  // NOLINT(concurrency-mt-unsafe)
  }
}
/// The program may change its folder.
std::string from_here(const std::string& path) {
  return path.empty() ? path : std::filesystem::absolute(path).string();
}

/// Runs a program with this one's output, and waits for it. @returns  Its status as `waitpid` gives it.
int run_and_wait(const std::vector<std::string>& words) {
  std::vector<char*> arguments;
  for (const std::string& word : words) {
    arguments.push_back(const_cast<char*>(word.c_str()));  // NOLINT: as exec has it
  }
  arguments.push_back(nullptr);
  pid_t started = -1;
  int status = -1;
  if (::posix_spawnp(&started, arguments[0], nullptr, nullptr, arguments.data(), environ) == 0) {
    while (::waitpid(started, &status, 0) < 0 && errno == EINTR) {
    }
  }
  return status;
}
/// Draws the page of a run out of what the library has written.
void write_report(const std::string& page, const std::vector<std::string>& written) {
  std::vector<std::string> words{"python3", DEEPUM_REPORT_SCRIPT, "--out", page};
  for (const std::string& file : written) {
    if (::access(file.c_str(), R_OK) == 0) {
      words.push_back(file);
    }
  }
  if (words.size() == 4) {
    return;  // the program took no memory of a GPU, which is said anyway
  }
  ::unsetenv("LD_PRELOAD");  // NOLINT(concurrency-mt-unsafe)
  if (run_and_wait(words) != 0) {
    std::fprintf(stderr, "deepum-run: '%s' was not written; it needs python3 and %s\n", page.c_str(),
                 DEEPUM_REPORT_SCRIPT);
  }
}

/// The file in which the processes of this run know of each other; empty where none can be made.
std::string make_tree() {
  for (const char* const folder : {"/dev/shm", "/tmp"}) {
    const std::string path = absl::StrCat(folder, "/deepum-run-", ::getuid(), "-", ::getpid());
    (void)::unlink(path.c_str());  // of a process that had this number before
    if (deepum::interpose::process_tree::make(path)) {
      return path;
    }
  }
  return {};
}

pid_t child = -1;
void pass_on(int signal, siginfo_t* about, void* /*context*/) {
  if (child > 0 && about->si_code <= 0) {  // what comes from the terminal goes to both already
    (void)::kill(child, signal);
  }
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string> command =
      deepum_program::read_flags(argc, argv,
                                 "Runs a CUDA program with more memory than the GPU has: deepum-run --budget 8GiB -- "
                                 "./program arguments");
  if (command.empty()) {
    fail(failed_itself, "which program? deepum-run --budget 8GiB -- ./program arguments");
  }
  check_size("budget", absl::GetFlag(FLAGS_budget), true);
  check_size("capacity", absl::GetFlag(FLAGS_capacity), false);
  const std::string memory = absl::GetFlag(FLAGS_memory);
  if (memory == "paged" || memory == "mapped") {
    fail(failed_itself,
         "--memory paged needs programs that declare what their launches touch, which is not known here: use managed");
  }
  if (memory != "managed") {
    fail(failed_itself, absl::StrCat("--memory is '", memory, "': there is managed"));
  }
  const std::string policy = absl::GetFlag(FLAGS_policy);
  if (const auto names = deepum::policy_names();
      !policy.empty() && policy != "off" && std::find(names.begin(), names.end(), policy) == names.end()) {
    std::string all;
    for (const std::string_view name : names) {
      all += std::string(name) + ", ";
    }
    fail(failed_itself, absl::StrCat("--policy is '", policy, "': there are ", all, "and off"));
  }
  const std::string program = found_in_path(command.front());
  check_program(program);

  const std::string report = from_here(absl::GetFlag(FLAGS_report));
  std::string statistics = from_here(absl::GetFlag(FLAGS_statistics));
  std::string trace = from_here(absl::GetFlag(FLAGS_trace));
  std::vector<std::string> temporary;
  if (!report.empty()) {
    for (std::string* file : {&statistics, &trace}) {
      if (file->empty()) {
        *file = absl::StrCat(report, file == &trace ? ".trace" : ".statistics", ".json");
        temporary.push_back(*file);
      }
    }
  }

  const char* const before = std::getenv("LD_PRELOAD");  // NOLINT(concurrency-mt-unsafe)
  set("LD_PRELOAD", before == nullptr || *before == '\0' ? library() : library() + ":" + before);
  set("DEEPUM_BUDGET", absl::GetFlag(FLAGS_budget));
  set("DEEPUM_POLICY", policy);
  set("DEEPUM_STATISTICS", statistics);
  set("DEEPUM_TRACE", trace);
  set("DEEPUM_RUN_CAPACITY", absl::GetFlag(FLAGS_capacity));
  set("DEEPUM_RUN_TABLES", from_here(absl::GetFlag(FLAGS_tables)));
  set("DEEPUM_RUN_RECORD", from_here(absl::GetFlag(FLAGS_record)));

  if (std::getenv("DEEPUM_CHECK") != nullptr) {  // NOLINT(concurrency-mt-unsafe)
    ::unsetenv("DEEPUM_CHECK");                  // NOLINT(concurrency-mt-unsafe)
    std::fprintf(stderr, "deepum-run: DEEPUM_CHECK is ignored: programs that declare nothing declare nothing wrong\n");
  }
  const std::string tree = make_tree();
  set("DEEPUM_RUN_TREE", tree);

  std::vector<char*> arguments;
  for (const std::string& word : command) {
    arguments.push_back(const_cast<char*>(word.c_str()));  // NOLINT: as exec has it
  }
  arguments.push_back(nullptr);
  // What a terminal or a job scheduler sends to this program is for the other one.
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2}) {
    struct sigaction what {};
    what.sa_sigaction = pass_on;
    what.sa_flags = SA_SIGINFO;
    (void)::sigaction(signal, &what, nullptr);
  }
  if (const int failure = ::posix_spawn(&child, program.c_str(), nullptr, nullptr, arguments.data(), environ)) {
    (void)::unlink(tree.c_str());
    fail(cannot_execute, absl::StrCat("'", program, "' cannot be executed: ", std::strerror(failure)));  // NOLINT
  }
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  if (!tree.empty()) {
    if (deepum::interpose::process_tree(tree).joined() == 0) {
      std::fprintf(stderr, "deepum-run: no memory of a GPU was asked for by '%s' or what it has started\n",
                   program.c_str());
    }
    (void)::unlink(tree.c_str());
  }
  if (!report.empty()) {
    write_report(report, {trace, statistics});
    for (const std::string& file : temporary) {
      (void)::unlink(file.c_str());
    }
  }
  if (WIFSIGNALED(status)) {
    // Ends as the program has ended, without a core of its own.
    const rlimit none{};
    (void)::setrlimit(RLIMIT_CORE, &none);
    (void)std::signal(WTERMSIG(status), SIG_DFL);
    (void)::raise(WTERMSIG(status));
  }
  return WEXITSTATUS(status);
}
