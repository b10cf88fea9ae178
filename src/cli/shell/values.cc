// Which words can be the value of which option. What a declaration lists by itself needs no line here.
#include <algorithm>

#include "analyze/finding.h"
#include "base/dtype.h"
#include "cli/lists.h"
#include "cli/shell/command_line.h"
#include "export/export.h"
#include "hardware/hardware.h"
#include "kernels/op.h"
#include "model/catalogue.h"
#include "model/number_format.h"
#include "report/render.h"
#include "workload/sizes.h"

namespace llmprof::cli {
namespace {

using Choices = std::vector<Choice>;

Choices plain(std::initializer_list<const char*> words) {
  Choices out;
  for (const char* word : words) out.push_back({word, {}});
  return out;
}

void add_once(Choices& to, std::string word, std::string meaning = {}) {
  if (std::none_of(to.begin(), to.end(), [&](const Choice& choice) { return choice.word == word; }))
    to.push_back({std::move(word), std::move(meaning)});
}

// As people type them: "llama-3.1-8b" for meta-llama/Llama-3.1-8B.
Choices models() {
  Choices out;
  for (const ModelRow& row : model_rows()) {
    std::string name = row.id.substr(row.id.find('/') + 1);
    std::transform(name.begin(), name.end(), name.begin(),
                   [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; });
    add_once(out, std::move(name), row.id);
  }
  return out;
}

Choices gpus() {
  Choices out;
  for (const Gpu& gpu : gpu_table()) out.push_back({gpu.sku, gpu.architecture});
  return out;
}

Choices topics() {
  Choices out;
  for (const List& list : lists()) out.push_back({std::string(list.name), std::string(list.description)});
  return out;
}

Choices findings() {
  Choices out;
  for (const FindingRule& rule : finding_rules()) out.push_back({std::string(rule.id), {}});
  return out;
}

Choices formats() {
  Choices out;
  for (const Renderer& renderer : renderers())
    out.push_back({std::string(renderer.name), std::string(renderer.description)});
  return out;
}

Choices export_names() {
  Choices out;
  for (const ExportFormat& format : export_formats())
    out.push_back({std::string(format.name), std::string(format.description)});
  return out;
}

Choices operations() {
  Choices out;
  for (const kernels::Operation& operation : kernels::operations())
    out.push_back({std::string(operation.name), std::string(operation.title)});
  return out;
}

Choices variants() {
  Choices out;
  for (const kernels::Operation& operation : kernels::operations())
    for (const std::string_view variant : operation.variants) add_once(out, std::string(variant));
  return out;
}

Choices operation_dtypes() {
  Choices out;
  for (const kernels::Operation& operation : kernels::operations())
    for (const DType dtype : operation.dtypes) add_once(out, std::string(dtype_name(dtype)));
  return out;
}

Choices weight_formats() {
  Choices out;
  for (const std::string& name : weight_format_names()) out.push_back({name, {}});
  return out;
}

Choices sizes() {
  Choices out;
  for (const workload::Size& size : workload::sizes()) out.push_back({std::string(size.name), {}});
  return out;
}

Choices plain_formats() { return plain({"bf16", "fp16", "fp32", "fp8", "int8"}); }
Choices workload_dtypes() { return plain({"auto", "fp32", "bf16"}); }
Choices modes() { return plain({"light", "default", "deep"}); }
Choices run_actions() { return plain({"list", "show", "open", "pin", "unpin", "prune", "verify"}); }
Choices controls() { return plain({"start", "stop", "status"}); }
Choices diff_gates() { return plain({"ttft>3%", "tpot>3%", "rate>3%", "slower:5%"}); }
Choices gates() { return plain({"slow", "ambiguous", "failed"}); }

// The first line that fits; an empty command is any.
struct Known {
  std::string_view command, option;
  Choices (*words)();
};
constexpr Known kKnown[] = {
    {"", "--gpu", gpus},
    {"", "--model", models},
    {"model", "MODEL", models},
    {"", "--format", formats},
    {"", "--finding", findings},
    {"export", "--to", export_names},
    {"list", "WHAT", topics},
    {"ctl", "WHAT", controls},
    {"runs", "WHAT", run_actions},
    {"bench", "NAME", operations},
    {"bench", "--variant", variants},
    {"bench", "--dtype", operation_dtypes},
    {"bench", "--fail-on", gates},
    {"diff", "--fail-on", diff_gates},
    {"peaks", "--dtype", operation_dtypes},
    {"workload", "--dtype", workload_dtypes},
    {"workload", "--size", sizes},
    {"model", "--dtype", plain_formats},
    {"", "--kv-dtype", plain_formats},
    {"", "--weights", weight_formats},
    {"", "--mode", modes},
};

// Values that are files whatever the declaration calls them.
constexpr std::pair<std::string_view, std::string_view> kFiles[] = {
    {"", "PATH"}, {"diff", "SIDE"}, {"report", "RUN"}, {"", "--program"}, {"model", "MODEL"}, {"", "--model"}};

bool is_word(std::string_view part) {
  return !part.empty() && std::all_of(part.begin(), part.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-' || c == '_';
  });
}

void take_words(std::string_view text, char separator, Values& out) {
  while (!text.empty()) {
    const size_t end = std::min(text.find(separator), text.size());
    if (is_word(text.substr(0, end))) add_once(out.words, std::string(text.substr(0, end)));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
}

// "PATH", "auto|datasheet|FILE", "TEXT:{text,json,csv}", "OLD.json [NEW.json]".
void take_declared(std::string_view declared, Values& out) {
  const size_t open = declared.find('{'), close = declared.find('}');
  if (open != std::string_view::npos && close != std::string_view::npos && open < close)
    return take_words(declared.substr(open + 1, close - open - 1), ',', out);
  const std::string_view name = declared.substr(0, declared.find(':'));
  if (name.find('|') != std::string_view::npos) take_words(name, '|', out);
  for (const std::string_view file : {"FILE", "PATH", ".json"}) out.files |= name.find(file) != std::string_view::npos;
  for (const std::string_view folder : {"DIR", "FOLDER"}) out.folders |= name.find(folder) != std::string_view::npos;
}

}  // namespace

Values values_of(std::string_view command, std::string_view option, std::string_view declared) {
  const auto fits = [&](std::string_view of, std::string_view name) {
    return (of.empty() || of == command) && name == option;
  };
  Values out;
  take_declared(declared, out);
  out.devices = option == "--device";
  for (const auto& [of, name] : kFiles) out.files |= fits(of, name);
  if (!out.words.empty()) return out;  // the declaration knows better
  for (const Known& known : kKnown)
    if (fits(known.command, known.option)) {
      out.words = known.words();
      break;
    }
  return out;
}

}  // namespace llmprof::cli
