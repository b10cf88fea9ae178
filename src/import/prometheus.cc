#include "import/prometheus.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>
#include <cmath>
#include <limits>
#include <optional>
#include <string>
#include <unordered_map>
#include <unordered_set>

#include "import/bounded_lines.h"
#include "trace/sample_labels.h"
#include "trace/trace_builder.h"

namespace llmprof::metrics_pages {
namespace {

constexpr size_t kSampleLineMax = 64 * 1024;  // the longest samples of known servers have some thousand bytes
constexpr size_t kSamplesMax = 10'000'000;    // 400 MB of rows
constexpr size_t kFamiliesMax = 100'000;      // on a page
constexpr size_t kSniffedLines = 50;
constexpr std::string_view kSampleBlanks = " \t";
constexpr std::string_view kTimeMark = "time:";
constexpr int64_t kNsPerSecond = 1'000'000'000;

// ---- words ----

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && (kSampleBlanks.find(text.front()) != std::string_view::npos)) text.remove_prefix(1);
  while (!text.empty() && (kSampleBlanks.find(text.back()) != std::string_view::npos || text.back() == '\r'))
    text.remove_suffix(1);
  return text;
}

// Takes the first word off a text, and the blanks around it.
std::string_view take_word(std::string_view& text) {
  text = trimmed(text);
  const std::string_view word = text.substr(0, text.find_first_of(kSampleBlanks));
  text = trimmed(text.substr(word.size()));
  return word;
}

// Of a metric, with what names are made of in practice: OpenTelemetry's have dots.
size_t metric_name_length(std::string_view text) {
  size_t size = 0;
  for (; size < text.size(); ++size) {
    const char c = text[size];
    const bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || c == ':';
    const bool digit = (c >= '0' && c <= '9') || c == '.';
    if (!letter && (size == 0 || !digit)) break;
  }
  return size;
}

bool is_metric_name(std::string_view text) { return !text.empty() && metric_name_length(text) == text.size(); }

// NaN and +Inf are values of a page; what is no number, or too large for one, is none.
std::optional<double> sample_value(std::string_view text) {
  if (text.size() > 1 && text[0] == '+' && text[1] != '-') text.remove_prefix(1);
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || text.empty()) return std::nullopt;
  return value;
}

// ---- times ----

// A decimal number of units of `unit_ns`, in whole nanoseconds; as text, since a double loses nanoseconds.
std::optional<int64_t> decimal_ns(std::string_view text, int64_t unit_ns) {
  constexpr int64_t kMostNs = std::numeric_limits<int64_t>::max() / 2;
  int64_t whole = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), whole);
  if (error != std::errc() || whole < 0 || whole > kMostNs / unit_ns) return std::nullopt;
  int64_t ns = whole * unit_ns;
  std::string_view rest(end, static_cast<size_t>(text.data() + text.size() - end));
  if (rest.empty()) return ns;
  if (rest[0] != '.') return std::nullopt;
  for (int64_t step = unit_ns / 10; const char c : rest.substr(1)) {
    if (c < '0' || c > '9') return std::nullopt;
    ns += (c - '0') * step;
    step /= 10;
  }
  return ns;
}

// Prometheus has whole milliseconds, OpenMetrics seconds: as seconds, those would lie beyond the year 5000.
std::optional<int64_t> unix_ns_of(std::string_view text) {
  constexpr size_t kDigitsOfSeconds = 11;
  const std::string_view whole = text.substr(0, text.find('.'));
  const bool milliseconds = whole.size() > kDigitsOfSeconds && whole.size() == text.size();
  const std::optional<int64_t> ns = decimal_ns(text, milliseconds ? kNsPerSecond / 1000 : kNsPerSecond);
  return ns && *ns > 0 ? ns : std::nullopt;
}

std::optional<int> digits_at(std::string_view text, size_t at, size_t size) {
  int value = 0;
  if (at + size > text.size()) return std::nullopt;
  for (const char c : text.substr(at, size)) {
    if (c < '0' || c > '9') return std::nullopt;
    value = value * 10 + (c - '0');
  }
  return value;
}

// "Z", "+01:00" or "-0130" as seconds east of Greenwich.
std::optional<int64_t> zone_seconds(std::string_view text) {
  text = trimmed(text);
  if (text == "Z" || text == "z" || text == "UTC") return 0;
  if (text.size() < 5 || (text[0] != '+' && text[0] != '-')) return std::nullopt;
  const bool colon = text[3] == ':';
  const std::optional<int> hours = digits_at(text, 1, 2), minutes = digits_at(text, colon ? 4 : 3, 2);
  if (!hours || !minutes || *hours > 23 || *minutes > 59 || text.size() != (colon ? 6U : 5U)) return std::nullopt;
  return (text[0] == '-' ? -1 : 1) * (*hours * 3600 + *minutes * 60);
}

