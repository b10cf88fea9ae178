// Answers that need recordings: llmprof's own commands, each in a process of its own. What they read may be large and
// anyone's: time and output are bounded, an answer that nobody waits for is given up, and where memory runs out the
// kernel ends that process and not the server.
#pragma once

#include <deque>
#include <mutex>
#include <string>
#include <vector>

#include "base/result.h"
#include "serve/message.h"

namespace llmprof::serve {

class Commands {
 public:
  virtual ~Commands() = default;
  // What `llmprof WORDS...` prints. Errors: what the command said was wrong, without places, or which limit was met.
  // Called by several threads at a time.
  virtual Result<std::string> output_of(const std::vector<std::string>& words, const Unwanted& unwanted) const = 0;
};

struct CommandLimits {
  int most_ms = 300'000;
  size_t output_bytes = size_t{256} << 20;
  size_t kept_bytes = size_t{64} << 20;  // of outputs that are kept for whoever asks again
};

class ProcessCommands : public Commands {
 public:
  // `program` is started in `folder` with no input; it ends when this process does. What it prints for the same words
  // is taken to be the same: words name runs of the store, which stay as they are.
  ProcessCommands(std::string program, std::string folder, CommandLimits limits = {})
      : program_(std::move(program)), folder_(std::move(folder)), limits_(limits) {}
  Result<std::string> output_of(const std::vector<std::string>& words, const Unwanted& unwanted) const override;

 private:
  struct Kept {
    std::vector<std::string> words;
    std::string output;
  };
  void keep(const std::vector<std::string>& words, const std::string& output) const;

  std::string program_, folder_;
  CommandLimits limits_;
  mutable std::mutex mutex_;
  mutable std::deque<Kept> kept_;  // the last one that was made stands last
};

}  // namespace llmprof::serve
