// What a recorder says of the inputs of an operator: JSON texts, as PyTorch writes them, read once into the tables
// signatures, inputs and input_numbers; and a view of those tables. The texts come from untrusted files: nesting, rank
// and counts are bounded, nothing recurses, and sizes are checked before use.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "trace/trace.h"

namespace llmprof {

constexpr int kMaxRank = 8;                         // tensors of LLM inference have at most 6 dimensions
constexpr size_t kMaxInputs = 128;                  // of one operator
constexpr size_t kMaxTensors = 4096;                // of one operator, lists included
constexpr int64_t kMaxElements = int64_t{1} << 50;  // larger tensors do not exist; products stay exact in a double

// Each empty where the recorder does not say it.
struct SignatureText {
  std::string_view dims = {};      // list of one list per input: sizes, or a list of sizes for each tensor of a list
  std::string_view types = {};     // list of strings: "c10::BFloat16", "Scalar"
  std::string_view strides = {};   // like dims
  std::string_view concrete = {};  // list of strings: the values of scalars; "" for tensors and what is absent

  uint64_t hash_without_dims() const;
};

// Reads the text into the tables as the inputs of a row of signatures that has none yet. None, and a count of -1, if
// the text contradicts itself or exceeds a bound: not lists of integers, negative sizes, another number of types than
// of dims.
void read_inputs(const SignatureText& text, Trace& trace, SignatureId signature);

// Rows first, first + 1, ... as far as the table reaches, as [first, end): a file may say anything.
std::pair<Row, Row> row_range(Row first, int32_t count, size_t table_rows);

struct Shape {
  int rank = 0;
  std::array<int64_t, kMaxRank> dims{};
  int64_t elements = 1;  // product of dims, checked against kMaxElements
  int64_t distinct = 1;  // the same without dimensions of stride 0 (expanded tensors); equal if strides are absent

  int64_t operator[](int i) const { return dims[static_cast<size_t>(i)]; }
  // Dimension counted from the end: back(1) is the last one. 1 beyond the first.
  int64_t back(int i) const { return i <= rank ? dims[static_cast<size_t>(rank - i)] : 1; }
};

// The inputs of one signature, by position. A view: valid until the tables change. Without inputs if there is no such
// signature; what the view does not have at a position is nothing, whatever the position.
class SignatureShapes {
 public:
  SignatureShapes(const Trace& trace, SignatureId signature);

  bool readable() const { return readable_; }
  // Whether everything keeps the bounds above, as check_trace establishes it.
  bool sound() const;
  int size() const;
  std::optional<Shape> tensor(int position) const;
  // One for a tensor, any number for a list.
  std::vector<Shape> tensors(int position) const;
  // Of a tensor.
  DType dtype(int position) const;
  // Of a scalar that is a whole number, or a list of them.
  std::optional<std::span<const int64_t>> integers(int position) const;
  std::optional<int64_t> integer(int position) const;
  // Whether a scalar is true, or a number other than 0; false where it is neither.
  bool truth(int position) const;

 private:
  Row find(int position) const;
  InputKind kind(Row input) const { return input == kNoRow ? InputKind::kOther : inputs_.kind[input]; }
  std::span<const int64_t> numbers(Row input) const;
  bool read(Row input, Shape& shape) const;  // false beyond a bound

  const Inputs& inputs_;
  const InputNumbers& numbers_;
  Row first_ = 0, end_ = 0;  // in inputs
  bool readable_ = true;
};

}  // namespace llmprof
