#include "workload/model.h"

#include <cmath>

#include "device/elements.h"
#include "device/fill.h"

namespace llmprof::workload {

// Makes weights in a fixed order: the n-th tensor has seed mix(seed) + n.
class Model::Maker {
 public:
  explicit Maker(Model& model) : model_(model), backend_(model.backend_) {}

  Status vision() {
    const VisionConfig& c = model_.size_.vision;
    const int64_t patches = c.patches(), tokens = c.tokens(), joined = int64_t{c.merge} * c.merge * c.hidden,
                  out = model_.size_.decoder.hidden;
    LLMPROF_CHECK(linear(model_.patch_embedding_, "vision.patch", c.patch_values(), c.hidden, true, {&patches, 1}));
    LLMPROF_CHECK(weight(model_.position_embedding_, "vision.position", patches, c.hidden, 0.5F, 0));
    model_.vision_.resize(static_cast<size_t>(c.layers));
    for (size_t i = 0; i < model_.vision_.size(); ++i) {
      VisionLayer& layer = model_.vision_[i];
      const std::string name = "vision." + std::to_string(i) + ".";
      LLMPROF_CHECK(norm(layer.norm1_gain, layer.norm1_bias, name + "norm1", c.hidden));
      LLMPROF_CHECK(linear(layer.qkv, name + "qkv", c.hidden, 3 * c.hidden, true, {&patches, 1}));
      LLMPROF_CHECK(linear(layer.out, name + "out", c.hidden, c.hidden, true, {&patches, 1}));
      LLMPROF_CHECK(norm(layer.norm2_gain, layer.norm2_bias, name + "norm2", c.hidden));
      LLMPROF_CHECK(linear(layer.up, name + "up", c.hidden, c.intermediate, true, {&patches, 1}));
      LLMPROF_CHECK(linear(layer.down, name + "down", c.intermediate, c.hidden, true, {&patches, 1}));
    }
    LLMPROF_CHECK(norm(model_.vision_norm_gain_, model_.vision_norm_bias_, "vision.norm", c.hidden));
    LLMPROF_CHECK(linear(model_.project1_, "projector.1", joined, out, true, {&tokens, 1}));
    LLMPROF_CHECK(linear(model_.project2_, "projector.2", out, out, true, {&tokens, 1}));
    VisionTensors& v = model_.v_;
    LLMPROF_CHECK(space(v.patches, patches, c.patch_values()));
    for (Tensor* const tensor : {&v.x, &v.normed, &v.mixed}) LLMPROF_CHECK(space(*tensor, patches, c.hidden));
    LLMPROF_CHECK(space(v.qkv, patches, 3 * c.hidden));
    LLMPROF_CHECK(space(v.wide, patches, c.intermediate));
    LLMPROF_CHECK(space(v.merged, tokens, joined));
    for (Tensor* const tensor : {&v.joined, &v.joined_act, &v.image}) LLMPROF_CHECK(space(*tensor, tokens, out));
    return {};
  }

