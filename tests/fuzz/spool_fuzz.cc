// Any bytes as a spool file, through the whole program: read, import, derive, analyze, render. Checksums are made right
// first: otherwise nearly every mutation ends at a checksum and the code behind it is never reached.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "analyze/analysis.h"
#include "capture/spool/reader.h"
#include "derive/derive.h"
#include "import/importer.h"
#include "import/session.h"
#include "report/render.h"
#include "trace/check_trace.h"
#include "trace/trace_file.h"

namespace {

using namespace llmprof;

// One thread: libFuzzer runs thousands of inputs a second, and starting threads would take most of the time.
const bool kOneThread = setenv("LLMPROF_THREADS", "1", 1) == 0;

[[noreturn]] void broken(const char* what, const std::string& detail) {
  std::fprintf(stderr, "%s: %s\n", what, detail.c_str());
  std::abort();
}

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
  finish_import(trace);
  const uint64_t found = trace.diagnostics.total();
  check_trace(trace);
  if (trace.diagnostics.total() != found) broken("the importer left", "values that check_trace repairs");
  if (save) {
    const Result<std::string> packed = pack_trace(trace);
    Trace back;
    if (packed && !read_trace(*packed, back)) broken("saving", "cannot be read back");
  }
  if (Status status = derive(trace); !status) broken("derive failed", status.error().text());
  const Result<Report> report = analyze(trace);
  if (!report) return;
  for (const ConservationCheck& check : report->conservation)
    if (!check.ok) broken("conservation", check.name);
  for (const Renderer& renderer : renderers())
    for (const RenderedFile& file : renderer.render(*report, {}))
      if (file.name.empty()) broken("a rendered file has no name", std::string(renderer.name));
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
