#include "model/catalogue.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <span>

#include "base/embedded.h"
#include "base/input_file.h"
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

// Words that tell a fine-tuned variant, a conversion or an old name from the model it was made of, not another shape.
constexpr std::string_view kVariantWords[] = {"instruct", "chat", "it", "pt", "base", "hf"};

// "Meta-Llama-3.1-8B-Instruct" -> "llama318b", "Mistral-7B-Instruct-v0.1" -> "mistral7bv01": what the variants of one
// model have in common. The version stays: that of an Instruct model may have a vocabulary of its own.
std::string shape_name(std::string_view name) {
  std::string folded;
  bool first = true;
  for (size_t begin = 0; begin <= name.size();) {
    const size_t end = std::min(name.find_first_of("-_ ", begin), name.size());
    const std::string word = fold_name(name.substr(begin, end - begin));
    begin = end + 1;
    const bool variant = std::find(std::begin(kVariantWords), std::end(kVariantWords), word) != std::end(kVariantWords);
    const bool maker = first && word == "meta";
    first = false;
    if (!variant && !maker) folded += word;
  }
  return folded;
}

// Published checkpoints of another name whose config.json has every dimension of a shipped one: what was trained from
// it, or an older release of it. Only what differs in no FLOP and no byte.
struct SameShape {
  std::string_view name, shipped;
};
constexpr SameShape kSameShapes[] = {
    {"deepseek-ai/DeepSeek-R1", "deepseek-ai/DeepSeek-V3"},
    {"deepseek-ai/DeepSeek-R1-0528", "deepseek-ai/DeepSeek-V3"},
    {"deepseek-ai/DeepSeek-V3-0324", "deepseek-ai/DeepSeek-V3"},
    {"deepseek-ai/DeepSeek-R1-Distill-Llama-8B", "meta-llama/Llama-3.1-8B"},
    {"deepseek-ai/DeepSeek-R1-Distill-Llama-70B", "meta-llama/Llama-3.1-70B"},
    {"deepseek-ai/DeepSeek-R1-Distill-Qwen-7B", "Qwen/Qwen2.5-7B"},
    {"meta-llama/Meta-Llama-3-8B", "meta-llama/Llama-3.1-8B"},
    {"meta-llama/Meta-Llama-3-70B", "meta-llama/Llama-3.1-70B"},
    {"meta-llama/Llama-3.3-70B-Instruct", "meta-llama/Llama-3.1-70B"},
    {"Qwen/Qwen3-30B-A3B-Instruct-2507", "Qwen/Qwen3-30B-A3B"},
    {"Qwen/Qwen3-30B-A3B-Thinking-2507", "Qwen/Qwen3-30B-A3B"},
    {"Qwen/Qwen3-Coder-30B-A3B-Instruct", "Qwen/Qwen3-30B-A3B"},
    {"lmsys/vicuna-7b-v1.5", "meta-llama/Llama-2-7b-hf"},
};

std::string_view same_shape_as(std::string_view name) {
  const std::string wanted = shape_name(name.substr(name.find('/') + 1));
  for (const SameShape& row : kSameShapes)
    if (shape_name(row.name.substr(row.name.find('/') + 1)) == wanted) return row.shipped;
  return {};
}

// People leave the organisation out, so names are compared without it.
std::vector<std::string> nearest_ids(std::string_view name, const std::vector<std::string>& ids) {
  std::vector<std::string> names, nearest;
  for (const std::string& id : ids) names.push_back(shape_name(without_organisation(id)));
  for (const std::string& found : nearest_names(shape_name(name.substr(name.find('/') + 1)), names, 3))
    nearest.push_back(ids[static_cast<size_t>(std::find(names.begin(), names.end(), found) - names.begin())]);
  return nearest;
}

Result<ModelConfig> read_shipped(const EmbeddedFile& file) {
  LLMPROF_ASSIGN(ModelConfig config, read_config(file.text, std::string(file.name)));
  config.id = id_of_file(file.name);
  config.origin = "shipped table";
  return config;
}

