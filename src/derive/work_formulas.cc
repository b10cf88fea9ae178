#include "derive/work_formulas.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>
#include <optional>
#include <span>
#include <utility>

#include "ops/attention.h"
#include "ops/layers.h"
#include "ops/product.h"

namespace llmprof {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

double size_bytes(double elements, DType dtype) {
  const double each = dtype_bytes(dtype);
  return each > 0 ? elements * each : kNaN;
}
double as_double(int64_t value) { return static_cast<double>(value); }

// Element type by PyTorch's ScalarType number, as scalar arguments record it ("15" is bfloat16).
DType dtype_of_scalar_type(int64_t number) {
  constexpr DType kTypes[] = {DType::kInt8,  DType::kInt8, DType::kInt16, DType::kInt32,
                              DType::kInt64, DType::kFp16, DType::kFp32,  DType::kFp64};
  if (number >= 0 && number < 8) return kTypes[number];
  if (number == 11) return DType::kBool;
  if (number == 15) return DType::kBf16;
  return number >= 23 && number <= 26 ? DType::kFp8 : DType::kUnknown;
}

// Everything a formula needs to see.
struct Call {
  const OpRule& rule;
  const SignatureShapes& shapes;
  KernelHint hint;

  std::optional<Shape> tensor(int i) const { return shapes.tensor(i); }
  // Bytes of input `i` read once; 0 if it is not a tensor.
  double read(int i) const {
    const std::optional<Shape> shape = tensor(i);
    return shape ? size_bytes(as_double(shape->distinct), shapes.dtype(i)) : 0;
  }
  DType result_type(DType otherwise) const {
    if (rule.result != DType::kUnknown) return rule.result;
    if (rule.writes != 0) {
      const DType written = shapes.dtype(__builtin_ctz(rule.writes));
      if (written != DType::kUnknown) return written;
    }
    const DType given = dtype_of_scalar_type(shapes.integer(rule.out_type).value_or(-1));
    return given != DType::kUnknown ? given : otherwise;
  }
};

// ---- GEMM
// ------------------------------------------------------------------------------------------------------------

struct Gemm {
  int64_t batch = 1, m = 0, n = 0, k = 0;
};

WorkOutcome finish_gemm(const Call& call, const Gemm& gemm, bool has_weights, WorkShape& out) {
  const OpRule& rule = call.rule;
  DType a = call.shapes.dtype(rule.a);
  DType b = call.shapes.dtype(rule.b);
  if (rule.kind == OpRuleKind::kInt4Linear) b = DType::kInt4;
  if (rule.kind == OpRuleKind::kMv) std::swap(a, b);
  int64_t k = gemm.k;
  // Packed pairs of 4-bit numbers are recorded as one element.
  if (a == DType::kFp4 && b == DType::kFp4) k *= 2;
  if (call.hint.tf32 && a == DType::kFp32) a = DType::kTf32;
  const ops::Gemm of{as_double(gemm.batch), as_double(gemm.m), as_double(gemm.n), as_double(k)};
  out.kind = WorkKind::kGemm;
  out.dtype = a;
  out.weight_dtype = b;
  out.batch = gemm.batch;
  out.m = gemm.m;
  out.n = gemm.n;
  out.k = k;
  out.flops = out.flops_full = of.flops();
  const double b_bytes = size_bytes(of.b_elements(), b);
  const DType result = call.result_type(call.shapes.dtype(rule.kind == OpRuleKind::kMv ? rule.b : rule.a));
  out.bytes = size_bytes(of.a_elements(), a) + b_bytes + size_bytes(of.result_elements(), result) +
              (rule.bias >= 0 ? call.read(rule.bias) : 0);
  out.weight_bytes = has_weights ? b_bytes : 0;
  return WorkOutcome::kWork;
}

WorkOutcome plain_gemm(const Call& call, WorkShape& out) {
  const std::optional<Shape> a = call.tensor(call.rule.a);
  const std::optional<Shape> b = call.tensor(call.rule.b);
  if (!a || !b) return WorkOutcome::kBadShape;
  Gemm gemm;
  switch (call.rule.kind) {
    case OpRuleKind::kMm:
      if (a->rank != 2 || b->rank != 2 || a->back(1) != b->back(2)) return WorkOutcome::kBadShape;
      gemm = {1, a->back(2), b->back(1), a->back(1)};
      break;
    case OpRuleKind::kLinear:
      if (a->rank < 1 || b->rank < 1 || b->rank > 2 || a->back(1) != b->back(1)) return WorkOutcome::kBadShape;
      gemm = {1, a->back(1) == 0 ? 0 : a->elements / a->back(1), b->back(2), a->back(1)};
      break;
    case OpRuleKind::kInt4Linear:
      // The packed layout is [n/8, k/(tiles*16), 32, tiles/2] 32-bit words of 8 values each, so n k / 8 words.
      if (a->rank != 2 || b->rank != 4 || (*b)[0] == 0 || b->elements % (*b)[0] != 0 ||
          b->elements / (*b)[0] != a->back(1)) {
        return WorkOutcome::kBadShape;
      }
      gemm = {1, a->back(2), (*b)[0] * 8, a->back(1)};
      break;
    case OpRuleKind::kMv:
      if (a->rank != 2 || b->rank != 1 || a->back(1) != b->back(1)) return WorkOutcome::kBadShape;
      gemm = {1, 1, a->back(2), a->back(1)};
      break;
    default:  // kBmm
      if (a->rank != 3 || b->rank != 3 || (*a)[0] != (*b)[0] || a->back(1) != b->back(2)) return WorkOutcome::kBadShape;
      gemm = {(*a)[0], a->back(2), b->back(1), a->back(1)};
  }
  return finish_gemm(call, gemm, call.rule.kind != OpRuleKind::kBmm, out);
}

// numpy's matmul: vectors are rows or columns, leading dimensions broadcast.
WorkOutcome matmul(const Call& call, WorkShape& out) {
  const std::optional<Shape> a = call.tensor(call.rule.a);
  const std::optional<Shape> b = call.tensor(call.rule.b);
  if (!a || !b || a->rank < 1 || b->rank < 1) return WorkOutcome::kBadShape;
  const int64_t m = a->rank == 1 ? 1 : a->back(2);
  const int64_t n = b->rank == 1 ? 1 : b->back(1);
  if (a->back(1) != (b->rank == 1 ? b->back(1) : b->back(2))) return WorkOutcome::kBadShape;
  if (b->rank <= 2) {
    const int64_t rows = a->back(1) == 0 ? 0 : a->elements / a->back(1);
    return finish_gemm(call, {1, rows, n, a->back(1)}, true, out);
  }
  int64_t batch = 1;
  for (int i = 3; i <= std::max(a->rank, b->rank); ++i) {
    const int64_t left = a->back(i), right = b->back(i);
    if (left != right && left != 1 && right != 1) return WorkOutcome::kBadShape;
    if (__builtin_mul_overflow(batch, std::max(left, right), &batch) || batch > kMaxElements) {
      return WorkOutcome::kBadShape;
    }
  }
  return finish_gemm(call, {batch, m, n, a->back(1)}, false, out);
}

WorkOutcome grouped_gemm(const Call& call, WorkShape& out) {
  const std::optional<Shape> a = call.tensor(call.rule.a);
  const std::optional<Shape> b = call.tensor(call.rule.b);
  if (!a || !b) return WorkOutcome::kBadShape;
  if (a->rank != 2 || b->rank != 3) return WorkOutcome::kUnknown;  // the other layouts group another dimension
  if (a->back(1) != b->back(2)) return WorkOutcome::kBadShape;
  const WorkOutcome done = finish_gemm(call, {1, a->back(2), b->back(1), a->back(1)}, true, out);
  const double hit = as_double(std::min((*b)[0], out.m));
  const double one = out.weight_bytes;
  out.weight_bytes = hit * one;
  out.bytes += (hit - 1) * one;
  return done;
}

// ---- convolution
// -----------------------------------------------------------------------------------------------------

using Integers = std::span<const int64_t>;

// A list of one value counts for every dimension.
int64_t value_at(Integers list, int i) {
  const size_t at = list.size() == 1 ? 0 : static_cast<size_t>(i);
  return at < list.size() ? list[at] : 0;
}

WorkOutcome convolution(const Call& call, WorkShape& out) {
  const std::optional<Shape> input = call.tensor(call.rule.a);
  const std::optional<Shape> weight = call.tensor(call.rule.b);
  if (!input || !weight) return WorkOutcome::kBadShape;
  if (call.shapes.truth(call.rule.transposed)) return WorkOutcome::kUnknown;
  const int spatial = weight->rank - 2;
  // An input without a batch dimension has one dimension less.
  if (spatial < 1 || spatial > 3 || (input->rank != weight->rank && input->rank != weight->rank - 1)) {
    return WorkOutcome::kBadShape;
  }
  const std::optional<Integers> stride = call.shapes.integers(call.rule.stride);
  const std::optional<Integers> padding = call.shapes.integers(call.rule.padding);
  const std::optional<Integers> dilation = call.shapes.integers(call.rule.dilation);
  if (!stride || !padding || (call.rule.dilation >= 0 && !dilation)) return WorkOutcome::kUnknown;
  double out_pixels = 1, kernel = 1;
  for (int i = 0; i < spatial; ++i) {
    const int64_t in = input->back(spatial - i);
    const int64_t size = weight->back(spatial - i);
    const int64_t step = value_at(*stride, i), pad = value_at(*padding, i),
                  spread = dilation ? value_at(*dilation, i) : 1;
    constexpr int64_t kMax = 1 << 20;
    if (step < 1 || step > kMax || pad < 0 || pad > kMax || spread < 1 || spread > kMax || size < 1 || size > kMax) {
      return WorkOutcome::kBadShape;
    }
    if (in + 2 * pad - spread * (size - 1) < 1) return WorkOutcome::kBadShape;
    out_pixels *= as_double(ops::filter_positions(in, size, step, pad, spread));
    kernel *= as_double(size);
  }
  const int64_t images = input->rank == weight->rank ? (*input)[0] : 1;
  const double m = as_double(images) * out_pixels;
  const double k = as_double((*weight)[1]) * kernel;
  if (m > as_double(kMaxElements) || k > as_double(kMaxElements)) return WorkOutcome::kBadShape;
  const DType type = call.shapes.dtype(call.rule.a);
  out.kind = WorkKind::kConvolution;
  out.dtype = call.hint.tf32 && type == DType::kFp32 ? DType::kTf32 : type;
  out.weight_dtype = call.shapes.dtype(call.rule.b);
  out.m = static_cast<int64_t>(m);
  out.n = (*weight)[0];
  out.k = static_cast<int64_t>(k);
  const ops::Gemm gemm{1, m, as_double(out.n), k};
  out.flops = out.flops_full = gemm.flops();
  out.weight_bytes = call.read(call.rule.b);
  out.bytes = call.read(call.rule.a) + out.weight_bytes + size_bytes(gemm.result_elements(), type) +
              (call.rule.bias >= 0 ? call.read(call.rule.bias) : 0);
  return WorkOutcome::kWork;
}

// ---- attention
// -------------------------------------------------------------------------------------------------------

// What the operator says in the table's terms.
void set_attention(const ops::Attention& a, WorkShape& out) {
  out.batch = a.batch;
  out.m = a.queries;
  out.n = a.keys;
  out.k = a.key_width;
  out.heads = a.heads;
  out.kv_heads = a.kv_heads;
  out.mask = a.mask == ops::AttentionMask::kFull ? AttentionMask::kNone : AttentionMask::kCausal;
  out.flops = a.flops();
  out.flops_full = a.flops_full();
  out.kv_bytes = size_bytes(a.key_value_elements(), out.weight_dtype);
}

WorkOutcome finish_attention(const Call& call, ops::Attention a, WorkShape& out) {
  if (a.kv_heads < 1 || a.heads % a.kv_heads != 0) return WorkOutcome::kBadShape;
  const OpRule& rule = call.rule;
  const bool causal = call.shapes.truth(rule.causal);
  if (causal) a.mask = ops::AttentionMask::kCausal;
  if (rule.window >= 0) {
    const int64_t left = call.shapes.integer(rule.window).value_or(-1);
    if (left >= 0 && left < a.keys) a.window = left + 1;
    if (a.window > 0 && !causal) return WorkOutcome::kUnknown;  // a window to both sides; the right side is not read
  }
  out.kind = WorkKind::kAttention;
  out.dtype = call.shapes.dtype(rule.a);
  out.weight_dtype = call.shapes.dtype(rule.b);
  set_attention(a, out);
  out.bytes = size_bytes(a.query_elements() + a.result_elements(), out.dtype) + out.kv_bytes +
              (rule.mask >= 0 ? call.read(rule.mask) : 0);
  return WorkOutcome::kWork;
}

// Sequences packed one after another: lengths are known only if there is one, or if all are as long as the longest.
WorkOutcome packed_attention(const Call& call, const Shape& q, const Shape& k, const Shape& v, WorkShape& out) {
  const std::optional<Shape> cu = call.tensor(call.rule.cu);
  if (!cu || cu->rank != 1 || (*cu)[0] < 2) return WorkOutcome::kBadShape;
  // A leading dimension of 1 is usual where the batch has been folded into the tokens.
  const int lead = q.rank - 3;
  if (lead < 0 || lead > 1 || k.rank != q.rank || v.rank != q.rank || (lead == 1 && q[0] != 1)) {
    return WorkOutcome::kUnknown;  // paged keys: the lengths are in a tensor
  }
  ops::Attention a;
  a.batch = (*cu)[0] - 1;
  a.heads = q.back(2);
  a.kv_heads = k.back(2);
  a.key_width = q.back(1);
  a.value_width = v.back(1);
  if (k.back(1) != a.key_width || v.back(3) != k.back(3)) return WorkOutcome::kBadShape;
  if (a.batch > 1) {
    const std::optional<int64_t> longest_q = call.shapes.integer(call.rule.cu + 2);
    const std::optional<int64_t> longest_k = call.shapes.integer(call.rule.cu + 3);
    const bool uniform = longest_q && longest_k && q.back(3) % a.batch == 0 && k.back(3) % a.batch == 0 &&
                         q.back(3) / a.batch == *longest_q && k.back(3) / a.batch == *longest_k;
    if (!uniform) return WorkOutcome::kUnknown;
  }
  a.queries = q.back(3) / a.batch;
  a.keys = k.back(3) / a.batch;
  return finish_attention(call, a, out);
}

WorkOutcome attention(const Call& call, WorkShape& out) {
  const std::optional<Shape> q = call.tensor(call.rule.a);
  const std::optional<Shape> k = call.tensor(call.rule.b);
  const std::optional<Shape> v = call.tensor(call.rule.c);
  if (!q || !k || !v) return WorkOutcome::kBadShape;
  if (call.tensor(call.rule.cu)) return packed_attention(call, *q, *k, *v, out);
  const bool token_first = call.rule.kind == OpRuleKind::kAttentionTokenFirst;
  if (q->rank < (token_first ? 4 : 2) || k->rank != q->rank || v->rank != q->rank) return WorkOutcome::kBadShape;
  const int tokens = token_first ? 3 : 2;
  const int heads = token_first ? 2 : 3;
  ops::Attention a;
  // Fewer than four dimensions: everything in front of the tokens is batch.
  const bool has_heads = q->rank >= 4;
  for (int i = has_heads ? 4 : 3; i <= q->rank; ++i) {
    if (k->back(i) != q->back(i) || v->back(i) != q->back(i)) return WorkOutcome::kBadShape;
    if (__builtin_mul_overflow(a.batch, q->back(i), &a.batch) || a.batch > kMaxElements) return WorkOutcome::kBadShape;
  }
  if (has_heads) {
    a.heads = q->back(heads);
    a.kv_heads = k->back(heads);
    if (v->back(heads) != a.kv_heads) return WorkOutcome::kBadShape;
  }
  a.queries = q->back(tokens);
  a.keys = k->back(tokens);
  a.key_width = q->back(1);
  a.value_width = v->back(1);
  if (k->back(1) != a.key_width || v->back(tokens) != a.keys) return WorkOutcome::kBadShape;
  return finish_attention(call, a, out);
}

// ---- lookups, element by element, rows, movement
// ---------------------------------------------------------------------

void set_rows(WorkShape& out, const Shape& shape) {
  out.n = shape.rank == 0 ? 1 : shape.back(1);
  out.m = out.n == 0 ? 0 : shape.elements / out.n;
}

WorkOutcome gather(const Call& call, WorkShape& out) {
  const std::optional<Shape> table = call.tensor(call.rule.a);
  const std::optional<Shape> indices = call.tensor(call.rule.b);
  if (!table || !indices || table->rank < 1) return WorkOutcome::kBadShape;
  out.kind = WorkKind::kGather;
  out.dtype = out.weight_dtype = call.shapes.dtype(call.rule.a);
  if (call.rule.kind == OpRuleKind::kGatherElements) {
    set_rows(out, *indices);
  } else {
    int64_t dim = call.shapes.integer(call.rule.dim).value_or(0);
    if (dim < 0) dim += table->rank;
    if (dim < 0 || dim >= table->rank) return WorkOutcome::kBadShape;
    const int64_t choices = (*table)[static_cast<int>(dim)];
    out.m = indices->elements;
    out.n = choices == 0 ? 0 : table->elements / choices;
  }
  const double moved = size_bytes(as_double(out.m) * as_double(out.n), out.dtype);
  out.weight_bytes = moved;
  out.bytes = 2 * moved + call.read(call.rule.b);
  return WorkOutcome::kWork;
}

// The type of a result by PyTorch's promotion, as far as traffic needs it: the widest of the tensors that have
// dimensions, of two 16-bit floats FP32.
DType promoted(const SignatureShapes& shapes) {
  static constexpr std::array<int, static_cast<size_t>(DType::kCount)> kOrder = {0, 12, 11, 11, 10, 9, 8,
                                                                                 2, 1,  3,  4,  5,  0, 7};
  DType best = DType::kUnknown;
  bool best_has_dims = false;
  for (int i = 0; i < shapes.size(); ++i) {
    const std::optional<Shape> shape = shapes.tensor(i);
    const DType dtype = shapes.dtype(i);
    if (!shape || dtype == DType::kUnknown) continue;
    const bool has_dims = shape->rank > 0;
    if (best != DType::kUnknown && best_has_dims && !has_dims) continue;
    const bool halves =
        (best == DType::kFp16 && dtype == DType::kBf16) || (best == DType::kBf16 && dtype == DType::kFp16);
    if (best == DType::kUnknown || (has_dims && !best_has_dims)) {
      best = dtype;
    } else if (halves) {
      best = DType::kFp32;
    } else if (kOrder[static_cast<size_t>(dtype)] > kOrder[static_cast<size_t>(best)]) {
      best = dtype;
    }
    best_has_dims |= has_dims;
  }
  return best;
}

WorkOutcome pointwise(const Call& call, WorkShape& out) {
  Shape result;
  bool any = false;
  for (int i = 0; i < call.shapes.size(); ++i) {
    const std::optional<Shape> shape = call.tensor(i);
    if (!shape) continue;
    any = true;
    const int rank = std::max(result.rank, shape->rank);
    Shape merged;
    merged.rank = rank;
    for (int d = 1; d <= rank; ++d) {
      const int64_t left = result.back(d), right = shape->back(d);
      if (left != right && left != 1 && right != 1) return WorkOutcome::kBadShape;
      const int64_t size = left == 1 ? right : left;
      merged.dims[static_cast<size_t>(rank - d)] = size;
      if (__builtin_mul_overflow(merged.elements, size, &merged.elements)) return WorkOutcome::kBadShape;
    }
    if (merged.elements > kMaxElements) return WorkOutcome::kBadShape;
    result = merged;
    out.bytes += call.read(i);
  }
  if (!any) return WorkOutcome::kBadShape;
  out.kind = WorkKind::kPointwise;
  out.dtype = promoted(call.shapes);
  set_rows(out, result);
  const double written = as_double(result.elements);
  out.flops = out.flops_full = written;
  out.bytes += size_bytes(written, call.rule.kind == OpRuleKind::kCompare ? DType::kBool : out.dtype);
  return WorkOutcome::kWork;
}

WorkOutcome masked_traffic(const Call& call, WorkShape& out) {
  const OpRule& rule = call.rule;
  const bool scatter = rule.kind == OpRuleKind::kScatter;
  double written = 0;
  std::optional<Shape> largest;
  for (int i = 0; i < 16; ++i) {
    const bool reads = (rule.reads >> i & 1) != 0;
    const bool writes = (rule.writes >> i & 1) != 0 || (scatter && reads);
    if (!reads && !writes) continue;
    const std::optional<Shape> shape = call.tensor(i);
    if (!shape) {
      // The first written tensor has to be there; others may be scalars.
      if (writes) return WorkOutcome::kBadShape;
      continue;
    }
    if (reads) out.bytes += call.read(i);
    if (writes) {
      out.bytes += size_bytes(as_double(shape->elements), call.shapes.dtype(i));
      written += as_double(shape->elements);
    }
    if (writes && (!largest || shape->elements > largest->elements)) {
      largest = shape;
      out.dtype = call.shapes.dtype(i);
    }
  }
  if (!largest) return WorkOutcome::kBadShape;
  out.kind = WorkKind::kPointwise;
  set_rows(out, *largest);
  out.flops = out.flops_full = rule.kind == OpRuleKind::kInPlace ? written : 0;
  return WorkOutcome::kWork;
}

WorkOutcome reduction(const Call& call, WorkShape& out) {
  const std::optional<Shape> a = call.tensor(call.rule.a);
  if (!a) return WorkOutcome::kBadShape;
  out.kind = WorkKind::kReduction;
  out.dtype = call.shapes.dtype(call.rule.a);
  set_rows(out, *a);
  out.flops = out.flops_full = as_double(a->elements);
  if (call.rule.kind == OpRuleKind::kRowwise) {
    for (int i = 0; i < call.shapes.size(); ++i) out.bytes += call.read(i);
    out.bytes += size_bytes(as_double(a->elements), out.dtype);
    return WorkOutcome::kWork;
  }
  int64_t left = a->elements;
  const std::optional<Integers> dims = call.shapes.integers(call.rule.dim);
  if (!dims || dims->empty()) {
    left = std::min<int64_t>(left, 1);
  } else {
    for (int64_t dim : *dims) {
      if (dim < 0) dim += a->rank;
      if (dim < 0 || dim >= std::max(a->rank, 1)) return WorkOutcome::kBadShape;
      const int64_t size = a->rank == 0 ? 1 : (*a)[static_cast<int>(dim)];
      left = size == 0 ? 0 : left / size;
    }
  }
  out.bytes = call.read(call.rule.a) + size_bytes(as_double(left), out.dtype);
  return WorkOutcome::kWork;
}

WorkOutcome concat(const Call& call, WorkShape& out) {
  const std::vector<Shape> list = call.shapes.tensors(call.rule.a);
  if (list.empty()) return WorkOutcome::kUnknown;
  int64_t elements = 0;
  int64_t last = 0;
  for (const Shape& shape : list) {
    if (__builtin_add_overflow(elements, shape.elements, &elements) || elements > kMaxElements) {
      return WorkOutcome::kBadShape;
    }
    if (shape.elements > 0) last = shape.back(1);
  }
  out.kind = WorkKind::kPointwise;
  out.n = std::max<int64_t>(last, 1);
  out.m = elements / out.n;
  // The recorder says "TensorList" and no element type; the kernel's name holds the element size.
  out.dtype = call.shapes.dtype(call.rule.a);
  const double each = call.hint.element_bytes > 0 ? call.hint.element_bytes : dtype_bytes(out.dtype);
  out.bytes = each > 0 ? 2 * as_double(elements) * each : kNaN;
  return WorkOutcome::kWork;
}

}  // namespace

