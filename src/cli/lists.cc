#include "cli/lists.h"

#include <fmt/format.h>

#include "analyze/analysis.h"
#include "analyze/finding.h"
#include "base/nearest.h"
#include "base/text_table.h"
#include "bench/fit.h"
#include "bench/plan.h"
#include "derive/kernel_rules.h"
#include "derive/op_rules.h"
#include "hardware/hardware.h"
#include "import/importer.h"
#include "kernels/op.h"
#include "model/catalogue.h"
#include "replay/what_if.h"
#include "report/metrics_doc.h"
#include "report/render.h"

namespace llmprof::cli {
namespace {

using Align = TextTable::Align;

TextTable::Column left(const char* header, TextTable::Drop drop = 0) { return {header, Align::kLeft, 0, drop}; }
TextTable::Column right(const char* header, TextTable::Drop drop = 0) { return {header, Align::kRight, 0, drop}; }
TextTable::Column prose(const char* header) { return {header, Align::kLeft, 0, 0, true}; }
std::string number(const std::optional<double>& value, int decimals = 0) {
  return value ? format_fixed(*value, decimals) : "-";
}

std::string list_importers(bool, const TextStyle& style) {
  TextTable table({left("importer"), prose("reads")});
  for (const Importer& importer : importers())
    table.add_row({std::string(importer.name), std::string(importer.description)});
  return table.render("", style);
}

std::string list_analyses(bool, const TextStyle& style) {
  TextTable table({left("analysis"), prose("fills")});
  for (const Analysis& analysis : analyses())
    table.add_row({std::string(analysis.name), std::string(analysis.description)});
  return table.render("", style);
}

std::string list_formats(bool, const TextStyle& style) {
  TextTable table({left("format"), prose("what")});
  for (const Renderer& renderer : renderers())
    table.add_row({std::string(renderer.name), std::string(renderer.description)});
  return table.render("", style);
}

std::string list_diagnostics(bool, const TextStyle& style) {
  TextTable table({left("diagnostic"), left("severity"), prose("meaning")});
  for (const DiagnosticInfo& info : diagnostic_table())
    table.add_row({std::string(info.key), std::string(name_of(info.severity)), std::string(info.text)});
  return table.render("", style);
}

std::string list_findings(bool, const TextStyle&) {
  std::string out;
  for (const FindingRule& rule : finding_rules()) {
    out += fmt::format("{}\n", rule.id);
    if (rule.find != nullptr) out += fmt::format("  when    {}\n", rule.when);
    out += fmt::format("  needs   {}{}\n", rule.needs,
                       rule.find == nullptr ? " (not in any recording that is read so far)" : "");
    out += fmt::format("  advice  {}\n", rule.advice);
    if (!rule.most_why.empty()) out += fmt::format("  at most {}: {}\n", name_of(rule.most), rule.most_why);
  }
  return out + "\n" + severity_rule() + "\n";
}

std::string listed_id(const replay::WhatIf& one) { return std::string(one.id) + (one.names_gpu ? ":NAME" : ""); }

std::string list_what_ifs(bool, const TextStyle&) {
  std::string out;
  for (const replay::WhatIf& one : replay::what_ifs())
    out += fmt::format("{}\n  if      there were {}\n  how     {}\n{}", listed_id(one), one.what, one.how,
                       one.forbidden == nullptr            ? ""
                       : one.scale != replay::Scale::kNone ? "  checks  whether what it needs is known\n"
                                                           : "  checks  whether something in the steps forbids it\n");
  return out;
}

void write_what_ifs(JsonWriter& json) {
  for (const replay::WhatIf& one : replay::what_ifs())
    json.begin_object().field("id", listed_id(one)).field("what", one.what).field("how", one.how).end_object();
}

std::string list_gpus(bool, const TextStyle& style) {
  TextTable table({left("gpu"), left("architecture", 3), left("cc", 5), right("SMs", 4), right("bf16 TFLOPS"),
                   right("fp8 TFLOPS", 1), right("memory GB"), right("GB/s"), right("W", 2),
                   right("doubtful values", 6)});
  for (const GpuRow& row : gpu_rows())
    table.add_row({row.sku, row.architecture, row.compute_capability, number(row.sm_count), number(row.bf16_tflops, 1),
                   number(row.fp8_tflops, 1), number(row.mem_gb), number(row.mem_bw_gbs), number(row.tdp_w),
                   std::to_string(row.doubtful_values)});
  return table.render("", style) + "Dense rates of the data sheet; where each value is from: data/hardware.\n";
}

std::string list_models(bool, const TextStyle& style) {
  TextTable table({left("model"), left("architecture", 3), right("parameters"), right("active per token", 2),
                   right("KV bytes/token", 1), prose("what")});
  for (const ModelRow& row : model_rows())
    table.add_row({row.id, row.architecture, format_count(static_cast<double>(row.params)),
                   format_count(static_cast<double>(row.active_per_token)), format_count(row.kv_bytes_per_token),
                   row.what});
  return table.render("", style) +
         "KV cache at 16 bits. Any Hugging Face config.json works too: llmprof model path/to/config.json\n";
}

std::string list_rules(bool, const TextStyle& style) {
  TextTable table({left("category"), prose("kernel name"), prose("operator around it"), prose("why")});
  for (const KernelRule& rule : kernel_rules())
    table.add_row({std::string(category_name(rule.category)), std::string(rule.kernel), std::string(rule.operators),
                   std::string(rule.why)});
  TextTable operators({left("operator"), left("work")});
  for (const OpRule& rule : op_rules())
    operators.add_row({std::string(rule.name), std::string(work_kind_name(work_kind_of(rule.kind)))});
  return "What a kernel is for: the first rule that fits.\n\n" + table.render("", style) +
         "\nOperators whose shapes give FLOPs and bytes.\n\n" + operators.render("", style);
}

std::string list_metrics(bool markdown, const TextStyle&) { return markdown ? metrics_markdown() : metrics_text(); }

std::string list_benchmarks(bool, const TextStyle&) {
  std::string out;
  for (const kernels::Operation& operation : kernels::operations()) {
    std::string also;
    for (const bench::Alias& alias : bench::aliases())
      if (alias.operation == operation.name) also += fmt::format("{}{}", also.empty() ? "" : ", ", alias.word);
    out += fmt::format("{}{}\n  {}\n", operation.name, also.empty() ? "" : "  (also: " + also + ")", operation.title);
    for (const kernels::Axis& axis : operation.axes)
      out += fmt::format("  {:<14} {:>10}  {}\n", bench::option_of(axis.name), axis.usual, axis.doc);
    std::vector<std::string> names(operation.variants.begin(), operation.variants.end());
    if (!names.empty()) out += fmt::format("  --variant      {}\n", join_or(names));
    names.clear();
    for (const DType dtype : operation.dtypes) names.emplace_back(dtype_name(dtype));
    if (!names.empty()) out += fmt::format("  --dtype        {}\n", join_or(names));
  }
  return out + "The first of a choice, and the value beside an axis, is the default.\n";
}

// ---- the same for programs

void write_importers(JsonWriter& json) {
  for (const Importer& importer : importers())
    json.begin_object().field("name", importer.name).field("reads", importer.description).end_object();
}

void write_analyses(JsonWriter& json) {
  for (const Analysis& analysis : analyses())
    json.begin_object().field("name", analysis.name).field("fills", analysis.description).end_object();
}

void write_formats(JsonWriter& json) {
  for (const Renderer& renderer : renderers())
    json.begin_object().field("name", renderer.name).field("what", renderer.description).end_object();
}

void write_diagnostics(JsonWriter& json) {
  for (const DiagnosticInfo& info : diagnostic_table())
    json.begin_object()
        .field("key", info.key)
        .field("severity", name_of(info.severity))
        .field("meaning", info.text)
        .end_object();
}

void write_findings(JsonWriter& json) {
  for (const FindingRule& rule : finding_rules())
    json.begin_object()
        .field("id", rule.id)
        .field("looked_for", rule.find != nullptr)
        .field("when", rule.when)
        .field("needs", rule.needs)
        .field("advice", rule.advice)
        .field("on_cpu", rule.on_cpu)
        .field("severity_most", name_of(rule.most))
        .field("severity_most_why", rule.most_why)
        .end_object();
}

void write_gpus(JsonWriter& json) {
  for (const GpuRow& row : gpu_rows())
    json.begin_object()
        .field("name", row.sku)
        .field("architecture", row.architecture)
        .field("compute_capability", row.compute_capability)
        .field("sm_count", row.sm_count)
        .field("bf16_tflops", row.bf16_tflops)
        .field("fp8_tflops", row.fp8_tflops)
        .field("memory_gb", row.mem_gb)
        .field("memory_gbs", row.mem_bw_gbs)
        .field("tdp_w", row.tdp_w)
        .field("doubtful_values", row.doubtful_values)
        .end_object();
}

void write_models(JsonWriter& json) {
  for (const ModelRow& row : model_rows())
    json.begin_object()
        .field("name", row.id)
        .field("architecture", row.architecture)
        .field("parameters", row.params)
        .field("active_per_token", row.active_per_token)
        .field("kv_bytes_per_token", row.kv_bytes_per_token)
        .field("what", row.what)
        .end_object();
}

void write_rules(JsonWriter& json) {
  for (const KernelRule& rule : kernel_rules())
    json.begin_object()
        .field("category", category_name(rule.category))
        .field("kernel", rule.kernel)
        .field("operator", rule.operators)
        .field("why", rule.why)
        .end_object();
}

void write_metrics(JsonWriter& json) {
  for (const MetricSection& section : metric_sections())
    for (const FieldSentence& field : section.fields)
      json.begin_object()
          .field("table", section.about.name)
          .field("name", field.name)
          .field("unit", field.unit)
          .field("meaning", field.sentence)
          .end_object();
}

void write_benchmarks(JsonWriter& json) {
  for (const kernels::Operation& operation : kernels::operations()) {
    json.begin_object().field("name", operation.name).field("what", operation.title).key("also").begin_array();
    for (const bench::Alias& alias : bench::aliases())
      if (alias.operation == operation.name) json.value(alias.word);
    json.end_array().key("axes").begin_array();
    for (const kernels::Axis& axis : operation.axes)
      json.begin_object()
          .field("option", bench::option_of(axis.name))
          .field("usual", axis.usual)
          .field("what", axis.doc)
          .end_object();
    json.end_array().key("variants").begin_array();
    for (const std::string_view variant : operation.variants) json.value(variant);
    json.end_array().key("dtypes").begin_array();
    for (const DType dtype : operation.dtypes) json.value(dtype_name(dtype));
    json.end_array().end_object();
  }
}

constexpr List kLists[] = {
    {"importers", "file formats that analyze reads", list_importers, write_importers},
    {"analyses", "questions that analyze answers", list_analyses, write_analyses},
    {"findings", "what analyze can find wrong, when, and what it advises", list_findings, write_findings},
    {"what-ifs", "changes that analyze --what-if simulates", list_what_ifs, write_what_ifs},
    {"diagnostics", "what can be wrong with an input", list_diagnostics, write_diagnostics},
    {"metrics", "every column of every table, with unit and meaning", list_metrics, write_metrics},
    {"rules", "how kernels are classified and operators get FLOPs", list_rules, write_rules},
    {"formats", "output formats", list_formats, write_formats},
    {"gpus", "the hardware table", list_gpus, write_gpus},
    {"models", "the model table", list_models, write_models},
    {"benchmarks", "the operations that bench measures, with their axes", list_benchmarks, write_benchmarks},
};

}  // namespace

std::span<const List> lists() { return kLists; }

}  // namespace llmprof::cli
