#include "import/pickle.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>

#include "base/printable.h"

namespace llmprof::pickle {
namespace {

// Opcodes as in Python's pickletools.
enum class Op : uint8_t {
  kMark = '(',
  kStop = '.',
  kPop = '0',
  kPopMark = '1',
  kDup = '2',
  kBinFloat = 'G',
  kBinInt = 'J',
  kBinInt1 = 'K',
  kBinInt2 = 'M',
  kNone = 'N',
  kBinUnicode = 'X',
  kBinBytes = 'B',
  kShortBinBytes = 'C',
  kBinString = 'T',
  kShortBinString = 'U',
  kEmptyList = ']',
  kAppend = 'a',
  kAppends = 'e',
  kEmptyDict = '}',
  kSetItem = 's',
  kSetItems = 'u',
  kEmptyTuple = ')',
  kTuple = 't',
  kBinGet = 'h',
  kLongBinGet = 'j',
  kBinPut = 'q',
  kLongBinPut = 'r',
  kProto = 0x80,
  kTuple1 = 0x85,
  kTuple2 = 0x86,
  kTuple3 = 0x87,
  kNewTrue = 0x88,
  kNewFalse = 0x89,
  kLong1 = 0x8A,
  kLong4 = 0x8B,
  kShortBinUnicode = 0x8C,
  kBinUnicode8 = 0x8D,
  kBinBytes8 = 0x8E,
  kMemoize = 0x94,
  kFrame = 0x95,
};

struct NamedOp {
  uint8_t code;
  std::string_view name;
};
// What constructs objects or refers to what is not in the file, and what plain values do not need.
constexpr std::array kRefusedOps = {
    NamedOp{'c', "GLOBAL"},
    NamedOp{'R', "REDUCE"},
    NamedOp{'b', "BUILD"},
    NamedOp{'i', "INST"},
    NamedOp{'o', "OBJ"},
    NamedOp{'P', "PERSID"},
    NamedOp{'Q', "BINPERSID"},
    NamedOp{0x81, "NEWOBJ"},
    NamedOp{0x82, "EXT1"},
    NamedOp{0x83, "EXT2"},
    NamedOp{0x84, "EXT4"},
    NamedOp{0x8F, "EMPTY_SET"},
    NamedOp{0x90, "ADDITEMS"},
    NamedOp{0x91, "FROZENSET"},
    NamedOp{0x92, "NEWOBJ_EX"},
    NamedOp{0x93, "STACK_GLOBAL"},
    NamedOp{0x96, "BYTEARRAY8"},
    NamedOp{0x97, "NEXT_BUFFER"},
    NamedOp{0x98, "READONLY_BUFFER"},
};
// Of protocols 0 and 1, whose values are lines of text.
constexpr std::string_view kTextOps = "ILFSVdgpl";

constexpr size_t kTextKeptMax = 16 * 1024;  // of one text; names of C++ functions have a few thousand bytes
constexpr size_t kNameShownMax = 80;

}  // namespace

std::string_view kind_name(Kind kind) {
  static constexpr std::array<std::string_view, 10> kNames = {"None",       "a truth value", "an integer", "an integer",
                                                              "an integer", "a float",       "a text",     "a list",
                                                              "a tuple",    "a dict"};
  return kNames[static_cast<size_t>(kind)];
}

std::optional<double> Document::number(Value value) const {
  if (value.kind() == Kind::kFloat) return floats_[value.index()];
  const std::optional<int64_t> whole = integer(value);
  return whole ? std::optional<double>(static_cast<double>(*whole)) : std::nullopt;
}

// The stack machine. Each opcode costs memory in proportion to its own bytes, whatever it says.
class Reader {
 public:
  Reader(InputFile& input, Document& document)
      : input_(input), document_(document), limits_(document.limits_), buffer_(kBufferBytes, '\0') {}

  Ending run() {
    while (ending_.why == Ending::Why::kWhole && !stopped_) step();
    if (stopped_) {
      ending_.trailing = need(1);
      document_.root_ = stack_.back();
    } else {
      keep_unfinished();
    }
    return ending_;
  }

 private:
  using Why = Ending::Why;
  static constexpr size_t kBufferBytes = 256 * 1024;

  // ---- bytes ----

