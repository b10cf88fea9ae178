// Models by name: the table that ships with the program (data/models, one config.json each, built in) and config files.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "model/config.h"

namespace llmprof {

// By name from the shipped table: "meta-llama/Llama-3.1-8B" or "llama-3.1-8b"; case, dashes and dots do not matter, and
// the start of a name is enough if it is that of one model only. What was fine-tuned from a shipped model has its
// layers: "meta-llama/Llama-3.1-8B-Instruct" and "Meta-Llama-3.1-8B" are the shape of "meta-llama/Llama-3.1-8B", with a
// note that says so. Errors: unknown (with the nearest names), or fitting several models (with those).
Result<ModelConfig> find_model(std::string_view name);

// A path if it exists: a config.json (plain, gzip or zstd) or a folder that holds one, of the Hugging Face cache too
// (models--ORGANISATION--NAME, or a snapshot in it). Else a name of the shipped table, or of a model whose config lies
// in the Hugging Face cache of this machine.
Result<ModelConfig> load_model(std::string_view name_or_path);

// A config on standard input, in the same forms. Read once: what loads a model more often than that cannot take it.
Result<ModelConfig> read_model_from_input();

// The shipped models in the order of their names; `llmprof list models` prints them.
struct ModelRow {
  std::string id;
  std::string architecture;
  int64_t params = 0;
  int64_t active_per_token = 0;
  double kv_bytes_per_token = 0;  // 16-bit cache
  std::string what;               // one line
};
std::vector<ModelRow> model_rows();

}  // namespace llmprof