// One byte over the limit is enough for read_config to refuse it.
Result<std::string> read_all(InputFile& input) {
  std::string text(kMaxConfigBytes + 1, '\0');
  size_t at = 0;
  while (at < text.size()) {
    const size_t got = input.read(text.data() + at, text.size() - at);
    if (got == 0) break;
    at += got;
  }
  text.resize(at);
  if (input.damaged())
    return fail("expected a model's config, found that " + input.damage(), input.name(), "copy the file again");
  return text;
}

// "models--meta-llama--Llama-3.1-8B" somewhere above the file -> "meta-llama/Llama-3.1-8B"
std::string id_in_cache(const fs::path& path) {
  constexpr std::string_view kPrefix = "models--";
  for (const fs::path& part : path) {
    std::string name = part.string();
    const size_t dashes = name.find("--", kPrefix.size());
    if (!name.starts_with(kPrefix) || dashes == std::string::npos) continue;
    name.replace(dashes, 2, "/");
    return name.substr(kPrefix.size());
  }
  return {};
}

Result<ModelConfig> read_path(const fs::path& path) {
  std::error_code failed;
  std::string text;
  if (fs::file_size(path, failed) != 0 || failed) {  // read_config has the better words for an empty one
    LLMPROF_ASSIGN(InputFile input, InputFile::open(path.string()));
    LLMPROF_ASSIGN(text, read_all(input));
  }
  LLMPROF_ASSIGN(ModelConfig config, read_config(text, path.string()));
  if (const std::string id = id_in_cache(path); !id.empty()) config.id = id;
  return config;
}

// The config.json of a model's folder, or of the snapshot that a folder of the Hugging Face cache holds: the one that
// refs/main names, else the only one. Empty if there is none.
fs::path config_in(const fs::path& folder) {
  std::error_code failed;
  if (fs::exists(folder / "config.json", failed)) return folder / "config.json";
  const fs::path snapshots = folder / "snapshots";
  std::string main;
  std::ifstream(folder / "refs" / "main") >> main;
  if (!main.empty() && fs::exists(snapshots / main / "config.json", failed)) return snapshots / main / "config.json";
  std::vector<fs::path> found;
  for (fs::directory_iterator at(snapshots, failed), end; !failed && at != end; at.increment(failed))
    if (std::error_code none; fs::exists(at->path() / "config.json", none)) found.push_back(at->path() / "config.json");
  return found.size() == 1 ? found.front() : fs::path();
}

// What is in a folder without a config.json, as far as it tells what the user has.
std::string why_no_config(const fs::path& folder) {
  std::error_code failed;
  if (fs::exists(folder / "params.json", failed))
    return "the folder holds the original release (params.json), and no config.json";
  if (fs::exists(folder / "snapshots", failed))
    return "the folder of the Hugging Face cache has no snapshot with a config.json, or several and none of them is "
           "main";
  return "the folder holds no config.json";
}

// Where Hugging Face's libraries keep what they downloaded.
fs::path hub_folder() {
  const auto set = [](const char* name) {
    const char* const value = std::getenv(name);
    return fs::path(value == nullptr ? "" : value);
  };
  for (const char* const name : {"HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"})
    if (const fs::path hub = set(name); !hub.empty()) return hub;
  if (const fs::path home = set("HF_HOME"); !home.empty()) return home / "hub";
  if (const fs::path cache = set("XDG_CACHE_HOME"); !cache.empty()) return cache / "huggingface" / "hub";
  const fs::path home = set("HOME");
  return home.empty() ? home : home / ".cache" / "huggingface" / "hub";
}

// The config of a model that was downloaded here; empty if there is none.
fs::path config_in_cache(std::string_view id) {
  const size_t slash = id.find('/');
  const fs::path hub = hub_folder();
  if (hub.empty() || slash == std::string_view::npos || id.find('/', slash + 1) != std::string_view::npos) return {};
  return config_in(hub / fmt::format("models--{}--{}", id.substr(0, slash), id.substr(slash + 1)));
}

