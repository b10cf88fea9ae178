#include "model/catalogue.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <span>

#include "base/embedded.h"
#include "base/nearest.h"
#include "model/architectures.h"
#include "model/cost.h"
#include "model/parameters.h"

namespace llmprof {

std::span<const EmbeddedFile> embedded_models();  // written at build time from data/models

namespace {

namespace fs = std::filesystem;

// "meta-llama--Llama-3.1-8B.json" -> "meta-llama/Llama-3.1-8B"
std::string id_of_file(std::string_view file) {
  std::string id(file.substr(0, file.size() - std::string_view(".json").size()));
  const size_t dashes = id.find("--");
  if (dashes != std::string::npos) id.replace(dashes, 2, "/");
  return id;
}

std::vector<std::string> shipped_ids() {
  std::vector<std::string> ids;
  for (const EmbeddedFile& file : embedded_models()) ids.push_back(id_of_file(file.name));
  return ids;
}

std::string without_organisation(const std::string& id) { return id.substr(id.find('/') + 1); }

// People leave the organisation out, so names are compared without it.
std::vector<std::string> nearest_ids(std::string_view name, const std::vector<std::string>& ids) {
  std::vector<std::string> names, nearest;
  for (const std::string& id : ids) names.push_back(without_organisation(id));
  for (const std::string& found : nearest_names(name.substr(name.find('/') + 1), names, 3))
    nearest.push_back(ids[static_cast<size_t>(std::find(names.begin(), names.end(), found) - names.begin())]);
  return nearest;
}

Result<ModelConfig> read_shipped(const EmbeddedFile& file) {
  LLMPROF_ASSIGN(ModelConfig config, read_config(file.text, std::string(file.name)));
  config.id = id_of_file(file.name);
  config.origin = "shipped table";
  return config;
}

Result<std::string> read_file(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) return fail("expected a model's config that can be read", path.string(), "check the path and its rights");
  std::string text(kMaxConfigBytes + 1, '\0');
  in.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<size_t>(in.gcount()));
  return text;  // one byte over the limit is enough for read_config to refuse it
}

Result<ModelConfig> read_path(const fs::path& path) {
  LLMPROF_ASSIGN(const std::string text, read_file(path));
  return read_config(text, path.string());
}

}  // namespace

Result<ModelConfig> find_model(std::string_view name) {
  const std::string wanted = fold_name(name.substr(0, 256));
  const std::vector<std::string> ids = shipped_ids();
  std::vector<std::string> fitting;
  for (size_t i = 0; i < ids.size(); ++i) {
    if (wanted == fold_name(ids[i])) return read_shipped(embedded_models()[i]);
    if (wanted == fold_name(without_organisation(ids[i]))) fitting.push_back(ids[i]);
  }
  // "mixtral-8x7b" for Mixtral-8x7B-v0.1: the start of one name only. Reports show the whole name.
  constexpr size_t kPrefixMin = 5;
  if (fitting.empty() && wanted.size() >= kPrefixMin) {
    for (const std::string& id : ids)
      if (fold_name(without_organisation(id)).starts_with(wanted)) fitting.push_back(id);
    if (fitting.size() > 1) fitting.clear();  // the nearest names are the better answer
  }
  if (fitting.size() == 1) return find_model(fitting[0]);
  if (fitting.size() > 1)
    return fail(fmt::format("\"{}\" is the name of several models", name), "", "use " + join_or(fitting),
                ExitCode::kUsage);
  return fail(fmt::format("no model called \"{}\" in the shipped table", name.substr(0, 256)), "",
              fmt::format("did you mean {}? Any other model: pass the path of its config.json; "
                          "`llmprof list models` shows the table",
                          join_or(nearest_ids(name, ids))),
              ExitCode::kUsage);
}

Result<ModelConfig> load_model(std::string_view name_or_path) {
  if (name_or_path.empty())
    return fail("expected a model, found an empty name", "", "pass a config.json or a name of `llmprof list models`",
                ExitCode::kUsage);
  if (name_or_path.size() > 4096 || name_or_path.find('\0') != std::string_view::npos)
    return fail("the model's name is no name and no path", "", "pass a config.json or a name of `llmprof list models`",
                ExitCode::kUsage);
  const fs::path path{std::string(name_or_path)};
  std::error_code ignored;
  const fs::file_status status = fs::status(path, ignored);
  if (fs::is_directory(status)) {
    const fs::path config = path / "config.json";
    if (fs::exists(config, ignored)) return read_path(config);
    // A folder that only happens to be called like a shipped model does not hide it.
    if (Result<ModelConfig> shipped = find_model(name_or_path)) return shipped;
    return fail("the folder holds no config.json", path.string(), "pass the folder of a Hugging Face model");
  }
  if (fs::is_regular_file(status)) return read_path(path);
  if (fs::exists(status))
    return fail("expected a model's config, found something that is no regular file", path.string(),
                "pass a config.json", ExitCode::kUsage);
  if (path.extension() == ".json")
    return fail("the model's config does not exist", path.string(), "check the path", ExitCode::kUsage);
  return find_model(name_or_path);
}

std::vector<ModelRow> model_rows() {
  std::vector<ModelRow> rows;
  for (const EmbeddedFile& file : embedded_models()) {
    const Result<ModelConfig> config = read_shipped(file);
    if (!config) continue;  // the tests read every shipped file
    const Params params = count_params(*config);
    const Family* family = find_family(config->architecture, "");
    rows.push_back({config->id, config->architecture, params.total, params.active_per_token,
                    kv_bytes_per_token(*config, bf16_format()),
                    family == nullptr ? std::string() : std::string(family->what)});
  }
  std::sort(rows.begin(), rows.end(), [](const ModelRow& a, const ModelRow& b) { return a.id < b.id; });
  return rows;
}

}  // namespace llmprof