// "2026-11-27T16:11:26.5Z" (RFC 3339), which must have a zone.
std::optional<int64_t> rfc3339_ns(std::string_view text) {
  constexpr std::string_view kShape = "0000-00-00T00:00:00";
  if (text.size() <= kShape.size()) return std::nullopt;
  for (size_t i = 0; i < kShape.size(); ++i)
    if (kShape[i] == '-' || kShape[i] == ':' ? text[i] != kShape[i]
        : kShape[i] == 'T'                   ? text[i] != 'T' && text[i] != 't' && text[i] != ' '
                                             : text[i] < '0' || text[i] > '9')
      return std::nullopt;
  const auto part = [&](size_t at, size_t size) { return *digits_at(text, at, size); };
  const std::chrono::year_month_day date{std::chrono::year(part(0, 4)),
                                         std::chrono::month(static_cast<unsigned>(part(5, 2))),
                                         std::chrono::day(static_cast<unsigned>(part(8, 2)))};
  const int hours = part(11, 2), minutes = part(14, 2), seconds = part(17, 2);
  if (!date.ok() || part(0, 4) < 1970 || part(0, 4) > 2200 || hours > 23 || minutes > 59 || seconds > 60)
    return std::nullopt;
  std::string_view rest = text.substr(kShape.size());
  int64_t fraction_ns = 0;
  if (rest[0] == '.') {
    const size_t digits = std::min(rest.find_first_not_of("0123456789", 1), rest.size());
    const std::optional<int64_t> fraction = decimal_ns("0" + std::string(rest.substr(0, digits)), kNsPerSecond);
    if (!fraction) return std::nullopt;
    fraction_ns = *fraction;
    rest.remove_prefix(digits);
  }
  const std::optional<int64_t> zone = zone_seconds(rest);
  if (!zone) return std::nullopt;
  const int64_t days = std::chrono::sys_days(date).time_since_epoch().count();
  const int64_t ns = (days * 86'400 + hours * 3'600 + minutes * 60 + seconds - *zone) * kNsPerSecond + fraction_ns;
  return ns > 0 ? std::optional<int64_t>(ns) : std::nullopt;
}

// Of a comment: RFC 3339, or Unix time in seconds.
std::optional<int64_t> comment_time_ns(std::string_view text) {
  const std::optional<int64_t> ns = rfc3339_ns(text);
  return ns ? ns : unix_ns_of(text);
}

// When a file was changed last, for pages that say nothing; none for what is no file.
std::optional<int64_t> changed_ns(const std::string& path) {
  struct stat file {};
  if (stat(path.c_str(), &file) != 0 || !S_ISREG(file.st_mode) || file.st_mtim.tv_sec <= 0) return std::nullopt;
  return decimal_ns(fmt::format("{}.{:09}", file.st_mtim.tv_sec, file.st_mtim.tv_nsec), kNsPerSecond);
}

// ---- values of DCGM ----

// What DCGM writes where it has no value: blank, not found, not supported, not permitted (dcgm_structs.h). As a double
// the 64-bit ones are all 2^63.
bool is_dcgm_blank(double value) {
  constexpr double kInt64Blank = 9223372036854775792.0, kInt32Blank = 2147483632.0, kDoubleBlank = 140737488355328.0;
  const auto one_of = [&](double first) { return value >= first && value < first + 4; };
  return value >= kInt64Blank || one_of(kInt32Blank) || one_of(kDoubleBlank);
}

// ---- lines ----

// "# TYPE name type": the keyword, and what follows the name. Old Triton has "#TYPE".
struct MetadataLine {
  std::string_view keyword, name, rest;
  bool is_family() const {
    return (keyword == "HELP" || keyword == "TYPE" || keyword == "UNIT") && is_metric_name(name);
  }
};
MetadataLine metadata_line(std::string_view line) {
  MetadataLine out;
  line = line.substr(line.find_first_not_of('#'));
  out.keyword = take_word(line);
  out.name = take_word(line);
  if (out.name.size() > 1 && out.name.front() == '"' && out.name.back() == '"')
    out.name = out.name.substr(1, out.name.size() - 2);
  out.rest = line;
  return out;
}

