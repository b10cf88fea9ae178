// Kinds of steps of an inference, and who says that a step is one. Recordings, models and reports share them.
#pragma once

#include <cstdint>
#include <string_view>

namespace llmprof {

// kSpeculative: drafting tokens or verifying drafts, of which it is not known how many were accepted.
enum class StageKind : uint8_t { kOther, kPrefill, kDecode, kMixed, kVision, kSpeculative };
std::string_view name_of(StageKind kind);

enum class StageSource : uint8_t { kDetected, kAnnotation, kNvtx };
std::string_view name_of(StageSource source);

// Which kernels of a step are not in the recording: those of its CUDA graphs, recorded as one activity each, or all.
enum class MissingKernels : uint8_t { kNone, kGraphNodes, kAll };
// Why a step stands apart from those of its name. Only where others of that name are complete; so sums over the usual
// ones are sums over complete steps.
enum class StepState : uint8_t {
  kUsual,
  kWholeGraphs,  // its CUDA graphs are recorded as one activity each
  kNotRecorded,  // its kernels are not recorded: its times are those of the program's range on the host
  kWindowEdge    // recorded in part: the recorder's coming and going falls into it, so its times are nobody's
};
// Warm-up is what was detected before the first step that the program names (derive/steps.h), and what came of being
// first (derive/steady.h): no headline, distribution or finding but first-call-cost holds it.
enum class StepPhase : uint8_t { kServing, kWarmUp };
// Why a step is warm-up (derive/steady.h).
enum class WarmUpCause : uint8_t {
  kNone,
  kNamed,  // by what the program names
  kModuleLoading,
  kCompilation,
  kGraphCapture,
  kAllocation,
  kFirstCalls,
  kUnknown,
  kCount
};
std::string_view name_of(WarmUpCause cause);
std::string_view in_words(WarmUpCause cause);  // "modules were loaded", to follow "because"

}  // namespace llmprof
