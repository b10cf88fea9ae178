#include "workload/recording.h"

#include <fmt/format.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <limits>

#include "base/pace_work.h"

namespace llmprof::workload {
namespace {

using Dims = std::vector<std::vector<int64_t>>;

// "[[4, 8], [], [8]]": an empty list for an input that is no tensor.
std::string dims_text(const Dims& inputs) {
  std::string text = "[";
  for (const std::vector<int64_t>& dims : inputs)
    text += fmt::format("{}[{}]", text.size() > 1 ? ", " : "", fmt::join(dims, ", "));
  return text + "]";
}

std::string_view type_text(DType dtype) {
  if (dtype == DType::kBf16) return "c10::BFloat16";
  return dtype == DType::kInt32 ? "int" : "float";
}

// One for each of `inputs`: tensors are of the given types in turn (the last for the rest), others have none.
std::string types_text(const Dims& inputs, const std::vector<DType>& dtypes) {
  std::string text = "[";
  size_t tensor = 0;
  for (const std::vector<int64_t>& dims : inputs) {
    if (text.size() > 1) text += ", ";
    text += dims.empty() ? "\"\"" : fmt::format("\"{}\"", type_text(dtypes[std::min(tensor++, dtypes.size() - 1)]));
  }
  return text + "]";
}

std::vector<int64_t> dims_of(const Tensor& tensor) { return {tensor.rows, tensor.columns}; }

Recording::Call call_of(std::string_view name, std::string_view kernel, const Dims& inputs,
                        const std::vector<DType>& dtypes, std::string concrete = {}) {
  return {name, kernel, dims_text(inputs), types_text(inputs, dtypes), std::move(concrete), -1};
}

}  // namespace

Recording::Recording(const device::DeviceIdentity& device) {
  trace_.source.kind = "llmprof";
  thread_ = builder_.thread(getpid(), syscall(SYS_gettid), builder_.text("workload"));
  stream_ = builder_.stream(0, -1, 0);
  builder_.add<Devices>({.device = 0,
                         .name = builder_.text(device.name),
                         .sm_count = device.units,
                         .memory_bytes = device.memory_bytes > 0 ? device.memory_bytes : -1,
                         .uuid = builder_.text(device.key),
                         .kind = device.kind == device::DeviceKind::kCpu ? ProcessorKind::kCpu : ProcessorKind::kGpu});
}

void Recording::begin(std::string_view stage, const StageWork&) {
  open_.push_back(builder_.add<Annotations>({.start_ns = clock_ns(),
                                             .dur_ns = 0,
                                             .thread = thread_,
                                             .name = builder_.text(stage),
                                             .kind = AnnotationKind::kUser}));
}

void Recording::end() {
  if (open_.empty()) return;
  const AnnotationId row = open_.back();
  open_.pop_back();
  trace_.annotations.dur_ns[row] = clock_ns() - trace_.annotations.start_ns[row];
}

void Recording::host_operator(std::string_view name, int64_t start_ns, int64_t end_ns) {
  const std::string full = "llmprof::" + std::string(name);
  add({full, name, {}, {}, {}, -1}, start_ns, end_ns);
}

// As the recorder's probes (capture/inject/threads/host_pace.h), of whichever thread waited longest.
void Recording::probe_pace() {
  constexpr int64_t kProbeEveryNs = 5'000'000;
  const int64_t start_ns = clock_ns();
  if (start_ns - probed_ns_ < kProbeEveryNs) return;
  const int64_t waited_ns = waits_.since_last_ns();
  const int64_t begin_ns = clock_ns();
  asm volatile("" ::"r"(pace_work()));
  probed_ns_ = clock_ns();
  builder_.add<HostPaces>(
      {.start_ns = begin_ns, .dur_ns = probed_ns_ - begin_ns, .thread = thread_, .waited_ns = waited_ns});
}

// An operator, the call that ran it, and what ran: all three at the same time, because the CPU is host and device.
void Recording::add(const Call& call, int64_t start_ns, int64_t end_ns) {
  const uint64_t id = trace_.ops.size() + 1;
  const int64_t dur_ns = end_ns - start_ns;
  SignatureId signature;
  if (!call.dims.empty())
    signature = builder_.signature({.dims = call.dims, .types = call.types, .concrete = call.concrete});
  builder_.add<Ops>({.start_ns = start_ns,
                     .dur_ns = dur_ns,
                     .thread = thread_,
                     .name = builder_.text(call.name),
                     .signature = signature,
                     .external_id = id});
  builder_.add<ApiCalls>({.start_ns = start_ns,
                          .dur_ns = dur_ns,
                          .thread = thread_,
                          .name = builder_.text("execute"),
                          .correlation = id,
                          .external_id = id});
  builder_.add<GpuOps>({.start_ns = start_ns,
                        .dur_ns = dur_ns,
                        .stream = stream_,
                        .name = builder_.text(call.kernel),
                        .correlation = id,
                        .external_id = id,
                        .kind = GpuOpKind::kKernel});
  probe_pace();
}

Trace Recording::take(const std::vector<std::pair<std::string, std::string>>& facts) {
  while (!open_.empty()) end();
  int64_t first = std::numeric_limits<int64_t>::max();
  for (const std::vector<int64_t>* const starts : {&trace_.annotations.start_ns, &trace_.ops.start_ns})
    if (!starts->empty()) first = std::min(first, starts->front());
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  trace_.base_unix_ns = int64_t{now.tv_sec} * 1000000000 + now.tv_nsec - (clock_ns() - first);
  for (std::vector<int64_t>* const starts :
       {&trace_.annotations.start_ns, &trace_.ops.start_ns, &trace_.api_calls.start_ns, &trace_.gpu_ops.start_ns,
        &trace_.host_paces.start_ns})
    for (int64_t& start : *starts) start -= first;
  for (const auto& [key, value] : facts) trace_.metadata[key] = value;
  return std::move(trace_);
}

// ---- operators
// -------------------------------------------------------------------------------------------------------

template <class Body>
Status RecordedBackend::noted(const Recording::Call& call, Body&& body) {
  const int64_t start = clock_ns();
  const Status status = body();
  recording_.add(call, start, clock_ns());
  return status;
}

Status RecordedBackend::apply(const Linear& linear, const Tensor& x, const Tensor& out) {
  Dims inputs = {dims_of(x), {linear.out, linear.in}, {}};
  if (linear.bias) inputs[2] = {linear.out};
  return noted(
      call_of("aten::linear", x.dtype == DType::kBf16 ? "onednn_matmul_bf16" : "onednn_matmul_fp32", inputs, {x.dtype}),
      [&] { return to_.apply(linear, x, out); });
}

Status RecordedBackend::gather(const Tensor& table, const Tensor& ids, const Tensor& out) {
  return noted(call_of("aten::index_select", "gather_rows", {dims_of(table), {}, {out.rows}},
                       {table.dtype, DType::kInt32}, "[\"\", \"0\", \"\"]"),
               [&] { return to_.gather(table, ids, out); });
}

Status RecordedBackend::copy(const Tensor& x, const Tensor& out) {
  return noted(call_of("aten::copy_", "copy_rows", {dims_of(out), dims_of(x)}, {x.dtype}),
               [&] { return to_.copy(x, out); });
}

Status RecordedBackend::add(const Tensor& x, const Tensor& to) {
  return noted(call_of("aten::add_", "add_elements", {dims_of(to), dims_of(x)}, {x.dtype}),
               [&] { return to_.add(x, to); });
}

Status RecordedBackend::rmsnorm(const Tensor& x, const Tensor* residual, const Tensor& gain, const Tensor& out) {
  const std::vector<int64_t> weights = {gain.columns};
  const Recording::Call call =
      residual == nullptr
          ? call_of("_C::rms_norm", "rms_norm", {dims_of(out), dims_of(x), weights}, {x.dtype})
          : call_of("_C::fused_add_rms_norm", "add_rms_norm", {dims_of(x), dims_of(*residual), weights}, {x.dtype});
  return noted(call, [&] { return to_.rmsnorm(x, residual, gain, out); });
}

Status RecordedBackend::layernorm(const Tensor& x, const Tensor& gain, const Tensor& bias, const Tensor& out) {
  return noted(call_of("aten::layer_norm", "layer_norm", {dims_of(x), {}, {gain.columns}, {bias.columns}}, {x.dtype}),
               [&] { return to_.layernorm(x, gain, bias, out); });
}

Status RecordedBackend::gelu(const Tensor& x, const Tensor& out) {
  return noted(call_of("aten::gelu", "gelu", {dims_of(x)}, {x.dtype}), [&] { return to_.gelu(x, out); });
}

Status RecordedBackend::swiglu(const Tensor& x, const Tensor& out) {
  return noted(call_of("_C::silu_and_mul", "swiglu", {dims_of(out), dims_of(x)}, {x.dtype}),
               [&] { return to_.swiglu(x, out); });
}

// vLLM's operator of this name takes positions, queries and keys; here both lie in one tensor.
Status RecordedBackend::rope(const Tensor& x, int64_t heads, int64_t kv_heads, int64_t head_size, const Tensor& angles,
                             const Tensor& positions) {
  return noted(call_of("_C::rotary_embedding", "rotary",
                       {{positions.columns}, {x.rows, heads * head_size}, {x.rows, kv_heads * head_size}},
                       {DType::kInt32, x.dtype}),
               [&] { return to_.rope(x, heads, kv_heads, head_size, angles, positions); });
}

Status RecordedBackend::append(const Tensor& qkv, int64_t query_width, const Tensor& positions, int64_t sequences,
                               const Cache& cache) {
  const int64_t width = (qkv.columns - query_width) / 2;
  return noted(
      call_of("_C_cache_ops::reshape_and_cache", "store_kv_cache", {{qkv.rows, width}, {qkv.rows, width}}, {qkv.dtype}),
      [&] { return to_.append(qkv, query_width, positions, sequences, cache); });
}

Status RecordedBackend::attention(const AttentionCall& call) {
  const std::vector<int64_t> q = {call.sequences, call.heads, call.queries, call.head_size},
                             kv = {call.sequences, call.kv_heads, call.keys, call.head_size};
  const bool causal = call.positions.has_value() && call.queries > 1;
  return noted(
      call_of("aten::scaled_dot_product_attention", "attention_kernel", {q, kv, kv, {}, {}, {}, {}, {}},
              {call.out.dtype},
              fmt::format("[\"\", \"\", \"\", \"\", \"0.\", \"{}\", \"\", \"True\"]", causal ? "True" : "False")),
      [&] { return to_.attention(call); });
}

Status RecordedBackend::merge(const Tensor& x, int64_t merge, const Tensor& out) {
  return noted(call_of("llmprof::merge_patches", "merge_patches", {dims_of(x)}, {x.dtype}),
               [&] { return to_.merge(x, merge, out); });
}

Status RecordedBackend::argmax(const Tensor& x, const Tensor& out) {
  return noted(call_of("aten::argmax", "argmax", {dims_of(x), {}, {}}, {x.dtype}, "[\"\", \"1\", \"False\"]"),
               [&] { return to_.argmax(x, out); });
}

}  // namespace llmprof::workload