// A sample as it stands on its line; `wrong` says what is, if anything.
struct SampleLine {
  std::string name{};
  std::string labels{};
  std::string_view value{}, time{};
  const char* wrong = nullptr;
};
SampleLine sample_line(std::string_view line) {
  SampleLine out;
  out.name = line.substr(0, metric_name_length(line));
  line = trimmed(line.substr(out.name.size()));
  if (line.starts_with('{')) {
    ReadLabels read = read_labels(line.substr(1));
    out.wrong = read.wrong;
    if (out.wrong != nullptr) return out;
    if (out.name.empty()) out.name = std::move(read.name);
    out.labels = labels_text(std::move(read.labels));
    line = trimmed(line.substr(1 + read.end));
  }
  if (out.name.empty()) out.wrong = "no name of a metric";
  out.value = take_word(line);
  if (out.value.empty() && out.wrong == nullptr) out.wrong = "no value";
  if (!line.starts_with('#')) out.time = take_word(line);
  // Behind it an exemplar, which is of one observation.
  if (!line.empty() && !line.starts_with('#') && out.wrong == nullptr) out.wrong = "more than a value and a time";
  return out;
}

// A line that is a sample from end to end.
bool reads_as_sample(std::string_view line) {
  const SampleLine sample = sample_line(line);
  return sample.wrong == nullptr && sample_value(sample.value) && (sample.time.empty() || unix_ns_of(sample.time));
}

bool is_of_known_server(std::string_view line) {
  constexpr std::array<std::string_view, 4> kPrefixes = {"vllm:", "sglang:", "nv_", "DCGM_FI_"};
  return std::any_of(kPrefixes.begin(), kPrefixes.end(), [&](std::string_view of) { return line.starts_with(of); });
}

class PageReader {
 public:
  PageReader(Trace& trace, const std::string& source)
      : trace_(trace), builder_(trace), source_name_(source), source_(builder_.text(source)) {}

  // `cut`: the file ends in it, so that its last number may have lost digits.
  void line(std::string_view text, bool cut, bool too_long) {
    ++number_;
    if (too_long) return count(DiagnosticId::kLimitReached, fmt::format("more than {} bytes", kSampleLineMax));
    text = trimmed(text);
    if (text.empty()) return;
    if (cut && text != "# EOF") return count(DiagnosticId::kTruncatedFile, "no end of line");
    if (text.starts_with('#'))
      comment(text);
    else
      sample(text);
  }

  void finish() {
    if (trace_.scraped_values.empty()) return;
    // A file is written when its last page was read; copies of it are written later (analyze/server_metrics.cc).
    if (clock_.empty() && page_begin_ < trace_.scraped_values.size()) {
      const std::optional<int64_t> changed = changed_ns(source_name_);
      if (changed) {
        clock_ = "file";
        std::fill(trace_.scraped_values.time_ns.begin() + static_cast<std::ptrdiff_t>(page_begin_),
                  trace_.scraped_values.time_ns.end(), *changed);
      }
    }
    // By the last name of the file, which is all of it that a redacted recording keeps.
    if (!clock_.empty())
      trace_.metadata["metrics_page.clock." + source_name_.substr(source_name_.rfind('/') + 1)] = clock_;
  }

 private:
  void count(DiagnosticId id, std::string_view what) {
    const bool kept = trace_.diagnostics.places(id).size() < Diagnostics::kKeptPlaces;
    trace_.diagnostics.add(id, kept ? fmt::format("line {} ({})", number_, what) : std::string());
  }

  void begin_page() {
    families_.clear();
    types_.clear();
    seen_.clear();
    page_begin_ = trace_.scraped_values.size();
    page_time_ns_ = 0;
  }

  void comment(std::string_view text) {
    const size_t at = text.find_first_not_of("# \t");
    const std::string_view said = at == std::string_view::npos ? std::string_view() : text.substr(at);
    if (said.starts_with(kTimeMark)) return time(trimmed(said.substr(kTimeMark.size())));
    if (said == "EOF") return begin_page();
    if (at == std::string_view::npos) return;
    const MetadataLine metadata = metadata_line(text);
    if (!metadata.is_family() || families_.size() >= kFamiliesMax) return;
    // A page says each of them once.
    const std::string key = std::string(metadata.keyword) + " " + std::string(metadata.name);
    if (families_.count(key) != 0) begin_page();
    families_.insert(key);
    if (metadata.keyword == "TYPE") types_[std::string(metadata.name)] = known_type(metadata.rest);
  }

  void time(std::string_view text) {
    begin_page();
    const std::optional<int64_t> ns = comment_time_ns(text);
    if (!ns) return count(DiagnosticId::kBadNumber, "time: neither RFC 3339 with a zone nor Unix seconds");
    page_time_ns_ = *ns;
    if (clock_.empty()) clock_ = "comment";
  }

  StringId known_type(std::string_view type) {
    constexpr std::array<std::string_view, 7> kTypes = {"counter",        "gauge",    "histogram", "summary",
                                                        "gaugehistogram", "stateset", "info"};
    const bool known = std::find(kTypes.begin(), kTypes.end(), type) != kTypes.end();
    return known ? builder_.text(type) : StringId::kEmpty;
  }

