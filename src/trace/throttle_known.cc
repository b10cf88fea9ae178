#include "trace/throttle_known.h"

#include <fmt/format.h>

#include <charconv>
#include <map>
#include <string>

namespace llmprof {
namespace {

constexpr const char* kThrottleKnownKey = "nvml.throttle_reasons_known";

}  // namespace

void set_throttle_reasons_known(Trace& trace, uint64_t bits) {
  if (bits != kAllThrottleReasons) trace.metadata[kThrottleKnownKey] = fmt::format("{:x}", bits);
}

uint64_t throttle_reasons_known(const Trace& trace) {
  const std::map<std::string, std::string>::const_iterator found = trace.metadata.find(kThrottleKnownKey);
  if (found == trace.metadata.end()) return kAllThrottleReasons;
  uint64_t bits = 0;  // what cannot be read is known by nobody
  std::from_chars(found->second.data(), found->second.data() + found->second.size(), bits, 16);
  return bits;
}

}  // namespace llmprof
