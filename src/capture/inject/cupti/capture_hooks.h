// Hooks of what begins a CUDA graph: CUPTI must be in the process before that, or be brought back (attachment.h).
#pragma once

namespace llmprof::inject {

// Whether a capture of this program comes by our hooks: the library is preloaded and the CUDA runtime a shared library.
bool capture_hooks_work();

}  // namespace llmprof::inject
