// Hooks of what begins a CUDA graph: CUPTI must be in the process before that, or be brought back; and of what makes it
// executable: it must be uploaded before its first launch, or CUPTI cannot leave (attachment.h).
#pragma once

namespace llmprof::inject {

// Whether a capture of this program comes by our hooks: the library is preloaded and the CUDA runtime a shared library.
bool capture_hooks_work();
// The process says that it makes and launches graphs while kernels are recorded, on one thread (`llmprof peaks`).
bool captures_are_announced();

}  // namespace llmprof::inject
