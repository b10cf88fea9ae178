// libcudart.so.13 as far as the hook tests call it.
#include <stdint.h>

#include "fake_log.h"

// Where a stand-in of CUPTI is in the process: a graph of three nodes.
extern "C" __attribute__((weak)) int fake_launch_graph(uint32_t graph, uint64_t first_node, uint32_t nodes,
                                                       uint64_t node_ns);

FAKE_EXPORT int cudaGraphLaunch(void* graph, void* stream) {
  fake_log("cudaGraphLaunch %x %x", static_cast<unsigned>(reinterpret_cast<uintptr_t>(graph)),
           static_cast<unsigned>(reinterpret_cast<uintptr_t>(stream)));
  if (graph == nullptr) return 400;
  return fake_launch_graph != nullptr
             ? fake_launch_graph(static_cast<uint32_t>(reinterpret_cast<uintptr_t>(graph)), 201, 3, 5'000)
             : 0;
}

// Graphs that are made executable are numbered from 1 on; where a stand-in of CUPTI is in the process, it sees the
// call.
extern "C" __attribute__((weak)) void fake_instantiate(void* graph, const void* copies, uint32_t count);

FAKE_EXPORT int cudaGraphInstantiate(void** executable, void* graph, unsigned long long flags) {
  static uintptr_t made = 0;
  fake_log("cudaGraphInstantiate %x %llx", static_cast<unsigned>(reinterpret_cast<uintptr_t>(graph)), flags);
  if (fake_instantiate != nullptr) fake_instantiate(graph, nullptr, 0);
  *executable = reinterpret_cast<void*>(++made);
  return 0;
}

FAKE_EXPORT int cudaStreamBeginCapture(void* stream, int mode) {
  fake_log("cudaStreamBeginCapture %x %d", static_cast<unsigned>(reinterpret_cast<uintptr_t>(stream)), mode);
  return 0;
}
