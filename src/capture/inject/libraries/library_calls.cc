#include "capture/inject/libraries/library_calls.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "capture/inject/threads/host_pace.h"
#include "capture/inject/threads/reentry_guard.h"
#include "nvidia/cublas_abi.h"

namespace llmprof::inject {

namespace {

// The widest GEMM that was called (weights of the output projection, usually once a step): its calls recur in each
// step.
std::atomic<uint64_t> widest{0};

// A product with weights, as far as its shape tells.
bool is_linear(const CallShape& shape) {
  return shape.kind == kWorkGemm && shape.batch == 1 && shape.m > 0 && shape.k > 0 && shape.groups == 0;
}

bool is_widest(const CallShape& shape) {
  // The operand that does not depend on how many tokens there are: A as column-major callers have it, else B.
  uint64_t weights = static_cast<uint64_t>(shape.row_major != 0 ? shape.n : shape.m) * static_cast<uint64_t>(shape.k);
  uint64_t known = widest.load(std::memory_order_relaxed);
  while (weights > known && !widest.compare_exchange_weak(known, weights, std::memory_order_relaxed)) {
  }
  return weights >= known;
}

const char* epilogue_name(int32_t epilogue) {
  switch (epilogue) {
#define LLMPROF_EPILOGUE(value, name) \
  case value:                         \
    return #name;
    LLMPROF_CUBLASLT_EPILOGUES(LLMPROF_EPILOGUE)
#undef LLMPROF_EPILOGUE
    default:
      return nullptr;
  }
}

const char* scale_name(int32_t mode) {
  switch (mode) {
    case cublas::kScaleVec16Ue4m3:
      return "VEC16_UE4M3";
    case cublas::kScaleVec32Ue8m0:
      return "VEC32_UE8M0";
    case cublas::kScaleOuterVec:
      return "OUTER_VEC_32F";
    case cublas::kScaleVec128:
      return "VEC128_32F";
    case cublas::kScaleBlock128x128:
      return "BLK128x128_32F";
    default:
      return nullptr;
  }
}

// Appends to a text of bounded size.
class Text {
 public:
  Text(char* data, size_t size) : data_(data), size_(size) { data[0] = 0; }

  __attribute__((format(printf, 2, 3))) void add(const char* format, ...) {
    if (length_ + 1 >= size_) return;
    va_list arguments;
    va_start(arguments, format);
    int written = vsnprintf(data_ + length_, size_ - length_, format, arguments);
    va_end(arguments);
    if (written > 0) length_ += static_cast<size_t>(written);
    if (length_ >= size_) length_ = size_ - 1;
  }
  void add_dims(const char* label, const int32_t* dims, int count) {
    add("%s%s ", length_ > 0 ? ", " : "", label);
    for (int i = 0; i < count; ++i) add(i > 0 ? "x%d" : "%d", dims[i]);
  }
  size_t length() const { return length_; }

