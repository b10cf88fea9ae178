#include "model/number_format.h"

#include <fmt/format.h>

#include <array>
#include <charconv>
#include <optional>

#include "base/nearest.h"

namespace llmprof {
namespace {

int64_t divide_up(int64_t a, int64_t b) { return (a + b - 1) / b; }

struct Spelling {
  std::string_view name;
  std::string_view format;
};
// awq and gptq are methods; what their checkpoints have by default is 4 bits, a scale and a zero point per 128 inputs.
constexpr std::array<Spelling, 13> kSpellings = {{{"bfloat16", "bf16"},
                                                  {"float16", "fp16"},
                                                  {"half", "fp16"},
                                                  {"f16", "fp16"},
                                                  {"float32", "fp32"},
                                                  {"float", "fp32"},
                                                  {"f32", "fp32"},
                                                  {"fp8_e4m3", "fp8"},
                                                  {"fp8_e5m2", "fp8"},
                                                  {"float8_e4m3fn", "fp8"},
                                                  {"int4", "int4-g128"},
                                                  {"awq", "int4-g128-zp"},
                                                  {"gptq", "int4-g128-zp"}}};

NumberFormat plain(std::string name, DType element) {
  NumberFormat format;
  format.name = std::move(name);
  format.element = element;
  format.bits = static_cast<int>(8 * dtype_bytes(element));
  format.floating = element != DType::kInt8 && element != DType::kInt4;
  return format;
}

NumberFormat scaled(std::string name, DType element, int64_t group, int scale_bits) {
  NumberFormat format = plain(std::move(name), element);
  format.group = group;
  format.scale_bits = scale_bits;
  return format;
}

// int4-gN or int4-gN-zp
std::optional<NumberFormat> parse_int4(std::string_view name) {
  constexpr std::string_view kPrefix = "int4-g", kZeroPoint = "-zp";
  if (name.substr(0, kPrefix.size()) != kPrefix) return std::nullopt;
  std::string_view digits = name.substr(kPrefix.size());
  const bool zero_point =
      digits.size() > kZeroPoint.size() && digits.substr(digits.size() - kZeroPoint.size()) == kZeroPoint;
  if (zero_point) digits.remove_suffix(kZeroPoint.size());
  int64_t group = 0;
  const std::from_chars_result parsed = std::from_chars(digits.data(), digits.data() + digits.size(), group);
  if (parsed.ec != std::errc() || parsed.ptr != digits.data() + digits.size() || group < 16 || group > 1024)
    return std::nullopt;
  NumberFormat format = scaled(std::string(name), DType::kInt4, group, 16);
  format.zero_bits = zero_point ? 4 : 0;
  return format;
}

std::optional<NumberFormat> parse_any(std::string_view text) {
  std::string name;
  for (const char c : text.substr(0, 32)) name += c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  for (const Spelling& spelling : kSpellings)
    if (name == spelling.name) name = spelling.format;
  for (const DType element : {DType::kBf16, DType::kFp16, DType::kFp32, DType::kFp8})
    if (name == dtype_name(element)) return plain(name, element);
  if (name == "int8") return scaled(name, DType::kInt8, -1, 16);
  if (name == "mxfp4") return scaled(name, DType::kFp4, 32, 8);
  if (name == "nvfp4") return scaled(name, DType::kFp4, 16, 8);
  if (name == "fp8-block") {
    NumberFormat format = scaled(name, DType::kFp8, 128, 32);
    format.group_outputs = 128;
    return format;
  }
  return parse_int4(name);
}

}  // namespace

NumberFormat bf16_format() { return plain("bf16", DType::kBf16); }

int64_t NumberFormat::matrix_bytes(int64_t out, int64_t in) const {
  const int64_t elements = out * divide_up(in * bits, 8);
  if (group == 0) return elements;
  const int64_t groups = divide_up(out, group_outputs) * (group < 0 ? 1 : divide_up(in, group));
  return elements + divide_up(groups * (scale_bits + zero_bits), 8);
}

double NumberFormat::effective_bytes(int64_t in) const {
  const double per_element = bits / 8.0;
  if (group == 0) return per_element;
  const double shared = static_cast<double>((group < 0 ? in : group) * group_outputs);
  return per_element + (scale_bits + zero_bits) / 8.0 / shared;
}

const std::vector<std::string>& weight_format_names() {
  static const std::vector<std::string> names = {"bf16", "fp16",  "fp32",      "fp8",          "fp8-block",
                                                 "int8", "int4",  "int4-g128", "int4-g128-zp", "awq",
                                                 "gptq", "mxfp4", "nvfp4"};
  return names;
}

Result<NumberFormat> parse_weight_format(std::string_view name, std::string_view option) {
  if (std::optional<NumberFormat> format = parse_any(name)) return *std::move(format);
  return fail(fmt::format("expected a number format for weights, found \"{}\"", name.substr(0, 64)),
              std::string(option), "use " + join_or(weight_format_names()), ExitCode::kUsage);
}

Result<NumberFormat> parse_plain_format(std::string_view name, std::string_view option) {
  std::optional<NumberFormat> format = parse_any(name);
  if (format && format->name == "int8") format = plain("int8", DType::kInt8);
  if (format && format->group == 0) return *std::move(format);
  return fail(fmt::format("expected a number format without scales, found \"{}\"", name.substr(0, 64)),
              std::string(option), "use bf16, fp16, fp32, fp8 or int8", ExitCode::kUsage);
}

}  // namespace llmprof
