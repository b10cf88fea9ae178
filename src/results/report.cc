#include "results/report.h"

namespace llmprof {

const char* name_of(FindingSeverity severity) {
  switch (severity) {
    case FindingSeverity::kInfo:
      return "info";
    case FindingSeverity::kMinor:
      return "minor";
    case FindingSeverity::kMajor:
      return "major";
    case FindingSeverity::kCritical:
      return "critical";
  }
  return "info";
}

}  // namespace llmprof
