#include "session.hpp"

#include "driver.hpp"
#include "thread_owned.hpp"
#include <deepum/core/block.hpp>
#include <deepum/core/size_text.hpp>
#include <deepum/cuda/managed_limit.hpp>
#include <deepum/environment.hpp>
#include <deepum/error.hpp>
#include <deepum/metrics.hpp>
#include <deepum/units.hpp>

#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <fstream>
#include <functional>
#include <optional>
#include <set>
#include <sstream>
#include <utility>

namespace deepum_run {

using deepum::bytes;

namespace {

constexpr std::size_t most_devices = 64;

/// What the process has. Never destroyed: functions of the driver are called until the very end.
struct process_state {
  std::mutex opening;
  std::array<std::atomic<session*>, most_devices> sessions{};
  std::atomic<bool> any{false};
  std::atomic<bool> over{false};  // the process ends, or is a fork of one that has sessions
  std::atomic<bool> unseen{false};
  std::atomic<bool> captured{false};
  std::mutex said_mutex;
  std::set<std::string> said;
};
process_state& process() {
  static auto* const one = new process_state;
  return *one;
}

const char* from_environment(const char* name) {
  const char* const text = std::getenv(name);
  return text == nullptr || *text == '\0' ? nullptr : text;
}

/// The processes of this deepum-run.
deepum::interpose::process_tree& tree() {
  static auto* const one = new deepum::interpose::process_tree([] {
    const char* const path = from_environment("DEEPUM_RUN_TREE");
    return std::string(path == nullptr ? "" : path);
  }());
  return *one;
}
/// A number for a device that is the same in processes that count devices differently.
std::uint64_t key_of(CUdevice device) {
  using bus_id = CUresult (*)(char*, int, CUdevice);
  char text[64] = {};
  const auto ask = reinterpret_cast<bus_id>(driver_symbol("cuDeviceGetPCIBusId"));
  if (ask == nullptr || ask(text, sizeof text, device) != CUDA_SUCCESS) {
    return static_cast<std::uint64_t>(device);
  }
  return std::hash<std::string>()(text);
}

/// What the host has to spare.
bytes host_memory() {
  std::ifstream file("/proc/meminfo");
  std::string line;
  while (std::getline(file, line)) {
    std::uint64_t kib = 0;
    if (std::sscanf(line.c_str(), "MemAvailable: %lu kB", &kib) == 1) {
      return bytes{kib << 10U};
    }
  }
  return bytes{static_cast<std::uint64_t>(std::max(::sysconf(_SC_AVPHYS_PAGES), 0L)) *
               static_cast<std::uint64_t>(std::max(::sysconf(_SC_PAGESIZE), 0L))};
}

std::string readable(bytes size) {
  const bool large = size.count >= std::uint64_t{1} << 30U;
  char text[32];
  std::snprintf(text, sizeof text, large ? "%.2f GiB" : "%.1f MiB",
                static_cast<double>(size.count) / (large ? 1ULL << 30U : 1ULL << 20U));
  return text;
}

/// The thread's context, whatever is done in between.
class kept_context {
 public:
  kept_context() { (void)driver().cuCtxGetCurrent(&before_); }
  ~kept_context() { (void)driver().cuCtxSetCurrent(before_); }
  kept_context(const kept_context&) = delete;
  kept_context& operator=(const kept_context&) = delete;

