// Launches of kernels and graphs, with the operands that their arguments name.

#include "copy_sides.hpp"
#include "driver.hpp"
#include "session.hpp"
#include "thread_owned.hpp"
#include <deepum/interpose/copy_extent.hpp>
#include <deepum/interpose/operand_scan.hpp>

#include <array>
#include <atomic>
#include <cstddef>
#include <mutex>
#include <optional>
#include <unordered_map>
#include <vector>

namespace deepum_run {

using deepum::access;
using deepum::bytes;
using deepum::operand;
using deepum::interpose::kernel_description;
using deepum::interpose::kernel_parameter;
using deepum::interpose::operand_scan;

namespace {

/// Arguments in one buffer.
struct packed_arguments {
  const std::byte* first = nullptr;
  std::size_t size = 0;
};
packed_arguments packed(void** extra) {
  packed_arguments found;
  for (void** e = extra; e != nullptr && *e != CU_LAUNCH_PARAM_END; e += 2) {
    if (*e == CU_LAUNCH_PARAM_BUFFER_POINTER) {
      found.first = static_cast<const std::byte*>(e[1]);
    } else if (*e == CU_LAUNCH_PARAM_BUFFER_SIZE) {
      found.size = *static_cast<const std::size_t*>(e[1]);
    }
  }
  return found;
}

/// What the arguments of a launch name in an arena.
void scan(operand_scan& into, const arena_type& arena, const kernel_description& kernel, void** parameters,
          void** extra) {
  const auto offset_of = [&arena](const void* p) { return arena.offset_of(p); };
  if (parameters != nullptr) {
    into.scan(
        kernel, [&](std::size_t i, const kernel_parameter&) { return parameters[i]; }, offset_of);
    return;
  }
  const packed_arguments all = packed(extra);
  if (all.first != nullptr && !kernel.layout_known) {
    into.begin(kernel.symbol);
    into.add(all.first, {0, static_cast<std::uint32_t>(all.size), false}, offset_of);
    return;
  }
  into.scan(
      kernel,
      [&](std::size_t, const kernel_parameter& p) -> const void* {
        return all.first != nullptr && p.offset + std::size_t{p.size} <= all.size ? all.first + p.offset : nullptr;
      },
      offset_of);
}

std::atomic<std::uint64_t> cuts_epoch{0};

/// Addresses that launches are given are where the program's own objects begin in a large allocation. Those that were
/// seen lately are not looked at again.
void cut_at(arena_type& arena, std::span<const operand> operands) {
  constexpr std::size_t remembered = 1024;
  thread_local std::array<const void*, remembered> lately{};
  thread_local std::uint64_t since = 0;
  if (const std::uint64_t now = cuts_epoch.load(std::memory_order_relaxed); now != since) {
    since = now;
    lately.fill(nullptr);
  }
  for (const operand& o : operands) {
    const auto hash = reinterpret_cast<std::uintptr_t>(o.address) * 0x9E3779B97F4A7C15ULL >> 54U;
    const void*& last = lately[hash % remembered];
    if (last != o.address) {
      last = o.address;
      arena.cut(o.address);
    }
  }
}

/// How many threads a launch has.
using launch_grid = std::array<unsigned, 6>;

template <class Real>
CUresult launched(CUfunction kernel, const launch_grid& grid, CUstream stream, default_stream kind, void** parameters,
                  void** extra, Real&& real) {
  session* const s = current_session();
  if (s == nullptr || capturing(stream, kind)) {
    return real();
  }
  s->share_budget_sometimes();
  operand_scan& found = of_this_thread<operand_scan>();
  const std::shared_ptr<const kernel_description> known = described(kernel);
  scan(found, s->arena(), *known, parameters, extra);
  found.add_shape(grid.data(), sizeof grid);
  cut_at(s->arena(), found.operands());
  return launch_as(
      *s, stream, kind, known->name, [&] { return found.signature(); }, found.operands(), false,
      std::forward<Real>(real));
}

// --- Graphs ---

/// What the nodes of a graph use, of an arena.
struct graph_uses {
  std::vector<operand> operands{};
  deepum::signature_builder signature{"graph"};
};

void add_kernel(graph_uses& uses, const arena_type& arena, const CUDA_KERNEL_NODE_PARAMS_v2& p) {
  CUfunction kernel = p.func;
  if (kernel == nullptr) {
    kernel = reinterpret_cast<CUfunction>(p.kern);
  }
  if (kernel == nullptr) {
    return;
  }
  operand_scan found;
  scan(found, arena, *described(kernel), p.kernelParams, p.extra);
  const deepum::launch_signature signature = found.signature();
  uses.signature.scalar(&signature.exact, sizeof signature.exact);
  uses.operands.insert(uses.operands.end(), found.operands().begin(), found.operands().end());
}
void add_node(graph_uses& uses, const arena_type& arena, operand o) {
  if (o.size.count != 0 && arena.contains(o.address)) {
    o.declared = false;
    o.mode = o.mode == access::overwrite ? access::update : o.mode;  // nodes have no order among themselves
    uses.signature.operand(operand_scan::recognised(*arena.offset_of(o.address)), o.size.count, o.mode);
    uses.operands.push_back(o);
  }
}
void add_graph(graph_uses& uses, const arena_type& arena, CUgraph graph, int depth = 0) {
  const own_driver& d = driver();
  std::size_t count = 0;
  if (depth > 16 || d.cuGraphGetNodes == nullptr || d.cuGraphNodeGetType == nullptr ||
      d.cuGraphGetNodes(graph, nullptr, &count) != CUDA_SUCCESS) {
    return;
  }
  std::vector<CUgraphNode> nodes(count);
  if (count == 0 || d.cuGraphGetNodes(graph, nodes.data(), &count) != CUDA_SUCCESS) {
    return;
  }
  for (const CUgraphNode node : nodes) {
    CUgraphNodeType type{};
    if (d.cuGraphNodeGetType(node, &type) != CUDA_SUCCESS) {
      continue;
    }
    if (type == CU_GRAPH_NODE_TYPE_KERNEL && d.cuGraphKernelNodeGetParams != nullptr) {
      CUDA_KERNEL_NODE_PARAMS_v2 p{};
      if (d.cuGraphKernelNodeGetParams(node, &p) == CUDA_SUCCESS) {
        add_kernel(uses, arena, p);
      }
    } else if (type == CU_GRAPH_NODE_TYPE_MEMCPY && d.cuGraphMemcpyNodeGetParams != nullptr) {
      CUDA_MEMCPY3D p{};
      if (d.cuGraphMemcpyNodeGetParams(node, &p) == CUDA_SUCCESS) {
        add_node(uses, arena, deepum::interpose::read_by(source_of(p)));
        add_node(uses, arena, deepum::interpose::written_by(target_of(p)));
      }
    } else if (type == CU_GRAPH_NODE_TYPE_MEMSET && d.cuGraphMemsetNodeGetParams != nullptr) {
      CUDA_MEMSET_NODE_PARAMS p{};
      if (d.cuGraphMemsetNodeGetParams(node, &p) == CUDA_SUCCESS) {
        add_node(uses, arena, deepum::interpose::written_by({p.dst, p.width * p.elementSize, p.height, 1, p.pitch, 0}));
      }
    } else if (type == CU_GRAPH_NODE_TYPE_GRAPH && d.cuGraphChildGraphNodeGetGraph != nullptr) {
      CUgraph child = nullptr;
      if (d.cuGraphChildGraphNodeGetGraph(node, &child) == CUDA_SUCCESS) {
        add_graph(uses, arena, child, depth + 1);
      }
    }
  }
}

/// Graphs that can be launched, with what they use. Threads: any.
class graph_table {
 public:
  void set(CUgraphExec exec, std::shared_ptr<const graph_uses> uses) {
    const std::lock_guard lock(mutex_);
    graphs_[exec] = std::move(uses);
  }
  [[nodiscard]] std::shared_ptr<const graph_uses> get(CUgraphExec exec) {
    const std::lock_guard lock(mutex_);
    const auto it = graphs_.find(exec);
    return it == graphs_.end() ? nullptr : it->second;
  }
  void erase(CUgraphExec exec) {
    const std::lock_guard lock(mutex_);
    graphs_.erase(exec);
  }

