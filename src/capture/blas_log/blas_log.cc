#include "capture/blas_log/blas_log.h"

#include "capture/blas_log/names.h"
#include "nvidia/cublas_abi.h"

namespace llmprof::blas_log {
namespace {

bool starts_with(std::string_view text, std::string_view start) { return text.substr(0, start.size()) == start; }

// Decimal digits only, below 10^18; -1 otherwise.
int64_t number(std::string_view text) {
  if (text.empty() || text.size() > 18) return -1;
  int64_t value = 0;
  for (const char c : text) {
    if (c < '0' || c > '9') return -1;
    value = value * 10 + (c - '0');
  }
  return value;
}

// What stands between `start` and the next `end`; empty if either is missing.
std::string_view between(std::string_view text, std::string_view start, char end) {
  const size_t at = text.find(start);
  if (at == std::string_view::npos) return {};
  text.remove_prefix(at + start.size());
  const size_t close = text.find(end);
  return close == std::string_view::npos ? std::string_view() : text.substr(0, close);
}

// The value of `key` in "key=value key=value"; empty if it is missing.
std::string_view field(std::string_view text, std::string_view key) {
  while (!text.empty()) {
    const size_t space = text.find(' ');
    const std::string_view word = text.substr(0, space);
    if (word.size() > key.size() && word[key.size()] == '=' && starts_with(word, key))
      return word.substr(key.size() + 1);
    if (space == std::string_view::npos) break;
    text.remove_prefix(space + 1);
  }
  return {};
}

bool has_scales(int32_t type) {
  return type == cublas::kR8FE4M3 || type == cublas::kR8FE5M2 || type == cublas::kR4FE2M1;
}

uint8_t operation_or_none(std::string_view text) {
  const int32_t value = operation(text);
  return value < 0 ? uint8_t{cublas::kOpN} : static_cast<uint8_t>(value);
}

// "CUDA_R_16BF(14)": the number.
int32_t value_in_parentheses(std::string_view text) {
  const size_t open = text.rfind('(');
  if (open == std::string_view::npos || text.back() != ')') return -1;
  const int64_t value = number(text.substr(open + 1, text.size() - open - 2));
  return value < 0 || value > 1000 ? -1 : static_cast<int32_t>(value);
}

}  // namespace

bool split_lt_line(std::string_view line, LtLine& parts) {
  std::string_view fields[5];
  for (std::string_view& one : fields) {
    const size_t close = line.find(']');
    if (line.empty() || line.front() != '[' || close == std::string_view::npos) return false;
    one = line.substr(1, close - 1);
    line.remove_prefix(close + 1);
  }
  if (fields[1] != "cublasLt") return false;
  while (!line.empty() && line.front() == ' ') line.remove_prefix(1);
  parts = {fields[0], number(fields[2]), fields[3], fields[4], line};
  return true;
}

bool parse_matmul(std::string_view function, std::string_view message, Gemm& gemm) {
  const char* const name = known_matmul(function);
  if (name == nullptr) return false;
  const std::string_view a = between(message, " Adesc=[", ']');
  const std::string_view b = between(message, " Bdesc=[", ']');
  const std::string_view d = between(message, " Ddesc=[", ']');
  const std::string_view compute = between(message, " computeDesc=[", ']');
  if (a.empty() || b.empty() || d.empty() || compute.empty()) return false;
  Gemm found;
  found.function = name;
  found.transpose_a = operation_or_none(field(compute, "transa"));
  found.transpose_b = operation_or_none(field(compute, "transb"));
  // Rows and columns are those of the matrix as it is stored, whatever its order in memory.
  found.m = number(field(d, "rows"));
  found.n = number(field(d, "cols"));
  found.k = number(field(a, found.transpose_a == cublas::kOpN ? "cols" : "rows"));
  if (found.m <= 0 || found.n <= 0 || found.k <= 0) return false;
  const std::string_view batch = field(d, "batchCount");
  if (!batch.empty()) found.batch = number(batch);
  if (found.batch <= 0) return false;
  found.row_major = field(d, "order") == "ORDER_ROW" ? 1 : 0;
  found.type_a = data_type(field(a, "type"));
  found.type_b = data_type(field(b, "type"));
  found.type_d = data_type(field(d, "type"));
  found.compute_type = compute_type(field(compute, "computeType"));
  const int32_t after = epilogue(field(compute, "epilogue"));
  if (after > 0) found.epilogue = after;
  const int32_t scale_a = has_scales(found.type_a) ? scale_mode(field(compute, "aScaleMode")) : -1;
  const int32_t scale_b = has_scales(found.type_b) ? scale_mode(field(compute, "bScaleMode")) : -1;
  if (scale_a > 0) found.scale_a = scale_a;
  if (scale_b > 0) found.scale_b = scale_b;
  gemm = found;
  return true;
}

CublasRecord::Event CublasRecord::feed(std::string_view text) {
  Event strongest = Event::kNone;
  while (!text.empty()) {
    const size_t newline = text.find('\n');
    const Event event = feed_line(text.substr(0, newline));
    if (event > strongest) strongest = event;
    if (newline == std::string_view::npos) break;
    text.remove_prefix(newline + 1);
  }
  return strongest;
}

CublasRecord::Event CublasRecord::feed_line(std::string_view line) {
  if (starts_with(line, "I! cuBLAS")) {
    begin(line);
    return Event::kCall;
  }
  if (!inside_) return Event::kNone;
  if (starts_with(line, "i!Process=")) return end(line);
  if (starts_with(line, "i!  ")) {
    const std::string_view rest = line.substr(4);
    const size_t colon = rest.find(": type=");
    const size_t value = rest.find("; val=");
    if (colon != std::string_view::npos && value != std::string_view::npos && colon < value)
      parameter(rest.substr(0, colon), rest.substr(value + 6));
  }
  return Event::kNone;
}

void CublasRecord::begin(std::string_view line) {
  inside_ = false;
  const std::string_view declaration = between(line, " function ", '(');
  const size_t space = declaration.rfind(' ');
  const KnownFunction* const function =
      known_function(space == std::string_view::npos ? declaration : declaration.substr(space + 1));
  if (function == nullptr) return;
  gemm_ = Gemm();
  rows_ = cols_ = -1;
  inside_ = true;
  grouped_ = function->form == Form::kGrouped;
  gemm_.gemv = function->form == Form::kGemv ? 1 : 0;
  gemm_.function = function->name;
  gemm_.type_a = gemm_.type_b = function->type_a;
  gemm_.type_d = function->type_d;
  gemm_.compute_type = function->compute_type;
}

void CublasRecord::parameter(std::string_view name, std::string_view value) {
  while (!value.empty() && (value.back() == '\r' || value.back() == ' ')) value.remove_suffix(1);
  if (value.empty()) return;
  const bool gemv = gemm_.gemv != 0;
  if (name == "m") {
    (gemv ? rows_ : gemm_.m) = number(value);
  } else if (name == "n") {
    (gemv ? cols_ : gemm_.n) = number(value);
  } else if (name == "k") {
    gemm_.k = number(value);
  } else if (name == "batchCount") {
    gemm_.batch = number(value);
  } else if (name == "group_count") {
    const int64_t groups = number(value);
    if (groups > 0 && groups < INT32_MAX) gemm_.groups = static_cast<int32_t>(groups);
  } else if (name == "transa" || name == "transb" || name == "trans") {
    const int32_t operation = value_in_parentheses(value);
    if (operation >= cublas::kOpN && operation <= cublas::kOpC)
      (name == "transb" ? gemm_.transpose_b : gemm_.transpose_a) = static_cast<uint8_t>(operation);
  } else if (name == "Atype") {
    gemm_.type_a = value_in_parentheses(value);
  } else if (name == "Btype") {
    gemm_.type_b = value_in_parentheses(value);
  } else if (name == "Ctype") {
    gemm_.type_d = value_in_parentheses(value);
  } else if (name == "computeType") {
    gemm_.compute_type = value_in_parentheses(value);
  }
}

// The line with the state of the handle is the last that says something.
CublasRecord::Event CublasRecord::end(std::string_view line) {
  inside_ = false;
  if (gemm_.type_a == cublas::kR32F && gemm_.compute_type == cublas::kCompute32F &&
      line.find("MathMode=CUBLAS_TF32_TENSOR_OP_MATH") != std::string_view::npos)
    gemm_.compute_type = cublas::kCompute32FFastTf32;
  if (grouped_) {
    gemm_.m = gemm_.n = gemm_.k = -1;  // arrays, of which the log has the addresses
    gemm_.batch = 1;
    return gemm_.groups > 0 ? Event::kGemm : Event::kNone;
  }
  if (gemm_.gemv != 0) {
    const bool transposed = gemm_.transpose_a != cublas::kOpN;
    gemm_.m = transposed ? cols_ : rows_;
    gemm_.k = transposed ? rows_ : cols_;
    gemm_.n = 1;
  }
  return gemm_.m > 0 && gemm_.n > 0 && gemm_.k > 0 && gemm_.batch > 0 ? Event::kGemm : Event::kNone;
}

}  // namespace llmprof::blas_log
