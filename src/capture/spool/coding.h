// How the records of records.h become bytes and bytes become records: the encoder and the decoder, which both walk the
// one declaration per record in record_fields.h, so that they cannot disagree. docs/formats/spool.md explains the
// layout in words.
//
// A frequent record ("hot") is one byte of tag and three presence bits, then its fields. Every other record ("wide") is
// a tag byte, the length of its fields, and its fields: a reader skips wide records that it does not know, and wide
// records may grow fields at their end. New kinds of records are therefore always wide.
//
// Fields are varints. Times, correlations, addresses and cumulative counters are differences to the previous record of
// the same kind in the block; the first time of a block is the block's base. All arithmetic is modulo the width of the
// field, so that every value, sensible or not, comes back as it was. Only GpuSample values are rounded (quantise()).
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string_view>
#include <type_traits>

#include "capture/spool/records.h"

namespace llmprof::spool {

// ---- records of the file itself ------------------------------------------------------------------------------------

// Gives a text an Id.
struct TextDef {
  Id id = 0;
  std::string_view text;  // points into the bytes read
};

// The last record of a file that was ended in order.
struct Closed {
  int64_t time_ns = 0;
  int32_t error = 0;          // errno that stopped the recording before, 0 if none
  uint64_t records = 0;       // in the file
  uint64_t lost_records = 0;  // that came after the error
};

#define LLMPROF_SPOOL_HOT(R) \
  R(Kernel, 1)               \
  R(ApiCall, 2)              \
  R(Memcpy, 3)               \
  R(Memset, 4)               \
  R(GraphLaunch, 5)          \
  R(Synchronization, 6)      \
  R(Overhead, 7)             \
  R(MemoryEvent, 8)          \
  R(Range, 9) R(Mark, 10) R(LibraryCall, 11) R(GraphNode, 12) R(RecurringCall, 13) R(GpuSample, 14)
// Definitions: their first field is their id.
#define LLMPROF_SPOOL_DEFINITIONS(R) \
  R(TextDef, 1)                      \
  R(ThreadDef, 2) R(StreamDef, 3) R(KernelDef, 4) R(ApiDef, 5) R(LibraryDef, 6) R(MetricSetDef, 7) R(ModuleDef, 8)
#define LLMPROF_SPOOL_WIDE(R) \
  R(DeviceDef, 16)            \
  R(RangeOpen, 17)            \
  R(ClockReading, 18)         \
  R(LevelChange, 19)          \
  R(Note, 20)                 \
  R(Fact, 21)                 \
  R(NvmlSample, 22)           \
  R(Closed, 23)               \
  R(LaunchSite, 24)           \
  R(CallTarget, 25)           \
  R(GraphEdge, 26)            \
  R(ProductRows, 27) R(HostPlace, 28) R(HostPace, 29) R(NodePlace, 30) R(CpuReading, 31) R(Operands, 32)

constexpr uint8_t kWideBit = 0x80;
constexpr uint8_t kHotTagMask = 0x0F;
constexpr uint8_t kFirstFlag = 0x10;  // then 0x20 and 0x40

template <class Record>
constexpr uint8_t tag_of();
#define LLMPROF_SPOOL_TAG(Record, number) \
  template <>                             \
  constexpr uint8_t tag_of<Record>() {    \
    return number;                        \
  }
LLMPROF_SPOOL_HOT(LLMPROF_SPOOL_TAG)
#undef LLMPROF_SPOOL_TAG
#define LLMPROF_SPOOL_TAG(Record, number) \
  template <>                             \
  constexpr uint8_t tag_of<Record>() {    \
    return kWideBit | (number);           \
  }
LLMPROF_SPOOL_DEFINITIONS(LLMPROF_SPOOL_TAG)
LLMPROF_SPOOL_WIDE(LLMPROF_SPOOL_TAG)
#undef LLMPROF_SPOOL_TAG

// What both sides remember while they go through one block: the previous record of each kind, and the base time.
struct BlockState {
  int64_t base_ns = 0;
#define LLMPROF_SPOOL_LAST(Record, number) Record last_##Record;
  LLMPROF_SPOOL_HOT(LLMPROF_SPOOL_LAST)
  LLMPROF_SPOOL_WIDE(LLMPROF_SPOOL_LAST)
#undef LLMPROF_SPOOL_LAST
};
template <class Record>
Record& last_of(BlockState& state);
#define LLMPROF_SPOOL_LAST(Record, number)             \
  template <>                                          \
  inline Record& last_of<Record>(BlockState & state) { \
    return state.last_##Record;                        \
  }
LLMPROF_SPOOL_HOT(LLMPROF_SPOOL_LAST)
LLMPROF_SPOOL_WIDE(LLMPROF_SPOOL_LAST)
#undef LLMPROF_SPOOL_LAST

// ---- numbers
// ---------------------------------------------------------------------------------------------------------

constexpr size_t kVarintBytesMax = 10;
constexpr int32_t kMetricsMax = 48;

inline uint64_t zigzag(int64_t value) {
  return (static_cast<uint64_t>(value) << 1) ^ static_cast<uint64_t>(value >> 63);
}
inline int64_t unzigzag(uint64_t value) { return static_cast<int64_t>(value >> 1) ^ -static_cast<int64_t>(value & 1); }

// A float with 14 bits of fraction instead of 23, as an integer with the sign lowest, so that values of like size are
// like integers. The relative error is at most 2^-15 = 3.1e-5: four significant digits always hold. NaN and infinities
// stay what they are. quantise(restore(q)) == q.
constexpr int kDroppedFractionBits = 9;
inline uint32_t quantise(float value) {
  uint32_t bits = 0;
  std::memcpy(&bits, &value, sizeof bits);
  const uint32_t sign = bits >> 31;
  uint32_t magnitude = bits & 0x7FFFFFFFU;
  constexpr uint32_t kInfinity = 0x7F800000U, kQuietNan = 0x7FC00000U;
  if (magnitude > kInfinity)
    magnitude = kQuietNan;
  else if (magnitude < kInfinity)
    magnitude += 1U << (kDroppedFractionBits - 1);  // to nearest; what exceeds the largest value becomes infinite
  return (magnitude >> kDroppedFractionBits) << 1 | sign;
}
inline float restore(uint32_t quantised) {
  const uint32_t bits = ((quantised >> 1) << kDroppedFractionBits & 0x7FFFFFFFU) | (quantised & 1U) << 31;
  float value = 0;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

// ---- the two sides
// ---------------------------------------------------------------------------------------------------

// Writes fields to memory that the caller has made large enough.
class Encoder {
 public:
  static constexpr bool kReads = false;
  Encoder(uint8_t* at, int64_t& base_ns, bool& base_set) : at_(at), base_ns_(base_ns), base_set_(base_set) {}

  uint8_t* at() const { return at_; }
  void begin_hot(uint8_t tag) {
    head_ = at_;
    next_flag_ = kFirstFlag;
    *at_++ = tag;
  }
  void set_metric_count(uint32_t count) { metric_count_ = count; }

  void varint(uint64_t value) {
    while (value >= 0x80) {
      *at_++ = static_cast<uint8_t>(value | 0x80);
      value >>= 7;
    }
    *at_++ = static_cast<uint8_t>(value);
  }
  bool flag(bool set) {
    if (set) *head_ |= next_flag_;
    next_flag_ = static_cast<uint8_t>(next_flag_ << 1);
    return set;
  }
  // Signed types zigzag, unsigned ones and enumerations as they are.
  template <class T>
  void integer(const T& value) {
    if constexpr (std::is_signed_v<T>)
      varint(zigzag(static_cast<int64_t>(value)));
    else
      varint(static_cast<uint64_t>(value));
  }
  template <class T>
  void delta(const T& value, const T& last) {
    using Unsigned = std::make_unsigned_t<T>;
    using Signed = std::make_signed_t<T>;
    const Unsigned difference = static_cast<Unsigned>(static_cast<Unsigned>(value) - static_cast<Unsigned>(last));
    varint(zigzag(static_cast<int64_t>(static_cast<Signed>(difference))));
  }
  void time(const int64_t& value, int64_t last) {
    if (!base_set_) {
      base_set_ = true;
      base_ns_ = value;
    }
    delta(value, last == 0 ? base_ns_ : last);
  }
  // A value that is seldom below `from`.
  void above(const int64_t& value, int64_t from) { varint(static_cast<uint64_t>(value) - static_cast<uint64_t>(from)); }
  void below(const int64_t& value, int64_t from) { varint(static_cast<uint64_t>(from) - static_cast<uint64_t>(value)); }
  template <class T>
  void same(const T& value, const T& last) {
    if (flag(value != last)) integer(value);
  }
  template <class T>
  void same_delta(const T& value, const T& last) {
    if (flag(value != last)) delta(value, last);
  }
  // Exact: bits that changed since `last`, the leading ones lowest, because few digits fill the leading bits only.
  void real(const float& value, float last) {
    uint32_t bits = 0, last_bits = 0;
    std::memcpy(&bits, &value, sizeof bits);
    std::memcpy(&last_bits, &last, sizeof last_bits);
    varint(__builtin_bswap32(bits ^ last_bits));
  }
  void real(const double& value, double last) {
    uint64_t bits = 0, last_bits = 0;
    std::memcpy(&bits, &value, sizeof bits);
    std::memcpy(&last_bits, &last, sizeof last_bits);
    varint(__builtin_bswap64(bits ^ last_bits));
  }
  void rounded(const float& value, float last) {
    delta(static_cast<int32_t>(quantise(value)), static_cast<int32_t>(quantise(last)));
  }
  uint32_t metric_count(uint32_t last) {
    (void)last;
    varint(metric_count_);
    return metric_count_;
  }
  void rest(std::string_view text) {
    if (!text.empty()) std::memcpy(at_, text.data(), text.size());
    at_ += text.size();
  }

 private:
  uint8_t* at_;
  uint8_t* head_ = nullptr;
  int64_t& base_ns_;
  bool& base_set_;
  uint32_t metric_count_ = 0;
  uint8_t next_flag_ = 0;
};

// Reads fields from bytes that may hold anything. Running out of bytes sets bad() in a hot record; in a wide one the
// fields that are not there keep their defaults.
class Decoder {
 public:
  static constexpr bool kReads = true;
  Decoder(const uint8_t* at, const uint8_t* end, int64_t base_ns) : at_(at), end_(end), base_ns_(base_ns) {}

  const uint8_t* at() const { return at_; }
  bool at_end() const { return at_ == end_; }
  bool bad() const { return bad_; }
  bool flags_left() const { return flags_ != 0; }  // set flags that the record has no use for
  uint8_t byte() { return *at_++; }                // only when not at_end()
  void skip(uint64_t bytes) { at_ += bytes; }      // at most to the end
  void begin_hot(uint8_t head) { flags_ = static_cast<uint8_t>((head & ~kWideBit) >> 4); }
  void begin_wide() { wide_ = true; }

  uint64_t varint() {
    if (at_ == end_) {
      bad_ = true;
      return 0;
    }
    uint64_t byte = *at_++;
    if (byte < 0x80) return byte;
    uint64_t value = byte & 0x7F;
    for (int shift = 7; shift < 64; shift += 7) {
      if (at_ == end_) break;
      byte = *at_++;
      value |= (byte & 0x7F) << shift;
      if (byte < 0x80) return value;
    }
    bad_ = true;
    return 0;
  }
  bool flag(bool) {
    const bool set = (flags_ & 1) != 0;
    flags_ = static_cast<uint8_t>(flags_ >> 1);
    return set;
  }
  template <class T>
  void integer(T& value) {
    if (absent()) return;
    if constexpr (std::is_signed_v<T>)
      value = static_cast<T>(unzigzag(varint()));
    else
      value = static_cast<T>(varint());
  }
  template <class T>
  void delta(T& value, const T& last) {
    if (absent()) return;
    using Unsigned = std::make_unsigned_t<T>;
    value =
        static_cast<T>(static_cast<Unsigned>(static_cast<Unsigned>(last) + static_cast<Unsigned>(unzigzag(varint()))));
  }
  void time(int64_t& value, int64_t last) { delta(value, last == 0 ? base_ns_ : last); }
  void above(int64_t& value, int64_t from) {
    if (!absent()) value = static_cast<int64_t>(static_cast<uint64_t>(from) + varint());
  }
  void below(int64_t& value, int64_t from) {
    if (!absent()) value = static_cast<int64_t>(static_cast<uint64_t>(from) - varint());
  }
  template <class T>
  void same(T& value, const T& last) {
    value = last;
    if (flag(false)) integer(value);
  }
  template <class T>
  void same_delta(T& value, const T& last) {
    value = last;
    if (flag(false)) delta(value, last);
  }
  void real(float& value, float last) {
    if (absent()) return;
    uint32_t last_bits = 0;
    std::memcpy(&last_bits, &last, sizeof last_bits);
    const uint32_t bits = last_bits ^ __builtin_bswap32(static_cast<uint32_t>(varint()));
    std::memcpy(&value, &bits, sizeof value);
  }
  void real(double& value, double last) {
    if (absent()) return;
    uint64_t last_bits = 0;
    std::memcpy(&last_bits, &last, sizeof last_bits);
    const uint64_t bits = last_bits ^ __builtin_bswap64(varint());
    std::memcpy(&value, &bits, sizeof value);
  }
  void rounded(float& value, float last) {
    int32_t quantised = 0;
    delta(quantised, static_cast<int32_t>(quantise(last)));
    value = restore(static_cast<uint32_t>(quantised));
  }
  uint32_t metric_count(uint32_t) {
    const uint64_t count = varint();
    if (count > kMetricsMax) bad_ = true;
    return bad_ ? 0 : static_cast<uint32_t>(count);
  }
  void rest(std::string_view& text) {
    text = {reinterpret_cast<const char*>(at_), static_cast<size_t>(end_ - at_)};
    at_ = end_;
  }

 private:
  bool absent() const { return wide_ && at_ == end_; }
  const uint8_t* at_;
  const uint8_t* end_;
  int64_t base_ns_;
  uint8_t flags_ = 0;
  bool wide_ = false, bad_ = false;
};

}  // namespace llmprof::spool
