// One CSV file per table, header row first, the names and units of the declarations.
#include "base/csv.h"

#include "report/field_writer.h"
#include "report/render.h"

namespace llmprof {
namespace {

template <class Record>
RenderedFile csv_file(const std::vector<Record>& rows) {
  RenderedFile file;
  file.name = std::string(Record::info().name) + ".csv";
  std::vector<std::string> cells;
  Record{}.for_each_field([&](const FieldInfo& field, const auto&) { cells.emplace_back(field.name); });
  append_csv_row(file.content, cells);
  for (const Record& row : rows) {
    cells.clear();
    row.for_each_field([&](const FieldInfo&, const auto& value) { cells.push_back(csv_text(value)); });
    append_csv_row(file.content, cells);
  }
  return file;
}

std::string join(const std::vector<std::string>& parts) {
  std::string out;
  for (const std::string& part : parts) out += (out.empty() ? "" : " ") + part;
  return out;
}

// One row per finding; its numbers follow in evidence.csv under the same id and stage.
void add_findings(const std::vector<Finding>& findings, std::vector<RenderedFile>& files) {
  RenderedFile list{"findings.csv", {}}, evidence{"evidence.csv", {}};
  append_csv_row(list.content,
                 {"id", "severity", "stage", "title", "bound_metric", "bound_from", "bound_to", "advice"});
  append_csv_row(evidence.content, {"id", "stage", "metric", "value", "unit", "provenance"});
  for (const Finding& f : findings) {
    append_csv_row(list.content,
                   {f.id, name_of(f.severity), f.stage, f.title, f.bound ? f.bound->metric : "",
                    f.bound ? csv_text(f.bound->from) : "", f.bound ? csv_text(f.bound->to) : "", join(f.advice)});
    for (const Evidence& e : f.evidence)
      append_csv_row(evidence.content, {f.id, f.stage, e.metric, csv_text(e.value), e.unit, e.provenance});
  }
  files.push_back(std::move(list));
  files.push_back(std::move(evidence));
}

void add_latency(const std::optional<Latency>& latency, std::vector<RenderedFile>& files) {
  RenderedFile file{"latency.csv", {}};
  std::vector<std::string> cells = {"metric"};
  Summary{}.for_each_field([&](const FieldInfo& field, const auto&) { cells.emplace_back(field.name); });
  append_csv_row(file.content, cells);
  const auto add = [&](const char* name, const std::optional<Summary>& summary) {
    if (!summary) return;
    cells = {name};
    summary->for_each_field([&](const FieldInfo&, const auto& value) { cells.push_back(csv_text(value)); });
    append_csv_row(file.content, cells);
  };
  if (latency) {
    add("ttft_ms", latency->ttft_ms);
    add("tpot_ms", latency->tpot_ms);
    add("itl_ms", latency->itl_ms);
  }
  files.push_back(std::move(file));
}

}  // namespace

std::vector<RenderedFile> render_csv(const Report& report) {
  const MemoryReport memory = report.memory.value_or(MemoryReport{});
  const TelemetryReport telemetry = report.telemetry.value_or(TelemetryReport{});
  const OverheadReport overhead = report.overhead.value_or(OverheadReport{});
  std::vector<RenderedFile> files = {
      csv_file(report.stages),       csv_file(report.operators),   csv_file(report.kernels_topk),
      csv_file(report.categories),   csv_file(report.roofline),    csv_file(report.idle),
      csv_file(report.idle_sites),   csv_file(report.host),        csv_file(memory.series),
      csv_file(memory.operators),    csv_file(report.cannot_tell), csv_file(report.diagnostics),
      csv_file(report.conservation), csv_file(report.coverage),    csv_file(telemetry.series),
      csv_file(telemetry.throttle),  csv_file(overhead.stages),    csv_file(report.launch_sites),
  };
  files.push_back(report.latency ? csv_file(std::vector<Headline>{report.latency->headline})
                                 : csv_file(std::vector<Headline>{}));
  add_latency(report.latency, files);
  add_findings(report.findings, files);
  return files;
}

}  // namespace llmprof
