// llmprof's own compact file of a Trace: every table, every string, metadata, windows and diagnostics. The layout is
// described in docs/formats/llmprof-trace.md; why it looks like that, in docs/adr/0004-trace-file-format.md.
//
// What always holds
//   - save, then load, gives the same Trace: same rows, same string handles, same diagnostics.
//   - No byte of the file can change without notice: the directory and every block carry a checksum.
//   - A damaged or cut file costs only the tables whose blocks are hit; the rest is kept and the loss is counted.
//   - The reader allocates nothing before the size has been checked against the file (kFile* limits below), and what it
//     returns satisfies check_trace(): no handle, row or enumerator of a hostile file can index out of bounds later.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "base/result.h"
#include "trace/trace.h"

namespace llmprof {

constexpr std::string_view kTraceFileMagic = "LLMPROF\n";
constexpr uint32_t kTraceFileVersion = 4;
constexpr uint32_t kTraceFileVersionOldest = 1;  // read as well

// Limits on untrusted sizes. Real recordings pack from memory by about 20:1, a small one repeated many times by 500:1,
// so honest files stay far below; save_trace() refuses to write what load_trace() would not read.
constexpr uint64_t kFileDirectoryBytesMax = 16U << 20;
constexpr uint64_t kFileUnpackedBytesMax = uint64_t{256} << 30;
constexpr uint64_t kFileUnpackedBytesFloor = uint64_t{64} << 20;
constexpr uint64_t kFileUnpackRatioMax = 4096;

// Bytes that the blocks of a file of `file_bytes` may unpack to, all tables together.
constexpr uint64_t unpacked_bytes_limit(uint64_t file_bytes) {
  if (file_bytes > kFileUnpackedBytesMax / kFileUnpackRatioMax) return kFileUnpackedBytesMax;
  return kFileUnpackedBytesFloor + file_bytes * kFileUnpackRatioMax;
}

// Writes `path` through a temporary file beside it, so that a reader never sees half a file.
Status save_trace(const Trace& trace, const std::string& path);
// The same content in memory.
Result<std::string> pack_trace(const Trace& trace);

// Replaces `trace` by what the bytes hold. An error means that nothing could be read (not this format, a newer version,
// a damaged directory); anything else that is wrong is counted in trace.diagnostics.
Status read_trace(std::span<const char> bytes, Trace& trace);
Result<Trace> load_trace(const std::string& path);

}  // namespace llmprof
