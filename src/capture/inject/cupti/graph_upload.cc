#include "capture/inject/cupti/graph_upload.h"

#include "capture/inject/real_symbol.h"
#include "capture/inject/threads/reentry_guard.h"

namespace llmprof::inject {
namespace {

constexpr int kCaptureModeRelaxed = 2;  // CU_STREAM_CAPTURE_MODE_RELAXED
constexpr unsigned kNonBlocking = 1;    // CU_STREAM_NON_BLOCKING

#define LLMPROF_DRIVER_CALL(member, name) constinit RealSymbol member{name, "libcuda.so"};
LLMPROF_DRIVER_CALL(exchange_mode, "cuThreadExchangeStreamCaptureMode")
LLMPROF_DRIVER_CALL(stream_create, "cuStreamCreate")
LLMPROF_DRIVER_CALL(stream_synchronize, "cuStreamSynchronize")
LLMPROF_DRIVER_CALL(stream_destroy, "cuStreamDestroy_v2")
LLMPROF_DRIVER_CALL(graph_upload, "cuGraphUpload")
#undef LLMPROF_DRIVER_CALL

}  // namespace

bool upload_graph(void* executable) {
  const ReentryGuard inside;
  auto* const exchange = exchange_mode.get<int(int* mode)>();
  auto* const create = stream_create.get<int(void** stream, unsigned flags)>();
  auto* const synchronize = stream_synchronize.get<int(void* stream)>();
  auto* const destroy = stream_destroy.get<int(void* stream)>();
  auto* const upload = graph_upload.get<int(void* executable, void* stream)>();
  if (exchange == nullptr || create == nullptr || synchronize == nullptr || destroy == nullptr || upload == nullptr)
    return false;
  // A capture of another thread in the global mode would end at what it takes for unsafe.
  int mode = kCaptureModeRelaxed;
  if (exchange(&mode) != 0) return false;
  void* stream = nullptr;
  bool done = create(&stream, kNonBlocking) == 0;
  if (done) {
    done = upload(executable, stream) == 0 && synchronize(stream) == 0;
    destroy(stream);
  }
  exchange(&mode);
  return done;
}

}  // namespace llmprof::inject
