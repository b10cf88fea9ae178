// FLOPs and least traffic of one operator call, from the shapes of its inputs: what its arguments mean is said here,
// the formulas are those of src/ops.
//
//   GEMM         ops/product.h; a bias is read, too. Grouped: every row meets one expert, and at most min(experts, m)
//                experts are read; so many are counted, because the choice of the router is not recorded
//   attention    ops/attention.h. Where a mask *tensor* is given its content is not recorded: `flops` counts all pairs
//                then, as `flops_full` always does, and the mask is read
//   convolution  a GEMM with m = N prod(out), n = O, k = C/groups prod(kernel)
//   lookups      rows read and written once, indices read once, never the whole table; 0 FLOPs
//   the rest     each input read once, each result written once; 1 FLOP per element where it computes at all
//
// Softmax inside attention, scales, biases and activations inside GEMMs are not counted (usual convention: model FLOPs
// are multiply-adds). Expanded dimensions (stride 0) are read once.
#pragma once

#include <string>
#include <string_view>

#include "derive/op_rules.h"
#include "trace/signature.h"

namespace llmprof {

// What the kernel that carries the work adds to the shapes.
struct KernelHint {
  uint8_t element_bytes = 0;  // element size in the kernel's name, for operators whose types are not recorded; 0: none
  bool tf32 = false;          // FP32 inputs are rounded to TF32

  bool operator==(const KernelHint&) const = default;
};

// One row of Works before its text. Sizes in elements, bytes NaN where an element type is not recorded.
using WorkShape = Works::Values;
// What the formulas begin with.
inline constexpr WorkShape kNoWork{.kind = WorkKind::kPointwise,
                                   .batch = 1,
                                   .m = 0,
                                   .n = 0,
                                   .k = 0,
                                   .heads = 0,
                                   .kv_heads = 0,
                                   .flops = 0,
                                   .flops_full = 0,
                                   .bytes = 0,
                                   .weight_bytes = 0,
                                   .kv_bytes = 0};

enum class WorkOutcome : uint8_t {
  kWork,     // `out` is filled
  kUnknown,  // valid, but the inputs do not tell (shapes not recorded, lengths in a cache)
  kBadShape  // the shapes contradict the operator, or cannot be read
};

WorkOutcome compute_work(const OpRule& rule, const SignatureShapes& shapes, const KernelHint& hint, WorkShape& out);

// Work of a call of a math library (row of LibraryCalls): 2 batch m n k FLOPs, each operand once. False where a size or
// what the call does is unknown; batched products have no weights, as for kBmm. Attention as above, except that a
// causal mask of a library begins at the first key (query i of S sees i keys, of n keys min(S, n) are read); where a
// mask is not known all pairs count, an upper bound.
bool library_call_work(const LibraryCalls& calls, Row call, const KernelHint& hint, WorkShape& out);

// "M512 N4096 K4096", "B1 H32/8 Q512 KV512 D128 causal", "512x4096".
std::string shape_text(const WorkShape& work);

}  // namespace llmprof