  Status decoder() {
    const DecoderConfig& c = model_.size_.decoder;
    const ModelOptions& options = model_.options_;
    const int64_t sequences = options.sequences, tokens = options.tokens(model_.size_),
                  capacity = tokens + options.new_tokens;
    const int64_t rows[] = {sequences * tokens, sequences};
    LLMPROF_CHECK(weight(model_.embedding_, "embedding", c.vocabulary, c.hidden, 1.7320508F, 0));
    model_.decoder_.resize(static_cast<size_t>(c.layers));
    for (size_t i = 0; i < model_.decoder_.size(); ++i) {
      DecoderLayer& layer = model_.decoder_[i];
      const std::string name = "decoder." + std::to_string(i) + ".";
      LLMPROF_CHECK(weight(layer.norm1, name + "norm1", 1, c.hidden, 0.1F, 1));
      LLMPROF_CHECK(linear(layer.qkv, name + "qkv", c.hidden, c.query_width() + 2 * c.kv_width(), false, rows));
      LLMPROF_CHECK(linear(layer.out, name + "out", c.query_width(), c.hidden, false, rows));
      LLMPROF_CHECK(weight(layer.norm2, name + "norm2", 1, c.hidden, 0.1F, 1));
      LLMPROF_CHECK(linear(layer.gate_up, name + "gate_up", c.hidden, 2 * c.intermediate, false, rows));
      LLMPROF_CHECK(linear(layer.down, name + "down", c.intermediate, c.hidden, false, rows));
      for (Tensor* const tensor : {&layer.cache.keys, &layer.cache.values})
        LLMPROF_CHECK(space(*tensor, sequences * c.kv_heads * capacity, c.head_size));
      layer.cache.capacity = capacity;
    }
    LLMPROF_CHECK(weight(model_.final_norm_, "decoder.norm", 1, c.hidden, 0.1F, 1));
    // fp32, so that the highest of the vocabulary is told from the next.
    LLMPROF_CHECK(linear(model_.head_, "head", c.hidden, c.vocabulary, false, {&sequences, 1}, DType::kFp32));
    LLMPROF_CHECK(angles(capacity));
    LLMPROF_CHECK(activations(model_.prefill_, sequences * tokens));
    LLMPROF_CHECK(activations(model_.decode_, sequences));
    model_.decode_.tokens = model_.prefill_.tokens;
    return {};
  }

 private:
  Numbers numbers(float scale, float offset) {
    return {device::fill_mix(model_.options_.seed) + ++made_, scale, offset};
  }
  Status tell(const std::string& name, int64_t rows, int64_t columns, const Numbers& numbers) const {
    return model_.inspector_.weight ? model_.inspector_.weight(name, rows, columns, numbers) : Status();
  }

  Status weight(Tensor& to, const std::string& name, int64_t rows, int64_t columns, float scale, float offset) {
    const Numbers made = numbers(scale, offset);
    LLMPROF_ASSIGN(to, backend_.weights(rows, columns, made));
    return tell(name, rows, columns, made);
  }

  Status norm(Tensor& gain, Tensor& bias, const std::string& name, int64_t columns) {
    LLMPROF_CHECK(weight(gain, name + ".gain", 1, columns, 0.1F, 1));
    return weight(bias, name + ".bias", 1, columns, 0.1F, 0);
  }

  // +-sqrt(3 / in): sums of `in` products keep the variance of what comes in.
  Status linear(Linear& to, const std::string& name, int64_t in, int64_t out, bool bias, std::span<const int64_t> rows,
                DType out_dtype = DType::kUnknown) {
    const Numbers w = numbers(std::sqrt(3.0F / static_cast<float>(in)), 0);
    std::optional<Numbers> b;
    if (bias) b = numbers(0.1F, 0);
    if (out_dtype == DType::kUnknown) out_dtype = backend_.dtype();
    LLMPROF_ASSIGN(to, backend_.linear(in, out, w, b, out_dtype, rows));
    LLMPROF_CHECK(tell(name + ".weight", out, in, w));
    return b ? tell(name + ".bias", 1, out, *b) : Status();
  }

  Status space(Tensor& to, int64_t rows, int64_t columns, DType dtype = DType::kUnknown) {
    LLMPROF_ASSIGN(to, backend_.allocate(rows, columns, dtype == DType::kUnknown ? backend_.dtype() : dtype));
    return {};
  }

  // Cosines of position * base^(-2 i / head_size), then sines.
  Status angles(int64_t positions) {
    const DecoderConfig& c = model_.size_.decoder;
    LLMPROF_CHECK(space(model_.angles_, positions, c.head_size, DType::kFp32));
    std::vector<float> table(static_cast<size_t>(positions * c.head_size));
    const int64_t half = c.head_size / 2;
    for (int64_t p = 0; p < positions; ++p)
      for (int64_t i = 0; i < half; ++i) {
        const double angle = static_cast<double>(p) *
                             std::pow(c.rope_base, -2.0 * static_cast<double>(i) / static_cast<double>(c.head_size));
        table[static_cast<size_t>(p * c.head_size + i)] = static_cast<float>(std::cos(angle));
        table[static_cast<size_t>(p * c.head_size + half + i)] = static_cast<float>(std::sin(angle));
      }
    return backend_.upload(model_.angles_, table.data());
  }

