// What was measured, and with which libraries. What bench and peaks answer.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "results/values.h"

namespace llmprof::bench {

using OptNumber = std::optional<double>;

enum class Processor : uint8_t { kCpu, kCuda };
std::string_view name_of(Processor processor);  // "cpu", "cuda"

#define LLMPROF_LIBRARY_FIELDS(C)                   \
  C(std::string, name, "", "cuBLASLt, oneDNN, ...") \
  C(std::string, version, "", "as it says itself")  \
  C(std::string, path, "", "the file that was loaded")
LLMPROF_RECORD(LibraryRow, "libraries", "Libraries that the device is used by", LLMPROF_LIBRARY_FIELDS)

#define LLMPROF_MEASURED_DEVICE_FIELDS(C)                                                          \
  C(Processor, kind, "", "cpu or cuda")                                                            \
  C(std::string, key, "", "what finds its ceilings again: a GPU's uuid; a CPU's name and threads") \
  C(std::string, name, "", "as the driver or the kernel gives it")                                 \
  C(OptText, uuid, "", "of a GPU")                                                                 \
  C(OptText, driver, "", "its version, of a GPU")                                                  \
  C(OptText, compute_capability, "", "of a GPU")                                                   \
  C(int64_t, units, "", "SMs, or threads used")                                                    \
  C(int64_t, memory_bytes, "bytes", "all of it")                                                   \
  C(int64_t, cache_bytes, "bytes", "L2 of a GPU, last level of a CPU, all units together")         \
  C(OptNumber, clock_max_mhz, "MHz", "highest clock")                                              \
  C(std::vector<LibraryRow>, libraries, "", "their versions")
LLMPROF_RECORD(MeasuredDevice, "measured_device", "The device that was measured", LLMPROF_MEASURED_DEVICE_FIELDS)

// How a case ended.
enum class CaseStatus : uint8_t {
  kPassed,
  kMistrusted,  // the check could not tell: nearly all of the reference is zero or alike
  kFailed,      // wrong results; not timed
  kUnsupported,
  kOutOfMemory,
  kInterrupted,
  kError,
  kCount
};
std::string_view name_of(CaseStatus status);

}  // namespace llmprof::bench