 private:
  char* data_;
  size_t size_;
  size_t length_ = 0;
};

Id define(const CallShape& shape, spool::Writer& writer) {
  spool::LibraryDef def;
  def.function = writer.text(shape.function);
  def.kind = shape.kind;
  def.m = shape.m;
  def.n = shape.n;
  def.k = shape.k;
  def.batch = shape.batch;
  def.type_a = shape.type_a;
  def.type_b = shape.type_b;
  def.type_d = shape.type_d;
  def.compute_type = shape.compute_type;
  def.transpose_a = shape.transpose_a;
  def.transpose_b = shape.transpose_b;
  def.row_major = shape.row_major;
  def.heads = shape.heads;
  def.kv_heads = shape.kv_heads;
  def.value_size = shape.value_size;
  def.mask = shape.mask;
  if (shape.epilogue != 0 && shape.epilogue != 1) {
    char number[24];
    const char* name = epilogue_name(shape.epilogue);
    if (name == nullptr) {
      snprintf(number, sizeof(number), "%d", shape.epilogue);
      name = number;
    }
    def.epilogue = writer.text(name);
  }
  char detail[256];
  size_t length = call_detail(shape, detail, sizeof(detail));
  if (length > 0) def.detail = writer.text({detail, length});
  return writer.define(def);
}

// A convolution's arrays are the larger half: hashed only where they are used.
uint64_t hash_of(const CallShape& shape) {
  return XXH3_64bits(&shape, shape.dimensions > 0 ? sizeof(CallShape) : offsetof(CallShape, input));
}

Id definition_id(ThreadLog& log, const CallShape& shape, uint64_t hash) {
  CachedShape& cached = log.shapes[hash % kShapeCacheSize];
  if (cached.hash == hash && cached.id != 0) return cached.id;
  ReentryGuard guard;
  if (guard.nested()) return 0;
  SpoolAccess access;
  if (access.writer() == nullptr) return 0;
  cached = {hash, define(shape, *access.writer())};
  return cached.id;
}

}  // namespace

size_t call_detail(const CallShape& shape, char* data, size_t size) {
  Text text(data, size);
  if (shape.gemv != 0) text.add("gemv");
  if (shape.groups > 0) text.add("%s%d groups", text.length() > 0 ? ", " : "", shape.groups);
  const char* scale_a = scale_name(shape.scale_a);
  const char* scale_b = scale_name(shape.scale_b);
  if (scale_a != nullptr) text.add("%sA scale %s", text.length() > 0 ? ", " : "", scale_a);
  if (scale_b != nullptr) text.add("%sB scale %s", text.length() > 0 ? ", " : "", scale_b);
  if (shape.dimensions > 0) {
    int spatial = shape.dimensions - 2;
    text.add_dims("input", shape.input, shape.dimensions);
    text.add_dims("filter", shape.filter, shape.dimensions);
    text.add_dims("stride", shape.stride, spatial);
    text.add_dims("padding", shape.padding, spatial);
    text.add_dims("dilation", shape.dilation, spatial);
    if (shape.conv_groups > 1) text.add(", %d groups", shape.conv_groups);
  }
  if (shape.kind == kWorkAttention && shape.m < 0) {
    text.add("lengths known at run time, at most %d queries", shape.queries_max);
    if (shape.paged != 0)
      text.add(", keys in pages");
    else
      text.add(" and %d keys", shape.keys_max);
  }
  if (shape.mask == kMaskUnknown) text.add(shape.m < 0 ? ", mask not known" : "mask not known, all pairs counted");
  return text.length();
}

Id call_definition(ThreadLog& log, const CallShape& shape) { return definition_id(log, shape, hash_of(shape)); }

CallScope::CallScope(const CallShape& shape, const Matrices& matrices) : matrices_(matrices) {
  ThreadLog* log = thread_log();
  if (log == nullptr) return;
  constexpr uint32_t kCallsBetween = 16;  // looks at the clock
  if (++thread_state.library_calls % kCallsBetween == 0) probe_host_pace(*log, now_ns());
  const bool linear = is_linear(shape);
  recurs_ = linear && is_widest(shape);
  rows_ = shape.row_major != 0 ? shape.m : shape.n;
  tells_rows_ = linear && tells_of_pass(rows_);
  // While CUPTI is out of the process there are no kernels that the call could be joined with, nor graphs that it is
  // captured in. What tells the steps is all that is wanted then: the rest only brings data of ours into the caches.
  const bool left = switches.cupti_left.load(std::memory_order_relaxed);
  if (left && !recurs_ && !tells_rows_) {
    thread_state.passes_over = passes_over_ = true;
    return;
  }
  shape_hash_ = hash_of(shape);
  definition_ = definition_id(*log, shape, shape_hash_);
  if (definition_ == 0) return;
  log_ = log;
  record_ = records_ranges() && !left;
  thread_state.call_asked = false;
  thread_state.call_start_ns = record_ || recurs_ || tells_rows_ ? now_ns() : 0;
  thread_state.call = next_handle(*log);
}

void CallScope::add_matrices() {
  if (matrices_.d == nullptr) return;
  Event event;
  event.kind = EventKind::kOperands;
  event.handle = thread_state.call;
  event.start_ns = static_cast<int64_t>(reinterpret_cast<uintptr_t>(matrices_.a));
  event.end_ns = static_cast<int64_t>(reinterpret_cast<uintptr_t>(matrices_.b));
  const uint64_t d = reinterpret_cast<uintptr_t>(matrices_.d);
  memcpy(&event.payload, &d, sizeof d);
  append(*log_, event);
}

void CallScope::end(bool succeeded) {
  if (passes_over_) thread_state.passes_over = false;
  if (log_ == nullptr) return;
  ThreadState& state = thread_state;
  // A graph captured while nothing is recorded is replayed when everything is: its calls are kept.
  if (state.call_asked || (record_ && succeeded)) {
    Event event;
    event.kind = EventKind::kLibraryCall;
    event.handle = state.call;
    event.definition = definition_;
    event.start_ns = state.call_start_ns;
    event.end_ns = now_ns();
    append(*log_, event);
    add_matrices();
  }
  if (tells_rows_ && succeeded) add_product_rows(*log_, rows_, state.call_start_ns);
  if (recurs_ && succeeded) add_recurring_call(*log_, shape_hash_, state.call_start_ns);
  state.call = 0;
}

}  // namespace llmprof::inject
