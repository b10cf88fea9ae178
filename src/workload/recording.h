// A run on the CPU as a recording, without a profiler: every operator notes when it ran and on what shapes, the stages
// note theirs, the CPU is probed for its pace every 5 ms, and the result is a Trace as importers fill it. The CPU is
// its device, each operator one activity on it.
//
// Operators are called as PyTorch, vLLM and the like call theirs where they do the same, so that the rules of
// `llmprof list rules` give their FLOPs and bytes; others are llmprof::NAME.
#pragma once

#include <string>
#include <vector>

#include "base/cpu_wait.h"
#include "trace/trace_builder.h"
#include "workload/backend.h"
#include "workload/run.h"
#include "workload/stages.h"

namespace llmprof::workload {

class Recording : public StageListener, public HostListener {
 public:
  explicit Recording(const device::DeviceIdentity& device);

  void begin(std::string_view stage, const StageWork& work) override;
  void end() override;
  void host_operator(std::string_view name, int64_t start_ns, int64_t end_ns) override;

  // Texts as SignatureText has them; the kernel is what ran the operator.
  struct Call {
    std::string_view name, kernel;
    std::string dims, types, concrete;
    int64_t bytes = -1;  // of a copy
  };
  void add(const Call& call, int64_t start_ns, int64_t end_ns);

  // Ends the recording; times count from the first thing recorded. `facts` become metadata.
  Trace take(const std::vector<std::pair<std::string, std::string>>& facts);

 private:
  void probe_pace();

  Trace trace_;
  TraceBuilder builder_{trace_};
  ThreadId thread_;
  StreamId stream_;
  std::vector<AnnotationId> open_;
  ProcessCpuWait waits_;
  int64_t probed_ns_ = 0;
};

// Passes everything on to `to` and notes each operator. For backends whose operators are done when they return.
class RecordedBackend : public Backend {
 public:
  RecordedBackend(Backend& to, Recording& recording) : to_(to), recording_(recording) {}

  const device::DeviceIdentity& identity() const override { return to_.identity(); }
  DType dtype() const override { return to_.dtype(); }
  int64_t free_bytes() const override { return to_.free_bytes(); }
  Result<Tensor> allocate(int64_t rows, int64_t columns, DType dtype) override {
    return to_.allocate(rows, columns, dtype);
  }
  Result<Tensor> weights(int64_t rows, int64_t columns, const Numbers& numbers) override {
    return to_.weights(rows, columns, numbers);
  }
  Result<Linear> linear(int64_t in, int64_t out, const Numbers& w, const std::optional<Numbers>& bias, DType out_dtype,
                        std::span<const int64_t> rows) override {
    return to_.linear(in, out, w, bias, out_dtype, rows);
  }
  Status prepare(const AttentionCall& call) override { return to_.prepare(call); }
  Status upload(const Tensor& to, const void* from) override { return to_.upload(to, from); }
  Status download(const Tensor& from, void* to) override { return to_.download(from, to); }
  Status wait() override { return to_.wait(); }
  std::vector<std::string> notes() const override { return to_.notes(); }

  Status apply(const Linear& linear, const Tensor& x, const Tensor& out) override;
  Status gather(const Tensor& table, const Tensor& ids, const Tensor& out) override;
  Status copy(const Tensor& x, const Tensor& out) override;
  Status add(const Tensor& x, const Tensor& to) override;
  Status rmsnorm(const Tensor& x, const Tensor* residual, const Tensor& gain, const Tensor& out) override;
  Status layernorm(const Tensor& x, const Tensor& gain, const Tensor& bias, const Tensor& out) override;
  Status gelu(const Tensor& x, const Tensor& out) override;
  Status swiglu(const Tensor& x, const Tensor& out) override;
  Status rope(const Tensor& x, int64_t heads, int64_t kv_heads, int64_t head_size, const Tensor& angles,
              const Tensor& positions) override;
  Status append(const Tensor& qkv, int64_t query_width, const Tensor& positions, int64_t sequences,
                const Cache& cache) override;
  Status attention(const AttentionCall& call) override;
  Status merge(const Tensor& x, int64_t merge, const Tensor& out) override;
  Status argmax(const Tensor& x, const Tensor& out) override;
  // Counting is no operator that a report should know.
  Status advance(const Tensor& numbers) override { return to_.advance(numbers); }

 private:
  template <class Body>
  Status noted(const Recording::Call& call, Body&& body);

  Backend& to_;
  Recording& recording_;
};

}  // namespace llmprof::workload
