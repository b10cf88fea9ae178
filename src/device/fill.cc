#include "device/fill.h"

#include <fmt/format.h>

#include <cstring>

#include "device/elements.h"

namespace llmprof::device {
namespace {

template <class T, class Make>
void each(const Fill& fill, uint64_t first, size_t count, void* out, Make make) {
  const uint64_t mixed = fill_mix(fill.seed);
  char* at = static_cast<char*>(out);
  for (size_t i = 0; i < count; ++i) {
    const T value = make(fill_hash_mixed(mixed, first + i));
    std::memcpy(at + i * sizeof(T), &value, sizeof(T));
  }
}

void fill_uniform_elements(const Fill& fill, uint64_t first, size_t count, void* out) {
  switch (fill.dtype) {
    case DType::kFp64:
      return each<double>(fill, first, count, out, [](uint64_t hash) { return fill_uniform_double(hash); });
    case DType::kFp32:
    case DType::kTf32:
      return each<float>(fill, first, count, out, [](uint64_t hash) { return fill_uniform(hash); });
    case DType::kBf16:
      return each<uint16_t>(fill, first, count, out, [](uint64_t hash) { return to_bf16(fill_uniform(hash)); });
    case DType::kFp16:
      return each<uint16_t>(fill, first, count, out, [](uint64_t hash) { return to_fp16(fill_uniform(hash)); });
    case DType::kFp8:
      return each<uint8_t>(fill, first, count, out, [](uint64_t hash) { return to_fp8(448 * fill_uniform(hash)); });
    case DType::kInt8:
    case DType::kFp4:
      return each<uint8_t>(fill, first, count, out, [](uint64_t hash) { return static_cast<uint8_t>(hash >> 56); });
    default:
      return;
  }
}

}  // namespace

Status check_fill(const Fill& fill) {
  switch (fill.kind) {
    case Fill::Kind::kPoison:
      return {};
    case Fill::Kind::kIndex:
      if (fill.dtype != DType::kInt32) return fail(fmt::format("indices are int32, found {}", dtype_name(fill.dtype)));
      if (fill.below < 1 || fill.below > (int64_t{1} << 31) - 1)
        return fail(fmt::format("expected indices below a number of 1 to 2^31 - 1, found {}", fill.below));
      return {};
    case Fill::Kind::kUniform:
      if (!has_elements(fill.dtype) || fill.dtype == DType::kInt32)
        return fail(fmt::format("there are no uniform random numbers of type {}", dtype_name(fill.dtype)));
      return {};
  }
  return {};
}

size_t fill_unit_bytes(DType dtype) { return dtype == DType::kFp4 ? 1 : static_cast<size_t>(dtype_bytes(dtype)); }

void fill_elements(const Fill& fill, uint64_t first, size_t count, void* out) {
  switch (fill.kind) {
    case Fill::Kind::kPoison:
      std::memset(out, 0xff, count * fill_unit_bytes(fill.dtype));
      return;
    case Fill::Kind::kIndex:
      return each<int32_t>(fill, first, count, out, [&](uint64_t hash) { return fill_index(hash, fill.below); });
    case Fill::Kind::kUniform:
      return fill_uniform_elements(fill, first, count, out);
  }
}

}  // namespace llmprof::device
