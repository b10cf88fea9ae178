// The enumerators of trace/tables.h as words, as exported tables have them. metrics.md names them with the columns.
#pragma once

#include <string_view>

#include "trace/tables.h"

namespace llmprof::exporting {

std::string_view word_of(AnnotationKind kind);
std::string_view word_of(ApiLayer layer);
std::string_view word_of(ProcessorKind kind);
std::string_view word_of(GpuOpKind kind);
std::string_view word_of(CopyPath path);
std::string_view word_of(HostMemory memory);
std::string_view word_of(AttentionMask mask);
std::string_view word_of(CounterSource source);
std::string_view word_of(InputKind kind);
std::string_view word_of(PlaceKind kind);
std::string_view word_of(RecordingLevel level);
std::string_view word_of(MissingKernels missing);
std::string_view word_of(StepState state);
std::string_view word_of(StepPhase phase);
inline std::string_view word_of(StageKind kind) { return name_of(kind); }
inline std::string_view word_of(StageSource source) { return name_of(source); }
inline std::string_view word_of(WarmUpCause cause) { return name_of(cause); }
inline std::string_view word_of(Category category) { return category_name(category); }
inline std::string_view word_of(IdleCause cause) { return idle_cause_name(cause); }
inline std::string_view word_of(WorkKind kind) { return work_kind_name(kind); }
inline std::string_view word_of(DType dtype) { return dtype_name(dtype); }

}  // namespace llmprof::exporting
