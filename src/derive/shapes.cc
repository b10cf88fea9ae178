#include "derive/shapes.h"

#include <charconv>
#include <system_error>
#include <utility>

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

bool add_dimension(Shape& shape, int64_t value) {
  if (shape.rank >= kMaxRank || value < 0) return false;
  shape.dims[static_cast<size_t>(shape.rank++)] = value;
  if (__builtin_mul_overflow(shape.elements, value, &shape.elements)) return false;
  shape.distinct = shape.elements;
  return shape.elements <= kMaxElements;
}

// One number list into `shape`; the '[' is next.
bool read_shape(Cursor& cursor, Shape& shape) {
  return each_item(cursor, [&] {
    int64_t value = 0;
    return cursor.integer(value) && add_dimension(shape, value);
  });
}

}  // namespace

bool SignatureShapes::read_dims(std::string_view text) {
  Cursor cursor(text);
  const bool ok = each_item(cursor, [&] {
    if (operands_.size() >= kMaxOperands || cursor.peek() != '[') return false;
    Operand operand;
    operand.first = static_cast<uint32_t>(tensors_.size());
    // A list of numbers is a tensor, a list of lists a list of tensors, an empty list is told by its type.
    Shape own;
    const bool read = each_item(cursor, [&] {
      if (cursor.peek() == '[') {
        if (own.rank > 0 || tensors_.size() >= kMaxTensors) return false;
        operand.kind = Operand::Kind::kList;
        Shape member;
        if (!read_shape(cursor, member)) return false;
        tensors_.push_back(member);
        return true;
      }
      int64_t value = 0;
      return operand.kind != Operand::Kind::kList && cursor.integer(value) && add_dimension(own, value);
    });
    if (!read) return false;
    if (operand.kind != Operand::Kind::kList) {
      if (tensors_.size() >= kMaxTensors) return false;
      tensors_.push_back(own);
      operand.kind = own.rank > 0 ? Operand::Kind::kTensor : Operand::Kind::kOther;
    }
    operand.count = static_cast<uint32_t>(tensors_.size()) - operand.first;
    operands_.push_back(operand);
    return true;
  });
  return ok && cursor.done();
}

bool SignatureShapes::read_types(std::string_view text) {
  Cursor cursor(text);
  size_t i = 0;
  const bool ok = each_item(cursor, [&] {
    std::string_view type;
    if (!cursor.string(type) || i >= operands_.size()) return false;
    Operand& operand = operands_[i++];
    operand.dtype = dtype_of_text(type);
    if (operand.kind == Operand::Kind::kOther && operand.dtype != DType::kUnknown) {
      operand.kind = Operand::Kind::kTensor;  // a tensor without dimensions
    }
    if (operand.kind == Operand::Kind::kOther && (type == "TensorList" || type == "GenericList")) {
      operand.kind = Operand::Kind::kList;
      operand.count = 0;
    }
    return true;
  });
  return ok && cursor.done() && i == operands_.size();
}

// Strides only refine `distinct`; texts that do not fit the dims are ignored.
void SignatureShapes::read_strides(std::string_view text) {
  Cursor cursor(text);
  size_t i = 0;
  each_item(cursor, [&] {
    if (i >= operands_.size()) return false;
    const Operand& operand = operands_[i++];
    size_t member = 0;
    const auto apply = [&](size_t row, int dimension, int64_t stride) {
      if (row >= tensors_.size() || dimension >= tensors_[row].rank) return;
      Shape& shape = tensors_[row];
      const int64_t size = shape[dimension];
      if (stride == 0 && size > 1) shape.distinct /= size;
    };
    int dimension = 0;
    return each_item(cursor, [&] {
      if (cursor.peek() == '[') {
        int inner = 0;
        const size_t row = operand.first + member++;
        return each_item(cursor, [&] {
          int64_t stride = 0;
          if (!cursor.integer(stride)) return false;
          if (row < operand.first + operand.count) apply(row, inner, stride);
          ++inner;
          return true;
        });
      }
      int64_t stride = 0;
      if (!cursor.integer(stride)) return false;
      apply(operand.first, dimension++, stride);
      return true;
    });
  });
}

bool SignatureShapes::parse(std::string_view dims, std::string_view types, std::string_view strides) {
  operands_.clear();
  tensors_.clear();
  if (dims.empty()) return true;
  if (!read_dims(dims)) return false;
  if (!types.empty() && !read_types(types)) return false;
  if (!strides.empty()) read_strides(strides);
  return true;
}

const Operand* SignatureShapes::operand(int i) const {
  return i >= 0 && static_cast<size_t>(i) < operands_.size() ? &operands_[static_cast<size_t>(i)] : nullptr;
}

const Shape* SignatureShapes::tensor(int i) const {
  const Operand* const found = operand(i);
  return found != nullptr && found->kind == Operand::Kind::kTensor ? &tensors_[found->first] : nullptr;
}

DType SignatureShapes::dtype(int i) const {
  const Operand* const found = operand(i);
  return found != nullptr ? found->dtype : DType::kUnknown;
}

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

DType dtype_of_scalar_type(int64_t number) {
  switch (number) {
    case 0:
    case 1:
      return DType::kInt8;
    case 2:
      return DType::kInt16;
    case 3:
      return DType::kInt32;
    case 4:
      return DType::kInt64;
    case 5:
      return DType::kFp16;
    case 6:
      return DType::kFp32;
    case 7:
      return DType::kFp64;
    case 11:
      return DType::kBool;
    case 15:
      return DType::kBf16;
    case 23:
    case 24:
    case 25:
    case 26:
      return DType::kFp8;
    default:
      return DType::kUnknown;
  }
}

std::optional<std::string_view> concrete_input(std::string_view concrete, int position) {
  if (position < 0) return std::nullopt;
  Cursor cursor(concrete);
  int i = 0;
  std::optional<std::string_view> found;
  each_item(cursor, [&] {
    std::string_view value;
    if (!cursor.string(value)) return false;
    if (i++ == position) {
      found = value;
      return false;
    }
    return true;
  });
  return found;
}

std::optional<bool> concrete_bool(std::string_view concrete, int position) {
  const std::optional<std::string_view> text = concrete_input(concrete, position);
  if (!text) return std::nullopt;
  if (*text == "True" || *text == "true" || *text == "1") return true;
  if (*text == "False" || *text == "false" || *text == "0") return false;
  return std::nullopt;
}

std::optional<int64_t> concrete_int(std::string_view concrete, int position) {
  const std::optional<std::string_view> text = concrete_input(concrete, position);
  if (!text) return std::nullopt;
  Cursor cursor(*text);
  int64_t value = 0;
  if (!cursor.integer(value) || !cursor.done()) return std::nullopt;
  return value;
}

std::optional<IntList> concrete_ints(std::string_view concrete, int position) {
  const std::optional<std::string_view> text = concrete_input(concrete, position);
  if (!text) return std::nullopt;
  IntList list;
  Cursor cursor(*text);
  const auto item = [&] {
    if (list.count >= kMaxRank) return false;
    return cursor.integer(list.values[static_cast<size_t>(list.count++)]);
  };
  const bool ok = cursor.peek() == '[' ? each_item(cursor, item) : item();
  if (!ok || !cursor.done()) return std::nullopt;
  return list;
}

}  // namespace llmprof
