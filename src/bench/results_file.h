// What `llmprof bench` writes and reads again: bench.json (schema llmprof.bench/1), and beside it, while it runs, a
// journal with one line per case, so that an interrupted run loses at most the case in hand.
#pragma once

#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "bench/case_rows.h"
#include "bench/presets.h"
#include "bench/protocol.h"
#include "device/device.h"

namespace llmprof::bench {

RunFacts facts_of(const device::DeviceIdentity& device, const Protocol& protocol, const std::string& tool_version);
std::string protocol_text(const Protocol& protocol);  // every number of it

struct ResultsFile {
  RunFacts facts;
  bool interrupted = false;
  std::vector<CaseRecord> records;
};

// As the command answers it. `steps`: of a model; nothing reads them again.
BenchResult bench_result(const ResultsFile& results, const device::DeviceIdentity& device,
                         const std::vector<ModelStepRow>& steps = {});

// A results file, or a journal, whose last line may be cut. Errors say what was expected and found.
Result<ResultsFile> read_results(const std::string& path);
// The same of text; `path` is for errors only.
Result<ResultsFile> parse_results(const std::string& text, const std::string& path);

// "FILE.partial"
std::string journal_path(const std::string& path);

class Journal {
 public:
  // Written anew, with the records kept from an earlier run.
  static Result<Journal> open(const std::string& path, const RunFacts& facts, const std::vector<CaseRecord>& kept);
  Status add(const CaseRecord& record);  // flushed
  // Once the final file is written.
  void remove();

 private:
  struct Close {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };
  std::string path_;
  std::unique_ptr<std::FILE, Close> file_;
};

}  // namespace llmprof::bench