WorkOutcome compute_work(const OpRule& rule, const SignatureShapes& shapes, const KernelHint& hint, WorkShape& out) {
  out = kNoWork;
  if (!shapes.readable()) return WorkOutcome::kBadShape;
  if (shapes.size() == 0) return WorkOutcome::kUnknown;
  const Call call{rule, shapes, hint};
  switch (rule.kind) {
    case OpRuleKind::kMm:
    case OpRuleKind::kLinear:
    case OpRuleKind::kInt4Linear:
    case OpRuleKind::kBmm:
    case OpRuleKind::kMv:
      return plain_gemm(call, out);
    case OpRuleKind::kMatmul:
      return matmul(call, out);
    case OpRuleKind::kGroupedMm:
      return grouped_gemm(call, out);
    case OpRuleKind::kConvolution:
      return convolution(call, out);
    case OpRuleKind::kAttention:
    case OpRuleKind::kAttentionTokenFirst:
      return attention(call, out);
    case OpRuleKind::kAttentionOpaque:
      return WorkOutcome::kUnknown;
    case OpRuleKind::kGatherRows:
    case OpRuleKind::kGatherElements:
      return gather(call, out);
    case OpRuleKind::kPointwise:
    case OpRuleKind::kCompare:
      return pointwise(call, out);
    case OpRuleKind::kMove:
    case OpRuleKind::kScatter:
    case OpRuleKind::kInPlace:
      return masked_traffic(call, out);
    case OpRuleKind::kReduce:
    case OpRuleKind::kRowwise:
      return reduction(call, out);
    case OpRuleKind::kConcat:
      return concat(call, out);
    case OpRuleKind::kCount:
      break;
  }
  return WorkOutcome::kUnknown;
}

