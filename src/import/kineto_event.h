// One event of a Kineto trace as text spans: what scan_event finds before anything is interpreted.
#pragma once

#include <cstdint>
#include <string_view>

#include "import/json_scan.h"

namespace llmprof::kineto {

// A value of an event. Strings keep their escapes; `escaped` says whether there are any.
struct Field {
  std::string_view text;
  bool is_string = false;
  bool escaped = false;
  explicit operator bool() const { return text.data() != nullptr; }
};

// Keys of "args" that some category needs. Everything else is stepped over.
enum class Arg : uint8_t {
  kExternalId,
  kCorrelation,
  kDims,
  kTypes,
  kStrides,
  kConcrete,
  kSequence,
  kFlops,
  kDevice,
  kContext,
  kStream,
  kRegisters,
  kSharedMemory,
  kOccupancy,
  kGrid,
  kBlock,
  kBytes,
  kGraphNode,
  kTotalReserved,
  kTotalAllocated,
  kMemoryBytes,
  kDeviceId,
  kDeviceType,
  kAddress,
  kName,
  kCollective,
  kInElements,
  kOutElements,
  kGroupSize,
  kDType,
  kGroup,
  kGroupMembers,
  kGroupSequence,
  kFromRank,
  kToRank,
  kEventStream,
  kEventCall,
  kCount
};

struct Event {
  char phase = '\0';
  Field category, name, process_id, thread_id, time, duration;
  std::string_view args_text;  // the args object with its braces
  uint64_t present = 0;        // bit per Arg; args[i] is valid only where the bit is set
  Field args[static_cast<size_t>(Arg::kCount)];

  const Field* arg(Arg which) const {
    const size_t i = static_cast<size_t>(which);
    return (present >> i & 1) != 0 ? &args[i] : nullptr;
  }
  void reset() {
    phase = '\0';
    category = name = process_id = thread_id = time = duration = Field();
    args_text = {};
    present = 0;
  }
};

// `p` stands on the opening brace; on kOk it stands behind the closing one.
json::Outcome scan_event(const char*& p, const char* end, Event& event);

// One value: a string, a container (its text), or a token.
json::Outcome scan_field(const char*& p, const char* end, Field& field);

}  // namespace llmprof::kineto