 private:
  std::mutex mutex_;
  std::unordered_map<CUgraphExec, std::shared_ptr<const graph_uses>> graphs_{};
};
graph_table& graphs() {
  static auto* const one = new graph_table;
  return *one;
}

/// A graph was made ready to launch, or changed.
void note_graph(CUgraphExec exec, CUgraph graph) {
  session* const s = current_session();
  if (s == nullptr || exec == nullptr) {
    return;
  }
  auto uses = std::make_shared<graph_uses>();
  add_graph(*uses, s->arena(), graph);
  cut_at(s->arena(), uses->operands);
  graphs().set(exec, std::move(uses));
}
/// One of its kernels got other arguments. What it had before counts on.
void note_changed_kernel(CUgraphExec exec, const CUDA_KERNEL_NODE_PARAMS_v2& p) {
  session* const s = current_session();
  const std::shared_ptr<const graph_uses> before = graphs().get(exec);
  if (s == nullptr || !before) {
    return;
  }
  auto uses = std::make_shared<graph_uses>(*before);
  add_kernel(*uses, s->arena(), p);
  graphs().set(exec, std::move(uses));
}

template <class Real>
CUresult graph_launched(CUgraphExec exec, CUstream stream, default_stream kind, Real&& real) {
  session* const s = current_session();
  if (s == nullptr || capturing(stream, kind)) {
    return real();
  }
  const std::shared_ptr<const graph_uses> uses = graphs().get(exec);
  const std::span<const operand> operands =
      uses ? std::span<const operand>(uses->operands) : std::span<const operand>();
  return launch_as(
      *s, stream, kind, "graph",
      [&] { return uses ? uses->signature.finish() : deepum::signature_builder("unknown graph").finish(); }, operands,
      false, std::forward<Real>(real));
}

}  // namespace

void forget_cuts() { cuts_epoch.fetch_add(1, std::memory_order_relaxed); }

}  // namespace deepum_run

