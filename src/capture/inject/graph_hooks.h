// Hooks of the beginnings and launches of CUDA graphs.
#pragma once

namespace llmprof::inject {

// Whether a capture of this program comes by our hooks: the library is preloaded and the CUDA runtime a shared library.
bool capture_hooks_work();

}  // namespace llmprof::inject
