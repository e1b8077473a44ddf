#pragma once

/// @file
/// The functions of <deepum/deepum.h>. Include it in one source file of a program; the CMake target `deepum::c` does.

#include <deepum/c/failures.hpp>
#include <deepum/c/handles.hpp>
#include <deepum/metrics.hpp>

#include <algorithm>
#include <cstring>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace deepum {
inline namespace v0 {
namespace detail {

[[nodiscard]] inline access access_of(deepum_access mode) {
  switch (mode) {
    case DEEPUM_READ:
      return access::read;
    case DEEPUM_UPDATE:
      return access::update;
    case DEEPUM_OVERWRITE:
      return access::overwrite;
  }
  throw error(status::invalid_argument, "access " + std::to_string(static_cast<int>(mode)) +
                                            " is none of DEEPUM_READ, DEEPUM_UPDATE and DEEPUM_OVERWRITE");
}

[[nodiscard]] inline std::vector<operand> operands_of(const char* name, const deepum_operand* first, std::size_t n) {
  if (n != 0) {
    wanted(first, name, "operands");
  }
  std::vector<operand> all;
  all.reserve(n);
  for (std::size_t i = 0; i < n; ++i) {
    const deepum_operand& o = first[i];
    if (o.mode == DEEPUM_OVERWRITE && o.size == DEEPUM_WHOLE) {
      throw error(status::invalid_argument,
                  std::string(name) + ": operand " + std::to_string(i) +
                      " is overwritten without a size: its allocation may hold more than the launch writes");
    }
    all.push_back({o.p, o.size == DEEPUM_WHOLE ? operand::whole : bytes{o.size}, access_of(o.mode)});
  }
  return all;
}

[[nodiscard]] inline std::unique_ptr<deepum_arena> make_c_arena(const deepum_arena_options& chosen) {
  if (chosen.size != sizeof(deepum_arena_options)) {
    throw error(status::invalid_argument,
                "deepum_arena_options.size is " + std::to_string(chosen.size) + " and not " +
                    std::to_string(sizeof(deepum_arena_options)) +
                    ": begin with DEEPUM_DEFAULT_OPTIONS, and compile with the header of the library that is linked");
  }
  arena_options options;
  options.capacity = bytes{chosen.capacity};
  options.device_budget = bytes{chosen.budget};
  options.policy = chosen.policy != nullptr ? chosen.policy : options.policy;
  options.tables = chosen.tables != nullptr ? chosen.tables : "";
  options.zero_new = chosen.zero_new != 0;
  options.checked = chosen.checked != 0;
  if (chosen.log != nullptr) {
    options.log = [log = chosen.log, user = chosen.log_user](std::string_view line) {
      log(std::string(line).c_str(), user);
    };
  }
  switch (chosen.memory) {
    case DEEPUM_MANAGED:
      return std::make_unique<c_arena<cuda::managed_memory>>(chosen.device, std::move(options));
    case DEEPUM_PAGED:
      return std::make_unique<c_arena<cuda::paged_memory>>(chosen.device, std::move(options));
  }
  throw error(status::invalid_argument, "deepum_arena_options.memory is neither DEEPUM_MANAGED nor DEEPUM_PAGED");
}

/// The arenas that are there. What a program leaves behind when it ends is finished then: its threads, and its reports.
class c_arenas {
 public:
  [[nodiscard]] static c_arenas& all() {
    static c_arenas of_process;
    return of_process;
  }
  c_arenas() = default;
  c_arenas(const c_arenas&) = delete;
  c_arenas& operator=(const c_arenas&) = delete;
  ~c_arenas() {
    const std::lock_guard lock(mutex_);
    for (deepum_arena* const each : alive_) {
      (void)as_status([&] { each->finish(); });
    }
  }
  [[nodiscard]] deepum_arena* add(std::unique_ptr<deepum_arena> made) {
    const std::lock_guard lock(mutex_);
    alive_.push_back(made.get());
    return made.release();
  }
  void remove(const deepum_arena* ended) {
    const std::lock_guard lock(mutex_);
    std::erase(alive_, ended);
  }

 private:
  std::mutex mutex_;
  std::vector<deepum_arena*> alive_;
};

/// A kernel with its arguments, for `deepum_call`.
struct c_kernel {
  const void* function = nullptr;
  dim3 grid{};
  dim3 block{};
  void** arguments = nullptr;
  std::size_t shared = 0;

  static int enqueue(cudaStream_t queue, void* user) {
    const c_kernel& k = *static_cast<const c_kernel*>(user);
    cuda::check(cudaLaunchKernel(k.function, k.grid, k.block, k.arguments, k.shared, queue), "cudaLaunchKernel");
    return 0;
  }
};

}  // namespace detail
}  // namespace v0
}  // namespace deepum