  Status activations(DecoderTensors& t, int64_t rows) {
    const DecoderConfig& c = model_.size_.decoder;
    const int64_t sequences = model_.options_.sequences;
    for (Tensor* const tensor : {&t.x, &t.normed, &t.branch}) LLMPROF_CHECK(space(*tensor, rows, c.hidden));
    LLMPROF_CHECK(space(t.qkv, rows, c.query_width() + 2 * c.kv_width()));
    LLMPROF_CHECK(space(t.mixed, rows, c.query_width()));
    LLMPROF_CHECK(space(t.gate_up, rows, 2 * c.intermediate));
    LLMPROF_CHECK(space(t.active, rows, c.intermediate));
    for (Tensor* const tensor : {&t.positions, &t.ids}) LLMPROF_CHECK(space(*tensor, 1, rows, DType::kInt32));
    LLMPROF_CHECK(space(t.last, 1, sequences, DType::kInt32));
    LLMPROF_CHECK(space(t.last_normed, sequences, c.hidden));
    LLMPROF_CHECK(space(t.logits, sequences, c.vocabulary, DType::kFp32));
    return space(t.tokens, 1, sequences, DType::kInt32);
  }

  Model& model_;
  Backend& backend_;
  uint64_t made_ = 0;
};

Result<std::unique_ptr<Model>> Model::make(Backend& backend, const Size& size, const ModelOptions& options,
                                           const Inspector& inspector) {
  std::unique_ptr<Model> model(new Model(backend, size, options, inspector));
  Maker maker(*model);
  LLMPROF_CHECK(maker.vision());
  LLMPROF_CHECK(maker.decoder());
  LLMPROF_CHECK(model->prepare());
  return model;
}

Status Model::prepare() {
  LLMPROF_CHECK(backend_.prepare(vision_attention()));
  for (const DecoderLayer& layer : decoder_)
    LLMPROF_CHECK(backend_.prepare(decoder_attention(prefill_, options_.tokens(size_), layer.cache)));
  LLMPROF_CHECK(backend_.prepare(decoder_attention(decode_, options_.tokens(size_) + 1, decoder_.front().cache)));
  LLMPROF_ASSIGN(repeat_step_, backend_.repeatable([this] { return decode_step(); }));
  return backend_.wait();
}

Status Model::load(const std::vector<float>& patches) {
  if (backend_.dtype() == DType::kBf16) {
    std::vector<uint16_t> rounded;
    rounded.reserve(patches.size());
    for (const float value : patches) rounded.push_back(device::to_bf16(value));
    LLMPROF_CHECK(backend_.upload(v_.patches, rounded.data()));
  } else {
    LLMPROF_CHECK(backend_.upload(v_.patches, patches.data()));
  }
  LLMPROF_CHECK(backend_.wait());
  return show("patches", v_.patches);
}

AttentionCall Model::vision_attention() const {
  const VisionConfig& c = size_.vision;
  AttentionCall attention;
  attention.sequences = 1;
  attention.queries = attention.keys = attention.capacity = c.patches();
  attention.heads = attention.kv_heads = c.heads;
  attention.head_size = c.head_size();
  const auto heads_at = [&](int64_t first) {
    return Heads{static_cast<const char*>(v_.qkv.data) +
                     static_cast<size_t>(first) * static_cast<size_t>(dtype_bytes(v_.qkv.dtype)),
                 c.patches() * 3 * c.hidden, 3 * c.hidden, c.head_size()};
  };
  attention.q = heads_at(0);
  attention.k = heads_at(c.hidden);
  attention.v = heads_at(2 * c.hidden);
  attention.out = v_.mixed;
  return attention;
}

Status Model::encode() {
  LLMPROF_CHECK(backend_.apply(patch_embedding_, v_.patches, v_.x));
  LLMPROF_CHECK(backend_.add(position_embedding_, v_.x));
  const AttentionCall attention = vision_attention();
  for (size_t i = 0; i < vision_.size(); ++i) {
    const VisionLayer& layer = vision_[i];
    LLMPROF_CHECK(backend_.layernorm(v_.x, layer.norm1_gain, layer.norm1_bias, v_.normed));
    LLMPROF_CHECK(backend_.apply(layer.qkv, v_.normed, v_.qkv));
    LLMPROF_CHECK(backend_.attention(attention));
    LLMPROF_CHECK(backend_.apply(layer.out, v_.mixed, v_.normed));
    LLMPROF_CHECK(backend_.add(v_.normed, v_.x));
    LLMPROF_CHECK(backend_.layernorm(v_.x, layer.norm2_gain, layer.norm2_bias, v_.normed));
    LLMPROF_CHECK(backend_.apply(layer.up, v_.normed, v_.wide));
    LLMPROF_CHECK(backend_.gelu(v_.wide, v_.wide));
    LLMPROF_CHECK(backend_.apply(layer.down, v_.wide, v_.normed));
    LLMPROF_CHECK(backend_.add(v_.normed, v_.x));
    LLMPROF_CHECK(show("vision." + std::to_string(i), v_.x));
  }
  LLMPROF_CHECK(backend_.layernorm(v_.x, vision_norm_gain_, vision_norm_bias_, v_.normed));
  return backend_.wait();
}

Status Model::project() {
  LLMPROF_CHECK(backend_.merge(v_.normed, size_.vision.merge, v_.merged));
  LLMPROF_CHECK(backend_.apply(project1_, v_.merged, v_.joined));
  LLMPROF_CHECK(backend_.gelu(v_.joined, v_.joined_act));
  LLMPROF_CHECK(backend_.apply(project2_, v_.joined_act, v_.image));
  LLMPROF_CHECK(backend_.wait());
  return show("image", v_.image);
}

Result<std::vector<int32_t>> Model::prefill(const std::vector<int32_t>& prompt) {
  const int64_t image = size_.vision.tokens(), tokens = options_.tokens(size_);
  std::vector<int32_t> positions, last;
  for (int64_t sequence = 0; sequence < options_.sequences; ++sequence) {
    for (int64_t token = 0; token < tokens; ++token) positions.push_back(static_cast<int32_t>(token));
    last.push_back(static_cast<int32_t>((sequence + 1) * tokens - 1));
  }
  const Tensor ids{prefill_.ids.data, 1, options_.sequences * options_.prompt, DType::kInt32};
  LLMPROF_CHECK(backend_.upload(prefill_.positions, positions.data()));
  LLMPROF_CHECK(backend_.upload(prefill_.last, last.data()));
  LLMPROF_CHECK(backend_.upload(ids, prompt.data()));
  for (int64_t sequence = 0; sequence < options_.sequences; ++sequence) {
    LLMPROF_CHECK(backend_.copy(v_.image, prefill_.x.rows_from(sequence * tokens, image)));
    const Tensor mine{static_cast<int32_t*>(ids.data) + sequence * options_.prompt, 1, options_.prompt, DType::kInt32};
    LLMPROF_CHECK(backend_.gather(embedding_, mine, prefill_.x.rows_from(sequence * tokens + image, options_.prompt)));
  }
  LLMPROF_CHECK(layers(prefill_, tokens, "prefill"));
  LLMPROF_CHECK(backend_.gather(prefill_.normed, prefill_.last, prefill_.last_normed));
  LLMPROF_CHECK(backend_.apply(head_, prefill_.last_normed, prefill_.logits));
  LLMPROF_CHECK(backend_.argmax(prefill_.logits, prefill_.tokens));
  return tokens_of(prefill_, "prefill");
}

Result<std::vector<int32_t>> Model::decode(int64_t step) {
  step_ = step;
  if (step == 0) {
    const std::vector<int32_t> positions(static_cast<size_t>(options_.sequences),
                                         static_cast<int32_t>(options_.tokens(size_)));
    LLMPROF_CHECK(backend_.upload(decode_.positions, positions.data()));
  }
  LLMPROF_CHECK(repeat_step_());
  return tokens_of(decode_, "decode." + std::to_string(step));
}

// The same operators on the same tensors at each step: positions and tokens are read and written where they lie.
Status Model::decode_step() {
  LLMPROF_CHECK(backend_.gather(embedding_, decode_.tokens, decode_.x));
  LLMPROF_CHECK(layers(decode_, options_.tokens(size_) + step_ + 1, "decode." + std::to_string(step_)));
  LLMPROF_CHECK(backend_.apply(head_, decode_.normed, decode_.logits));
  LLMPROF_CHECK(backend_.argmax(decode_.logits, decode_.tokens));
  return backend_.advance(decode_.positions);
}

Result<std::vector<int32_t>> Model::tokens_of(const DecoderTensors& t, const std::string& name) {
  std::vector<int32_t> tokens(static_cast<size_t>(options_.sequences));
  LLMPROF_CHECK(backend_.download(t.tokens, tokens.data()));
  LLMPROF_CHECK(show(name + ".logits", t.logits));
  return tokens;
}

AttentionCall Model::decoder_attention(const DecoderTensors& t, int64_t keys, const Cache& cache) const {
  const DecoderConfig& c = size_.decoder;
  AttentionCall attention;
  attention.sequences = options_.sequences;
  attention.queries = t.x.rows / options_.sequences;
  attention.keys = keys;
  attention.capacity = cache.capacity;
  attention.heads = c.heads;
  attention.kv_heads = c.kv_heads;
  attention.head_size = c.head_size;
  attention.out = t.mixed;
  attention.positions = t.positions;
  attention.causal = attention.queries == keys;
  attention.q = {t.qkv.data, attention.queries * t.qkv.columns, t.qkv.columns, c.head_size};
  const int64_t head = cache.capacity * c.head_size;
  attention.k = {cache.keys.data, c.kv_heads * head, c.head_size, head};
  attention.v = {cache.values.data, c.kv_heads * head, c.head_size, head};
  return attention;
}

// The residual stream lies in t.x; what a branch adds to it is added where the next norm reads it.
Status Model::layers(const DecoderTensors& t, int64_t keys, const std::string& name) {
  const DecoderConfig& c = size_.decoder;
  const bool shown = &t == &prefill_ || !backend_.records();
  for (size_t i = 0; i < decoder_.size(); ++i) {
    const DecoderLayer& layer = decoder_[i];
    LLMPROF_CHECK(i == 0 ? backend_.rmsnorm(t.x, nullptr, layer.norm1, t.normed)
                         : backend_.rmsnorm(t.branch, &t.x, layer.norm1, t.normed));
    if (i > 0 && shown) LLMPROF_CHECK(show(name + ".layer." + std::to_string(i - 1), t.x));
    LLMPROF_CHECK(backend_.apply(layer.qkv, t.normed, t.qkv));
    LLMPROF_CHECK(backend_.rope(t.qkv, c.heads, c.kv_heads, c.head_size, angles_, t.positions));
    LLMPROF_CHECK(backend_.append(t.qkv, c.query_width(), t.positions, options_.sequences, layer.cache));
    LLMPROF_CHECK(backend_.attention(decoder_attention(t, keys, layer.cache)));
    LLMPROF_CHECK(backend_.apply(layer.out, t.mixed, t.branch));
    LLMPROF_CHECK(backend_.rmsnorm(t.branch, &t.x, layer.norm2, t.normed));
    LLMPROF_CHECK(backend_.apply(layer.gate_up, t.normed, t.gate_up));
    LLMPROF_CHECK(backend_.swiglu(t.gate_up, t.active));
    LLMPROF_CHECK(backend_.apply(layer.down, t.active, t.branch));
  }
  return backend_.rmsnorm(t.branch, &t.x, final_norm_, t.normed);
}

}  // namespace llmprof::workload
