#include "bench/text.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <map>

#include "base/text_table.h"

namespace llmprof::bench {
namespace {

using Align = TextTable::Align;

constexpr size_t kRateColumn = 5;  // of the table of cases
constexpr double kPlateau = 0.95;  // of the best rate
constexpr double kWaitingShown = 0.01;

// All regimes of one case, as one line.
struct Line {
  const CaseRow* sustained = nullptr;
  const CaseRow* cold = nullptr;
  const CaseRow* any = nullptr;
  const CaseRow& main() const { return sustained != nullptr ? *sustained : *any; }
};

std::vector<Line> lines_of(const std::vector<CaseRecord>& records) {
  std::vector<Line> lines;
  std::map<std::string, size_t> slots;
  for (const CaseRecord& record : records) {
    CaseRecord key{record.row, {}};
    key.row.regime.clear();
    const auto [slot, fresh] = slots.emplace(key.key(), lines.size());
    if (fresh) lines.push_back({});
    Line& line = lines[slot->second];
    line.any = &record.row;
    if (record.row.regime == "sustained") line.sustained = &record.row;
    if (record.row.regime == "cold") line.cold = &record.row;
  }
  return lines;
}

std::string us_text(const OptNumber& us) { return us ? format_ms(*us / 1e3) : ""; }
std::string percent(const OptNumber& fraction) { return fraction ? format_percent(*fraction) : ""; }
std::string rate(const OptNumber& value) { return value ? format_rate(*value) : ""; }
std::string whole(const OptNumber& value) { return value ? format_fixed(*value, 0) : ""; }

// Threads waited for a core in so many samples that the median has it in it.
bool is_disturbed(const CaseRow& row) {
  return row.median_us && row.unwaited_us && *row.unwaited_us < (1 - kWaitingShown) * *row.median_us;
}

std::vector<std::string> cells_of(const Line& line, bool small) {
  const CaseRow& row = line.main();
  std::string status = row.status;
  if (row.status == "passed" && row.drifting) status = "drifting";
  if (row.status == "passed" && is_disturbed(row)) status = "disturbed";
  // Where the clock swings it never holds still, and whole swings were taken.
  if (status == "passed" && !row.settled && row.median_us && !row.swing_frac) status = "not settled";
  return {row.shape,
          row.dtype,
          us_text(row.median_us),
          percent(row.iqr_frac),
          line.sustained != nullptr && line.cold != nullptr ? us_text(line.cold->median_us) : "",
          rate(row.tflops && small ? OptNumber(*row.tflops * 1e3) : row.tflops),
          rate(row.gbs),
          percent(row.of_ceiling_frac),
          row.median_us ? row.bound : "",
          whole(row.sm_clock_mhz),
          whole(row.power_w),
          status,
          row.backend};
}

std::string group_of(const CaseRow& row) { return row.variant.empty() ? row.name : row.name + " " + row.variant; }

std::string table_of(const std::vector<Line>& lines, const TextStyle& style) {
  static const std::vector<TextTable::Column> kColumns = {
      {"shape", Align::kLeft, 0, 0, true}, {"dtype", Align::kLeft, 0, 2},       {"median"},
      {"IQR", Align::kRight, 0, 6},        {"cold", Align::kRight, 0, 5},       {"TFLOP/s", Align::kRight, 0, 2},
      {"GB/s", Align::kRight, 0, 3},       {"of ceiling", Align::kRight, 0, 1}, {"bound", Align::kLeft, 0, 4},
      {"MHz", Align::kRight, 0, 8},        {"W", Align::kRight, 0, 7},          {"status", Align::kLeft},
      {"backend", Align::kLeft, 0, 9}};
  // What a CPU does is better read in thousandths.
  const bool small =
      std::all_of(lines.begin(), lines.end(), [](const Line& line) { return line.main().tflops.value_or(0) < 1; });
  std::vector<std::vector<std::string>> rows;
  for (const Line& line : lines) rows.push_back(cells_of(line, small));
  std::vector<TextTable::Column> columns;
  std::vector<size_t> shown;
  for (size_t c = 0; c < kColumns.size(); ++c) {
    if (std::all_of(rows.begin(), rows.end(), [c](const auto& row) { return row[c].empty(); })) continue;
    columns.push_back(kColumns[c]);
    if (small && c == kRateColumn) columns.back().header = "GFLOP/s";
    shown.push_back(c);
  }
  TextTable table(columns);
  for (const std::vector<std::string>& row : rows) {
    std::vector<std::string> cells;
    for (const size_t c : shown) cells.push_back(row[c]);
    table.add_row(std::move(cells));
  }
  return table.render("  ", style);
}

// One point of a sweep.
struct Point {
  int64_t value = 0;
  double rate = 0;
  const CaseRow* row = nullptr;
};

// Takes "axis=VALUE" out of a shape; 0 if it is not there.
int64_t take_axis(std::string& shape, const std::string& axis) {
  const std::string name = " " + axis + "=";
  std::string padded = " " + shape;
  const size_t at = padded.find(name);
  if (at == std::string::npos) return 0;
  const size_t digits = at + name.size(), end = std::min(padded.find(' ', digits), padded.size());
  int64_t value = 0;
  std::from_chars(padded.data() + digits, padded.data() + end, value);
  padded.erase(at, end - at);
  shape = padded.empty() ? "" : padded.substr(1);
  return value;
}

std::string plateau_of(const std::vector<Point>& points, const std::string& group, const std::string& axis) {
  double best = 0;
  for (const Point& point : points) best = std::max(best, point.rate);
  size_t first = points.size();
  while (first > 0 && points[first - 1].rate >= kPlateau * best) --first;
  if (first == points.size())
    return fmt::format("{}: throughput falls after its best at {} {}", group, axis,
                       std::max_element(points.begin(), points.end(), [](const Point& a, const Point& b) {
                         return a.rate < b.rate;
                       })->value);
  if (first + 1 == points.size())
    return fmt::format("{}: throughput is still rising at {} {}", group, axis, points.back().value);
  const CaseRow& at = *points[first].row;
  std::string out = fmt::format("{}: throughput plateaus at {} {} ({:.2f} of the best)", group, axis,
                                points[first].value, points[first].rate / best);
  if (at.bound == "unknown") return out + "; measured ceilings would say why: llmprof peaks";
  out += fmt::format(": {}-bound", at.bound);
  if (at.of_ceiling_frac) out += fmt::format(", {:.2f} of the measured ceiling", *at.of_ceiling_frac);
  size_t same = first;
  while (same > 0 && points[same - 1].row->bound == at.bound) --same;
  if (same > 0) out += fmt::format("; below {} {}-bound", points[same].value, points[same - 1].row->bound);
  return out;
}

// What the words of the status column mean, where there are any: for each, how many rows and how much.
std::string unsteady_notes(const std::vector<CaseRecord>& records) {
  int drifting = 0, disturbed = 0, unsettled = 0, left_out = 0;
  double noise = 0, waiting = 0;
  for (const CaseRecord& record : records) {
    const CaseRow& row = record.row;
    if (row.status != "passed" || !row.median_us) continue;
    const bool waited = is_disturbed(row);
    disturbed += waited;
    left_out += !waited && row.waited > 0;
    if (waited) waiting = std::max(waiting, 1 - *row.unwaited_us / *row.median_us);
    drifting += !waited && row.drifting;
    if (row.drifting) noise = std::max(noise, row.noise_frac.value_or(0));
    unsettled += !waited && !row.drifting && !row.settled && !row.swing_frac;
  }
  const auto rows = [](int count) { return fmt::format("{} row{}", count, count == 1 ? "" : "s"); };
  std::string out;
  if (disturbed > 0)
    out += fmt::format(
        "  disturbed, {}: its threads waited for cores that other programs had, and too few samples were "
        "without; times are up to {:.0f} % too long\n",
        rows(disturbed), waiting * 100);
  if (left_out > 0)
    out += fmt::format("  samples in which threads waited for a core are left out of {}\n", rows(left_out));
  if (drifting > 0)
    out += fmt::format(
        "  drifting, {}: the spread of the samples still changed when the time was over, and medians of "
        "stretches of it vary by up to {:.1f} %; --min-time gives it more\n",
        rows(drifting), noise * 100);
  if (unsettled > 0)
    out +=
        fmt::format("  not settled, {}: clock, power or times still moved by over 1 % before the samples were taken\n",
                    rows(unsettled));
  return out;
}

// How much of the spread the samples do not show.
std::string swing_note(const std::vector<CaseRecord>& records) {
  double most = 0;
  int count = 0;
  for (const CaseRecord& record : records) {
    count += record.row.swing_frac.has_value();
    most = std::max(most, record.row.swing_frac.value_or(0));
  }
  if (count == 0) return {};
  return fmt::format(
      "  the clock swings at the device's limit in {} row{}: samples are means over whole swings, single replays "
      "spread "
      "by up to {}\n",
      count, count == 1 ? "" : "s", format_percent(most));
}

}  // namespace

std::string cases_text(const std::vector<CaseRecord>& records, const TextStyle& style) {
  std::vector<std::pair<std::string, std::vector<Line>>> groups;
  for (const Line& line : lines_of(records)) {
    const std::string group = group_of(line.main());
    const auto found = std::find_if(groups.begin(), groups.end(), [&](const auto& g) { return g.first == group; });
    if (found == groups.end()) {
      groups.push_back({group, {line}});
    } else {
      found->second.push_back(line);
    }
  }
  std::string out, notes;
  for (const auto& [group, lines] : groups) {
    out += fmt::format("{}{}\n{}", out.empty() ? "" : "\n", group, table_of(lines, style));
    for (const Line& line : lines)
      if (const CaseRow& row = line.main(); !row.note.empty())
        notes += fmt::format("  {} {}: {}\n", group, row.shape, row.note);
  }
  notes += unsteady_notes(records);
  notes += swing_note(records);
  return out + (notes.empty() ? "" : "\nNotes\n" + notes);
}

std::string comparisons_text(const std::vector<Comparison>& comparisons, const std::vector<std::string>& changed,
                             const TextStyle& style) {
  TextTable table({{"case", Align::kLeft, 0, 0, true},
                   {"dtype", Align::kLeft, 0, 4},
                   {"regime", Align::kLeft, 0, 1},
                   {"before", Align::kRight, 0, 6},
                   {"now", Align::kRight, 0, 5},
                   {"ratio"},
                   {"verdict", Align::kLeft},
                   {"why", Align::kLeft, 0, 2, true}});
  std::map<Verdict, size_t> counts;
  for (const Comparison& c : comparisons) {
    ++counts[c.verdict];
    const std::string name = c.row.name + (c.row.variant.empty() ? "" : " " + c.row.variant) + " " + c.row.shape;
    table.add_row({name, c.row.dtype, c.row.regime, us_text(c.row.old_us), us_text(c.row.new_us),
                   c.row.ratio ? format_fixed(*c.row.ratio, 3) : "", c.row.verdict, c.row.reason});
  }
  std::string out = "Compared with the earlier run\n" + table.render("  ", style);
  for (int v = 0; v < static_cast<int>(Verdict::kCount); ++v) {
    const Verdict verdict = static_cast<Verdict>(v);
    if (counts[verdict] > 0) out += fmt::format("  {} {}", counts[verdict], verdict_name(verdict));
  }
  out += "\n";
  for (const std::string& change : changed) out += "  changed: " + change + "\n";
  return out;
}

std::vector<std::string> plateau_sentences(const std::vector<CaseRecord>& records, const std::string& axis) {
  std::vector<std::pair<std::string, std::vector<Point>>> groups;
  for (const CaseRecord& record : records) {
    const OptNumber throughput = record.row.tflops ? record.row.tflops : record.row.gbs;
    if (record.row.regime != "sustained" || !throughput) continue;
    std::string rest = record.row.shape;
    const int64_t value = take_axis(rest, axis);
    if (value == 0) continue;
    const std::string group = group_of(record.row) + (rest.empty() ? "" : " " + rest) + " " + record.row.dtype;
    size_t slot = 0;
    while (slot < groups.size() && groups[slot].first != group) ++slot;
    if (slot == groups.size()) groups.push_back({group, {}});
    groups[slot].second.push_back({value, *throughput, &record.row});
  }
  std::vector<std::string> out;
  for (auto& [group, points] : groups) {
    if (points.size() < 3) continue;
    std::sort(points.begin(), points.end(), [](const Point& a, const Point& b) { return a.value < b.value; });
    out.push_back(plateau_of(points, group, axis));
  }
  return out;
}

}  // namespace llmprof::bench
