#include "workload/dump.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstring>

#include "base/json_writer.h"
#include "device/elements.h"
#include "device/fill.h"
#include "workload/bundle.h"

namespace llmprof::workload {
namespace {

tl::unexpected<Error> cannot_write(const std::string& path) {
  return fail(std::string("cannot write the dump: ") + std::strerror(errno), path,
              "choose a folder that you may write to");
}

// Weights lie packed for the device: they are made again from their numbers, as the backend made them.
std::vector<float> weight_values(const Numbers& numbers, int64_t count, DType dtype) {
  std::vector<float> values(static_cast<size_t>(count));
  for (size_t i = 0; i < values.size(); ++i) {
    const float value = numbers.offset + numbers.scale * device::fill_uniform(device::fill_hash(numbers.seed, i));
    values[i] = dtype == DType::kBf16 ? device::from_bf16(device::to_bf16(value)) : value;
  }
  return values;
}

}  // namespace

Result<Dump> Dump::open(const std::string& folder, Backend& backend) {
  if (mkdir(folder.c_str(), 0777) != 0 && errno != EEXIST) return cannot_write(folder);
  const std::string path = folder + "/tensors.bin";
  std::FILE* const file = std::fopen(path.c_str(), "wb");
  if (file == nullptr) return cannot_write(path);
  return Dump(folder, backend, file);
}

Inspector Dump::inspector() {
  Inspector inspector;
  inspector.weight = [this](const std::string& name, int64_t rows, int64_t columns, const Numbers& numbers) {
    return write("weight." + name, rows, columns, weight_values(numbers, rows * columns, backend_->dtype()));
  };
  inspector.result = [this](const std::string& name, const Tensor& tensor) -> Status {
    std::vector<char> bytes(static_cast<size_t>(tensor.elements()) * static_cast<size_t>(dtype_bytes(tensor.dtype)));
    LLMPROF_CHECK(backend_->download(tensor, bytes.data()));
    std::vector<double> exact(static_cast<size_t>(tensor.elements()));
    device::elements_to_double(tensor.dtype, bytes.data(), exact);
    return write(name, tensor.rows, tensor.columns, std::vector<float>(exact.begin(), exact.end()));
  };
  return inspector;
}

Status Dump::write(const std::string& name, int64_t rows, int64_t columns, const std::vector<float>& values) {
  entries_.push_back({name, rows, columns, written_});
  written_ += values.size();
  if (std::fwrite(values.data(), sizeof(float), values.size(), file_.get()) == values.size()) return {};
  return cannot_write(folder_ + "/tensors.bin");
}

Status Dump::finish(const Size& size, const ModelOptions& options, const RunResult& result) {
  if (std::fflush(file_.get()) != 0) return cannot_write(folder_ + "/tensors.bin");
  const VisionConfig& v = size.vision;
  const DecoderConfig& d = size.decoder;
  JsonWriter json;
  json.begin_object().field("size", size.name).field("dtype", dtype_name(backend_->dtype()));
  json.field("seed", options.seed).field("norm_epsilon", static_cast<double>(kNormEpsilon));
  json.key("vision").begin_object();
  json.field("hidden", v.hidden).field("layers", v.layers).field("heads", v.heads);
  json.field("intermediate", v.intermediate).field("image", v.image).field("patch", v.patch).field("merge", v.merge);
  json.end_object().key("decoder").begin_object();
  json.field("hidden", d.hidden).field("layers", d.layers).field("heads", d.heads).field("kv_heads", d.kv_heads);
  json.field("head_size", d.head_size).field("intermediate", d.intermediate).field("vocabulary", d.vocabulary);
  json.field("rope_base", d.rope_base).end_object().key("sequences").begin_array();
  for (size_t sequence = 0; sequence < result.tokens.size(); ++sequence) {
    json.begin_object().key("prompt").begin_array();
    for (const int32_t id : prompt_of(static_cast<int>(sequence), options.prompt, d.vocabulary)) json.value(id);
    json.end_array().key("tokens").begin_array();
    for (const int32_t id : result.tokens[sequence]) json.value(id);
    json.end_array().end_object();
  }
  json.end_array().key("tensors").begin_object();
  for (const Entry& entry : entries_) {
    json.key(entry.name).begin_array().value(entry.rows).value(entry.columns).value(entry.offset).end_array();
  }
  json.end_object().end_object();
  const std::string path = folder_ + "/manifest.json", text = json.take() + "\n";
  std::FILE* const file = std::fopen(path.c_str(), "wb");
  if (file == nullptr) return cannot_write(path);
  const bool whole = std::fwrite(text.data(), 1, text.size(), file) == text.size();
  if (std::fclose(file) != 0 || !whole) return cannot_write(path);
  return {};
}

}  // namespace llmprof::workload
