// Numbers of the fields that are written of Perfetto's public messages (protos/perfetto/trace in its sources;
// docs/formats/perfetto.md). They never change; tests/export/perfetto.proto states them once more for reading.
#pragma once

#include <cstdint>

namespace llmprof::exporting::perfetto {

namespace trace {
enum : uint32_t { kPacket = 1 };
}
namespace packet {
enum : uint32_t {
  kClockSnapshot = 6,
  kTimestamp = 8,
  kSequenceId = 10,
  kTrackEvent = 11,
  kInternedData = 12,
  kSequenceFlags = 13,
  kPreviousPacketDropped = 42,
  kTrackDescriptor = 60,
  kFirstPacketOnSequence = 87
};
}
constexpr uint64_t kStateCleared = 1, kNeedsState = 2;  // bits of kSequenceFlags
namespace clock_snapshot {
enum : uint32_t { kClocks = 1, kClockId = 1, kTimestamp = 2 };
}
constexpr uint64_t kRealtime = 1, kBoottime = 6;  // clocks; times of packets are of the latter
namespace descriptor {
enum : uint32_t {
  kUuid = 1,
  kName = 2,
  kProcess = 3,
  kThread = 4,
  kParentUuid = 5,
  kCounter = 8,
  kChildOrdering = 11,
  kSiblingOrderRank = 12
};
}
constexpr uint64_t kExplicitOrder = 3;  // of kChildOrdering
namespace process {
enum : uint32_t { kPid = 1, kName = 6 };
}
namespace thread {
enum : uint32_t { kPid = 1, kTid = 2, kName = 5 };
}
namespace counter {
enum : uint32_t { kUnit = 3, kUnitName = 6 };
}
constexpr uint64_t kUnitBytes = 3;  // of counter::kUnit
namespace event {
enum : uint32_t {
  kCategoryIids = 3,
  kDebugAnnotations = 4,
  kType = 9,
  kNameIid = 10,
  kTrackUuid = 11,
  kCounterValue = 30,
  kDoubleCounterValue = 44,
  kFlowIds = 47
};
}
constexpr uint64_t kSliceBegin = 1, kSliceEnd = 2, kCounter = 4;  // of event::kType
namespace annotation {
enum : uint32_t { kNameIid = 1, kUintValue = 3, kIntValue = 4, kDoubleValue = 5, kStringValueIid = 17 };
}
namespace interned {
enum : uint32_t { kCategories = 1, kEventNames = 2, kAnnotationNames = 3, kAnnotationValues = 29, kIid = 1, kText = 2 };
}

}  // namespace llmprof::exporting::perfetto
