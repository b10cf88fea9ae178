// Where in the Python program a snapshot's blocks come from.
#pragma once

#include <vector>

#include "import/memory_snapshot_words.h"
#include "import/pickle.h"
#include "trace/trace_builder.h"

namespace llmprof::memory_snapshot {

// The innermost Python code of a list of frames that is not PyTorch's own, else the innermost of PyTorch's. Files are
// judged once, lists of frames and places are found again.
class Places {
 public:
  // `keys`: what each text of the document means as a key.
  Places(const pickle::Document& document, const std::vector<Key>& keys, TraceBuilder& builder);
  StringId of(pickle::Value frames);

 private:
  enum class File : uint8_t { kUnjudged, kNoPython, kTorch, kOwn };
  struct Frame {
    pickle::Value file{}, line{}, name{};
  };

  StringId search(pickle::Value frames);
  Frame read(pickle::Value item) const;
  File judge(pickle::Value file);
  StringId named(const Frame& frame);

  const pickle::Document& document_;
  const std::vector<Key>& keys_;
  TraceBuilder& builder_;
  std::vector<File> files_;      // by text
  std::vector<StringId> lists_;  // by container; one list may stand in many events
};

}  // namespace llmprof::memory_snapshot
