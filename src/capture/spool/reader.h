// Reads a spool that lies in memory, record by record, in the order of the file. The bytes may hold anything: a cut
// file gives every whole block, a damaged block is skipped and counted, nothing is believed that is not checked.
//
//   struct Printer {
//     void operator()(const spool::Kernel& kernel) { ... }
//     template <class Record> void operator()(const Record&) {}   // the kinds it does not care for
//   };
//   spool::ReadSummary summary = spool::read(bytes, printer);
//
// Each kind of records.h, TextDef and Closed is passed as it was written, definitions with their id. Ids, enumerators
// and times are as the file has them: whoever indexes with them checks. An id that the writer can have made is at most
// the number of bytes of the file; records that define larger ones are left out as malformed.
#pragma once

#include <cstdint>
#include <string_view>

#include "capture/spool/coding.h"
#include "capture/spool/layout.h"
#include "capture/spool/record_fields.h"

namespace llmprof::spool {

struct ReadSummary {
  uint64_t records = 0;          // passed to the visitor
  uint64_t blocks = 0;           // read
  uint64_t damaged_blocks = 0;   // missing by their numbers, failing their checksum, or holding a malformed record
  uint64_t unknown_records = 0;  // of kinds this version does not know
  uint64_t cut_bytes = 0;        // at the end: a block that was not written whole
  bool closed = false;           // the end mark was there
};

// The head of a file. False if the bytes are no spool; `head` is then untouched. A wrong checksum of the head is not
// told: what matters is in the blocks.
bool read_head(std::string_view bytes, FileHead& head);
std::string_view role_of(const FileHead& head);

// Finds the whole blocks of a file, one after the other.
class BlockScanner {
 public:
  explicit BlockScanner(std::string_view bytes);
  // The next block that passes its checksum; false at the end.
  bool next(BlockHead& head, std::string_view& payload);
  uint64_t damaged_blocks() const { return damaged_; }
  uint64_t cut_bytes() const { return cut_bytes_; }

 private:
  enum class Found { kWhole, kDamaged, kCut, kNothing };
  Found look(size_t at, BlockHead& head);
  size_t next_magic(size_t from) const;

  std::string_view bytes_;
  size_t at_;
  uint64_t hash_budget_;  // bytes that may be hashed: a hostile file must not make this quadratic
  uint64_t next_sequence_ = 0;
  uint64_t damaged_ = 0, cut_bytes_ = 0;
};

namespace detail {

template <class Record, class Visitor>
inline bool read_hot(Decoder& in, uint8_t head, BlockState& state, Visitor& visitor) {
  Record record;
  Record& last = last_of<Record>(state);
  in.begin_hot(head);
  code_one(in, record, last);
  if (in.bad() || in.flags_left()) return false;
  last = record;
  visitor(static_cast<const Record&>(record));
  return true;
}

template <class Record, class Visitor>
inline bool read_wide(Decoder& in, BlockState& state, Visitor& visitor) {
  Record record;
  Record& last = last_of<Record>(state);
  code_one(in, record, last);
  if (in.bad()) return false;
  last = record;
  visitor(static_cast<const Record&>(record));
  return true;
}

template <class Record, class Visitor>
inline bool read_definition(Decoder& in, uint64_t id_max, Visitor& visitor) {
  Record record;
  const uint64_t id = in.varint();
  code_one(in, record, Record{});
  if (in.bad() || id == 0 || id > id_max) return false;
  record.id = static_cast<Id>(id);
  visitor(static_cast<const Record&>(record));
  return true;
}

// One wide record whose fields are [at, end).
template <class Visitor>
bool read_wide_record(uint8_t tag, const uint8_t* at, const uint8_t* end, uint64_t id_max, BlockState& state,
                      Visitor& visitor, ReadSummary& summary) {
  Decoder in(at, end, state.base_ns);
  in.begin_wide();
  switch (tag) {
#define LLMPROF_SPOOL_CASE(Record, number) \
  case tag_of<Record>():                   \
    return read_definition<Record>(in, id_max, visitor);
    LLMPROF_SPOOL_DEFINITIONS(LLMPROF_SPOOL_CASE)
#undef LLMPROF_SPOOL_CASE
#define LLMPROF_SPOOL_CASE(Record, number)              \
  case tag_of<Record>():                                \
    if (tag == tag_of<Closed>()) summary.closed = true; \
    return read_wide<Record>(in, state, visitor);
    LLMPROF_SPOOL_WIDE(LLMPROF_SPOOL_CASE)
#undef LLMPROF_SPOOL_CASE
    default:
      ++summary.unknown_records;
      --summary.records;  // counted by the caller
      return true;
  }
}

// False if the block holds something that no writer makes; what stands before it has been passed on.
template <class Visitor>
bool read_block(std::string_view payload, int64_t base_ns, uint64_t id_max, BlockState& state, Visitor& visitor,
                ReadSummary& summary) {
  state = BlockState();
  state.base_ns = base_ns;
  const uint8_t* const end = reinterpret_cast<const uint8_t*>(payload.data()) + payload.size();
  Decoder in(reinterpret_cast<const uint8_t*>(payload.data()), end, base_ns);
  while (!in.at_end()) {
    const uint8_t head = in.byte();
    bool good = false;
    if ((head & kWideBit) != 0) {
      const uint64_t size = in.varint();
      if (in.bad() || size > static_cast<uint64_t>(end - in.at())) return false;
      good = read_wide_record(head, in.at(), in.at() + size, id_max, state, visitor, summary);
      in.skip(size);
    } else {
      switch (head & kHotTagMask) {
#define LLMPROF_SPOOL_CASE(Record, number)             \
  case number:                                         \
    good = read_hot<Record>(in, head, state, visitor); \
    break;
        LLMPROF_SPOOL_HOT(LLMPROF_SPOOL_CASE)
#undef LLMPROF_SPOOL_CASE
        default:
          return false;
      }
    }
    if (!good) return false;
    ++summary.records;
  }
  return true;
}

}  // namespace detail

// Reads everything behind the head (of which only the presence is required).
template <class Visitor>
ReadSummary read(std::string_view bytes, Visitor&& visitor) {
  ReadSummary summary;
  BlockScanner scanner(bytes);
  BlockHead head;
  std::string_view payload;
  BlockState state;
  const uint64_t id_max = bytes.size() < 0xFFFFFFFFU ? bytes.size() : 0xFFFFFFFFU;
  while (scanner.next(head, payload)) {
    ++summary.blocks;
    if (!detail::read_block(payload, head.base_ns, id_max, state, visitor, summary)) ++summary.damaged_blocks;
  }
  summary.damaged_blocks += scanner.damaged_blocks();
  summary.cut_bytes = scanner.cut_bytes();
  return summary;
}

}  // namespace llmprof::spool
