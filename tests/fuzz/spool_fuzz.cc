// Any bytes as a spool file, through the whole program: read, import, derive, analyze, render. Checksums are made right
// first: otherwise nearly every mutation ends at a checksum and the code behind it is never reached.
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "capture/spool/reader.h"
#include "import/session.h"
#include "whole_program.h"

namespace {

using namespace llmprof;

using fuzz::broken;
using fuzz::kOneThread;

// Follows the blocks as far as their lengths lead; a block that reaches beyond the end is shortened.
std::string with_checksums(std::string file) {
  for (size_t at = sizeof(spool::FileHead); at + sizeof(spool::BlockHead) <= file.size();) {
    spool::BlockHead head;
    std::memcpy(&head, file.data() + at, sizeof head);
    if (head.magic != spool::kBlockMagic) break;
    const size_t left = file.size() - at - sizeof head;
    if (head.payload_bytes > left || head.payload_bytes > spool::kPayloadBytesMax)
      head.payload_bytes = static_cast<uint32_t>(left < spool::kPayloadBytesMax ? left : spool::kPayloadBytesMax);
    std::memcpy(file.data() + at, &head, sizeof head);
    head.checksum = XXH64(file.data() + at + spool::kChecksummedFrom,
                          sizeof head - spool::kChecksummedFrom + head.payload_bytes, head.payload_bytes);
    std::memcpy(file.data() + at, &head, sizeof head);
    at += sizeof head + head.payload_bytes;
  }
  return file;
}

struct Counter {
  uint64_t records = 0;
  template <class Record>
  void operator()(const Record&) {
    ++records;
  }
};

// Each byte of a block is one record at most, and no block is both read and missing.
void check_reading(std::string_view bytes) {
  Counter counter;
  const spool::ReadSummary summary = spool::read(bytes, counter);
  if (counter.records != summary.records || summary.records > bytes.size()) broken("reading", "records do not add up");
  if (summary.blocks * sizeof(spool::BlockHead) > bytes.size()) broken("reading", "more blocks than bytes");
}

void use(std::string_view bytes, bool save) {
  check_reading(bytes);
  Result<InputFile> input = InputFile::from_memory(bytes, "fuzz.spool");
  Trace trace;
  if (!input || session_importer::sniff(input->head()) == 0 || !session_importer::import(*input, trace)) return;
  fuzz::finish_and_report(trace, save);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (!kOneThread) return 0;
  const std::string bytes(reinterpret_cast<const char*>(data), size);
  check_reading(bytes);
  use(with_checksums(bytes), size % 8 == 0);
  return 0;
}
