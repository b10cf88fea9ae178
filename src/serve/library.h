// What is served: the runs of the store, looked at and never changed. No path of the file system is made of what a
// request says: a request has a number, and the folder is that of the row with this number.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "results/runs.h"

namespace llmprof::serve {

// A result as it was kept. Whoever shows it treats it as anyone's text.
struct StoredResult {
  std::string kind;      // "report", "bench" or "peaks"
  std::string json;      // at most kResultBytesMost
  std::string timeline;  // of a report, base64; empty: none was kept
};

// A run whose recording, or whose result of `llmprof bench`, is there to be read again.
struct Readable {
  std::string word;  // names it for llmprof's commands in the store's folder: that of its own
  RunKind kind = RunKind::kRun;
};

constexpr uint64_t kResultBytesMost = uint64_t{256} << 20;

class Library {
 public:
  virtual ~Library() = default;
  virtual Result<std::vector<RunRow>> runs() const = 0;
  // Errors: no such run, or what is wrong with it, in a sentence without names of files.
  virtual Result<RunManifest> manifest(int64_t number) const = 0;
  virtual Result<StoredResult> result(int64_t number, bool with_timeline) const = 0;
  // Errors: why it cannot be read again.
  virtual Result<Readable> readable(int64_t number) const = 0;
};

class StoreLibrary : public Library {
 public:
  explicit StoreLibrary(std::string folder) : folder_(std::move(folder)) {}
  Result<std::vector<RunRow>> runs() const override;
  Result<RunManifest> manifest(int64_t number) const override;
  Result<StoredResult> result(int64_t number, bool with_timeline) const override;
  Result<Readable> readable(int64_t number) const override;

 private:
  Result<RunRow> row(int64_t number) const;
  std::string folder_;
};

}  // namespace llmprof::serve
