#include "results/report.h"

namespace llmprof {

Report::Report() = default;
Report::Report(const Report& other) = default;
Report::Report(Report&& other) noexcept = default;
Report& Report::operator=(const Report& other) = default;
Report& Report::operator=(Report&& other) noexcept = default;
Report::~Report() = default;

const char* name_of(Provenance provenance) {
  switch (provenance) {
    case Provenance::kMeasured:
      return "measured";
    case Provenance::kCounted:
      return "counted";
    case Provenance::kFormula:
      return "formula";
    case Provenance::kDatasheet:
      return "datasheet";
    case Provenance::kRecorded:
      return "recorded";
    case Provenance::kComputed:
      return "computed";
  }
  return "";
}

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
