// The words of a snapshot of PyTorch's memory that mean something here.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace llmprof::memory_snapshot {

inline constexpr uint32_t kFieldsMax = 32;  // of a frame, which has 3, or an entry: many lists share one

// Keys of its objects.
enum class Key : uint8_t {
  kUnknown,
  kSegments,
  kTraces,
  kSettings,
  kAnnotations,
  kDevice,
  kAddress,
  kTotalSize,
  kAllocatedSize,
  kActiveSize,
  kRequestedSize,
  kStream,
  kSegmentType,
  kBlocks,
  kSize,
  kState,
  kFrames,
  kHistory,
  kRealSize,
  kAction,
  kEventAddress,
  kTime,
  kDeviceFree,
  kName,
  kFile,
  kLine,
  kStage,
};
struct NamedKey {
  std::string_view name;
  Key key;
};
inline constexpr std::array kKeys = {
    NamedKey{"segments", Key::kSegments},
    NamedKey{"device_traces", Key::kTraces},
    NamedKey{"allocator_settings", Key::kSettings},
    NamedKey{"external_annotations", Key::kAnnotations},
    NamedKey{"device", Key::kDevice},
    NamedKey{"address", Key::kAddress},
    NamedKey{"total_size", Key::kTotalSize},
    NamedKey{"allocated_size", Key::kAllocatedSize},
    NamedKey{"active_size", Key::kActiveSize},
    NamedKey{"requested_size", Key::kRequestedSize},
    NamedKey{"stream", Key::kStream},
    NamedKey{"segment_type", Key::kSegmentType},
    NamedKey{"blocks", Key::kBlocks},
    NamedKey{"size", Key::kSize},
    NamedKey{"state", Key::kState},
    NamedKey{"frames", Key::kFrames},
    NamedKey{"history", Key::kHistory},
    NamedKey{"real_size", Key::kRealSize},
    NamedKey{"action", Key::kAction},
    NamedKey{"addr", Key::kEventAddress},
    NamedKey{"time_us", Key::kTime},
    NamedKey{"device_free", Key::kDeviceFree},
    NamedKey{"name", Key::kName},
    NamedKey{"filename", Key::kFile},
    NamedKey{"line", Key::kLine},
    NamedKey{"stage", Key::kStage},
};

enum class Action : uint8_t {
  kUnknown,
  kAllocated,
  kFreed,
  kReserved,
  kReleased,
  kFailed,
  kIgnored,
};
struct NamedAction {
  std::string_view name;
  Action action;
};
// A block counts as in use until it is freed; "free_completed" says that no stream waits for it any more.
inline constexpr std::array kActions = {
    NamedAction{"alloc", Action::kAllocated},
    NamedAction{"free_requested", Action::kFreed},
    NamedAction{"segment_alloc", Action::kReserved},
    NamedAction{"segment_map", Action::kReserved},
    NamedAction{"segment_free", Action::kReleased},
    NamedAction{"segment_unmap", Action::kReleased},
    NamedAction{"oom", Action::kFailed},
    NamedAction{"free_completed", Action::kIgnored},
    NamedAction{"snapshot", Action::kIgnored},
    NamedAction{"user_defined", Action::kIgnored},
};

}  // namespace llmprof::memory_snapshot