extern "C" {

const char* deepum_last_error(void) { return deepum::detail::last_c_failure().message.c_str(); }
int deepum_last_native_error(void) { return deepum::detail::last_c_failure().native; }

deepum_status deepum_arena_create(const deepum_arena_options* options, deepum_arena** made) {
  return deepum::detail::as_status([&] {
    deepum::detail::wanted(made, "deepum_arena_create", "made");
    *made = nullptr;
    constexpr deepum_arena_options defaults = DEEPUM_DEFAULT_OPTIONS;
    *made = deepum::detail::c_arenas::all().add(deepum::detail::make_c_arena(options != nullptr ? *options : defaults));
  });
}
deepum_status deepum_arena_destroy(deepum_arena* arena) {
  return deepum::detail::as_status([&] {
    if (arena != nullptr && arena->has_streams()) {
      throw deepum::error(deepum::status::invalid_argument,
                          "an arena is destroyed before its streams: call deepum_stream_destroy for each first");
    }
    deepum::detail::c_arenas::all().remove(arena);
    delete arena;
  });
}

deepum_status deepum_malloc(deepum_arena* arena, void** p, uint64_t size) {
  return deepum::detail::as_status([&] {
    deepum::detail::wanted(arena, "deepum_malloc", "arena");
    deepum::detail::wanted(p, "deepum_malloc", "p");
    *p = nullptr;
    *p = size != 0 ? arena->allocate(deepum::bytes{size}) : nullptr;
  });
}
deepum_status deepum_free(deepum_arena* arena, void* p) {
  return deepum::detail::as_status([&] {
    deepum::detail::wanted(arena, "deepum_free", "arena");
    arena->deallocate(p);
  });
}
deepum_status deepum_name_part(deepum_arena* arena, const void* p, uint64_t size) {
  return deepum::detail::as_status([&] {
    deepum::detail::wanted(arena, "deepum_name_part", "arena");
    arena->name_part(p, deepum::bytes{size});
  });
}

deepum_status deepum_prefetch(deepum_arena* arena, const void* p, uint64_t size, int to_device) {
  return deepum::detail::as_status([&] {
    deepum::detail::wanted(arena, "deepum_prefetch", "arena");
    arena->prefetch(p, deepum::bytes{size}, to_device != 0 ? deepum::location::device() : deepum::location::host());
  });
}
deepum_status deepum_mark_inactive(deepum_arena* arena, const void* p, uint64_t size) {
  return deepum::detail::as_status([&] {
    deepum::detail::wanted(arena, "deepum_mark_inactive", "arena");
    arena->mark_inactive(p, deepum::bytes{size});
  });
}
deepum_status deepum_mark_active(deepum_arena* arena, const void* p, uint64_t size) {
  return deepum::detail::as_status([&] {
    deepum::detail::wanted(arena, "deepum_mark_active", "arena");
    arena->mark_active(p, deepum::bytes{size});
  });
}
deepum_status deepum_host_begin(deepum_arena* arena, void* p, uint64_t size, deepum_access mode, void** host) {
  return deepum::detail::as_status([&] {
    deepum::detail::wanted(arena, "deepum_host_begin", "arena");
    deepum::detail::wanted(host, "deepum_host_begin", "host");
    *host = nullptr;
    *host = arena->begin_host_access(p, deepum::bytes{size}, deepum::detail::access_of(mode));
  });
}
deepum_status deepum_host_end(deepum_arena* arena, void* p, uint64_t size, deepum_access mode) {
  return deepum::detail::as_status([&] {
    deepum::detail::wanted(arena, "deepum_host_end", "arena");
    arena->end_host_access(p, deepum::bytes{size}, deepum::detail::access_of(mode));
  });
}

uint64_t deepum_budget(const deepum_arena* arena) { return arena != nullptr ? arena->budget().count : 0; }
deepum_status deepum_set_budget(deepum_arena* arena, uint64_t budget) {
  return deepum::detail::as_status([&] {
    deepum::detail::wanted(arena, "deepum_set_budget", "arena");
    arena->set_budget(deepum::bytes{budget});
  });
}
deepum_status deepum_statistics_json(deepum_arena* arena, char* text, size_t size, size_t* needed) {
  return deepum::detail::as_status([&] {
    deepum::detail::wanted(arena, "deepum_statistics_json", "arena");
    if (size != 0) {
      deepum::detail::wanted(text, "deepum_statistics_json", "text");
    }
    const std::string json = deepum::to_json(arena->statistics());
    if (needed != nullptr) {
      *needed = json.size() + 1;
    }
    if (size != 0) {
      const std::size_t n = std::min(json.size(), size - 1);
      std::memcpy(text, json.data(), n);
      text[n] = '\0';
    }
  });
}
deepum_status deepum_save_tables(deepum_arena* arena, const char* path) {
  return deepum::detail::as_status([&] {
    deepum::detail::wanted(arena, "deepum_save_tables", "arena");
    deepum::detail::wanted(path, "deepum_save_tables", "path");
    arena->save_tables(path);
  });
}

deepum_status deepum_stream_create(deepum_arena* arena, cudaStream_t existing, deepum_stream** made) {
  return deepum::detail::as_status([&] {
    deepum::detail::wanted(arena, "deepum_stream_create", "arena");
    deepum::detail::wanted(made, "deepum_stream_create", "made");
    *made = nullptr;
    *made = arena->open_stream(existing).release();
  });
}
deepum_status deepum_stream_destroy(deepum_stream* stream) {
  return deepum::detail::as_status([&] { delete stream; });
}
deepum_status deepum_synchronize(deepum_stream* stream) {
  return deepum::detail::as_status([&] {
    deepum::detail::wanted(stream, "deepum_synchronize", "stream");
    stream->synchronize();
  });
}
cudaStream_t deepum_native(const deepum_stream* stream) { return stream != nullptr ? stream->native() : nullptr; }

deepum_status deepum_call(deepum_stream* stream, const char* name, const deepum_operand* operands, size_t n,
                          deepum_enqueue enqueue, void* user) {
  return deepum::detail::as_status([&] {
    deepum::detail::wanted(stream, "deepum_call", "stream");
    deepum::detail::wanted(name, "deepum_call", "name");
    deepum::detail::wanted(reinterpret_cast<const void*>(enqueue), name, "enqueue");
    const std::vector<deepum::operand> all = deepum::detail::operands_of(name, operands, n);
    stream->call(name, all, enqueue, user);
  });
}
deepum_status deepum_launch(deepum_stream* stream, const char* name, const deepum_operand* operands, size_t n,
                            const void* kernel, dim3 grid, dim3 block, void** arguments, size_t shared) {
  return deepum::detail::as_status([&] {
    deepum::detail::wanted(stream, "deepum_launch", "stream");
    deepum::detail::wanted(name, "deepum_launch", "name");
    deepum::detail::wanted(kernel, name, "kernel");
    const std::vector<deepum::operand> all = deepum::detail::operands_of(name, operands, n);
    deepum::detail::c_kernel launched{kernel, grid, block, arguments, shared};
    stream->call(name, all, &deepum::detail::c_kernel::enqueue, &launched);
  });
}
deepum_status deepum_memcpy(deepum_stream* stream, void* to, const void* from, uint64_t size) {
  return deepum::detail::as_status([&] {
    deepum::detail::wanted(stream, "deepum_memcpy", "stream");
    stream->memcpy(to, from, deepum::bytes{size}, false);
  });
}
deepum_status deepum_memcpy_and_wait(deepum_stream* stream, void* to, const void* from, uint64_t size) {
  return deepum::detail::as_status([&] {
    deepum::detail::wanted(stream, "deepum_memcpy_and_wait", "stream");
    stream->memcpy(to, from, deepum::bytes{size}, true);
  });
}
deepum_status deepum_memset(deepum_stream* stream, void* to, int value, uint64_t size) {
  return deepum::detail::as_status([&] {
    deepum::detail::wanted(stream, "deepum_memset", "stream");
    stream->memset(to, value, deepum::bytes{size});
  });
}

}  // extern "C"