namespace {

// Causal as a library says it: query i sees the keys up to i, so further keys are never read.
bool library_attention_work(const LibraryCalls& calls, Row call, WorkShape& out) {
  const int64_t heads = calls.heads[call], kv_heads = calls.kv_heads[call], value_size = calls.value_size[call];
  if (calls.k[call] <= 0 || calls.k[call] > kMaxElements || value_size <= 0) return false;
  const int64_t sizes[] = {calls.batch[call], heads, calls.m[call], calls.n[call], calls.k[call] + value_size};
  int64_t product = 1;
  for (const int64_t size : sizes) {
    if (size <= 0 || size > kMaxElements / product) return false;
    product *= size;
  }
  if (kv_heads <= 0 || heads % kv_heads != 0) return false;
  ops::Attention a{calls.batch[call], heads, kv_heads, calls.m[call], calls.n[call], calls.k[call], value_size};
  if (calls.mask[call] == AttentionMask::kCausal) a.mask = ops::AttentionMask::kCausalFromFirst;
  out.dtype = calls.dtype[call];
  out.weight_dtype = calls.weight_dtype[call];
  set_attention(a, out);
  out.bytes =
      size_bytes(a.query_elements(), out.dtype) + out.kv_bytes + size_bytes(a.result_elements(), calls.out_dtype[call]);
  return true;
}

}  // namespace

