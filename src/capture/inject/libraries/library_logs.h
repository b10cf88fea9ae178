// Shapes of matrix products where the hooks do not stand in front of cuBLAS: the library was loaded by
// CUDA_INJECTION64_PATH only, because the program could not be given a preload or threw it away. The callbacks of the
// loggers of cuBLASLt and cuBLAS then tell of each product as it begins.
//
// The logs cost what the hooks do not: about 6 us for each product of cuBLASLt, and about 5 us for each call of any
// function of cuBLAS (PyTorch makes six or seven for a product), in formatting texts. So they are on only while kernels
// are recorded or a graph is captured, and cuBLAS's are given up once nearly all of its products were seen to come by
// cuBLASLt as well.
//
// The log does not say where a call ends. It is taken to last from its line to the end of the first kernel launch of
// its thread and those that visibly belong to it (the reduction after a split product), and is written once the
// thread's next line, launch, copy or wait shows that it is over. A product that launched nothing is not recorded.
//
// Nothing is printed and no log file is written. A logger that the user has set up by CUBLASLT_LOG_* or CUBLAS_LOG*,
// or a callback that the program has given to cuBLAS, stays as it is, and the report says so. What is set stays set at
// the end of the process: the callbacks ignore what comes then.
#pragma once

#include <atomic>
#include <cstdint>

#include "capture/inject/inject.h"

namespace llmprof::inject {

// Looks for libraries that were loaded since, and switches the logs on or off as the level asks for. Called when CUDA
// starts, by the drain thread, and at the beginning of a capture; never with the spool locked.
void follow_library_logs();

// A CUDA call of the calling thread as far as it matters to the product before it.
enum class LoggedStep : uint8_t {
  kOther,
  kLaunch,
  kCopy,         // a copy, memset or wait: of the product only if it comes before its first kernel
  kGraphLaunch,  // never part of a product, like the next two
  kCaptureBegins,
  kCaptureEnds,
};

// Before a log is read, only captures are of interest: their products are wanted whatever is recorded.
inline bool concerns_logged_calls(LoggedStep step) {
  return switches.reads_library_logs.load(std::memory_order_relaxed) || step == LoggedStep::kCaptureBegins ||
         step == LoggedStep::kCaptureEnds;
}
void logged_step_begins(LoggedStep step, const char* kernel);
void logged_step_ends(LoggedStep step, int64_t end_ns);

// The calling thread's product is over. Called at the end of the process; threads that end do it themselves.
void close_logged_call();

// After fork, in the child.
void abandon_library_logs();

}  // namespace llmprof::inject
