// InitializeInjection: what the CUDA driver calls when the program initialises CUDA.
#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>

#include "capture/inject/cupti/activity.h"
#include "capture/inject/export.h"
#include "capture/inject/inject.h"
#include "capture/inject/libraries/library_logs.h"
#include "capture/inject/recording.h"
#include "capture/session/control.h"

namespace llmprof::inject {
namespace {

// A tool that the user had in CUDA_INJECTION64_PATH before us still gets its turn.
void start_next_injection() {
  const char* path = std::getenv(session::kEnvNext);
  if (path == nullptr || *path == '\0') return;
  void* library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  char text[1024];
  if (library == nullptr) {
    std::snprintf(text, sizeof text, "%s could not be loaded: %s", path, dlerror());
    note("foreign-injection", text);
    return;
  }
  using Function = int (*)();
  const Function initialize = reinterpret_cast<Function>(dlsym(library, "InitializeInjection"));
  const int result = initialize == nullptr ? 0 : initialize();
  std::snprintf(text, sizeof text, "%s: InitializeInjection %s", path,
                initialize == nullptr ? "is missing" : (result != 0 ? "succeeded" : "returned 0"));
  note("foreign-injection", text);
}

std::atomic<bool> injected{false};

}  // namespace
}  // namespace llmprof::inject

extern "C" LLMPROF_EXPORT int InitializeInjection() {
  using namespace llmprof::inject;
  if (injected.exchange(true)) return 1;
  if (start()) {
    start_activities(deepest_level(), !awaits_start());
    follow_library_logs();
  }
  start_next_injection();
  return 1;
}
