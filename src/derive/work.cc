// Which GPU activity carries which arithmetic. Every operator call with a rule (op_rules.cc) that launched something
// gives its work to exactly one activity, so sums over activities equal sums over operators:
//
//   - an activity belongs to the innermost operator with a rule around its launch;
//   - an operator that only wraps another one with arithmetic (aten::linear around aten::mm) has none of its own;
//   - of an operator's activities the one that does its kind of thing carries the work: the GEMM and not the sum of its
//     split-K parts, the attention kernel and not its reduction; among equals the longest;
//   - a pass over tensors with more elements than 32 bits count is launched in pieces, the same kernel again and again:
//     each carries its part.
//
// Where no operator tells, the call of a GPU math library does (GEMMs and convolutions; attention calls do not say what
// their mask keeps). The same rule chooses the activity, and each replay of a CUDA graph counts by itself. An operator
// that gives work to anything the library call launched wins: nothing is counted twice.
#include <algorithm>
#include <string>
#include <vector>

#include "base/flat_index.h"
#include "derive/derive.h"
#include "derive/kernel_rules.h"
#include "derive/op_rules.h"
#include "derive/work_formulas.h"
#include "trace/empty_columns.h"

namespace llmprof {
namespace {

// Operators are looked at this far outwards from a launch; deeper nesting only occurs in damaged files.
constexpr int kMaxDepth = 64;

constexpr uint8_t bit(WorkKind kind) { return static_cast<uint8_t>(1U << static_cast<unsigned>(kind)); }
constexpr uint8_t kMatrixKinds = bit(WorkKind::kGemm) | bit(WorkKind::kAttention) | bit(WorkKind::kConvolution);

// What a kernel's name says beyond its category.
struct KernelFacts {
  bool known = false;
  bool auxiliary = false;
  KernelHint hint;
};

KernelFacts kernel_facts(std::string_view name) {
  KernelFacts facts;
  facts.known = true;
  facts.auxiliary = is_auxiliary_kernel(name);
  facts.hint.tf32 = name.find("tf32") != std::string_view::npos || name.find("s1688gemm") != std::string_view::npos;
  // PyTorch's copying kernels are compiled per element size: OpaqueType<2u>, older ones OpaqueType<2>.
  constexpr std::string_view kOpaque = "OpaqueType<";
  if (const size_t at = name.find(kOpaque); at != std::string_view::npos) {
    unsigned size = 0;
    for (const char c : name.substr(at + kOpaque.size(), 2)) {
      if (c < '0' || c > '9') break;
      size = size * 10 + static_cast<unsigned>(c - '0');
    }
    if (size <= 16) facts.hint.element_bytes = static_cast<uint8_t>(size);
  }
  return facts;
}

bool same_kind(WorkKind work, Category category) {
  switch (work) {
    case WorkKind::kGemm:
      return category == Category::kGemm;
    case WorkKind::kAttention:
      return category == Category::kAttention;
    case WorkKind::kConvolution:
      return category == Category::kConvolution || category == Category::kGemm;
    case WorkKind::kGather:
      return category == Category::kEmbedding;
    default:
      return category != Category::kCopy;
  }
}

class WorkJoin {
 public:
  explicit WorkJoin(Trace& trace)
      : trace_(trace),
        rule_of_name_(trace.strings.size(), kUnseen),
        kernels_(trace.strings.size()),
        best_(trace.ops.size(), kNoRow),
        inside_(trace.ops.size(), 0),
        carried_(trace.ops.size(), 0) {}

  void run() {
    trace_.works.clear();
    make_empty(trace_.gpu_links.work, trace_.gpu_ops.size());
    make_empty(owner_of_, trace_.gpu_ops.size());
    for (size_t i = 0; i < trace_.gpu_ops.size(); ++i) offer(static_cast<Row>(i));
    for (const Row owner : owners_) carry(owner);
    share_among_pieces();
    take_library_calls();
    const size_t kept = std::min<size_t>(bad_shapes_, bad_places_.size());
    for (size_t i = 0; i < kept; ++i) trace_.diagnostics.add(DiagnosticId::kBadShape, bad_places_[i]);
    if (bad_shapes_ > kept) trace_.diagnostics.add(DiagnosticId::kBadShape, {}, bad_shapes_ - kept);
  }