  // Whether so many bytes, fewer than the buffer, stand at at_.
  bool need(size_t bytes) {
    if (size_ - at_ >= bytes) return true;
    std::memmove(buffer_.data(), buffer_.data() + at_, size_ - at_);
    base_ += at_;
    size_ -= at_;
    at_ = 0;
    while (size_ < bytes) {
      const size_t got = input_.read(buffer_.data() + size_, buffer_.size() - size_);
      if (got == 0) return false;
      size_ += got;
    }
    return true;
  }
  uint64_t little_endian(size_t bytes) {
    uint64_t value = 0;
    for (size_t i = 0; i < bytes; ++i)
      value |= static_cast<uint64_t>(static_cast<uint8_t>(buffer_[at_ + i])) << (8 * i);
    at_ += bytes;
    return value;
  }
  // The operand of an opcode; false where the file ends in it.
  bool operand(size_t bytes, uint64_t& value) {
    if (!need(bytes)) return end(Why::kCut, "the file ends inside of an opcode");
    value = little_endian(bytes);
    return true;
  }
  bool skip(uint64_t bytes) {
    while (bytes > 0) {
      if (!need(1)) return false;
      const uint64_t here = std::min<uint64_t>(bytes, size_ - at_);
      at_ += static_cast<size_t>(here);
      bytes -= here;
    }
    return true;
  }

  // ---- endings ----

  bool end(Why why, std::string text) {
    if (ending_.why != Why::kWhole) return false;
    ending_.why = why;
    ending_.offset = op_offset_;
    ending_.text = std::move(text);
    return false;
  }
  bool broken(std::string text) { return end(Why::kBroken, std::move(text)); }
  bool too_large(const char* what, uint64_t most) {
    return end(Why::kTooLarge, fmt::format("more than {} {}", most, what));
  }

  // Of what is cut off: closes the containers that are open, each with the items that are complete.
  void keep_unfinished() {
    while (!marks_.empty()) {
      const size_t from = marks_.back();
      marks_.pop_back();
      if (from > 0 && from <= stack_.size()) {
        const Value into = stack_[from - 1];
        // A list of one item takes it without a mark: it waits above its list, where a key's value is complete.
        while (into.kind() == Kind::kDict && (stack_.size() - from) % 2 != 0 && stack_.size() - from >= 3 &&
               stack_[stack_.size() - 2].kind() == Kind::kList) {
          add_items(stack_[stack_.size() - 2], stack_.size() - 1, 1);
          stack_.pop_back();
        }
        const size_t items = stack_.size() - from;
        if (into.kind() == Kind::kList) add_items(into, from, items);
        if (into.kind() == Kind::kDict) add_items(into, from, items - items % 2);
      }
      if (from < stack_.size()) stack_.resize(from);
    }
    if (!stack_.empty()) document_.root_ = stack_.front();
  }

  // ---- stack and containers ----

  size_t floor() const { return marks_.empty() ? 0 : marks_.back(); }
  bool push(Value value) {
    if (stack_.size() >= limits_.stacked) return too_large("values that wait for their list or dict", limits_.stacked);
    stack_.push_back(value);
    return true;
  }
  // Whether so many values stand above the last mark.
  bool has(size_t values) { return stack_.size() - floor() >= values || broken("an opcode that lacks its values"); }
  bool pop_mark(size_t& from) {
    if (marks_.empty()) return broken("an opcode that lacks its mark");
    from = marks_.back();
    marks_.pop_back();
    return true;
  }
  bool add_container(Kind kind) {
    std::vector<Document::Container>& all = document_.containers_;
    if (all.size() >= limits_.containers) return too_large("lists, tuples and dicts", limits_.containers);
    all.emplace_back();
    return push(Value(kind, static_cast<int64_t>(all.size() - 1)));
  }
  // Items of the stack, at the end of a container; they stay on the stack.
  bool add_items(Value into, size_t from, size_t count) {
    std::vector<Value>& items = document_.items_;
    std::vector<Document::Piece>& pieces = document_.pieces_;
    if (count == 0) return true;
    if (items.size() + count > limits_.items) return too_large("items of lists and dicts", limits_.items);
    Document::Container& container = document_.containers_[into.index()];
    const uint32_t first = static_cast<uint32_t>(items.size());
    items.insert(items.end(), stack_.begin() + static_cast<std::ptrdiff_t>(from),
                 stack_.begin() + static_cast<std::ptrdiff_t>(from + count));
    if (container.last != Document::kNone && pieces[container.last].first + pieces[container.last].count == first) {
      pieces[container.last].count += static_cast<uint32_t>(count);
      return true;
    }
    if (pieces.size() >= limits_.pieces) return too_large("pieces of lists and dicts", limits_.pieces);
    const uint32_t piece = static_cast<uint32_t>(pieces.size());
    pieces.push_back({first, static_cast<uint32_t>(count), Document::kNone});
    if (container.last == Document::kNone)
      container.first = piece;
    else
      pieces[container.last].next = piece;
    container.last = piece;
    return true;
  }
  // The values above `from` go into the container below them.
  bool close(Kind kind, size_t from) {
    if (from <= floor()) return broken("items without their list or dict");
    const Value into = stack_[from - 1];
    if (into.kind() != kind) return broken(fmt::format("items of {} for {}", kind_name(kind), kind_name(into.kind())));
    const size_t count = stack_.size() - from;
    if (kind == Kind::kDict && count % 2 != 0) return broken("a key without its value");
    if (!add_items(into, from, count)) return false;
    stack_.resize(from);
    return true;
  }
  bool close_marked(Kind kind) {
    size_t from = 0;
    return pop_mark(from) && close(kind, from);
  }
  bool tuple(size_t from) {
    if (!add_container(Kind::kTuple)) return false;
    const Value made = stack_.back();
    if (!add_items(made, from, stack_.size() - 1 - from)) return false;
    stack_.resize(from);
    return push(made);
  }
  bool marked_tuple() {
    size_t from = 0;
    return pop_mark(from) && tuple(from);
  }
  bool mark() {
    if (marks_.size() >= limits_.nesting) return too_large("lists and dicts inside of each other", limits_.nesting);
    marks_.push_back(static_cast<uint32_t>(stack_.size()));
    return true;
  }

