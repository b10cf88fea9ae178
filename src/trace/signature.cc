#include "trace/signature.h"

#include <algorithm>
#include <charconv>
#include <system_error>
#include <tuple>

#include "base/flat_index.h"
#include "trace/trace_block.h"

namespace llmprof {
namespace {

// A cursor over a JSON text of lists, integers and strings.
class Cursor {
 public:
  explicit Cursor(std::string_view text) : text_(text) { skip_space(); }
  bool done() const { return at_ >= text_.size(); }
  char peek() const { return at_ < text_.size() ? text_[at_] : '\0'; }
  bool take(char c) {
    if (peek() != c) return false;
    ++at_;
    skip_space();
    return true;
  }
  bool integer(int64_t& value) {
    const char* const begin = text_.data() + at_;
    const std::from_chars_result read = std::from_chars(begin, text_.data() + text_.size(), value);
    if (read.ec != std::errc() || read.ptr == begin) return false;
    at_ += static_cast<size_t>(read.ptr - begin);
    skip_space();
    return true;
  }
  // The raw text between the quotes; escapes are passed over, not decoded.
  bool string(std::string_view& value) {
    if (peek() != '"') return false;
    const size_t begin = at_ + 1;
    size_t end = begin;
    while (end < text_.size() && text_[end] != '"') end += text_[end] == '\\' ? 2 : 1;
    if (end >= text_.size()) return false;
    value = text_.substr(begin, end - begin);
    at_ = end + 1;
    skip_space();
    return true;
  }

 private:
  void skip_space() {
    while (at_ < text_.size() &&
           (text_[at_] == ' ' || text_[at_] == '\n' || text_[at_] == '\t' || text_[at_] == '\r')) {
      ++at_;
    }
  }
  std::string_view text_;
  size_t at_ = 0;
};

// Calls item() for each element of a list whose '[' is next. False on a syntax error or when item() says so.
template <class Item>
bool each_item(Cursor& cursor, Item&& item) {
  if (!cursor.take('[')) return false;
  if (cursor.take(']')) return true;
  do {
    if (!item()) return false;
  } while (cursor.take(','));
  return cursor.take(']');
}

// kUnknown for what is no element type, or one that llmprof does not know.
DType dtype_of_text(std::string_view text) {
  static constexpr std::pair<std::string_view, DType> kNames[] = {
      {"c10::BFloat16", DType::kBf16},
      {"c10::Half", DType::kFp16},
      {"float", DType::kFp32},
      {"double", DType::kFp64},
      {"long int", DType::kInt64},
      {"long", DType::kInt64},
      {"int", DType::kInt32},
      {"short int", DType::kInt16},
      {"short", DType::kInt16},
      {"signed char", DType::kInt8},
      {"unsigned char", DType::kInt8},
      {"bool", DType::kBool},
      {"c10::Float8_e4m3fn", DType::kFp8},
      {"c10::Float8_e5m2", DType::kFp8},
      {"c10::Float8_e4m3fnuz", DType::kFp8},
      {"c10::Float8_e5m2fnuz", DType::kFp8},
      {"c10::Float8_e8m0fnu", DType::kFp8},
      {"c10::Float4_e2m1fn_x2", DType::kFp4},
      {"c10::qint8", DType::kInt8},
      {"c10::quint8", DType::kInt8},
      {"c10::qint32", DType::kInt32},
  };
  for (const std::pair<std::string_view, DType>& entry : kNames) {
    if (entry.first == text) return entry.second;
  }
  return DType::kUnknown;
}

// Reads the texts of one signature to the end of the tables.
class InputReader {
 public:
  explicit InputReader(Trace& trace)
      : strings_(trace.strings),
        inputs_(trace.inputs),
        numbers_(trace.input_numbers),
        first_(rows()),
        first_number_(numbers_.size()) {}

  bool read(const SignatureText& text) {
    if (!read_dims(text.dims)) return false;
    if (!text.strides.empty()) read_strides(text.strides);
    const auto type = [&](Row input, std::string_view value) { read_type(input, value); };
    if (!text.types.empty() && !each_input(text.types, type)) return false;
    each_input(text.concrete, [&](Row input, std::string_view value) { read_value(input, value); });
    return true;
  }
  Row rows() const { return static_cast<Row>(inputs_.size()); }
  void drop() { drop(first_, first_number_); }

 private:
  void drop(Row inputs, size_t numbers) {
    inputs_.resize(inputs);
    numbers_.resize(numbers);
  }

