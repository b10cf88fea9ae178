// What logs of nvidia-smi (`dmon`, --query-gpu) and of `dcgmi dmon` share: how dates and numbers are read, when each
// line was printed, and the rows of the trace that lines become.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>

#include "base/input_file.h"
#include "import/bounded_lines.h"
#include "trace/trace_builder.h"

namespace llmprof::smi {

inline constexpr size_t kLineBytesMax = 16 * 1024;  // the widest lines, of every column there is, have some 5 KiB
inline constexpr size_t kCellsMax = 256;
inline constexpr size_t kNameBytesMax = 64;   // of a column, as it is quoted
inline constexpr int32_t kDevicesMax = 1024;  // ordinals below this; a host has 16
inline constexpr double kBytesPerMib = 1024.0 * 1024.0;

// A finite number, of a size whose bytes fit an int64_t.
std::optional<double> parse_value(std::string_view text);
// Digits only, at most nine.
std::optional<int32_t> parse_digits(std::string_view text);
// YYYYMMDD as Unix time of its midnight, in nanoseconds. The years are bounded, so that sums fit an int64_t.
std::optional<int64_t> parse_date(std::string_view text);
// HH:MM:SS since midnight, in nanoseconds.
std::optional<int64_t> parse_time_of_day(std::string_view text);

// When each line was printed, on an epoch of the file: its first line is 0. Lines with a date, with the time of day
// only and without either may follow one another where outputs were appended to one file: the first line of another
// kind is then taken to be one interval after the line before.
class PrintClock {
 public:
  explicit PrintClock(Trace& trace) : trace_(trace) {}

  int64_t dated(int64_t unix_ns);
  // Less than half a day back is a clock that was set; more is midnight.
  int64_t timed(int64_t of_day_ns);
  // A GPU that was seen since the last interval begins the next one.
  int64_t assumed(int32_t device);

 private:
  int64_t next() const;
  int64_t set(int64_t now_ns);

  Trace& trace_;
  bool started_ = false;
  int64_t now_ns_ = 0;
  int64_t last_of_day_ns_ = 0;
  int32_t midnights_ = 0;
  std::optional<int64_t> epoch_unix_ns_, midnight_ns_;
  std::set<int32_t> seen_;
};

// The rows of one file, and what is counted in its lines.
class SmiLog {
 public:
  explicit SmiLog(Trace& trace) : trace_(trace), builder_(trace), clock_(trace) {}

  Trace& trace() { return trace_; }
  TraceBuilder& builder() { return builder_; }
  PrintClock& clock() { return clock_; }

  void next_line() { ++line_; }
  // At the line that is being read. Described for the first places only: a damaged file may have one per cell.
  void count(DiagnosticId id, std::string_view what);
  // A column that is not known: once per name.
  void unknown_column(std::string_view name);

  // `timed`: the file says when.
  void add(const NvmlSamples::Values& row, bool timed);
  // Hardware counters of the interval before the line of a row that was added.
  void add_counters(GpuSamples::Values row, int64_t printed_ns);
  // What else is known of a GPU that has a row.
  Devices::Values& device(int32_t device);
  bool any() const { return samples_ > 0; }
  // The GPUs and the time that the log is about; once, if there is any sample.
  void finish(std::string_view recorder);

 private:
  Trace& trace_;
  TraceBuilder builder_;
  PrintClock clock_;
  std::set<std::string> unknown_;
  std::map<int32_t, Devices::Values> devices_;
  uint64_t line_ = 0, samples_ = 0, assumed_ = 0;
  int64_t first_ns_ = 0, last_ns_ = 0;
};

// Hands the lines of a log to its reader: line(text, cut), or too_long().
template <class Reader>
void read_lines(InputFile& input, Trace& trace, Reader& reader) {
  read_bounded_lines(input, kLineBytesMax, [&](const BoundedLine& line) {
    if (line.too_long)
      reader.too_long();
    else
      reader.line(line.text, line.cut);
  });
  if (input.damaged()) trace.diagnostics.explain(DiagnosticId::kTruncatedFile, input.damage());
}

}  // namespace llmprof::smi
