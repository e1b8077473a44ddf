#pragma once

#include <deepum/core/block.hpp>
#include <deepum/core/launch.hpp>
#include <deepum/core/transfer.hpp>
#include <deepum/engine/device_event.hpp>
#include <deepum/units.hpp>

#include <nvtx3/nvToolsExt.h>

#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <unordered_map>
#include <utility>

namespace deepum {
inline namespace v0 {
namespace interop {

/// Shows in Nsight Systems, in the domain "deepum", what an arena does. Without a tool it costs nothing.
///
/// A launch is a range with its name, from its issue to when its end is noticed; a refused one is a mark, `refused
/// NAME`. Copies and other moves are marks at their end (`prefetch predicted`, `evict make_room`) with the bytes as
/// payload; a fault is a mark with the block, a stall one with its nanoseconds.
///
/// Threads: any. Outlives the arena.
///
///     deepum::interop::nvtx_marks marks;
///     deepum::arena arena{gpu, {.observer = marks.observer()}};
///     { auto step = marks.range("step"); s.launch(...); }
class nvtx_marks {
 public:
  using observer_type = std::function<void(const device_event&, launch_id)>;

  /// What marks and ranges are about: the categories of the domain.
  enum class category : std::uint32_t { launch = 1, to_device, to_host, fault, stall };

  /// A part of the program, on the thread that makes it and ends it. Launches inside belong to it on the GPU, too.
  class scoped_range {
   public:
    ~scoped_range() {
      if (domain_ != nullptr) {
        (void)nvtxDomainRangePop(domain_);
      }
    }
    scoped_range(const scoped_range&) = delete;
    scoped_range& operator=(const scoped_range&) = delete;

   private:
    friend class nvtx_marks;
    scoped_range(nvtxDomainHandle_t domain, const char* name) : domain_(domain) {
      if (domain_ != nullptr) {
        const nvtxEventAttributes_t a = attributes(category{}, name);
        (void)nvtxDomainRangePushEx(domain_, &a);
      }
    }
    nvtxDomainHandle_t domain_;
  };

  /// @errors  None.
  explicit nvtx_marks(const char* domain = "deepum") : domain_(nvtxDomainCreateA(domain)) {
    if (listened_to()) {
      nvtxDomainNameCategoryA(domain_, static_cast<std::uint32_t>(category::launch), "launch");
      nvtxDomainNameCategoryA(domain_, static_cast<std::uint32_t>(category::to_device), "to device");
      nvtxDomainNameCategoryA(domain_, static_cast<std::uint32_t>(category::to_host), "to host");
      nvtxDomainNameCategoryA(domain_, static_cast<std::uint32_t>(category::fault), "fault");
      nvtxDomainNameCategoryA(domain_, static_cast<std::uint32_t>(category::stall), "stall");
    }
  }
  ~nvtx_marks() {
    for (const auto& [launch, open] : open_) {
      nvtxDomainRangeEnd(domain_, open.range);
    }
    if (listened_to()) {
      nvtxDomainDestroy(domain_);
    }
  }
  nvtx_marks(const nvtx_marks&) = delete;
  nvtx_marks& operator=(const nvtx_marks&) = delete;

  /// Whether a tool was attached when this was made. Tools attach before a program begins.
  [[nodiscard]] bool listened_to() const { return domain_ != nullptr; }

  /// What `arena_options::observer` takes. One object observes one arena.
  /// @param next  Is called too, a `trace::observer()` for example.
  /// @returns     `next` itself where no tool is attached.
  [[nodiscard]] observer_type observer(observer_type next = {}) {
    if (!listened_to()) {
      return next;
    }
    return [this, next = std::move(next)](const device_event& e, launch_id launch) {
      see(e, launch);
      if (next) {
        next(e, launch);
      }
    };
  }

  /// Takes an event, for programs whose observer does more than that. Cost with a tool: that of the tool and of a few
  /// allocations.
  void see(const device_event& e, launch_id launch) {
    if (!listened_to()) {
      return;
    }
    using kind = device_event::kind;
    switch (e.what) {
      case kind::launch_issued:
        begin(launch, e.record->name);
        break;
      case kind::launch_released:
        stall(launch, e.at - e.began);
        break;
      case kind::launch_refused:
        refuse(launch);
        break;
      case kind::launch_finished:
        stall(e.launch, e.stalled);
        end(e.launch);
        break;
      case kind::fault:
        mark(category::fault, e.mode == access::read ? "fault read" : "fault write", e.range.begin_value());
        break;
      case kind::arrived:
        mark_move(category::to_device, word_of(e), e);
        break;
      case kind::departed:
        mark_move(category::to_host, word_of(e), e);
        break;
      case kind::completed:  // blocks have had marks of their own, but for those that stay
        if (e.did.cleans()) {
          mark_move(category::to_host, word_of(e), e);
        }
        break;
      case kind::copied:  // its arrival has had a mark
      case kind::died:
      case kind::reachable:
      case kind::unreachable:
        break;
      case kind::failed:
        mark_move(e.did.takes_room() ? category::to_device : category::to_host, "failed " + word_of(e), e);
        break;
    }
  }

  /// Names what this thread does until the range ends.
  [[nodiscard]] scoped_range range(const char* name) const { return {domain_, name}; }

 private:
  struct open_launch {
    nvtxRangeId_t range = 0;
    std::string name{};
  };

  static std::string word_of(const device_event& e) {
    return e.ticket != 0 ? std::string(to_string(e.did)) : "migrate";
  }
  static nvtxEventAttributes_t attributes(category c, const char* message) {
    nvtxEventAttributes_t a{};
    a.version = NVTX_VERSION;
    a.size = NVTX_EVENT_ATTRIB_STRUCT_SIZE;
    a.category = static_cast<std::uint32_t>(c);
    a.messageType = NVTX_MESSAGE_TYPE_ASCII;
    a.message.ascii = message;
    return a;
  }
  void mark(category c, const std::string& message, std::uint64_t payload) const {
    nvtxEventAttributes_t a = attributes(c, message.c_str());
    a.payloadType = NVTX_PAYLOAD_TYPE_UNSIGNED_INT64;
    a.payload.ullValue = payload;
    nvtxDomainMarkEx(domain_, &a);
  }
  void mark_move(category c, std::string what, const device_event& e) const {
    what += ' ';
    what += to_string(e.why);
    mark(c, what, (e.block * e.range.count).count);
  }

  void begin(launch_id launch, const std::string& name) {
    nvtxEventAttributes_t a = attributes(category::launch, name.c_str());
    a.payloadType = NVTX_PAYLOAD_TYPE_UNSIGNED_INT64;
    a.payload.ullValue = launch.value;
    const std::lock_guard lock(mutex_);
    open_[launch.value] = {nvtxDomainRangeStartEx(domain_, &a), name};
  }
  void refuse(launch_id launch) {
    const std::lock_guard lock(mutex_);
    if (const auto found = open_.find(launch.value); found != open_.end()) {
      mark(category::launch, "refused " + found->second.name, launch.value);
      nvtxDomainRangeEnd(domain_, found->second.range);
      open_.erase(found);
    }
  }
  void end(launch_id launch) {
    const std::lock_guard lock(mutex_);
    if (const auto found = open_.find(launch.value); found != open_.end()) {
      nvtxDomainRangeEnd(domain_, found->second.range);
      open_.erase(found);
    }
  }
  void stall(launch_id launch, nanoseconds how_long) {
    if (how_long <= nanoseconds{}) {
      return;
    }
    const std::lock_guard lock(mutex_);
    const auto found = open_.find(launch.value);
    mark(category::stall, "stall " + (found != open_.end() ? found->second.name : std::string("of a launch")),
         static_cast<std::uint64_t>(how_long.count()));
  }

  nvtxDomainHandle_t domain_;
  std::mutex mutex_;
  std::unordered_map<std::uint64_t, open_launch> open_{};
};

}  // namespace interop
}  // namespace v0
}  // namespace deepum
