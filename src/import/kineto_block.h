// One block of a Kineto trace parsed into tables of its own. Blocks are parsed side by side and merged in file order,
// so a block numbers its strings, threads, streams, launch configurations and signatures for itself;
// TraceBuilder::append renumbers them. A block can be cleared and used again without giving its memory back.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/diagnostics.h"
#include "base/flat_index.h"
#include "trace/trace_builder.h"

namespace llmprof::kineto {

// Where the parser stands between two events or keys.
enum class State : uint8_t {
  kStart,   // before the first byte of the document
  kTop,     // inside the top-level object, a key or the end comes next
  kEvents,  // inside the event array, an event or the end comes next
  kDone,    // behind the document
};

struct Block {
  // Bytes of the file, followed by json::kScanPadding zero bytes.
  std::vector<char> bytes;
  size_t size = 0;
  uint64_t offset = 0;  // of bytes[0] in the decompressed file
  uint64_t index = 0;   // position among the blocks

  // Results.
  State end_state = State::kStart;
  size_t consumed = 0;  // bytes parsed; the rest is the start of something that the next block finishes
  Trace rows;
  TraceBuilder builder{rows};
  std::vector<std::pair<std::string, std::string>> metadata;  // top-level key, raw JSON text
  struct ThreadName {
    int64_t process_id, thread_id;
    StringId name;
  };
  std::vector<ThreadName> thread_names;

  RowIndex signature_index;  // by the text of the event, which is not interned to be looked up

  void clear_results();
};

// Parses block.bytes from `state` on. `bare_array`: the document is an array of events with no object around it.
// `last`: no bytes follow, so what is incomplete is cut.
void parse_block(Block& block, State state, bool bare_array, bool last);

// The last position in [from, size) at which an event very likely starts (an object after a comma whose first key is
// one that events have), or npos. A guess: the merge checks it.
size_t find_last_event_start(std::string_view bytes, size_t from);
// The first such position at or behind `from`.
size_t find_event_start(std::string_view bytes, size_t from);

}  // namespace llmprof::kineto
