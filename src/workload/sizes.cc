#include "workload/sizes.h"

namespace llmprof::workload {
namespace {

constexpr Size kSizes[] = {
    {"tiny", "for the numerical check", {64, 2, 4, 176, 32, 8}, {64, 2, 4, 2, 16, 176, 512}, 24, 8},
    {"small", "a second or two on a CPU", {384, 6, 6, 1536, 224, 14}, {768, 8, 12, 4, 64, 2048, 32000}, 128, 32},
    {"base",
     "the decoder of TinyLlama-1.1B: half a minute on a CPU",
     {768, 12, 12, 3072, 224, 14},
     {2048, 22, 32, 4, 64, 5632, 32000},
     512,
     64},
    {"large",
     "the decoder of Llama-3.1-8B: minutes, and 17 GB in bf16",
     {1024, 24, 16, 4096, 336, 14},
     {4096, 32, 32, 8, 128, 14336, 128256, 500000},
     2048,
     128},
};

}  // namespace

std::span<const Size> sizes() { return kSizes; }

const Size* find_size(std::string_view name) {
  for (const Size& size : kSizes)
    if (size.name == name) return &size;
  return nullptr;
}

ParameterCount count_parameters(const Size& size) {
  const VisionConfig& v = size.vision;
  const DecoderConfig& d = size.decoder;
  const auto linear = [](int64_t in, int64_t out) { return in * out + out; };
  ParameterCount count;
  count.vision = linear(v.patch_values(), v.hidden) + v.patches() * v.hidden + 2 * v.hidden +
                 v.layers * (4 * v.hidden + linear(v.hidden, 3 * v.hidden) + linear(v.hidden, v.hidden) +
                             linear(v.hidden, v.intermediate) + linear(v.intermediate, v.hidden));
  count.vision += linear(int64_t{v.merge} * v.merge * v.hidden, d.hidden) + linear(d.hidden, d.hidden);
  count.decoder = 2 * d.vocabulary * d.hidden + d.hidden +
                  d.layers * (2 * d.hidden + d.hidden * (d.query_width() + 2 * d.kv_width()) +
                              d.query_width() * d.hidden + 3 * d.hidden * d.intermediate);
  return count;
}

}  // namespace llmprof::workload