 private:
  CUcontext before_ = nullptr;
};

void end_process() {
  process_state& p = process();
  if (p.over.exchange(true)) {
    return;  // a fork's child: what there is belongs to the parent
  }
  for (std::atomic<session*>& s : p.sessions) {
    if (session* const open = s.load()) {
      open->finish(true);
    }
  }
}

/// What lies at `path` is replaced.
void write_file(const char* path, const std::string& text) {
  std::ofstream file(path, std::ios::binary);
  file << text;
  file.close();
  if (!file) {
    say("cannot write '" + std::string(path) + "'");
  }
}

}  // namespace

void say(const std::string& line) {
  const std::string text = "deepum-run: " + line + "\n";
  (void)!::write(STDERR_FILENO, text.data(), text.size());
}
void say_once(const char* line) {
  process_state& p = process();
  const std::lock_guard lock(p.said_mutex);
  if (p.said.size() < 100 && p.said.insert(line).second) {
    say(line);
  }
}

// --- A device ---

session::session(CUdevice device)
    : device_(device),
      steps_(from_environment("DEEPUM_RUN_RECORD") != nullptr),
      gpu_(device),
      device_key_(key_of(device)),
      place_(deepum::interpose::process_tree::most_members),
      arena_(gpu_, options(gpu_)),
      memory_(capacity_) {
  place_ = tree().join(::getpid(), device_key_, capacity_);
  share_budget();
  if (driver().cuDevicePrimaryCtxRetain(&context_, device) != CUDA_SUCCESS) {
    context_ = nullptr;
  }
}

session::~session() { tree().leave(place_); }

void session::share_budget() {
  const std::uint32_t users = std::max(1U, tree().users_of(device_key_).count);
  if (tree_budget_.count == 0 || sharing_.exchange(users) == users) {
    return;
  }
  arena_.set_budget(std::max(deepum::block_size, deepum::block_size * (tree_budget_ / (deepum::block_size * users))));
}

deepum::arena_options session::options(const deepum::cuda::device& gpu) {
  deepum::arena_options made;
  const bytes device_memory = gpu.properties().memory;
  bytes budget = deepum::detail::environment::budget(device_memory, deepum::block_size, {}).value_or(bytes{});
  tree_budget_ = budget;
  if (budget.count == 0) {
    std::size_t free = 0;
    std::size_t total = 0;
    deepum::cuda::check(cudaMemGetInfo(&free, &total), "cudaMemGetInfo");
    budget = bytes{free} - std::min(bytes{free}, made.headroom);
  }
  bytes wanted{};
  if (const char* const text = from_environment("DEEPUM_RUN_CAPACITY")) {
    wanted = deepum::try_parse_size(text).value_or(bytes{});
    if (wanted < deepum::block_size) {
      say_once(("DEEPUM_RUN_CAPACITY is '" + std::string(text) +
                "' and not used: give bytes or a number with KiB, MiB or GiB, at least 2MiB")
                   .c_str());
      wanted = {};
    }
  }
  // Both are for all processes of the tree together.
  const bytes others = tree().memory();
  std::optional<bytes> limit = deepum::cuda::managed_limit::left();
  if (wanted.count != 0) {
    limit = std::min(limit.value_or(wanted), wanted);
  }
  if (limit) {
    limit = *limit - std::min(*limit, others);
  }
  capacity_ = deepum::interpose::capacity_of(budget, host_memory(), limit, deepum::block_size);
  if (capacity_.count == 0) {
    throw deepum::error(
        deepum::status::out_of_arena_space,
        "no memory for the program: --capacity, DEEPUM_MANAGED_LIMIT and what other processes under the "
        "same deepum-run have taken leave less than a block of 2 MiB");
  }
  if (budget > capacity_) {
    say_once(("the program finds " + readable(capacity_) + " in all, which is less than the budget of " +
              readable(budget) + ": all of it fits")
                 .c_str());
  }
  made.capacity = capacity_;
  if (const char* const tables = from_environment("DEEPUM_RUN_TABLES")) {
    made.tables = tables;
  }
  made.observer = [this](const deepum::device_event& e, deepum::launch_id) {
    steps_.see(e, std::chrono::steady_clock::now().time_since_epoch());
  };
  return made;
}

namespace {

/// Streams that mean another one on each thread: this thread's.
struct thread_streams {
  std::map<session*, std::unique_ptr<adopted_stream>> of;
  ~thread_streams() {
    for (auto& [owner, stream] : of) {
      // The process ends with its first thread: it does not wait for what is in flight. Nor is there anything to be
      // waited for where the session has ended.
      if (process().over.load() || ::gettid() == ::getpid() ||
          process().sessions[static_cast<std::size_t>(owner->device())].load() != owner) {
        (void)stream.release();  // NOLINT(bugprone-unused-return-value)
      }
    }
  }
};

}  // namespace

adopted_stream& session::adopted(CUstream native, default_stream kind) {
  native = meant(native, kind);
  if (native == CU_STREAM_PER_THREAD) {
    std::unique_ptr<adopted_stream>& mine = of_this_thread<thread_streams>().of[this];
    if (!mine) {
      mine = std::make_unique<adopted_stream>(arena_, native);
    }
    return *mine;
  }
  {
    const std::shared_lock lock(mutex_);
    if (const auto it = streams_.find(native); it != streams_.end()) {
      return *it->second;
    }
  }
  const std::unique_lock lock(mutex_);
  std::unique_ptr<adopted_stream>& made = streams_[native];
  if (!made) {
    try {
      made = std::make_unique<adopted_stream>(arena_, native);
    } catch (...) {
      streams_.erase(native);
      throw;
    }
  }
  return *made;
}

void session::forget(CUstream native) {
  std::unique_ptr<adopted_stream> gone;
  {
    const std::unique_lock lock(mutex_);
    if (const auto it = streams_.find(native); it != streams_.end()) {
      gone = std::move(it->second);
      streams_.erase(it);
    }
  }
}

void session::end_streams() {
  of_this_thread<thread_streams>().of.erase(this);
  const std::unique_lock lock(mutex_);
  streams_.clear();
}

void session::finish(bool line) noexcept {
  try {
    const bytes peak = memory_.peak();
    const bytes budget = arena_.budget();
    const deepum::statistics last = arena_.statistics();
    if (const char* const tables = from_environment("DEEPUM_RUN_TABLES")) {
      arena_.save_tables(tables);
    }
    if (const char* const path = from_environment("DEEPUM_RUN_RECORD")) {
      if (const std::optional<std::string> step = steps_.workload("deepum-run")) {
        write_file(path, *step);
      } else {
        say("--record: no step recurs, so nothing was written");
      }
    }
    arena_.finish();
    tree().leave(place_);
    place_ = deepum::interpose::process_tree::most_members;
    if (line) {
      std::ostringstream text;
      const bytes more = peak - std::min(peak, budget);
      text << readable(peak) << " at most, of which " << readable(more) << " did not fit the budget of "
           << readable(budget) << "; " << last.launches << " launches, ";
      if (const std::optional<deepum::nanoseconds> step = steps_.step_time()) {
        text << "a step of " << steps_.period() << " takes " << static_cast<double>(step->count() / 1000) / 1e3
             << " ms; ";
      } else {
        text << "no step recurs; ";
      }
      text << last.faults << " faults, " << readable(bytes{last.in().all_bytes()}) << " in, "
           << readable(bytes{last.out().all_bytes()}) << " out; policy " << arena_.policy_name();
      say(text.str());
    }
  } catch (const std::exception& e) {
    say(e.what());
  }
}

// --- The process ---

session* current_session() {
  process_state& p = process();
  if (!p.any.load(std::memory_order_acquire) || p.over.load(std::memory_order_relaxed)) {
    return nullptr;
  }
  CUcontext now = nullptr;
  if (driver().cuCtxGetCurrent(&now) != CUDA_SUCCESS || now == nullptr) {
    return nullptr;
  }
  for (std::atomic<session*>& each : p.sessions) {
    session* const s = each.load(std::memory_order_acquire);
    if (s != nullptr && s->context() == now) {
      return s;
    }
  }
  note_unseen_work("the program uses a context that it has made itself");
  return nullptr;
}

session* open_session(CUresult& failure) {
  process_state& p = process();
  CUdevice device = 0;
  failure = driver().cuCtxGetDevice(&device);
  if (failure != CUDA_SUCCESS) {
    return nullptr;
  }
  failure = CUDA_ERROR_NOT_SUPPORTED;
  if (static_cast<std::size_t>(device) >= most_devices || p.over.load()) {
    return nullptr;
  }
  std::atomic<session*>& slot = p.sessions[static_cast<std::size_t>(device)];
  if (session* const s = slot.load(std::memory_order_acquire)) {
    return s;
  }
  const std::lock_guard lock(p.opening);
  if (session* const s = slot.load(std::memory_order_acquire)) {
    return s;
  }
  CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
  (void)driver().cuThreadExchangeStreamCaptureMode(&mode);
  session* made = nullptr;
  try {
    const kept_context keep;
    made = new session(device);
  } catch (const std::exception& e) {
    say_once(("device " + std::to_string(device) + ": " + e.what() + "; the program gets no memory").c_str());
  }
  (void)driver().cuThreadExchangeStreamCaptureMode(&mode);
  if (made == nullptr) {
    return nullptr;
  }
  slot.store(made, std::memory_order_release);
  if (!p.any.exchange(true)) {
    // Behind the driver's own, so that it runs before that.
    std::atexit(end_process);
    pthread_atfork(nullptr, nullptr, [] { process().over.store(true); });
  }
  return made;
}

session* session_on(CUdevice device) {
  return device < 0 || static_cast<std::size_t>(device) >= most_devices
             ? nullptr
             : process().sessions[static_cast<std::size_t>(device)].load(std::memory_order_acquire);
}

session* session_of(std::uint64_t address) {
  process_state& p = process();
  if (!p.any.load(std::memory_order_acquire)) {
    return nullptr;
  }
  for (std::atomic<session*>& each : p.sessions) {
    session* const s = each.load(std::memory_order_acquire);
    if (s != nullptr && s->contains(address)) {
      return s;
    }
  }
  return nullptr;
}

void close_session(CUdevice device) {
  process_state& p = process();
  if (static_cast<std::size_t>(device) >= most_devices || p.over.load()) {
    return;
  }
  const std::lock_guard lock(p.opening);
  session* const s = p.sessions[static_cast<std::size_t>(device)].exchange(nullptr);
  if (s == nullptr) {
    return;
  }
  const kept_context keep;
  s->end_streams();
  s->finish(true);
  delete s;
}

bool process_is_over() { return process().over.load(); }

void note_unseen_work(const char* why) {
  if (!process().unseen.exchange(true, std::memory_order_relaxed)) {
    say_once((std::string(why) +
              ": what is put into streams there is not seen, so that from now on each free waits for the device")
                 .c_str());
  }
}
bool unseen_work() { return process().unseen.load(std::memory_order_relaxed); }
bool captures_seen() { return process().captured.load(std::memory_order_relaxed); }
void note_capture() { process().captured.store(true, std::memory_order_relaxed); }

bool capturing(CUstream stream, default_stream kind) {
  if (!process().captured.load(std::memory_order_relaxed)) {
    return false;
  }
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  const CUresult result = driver().cuStreamIsCapturing(meant(stream, kind), &status);
  return result != CUDA_SUCCESS || status != CU_STREAM_CAPTURE_STATUS_NONE;
}

}  // namespace deepum_run