  bool add(InputKind kind) {
    if (rows() >= limit_) return false;
    inputs_.append({.kind = kind, .number_count = 0});
    return true;
  }
  bool add_number(Row input, int64_t value) {
    int32_t& count = inputs_.number_count[input];
    if (count >= kMaxRank) return false;
    if (count++ == 0) inputs_.first_number[input] = static_cast<Row>(numbers_.size());
    numbers_.append({.value = value});
    return true;
  }
  bool read_number(Row input, Cursor& cursor) {
    int64_t value = 0;
    return cursor.integer(value) && add_number(input, value);
  }

  // A list of numbers is a tensor, a list of lists a list of tensors, an empty list is known by its type.
  bool read_dims(std::string_view text) {
    Cursor cursor(text);
    limit_ = rows() + kMaxInputs + kMaxTensors;
    const bool ok = each_item(cursor, [&] {
      return add(InputKind::kOther) && each_item(cursor, [&, input = rows() - 1] { return read_size(input, cursor); });
    });
    return ok && cursor.done();
  }
  bool read_size(Row input, Cursor& cursor) {
    const bool nested = cursor.peek() == '[';
    if (inputs_.kind[input] == (nested ? InputKind::kTensor : InputKind::kList)) return false;
    inputs_.kind[input] = nested ? InputKind::kList : InputKind::kTensor;
    if (!nested) return read_number(input, cursor);
    return add(InputKind::kListed) &&
           each_item(cursor, [&, tensor = rows() - 1] { return read_number(tensor, cursor); });
  }

  // Written as dims are; texts that do not fit them are ignored.
  void read_strides(std::string_view text) {
    const Row end = rows();
    const size_t end_number = numbers_.size();
    const std::vector<int32_t>& counts = inputs_.number_count;
    if (read_dims(text) &&
        std::equal(counts.begin() + first_, counts.begin() + end, counts.begin() + end, counts.end()))
      std::copy(numbers_.value.begin() + static_cast<ptrdiff_t>(end_number), numbers_.value.end(),
                numbers_.stride.begin() + static_cast<ptrdiff_t>(first_number_));
    drop(end, end_number);
  }

  // Calls item(input, text) for the strings of a list. False if there are not as many as inputs.
  template <class Item>
  bool each_input(std::string_view text, Item&& item) {
    Cursor cursor(text);
    Row input = first_;
    const bool ok = each_item(cursor, [&] {
      std::string_view value;
      if (input >= rows() || !cursor.string(value)) return false;
      item(input++, value);
      while (input < rows() && inputs_.kind[input] == InputKind::kListed) ++input;
      return true;
    });
    return ok && cursor.done() && input == rows();
  }

  void read_type(Row input, std::string_view type) {
    const DType dtype = inputs_.dtype[input] = dtype_of_text(type);
    if (dtype == DType::kUnknown) inputs_.text[input] = strings_.intern(type);
    InputKind& kind = inputs_.kind[input];
    if (kind != InputKind::kOther) return;
    if (dtype != DType::kUnknown) kind = InputKind::kTensor;  // without dimensions
    if (type == "TensorList" || type == "GenericList") kind = InputKind::kList;
  }

  void read_value(Row input, std::string_view text) {
    InputKind& kind = inputs_.kind[input];
    if (kind != InputKind::kOther || text.empty()) return;
    const bool yes = text == "True" || text == "true", no = text == "False" || text == "false";
    Cursor cursor(yes ? "1" : no ? "0" : text);
    std::vector<int64_t> values;
    const auto item = [&] { return cursor.integer(values.emplace_back()); };
    if ((cursor.peek() == '[' ? each_item(cursor, item) : item()) && cursor.done() && values.size() <= kMaxRank) {
      kind = yes || no ? InputKind::kBoolean : InputKind::kIntegers;
      for (const int64_t value : values) add_number(input, value);
    } else {
      inputs_.text[input] = strings_.intern(text);
    }
  }

