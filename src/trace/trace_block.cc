#include "trace/trace_block.h"

#include <zstd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <memory>

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace llmprof {
namespace {

static_assert(std::endian::native == std::endian::little, "trace files are little-endian");

constexpr int kZstdLevel = 3;

// Differences and planes of unsigned words, in place of `Word` values in `values`.
template <class Word>
void to_planes(const char* values, size_t rows, bool delta, char* planes) {
  constexpr unsigned kTop = sizeof(Word) * 8 - 1;
  Word before = 0;
  for (size_t i = 0; i < rows; ++i) {
    Word word;
    std::memcpy(&word, values + i * sizeof(Word), sizeof(Word));
    Word out = word;
    if (delta) {
      const Word difference = static_cast<Word>(word - before);
      out = static_cast<Word>((difference << 1) ^ (Word{0} - (difference >> kTop)));
      before = word;
    }
    for (size_t plane = 0; plane < sizeof(Word); ++plane)
      planes[plane * rows + i] = static_cast<char>(static_cast<unsigned char>(out >> (8 * plane)));
  }
}

template <class Word>
void from_planes(const char* planes, size_t rows, bool delta, char* values) {
  Word before = 0;
  for (size_t i = 0; i < rows; ++i) {
    Word word = 0;
    for (size_t plane = 0; plane < sizeof(Word); ++plane)
      word |= static_cast<Word>(static_cast<Word>(static_cast<unsigned char>(planes[plane * rows + i])) << (8 * plane));
    if (delta) {
      word = static_cast<Word>((word >> 1) ^ (Word{0} - (word & 1)));
      word = static_cast<Word>(word + before);
      before = word;
    }
    std::memcpy(values + i * sizeof(Word), &word, sizeof(Word));
  }
}

// Contexts are a few hundred KB; one per thread serves all its blocks.
ZSTD_CCtx* packer() {
  thread_local const std::unique_ptr<ZSTD_CCtx, size_t (*)(ZSTD_CCtx*)> context(ZSTD_createCCtx(), ZSTD_freeCCtx);
  return context.get();
}
ZSTD_DCtx* unpacker() {
  thread_local const std::unique_ptr<ZSTD_DCtx, size_t (*)(ZSTD_DCtx*)> context(ZSTD_createDCtx(), ZSTD_freeDCtx);
  return context.get();
}

bool unpack_frame(std::span<const char> frame, std::span<char> content) {
  return ZSTD_decompressDCtx(unpacker(), content.data(), content.size(), frame.data(), frame.size()) == content.size();
}

bool has_planes(size_t width) { return width == 4 || width == 8; }

}  // namespace

static constexpr std::array<std::string_view, 3> kEncodingNames = {"plain", "planes", "delta"};

std::string_view block_encoding_name(BlockEncoding encoding) { return kEncodingNames[static_cast<size_t>(encoding)]; }

std::optional<BlockEncoding> block_encoding_named(std::string_view name) {
  for (size_t i = 0; i < kEncodingNames.size(); ++i)
    if (kEncodingNames[i] == name) return static_cast<BlockEncoding>(i);
  return std::nullopt;
}

void invert_bits(std::span<char> values) {
  for (char& byte : values) byte = static_cast<char>(~static_cast<unsigned char>(byte));
}

BlockEncoding choose_block_encoding(std::span<const char> values, size_t width) {
  if (!has_planes(width)) return BlockEncoding::kPlain;
  const std::span<const char> sample = values.first(std::min(values.size(), kBlockSampleValues * width));
  BlockEncoding best = BlockEncoding::kPlain;
  size_t best_bytes = SIZE_MAX;
  for (const BlockEncoding encoding : {BlockEncoding::kPlain, BlockEncoding::kPlanes, BlockEncoding::kDelta}) {
    const size_t bytes = pack_block(sample, width, encoding).size();
    if (bytes >= best_bytes) continue;
    best = encoding;
    best_bytes = bytes;
  }
  return best;
}

std::string pack_block(std::span<const char> values, size_t width, BlockEncoding encoding) {
  std::string planes;
  const char* content = values.data();
  if (encoding != BlockEncoding::kPlain) {
    const size_t rows = values.size() / width;
    planes.resize(values.size());
    const bool delta = encoding == BlockEncoding::kDelta;
    if (width == 8)
      to_planes<uint64_t>(values.data(), rows, delta, planes.data());
    else
      to_planes<uint32_t>(values.data(), rows, delta, planes.data());
    content = planes.data();
  }
  std::string frame(ZSTD_compressBound(values.size()), '\0');
  const size_t bytes = ZSTD_compressCCtx(packer(), frame.data(), frame.size(), content, values.size(), kZstdLevel);
  // ZSTD_compressCCtx cannot fail with a buffer of the bound; an empty block would be caught as damaged by the reader.
  frame.resize(ZSTD_isError(bytes) != 0U ? 0 : bytes);
  return frame;
}

bool unpack_block(std::span<const char> frame, size_t width, BlockEncoding encoding, std::span<char> values) {
  if (encoding != BlockEncoding::kPlain && !has_planes(width)) return false;
  if (ZSTD_getFrameContentSize(frame.data(), frame.size()) != values.size()) return false;
  if (encoding == BlockEncoding::kPlain) return unpack_frame(frame, values);
  std::string planes(values.size(), '\0');
  if (!unpack_frame(frame, planes)) return false;
  const bool delta = encoding == BlockEncoding::kDelta;
  if (width == 8)
    from_planes<uint64_t>(planes.data(), values.size() / width, delta, values.data());
  else
    from_planes<uint32_t>(planes.data(), values.size() / width, delta, values.data());
  return true;
}

uint64_t block_checksum(std::span<const char> bytes) { return XXH3_64bits(bytes.data(), bytes.size()); }

}  // namespace llmprof
