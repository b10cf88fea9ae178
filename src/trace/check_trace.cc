#include "trace/check_trace.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "trace/signature.h"

namespace llmprof {
namespace {

template <class Enum>
constexpr size_t enumerators();
template <>
constexpr size_t enumerators<AnnotationKind>() {
  return static_cast<size_t>(AnnotationKind::kNvtx) + 1;
}
template <>
constexpr size_t enumerators<ApiLayer>() {
  return static_cast<size_t>(ApiLayer::kDriver) + 1;
}
template <>
constexpr size_t enumerators<ProcessorKind>() {
  return static_cast<size_t>(ProcessorKind::kCpu) + 1;
}
template <>
constexpr size_t enumerators<GpuOpKind>() {
  return static_cast<size_t>(GpuOpKind::kMemset) + 1;
}
template <>
constexpr size_t enumerators<CopyPath>() {
  return static_cast<size_t>(CopyPath::kCount);
}
template <>
constexpr size_t enumerators<HostMemory>() {
  return static_cast<size_t>(HostMemory::kPinned) + 1;
}
template <>
constexpr size_t enumerators<AttentionMask>() {
  return static_cast<size_t>(AttentionMask::kUnknown) + 1;
}
template <>
constexpr size_t enumerators<CounterSource>() {
  return static_cast<size_t>(CounterSource::kDcgm) + 1;
}
template <>
constexpr size_t enumerators<InputKind>() {
  return static_cast<size_t>(InputKind::kBoolean) + 1;
}
template <>
constexpr size_t enumerators<Category>() {
  return static_cast<size_t>(Category::kCount);
}
template <>
constexpr size_t enumerators<StageKind>() {
  return static_cast<size_t>(StageKind::kSpeculative) + 1;
}
template <>
constexpr size_t enumerators<StageSource>() {
  return static_cast<size_t>(StageSource::kNvtx) + 1;
}
template <>
constexpr size_t enumerators<MissingKernels>() {
  return static_cast<size_t>(MissingKernels::kAll) + 1;
}
template <>
constexpr size_t enumerators<StepState>() {
  return static_cast<size_t>(StepState::kWindowEdge) + 1;
}
template <>
constexpr size_t enumerators<StepPhase>() {
  return static_cast<size_t>(StepPhase::kWarmUp) + 1;
}
template <>
constexpr size_t enumerators<WarmUpCause>() {
  return static_cast<size_t>(WarmUpCause::kCount);
}
template <>
constexpr size_t enumerators<IdleCause>() {
  return static_cast<size_t>(IdleCause::kCount);
}
template <>
constexpr size_t enumerators<WorkKind>() {
  return static_cast<size_t>(WorkKind::kReduction) + 1;
}
template <>
constexpr size_t enumerators<DType>() {
  return static_cast<size_t>(DType::kCount);
}
template <>
constexpr size_t enumerators<RecordingLevel>() {
  return static_cast<size_t>(RecordingLevel::kDeep) + 1;
}
template <>
constexpr size_t enumerators<PlaceKind>() {
  return static_cast<size_t>(PlaceKind::kCodeSample) + 1;
}

// What one pass over the columns needs to know and counts.
struct Checker {
  Trace& trace;
  std::string_view table;

  void note(DiagnosticId id, const FieldInfo& field, uint64_t count, std::string_view what) {
    if (count != 0) trace.diagnostics.add(id, fmt::format("{}.{}: {}", table, field.name, what), count);
  }

  // Takes what belongs to no thread or stream that is known.
  Row stand_in(Threads& threads) {
    threads.append({});
    return static_cast<Row>(threads.size() - 1);
  }
  Row stand_in(Streams& streams) {
    streams.append({.device = 0});
    return static_cast<Row>(streams.size() - 1);
  }

  template <class Target>
  void check(const FieldInfo& field, std::vector<RowId<Target>>& column) {
    Target& target = trace.table<Target>();
    const size_t limit = target.size();
    const bool owner = field.role == ColumnRole::kOwner;
    uint64_t bad = 0;
    for (const Row row : column) bad += row >= limit && (owner || row != kNoRow) ? 1U : 0U;
    if (bad == 0) return;
    Row replacement = kNoRow;
    if constexpr (requires { stand_in(target); })
      if (owner) replacement = stand_in(target);
    for (RowId<Target>& row : column)
      if (row >= limit) row = replacement;
    note(DiagnosticId::kBadMetadata, field, bad, fmt::format("no such row in {}", Target::info().name));
  }