using namespace deepum_run;

#define DEEPUM_GRID \
  unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned shared, CUstream stream
#define DEEPUM_GRID_ARGUMENTS gx, gy, gz, bx, by, bz, shared, stream

DEEPUM_ENTRY_2(launch_kernel, "cuLaunchKernel", "_ptsz", "cuLaunchKernel", 4000,
               (CUfunction f, DEEPUM_GRID, void** parameters, void** extra), {
                 return launched(f, {gx, gy, gz, bx, by, bz}, stream, stream_kind, parameters, extra,
                                 [&] { return real(f, DEEPUM_GRID_ARGUMENTS, parameters, extra); });
               });
DEEPUM_ENTRY_2(launch_cooperative, "cuLaunchCooperativeKernel", "_ptsz", "cuLaunchCooperativeKernel", 9000,
               (CUfunction f, DEEPUM_GRID, void** parameters), {
                 return launched(f, {gx, gy, gz, bx, by, bz}, stream, stream_kind, parameters, nullptr,
                                 [&] { return real(f, DEEPUM_GRID_ARGUMENTS, parameters); });
               });
DEEPUM_ENTRY_2(launch_kernel_ex, "cuLaunchKernelEx", "_ptsz", "cuLaunchKernelEx", 11060,
               (const CUlaunchConfig* how, CUfunction f, void** parameters, void** extra), {
                 if (how == nullptr) {
                   return real(how, f, parameters, extra);
                 }
                 return launched(
                     f, {how->gridDimX, how->gridDimY, how->gridDimZ, how->blockDimX, how->blockDimY, how->blockDimZ},
                     how->hStream, stream_kind, parameters, extra, [&] { return real(how, f, parameters, extra); });
               });
DEEPUM_ENTRY_1(launch_multi_device, "cuLaunchCooperativeKernelMultiDevice", "cuLaunchCooperativeKernelMultiDevice",
               9000, (CUDA_LAUNCH_PARAMS * list, unsigned count, unsigned flags), {
                 note_unseen_work("the program launches on several devices at once");
                 return real(list, count, flags);
               });
DEEPUM_ENTRY_1(module_unload, "cuModuleUnload", "cuModuleUnload", 2000, (CUmodule module), {
  const CUresult result = real(module);
  forget_kernels();
  return result;
});
DEEPUM_ENTRY_1(library_unload, "cuLibraryUnload", "cuLibraryUnload", 12000, (CUlibrary library), {
  const CUresult result = real(library);
  forget_kernels();
  return result;
});

// Captures: nothing is inserted into one. What its graph uses is read off its nodes when it can be launched.
DEEPUM_ENTRY_2(begin_capture, "cuStreamBeginCapture_v2", "_ptsz", "cuStreamBeginCapture", 10010,
               (CUstream stream, CUstreamCaptureMode mode), {
                 note_capture();
                 return real(stream, mode);
               });
