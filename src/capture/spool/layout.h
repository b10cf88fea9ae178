// The frame of a spool file: its head and the heads of its blocks, little-endian, as they lie in the file. What they
// hold is in coding.h; docs/formats/spool.md describes both.
#pragma once

#include <cstddef>
#include <cstdint>

namespace llmprof::spool {

constexpr uint64_t kFileMagic = 0x0A4C4F4F50534C4CULL;  // "LLSPOOL\n"
constexpr uint32_t kVersion = 1;
constexpr uint32_t kBlockMagic = 0x424C504CU;  // "LPLB"

struct FileHead {
  uint64_t magic = kFileMagic;
  uint32_t version = kVersion;
  uint32_t head_bytes = 64;
  int64_t process_id = 0;
  int64_t realtime_ns = 0;       // CLOCK_REALTIME when the file was opened
  int64_t monotonic_raw_ns = 0;  // CLOCK_MONOTONIC_RAW at the same moment
  char role[16] = {};            // padded with 0
  uint64_t checksum = 0;         // XXH64 of the bytes before it, seed 0
};
static_assert(sizeof(FileHead) == 64);

struct BlockHead {
  uint32_t magic = kBlockMagic;
  uint32_t payload_bytes = 0;  // at most kPayloadBytesMax
  uint64_t checksum = 0;       // XXH64 of the rest of this head and the payload, seed payload_bytes
  uint32_t sequence = 0;       // 0, 1, 2, ... in the file
  uint32_t flags = 0;          // none yet; a reader ignores those it does not know
  int64_t base_ns = 0;         // the first time in the block
};
static_assert(sizeof(BlockHead) == 32);
constexpr size_t kChecksummedFrom = 16;  // offset in BlockHead

constexpr size_t kPayloadBytesMax = 64 * 1024 - sizeof(BlockHead);

}  // namespace llmprof::spool
