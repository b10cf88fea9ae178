#include "import/smi_log.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cmath>

namespace llmprof::smi {
namespace {

constexpr double kSmiValueMax = 1e12;  // no quantity of nvidia-smi comes near
constexpr int64_t kSmiSecondNs = 1'000'000'000;
constexpr int64_t kSmiDayNs = 86'400 * kSmiSecondNs;
constexpr int32_t kMidnightsMax = 1000;  // of times without a date: with kSmiYearMax keeps sums within an int64_t
constexpr int kSmiYearMin = 1970, kSmiYearMax = 2100;
constexpr int64_t kSmiIntervalNs = kSmiSecondNs;  // what dmon takes without -d

}  // namespace

std::optional<double> parse_value(std::string_view text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  if (!std::isfinite(value) || std::abs(value) > kSmiValueMax) return std::nullopt;
  return value;
}

std::optional<int32_t> parse_digits(std::string_view text) {
  if (text.empty() || text.size() > 9) return std::nullopt;
  int32_t value = 0;
  for (char c : text) {
    if (c < '0' || c > '9') return std::nullopt;
    value = value * 10 + (c - '0');
  }
  return value;
}

std::optional<int64_t> parse_date(std::string_view text) {
  const std::optional<int32_t> digits = text.size() == 8 ? parse_digits(text) : std::nullopt;
  if (!digits) return std::nullopt;
  const std::chrono::year_month_day date{std::chrono::year(*digits / 10000),
                                         std::chrono::month(static_cast<unsigned>(*digits / 100 % 100)),
                                         std::chrono::day(static_cast<unsigned>(*digits % 100))};
  if (!date.ok() || date.year() < std::chrono::year(kSmiYearMin) || date.year() > std::chrono::year(kSmiYearMax))
    return std::nullopt;
  return std::chrono::sys_days(date).time_since_epoch().count() * kSmiDayNs;
}

std::optional<int64_t> parse_time_of_day(std::string_view text) {
  if (text.size() != 8 || text[2] != ':' || text[5] != ':') return std::nullopt;
  const std::optional<int32_t> hours = parse_digits(text.substr(0, 2));
  const std::optional<int32_t> minutes = parse_digits(text.substr(3, 2));
  const std::optional<int32_t> seconds = parse_digits(text.substr(6, 2));
  if (!hours || !minutes || !seconds || *hours > 23 || *minutes > 59 || *seconds > 60) return std::nullopt;
  return (*hours * 3600 + *minutes * 60 + *seconds) * kSmiSecondNs;
}

int64_t PrintClock::dated(int64_t unix_ns) {
  if (!epoch_unix_ns_) {
    epoch_unix_ns_ = unix_ns - next();
    trace_.base_unix_ns = *epoch_unix_ns_;
  }
  return set(unix_ns - *epoch_unix_ns_);
}

int64_t PrintClock::timed(int64_t of_day_ns) {
  if (!midnight_ns_) midnight_ns_ = next() - of_day_ns;
  if (of_day_ns < last_of_day_ns_ - kSmiDayNs / 2 && midnights_ < kMidnightsMax) {
    *midnight_ns_ += kSmiDayNs;
    ++midnights_;
  }
  last_of_day_ns_ = of_day_ns;
  return set(*midnight_ns_ + of_day_ns);
}

int64_t PrintClock::assumed(int32_t device) {
  if (!started_ || !seen_.insert(device).second) {
    set(next());
    seen_ = {device};
  }
  return now_ns_;
}

int64_t PrintClock::next() const { return started_ ? now_ns_ + kSmiIntervalNs : 0; }

int64_t PrintClock::set(int64_t now_ns) {
  started_ = true;
  return now_ns_ = now_ns;
}

void SmiLog::count(DiagnosticId id, std::string_view what) {
  const bool kept = trace_.diagnostics.places(id).size() < Diagnostics::kKeptPlaces;
  trace_.diagnostics.add(id, kept ? fmt::format("line {} ({})", line_, what) : std::string());
}

void SmiLog::unknown_column(std::string_view name) {
  if (unknown_.size() >= kCellsMax) return;
  const std::string kept(name.substr(0, kNameBytesMax));
  if (unknown_.insert(kept).second) count(DiagnosticId::kUnknownCategory, fmt::format("column \"{}\"", kept));
}

Devices::Values& SmiLog::device(int32_t device) {
  const auto [at, added] = devices_.try_emplace(device);
  if (added) {
    at->second.device = device;
    at->second.name = builder_.text("");
  }
  return at->second;
}

void SmiLog::add(const NvmlSamples::Values& row, bool timed) {
  builder_.add<NvmlSamples>(row);
  first_ns_ = samples_ == 0 ? row.time_ns : std::min(first_ns_, row.time_ns);
  last_ns_ = samples_ == 0 ? row.time_ns : std::max(last_ns_, row.time_ns);
  device(row.device);
  assumed_ += timed ? 0 : 1;
  ++samples_;
}

void SmiLog::add_counters(GpuSamples::Values row, int64_t printed_ns) {
  row.start_ns = printed_ns - kSmiIntervalNs;
  row.dur_ns = kSmiIntervalNs;
  builder_.add<GpuSamples>(row);
}

void SmiLog::finish(std::string_view recorder) {
  // One line alone stands for the interval from its time on, and so do its counters.
  if (last_ns_ == first_ns_)
    for (int64_t& start_ns : trace_.gpu_samples.start_ns) start_ns += kSmiIntervalNs;
  for (const auto& [ordinal, values] : devices_) builder_.add<Devices>(values);
  // To the last line, so that its energy is known to the end; one line stands for an interval.
  builder_.add<Recorded>({.start_ns = first_ns_,
                          .dur_ns = last_ns_ > first_ns_ ? last_ns_ - first_ns_ : kSmiIntervalNs,
                          .process_id = 0,
                          .level = RecordingLevel::kLight,
                          .reason = builder_.text(recorder),
                          .cut_ns = 0});
  if (assumed_ > 0) trace_.diagnostics.add(DiagnosticId::kAssumedTimes, "one second between samples", assumed_);
}

}  // namespace llmprof::smi