DEEPUM_ENTRY_2(begin_capture_v1, "cuStreamBeginCapture", "_ptsz", "cuStreamBeginCapture", 10000, (CUstream stream), {
  note_capture();
  return real(stream);
});
DEEPUM_ENTRY_2(begin_capture_to_graph, "cuStreamBeginCaptureToGraph", "_ptsz", "cuStreamBeginCaptureToGraph", 12030,
               (CUstream stream, CUgraph graph, const CUgraphNode* dependencies, const CUgraphEdgeData* edges,
                std::size_t count, CUstreamCaptureMode mode),
               {
                 note_capture();
                 return real(stream, graph, dependencies, edges, count, mode);
               });
DEEPUM_ENTRY_1(graph_instantiate_with_flags, "cuGraphInstantiateWithFlags", "cuGraphInstantiateWithFlags", 11040,
               (CUgraphExec * exec, CUgraph graph, unsigned long long flags), {
                 const CUresult result = real(exec, graph, flags);
                 if (result == CUDA_SUCCESS) {
                   note_graph(*exec, graph);
                 }
                 return result;
               });
DEEPUM_ALIAS(graph_instantiate, graph_instantiate_with_flags, "cuGraphInstantiate", 12000);
DEEPUM_ENTRY_1(graph_instantiate_v1, "cuGraphInstantiate", "cuGraphInstantiate", 10000,
               (CUgraphExec * exec, CUgraph graph, CUgraphNode* node, char* log, std::size_t size), {
                 const CUresult result = real(exec, graph, node, log, size);
                 if (result == CUDA_SUCCESS) {
                   note_graph(*exec, graph);
                 }
                 return result;
               });
DEEPUM_ENTRY_1(graph_instantiate_v2, "cuGraphInstantiate_v2", "cuGraphInstantiate", 11000,
               (CUgraphExec * exec, CUgraph graph, CUgraphNode* node, char* log, std::size_t size), {
                 const CUresult result = real(exec, graph, node, log, size);
                 if (result == CUDA_SUCCESS) {
                   note_graph(*exec, graph);
                 }
                 return result;
               });
DEEPUM_ENTRY_2(graph_instantiate_with_params, "cuGraphInstantiateWithParams", "_ptsz", "cuGraphInstantiateWithParams",
               12000, (CUgraphExec * exec, CUgraph graph, CUDA_GRAPH_INSTANTIATE_PARAMS* how), {
                 const CUresult result = real(exec, graph, how);
                 if (result == CUDA_SUCCESS) {
                   note_graph(*exec, graph);
                 }
                 return result;
               });
DEEPUM_ENTRY_1(graph_update, "cuGraphExecUpdate_v2", "cuGraphExecUpdate", 12000,
               (CUgraphExec exec, CUgraph graph, CUgraphExecUpdateResultInfo* info), {
                 const CUresult result = real(exec, graph, info);
                 if (result == CUDA_SUCCESS) {
                   note_graph(exec, graph);
                 }
                 return result;
               });
DEEPUM_ENTRY_1(graph_update_v1, "cuGraphExecUpdate", "cuGraphExecUpdate", 10020,
               (CUgraphExec exec, CUgraph graph, CUgraphNode* node, CUgraphExecUpdateResult* info), {
                 const CUresult result = real(exec, graph, node, info);
                 if (result == CUDA_SUCCESS) {
                   note_graph(exec, graph);
                 }
                 return result;
               });
DEEPUM_ENTRY_1(graph_set_kernel, "cuGraphExecKernelNodeSetParams_v2", "cuGraphExecKernelNodeSetParams", 12000,
               (CUgraphExec exec, CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS_v2* p), {
                 const CUresult result = real(exec, node, p);
                 if (result == CUDA_SUCCESS) {
                   note_changed_kernel(exec, *p);
                 }
                 return result;
               });
DEEPUM_ENTRY_1(graph_destroy, "cuGraphExecDestroy", "cuGraphExecDestroy", 10000, (CUgraphExec exec), {
  graphs().erase(exec);
  return real(exec);
});
DEEPUM_ENTRY_2(graph_launch, "cuGraphLaunch", "_ptsz", "cuGraphLaunch", 10000, (CUgraphExec exec, CUstream stream),
               { return graph_launched(exec, stream, stream_kind, [&] { return real(exec, stream); }); });