bool is_shipped_id(std::string_view name) {
  const std::vector<std::string> ids = shipped_ids();
  return std::find(ids.begin(), ids.end(), name) != ids.end();
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
  if (fitting.empty()) {
    const std::string shape = shape_name(name.substr(0, 256).substr(name.substr(0, 256).find('/') + 1));
    for (const std::string& id : ids)
      if (shape.size() >= kPrefixMin && shape_name(without_organisation(id)) == shape) fitting.push_back(id);
    if (const std::string_view same = same_shape_as(name.substr(0, 256)); fitting.empty() && !same.empty())
      fitting.emplace_back(same);
    if (fitting.size() == 1) {
      LLMPROF_ASSIGN(ModelConfig config, find_model(fitting[0]));
      config.notes.push_back(
          fmt::format("{} is taken to have the shape of {}, of which it is a variant (its own config.json decides)",
                      name.substr(0, 256), fitting[0]));
      return config;
    }
  }
  if (fitting.size() > 1)
    return fail(fmt::format("\"{}\" is the name of several models", name), "", "use " + join_or(fitting),
                ExitCode::kUsage);
  return fail(fmt::format("no model called \"{}\" in the shipped table", name.substr(0, 256)), "",
              did_you_mean(nearest_ids(name, ids)) +
                  "`llmprof list models` shows the table; of any other model pass the path of its config.json",
              ExitCode::kUsage);
}

Result<ModelConfig> load_model(std::string_view name_or_path) {
  if (name_or_path.empty())
    return fail("expected a model, found an empty name", "", "pass a config.json or a name of `llmprof list models`",
                ExitCode::kUsage);
  if (name_or_path.size() > 4096 || name_or_path.find('\0') != std::string_view::npos)
    return fail("the model's name is no name and no path", "", "pass a config.json or a name of `llmprof list models`",
                ExitCode::kUsage);
  if (name_or_path == "-")
    return fail("a config on standard input is read by `llmprof model` alone", "-", "pass the path of the config.json",
                ExitCode::kUsage);
  const fs::path path{std::string(name_or_path)};
  std::error_code ignored;
  const fs::file_status status = fs::status(path, ignored);
  if (fs::is_directory(status)) {
    if (const fs::path config = config_in(path); !config.empty()) return read_path(config);
    // A folder that only happens to be called like a shipped model does not hide it.
    if (Result<ModelConfig> shipped = find_model(name_or_path)) return shipped;
    return fail(why_no_config(path), path.string(), "pass the folder of a Hugging Face model, or its config.json");
  }
  if (fs::is_regular_file(status)) return read_path(path);
  if (fs::exists(status))
    return fail("expected a model's config, found something that is no regular file", path.string(),
                "pass a config.json", ExitCode::kUsage);
  if (path.extension() == ".json")
    return fail("the model's config does not exist", path.string(), "check the path", ExitCode::kUsage);
  // "checkpoints/llama" where there is a folder checkpoints is no organisation's model.
  const bool is_path = (path.has_parent_path() && fs::is_directory(path.parent_path(), ignored)) ||
                       name_or_path.front() == '/' || name_or_path.front() == '.' || name_or_path.front() == '~' ||
                       std::count(name_or_path.begin(), name_or_path.end(), '/') > 1;
  if (is_path)
    return fail("there is no such file or folder", path.string(),
                "pass a config.json, the folder of a Hugging Face model, or a name of `llmprof list models`",
                ExitCode::kUsage);
  // What lies here is the model itself; the table may only have its shape.
  if (!is_shipped_id(name_or_path))
    if (const fs::path config = config_in_cache(name_or_path); !config.empty()) return read_path(config);
  return find_model(name_or_path);
}

Result<ModelConfig> read_model_from_input() {
  LLMPROF_ASSIGN(InputFile input, InputFile::open("-"));
  LLMPROF_ASSIGN(const std::string text, read_all(input));
  return read_config(text, input.name());
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
