// How the values of one column become the bytes of one block of a trace file, and back. Integers of 4 and 8 bytes pack
// several times better as differences and as planes of equal significance than as they stand in memory; which form is
// used is chosen per column on a sample. Internal to src/trace.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>

#include "trace/trace.h"

namespace llmprof {

enum class BlockEncoding : uint8_t {
  kPlain,   // little-endian, as in memory
  kPlanes,  // all lowest bytes, then all second bytes, ...
  kDelta,   // zigzag of the difference to the value before (the first one to 0), then planes; widths 4 and 8
};
std::string_view block_encoding_name(BlockEncoding encoding);
std::optional<BlockEncoding> block_encoding_named(std::string_view name);

constexpr size_t kBlockSampleValues = 8192;  // that an encoding is chosen by

// Ids of rows in memory have their bits inverted (RowId), in files not: between the two.
void invert_bits(std::span<char> values);

// The encoding that packs `values` (width bytes each) best, judged by the first few thousand.
BlockEncoding choose_block_encoding(std::span<const char> values, size_t width);

// One zstd frame that states its content size. `values.size()` is a multiple of `width`.
std::string pack_block(std::span<const char> values, size_t width, BlockEncoding encoding);

// Fills `values` exactly; false if the frame is damaged or its content is not exactly that long.
bool unpack_block(std::span<const char> frame, size_t width, BlockEncoding encoding, std::span<char> values);

// XXH3, 64 bits, of stored bytes.
uint64_t block_checksum(std::span<const char> bytes);

// Name of an element type in the file: i32 i64 u64 u8 f32 f64, row (u32), str (u32), enum (u8).
template <class T>
constexpr std::string_view element_type_name() {
  if constexpr (is_row_id<T>) return "row";
  if constexpr (std::is_same_v<T, StringId>) return "str";
  if constexpr (std::is_enum_v<T> && sizeof(T) == 1) return "enum";
  if constexpr (std::is_same_v<T, int32_t>) return "i32";
  if constexpr (std::is_same_v<T, int64_t>) return "i64";
  if constexpr (std::is_same_v<T, uint64_t>) return "u64";
  if constexpr (std::is_same_v<T, uint8_t>) return "u8";
  if constexpr (std::is_same_v<T, float>) return "f32";
  if constexpr (std::is_same_v<T, double>) return "f64";
  return {};
}

}  // namespace llmprof
