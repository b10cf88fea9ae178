#include "capture/inject/cupti/attachment.h"

#include "capture/inject/locked.h"

namespace llmprof::inject {

Attachment attachment;

bool wants_kind(uint32_t kind) {
  if (!has_activities() || !switches.kernels_on.load(std::memory_order_relaxed)) return false;
  for (const cupti::ActivityKind own : kKernelKinds)
    if (own == kind) return true;
  if (attachment.deepest_wanted != Level::kDeep) return false;
  for (const cupti::ActivityKind own : kDeepKinds)
    if (own == kind) return true;
  return false;
}

void keep_attached() {
  if (attachment.stays.exchange(true, std::memory_order_relaxed) || !has_activities()) return;
  const Locked locked(attachment.lock);  // a detaching under way is waited for
  attachment.attach_again();
}

}  // namespace llmprof::inject