 private:
  static constexpr int16_t kUnseen = -2;
  static constexpr int16_t kNoRule = -1;

  const OpRule* rule_of(OpId op) {
    const StringId name = trace_.ops.name[op];
    if (index(name) >= rule_of_name_.size()) return nullptr;
    int16_t& known = rule_of_name_[index(name)];
    if (known == kUnseen) {
      const OpRule* const rule = find_op_rule(trace_.text(name));
      known = rule == nullptr ? kNoRule : static_cast<int16_t>(rule - op_rules().data());
    }
    return known == kNoRule ? nullptr : &op_rules()[static_cast<size_t>(known)];
  }

  const KernelFacts& kernel(GpuOpId gpu) {
    const StringId name = trace_.gpu_ops.name[gpu];
    KernelFacts& facts = kernels_[index(name) < kernels_.size() ? index(name) : 0];
    if (!facts.known) facts = kernel_facts(trace_.text(name));
    return facts;
  }

  // How well an activity fits the work of an operator; 0: not at all.
  int fit(GpuOpId gpu, WorkKind kind) {
    const bool is_kernel = trace_.gpu_ops.kind[gpu] == GpuOpKind::kKernel;
    if (!is_kernel) return (bit(kind) & kMatrixKinds) != 0 ? 0 : 1;
    const bool same = same_kind(kind, trace_.gpu_links.category[gpu]);
    return (same ? 4 : 2) + (kernel(gpu).auxiliary ? 0 : 1);
  }

  void offer(GpuOpId gpu) {
    OpId op = trace_.gpu_links.op[gpu];
    const OpRule* rule = nullptr;
    int depth = 0;
    for (; op != kNoRow && depth < kMaxDepth; ++depth, op = trace_.op_links.parent[op]) {
      rule = rule_of(op);
      if (rule != nullptr) break;
    }
    if (rule == nullptr || op == kNoRow) return;
    const WorkKind kind = work_kind_of(rule->kind);
    const int offered = fit(gpu, kind);
    if (offered == 0) return;
    if (trace_.gpu_ops.kind[gpu] == GpuOpKind::kKernel && (bit(kind) & kMatrixKinds) == 0) owner_of_[gpu] = op;
    Row& best = best_[op];
    if (best == kNoRow) {
      best = gpu;
      owners_.push_back(op);
      mark_outer(op, kind);
      return;
    }
    const int standing = fit(best, kind);
    if (offered > standing || (offered == standing && trace_.gpu_ops.dur_ns[gpu] > trace_.gpu_ops.dur_ns[best])) {
      best = gpu;
    }
  }

  // Tells the operators around `op` that arithmetic of this kind happens inside them. Stops where that is known.
  void mark_outer(OpId op, WorkKind kind) {
    Row at = trace_.op_links.parent[op];
    for (int depth = 0; at != kNoRow && depth < kMaxDepth && (inside_[at] & bit(kind)) == 0; ++depth) {
      inside_[at] |= bit(kind);
      at = trace_.op_links.parent[at];
    }
  }

  bool only_wraps(Row owner, WorkKind kind) const {
    if ((bit(kind) & kMatrixKinds) != 0) return (inside_[owner] & kMatrixKinds) != 0;
    if (kind == WorkKind::kGather) return (inside_[owner] & bit(kind)) != 0;
    return inside_[owner] != 0;
  }

