#include "report/text_bench.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <map>

#include "report/text_measuring.h"

namespace llmprof::bench {
namespace {

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
    const auto [slot, fresh] = slots.emplace(record.case_key(), lines.size());
    if (fresh) lines.push_back({});
    Line& line = lines[slot->second];
    line.any = &record.row;
    if (record.row.regime == Regime::kSustained) line.sustained = &record.row;
    if (record.row.regime == Regime::kCold) line.cold = &record.row;
  }
  return lines;
}

// Threads waited for a core in so many samples that the median has it in it.
bool is_disturbed(const CaseRow& row) {
  return row.median_us && row.unwaited_us && *row.unwaited_us < (1 - kWaitingShown) * *row.median_us;
}

std::string status_of(const CaseRow& row) {
  if (row.status != CaseStatus::kPassed) return std::string(name_of(row.status));
  if (is_disturbed(row)) return "disturbed";
  if (row.drifting) return "drifting";
  // Where the power limiter moves the clock it never holds still, and whole periods were taken.
  if (!row.settled && row.median_us && !row.spread_frac) return "not settled";
  return "passed";
}

std::vector<std::string> cells_of(const Line& line, bool small) {
  const CaseRow& row = line.main();
  std::string status = status_of(row);
  if (line.sustained != nullptr && line.cold != nullptr && status_of(*line.cold) != status)
    status += ", cold: " + status_of(*line.cold);
  return {row.shape,
          row.dtype,
          us_text(row.median_us),
          percent_text(row.iqr_frac),
          line.sustained != nullptr && line.cold != nullptr ? us_text(line.cold->median_us) : "",
          rate_text(row.tflops && small ? OptNumber(*row.tflops * 1e3) : row.tflops),
          rate_text(row.gbs),
          percent_text(row.of_ceiling_frac),
          row.median_us ? std::string(name_of(row.bound)) : "",
          fixed_text(row.sm_clock_mhz, 0),
          fixed_text(row.power_w, 0),
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
  std::vector<TextTable::Column> columns = kColumns;
  if (small) columns[kRateColumn].header = "GFLOP/s";
  return filled_columns(columns, rows, style);
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
  if (at.bound == Bound::kUnknown) return out + "; measured ceilings would say why: llmprof peaks";
  out += fmt::format(": {}-bound", name_of(at.bound));
  if (at.of_ceiling_frac) out += fmt::format(", {:.2f} of the measured ceiling", *at.of_ceiling_frac);
  size_t same = first;
  while (same > 0 && points[same - 1].row->bound == at.bound) --same;
  if (same > 0) out += fmt::format("; below {} {}-bound", points[same].value, name_of(points[same - 1].row->bound));
  return out;
}

// "1.67", "1,200": of what it would have been, and 1 where it is as it would have been.
std::string times_text(double factor) { return factor < 100 ? fmt::format("{:.3g}", factor) : format_count(factor); }

// How much longer times may be for it, at most; of some it may be all.
std::string disturbed_note(const std::vector<const CaseRow*>& rows) {
  const CaseRow* most = nullptr;
  size_t unknown = 0;
  const auto factor = [](const CaseRow& row) { return *row.median_us / *row.unwaited_us; };
  for (const CaseRow* row : rows) {
    if (*row->unwaited_us <= 0)
      ++unknown;
    else if (most == nullptr || factor(*row) > factor(*most))
      most = row;
  }
  std::string out = fmt::format(
      "  disturbed, {} row{}: its threads waited for cores that other programs had, and too few samples were without; ",
      rows.size(), rows.size() == 1 ? "" : "s");
  if (most != nullptr)
    out += fmt::format("times are up to {} times as long for it ({} {}, {})", times_text(factor(*most)),
                       group_of(*most), most->shape, name_of(most->regime));
  if (unknown > 0)
    out += fmt::format("{}{} waited as long as they took, so that there is no telling", most == nullptr ? "" : "; ",
                       unknown == rows.size() ? std::string("they") : fmt::format("{} of them", unknown));
  return out + "\n";
}

// What the words of the status column mean, where there are any: for each, how many rows and how much.
std::string unsteady_notes(const std::vector<CaseRecord>& records) {
  int drifting = 0, unsettled = 0, left_out = 0, choices = 0;
  double noise = 0;
  std::vector<const CaseRow*> disturbed;
  for (const CaseRecord& record : records) {
    const CaseRow& row = record.row;
    if (row.status != CaseStatus::kPassed || !row.median_us) continue;
    const bool waited = is_disturbed(row);
    if (waited) disturbed.push_back(&row);
    choices += row.choice_disturbed;
    left_out += !waited && row.waited > 0;
    drifting += !waited && row.drifting;
    if (row.drifting) noise = std::max(noise, row.noise_frac.value_or(0));
    unsettled += !waited && !row.drifting && !row.settled && !row.spread_frac;
  }
  const auto rows = [](int count) { return fmt::format("{} row{}", count, count == 1 ? "" : "s"); };
  std::string out;
  if (!disturbed.empty()) out += disturbed_note(disturbed);
  if (choices > 0)
    out += fmt::format(
        "  other programs had cores whenever one of the candidates of {} was timed: another may be faster\n",
        rows(choices));
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
std::string limiter_note(const std::vector<CaseRecord>& records) {
  double most = 0;
  int count = 0;
  for (const CaseRecord& record : records) {
    count += record.row.spread_frac.has_value();
    most = std::max(most, record.row.spread_frac.value_or(0));
  }
  if (count == 0) return {};
  return fmt::format(
      "  the power limiter moves the clock in {} row{}: samples are means over whole periods of it, single replays "
      "spread by up to {}\n",
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
    for (const Line& line : lines) {
      const CaseRow& row = line.main();
      if (!row.note.empty()) notes += fmt::format("  {} {}: {}\n", group, row.shape, row.note);
      if (line.cold != nullptr && line.cold != &row && line.cold->note != row.note && !line.cold->note.empty())
        notes += fmt::format("  {} {}, cold: {}\n", group, row.shape, line.cold->note);
    }
  }
  notes += unsteady_notes(records);
  notes += limiter_note(records);
  return out + (notes.empty() ? "" : "\nNotes\n" + notes);
}

std::vector<std::string> plateau_sentences(const std::vector<CaseRecord>& records, const std::string& axis) {
  std::vector<std::pair<std::string, std::vector<Point>>> groups;
  for (const CaseRecord& record : records) {
    const OptNumber throughput = record.row.tflops ? record.row.tflops : record.row.gbs;
    if (record.row.regime != Regime::kSustained || !throughput) continue;
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

namespace {

// A table per step of the model with its sum.
std::string model_steps_text(const BenchResult& result, const TextStyle& style) {
  std::string out = fmt::format("{}, part by part\n", result.model);
  const std::vector<ModelStepRow>& rows = result.model_steps;
  for (size_t first = 0, next = 0; first < rows.size(); first = next) {
    const std::string& step = rows[first].step;
    TextTable table({{step, Align::kLeft, 0},
                     {"operation", Align::kLeft, 0, 4, true},
                     {"calls", Align::kRight, 0, 2},
                     {"each", Align::kRight, 0, 3},
                     {"all"},
                     {"share"},
                     {"bound", Align::kLeft, 0, 1}});
    double sum = 0;
    bool whole = true;
    for (next = first; next < rows.size() && rows[next].step == step; ++next) {
      const ModelStepRow& row = rows[next];
      table.add_row({row.part, fmt::format("{} {}", row.name, row.shape), std::to_string(row.calls), us_text(row.us),
                     us_text(row.total_us), percent_text(row.share_frac),
                     row.bound ? std::string(name_of(*row.bound)) : ""});
      sum += row.total_us.value_or(0);
      whole &= row.total_us.has_value();
    }
    out += "\n" + table.render("  ", style);
    out += whole ? fmt::format("  {}: {} altogether, without what starts and joins the parts\n", step,
                               format_ms(sum / 1e3))
                 : fmt::format("  {}: parts were not timed, so there is no sum\n", step);
  }
  if (!result.not_in_the_sums.empty()) out += "\nNot in these sums\n";
  for (const std::string& remark : result.not_in_the_sums) out += "  " + remark + "\n";
  return out;
}

}  // namespace
}  // namespace llmprof::bench

namespace llmprof {

std::string render_text(const bench::BenchResult& result, const RenderOptions& options) {
  std::string out = bench::device_line(result.device) + "\n";
  if (result.ceilings_remark) out += *result.ceilings_remark + "\n";
  out += "\n" + bench::cases_text(result.cases, options);
  if (!result.model_steps.empty()) out += "\n" + bench::model_steps_text(result, options);
  for (const std::string& axis : result.sweeps)
    for (const std::string& sentence : bench::plateau_sentences(result.cases, axis)) out += "\n" + sentence + "\n";
  return finish_page(out, options);
}

std::string render_text(const bench::ComparisonResult& result, const RenderOptions& options) {
  using bench::Align;
  TextTable table({{"case", Align::kLeft, 0, 0, true},
                   {"dtype", Align::kLeft, 0, 4},
                   {"regime", Align::kLeft, 0, 1},
                   {"before", Align::kRight, 0, 6},
                   {"now", Align::kRight, 0, 5},
                   {"ratio"},
                   {"verdict", Align::kLeft},
                   {"why", Align::kLeft, 0, 2, true}});
  std::map<bench::Verdict, size_t> counts;
  for (const bench::ComparisonRow& row : result.rows) {
    ++counts[row.verdict];
    const std::string name = row.name + (row.variant.empty() ? "" : " " + row.variant) + " " + row.shape;
    table.add_row({name, row.dtype, std::string(name_of(row.regime)), bench::us_text(row.old_us),
                   bench::us_text(row.new_us), bench::fixed_text(row.ratio, 3), std::string(name_of(row.verdict)),
                   row.reason});
  }
  std::string out = "Compared with the earlier run\n" + table.render("  ", options);
  for (const auto& [verdict, count] : counts) out += fmt::format("  {} {}", count, name_of(verdict));
  out += "\n";
  for (const std::string& change : result.changed) out += "  changed: " + change + "\n";
  return finish_page(out, options);
}

}  // namespace llmprof
