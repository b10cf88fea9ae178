#include "import/kineto_event.h"

#include <cstring>

namespace llmprof::kineto {
namespace {

using json::Outcome;

// Compile-time length, so that the comparison becomes one or two loads.
template <size_t N>
bool is(std::string_view key, const char (&text)[N]) {
  return key.size() == N - 1 && std::memcmp(key.data(), text, N - 1) == 0;
}

Arg arg_of(std::string_view key) {
  switch (key.size()) {
    case 3:
      if (is(key, "Seq")) return Arg::kGroupSequence;
      break;
    case 4:
      if (is(key, "grid")) return Arg::kGrid;
      if (is(key, "Addr")) return Arg::kAddress;
      if (is(key, "name")) return Arg::kName;
      break;
    case 5:
      if (is(key, "block")) return Arg::kBlock;
      if (is(key, "bytes")) return Arg::kBytes;
      if (is(key, "Bytes")) return Arg::kMemoryBytes;
      if (is(key, "dtype")) return Arg::kDType;
      if (is(key, "flops") || is(key, "FLOPs")) return Arg::kFlops;
      break;
    case 6:
      if (is(key, "device")) return Arg::kDevice;
      if (is(key, "stream")) return Arg::kStream;
      break;
    case 7:
      if (is(key, "context")) return Arg::kContext;
      break;
    case 8:
      if (is(key, "inDevice")) return Arg::kDevice;  // copies between GPUs: the one that runs it
      if (is(key, "Src Rank")) return Arg::kFromRank;
      if (is(key, "Dst Rank")) return Arg::kToRank;
      break;
    case 9:
      if (is(key, "inContext")) return Arg::kContext;
      if (is(key, "Device Id")) return Arg::kDeviceId;
      break;
    case 10:
      if (is(key, "Input Dims") || is(key, "Input dims")) return Arg::kDims;
      if (is(key, "Input type")) return Arg::kTypes;
      if (is(key, "Group size")) return Arg::kGroupSize;
      break;
    case 11:
      if (is(key, "External id") || is(key, "external id")) return Arg::kExternalId;
      if (is(key, "correlation")) return Arg::kCorrelation;
      if (is(key, "Device Type")) return Arg::kDeviceType;
      break;
    case 13:
      if (is(key, "Input Strides")) return Arg::kStrides;
      if (is(key, "shared memory")) return Arg::kSharedMemory;
      if (is(key, "graph node id")) return Arg::kGraphNode;
      if (is(key, "In msg nelems")) return Arg::kInElements;
      break;
    case 14:
      if (is(key, "Total Reserved")) return Arg::kTotalReserved;
      if (is(key, "Out msg nelems")) return Arg::kOutElements;
      if (is(key, "wait_on_stream")) return Arg::kEventStream;
      break;
    case 15:
      if (is(key, "Concrete Inputs")) return Arg::kConcrete;
      if (is(key, "Total Allocated")) return Arg::kTotalAllocated;
      if (is(key, "Sequence number")) return Arg::kSequence;
      if (is(key, "Collective name")) return Arg::kCollective;
      break;
    case 18:
      if (is(key, "Process Group Name")) return Arg::kGroup;
      break;
    case 19:
      if (is(key, "Process Group Ranks")) return Arg::kGroupMembers;
      break;
    case 20:
      if (is(key, "registers per thread")) return Arg::kRegisters;
      break;
    case 25:
      if (is(key, "est. achieved occupancy %")) return Arg::kOccupancy;
      break;
    case 33:
      if (is(key, "wait_on_cuda_event_record_corr_id")) return Arg::kEventCall;
      break;
    default:
      break;
  }
  return Arg::kCount;
}

// Walks an object: `p` on its opening brace, afterwards behind the closing one. on_key(key) returns the Field to fill,
// or null to step over the value.
template <class OnKey>
Outcome scan_object(const char*& p, const char* end, OnKey&& on_key) {
  ++p;
  while (true) {
    p = json::skip_space(p);
    if (p >= end) return Outcome::kIncomplete;
    if (*p == ',') {
      ++p;
      continue;
    }
    if (*p == '}') {
      ++p;
      return Outcome::kOk;
    }
    if (*p != '"') return Outcome::kBad;
    bool escaped = false;
    const char* start = ++p;
    if (const Outcome outcome = json::scan_string(p, end, escaped); outcome != Outcome::kOk) return outcome;
    const std::string_view key(start, static_cast<size_t>(p - start));
    p = json::skip_space(p + 1);
    if (p >= end) return Outcome::kIncomplete;
    if (*p != ':') return Outcome::kBad;
    p = json::skip_space(p + 1);
    if (p >= end) return Outcome::kIncomplete;
    const Outcome outcome = on_key(key, p);
    if (outcome != Outcome::kOk) return outcome;
  }
}

Outcome scan_args(const char*& p, const char* end, Event& event) {
  const char* start = p;
  if (*p != '{') return json::skip_value(p, end);
  const Outcome outcome = scan_object(p, end, [&](std::string_view key, const char*& at) {
    const Arg which = arg_of(key);
    if (which == Arg::kCount) return json::skip_value(at, end);
    event.present |= uint64_t{1} << static_cast<size_t>(which);
    return scan_field(at, end, event.args[static_cast<size_t>(which)]);
  });
  event.args_text = std::string_view(start, static_cast<size_t>(p - start));
  return outcome;
}

}  // namespace

Outcome scan_field(const char*& p, const char* end, Field& field) {
  field = Field();
  if (*p == '"') {
    const char* start = ++p;
    const Outcome outcome = json::scan_string(p, end, field.escaped);
    if (outcome != Outcome::kOk) return outcome;
    field.text = std::string_view(start, static_cast<size_t>(p - start));
    field.is_string = true;
    ++p;
    return Outcome::kOk;
  }
  if (*p == '[' || *p == '{') {
    const char* start = p;
    const Outcome outcome = json::skip_value(p, end);
    field.text = std::string_view(start, static_cast<size_t>(p - start));
    return outcome;
  }
  return json::scan_token(p, end, field.text);
}

Outcome scan_event(const char*& p, const char* end, Event& event) {
  event.reset();
  return scan_object(p, end, [&](std::string_view key, const char*& at) {
    Field* target = nullptr;
    switch (key.size()) {
      case 2:
        if (is(key, "ph")) {
          Field phase;
          const Outcome outcome = scan_field(at, end, phase);
          event.phase = phase.text.size() == 1 ? phase.text[0] : '\0';
          return outcome;
        }
        if (is(key, "ts")) target = &event.time;
        break;
      case 3:
        if (is(key, "cat")) target = &event.category;
        if (is(key, "pid")) target = &event.process_id;
        if (is(key, "tid")) target = &event.thread_id;
        if (is(key, "dur")) target = &event.duration;
        break;
      case 4:
        if (is(key, "name")) target = &event.name;
        if (is(key, "args")) return scan_args(at, end, event);
        break;
      default:
        break;
    }
    return target != nullptr ? scan_field(at, end, *target) : json::skip_value(at, end);
  });
}

}  // namespace llmprof::kineto
