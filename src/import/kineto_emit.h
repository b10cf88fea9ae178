// Turns a scanned event into rows of its block: what each category means, which fields it needs, and what is counted as
// a diagnostic. docs/formats/kineto.md lists the same in words.
#pragma once

#include "import/kineto_block.h"
#include "import/kineto_event.h"

namespace llmprof::kineto {

class Emitter {
 public:
  explicit Emitter(Block& block) : block_(block) {}
  // `at` is where the event starts in block.bytes, for diagnostics.
  void add(const Event& event, const char* at);

 private:
  enum class Kind : uint8_t {
    kIgnored,
    kUnknown,
    kOp,
    kAnnotation,
    kGpuAnnotation,
    kPython,
    kRuntime,
    kDriver,
    kKernel,
    kMemcpy,
    kMemset,
    kSync,
    kOverhead,
    kEvent
  };
  static Kind kind_of(std::string_view category);

  void add_complete(const Event& event, const char* at);
  void add_instant(const Event& event, const char* at);
  void add_metadata(const Event& event);
  void add_counter(const Event& event, const char* at);
  void add_op(const Event& event, int64_t start_ns, int64_t dur_ns);
  void add_gpu_op(const Event& event, GpuOpKind kind, int64_t start_ns, int64_t dur_ns);

  void problem(DiagnosticId id, const char* at, const char* what = nullptr);
  StringId intern(const Field& field);
  ThreadId thread_of(const Event& event);
  StreamId stream_of(const Event& event);
  SignatureId signature_of(const Event& event);
  LaunchConfigId config_of(const Event& event);
  static int64_t int_arg(const Event& event, Arg which, int64_t absent);
  static uint64_t uint_arg(const Event& event, Arg which);

  Block& block_;
  std::string_view last_category_;
  Kind last_kind_ = Kind::kUnknown;
  std::string_view last_process_, last_thread_;  // texts of the thread that was looked up last
  ThreadId last_thread_row_;
  int64_t last_stream_key_[3] = {-2, -2, -2};
  StreamId last_stream_row_;
};

}  // namespace llmprof::kineto
