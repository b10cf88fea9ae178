#include "device/elements.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>

namespace llmprof::device {
namespace {

// A binary format with subnormals: `mantissa` stored bits, the least exponent of a normal number.
struct Format {
  int mantissa, least_exponent;
};
constexpr Format kFp16{10, -14};
constexpr Format kFp8{3, -6};

// Bits of |value| in the format, as if its exponent had no upper end. `value` is finite.
uint32_t magnitude_bits(float value, Format format) {
  const float magnitude = std::fabs(value);
  if (magnitude == 0) return 0;
  uint32_t bits = 0;
  std::memcpy(&bits, &magnitude, 4);
  constexpr int kBias = 127, kMantissa = 23;
  // A normal number of the format too: the same bits without the lowest, the exponent counted from another start.
  if (static_cast<int>(bits >> kMantissa) >= kBias + format.least_exponent) {
    const int dropped = kMantissa - format.mantissa;
    bits += (1U << (dropped - 1)) - 1 + ((bits >> dropped) & 1U);
    return (bits >> dropped) - (static_cast<uint32_t>(kBias + format.least_exponent - 1) << format.mantissa);
  }
  const int exponent = std::max(std::ilogb(magnitude), format.least_exponent);
  // In units of the last place; carrying into the next exponent comes out right by itself.
  const auto units = static_cast<uint32_t>(std::nearbyint(std::ldexp(magnitude, format.mantissa - exponent)));
  return (static_cast<uint32_t>(exponent - format.least_exponent) << format.mantissa) + units;
}

float magnitude_value(uint32_t bits, Format format) {
  const uint32_t exponent = bits >> format.mantissa;
  const uint32_t fraction = bits & ((1U << format.mantissa) - 1);
  const uint32_t units = exponent == 0 ? fraction : fraction + (1U << format.mantissa);
  const int scale = format.least_exponent - format.mantissa + (exponent == 0 ? 0 : static_cast<int>(exponent) - 1);
  return std::ldexp(static_cast<float>(units), scale);
}

// All numbers of a type of few bits: looking up is many times faster than making them.
template <size_t kCount, class Bits, float (*kValue)(Bits)>
const std::array<float, kCount>& table_of() {
  static const std::array<float, kCount> table = [] {
    std::array<float, kCount> values;
    for (size_t bits = 0; bits < kCount; ++bits) values[bits] = kValue(static_cast<Bits>(bits));
    return values;
  }();
  return table;
}

template <class T>
T read_at(const void* data, size_t index) {
  T value;
  std::memcpy(&value, static_cast<const char*>(data) + index * sizeof(T), sizeof(T));
  return value;
}

}  // namespace

uint16_t to_bf16(float value) {
  uint32_t bits = 0;
  std::memcpy(&bits, &value, 4);
  if (std::isnan(value)) return static_cast<uint16_t>((bits >> 16) | 0x40U);
  return static_cast<uint16_t>((bits + 0x7fffU + ((bits >> 16) & 1U)) >> 16);
}

uint16_t to_fp16(float value) {
  const uint32_t sign = std::signbit(value) ? 0x8000U : 0;
  if (std::isnan(value)) return static_cast<uint16_t>(sign | 0x7e00U);
  const uint32_t magnitude = std::isinf(value) ? 0x7c00U : std::min(magnitude_bits(value, kFp16), 0x7c00U);
  return static_cast<uint16_t>(sign | magnitude);
}

uint8_t to_fp8(float value) {
  const uint32_t sign = std::signbit(value) ? 0x80U : 0;
  if (std::isnan(value)) return static_cast<uint8_t>(sign | 0x7fU);
  const uint32_t magnitude = std::isinf(value) ? 0x7eU : std::min(magnitude_bits(value, kFp8), 0x7eU);
  return static_cast<uint8_t>(sign | magnitude);
}

float from_bf16(uint16_t bits) {
  const uint32_t wide = static_cast<uint32_t>(bits) << 16;
  float value = 0;
  std::memcpy(&value, &wide, 4);
  return value;
}

float from_fp16(uint16_t bits) {
  const uint32_t magnitude = bits & 0x7fffU;
  float value = std::numeric_limits<float>::quiet_NaN();
  if (magnitude < 0x7c00U) value = magnitude_value(magnitude, kFp16);
  if (magnitude == 0x7c00U) value = std::numeric_limits<float>::infinity();
  return (bits & 0x8000U) != 0 ? -value : value;
}

float from_fp8(uint8_t bits) {
  const uint32_t magnitude = bits & 0x7fU;
  const float value = magnitude == 0x7fU ? std::numeric_limits<float>::quiet_NaN() : magnitude_value(magnitude, kFp8);
  return (bits & 0x80U) != 0 ? -value : value;
}

float from_fp4(uint8_t bits) {
  constexpr std::array<float, 8> kMagnitudes = {0, 0.5F, 1, 1.5F, 2, 3, 4, 6};
  const float value = kMagnitudes[bits & 7U];
  return (bits & 8U) != 0 ? -value : value;
}

bool has_elements(DType dtype) {
  switch (dtype) {
    case DType::kFp64:
    case DType::kFp32:
    case DType::kTf32:
    case DType::kFp16:
    case DType::kBf16:
    case DType::kFp8:
    case DType::kFp4:
    case DType::kInt8:
    case DType::kInt32:
      return true;
    default:
      return false;
  }
}

namespace {

float half_byte(const void* data, size_t index) {
  const uint8_t two = read_at<uint8_t>(data, index / 2);
  return from_fp4(static_cast<uint8_t>(index % 2 == 0 ? two & 0xfU : two >> 4U));
}

}  // namespace

double element_at(DType dtype, const void* data, size_t index) {
  switch (dtype) {
    case DType::kFp64:
      return read_at<double>(data, index);
    case DType::kFp32:
    case DType::kTf32:
      return static_cast<double>(read_at<float>(data, index));
    case DType::kFp16:
      return static_cast<double>(from_fp16(read_at<uint16_t>(data, index)));
    case DType::kBf16:
      return static_cast<double>(from_bf16(read_at<uint16_t>(data, index)));
    case DType::kFp8:
      return static_cast<double>(from_fp8(read_at<uint8_t>(data, index)));
    case DType::kFp4:
      return static_cast<double>(half_byte(data, index));
    case DType::kInt8:
      return read_at<int8_t>(data, index);
    case DType::kInt32:
      return read_at<int32_t>(data, index);
    default:
      return std::numeric_limits<double>::quiet_NaN();
  }
}

void elements_to_double(DType dtype, const void* data, std::span<double> out) {
  const auto each = [&](const auto& value_of) {
    for (size_t i = 0; i < out.size(); ++i) out[i] = static_cast<double>(value_of(i));
  };
  switch (dtype) {
    case DType::kFp32:
    case DType::kTf32:
      return each([&](size_t i) { return read_at<float>(data, i); });
    case DType::kBf16:
      return each([&](size_t i) { return from_bf16(read_at<uint16_t>(data, i)); });
    case DType::kFp16: {
      const std::array<float, 0x10000>& table = table_of<0x10000, uint16_t, from_fp16>();
      return each([&](size_t i) { return table[read_at<uint16_t>(data, i)]; });
    }
    case DType::kFp8: {
      const std::array<float, 0x100>& table = table_of<0x100, uint8_t, from_fp8>();
      return each([&](size_t i) { return table[read_at<uint8_t>(data, i)]; });
    }
    case DType::kFp4:
      return each([&](size_t i) { return half_byte(data, i); });
    default:
      return each([&](size_t i) { return element_at(dtype, data, i); });
  }
}

bool is_poison(DType dtype, const void* data, size_t index) {
  const auto bytes = static_cast<size_t>(dtype_bytes(dtype));
  const unsigned char* at = static_cast<const unsigned char*>(data) + index * bytes;
  for (size_t i = 0; i < bytes; ++i)
    if (at[i] != 0xff) return false;
  return true;
}

namespace {

// Blocks of many elements are looked at without a branch in them.
template <class T>
size_t next_ones(const void* data, size_t first, size_t count) {
  constexpr size_t kBlock = 1024;
  constexpr T kOnes = static_cast<T>(~T{0});
  const char* const bytes = static_cast<const char*>(data);
  for (size_t at = first; at < count;) {
    const size_t end = std::min(at + kBlock, count);
    bool any = false;
    for (size_t i = at; i < end; ++i) {
      T value;
      std::memcpy(&value, bytes + i * sizeof(T), sizeof(T));
      any |= value == kOnes;
    }
    if (any) {
      for (size_t i = at; i < end; ++i)
        if (read_at<T>(data, i) == kOnes) return i;
    }
    at = end;
  }
  return count;
}

}  // namespace

size_t next_poison(DType dtype, const void* data, size_t first, size_t count) {
  switch (static_cast<int>(dtype_bytes(dtype))) {
    case 1:
      return next_ones<uint8_t>(data, first, count);
    case 2:
      return next_ones<uint16_t>(data, first, count);
    case 4:
      return next_ones<uint32_t>(data, first, count);
    case 8:
      return next_ones<uint64_t>(data, first, count);
    default:
      while (first < count && !is_poison(dtype, data, first)) ++first;
      return first;
  }
}

}  // namespace llmprof::device