  // Of the family that a sample belongs to: its own name, or that without what its type adds.
  StringId type_of(const std::string& name) const {
    if (const auto own = types_.find(name); own != types_.end()) return own->second;
    for (const std::string_view suffix :
         {"_total", "_bucket", "_sum", "_count", "_created", "_info", "_gsum", "_gcount"}) {
      if (!std::string_view(name).ends_with(suffix)) continue;
      const auto family = types_.find(name.substr(0, name.size() - suffix.size()));
      if (family != types_.end()) return family->second;
    }
    return StringId::kEmpty;
  }

  void sample(std::string_view text) {
    const SampleLine read = sample_line(text);
    if (read.wrong != nullptr) return count(DiagnosticId::kMalformedEvent, read.wrong);
    std::optional<double> value = sample_value(read.value);
    if (!value) return count(DiagnosticId::kBadNumber, "value");
    std::optional<int64_t> own_ns;
    if (!read.time.empty() && !(own_ns = unix_ns_of(read.time))) count(DiagnosticId::kBadNumber, "time of a sample");
    if (read.name.starts_with("DCGM_FI_") && is_dcgm_blank(*value)) value = std::numeric_limits<double>::quiet_NaN();
    add(read, *value, own_ns);
  }

  void add(const SampleLine& read, double value, std::optional<int64_t> own_ns) {
    if (trace_.scraped_values.size() >= kSamplesMax)
      return count(DiagnosticId::kLimitReached, fmt::format("more than {} samples", kSamplesMax));
    const StringId name = builder_.text(read.name), labels = builder_.text(read.labels);
    const uint64_t key = uint64_t{index(name)} << 32 | index(labels);
    // Pages without lines of metadata begin again with their first sample.
    if (families_.empty() && !seen_.empty() && key == first_key_) begin_page();
    if (seen_.empty()) first_key_ = key;
    if (!seen_.insert(key).second) return count(DiagnosticId::kDuplicateEvent, "sample");
    if (own_ns) clock_ = "samples";
    builder_.add<ScrapedValues>({.time_ns = own_ns.value_or(page_time_ns_),
                                 .source = source_,
                                 .name = name,
                                 .labels = labels,
                                 .type = type_of(read.name),
                                 .value = value});
  }

  Trace& trace_;
  TraceBuilder builder_;
  std::string source_name_;
  StringId source_;
  std::string clock_;  // what says when pages were read: samples, comment, file; empty if nothing
  uint64_t number_ = 0;
  // Of the page that is being read.
  std::unordered_set<std::string> families_;
  std::unordered_map<std::string, StringId> types_;
  std::unordered_set<uint64_t> seen_;
  uint64_t first_key_ = 0;
  size_t page_begin_ = 0;
  int64_t page_time_ns_ = 0;
};

}  // namespace

// The first line that says something decides: of a family, when the page was read, or a sample of a known server. Other
// comments may stand in front.
int sniff(std::string_view head) {
  for (size_t lines = 0; !head.empty() && lines < kSniffedLines; ++lines) {
    const std::string_view line = trimmed(head.substr(0, head.find('\n')));
    head.remove_prefix(
        std::min(head.find('\n') == std::string_view::npos ? head.size() : head.find('\n') + 1, head.size()));
    if (line.find_first_not_of('#') == std::string_view::npos) continue;
    if (!line.starts_with('#')) return is_of_known_server(line) && reads_as_sample(line) ? 70 : 0;
    const std::string_view said = trimmed(line.substr(line.find_first_not_of('#')));
    if (said.starts_with(kTimeMark) && comment_time_ns(trimmed(said.substr(kTimeMark.size())))) return 80;
    const MetadataLine metadata = metadata_line(line);
    if (metadata.is_family() && (metadata.keyword != "TYPE" || !metadata.rest.empty())) return 80;
  }
  return 0;
}

Status import(InputFile& input, Trace& trace) {
  PageReader reader(trace, input.name());
  read_bounded_lines(input, kSampleLineMax,
                     [&](const BoundedLine& line) { reader.line(line.text, line.cut, line.too_long); });
  reader.finish();
  if (input.damaged()) trace.diagnostics.explain(DiagnosticId::kTruncatedFile, input.damage());
  if (!trace.scraped_values.empty()) return {};
  return fail("expected samples of a metrics page (a line each: name{label=\"value\"} number), found none",
              input.name(), "ask the server again: curl -s http://HOST:PORT/metrics > page.prom");
}

}  // namespace llmprof::metrics_pages
