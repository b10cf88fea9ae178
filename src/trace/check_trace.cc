#include "trace/check_trace.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <type_traits>
#include <vector>

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
constexpr size_t enumerators<Category>() {
  return static_cast<size_t>(Category::kCount);
}
template <>
constexpr size_t enumerators<StageKind>() {
  return static_cast<size_t>(StageKind::kVision) + 1;
}
template <>
constexpr size_t enumerators<StageSource>() {
  return static_cast<size_t>(StageSource::kNvtx) + 1;
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

struct TableSize {
  std::string_view name;
  size_t rows;
};

// What one pass over the columns needs to know and counts.
struct Checker {
  Trace& trace;
  std::vector<TableSize> sizes;
  std::string_view table;
  size_t rows = 0;

  // No such table: 0 rows, so that every handle into it is out of range.
  size_t rows_of(std::string_view name) const {
    for (const TableSize& size : sizes)
      if (size.name == name) return size.rows;
    return 0;
  }
  void note(DiagnosticId id, const FieldInfo& field, uint64_t count, std::string_view what) {
    if (count != 0) trace.diagnostics.add(id, fmt::format("{}.{}: {}", table, field.name, what), count);
  }

  // Rows of threads and streams are indexed without asking, unless the sentence says that the column may be empty.
  static bool needs_owner(const FieldInfo& field, std::string_view target) {
    return (target == "threads" || target == "streams") && field.doc.find("kNoRow") == std::string_view::npos;
  }
  Row stand_in(std::string_view target) {
    const bool thread = target == "threads";
    size_t& rows_now =
        std::find_if(sizes.begin(), sizes.end(), [&](const TableSize& s) { return s.name == target; })->rows;
    const Row row = static_cast<Row>(rows_now);
    if (thread) {
      trace.threads.resize(++rows_now);
      trace.threads.process_id[row] = trace.threads.thread_id[row] = -1;
    } else {
      trace.streams.resize(++rows_now);
      trace.streams.device[row] = 0;
      trace.streams.context[row] = trace.streams.stream[row] = -1;
    }
    return row;
  }

  void check(const FieldInfo& field, std::vector<Row>& column) {
    const std::string_view target = table_named_by(field.doc);
    const size_t limit = rows_of(target);
    const bool owner = needs_owner(field, target);
    uint64_t bad = 0;
    for (const Row row : column) bad += row >= limit && (owner || row != kNoRow) ? 1U : 0U;
    if (bad == 0) return;
    const Row replacement = owner ? stand_in(target) : kNoRow;
    for (Row& row : column)
      if (row >= limit) row = replacement;
    note(DiagnosticId::kBadMetadata, field, bad, fmt::format("no such row in {}", target));
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

  void check(const FieldInfo& field, std::vector<int64_t>& column) {
    if (field.unit != "ns" || column.empty()) return;
    const bool duration = field.name == "dur_ns";
    // The usual case, in a loop that the compiler turns into vector instructions.
    const int64_t high = duration ? kTimeNsMax / static_cast<int64_t>(column.size()) : kTimeNsMax;
    const int64_t low = duration ? 0 : -kTimeNsMax;
    int64_t least = 0, most = 0;
    for (const int64_t ns : column) {
      least = std::min(least, ns);
      most = std::max(most, ns);
    }
    if (least < low || most > high) repair_times(field, column, duration);
  }

  void repair_times(const FieldInfo& field, std::vector<int64_t>& column, bool duration) {
    uint64_t negative = 0, huge = 0;
    int64_t sum = 0;
    for (int64_t& ns : column) {
      if (duration && ns < 0) {
        ns = 0;
        ++negative;
      } else if (ns > kTimeNsMax || ns < -kTimeNsMax || (duration && ns > kTimeNsMax - sum)) {
        ns = 0;
        ++huge;
      }
      if (duration) sum += ns;
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

std::string_view table_named_by(std::string_view doc) {
  for (const std::string_view mark : {std::string_view("ow in "), std::string_view("parallel to ")}) {
    const size_t at = doc.find(mark);
    if (at == std::string_view::npos) continue;
    const std::string_view rest = doc.substr(at + mark.size());
    return rest.substr(0, rest.find_first_not_of("abcdefghijklmnopqrstuvwxyz_"));
  }
  return {};
}

void check_trace(Trace& trace) {
  Checker checker{trace, {}, {}, 0};
  if (trace.base_unix_ns > kTimeNsMax || trace.base_unix_ns < -kTimeNsMax) {
    trace.diagnostics.add(DiagnosticId::kBadNumber, "base_unix_ns: more than 73 years from 1970, set to 0");
    trace.base_unix_ns = 0;
  }
  // A table whose columns disagree in length, or that is not parallel to the table it names, is of no use.
  trace.for_each_table([&](auto& table) {
    bool even = true;
    table.for_each_column([&](const FieldInfo&, const auto& column) { even = even && column.size() == table.size(); });
    if (!even) {
      trace.diagnostics.add(DiagnosticId::kBadMetadata,
                            fmt::format("{}: columns of unequal length", table.info().name));
      table.clear();
    }
    checker.sizes.push_back({table.info().name, table.size()});
  });
  trace.for_each_table([&](auto& table) {
    if (table.empty() || table.info().doc.find("parallel to ") == std::string_view::npos) return;
    const std::string_view target = table_named_by(table.info().doc);
    if (table.size() == checker.rows_of(target)) return;
    trace.diagnostics.add(DiagnosticId::kBadMetadata, fmt::format("{}: {} rows, {} has {}", table.info().name,
                                                                  table.size(), target, checker.rows_of(target)));
    table.clear();
  });
  checker.sizes.clear();
  trace.for_each_table([&](auto& table) { checker.sizes.push_back({table.info().name, table.size()}); });
  trace.for_each_table([&](auto& table) {
    checker.table = table.info().name;
    table.for_each_column([&](const FieldInfo& field, auto& column) { checker.check(field, column); });
  });
}

}  // namespace llmprof
