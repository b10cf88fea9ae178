// What the hook module of --torch calls for each Python function and nn.Module of the program (capture/torch). They are
// ranges with a stack of their own: a program may push an NVTX range in one function and pop it in another, and must
// not pop ours, nor we its.
#include <time.h>

#include <cstring>

#include "capture/inject/export.h"
#include "capture/inject/recording.h"
#include "capture/inject/threads/thread_events.h"

namespace llmprof::inject {
namespace {

constexpr char kFrames = 0;  // its address is the domain

}  // namespace
}  // namespace llmprof::inject

extern "C" {

// text: "[python] file(line): function" or "[module] Class"; zero-terminated, at most kTextMax bytes of it are kept.
LLMPROF_EXPORT void llmprof_push_frame(const char* text);
LLMPROF_EXPORT void llmprof_pop_frame();
// Waits until names are wanted (1) or not (0) where the caller has known the opposite, at most most_ms; returns which.
LLMPROF_EXPORT int llmprof_wait_names(int known, int most_ms);

void llmprof_push_frame(const char* text) {
  using namespace llmprof::inject;
  if (text == nullptr || !watched()) return;
  ThreadLog* const log = thread_log();
  if (log == nullptr) return;
  constexpr size_t kTextMax = 1000;
  NewRange range;
  range.domain_key = &kFrames;
  range.record = records_ranges();
  if (range.record) {
    const void* const end = std::memchr(text, '\0', kTextMax);
    range.name =
        text_id(*log, {text, end == nullptr ? kTextMax : static_cast<size_t>(static_cast<const char*>(end) - text)});
  }
  push_range(*log, range);
}

int llmprof_wait_names(int known, int most_ms) {
  using namespace llmprof::inject;
  constexpr int kStepMs = 5;
  for (int waited = 0;; waited += kStepMs) {
    const int wanted = names_wanted() ? 1 : 0;
    if (wanted != known || waited >= most_ms) return wanted;
    const timespec pause{0, kStepMs * 1'000'000};
    nanosleep(&pause, nullptr);
  }
}

void llmprof_pop_frame() {
  using namespace llmprof::inject;
  if (!watched()) return;
  ThreadLog* const log = thread_log();
  if (log != nullptr) pop_range(*log, &kFrames, {});
}

}  // extern "C"