  void carry(Row owner) {
    const OpRule& rule = *rule_of(owner);
    const SignatureId signature = trace_.ops.signature[owner];
    if (signature >= trace_.signatures.size() || only_wraps(owner, work_kind_of(rule.kind))) return;
    const GpuOpId gpu = best_[owner];
    const KernelHint hint = kernel(gpu).hint;
    // Rule, hint and signature in one key: 9 bits, 6 bits, 32 bits.
    const uint64_t rule_index = static_cast<uint64_t>(&rule - op_rules().data());
    const uint64_t key = (rule_index + 1) << 48 | static_cast<uint64_t>(hint.element_bytes) << 40 |
                         static_cast<uint64_t>(hint.tf32) << 39 | signature;
    uint32_t& known = by_inputs_.find_or_insert(key, kUnknownYet);
    if (known == kUnknownYet) known = make_work(rule, signature, hint);
    if (known == kBad) {
      add_bad_shape(owner, signature);
    } else {
      trace_.gpu_links.work[gpu] = known;
      if (known != kNoRow && (bit(work_kind_of(rule.kind)) & kMatrixKinds) != 0) carried_[owner] = 1;
    }
  }

  // Of a pass that ran as several launches of one kernel each has its part of the work. Which part is not recorded; the
  // framework halves the largest dimension until the pieces fit, so they are alike.
  void share_among_pieces() {
    std::vector<uint32_t> pieces(best_.size(), 0);
    const auto carrier_of = [&](GpuOpId gpu) {
      const Row best = owner_of_[gpu] == kNoRow ? kNoRow : best_[owner_of_[gpu]];
      const bool piece = best != kNoRow && trace_.gpu_ops.name[best] == trace_.gpu_ops.name[gpu] &&
                         trace_.gpu_links.work[best] != kNoRow;
      return piece ? best : kNoRow;
    };
    for (GpuOpId gpu = 0; gpu < owner_of_.size(); ++gpu)
      if (carrier_of(gpu) != kNoRow) ++pieces[owner_of_[gpu]];
    FlatMap parts;
    std::vector<Row> part_of(best_.size(), kNoRow);
    for (const Row owner : owners_) {
      if (pieces[owner] < 2) continue;
      const Row whole = trace_.gpu_links.work[best_[owner]];
      uint32_t& known = parts.find_or_insert((uint64_t{pieces[owner]} << 32 | whole) + 1, kNoRow);
      if (known == kNoRow) known = append_part(whole, pieces[owner]);
      part_of[owner] = known;
    }
    // The carrier is overwritten last: until then it tells that there is work to share.
    for (GpuOpId gpu = 0; gpu < owner_of_.size(); ++gpu)
      if (const Row best = carrier_of(gpu); best != kNoRow && best != gpu && part_of[owner_of_[gpu]] != kNoRow)
        trace_.gpu_links.work[gpu] = part_of[owner_of_[gpu]];
    for (const Row owner : owners_)
      if (part_of[owner] != kNoRow) trace_.gpu_links.work[best_[owner]] = part_of[owner];
  }

  Row append_part(Row whole, uint32_t pieces) {
    WorkShape part = trace_.works.row(whole);
    for (double* const value : {&part.flops, &part.flops_full, &part.bytes, &part.weight_bytes, &part.kv_bytes})
      *value *= 1.0 / pieces;
    part.shape = trace_.strings.intern("1/" + std::to_string(pieces) + " of " + std::string(trace_.text(part.shape)));
    trace_.works.append(part);
    return static_cast<Row>(trace_.works.size() - 1);
  }

  // One library call, or one replay of the graph nodes that were captured under it.
  struct LibraryRun {
    LibraryCallId call;
    uint64_t launch;
    friend bool operator==(const LibraryRun&, const LibraryRun&) = default;
    uint64_t hash() const { return mix_bits(uint64_t{call} ^ mix_bits(launch)); }
  };