  // ---- values ----

  bool integer(int64_t value) {
    if (Value::fits(value)) return push(Value(Kind::kInteger, value));
    if (document_.wide_.size() >= limits_.items) return too_large("large integers", limits_.items);
    document_.wide_.push_back(value);
    return push(Value(Kind::kWideInteger, static_cast<int64_t>(document_.wide_.size() - 1)));
  }
  // Of so many bytes, the highest has the sign.
  bool long_integer(uint64_t bytes) {
    if (bytes > sizeof(int64_t))
      return skip(bytes) ? push(Value(Kind::kHugeInteger, 0)) : end(Why::kCut, "the file ends inside of an integer");
    uint64_t value = 0;
    if (!operand(static_cast<size_t>(bytes), value)) return false;
    const int unused = static_cast<int>(64 - 8 * bytes);
    return integer(bytes == 0 ? 0 : static_cast<int64_t>(value << unused) >> unused);
  }
  bool floating() {
    uint64_t bits = 0;
    if (!operand(sizeof(double), bits)) return false;
    if (document_.floats_.size() >= limits_.items) return too_large("floats", limits_.items);
    document_.floats_.push_back(std::bit_cast<double>(__builtin_bswap64(bits)));  // written with its first byte first
    return push(Value(Kind::kFloat, static_cast<int64_t>(document_.floats_.size() - 1)));
  }
  // A text whose length has so many bytes. Of a long one the beginning is kept.
  bool text(size_t length_bytes) {
    uint64_t length = 0;
    if (!operand(length_bytes, length)) return false;
    const size_t kept = static_cast<size_t>(std::min<uint64_t>(length, kTextKeptMax));
    if (!need(kept)) return beyond_file(length);
    if (document_.texts_.bytes() + kept > limits_.text_bytes) return too_large("bytes of texts", limits_.text_bytes);
    const StringId id = document_.texts_.intern(std::string_view(buffer_).substr(at_, kept));
    at_ += kept;
    if (!skip(length - kept)) return beyond_file(length);
    return push(Value(Kind::kText, index(id)));
  }
  bool beyond_file(uint64_t length) {
    return end(Why::kCut, fmt::format("a text of {} bytes that goes on behind the end of the file", length));
  }

  // ---- memo ----

  // Python numbers them as they come; a number beyond what the file may have so far is a lie.
  bool put(uint64_t slot) {
    if (!has(1)) return false;
    if (slot >= limits_.memo || slot > op_offset_) return broken(fmt::format("a memo with the number {}", slot));
    if (slot >= memo_.size()) memo_.resize(static_cast<size_t>(slot) + 1, Value(Kind::kHugeInteger, kUnset));
    memo_[static_cast<size_t>(slot)] = stack_.back();
    return true;
  }
  bool put_numbered(size_t bytes) {
    uint64_t slot = 0;
    return operand(bytes, slot) && put(slot);
  }
  bool get(size_t bytes) {
    uint64_t slot = 0;
    if (!operand(bytes, slot)) return false;
    const Value value = slot < memo_.size() ? memo_[static_cast<size_t>(slot)] : Value(Kind::kHugeInteger, kUnset);
    if (value.kind() == Kind::kHugeInteger && value.payload() == kUnset)
      return broken(fmt::format("the number {} of a memo that was not set", slot));
    return push(value);
  }

  // ---- opcodes ----

