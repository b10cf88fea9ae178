// What the columns of a Trace's tables are made of: handles of rows, and enumerations.
#pragma once

#include <cstdint>
#include <string_view>

#include "base/dtype.h"
#include "base/fields.h"
#include "base/stage.h"
#include "base/string_pool.h"

namespace llmprof {

// ---- rows of tables -----------------------------------------------------------------------------------------------

using ThreadId = RowId<struct Threads>;
using StreamId = RowId<struct Streams>;
using SignatureId = RowId<struct Signatures>;
using InputId = RowId<struct Inputs>;
using InputNumberId = RowId<struct InputNumbers>;
using OpId = RowId<struct Ops>;
using AnnotationId = RowId<struct Annotations>;
using PythonCallId = RowId<struct PythonCalls>;
using ApiCallId = RowId<struct ApiCalls>;
using LaunchConfigId = RowId<struct LaunchConfigs>;
using GpuOpId = RowId<struct GpuOps>;
using LibraryCallId = RowId<struct LibraryCalls>;
using WorkId = RowId<struct Works>;
using StepId = RowId<struct Steps>;
using ProfiledKernelId = RowId<struct ProfiledKernels>;
using ClientRequestId = RowId<struct ClientRequests>;
using ProtonNodeId = RowId<struct ProtonNodes>;

// ---- enumerations stored as columns ------------------------------------------------------------------------------

enum class AnnotationKind : uint8_t { kUser, kGpuUser, kNvtx };  // record_function, its GPU projection, NVTX
enum class ApiLayer : uint8_t { kRuntime, kDriver };
enum class ProcessorKind : uint8_t { kGpu, kCpu };  // a device that work ran on
enum class GpuOpKind : uint8_t { kKernel, kMemcpy, kMemset };
// What a copy crosses: a link between host and GPU or between GPUs, or the memory of one GPU, read and written.
enum class CopyPath : uint8_t { kUnknown, kHostToDevice, kDeviceToHost, kPeer, kOnDevice, kCount };
// The host's end of a copy. The driver stages pageable memory through pinned memory, and the host waits meanwhile.
enum class HostMemory : uint8_t { kUnknown, kPageable, kPinned };
// Which keys a query of attention sees: all, those up to its own place, or some that are not known.
enum class AttentionMask : uint8_t { kNone, kCausal, kUnknown };
// Who read hardware counters: the PM sampler of CUPTI, NVML's GPM, or DCGM.
enum class CounterSource : uint8_t { kPmSampling, kGpm, kDcgm };

// An input of an operator. The tensors of a list stand behind it, each in a row of its own.
enum class InputKind : uint8_t {
  kOther,  // absent, or a scalar that is kept as text
  kTensor,
  kList,
  kListed,    // a tensor of the list before it
  kIntegers,  // a scalar, or a list of them
  kBoolean
};

// What a GPU activity is for. Names and meanings: category_name(), docs/metrics.md; rules: src/derive/kernel_rules.cc.
enum class Category : uint8_t {
  kOther,
  kGemm,
  kAttention,
  kNorm,
  kRope,
  kActivation,
  kSoftmax,
  kElementwise,
  kEmbedding,
  kKvCache,
  kSampling,
  kMoeRouting,
  kQuantize,
  kConvolution,
  kCommunication,
  kCopy,
  kCount
};
std::string_view category_name(Category category);
constexpr bool is_pass_over_memory(Category category) {
  switch (category) {
    case Category::kNorm:
    case Category::kRope:
    case Category::kActivation:
    case Category::kSoftmax:
    case Category::kElementwise:
    case Category::kKvCache:
    case Category::kQuantize:
    case Category::kCopy:
      return true;
    default:
      return false;
  }
}
// Products, attention and convolutions: what a model's FLOPs are counted in.
constexpr bool is_arithmetic(Category category) {
  return category == Category::kGemm || category == Category::kAttention || category == Category::kConvolution;
}

// Why the GPU was idle, judged by what the host thread that launched the next GPU activity was doing at that moment.
enum class IdleCause : uint8_t {
  kUnknown,           // no launching call known, or nothing recorded on its thread
  kLaunchCall,        // inside a kernel or graph launch call
  kOperatorDispatch,  // inside a recorded operator (framework code), not in an API call
  kHostWork,          // between operators: Python or other host code; the frame is named where recorded
  kLaunchLatency,     // the launch call had returned, the GPU had not started yet
  kBlockingSync,      // inside a synchronising call, or in the host code right after it returned late
  kCopy,              // inside a memory copy call that blocks the host
  kAllocator,         // inside cudaMalloc, cudaFree and the like
  kOtherApi,          // inside any other CUDA call
  kGraphInternal,     // between two nodes of one CUDA graph launch
  kProfiler,          // inside a recorded profiler overhead (buffer request, flush)
  kNoWork,            // outside every stage: nothing was asked of the GPU
  kNoInput,           // the whole process used no CPU: it slept, or waited for a request, another process or a file
  kNotRecorded,       // kernels were not recorded then; no idle time, and never counted as such
  kCount
};
std::string_view idle_cause_name(IdleCause cause);

// The kind of arithmetic a Work row describes.
enum class WorkKind : uint8_t { kGemm, kAttention, kConvolution, kGather, kPointwise, kReduction };
std::string_view work_kind_name(WorkKind kind);

}  // namespace llmprof