  StringPool& strings_;
  Inputs& inputs_;
  InputNumbers& numbers_;
  const Row first_;
  const size_t first_number_;
  size_t limit_ = 0;  // of rows
};

}  // namespace

uint64_t SignatureText::hash_without_dims() const {
  const auto hash = [](std::string_view text) { return block_checksum({text.data(), text.size()}); };
  return mix_hash(mix_hash(hash(types), hash(strides)), hash(concrete));
}

void read_inputs(const SignatureText& text, Trace& trace, SignatureId signature) {
  InputReader reader(trace);
  const Row first = reader.rows();
  const bool read = text.dims.empty() || reader.read(text);
  InputId& first_input = trace.signatures.first_input[signature];
  int32_t& count = trace.signatures.input_count[signature];
  count = static_cast<int32_t>(reader.rows() - first);
  first_input = count == 0 ? Row{kNoRow} : first;
  if (read && SignatureShapes(trace, signature).sound()) return;
  reader.drop();
  first_input = kNoRow;
  count = -1;
}

std::pair<Row, Row> row_range(Row first, int32_t count, size_t table_rows) {
  if (count <= 0 || first >= table_rows) return {0, 0};
  return {first, static_cast<Row>(std::min<uint64_t>(uint64_t{first} + static_cast<uint64_t>(count), table_rows))};
}

SignatureShapes::SignatureShapes(const Trace& trace, SignatureId signature)
    : inputs_(trace.inputs), numbers_(trace.input_numbers) {
  if (signature >= trace.signatures.size()) return;
  const int32_t count = trace.signatures.input_count[signature];
  std::tie(first_, end_) = row_range(trace.signatures.first_input[signature], count, inputs_.size());
  readable_ = count >= 0;
}

bool SignatureShapes::sound() const {
  if (end_ - first_ > kMaxInputs + kMaxTensors || size() > static_cast<int>(kMaxInputs)) return false;
  for (Row input = first_; input < end_; ++input) {
    const InputKind kind = inputs_.kind[input];
    Shape shape;
    if ((kind == InputKind::kTensor || kind == InputKind::kListed) && !read(input, shape)) return false;
  }
  return true;
}

int SignatureShapes::size() const {
  const auto begin = inputs_.kind.begin();
  return static_cast<int>(end_ - first_ - std::count(begin + first_, begin + end_, InputKind::kListed));
}

Row SignatureShapes::find(int position) const {
  for (Row input = first_; input < end_; ++input)
    if (inputs_.kind[input] != InputKind::kListed && position-- == 0) return input;
  return kNoRow;
}

std::span<const int64_t> SignatureShapes::numbers(Row input) const {
  const auto [first, end] = row_range(inputs_.first_number[input], inputs_.number_count[input], numbers_.size());
  return std::span(numbers_.value).subspan(first, end - first);
}

bool SignatureShapes::read(Row input, Shape& shape) const {
  const auto [first, end] = row_range(inputs_.first_number[input], inputs_.number_count[input], numbers_.size());
  if (end - first > static_cast<Row>(kMaxRank)) return false;
  for (Row i = first; i < end; ++i) {
    const int64_t size = numbers_.value[i];
    shape.dims[static_cast<size_t>(shape.rank++)] = size;
    if (size < 0 || __builtin_mul_overflow(shape.elements, size, &shape.elements)) return false;
    if (shape.elements > kMaxElements) return false;
  }
  shape.distinct = shape.elements;
  for (Row i = first; i < end; ++i)
    if (numbers_.stride[i] == 0 && numbers_.value[i] > 1) shape.distinct /= numbers_.value[i];
  return true;
}

std::optional<Shape> SignatureShapes::tensor(int position) const {
  const Row input = find(position);
  Shape shape;
  if (kind(input) != InputKind::kTensor || !read(input, shape)) return std::nullopt;
  return shape;
}

std::vector<Shape> SignatureShapes::tensors(int position) const {
  std::vector<Shape> out;
  if (const std::optional<Shape> own = tensor(position)) out.push_back(*own);
  const Row list = find(position);
  if (kind(list) != InputKind::kList) return out;
  for (Row input = list + 1; input < end_ && kind(input) == InputKind::kListed; ++input)
    read(input, out.emplace_back());
  return out;
}

DType SignatureShapes::dtype(int position) const {
  const Row input = find(position);
  return input == kNoRow ? DType::kUnknown : inputs_.dtype[input];
}

std::optional<std::span<const int64_t>> SignatureShapes::integers(int position) const {
  const Row input = find(position);
  return kind(input) == InputKind::kIntegers ? std::optional(numbers(input)) : std::nullopt;
}

std::optional<int64_t> SignatureShapes::integer(int position) const {
  const std::optional<std::span<const int64_t>> all = integers(position);
  return all && all->size() == 1 ? std::optional(all->front()) : std::nullopt;
}

bool SignatureShapes::truth(int position) const {
  const Row input = find(position);
  if (kind(input) != InputKind::kIntegers && kind(input) != InputKind::kBoolean) return false;
  const std::span<const int64_t> values = numbers(input);
  return values.size() == 1 && values[0] != 0;
}

}  // namespace llmprof
