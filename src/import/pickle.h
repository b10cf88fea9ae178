// Python pickles of protocol 2 to 5 that hold plain values, read from front to back. Nothing is constructed: opcodes
// that name code or call it (GLOBAL, REDUCE, BUILD, ...) are refused. Values are kept as a compact graph, for a caller
// that walks down a shape that it knows; the graph of a hostile file may have cycles, and values that many share.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/input_file.h"
#include "base/string_pool.h"

namespace llmprof::pickle {

enum class Kind : uint8_t {
  kNone,
  kBoolean,
  kInteger,
  kWideInteger,
  kHugeInteger,
  kFloat,
  kText,
  kList,
  kTuple,
  kDict
};
std::string_view kind_name(Kind kind);  // "a list"

// Eight bytes: the kind, and a small integer or the index of what is kept elsewhere.
class Value {
 public:
  Value() = default;
  Value(Kind kind, int64_t payload)
      : bits_((static_cast<uint64_t>(payload) << kKindBits) | static_cast<uint64_t>(kind)) {}
  Kind kind() const { return static_cast<Kind>(bits_ & ((1U << kKindBits) - 1)); }
  int64_t payload() const { return static_cast<int64_t>(bits_) >> kKindBits; }
  uint32_t index() const { return static_cast<uint32_t>(bits_ >> kKindBits); }
  bool is_container() const { return kind() >= Kind::kList; }
  // Whether an integer fits beside the kind.
  static bool fits(int64_t value) { return (value << kKindBits) >> kKindBits == value; }

 private:
  static constexpr int kKindBits = 4;
  uint64_t bits_ = 0;
};

// What a pickle holds at most, 4 GB in all; what exceeds it is an error. A snapshot of 1 GB has about 200 million
// items.
struct Limits {
  uint32_t items = 1U << 28;       // in lists, tuples and dicts, 8 bytes each
  uint32_t containers = 1U << 26;  // 8 bytes each
  uint32_t pieces = 1U << 26;      // of containers, 12 bytes each
  uint32_t stacked = 1U << 24;     // values that wait for their container, 8 bytes each
  uint32_t memo = 1U << 26;        // values that may be named again, 8 bytes each
  uint32_t nesting = 1000;         // containers that are open at a time
  uint64_t text_bytes = 1ULL << 30;
};

struct Ending {
  enum class Why : uint8_t { kWhole, kCut, kBroken, kRefused, kTooLarge } why = Why::kWhole;
  uint64_t offset = 0;    // of the opcode at which it ended
  std::string text{};     // what was found there, for all but kWhole
  bool trailing = false;  // bytes follow the end of the pickle
};

class Document {
  static constexpr uint32_t kNone = 0xFFFFFFFFU;

 public:
  explicit Document(const Limits& limits = {}) : limits_(limits) {}

  // Of a pickle that is cut or broken what was complete before is kept: root() is its outermost value.
  Ending read(InputFile& input);
  Value root() const { return root_; }

  std::string_view text(Value value) const {
    return value.kind() == Kind::kText ? texts_.get(static_cast<StringId>(value.index())) : std::string_view();
  }
  // Handle of a text that the pickle has, kEmpty if it has none such. Equal texts are one.
  StringId find_text(std::string_view text) const { return texts_.find(text); }
  uint32_t text_count() const { return texts_.size(); }
  // Empty where it is no integer, or has more than 64 bits.
  std::optional<int64_t> integer(Value value) const {
    if (value.kind() == Kind::kInteger || value.kind() == Kind::kBoolean) return value.payload();
    if (value.kind() == Kind::kWideInteger) return wide_[value.index()];
    return std::nullopt;
  }
  std::optional<double> number(Value value) const;
  uint32_t container_count() const { return static_cast<uint32_t>(containers_.size()); }

  // Calls use(item) for each, in order, until it answers false; of a dict keys and values in turn.
  template <class F>
  void each(Value container, F&& use) const {
    if (!container.is_container()) return;
    for (uint32_t at = containers_[container.index()].first; at != kNone; at = pieces_[at].next) {
      const Piece& piece = pieces_[at];
      for (uint32_t i = 0; i < piece.count; ++i)
        if (!use(items_[piece.first + i])) return;
    }
  }
  // Calls use(key, value) for each pair of a dict, in order; a key that is there twice comes twice, and the last
  // counts. At most so many pairs: a dict that many lists share may have more than a caller will read each time.
  template <class F>
  void members(Value dict, F&& use, uint32_t most = kNone) const {
    if (dict.kind() != Kind::kDict) return;
    for (uint32_t at = containers_[dict.index()].first; at != kNone; at = pieces_[at].next) {
      const Piece& piece = pieces_[at];
      for (uint32_t i = 0; i + 1 < piece.count; i += 2, --most) {
        if (most == 0) return;
        use(items_[piece.first + i], items_[piece.first + i + 1]);
      }
    }
  }

 private:
  friend class Reader;
  // A container is a list of pieces, so that one that grows while others do is never copied.
  struct Container {
    uint32_t first = kNone, last = kNone;
  };
  struct Piece {
    uint32_t first = 0, count = 0, next = kNone;
  };

  Limits limits_;
  Value root_{};
  StringPool texts_{};
  std::vector<int64_t> wide_{};
  std::vector<double> floats_{};
  std::vector<Container> containers_{};
  std::vector<Piece> pieces_{};
  std::vector<Value> items_{};
};

}  // namespace llmprof::pickle
