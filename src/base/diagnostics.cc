#include "base/diagnostics.h"

namespace llmprof {

std::string_view name_of(Severity severity) {
  switch (severity) {
    case Severity::kInfo:
      return "info";
    case Severity::kNotice:
      return "notice";
    case Severity::kDataLoss:
      return "data-loss";
    case Severity::kError:
      return "error";
  }
  return "info";
}

const std::array<DiagnosticInfo, kDiagnosticCount>& diagnostic_table() {
  static constexpr std::array<DiagnosticInfo, kDiagnosticCount> table = {{
#define LLMPROF_D(symbol, key, severity, text) {key, Severity::severity, text},
      LLMPROF_DIAGNOSTICS(LLMPROF_D)
#undef LLMPROF_D
  }};
  return table;
}

void Diagnostics::add(DiagnosticId id, std::string where, uint64_t count) {
  const size_t i = static_cast<size_t>(id);
  counts_[i] += count;
  if (!where.empty() && places_[i].size() < kKeptPlaces) places_[i].push_back(std::move(where));
}

void Diagnostics::explain(DiagnosticId id, const std::string& cause) {
  std::vector<std::string>& places = places_[static_cast<size_t>(id)];
  if (count(id) == 0 || places.empty()) return add(id, cause, count(id) == 0 ? 1 : 0);
  places.front() += ": " + cause;
}

void Diagnostics::merge(const Diagnostics& other) {
  for (size_t i = 0; i < kDiagnosticCount; ++i) {
    counts_[i] += other.counts_[i];
    for (const std::string& place : other.places_[i])
      if (places_[i].size() < kKeptPlaces) places_[i].push_back(place);
  }
}

void Diagnostics::rewrite_places(const std::function<std::string(std::string_view)>& text_of) {
  for (std::vector<std::string>& places : places_)
    for (std::string& place : places) place = text_of(place);
}

uint64_t Diagnostics::total() const {
  uint64_t sum = 0;
  for (const uint64_t count : counts_) sum += count;
  return sum;
}

bool Diagnostics::has(Severity at_least) const {
  for (size_t i = 0; i < kDiagnosticCount; ++i)
    if (counts_[i] != 0 && diagnostic_table()[i].severity >= at_least) return true;
  return false;
}

}  // namespace llmprof
