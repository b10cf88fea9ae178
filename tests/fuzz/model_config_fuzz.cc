// Any bytes as a model's config.json: read, and where that works, analysed for three workloads and printed.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "model/model_report.h"
#include "report/render.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  llmprof::Result<llmprof::ModelConfig> config = llmprof::read_config(text, "fuzz.json");
  if (!config) {
    if (config.error().text().empty()) __builtin_trap();
    return 0;
  }
  llmprof::ModelOptions options;
  for (const std::string_view weights : {"", "int4-g128", "nvfp4"}) {
    options.weights = weights;
    const llmprof::Result<llmprof::ModelReport> report = llmprof::report_model(*config, options);
    if (!report) {
      if (report.error().text().empty()) __builtin_trap();
      continue;
    }
    for (const llmprof::StageCost& stage : report->stages)
      if (!(stage.flops.attention_causal <= stage.flops.attention_full) || !(stage.bytes.total() >= 0))
        __builtin_trap();
    // Printing every operator of a thousand layers is slow and says nothing new.
    const llmprof::ModelResult result = llmprof::model_result(*report);
    if (config->num_layers() <= 8 && llmprof::render_json(result).empty()) __builtin_trap();
    if (llmprof::render_text(result, {}).empty()) __builtin_trap();
    options.batch = options.batch * 1000 + 7;
    options.prompt = options.prompt * 100 + 1;
    options.prefix = 12345;
  }
  return 0;
}
