// The names of recording levels as users type and read them.
#pragma once

#include <array>
#include <optional>
#include <string_view>

#include "capture/spool/records.h"

namespace llmprof::session {

// In the order of spool::Level; "off" is no mode that can be asked for.
constexpr std::array<const char*, 4> kLevelNames = {"off", "light", "default", "deep"};

inline const char* level_name(uint32_t level) { return level < kLevelNames.size() ? kLevelNames[level] : "unknown"; }
inline const char* level_name(spool::Level level) { return level_name(static_cast<uint32_t>(level)); }

inline std::optional<spool::Level> parse_mode(std::string_view name) {
  for (size_t i = 1; i < kLevelNames.size(); ++i)
    if (name == kLevelNames[i]) return static_cast<spool::Level>(i);
  return std::nullopt;
}

}  // namespace llmprof::session