  void take_library_calls() {
    const std::vector<LibraryCallId>& calls = trace_.gpu_links.library_call;
    if (trace_.library_calls.empty() || calls.size() != trace_.gpu_ops.size()) return;
    FlatIndex<LibraryRun> runs;
    std::vector<Row> best;
    std::vector<uint8_t> told;  // by an operator
    for (GpuOpId gpu = 0; gpu < calls.size(); ++gpu) {
      const LibraryCallId call = calls[gpu];
      if (call == kNoRow) continue;
      const uint32_t run = runs.add({call, trace_.gpu_ops.graph_node[gpu] != 0 ? launch_of(gpu) : 0});
      if (run == best.size()) {
        best.push_back(kNoRow);
        told.push_back(0);
      }
      if (trace_.gpu_links.work[gpu] != kNoRow || operator_tells(gpu)) told[run] = 1;
      const WorkKind kind = trace_.library_calls.kind[call];
      const int offered = fit(gpu, kind);
      if (offered == 0) continue;
      const int standing = best[run] == kNoRow ? 0 : fit(best[run], kind);
      if (offered > standing ||
          (offered == standing && trace_.gpu_ops.dur_ns[gpu] > trace_.gpu_ops.dur_ns[best[run]])) {
        best[run] = gpu;
      }
    }
    for (uint32_t run = 0; run < best.size(); ++run) {
      if (best[run] == kNoRow || (told[run] != 0 && !lacks_type(best[run]))) continue;
      trace_.gpu_links.work[best[run]] = library_work(runs.key(run).call, kernel(best[run]).hint);
    }
  }

  // An operator without recorded element types: the library call around the same launch knows them.
  bool lacks_type(GpuOpId gpu) const {
    const WorkId work = trace_.gpu_links.work[gpu];
    return work != kNoRow && trace_.works.dtype[work] == DType::kUnknown;
  }

  uint64_t launch_of(GpuOpId gpu) const {
    const ApiCallId api = trace_.gpu_links.api[gpu];
    return api != kNoRow ? uint64_t{api} + 1 : trace_.gpu_ops.correlation[gpu] | uint64_t{1} << 63;
  }

  // Whether the innermost operator with arithmetic around the launch has given its work to an activity.
  bool operator_tells(GpuOpId gpu) {
    OpId op = trace_.gpu_links.op[gpu];
    for (int depth = 0; op != kNoRow && depth < kMaxDepth; ++depth, op = trace_.op_links.parent[op]) {
      if (carried_[op] != 0) return true;
      if (rule_of(op) != nullptr) return false;
    }
    return false;
  }

  Row library_work(Row call, const KernelHint& hint) {
    WorkShape work;
    return library_call_work(trace_.library_calls, call, hint, work) ? append(work) : kNoRow;
  }

  static constexpr uint32_t kUnknownYet = 0xFFFFFFFEU;
  static constexpr uint32_t kBad = 0xFFFFFFFDU;

  uint32_t make_work(const OpRule& rule, SignatureId signature, const KernelHint& hint) {
    WorkShape work;
    switch (compute_work(rule, SignatureShapes(trace_, signature), hint, work)) {
      case WorkOutcome::kWork:
        return append(work);
      case WorkOutcome::kBadShape:
        return kBad;
      case WorkOutcome::kUnknown:
        break;
    }
    return kNoRow;
  }

  // Row of an equal work, or a new one. Different signatures (strides, scalars) often mean the same arithmetic.
  Row append(WorkShape work) {
    work.shape = trace_.strings.intern(shape_text(work));
    return by_shape_.find_or_append(trace_.works, work);
  }

  void add_bad_shape(Row owner, SignatureId signature) {
    if (bad_places_.size() < Diagnostics::kKeptPlaces) {
      bad_places_.push_back(std::string(trace_.text(trace_.ops.name[owner]).substr(0, 80)) + " " +
                            std::string(trace_.text(trace_.signatures.dims[signature]).substr(0, 120)));
    }
    ++bad_shapes_;
  }

  Trace& trace_;
  std::vector<int16_t> rule_of_name_;
  std::vector<KernelFacts> kernels_;
  std::vector<Row> best_;         // by operator: the activity that fits its work best so far
  std::vector<OpId> owner_of_;    // by kernel: the operator that passes over tensors in it
  std::vector<uint8_t> inside_;   // by operator: kinds of work of the operators inside it
  std::vector<uint8_t> carried_;  // by operator: gave arithmetic to an activity
  std::vector<Row> owners_;       // operators with a rule and an activity
  FlatMap by_inputs_;
  RowIndex by_shape_;
  uint64_t bad_shapes_ = 0;
  std::vector<std::string> bad_places_;
};

}  // namespace

void attach_work(Trace& trace) { WorkJoin(trace).run(); }

}  // namespace llmprof
