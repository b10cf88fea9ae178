// Everything that another program needs to do a run again and compare: manifest.json (the configuration, the prompt,
// the tokens, and of each tensor name, shape and place) and tensors.bin (fp32, one after the other, little-endian).
#pragma once

#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "workload/model.h"
#include "workload/run.h"

namespace llmprof::workload {

class Dump {
 public:
  // Makes the folder. Error: it cannot be written to.
  static Result<Dump> open(const std::string& folder, Backend& backend);

  // Valid as long as this object does not move.
  Inspector inspector();
  Status finish(const Size& size, const ModelOptions& options, const RunResult& result);

 private:
  struct Entry {
    std::string name;
    int64_t rows, columns;
    uint64_t offset;  // in numbers
  };
  Dump(std::string folder, Backend& backend, std::FILE* file)
      : folder_(std::move(folder)), backend_(&backend), file_(file, &std::fclose) {}
  Status write(const std::string& name, int64_t rows, int64_t columns, const std::vector<float>& values);

  std::string folder_;
  Backend* backend_;
  std::unique_ptr<std::FILE, int (*)(std::FILE*)> file_;
  std::vector<Entry> entries_;
  uint64_t written_ = 0;
};

}  // namespace llmprof::workload
