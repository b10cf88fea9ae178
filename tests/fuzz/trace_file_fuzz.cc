// Any bytes as a llmprof trace file: no crash, and what is read can be used (every handle in range), written and read
// again without change. The checksums of the directory and of every block are made right first: otherwise nearly every
// mutation ends at the checksum and the code behind it is never reached.
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "trace/check_trace.h"
#include "trace/signature.h"
#include "trace/trace_file.h"

namespace {

constexpr size_t kHeadBytes = 24, kChecksumAt = 8, kVersionAt = 16, kDirectoryBytesAt = 20;

// Rewrites the xxh3 of each block entry, as far as the directory can be followed: "bytes":N,"xxh3":"16 digits".
void repair_checksums(std::string& file) {
  uint32_t directory_bytes = 0;
  if (file.size() < kHeadBytes) return;
  std::memcpy(&directory_bytes, file.data() + kDirectoryBytesAt, sizeof directory_bytes);
  if (directory_bytes > file.size() - kHeadBytes) return;
  const size_t end = kHeadBytes + directory_bytes;
  size_t block = end;
  constexpr std::string_view kBytes = "\"bytes\":", kHash = ",\"xxh3\":\"";
  for (size_t at = file.find(kBytes, kHeadBytes); at < end; at = file.find(kBytes, at + 1)) {
    char* after = nullptr;
    const unsigned long long bytes = std::strtoull(file.data() + at + kBytes.size(), &after, 10);
    const size_t hash_at = static_cast<size_t>(after - file.data());
    if (block + bytes > file.size() || bytes > file.size()) break;
    if (file.compare(hash_at, kHash.size(), kHash) != 0 || hash_at + kHash.size() + 16 > end) break;
    const uint64_t hash = XXH3_64bits(file.data() + block, bytes);
    for (size_t digit = 0; digit < 16; ++digit)
      file[hash_at + kHash.size() + digit] = "0123456789abcdef"[(hash >> (60 - 4 * digit)) & 15];
    block += bytes;
  }
  const uint64_t checksum = XXH3_64bits(file.data() + kVersionAt, end - kVersionAt);
  std::memcpy(file.data() + kChecksumAt, &checksum, sizeof checksum);
}

void use(const std::string& file) {
  llmprof::Trace trace;
  if (!llmprof::read_trace(file, trace)) return;
  const uint64_t found = trace.diagnostics.total();
  llmprof::check_trace(trace);
  if (trace.diagnostics.total() != found) std::abort();  // what read_trace returns needs no repair
  for (llmprof::SignatureId row = 0; row < trace.signatures.size(); ++row) {
    const llmprof::SignatureShapes shapes(trace, row);
    for (int i = -1; i <= shapes.size(); ++i)
      for (const llmprof::Shape& shape : shapes.tensors(i))
        if (shape.elements < 0 || shape.elements > llmprof::kMaxElements || shape.distinct > shape.elements)
          std::abort();
  }
  const llmprof::Result<std::string> packed = llmprof::pack_trace(trace);
  if (!packed) return;
  llmprof::Trace again;
  if (!llmprof::read_trace(*packed, again)) std::abort();
  const llmprof::Result<std::string> repacked = llmprof::pack_trace(again);
  if (!repacked || *repacked != *packed) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::string file(reinterpret_cast<const char*>(data), size);
  use(file);
  repair_checksums(file);
  use(file);
  return 0;
}