bool library_call_work(const LibraryCalls& calls, Row call, const KernelHint& hint, WorkShape& out) {
  out = kNoWork;
  out.kind = calls.kind[call];
  if (out.kind == WorkKind::kAttention) return library_attention_work(calls, call, out);
  if (out.kind != WorkKind::kGemm && out.kind != WorkKind::kConvolution) return false;
  const int64_t sizes[] = {calls.batch[call], calls.m[call], calls.n[call], calls.k[call]};
  int64_t product = 1;
  for (const int64_t size : sizes) {
    if (size <= 0 || size > kMaxElements / product) return false;
    product *= size;
  }
  out.batch = sizes[0];
  out.m = sizes[1];
  out.n = sizes[2];
  out.k = sizes[3];
  out.dtype = hint.tf32 && calls.dtype[call] == DType::kFp32 ? DType::kTf32 : calls.dtype[call];
  out.weight_dtype = calls.weight_dtype[call];
  const ops::Gemm gemm{as_double(out.batch), as_double(out.m), as_double(out.n), as_double(out.k)};
  out.flops = out.flops_full = gemm.flops();
  const double second = size_bytes(gemm.b_elements(), out.weight_dtype);
  out.bytes = size_bytes(gemm.a_elements(), calls.dtype[call]) + second +
              size_bytes(gemm.result_elements(), calls.out_dtype[call]);
  out.weight_bytes = out.batch == 1 ? second : 0;
  return true;
}

std::string shape_text(const WorkShape& work) {
  switch (work.kind) {
    case WorkKind::kGemm:
    case WorkKind::kConvolution:
      if (work.batch != 1) return fmt::format("B{} M{} N{} K{}", work.batch, work.m, work.n, work.k);
      return fmt::format("M{} N{} K{}", work.m, work.n, work.k);
    case WorkKind::kAttention:
      return fmt::format("B{} H{}/{} Q{} KV{} D{}{}", work.batch, work.heads, work.kv_heads, work.m, work.n, work.k,
                         work.mask == AttentionMask::kCausal ? " causal" : "");
    default:
      return fmt::format("{}x{}", work.m, work.n);
  }
}

}  // namespace llmprof