  void check(const FieldInfo& field, std::vector<StringId>& column) {
    const uint32_t limit = trace.strings.size();
    uint64_t bad = 0;
    for (const StringId id : column) bad += index(id) >= limit ? 1U : 0U;
    if (bad == 0) return;
    for (StringId& id : column)
      if (index(id) >= limit) id = StringId::kEmpty;
    note(DiagnosticId::kBadMetadata, field, bad, "no such string");
  }

  void check(const FieldInfo& field, std::vector<int64_t>& column) { check_times(field, column); }
  template <class T, T kZero>
  void check(const FieldInfo& field, HalvedColumn<T, kZero>& column) {
    if constexpr (std::is_same_v<T, int64_t>) check_times(field, column);
  }

  template <class Column>
  void check_times(const FieldInfo& field, Column& column) {
    const bool duration = field.role == ColumnRole::kDuration;
    if (column.empty() || field.role == ColumnRole::kValue) return;
    // The usual case, in a loop that the compiler turns into vector instructions.
    const int64_t high = duration ? kTimeNsMax / static_cast<int64_t>(column.size()) : kTimeNsMax;
    const int64_t low = duration ? 0 : -kTimeNsMax;
    int64_t least = 0, most = 0;
    for (const int64_t ns : std::as_const(column)) {
      least = std::min(least, ns);
      most = std::max(most, ns);
    }
    if (least < low || most > high) repair_times(field, column, duration);
  }

  template <class Column>
  void repair_times(const FieldInfo& field, Column& column, bool duration) {
    uint64_t negative = 0, huge = 0;
    int64_t sum = 0;
    for (size_t row = 0; row < column.size(); ++row) {
      const int64_t ns = column[row];
      const bool is_negative = duration && ns < 0;
      const bool is_huge = !is_negative && (ns > kTimeNsMax || ns < -kTimeNsMax || (duration && ns > kTimeNsMax - sum));
      negative += is_negative ? 1U : 0U;
      huge += is_huge ? 1U : 0U;
      if (is_negative || is_huge)
        column[row] = 0;
      else if (duration)
        sum += ns;
    }
    note(DiagnosticId::kNegativeDuration, field, negative, "set to 0");
    note(DiagnosticId::kBadNumber, field, huge, "more than 73 years, set to 0");
  }

  template <class T>
  void check(const FieldInfo& field, std::vector<T>& column) {
    if constexpr (std::is_enum_v<T>) {
      uint64_t bad = 0;
      for (T& value : column) {
        if (static_cast<size_t>(value) < enumerators<T>()) continue;
        value = T{};
        ++bad;
      }
      note(DiagnosticId::kBadMetadata, field, bad, "no such enumerator");
    }
  }
};

}  // namespace

void check_trace(Trace& trace) {
  Checker checker{trace, {}};
  if (trace.base_unix_ns > kTimeNsMax || trace.base_unix_ns < -kTimeNsMax) {
    trace.diagnostics.add(DiagnosticId::kBadNumber, "base_unix_ns: more than 73 years from 1970, set to 0");
    trace.base_unix_ns = 0;
  }
  // A table whose columns disagree in length, or that is not parallel to the table it belongs to, is of no use.
  trace.for_each_table([&](auto& table) {
    bool even = true;
    table.for_each_column([&](const FieldInfo&, const auto& column) { even = even && column.size() == table.size(); });
    if (even) return;
    trace.diagnostics.add(DiagnosticId::kBadMetadata, fmt::format("{}: columns of unequal length", table.info().name));
    table.clear();
  });
  trace.for_each_table([&]<class Table>(Table& table) {
    if constexpr (requires { typename Table::ParallelTo; }) {
      const auto& target = trace.table<typename Table::ParallelTo>();
      if (table.empty() || table.size() == target.size()) return;
      trace.diagnostics.add(DiagnosticId::kBadMetadata, fmt::format("{}: {} rows, {} has {}", table.info().name,
                                                                    table.size(), target.info().name, target.size()));
      table.clear();
    }
  });
  trace.for_each_table([&](auto& table) {
    checker.table = table.info().name;
    table.for_each_column([&](const FieldInfo& field, auto& column) { checker.check(field, column); });
  });
  uint64_t unsound = 0;
  for (SignatureId signature = 0; signature < trace.signatures.size(); ++signature) {
    if (SignatureShapes(trace, signature).sound()) continue;
    trace.signatures.input_count[signature] = -1;
    ++unsound;
  }
  if (unsound != 0) trace.diagnostics.add(DiagnosticId::kBadMetadata, "inputs: sizes that no tensor has", unsound);
}

}  // namespace llmprof
