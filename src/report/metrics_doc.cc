#include "report/metrics_doc.h"

#include <fmt/format.h>

#include <type_traits>
#include <utility>

#include "analyze/finding.h"
#include "base/diagnostics.h"
#include "results/results.h"
#include "trace/tables.h"

namespace llmprof {
namespace {

template <class Record>
std::vector<FieldSentence> sentences_of() {
  std::vector<FieldSentence> out;
  Record::sentences([&](const FieldSentence& line) { out.push_back(line); });
  return out;
}

MetricSection section_of(std::vector<FieldSentence> sentences) {
  MetricSection section;
  section.about = sentences.front();
  sentences.erase(sentences.begin());
  section.fields = std::move(sentences);
  return section;
}

// The records of a result: itself, and then those inside it, each once. By their types, not by RecordShape: so no other
// code holds a sentence.
template <class T>
void add_records_of(std::vector<MetricSection>& sections) {
  if constexpr (record_types::IsRecord<T>) {
    MetricSection section = section_of(sentences_of<T>());
    for (const MetricSection& known : sections)
      if (known.about.name == section.about.name && known.about.sentence == section.about.sentence) return;
    sections.push_back(std::move(section));
    T{}.for_each_field(
        [&](const FieldInfo&, const auto& value) { add_records_of<std::remove_cvref_t<decltype(value)>>(sections); });
  } else if constexpr (record_types::kIsNamed<T>) {
    add_records_of<typename T::value_type::second_type>(sections);
  } else if constexpr (requires { typename T::value_type; } && !std::is_convertible_v<T, std::string_view>) {
    add_records_of<typename T::value_type>(sections);
  }
}

std::vector<MetricSection> report_sections() {
  std::vector<MetricSection> out;
  add_records_of<Report>(out);
  return out;
}

// Of the other commands; what they share with the report is said there.
template <class... Results>
std::vector<MetricSection> sections_of(std::variant<const Results*...>) {
  std::vector<MetricSection> out = report_sections();
  const ptrdiff_t of_report = static_cast<ptrdiff_t>(out.size());
  (add_records_of<Results>(out), ...);
  out.erase(out.begin(), out.begin() + of_report);
  return out;
}
std::vector<MetricSection> other_sections() { return sections_of(ResultRecord()); }

std::vector<MetricSection> imported_sections() {
  std::vector<MetricSection> out;
#define LLMPROF_SECTION(Type, name) out.push_back(section_of(sentences_of<Type>()));
  LLMPROF_IMPORTED_TABLES(LLMPROF_SECTION)
  return out;
}
std::vector<MetricSection> derived_sections() {
  std::vector<MetricSection> out;
  LLMPROF_DERIVED_TABLES(LLMPROF_SECTION)
#undef LLMPROF_SECTION
  return out;
}

// Table cells may not hold a bare vertical bar.
std::string cell(std::string_view text) {
  std::string out;
  for (const char c : text) out += c == '|' ? std::string("\\|") : std::string(1, c);
  return out;
}

std::string markdown(const std::vector<MetricSection>& sections) {
  std::string out;
  for (const MetricSection& section : sections) {
    out += fmt::format("### {}\n\n{}.\n\n| column | unit | meaning |\n|---|---|---|\n", section.about.name,
                       section.about.sentence);
    for (const FieldSentence& field : section.fields)
      out += fmt::format("| `{}` | {} | {} |\n", field.name, field.unit, cell(field.sentence));
    out += "\n";
  }
  return out;
}

std::string lines(const std::vector<MetricSection>& sections) {
  std::string out;
  for (const MetricSection& section : sections) {
    out += fmt::format("{}: {}\n", section.about.name, section.about.sentence);
    for (const FieldSentence& field : section.fields) {
      const std::string unit = field.unit.empty() ? std::string() : fmt::format(" [{}]", field.unit);
      out += fmt::format("  {:<34} {}\n", std::string(field.name) + unit, field.sentence);
    }
  }
  return out;
}

template <class Enum>
std::string names(std::string_view (*name)(Enum), size_t count) {
  std::string out;
  for (size_t i = 0; i < count; ++i) out += (i == 0 ? "`" : ", `") + std::string(name(static_cast<Enum>(i))) + "`";
  return out;
}

}  // namespace

std::string metrics_markdown() {
  std::string out =
      "# Metrics\n\n"
      "Generated from the declarations in `src/results/`, `src/trace/tables.h`, `src/base/diagnostics.h` and "
      "`src/analyze/finding_registry.cc`; do not edit. A value that is not known is null in JSON and empty in CSV. "
      "Ratios "
      "end in `_frac` and lie between 0 and 1; bytes and FLOPs are plain numbers; 1 GB/s is 1e9 bytes and 1 TFLOP/s "
      "1e12 "
      "FLOP per second.\n\n"
      "## Report\n\nThe same names in `report.json` and in the CSV files.\n\n";
  out += markdown(report_sections());
  out += fmt::format(
      "Latency: `headline` is what requests typically take; findings start from it. The distributions beside it hold "
      "all "
      "requests and steps, the first ones included. A TTFT goes from the start of the first prefill window of a "
      "request "
      "to the end of the window that produced its first token, without the queue; windows of vision stages directly "
      "before are part of it, those that the CPU does alone included, where a range of the program names them. "
      "`itl_ms` "
      "has one sample per decode or mixed step, its window. `tpot_ms` has one sample per request, the mean of its "
      "decode "
      "windows; the first token is not included. `output_tokens_per_s` is that of the headline. Percentiles "
      "interpolate "
      "linearly between closest ranks (Hyndman and Fan, type 7); standard deviations are those of samples (n - 1).\n\n"
      "## Names\n\nCategories of GPU activities: {}.\n\nCauses of idle time: {}.\n\n",
      names(category_name, static_cast<size_t>(Category::kCount)),
      names(idle_cause_name, static_cast<size_t>(IdleCause::kCount)));
  out += "## Findings\n\n" + severity_rule() +
         "\n\n| id | when | needs | what to change | at most |\n|---|---|---|---|---|\n";
  for (const FindingRule& rule : finding_rules())
    out += fmt::format("| `{}` | {} | {} | {} | {} |\n", rule.id, cell(rule.when), cell(rule.needs), cell(rule.advice),
                       rule.most_why.empty() ? std::string(name_of(rule.most))
                                             : fmt::format("{}: {}", name_of(rule.most), cell(rule.most_why)));
  out += "\n## Diagnostics\n\n| key | severity | meaning |\n|---|---|---|\n";
  for (const DiagnosticInfo& info : diagnostic_table())
    out += fmt::format("| `{}` | {} | {} |\n", info.key, name_of(info.severity), cell(info.text));
  out += "\n## Recording\n\nThe tables of a trace as importers and collectors fill them.\n\n" +
         markdown(imported_sections());
  out += "## Derived\n\nWhat llmprof adds to a recording before it analyses it.\n\n" + markdown(derived_sections());
  out += "## Other commands\n\nWhat `diff`, `bench`, `peaks`, `model` and `doctor` answer, in JSON and CSV.\n\n" +
         markdown(other_sections());
  while (out.ends_with("\n\n")) out.pop_back();
  return out;
}

std::vector<MetricSection> metric_sections() {
  std::vector<MetricSection> all = report_sections();
  for (const std::vector<MetricSection>& part : {imported_sections(), derived_sections(), other_sections()})
    all.insert(all.end(), part.begin(), part.end());
  return all;
}

std::string metrics_text() {
  return lines(report_sections()) + lines(imported_sections()) + lines(derived_sections()) + lines(other_sections());
}

}  // namespace llmprof