  bool step() {
    op_offset_ = base_ + at_;
    if (!need(1)) return end(Why::kCut, "the file ends before the pickle does");
    const uint8_t code = static_cast<uint8_t>(buffer_[at_++]);
    uint64_t number = 0;
    size_t from = 0;
    switch (static_cast<Op>(code)) {
      case Op::kLongBinGet:
        return get(4);
      case Op::kBinGet:
        return get(1);
      case Op::kMemoize:
        return put(memo_.size());
      case Op::kBinPut:
        return put_numbered(1);
      case Op::kLongBinPut:
        return put_numbered(4);
      case Op::kMark:
        return mark();
      case Op::kEmptyDict:
        return add_container(Kind::kDict);
      case Op::kSetItems:
        return close_marked(Kind::kDict);
      case Op::kSetItem:
        return has(3) && close(Kind::kDict, stack_.size() - 2);
      case Op::kEmptyList:
        return add_container(Kind::kList);
      case Op::kAppends:
        return close_marked(Kind::kList);
      case Op::kAppend:
        return has(2) && close(Kind::kList, stack_.size() - 1);
      case Op::kEmptyTuple:
        return add_container(Kind::kTuple);
      case Op::kTuple:
        return marked_tuple();
      case Op::kTuple1:
      case Op::kTuple2:
      case Op::kTuple3: {
        const size_t count = static_cast<size_t>(code) - static_cast<size_t>(Op::kTuple1) + 1;
        return has(count) && tuple(stack_.size() - count);
      }
      case Op::kBinInt:
        return operand(4, number) && integer(static_cast<int32_t>(static_cast<uint32_t>(number)));
      case Op::kBinInt1:
        return operand(1, number) && integer(static_cast<int64_t>(number));
      case Op::kBinInt2:
        return operand(2, number) && integer(static_cast<int64_t>(number));
      case Op::kLong1:
        return operand(1, number) && long_integer(number);
      case Op::kLong4:
        if (!operand(4, number)) return false;
        return number > INT32_MAX ? broken("an integer of negative length") : long_integer(number);
      case Op::kBinFloat:
        return floating();
      case Op::kNone:
        return push(Value(Kind::kNone, 0));
      case Op::kNewTrue:
        return push(Value(Kind::kBoolean, 1));
      case Op::kNewFalse:
        return push(Value(Kind::kBoolean, 0));
      case Op::kShortBinUnicode:
      case Op::kShortBinBytes:
      case Op::kShortBinString:
        return text(1);
      case Op::kBinUnicode:
      case Op::kBinBytes:
      case Op::kBinString:
        return text(4);
      case Op::kBinUnicode8:
      case Op::kBinBytes8:
        return text(8);
      case Op::kProto:
        return operand(1, number) && (number <= 5 || broken(fmt::format("protocol {} of pickles", number)));
      case Op::kFrame:
        return operand(8, number);
      case Op::kPop:
        if (stack_.size() == floor()) return pop_mark(from);  // as Python: the mark goes
        stack_.pop_back();
        return true;
      case Op::kPopMark:
        if (!pop_mark(from)) return false;
        stack_.resize(from);
        return true;
      case Op::kDup:
        return has(1) && push(stack_.back());
      case Op::kStop:
        if (!has(1)) return false;
        if (!marks_.empty()) return broken("an end inside of a list or dict");
        stopped_ = true;
        return true;
    }
    return other(code);
  }

  bool other(uint8_t code) {
    for (const NamedOp& op : kRefusedOps)
      if (op.code == code) return end(Why::kRefused, std::string(op.name) + named_by(op));
    if (kTextOps.find(static_cast<char>(code)) != std::string_view::npos)
      return end(Why::kRefused, fmt::format("{} of protocol 0", static_cast<char>(code)));
    return broken(fmt::format("the unknown opcode 0x{:02x}", code));
  }

  // " of torch._utils _rebuild_tensor_v2": what it would have made, where the file says so.
  std::string named_by(const NamedOp& op) {
    std::string name;
    if (op.name == "STACK_GLOBAL" && stack_.size() >= 2) {
      name = std::string(document_.text(stack_[stack_.size() - 2])) + "." + std::string(document_.text(stack_.back()));
    } else if (op.name == "GLOBAL") {
      need(kNameShownMax);
      const std::string_view rest = std::string_view(buffer_).substr(at_, std::min(kNameShownMax, size_ - at_));
      const size_t line = rest.find('\n');
      if (line == std::string_view::npos) return {};
      name = std::string(rest.substr(0, line)) + "." +
             std::string(rest.substr(line + 1, rest.find('\n', line + 1) - line - 1));
    }
    return name.empty() ? name : " of " + printable(name.substr(0, kNameShownMax));
  }

  static constexpr int64_t kUnset = 1;
  InputFile& input_;
  Document& document_;
  const Limits limits_;
  std::string buffer_;
  size_t at_ = 0, size_ = 0;
  uint64_t base_ = 0, op_offset_ = 0;  // in the file: of the buffer, of the opcode
  std::vector<Value> stack_{}, memo_{};
  std::vector<uint32_t> marks_{};  // heights of the stack
  Ending ending_{};
  bool stopped_ = false;
};

Ending Document::read(InputFile& input) { return Reader(input, *this).run(); }

}  // namespace llmprof::pickle
