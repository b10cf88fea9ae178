// `llmprof model`: the static analysis of a model for one request shape. No measurement is involved:
// every number is derived from the config, and from the data sheet of a GPU, by the formulas of docs/formulas.md.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "model/config.h"
#include "model/cost.h"
#include "model/on_gpu.h"
#include "model/parameters.h"
#include "results/model.h"

namespace llmprof {

// What the command line says. Formats are names as typed; empty takes the model's own.
struct ModelOptions {
  std::string model;  // id of the shipped table, config.json, or a folder that holds one
  int64_t batch = 1, prompt = 2048, prefix = 0, context = 0, new_tokens = 1;
  std::optional<int64_t> images;  // of each sequence; absent: one, if the model has a vision tower
  int64_t image_height = 0, image_width = 0;
  std::string dtype;     // --dtype: of activations; empty: the config's torch_dtype, bf16 for an fp32 checkpoint
  std::string weights;   // --weights; empty: the config's quantization_config, else as dtype
  std::string kv_dtype;  // --kv-dtype; empty: as dtype
  // --activations: what the inputs of quantised products are quantised to; empty: as the config's quantization_config
  // says, else not at all.
  std::string activations;
  std::string gpu;  // --gpu: a GPU of the hardware table to hold the model against; empty: none
};

struct ModelReport {
  ModelConfig config;
  Params params;
  RequestShape shape;
  MemoryNeed memory;
  double kv_bytes_per_token = 0;
  double kv_bytes_per_token_beyond_window = 0;  // the same where no layer slides
  std::optional<GpuFit> on_gpu;
  std::vector<StageCost> stages;   // vision (with a tower and images), prefill, decode
  std::vector<std::string> notes;  // what was assumed
};

// The entry point of the command. Errors: of load_model, a format that is not known, a request shape out of range.
Result<ModelReport> report_model(const ModelOptions& options);
Result<ModelReport> report_model(ModelConfig config, const ModelOptions& options);

// As the command answers it.
ModelResult model_result(const ModelReport& report);

}  // namespace llmprof
