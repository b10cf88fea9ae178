// libcudart.so.13 as far as the hook tests call it.
#include <stdint.h>

#include "fake_log.h"

FAKE_EXPORT int cudaGraphLaunch(void* graph, void* stream) {
  fake_log("cudaGraphLaunch %x %x", static_cast<unsigned>(reinterpret_cast<uintptr_t>(graph)),
           static_cast<unsigned>(reinterpret_cast<uintptr_t>(stream)));
  return graph == nullptr ? 400 : 0;
}

FAKE_EXPORT int cudaStreamBeginCapture(void* stream, int mode) {
  fake_log("cudaStreamBeginCapture %x %d", static_cast<unsigned>(reinterpret_cast<uintptr_t>(stream)), mode);
  return 0;
}
