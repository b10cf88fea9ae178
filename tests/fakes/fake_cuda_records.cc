#include "fake_cuda_records.h"

#include <dlfcn.h>

#include <cstdlib>

#include "fake_cupti.h"

namespace fake_records {
namespace {

struct Cupti {
  decltype(&fake_now) now = nullptr;
  decltype(&fake_call_begins) call_begins = nullptr;
  decltype(&fake_call_ends) call_ends = nullptr;
  decltype(&fake_kernel_ran) kernel_ran = nullptr;
  decltype(&fake_copy_ran) copy_ran = nullptr;
  decltype(&fake_graph_node) graph_node = nullptr;
  decltype(&fake_graph_launches) graph_launches = nullptr;
  decltype(&fake_graph_uploaded) graph_uploaded = nullptr;
};
Cupti cupti;
thread_local uint32_t call = 0;
uint64_t nodes = 0;

bool watched() { return cupti.copy_ran != nullptr; }

template <class Function>
void find(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(dlsym(library, name));
}

}  // namespace

void start() {
  const char* const path = std::getenv("FAKE_CUDA_CUPTI");
  if (path == nullptr || watched()) return;
  void* const library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) std::abort();
  find(library, "fake_now", cupti.now);
  find(library, "fake_call_begins", cupti.call_begins);
  find(library, "fake_call_ends", cupti.call_ends);
  find(library, "fake_kernel_ran", cupti.kernel_ran);
  find(library, "fake_graph_node", cupti.graph_node);
  find(library, "fake_graph_launches", cupti.graph_launches);
  find(library, "fake_graph_uploaded", cupti.graph_uploaded);
  find(library, "fake_copy_ran", cupti.copy_ran);
  const char* const injection = std::getenv("CUDA_INJECTION64_PATH");
  void* const tool = injection == nullptr ? nullptr : dlopen(injection, RTLD_NOW | RTLD_LOCAL);
  int (*initialise)() = nullptr;
  if (tool != nullptr) find(tool, "InitializeInjection", initialise);
  if (initialise != nullptr) initialise();
}

Call::Call(const char* name) : name_(name), before_(call) {
  if (watched()) call = cupti.call_begins(name);
}
Call::~Call() {
  if (!watched()) return;
  cupti.call_ends(name_, call);
  call = before_;
}

void launched_now(Activity& activity) { activity.call = call; }

void captured(Activity& activity) {
  if (!watched()) return;
  activity.node = ++nodes;
  cupti.graph_node(activity.node, 0, 0);
}

Activity copied_node(const Activity& of_capture) {
  Activity copy = of_capture;
  if (!watched()) return copy;
  copy.node = ++nodes;
  cupti.graph_node(copy.node, of_capture.node, 0);
  return copy;
}

void graph_uploaded(uint64_t graph) {
  if (watched()) cupti.graph_uploaded(graph);
}

int graph_launches(uint64_t graph) { return watched() ? cupti.graph_launches(graph) : 0; }

uint64_t now_ns() { return watched() ? cupti.now() : 0; }

void ran(const Activity& activity, uint64_t start_ns) {
  if (!watched() || activity.kind == Activity::Kind::kNone) return;
  const uint64_t end_ns = cupti.now();
  if (activity.kind == Activity::Kind::kKernel)
    cupti.kernel_ran(activity.name, start_ns, end_ns, activity.call, activity.node);
  else
    cupti.copy_ran(activity.bytes, activity.kind == Activity::Kind::kCopyToDevice, start_ns, end_ns, activity.call,
                   activity.node);
}

}  // namespace fake_records
