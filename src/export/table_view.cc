#include "export/table_view.h"

#include <charconv>
#include <cmath>

#include "base/printable.h"
#include "export/value_names.h"

namespace llmprof::exporting {

#define LLMPROF_EXPORT_FACT_COLUMNS(C)     \
  C(StringId, key, "", "Name of the fact") \
  C(StringId, value, "", "Its value, as text")
LLMPROF_TABLE(Facts, "facts", "What the recording says of itself", LLMPROF_EXPORT_FACT_COLUMNS)

#define LLMPROF_EXPORT_WINDOW_COLUMNS(C)              \
  C(DeviceOrdinal, device, "", "CUDA device ordinal") \
  C(TimeNs, start_ns, "ns", "Start")                  \
  C(TimeNs, end_ns, "ns", "End")
LLMPROF_TABLE(Windows, "windows", "The time of each device that a report accounts for", LLMPROF_EXPORT_WINDOW_COLUMNS)

#define LLMPROF_EXPORT_DIAGNOSTIC_COLUMNS(C)            \
  C(StringId, key, "", "As `llmprof list diagnostics`") \
  C(StringId, severity, "", "info, notice, ...")        \
  C(uint64_t, count, "", "How often")
LLMPROF_TABLE(DiagnosticCounts, "diagnostics", "What was wrong with the recording", LLMPROF_EXPORT_DIAGNOSTIC_COLUMNS)

namespace {

// The double that the shortest decimal of a float reads back as: 0.1 and not 0.10000000149011612.
double double_of(float value) {
  char text[32];
  const std::to_chars_result end = std::to_chars(text, text + sizeof text, value);
  double out = value;
  std::from_chars(text, end.ptr, out);
  return out;
}

template <class T>
Cell cell_of(T value, const StringPool& strings) {
  if constexpr (is_row_id<T>) {
    if (value == kNoRow) return std::monostate();
    return static_cast<int64_t>(static_cast<Row>(value));
  } else if constexpr (std::is_same_v<T, StringId>) {
    return strings.get(value);
  } else if constexpr (std::is_enum_v<T>) {
    return word_of(value);
  } else if constexpr (std::is_floating_point_v<T>) {
    if (!std::isfinite(value)) return std::monostate();
    if constexpr (std::is_same_v<T, float>) return double_of(value);
    return static_cast<double>(value);
  } else if constexpr (std::is_unsigned_v<T>) {
    return static_cast<uint64_t>(value);
  } else {
    return static_cast<int64_t>(value);
  }
}

template <class T>
std::string_view target_of() {
  if constexpr (is_row_id<T>) return T::Target::info().name;
  return {};
}

template <class Table>
std::string_view parallel_of() {
  if constexpr (requires { typename Table::ParallelTo; }) return Table::ParallelTo::info().name;
  return {};
}

template <class Table>
TableView view_of(const Table& table, const StringPool& strings) {
  TableView out{Table::info().name, parallel_of<Table>(), table.size(), {}, &strings};
  table.for_each_column([&](const FieldInfo& field, const auto& column) {
    using Column = std::decay_t<decltype(column)>;
    using Value = typename Column::value_type;
    constexpr bool kText = std::is_same_v<Value, StringId> || (std::is_enum_v<Value>);
    constexpr bool kReal = std::is_floating_point_v<Value>;
    ColumnView view;
    view.name = field.name;
    view.unit = field.unit;
    view.type = kText ? CellType::kText : kReal ? CellType::kReal : CellType::kInteger;
    view.target = target_of<Value>();
    view.always = !kReal && (!is_row_id<Value> || field.role == ColumnRole::kOwner);
    view.values = &column;
    view.get = [](const void* values, size_t row, const StringPool& pool) {
      return cell_of((*static_cast<const Column*>(values))[row], pool);
    };
    out.columns.push_back(view);
  });
  return out;
}

}  // namespace

struct ExportedTables::Extra {
  StringPool strings;
  Facts facts;
  Windows windows;
  DiagnosticCounts diagnostics;

  void fact(std::string_view key, std::string_view value) {
    facts.append({.key = strings.intern(key), .value = strings.intern(value)});
  }
};

ExportedTables::ExportedTables(const Trace& trace) : extra_(std::make_unique<Extra>()) {
  Extra& extra = *extra_;
  extra.fact("tool_version", LLMPROF_VERSION);
  extra.fact("source_kind", trace.source.kind);
  for (const std::string& file : trace.source.files) extra.fact("source_file", file);
  extra.fact("base_unix_ns", std::to_string(trace.base_unix_ns));
  for (const auto& [key, value] : trace.metadata) extra.fact(key, value);
  for (const Window& window : trace.windows)
    extra.windows.append({.device = window.device, .start_ns = window.start_ns, .end_ns = window.end_ns});
  for (size_t i = 0; i < kDiagnosticCount; ++i) {
    const uint64_t count = trace.diagnostics.count(static_cast<DiagnosticId>(i));
    const DiagnosticInfo& info = diagnostic_table()[i];
    if (count > 0)
      extra.diagnostics.append({.key = extra.strings.intern(info.key),
                                .severity = extra.strings.intern(name_of(info.severity)),
                                .count = count});
  }
  views_.push_back(view_of(extra.facts, extra.strings));
  views_.push_back(view_of(extra.windows, extra.strings));
  views_.push_back(view_of(extra.diagnostics, extra.strings));
  trace.for_each_table([&](const auto& table) { views_.push_back(view_of(table, trace.strings)); });
}

ExportedTables::~ExportedTables() = default;

std::string_view as_utf8(std::string_view text, std::string& kept) {
  bool valid = true;
  for (size_t i = 0; i < text.size() && valid;) {
    if (static_cast<unsigned char>(text[i]) < 0x80) {
      ++i;
      continue;
    }
    const Glyph glyph = first_glyph(text.substr(i));
    valid = glyph.valid;
    i += glyph.bytes;
  }
  if (valid) return text;
  kept.clear();
  for (size_t i = 0; i < text.size();) {
    const Glyph glyph = first_glyph(text.substr(i));
    if (glyph.valid)
      kept.append(text.substr(i, glyph.bytes));
    else
      kept += "\xEF\xBF\xBD";
    i += glyph.bytes;
  }
  return kept;
}

}  // namespace llmprof::exporting
