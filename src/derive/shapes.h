// Reading the input description of an operator (a row of Signatures) into shapes and element types. The texts come
// from untrusted files: nesting, rank and counts are bounded, nothing recurses, and sizes are checked before use.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "trace/tables.h"

namespace llmprof {

constexpr int kMaxRank = 8;                         // tensors of LLM inference have at most 6 dimensions
constexpr size_t kMaxOperands = 128;                // inputs of one operator
constexpr size_t kMaxTensors = 4096;                // tensors of one operator, lists included
constexpr int64_t kMaxElements = int64_t{1} << 50;  // larger tensors do not exist; products stay exact in a double

struct Shape {
  int rank = 0;
  std::array<int64_t, kMaxRank> dims{};
  int64_t elements = 1;  // product of dims, checked against kMaxElements
  int64_t distinct = 1;  // the same without dimensions of stride 0 (expanded tensors); equal if strides are absent

  int64_t operator[](int i) const { return dims[static_cast<size_t>(i)]; }
  // Dimension counted from the end: back(1) is the last one. 1 beyond the first.
  int64_t back(int i) const { return i <= rank ? dims[static_cast<size_t>(rank - i)] : 1; }
};

struct Operand {
  enum class Kind : uint8_t { kOther, kTensor, kList };  // kOther: absent, a scalar or a list of scalars
  Kind kind = Kind::kOther;
  DType dtype = DType::kUnknown;
  uint32_t first = 0;  // row in SignatureShapes::tensors
  uint32_t count = 0;  // 1 for a tensor
};

// The parsed form of one signature. Meant to be reused: parse() keeps the memory.
class SignatureShapes {
 public:
  // False if the texts contradict each other or exceed a bound: not JSON lists of integers, negative dimensions,
  // another number of types than of dims. An empty `dims` is valid and has no operands.
  bool parse(std::string_view dims, std::string_view types, std::string_view strides);

  size_t size() const { return operands_.size(); }
  // Shape of input `i` if it is a tensor, else null.
  const Shape* tensor(int i) const;
  DType dtype(int i) const;
  // Tensors of input `i`: one for a tensor, any number for a list, none otherwise.
  const Operand* operand(int i) const;
  const Shape& shape(size_t row) const { return tensors_[row]; }

 private:
  bool read_dims(std::string_view text);
  bool read_types(std::string_view text);
  void read_strides(std::string_view text);

  std::vector<Operand> operands_;
  std::vector<Shape> tensors_;
};

// Element type by the recorder's spelling: "c10::BFloat16", "float", "long int". kUnknown for anything else.
DType dtype_of_text(std::string_view text);
// Element type by PyTorch's ScalarType number, as scalar arguments record it ("15" is bfloat16).
DType dtype_of_scalar_type(int64_t number);

// Value of scalar input `position` in a JSON list of strings; nothing if the list ends before or is malformed. An
// absent argument is recorded as "".
std::optional<std::string_view> concrete_input(std::string_view concrete, int position);
std::optional<bool> concrete_bool(std::string_view concrete, int position);
std::optional<int64_t> concrete_int(std::string_view concrete, int position);

// "[14, 14]" or "14" as recorded for a list of integers.
struct IntList {
  int count = 0;
  std::array<int64_t, kMaxRank> values{};
  // A list of one value counts for every dimension.
  int64_t at(int i) const { return values[static_cast<size_t>(count == 1 ? 0 : i)]; }
};
std::optional<IntList> concrete_ints(std::string_view concrete, int position);

}  // namespace llmprof
