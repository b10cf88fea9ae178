// What the hooks of cuBLAS, cuBLASLt and cuDNN share: the shape of a call, and the scope that records it.
//
// A hook changes nothing that the program can see: arguments, result and errno pass through. Where the process is not
// watched it costs one load and one jump. Calls that a library makes inside a hooked call (cuBLAS into cuBLASLt) belong
// to the outer one.
#pragma once

#include <cstdint>
#include <string_view>

#include "capture/inject/real_symbol.h"
#include "capture/inject/threads/thread_events.h"

namespace llmprof::inject {

// Everything about a call that goes into its definition. Compared as bytes, so it has no padding.
struct CallShape {
  const char* function = nullptr;  // a literal
  int64_t m = -1, n = -1, k = -1, batch = 1;
  int32_t type_a = -1, type_b = -1, type_d = -1;
  int32_t compute_type = -1;
  int32_t epilogue = 0;              // cublasLtEpilogue_t, 0 for none
  int32_t scale_a = 0, scale_b = 0;  // cublasLtMatmulMatrixScale_t
  int32_t groups = 0;                // of a grouped GEMM
  uint8_t kind = 0;                  // WorkKind
  uint8_t transpose_a = 0, transpose_b = 0;
  uint8_t row_major = 0;
  uint8_t gemv = 0;        // a matrix times a vector
  uint8_t dimensions = 0;  // of a convolution: how many of the arrays below are used
  uint8_t mask = 0;        // of attention, kMask...
  uint8_t unused = 0;
  // Of attention: m queries, n keys, k the head size, batch sequences. Lengths that the kernel reads from tensors are
  // unknown (-1) here; these are the greatest they may have.
  int32_t heads = 0, kv_heads = 0, value_size = 0;
  int32_t queries_max = 0, keys_max = 0;
  int32_t paged = 0;                      // keys lie in pages, so that not even their greatest number is known
  int32_t input[5] = {}, filter[5] = {};  // of a convolution, batch or output channels first
  int32_t stride[3] = {}, padding[3] = {}, dilation[3] = {};
  int32_t conv_groups = 0;
};
static_assert(sizeof(CallShape) == 40 + 8 * 4 + 8 + 6 * 4 + 10 * 4 + 9 * 4 + 4);

// Where a product's matrices begin, as the library names them; nowhere, where there is one of each problem of a batch.
struct Matrices {
  const void* a = nullptr;
  const void* b = nullptr;
  const void* d = nullptr;
};

// WorkKind of trace/tables.h, whose headers the injection library does not carry.
constexpr uint8_t kWorkGemm = 0;
constexpr uint8_t kWorkAttention = 1;
constexpr uint8_t kWorkConvolution = 2;

// LibraryDef::mask.
constexpr uint8_t kMaskNone = 0;
constexpr uint8_t kMaskCausal = 1;   // query i sees the keys up to i
constexpr uint8_t kMaskUnknown = 2;  // there is one, what it hides is not known

// The text of what a definition has no column for: "gemv", "a scale VEC128_32F", "3x3 filter stride 2". Into `text`,
// cut to its size; returns the length.
size_t call_detail(const CallShape& shape, char* text, size_t size);

// The spool's id of a call's definition, from the thread's cache; 0 where there is no spool.
Id call_definition(ThreadLog& log, const CallShape& shape);

// The record of a call from construction to end(). Does nothing where the process is not watched or inside another one.
class CallScope {
 public:
  explicit CallScope(const CallShape& shape, const Matrices& matrices = {});
  // `succeeded`: the library took the call. What it refused launched nothing and is not recorded.
  void end(bool succeeded);

 private:
  void add_matrices();

  ThreadLog* log_ = nullptr;
  Id definition_ = 0;
  bool record_ = false;
  bool recurs_ = false, tells_rows_ = false, passes_over_ = false;
  int64_t rows_ = -1;
  uint64_t shape_hash_ = 0;
  Matrices matrices_;
};

// False: the hook hands the call on and does nothing else.
inline bool hooks_calls() {
  return watched() && thread_state.call == 0 && !thread_state.inside && !thread_state.passes_over;
}

}  // namespace llmprof::inject

// Defines the exported hook of one library function. What follows the arguments, the CallShape and where it can be said
// the Matrices, is evaluated with the parameters in scope, only for calls that are looked at.
#define LLMPROF_CALL_HOOK(name, library, not_found, parameters, arguments, ...) \
  extern "C" __attribute__((visibility("default"))) int name parameters;        \
  extern "C" int name parameters {                                              \
    using Function = int parameters;                                            \
    static constinit ::llmprof::inject::RealSymbol symbol{#name, library};      \
    Function* real = symbol.get<Function>();                                    \
    if (real == nullptr) return not_found;                                      \
    if (!::llmprof::inject::hooks_calls()) return real arguments;               \
    ::llmprof::inject::CallScope scope{__VA_ARGS__};                            \
    int status = real arguments;                                                \
    scope.end(status == 0);                                                     \
    return status;                                                              \
  }
