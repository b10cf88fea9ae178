// The page of `llmprof diff`: the verdict, where it comes from, what differs between the machines, tables before and
// after, and what is not known. At most 60 lines for two sides; every row with --full.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/text_table.h"
#include "report/kernel_name.h"
#include "report/text_parts.h"

namespace llmprof {
namespace {

constexpr size_t kPageWidth = 100;
constexpr size_t kHalfName = 21;  // of kernels, where two stand in one cell
constexpr size_t kNoLimit = SIZE_MAX;
constexpr double kWholeLeast = 0.01;  // shares of a difference that is smaller than this of the step say nothing

// How many rows each part gets.
struct Room {
  size_t shares, stages, operations, kernels, operators, unknown;
};
constexpr size_t kFewestRows = 2;
constexpr Room kOnePage{8, 8, 8, 7, 4, 3};
constexpr Room kAll{kNoLimit, kNoLimit, kNoLimit, kNoLimit, kNoLimit, kNoLimit};

std::string signed_percent(double frac) {
  const double percent = 100 * frac;
  if (std::abs(percent) >= 999.5) return fmt::format("{:.0f} times", frac + 1);
  return fmt::format("{:+.{}f} %", percent, std::abs(percent) < 99.95 ? 1 : 0);
}

std::string signed_ms(double ms) {
  if (ms == 0) return "0";
  return (ms < 0 ? "-" : "+") + format_ms(std::abs(ms));
}

std::string_view in_words(DiffMetric metric) {
  switch (metric) {
    case DiffMetric::kTtft:
      return "TTFT";
    case DiffMetric::kTpot:
      return "TPOT";
    case DiffMetric::kRate:
      return "rate";
    case DiffMetric::kStepAtPace:
      return "step at one pace of the host";
    case DiffMetric::kStep:
    case DiffMetric::kCount:
      break;
  }
  return "step";
}

std::string value_text(DiffMetric metric, const OptDouble& value) {
  if (!value) return "-";
  return metric == DiffMetric::kRate ? format_rate(*value) + "/s" : format_ms(*value);
}

std::string interval_text(const Interval95& interval) {
  return interval ? fmt::format("{} to {}", signed_percent((*interval)[0]), signed_percent((*interval)[1])) : "-";
}

std::string side_name(const DiffSide& side) {
  std::string first = side.runs.empty() ? "" : side.runs.front();
  while (first.size() > 1 && first.ends_with('/')) first.pop_back();
  first = first.substr(first.rfind('/') + 1);
  return side.runs.size() < 2 ? first : fmt::format("{} ({} runs)", first, side.runs.size());
}

// Names of kernels in it as people read them: "a -> b".
std::string share_name(const DiffShare& share) {
  if (share.part != DiffPart::kKernelReplaced && share.part != DiffPart::kKernelSlower) return share.name;
  constexpr std::string_view kArrow = " -> ";
  const size_t at = share.name.find(kArrow);
  if (at == std::string::npos) return short_kernel_name(share.name);
  return short_kernel_name(share.name.substr(0, at)) + std::string(kArrow) +
         short_kernel_name(share.name.substr(at + kArrow.size()));
}

// "(side 3)" where there are several.
std::string side_suffix(const DiffResult& result, int64_t side) {
  return result.sides.size() > 2
             ? fmt::format(" (side {}: {})", side + 1, side_name(result.sides[static_cast<size_t>(side)]))
             : "";
}

class DiffPage {
 public:
  // `less`: rows that each table gets less, so that all fit on one page.
  DiffPage(const DiffResult& result, const RenderOptions& options, size_t less)
      : result_(result), options_(options), ink_(options.color), room_(options.one_page ? kOnePage : kAll) {
    if (options.one_page) {
      for (size_t* const rows : {&room_.shares, &room_.operations, &room_.kernels, &room_.operators})
        *rows = std::max(kFewestRows, *rows - std::min(less, *rows));
      options_.width = std::min(options_.width, kPageWidth);
      options_.fit = true;
      options_.more = "--full, --format csv";
    }
  }

  std::string text() const {
    std::string out = head();
    for (int64_t side = 1; side < static_cast<int64_t>(result_.sides.size()); ++side) {
      out += verdicts(side);
      if (result_.sides.size() > 2 && options_.one_page) continue;  // their tables with --full
      out += why(side);
    }
    out += gates() + machines() + stages();
    if (result_.sides.size() == 2 || !options_.one_page)
      for (int64_t side = 1; side < static_cast<int64_t>(result_.sides.size()); ++side)
        out += operations(side) + kernels(side) + operators(side);
    return out + unknown();
  }

  const RenderOptions& options() const { return options_; }

 private:
  std::string wrapped(const std::string& text, size_t first, size_t rest) const {
    return wrap_text(printable(text), options_.width, std::string(first, ' '), std::string(rest, ' '));
  }

  std::string head() const {
    std::string names;
    for (const DiffSide& side : result_.sides) names += (names.empty() ? "" : " -> ") + printable(side_name(side));
    const std::string tool = "llmprof " + result_.tool_version;
    std::string out =
        ink_.bold(tool) + wrap_text(tool + "  diff  " + names, options_.width, "", "  ").substr(tool.size());
    const DiffSide& first = result_.sides.front();
    std::string device = first.device ? printable(*first.device) : "unknown device";
    if (first.driver) device += " · driver " + printable(*first.driver);
    if (first.sm_clock_mhz) device += fmt::format(" · SM clock {:.0f} MHz", *first.sm_clock_mhz);
    if (first.power_cap_w) device += fmt::format(" · limit {:.0f} W", *first.power_cap_w);
    return out + ink_.dim(wrap_text(device, options_.width, "", "  ")) + "\n";
  }

  std::string verdicts(int64_t side) const {
    std::string out;
    bool any = false;
    for (const DiffStage& row : result_.stages) any |= row.side == side && row.metric != DiffMetric::kStep;
    for (const DiffStage& row : result_.stages) {
      if (row.side != side || (any && row.metric == DiffMetric::kStep)) continue;
      std::string line = fmt::format("{}: {} {} -> {}, {}{}  ", std::string(row.kind), in_words(row.metric),
                                     value_text(row.metric, row.a), value_text(row.metric, row.b),
                                     signed_percent(row.change_frac.value_or(0)),
                                     row.ci95 ? fmt::format(" (95 %: {})", interval_text(row.ci95)) : "");
      std::string whole =
          wrapped(line + std::string(name_of(row.verdict)) + (row.full_pace ? ", at full pace" : ""), 2, 6);
      const std::string word(name_of(row.verdict));
      if (const size_t at = whole.rfind(word); at != std::string::npos)
        whole = whole.substr(0, at) + ink_.accent(word) + whole.substr(at + word.size());
      out += whole;
      if (row.verdict == DiffVerdict::kAmbiguous || row.metric == DiffMetric::kStepAtPace)
        out += ink_.dim(wrapped(row.reason, 6, 6));
    }
    if (out.empty()) out = "  no stage of both sides can be compared\n";
    if (const std::string suffix = side_suffix(result_, side); !suffix.empty())
      out = ink_.bold("Side " + std::to_string(side + 1)) + "  " +
            ink_.dim(printable(side_name(result_.sides[static_cast<size_t>(side)]))) + "\n" + out;
    return out + "\n";
  }

  // Attribution of the row with the largest change of each stage.
  std::string why(int64_t side) const {
    std::string out;
    std::vector<std::string> done;
    for (const DiffStage& row : result_.stages) {
      if (row.side != side || row.attribution.empty() || !row.unattributed_ms) continue;
      if (std::find(done.begin(), done.end(), std::string(row.kind)) != done.end()) continue;
      done.emplace_back(row.kind);
      const double delta = *row.b - *row.a;
      const double whole = std::abs(delta) >= kWholeLeast * *row.a ? delta : 0;
      out += title(ink_,
                   fmt::format("Why  {}: {} a {}", std::string(row.kind), signed_ms(delta),
                               row.metric == DiffMetric::kTtft ? "prompt" : "step"),
                   row.attributed_by == "replay" ? "one part after the other exchanged, mean over all orders"
                                                 : "sums of kernels by name: what other streams hide is in them");
      TextTable table({{"change"}, {"of it", Align::kRight, 0, 1}, {"part", Align::kLeft}, {"", Align::kLeft, 68}});
      size_t shown = 0;
      double rest = 0;
      for (const DiffShare& share : row.attribution) {
        if (shown++ < room_.shares)
          table.add_row({signed_ms(share.delta_ms), part_of(share.delta_ms, whole), std::string(name_of(share.part)),
                         share_name(share)});
        else
          rest += share.delta_ms;
      }
      if (shown > room_.shares)
        table.add_row(
            {signed_ms(rest), part_of(rest, whole), "", fmt::format("{} smaller ones: --full", shown - room_.shares)});
      table.add_row({signed_ms(*row.unattributed_ms), part_of(*row.unattributed_ms, whole), "", "not attributed"});
      out += table.render("  ", options_) + "\n";
    }
    return out;
  }

  static std::string part_of(double part, double whole) {
    return whole == 0 ? "-" : fmt::format("{:.0f} %", 100 * part / whole);
  }

  // With its GPU where stages are of several.
  std::string label(const DiffStage& row) const {
    const bool several = std::any_of(result_.stages.begin(), result_.stages.end(), [&](const DiffStage& other) {
      return row.device && other.device && *other.device != *row.device;
    });
    return printable(std::string(row.kind)) + (several ? fmt::format(" gpu{}", *row.device) : "");
  }

  std::string gates() const {
    if (result_.gates.empty()) return {};
    std::string out = title(ink_, "--fail-on");
    for (const DiffGate& gate : result_.gates)
      out += wrapped(fmt::format("{}: {}; {}{}", gate.expression, name_of(gate.state), gate.reason,
                                 side_suffix(result_, gate.side)),
                     2, 6);
    return out + "\n";
  }

  // "12 % -> 40 %"; nothing where not all sides have it.
  std::string of_sides(OptDouble DiffSide::*frac) const {
    std::string out;
    for (const DiffSide& side : result_.sides) {
      if (!(side.*frac)) return {};
      out += fmt::format("{}{:.0f} %", out.empty() ? "" : " -> ", 100 * *(side.*frac));
    }
    return out;
  }

  std::string machines() const {
    std::string out;
    if (!result_.comparable.differs.empty()) {
      out += title(ink_, "Not comparable", "the machines differ");
      for (const std::string& one : result_.comparable.differs) out += wrapped(one, 2, 6);
    }
    if (const std::string pace = of_sides(&DiffSide::cpu_slow_frac); !pace.empty())
      out += wrapped("the CPU was slow in so many of its probes: " + pace, 2, 6);
    constexpr double kMuch = 0.05;
    const auto waited = [](const DiffSide& side) { return side.cpu_waited_frac.value_or(0) > kMuch; };
    if (std::any_of(result_.sides.begin(), result_.sides.end(), waited))
      if (const std::string much = of_sides(&DiffSide::cpu_waited_frac); !much.empty())
        out += wrapped("its threads were ready and had no CPU for so much of the time: " + much, 2, 6);
    return out.empty() ? out : out + "\n";
  }

  std::string stages() const {
    if (result_.stages.empty()) return {};
    const bool several = result_.sides.size() > 2;
    std::vector<TextTable::Column> columns = {{"stage", Align::kLeft, 20},
                                              {"shape", Align::kLeft, 34, 2},
                                              {"", Align::kLeft},
                                              {"before"},
                                              {"after"},
                                              {"change"},
                                              {"95 %", Align::kRight, 0, 1},
                                              {"equal runs", Align::kRight, 0, 3},
                                              {"verdict", Align::kLeft}};
    if (several) columns.insert(columns.begin(), {"side"});
    TextTable table(columns);
    size_t shown = 0;
    for (const DiffStage& row : result_.stages) {
      if (shown++ >= room_.stages * (result_.sides.size() - 1)) continue;
      std::vector<std::string> cells = {
          printable(std::string(row.kind)),  printable(std::string(row.shape)),
          std::string(in_words(row.metric)), value_text(row.metric, row.a),
          value_text(row.metric, row.b),     signed_percent(row.change_frac.value_or(0)),
          interval_text(row.ci95),           row.noise_frac ? "±" + format_percent(*row.noise_frac) : "-",
          std::string(name_of(row.verdict))};
      if (several) cells.insert(cells.begin(), std::to_string(row.side + 1));
      table.add_row(std::move(cells));
    }
    const size_t most = room_.stages * (result_.sides.size() - 1);
    return title(ink_, "Stages", shown > most ? fmt::format("{} more: --full", shown - most) : "") +
           table.render("  ", options_) + "\n";
  }

  std::string operations(int64_t side) const {
    TextTable table({{"stage", Align::kLeft, 18},
                     {"operation", Align::kLeft, 30},
                     {"before"},
                     {"after"},
                     {"change"},
                     {"share", Align::kRight, 0, 1},
                     {"after", Align::kRight, 0, 1}});
    std::vector<const DiffOperation*> rows = rows_of(result_.operations, side, [](const DiffOperation& row) {
      return std::max(row.a_share.value_or(0), row.b_share.value_or(0)) >= 0.005 || std::abs(row.change_ms) > 0;
    });
    const size_t hidden =
        keep_largest(rows, room_.operations, [](const DiffOperation& row) { return std::max(row.a_ms, row.b_ms); });
    for (const DiffOperation* row : rows)
      table.add_row({printable(row->kind), (row->idle ? "GPU idle: " : "") + row->name, format_ms(row->a_ms),
                     format_ms(row->b_ms), signed_ms(row->change_ms), percent_or_dash(row->a_share),
                     percent_or_dash(row->b_share)});
    return section(table, "Where the time of a step goes" + side_suffix(result_, side), hidden);
  }

  std::string kernels(int64_t side) const {
    TextTable table({{"stage", Align::kLeft, 18, 1},
                     {"kernel", Align::kLeft, 46},
                     {"calls", Align::kRight, 0, 2},
                     {"before"},
                     {"after"},
                     {"change"},
                     {"one call", Align::kRight, 0, 1}});
    std::vector<const DiffKernel*> rows = rows_of(result_.kernels, side, [](const DiffKernel&) { return true; });
    const size_t hidden =
        keep_largest(rows, room_.kernels, [](const DiffKernel& row) { return std::abs(row.change_ms); });
    for (const DiffKernel* row : rows) {
      const bool replaced = row->presence == DiffPresence::kReplaced;
      std::string name = row->a_name ? short_kernel_name(*row->a_name) : short_kernel_name(row->b_name.value_or(""));
      if (replaced)
        name = ellipsize(name, kHalfName, options_.charset) + " -> " +
               ellipsize(short_kernel_name(row->b_name.value_or("")), kHalfName, options_.charset);
      const std::string calls = std::abs(row->a_calls - row->b_calls) < 0.05
                                    ? count_text(row->a_calls)
                                    : count_text(row->a_calls) + " -> " + count_text(row->b_calls);
      table.add_row(
          {printable(row->kind), printable(name), calls, row->a_name ? format_ms(row->a_ms) : "-",
           row->b_name ? format_ms(row->b_ms) : "-", signed_ms(row->change_ms),
           row->mean_change_frac ? signed_percent(*row->mean_change_frac) : std::string(name_of(row->presence))});
    }
    return section(table, "Kernels  of a step" + side_suffix(result_, side), hidden);
  }

  std::string operators(int64_t side) const {
    TextTable table({{"stage", Align::kLeft, 18, 1},
                     {"operator", Align::kLeft, 36},
                     {"calls", Align::kRight, 0, 1},
                     {"host before"},
                     {"host after"},
                     {"GPU before"},
                     {"GPU after"}});
    std::vector<const DiffOperator*> rows = rows_of(result_.operators, side, [](const DiffOperator&) { return true; });
    const size_t hidden = keep_largest(rows, room_.operators, [](const DiffOperator& row) {
      return std::abs(row.b_cpu_ms + row.b_gpu_ms - row.a_cpu_ms - row.a_gpu_ms);
    });
    for (const DiffOperator* row : rows)
      table.add_row({printable(row->kind), printable(row->name),
                     count_text(row->a_calls) + " -> " + count_text(row->b_calls), format_ms(row->a_cpu_ms),
                     format_ms(row->b_cpu_ms), format_ms(row->a_gpu_ms), format_ms(row->b_gpu_ms)});
    return section(table, "Operators  of a step" + side_suffix(result_, side), hidden);
  }

  std::string unknown() const {
    std::string out;
    if (!result_.comparable.not_known.empty()) {
      std::string names;
      for (const std::string& one : result_.comparable.not_known) names += (names.empty() ? "" : ", ") + one;
      out += wrapped("Were the machines in the same state? Not recorded on every side: " + names, 2, 6);
    }
    size_t shown = 0;
    for (const CannotTell& row : result_.cannot_tell)
      if (shown++ < room_.unknown)
        out += wrapped(row.question + " " + row.why + " (" + row.how_to_find_out + ")", 2, 6);
    const bool model = std::any_of(result_.stages.begin(), result_.stages.end(),
                                   [](const DiffStage& row) { return row.noise_source == "model"; });
    if (model)
      out += wrapped(
          "What do runs of this program differ by? One run a side: what equal processes of other programs did "
          "on shared hosts is taken instead (A1,A2,A3 B1,B2,B3 tells)",
          2, 6);
    if (shown > room_.unknown) out += ink_.dim(fmt::format("  {} more: --full\n", shown - room_.unknown));
    return out.empty() ? out : title(ink_, "Not known") + out;
  }

  std::string section(const TextTable& table, const std::string& name, size_t hidden) const {
    if (table.empty()) return {};
    return title(ink_, name, hidden > 0 ? fmt::format("{} smaller rows: --full", hidden) : "") +
           table.render("  ", options_) + "\n";
  }

  static std::string count_text(double count) {
    return count == std::floor(count) ? format_count(count) : format_fixed(count, 1);
  }

  template <class Row, class Keep>
  static std::vector<const Row*> rows_of(const std::vector<Row>& all, int64_t side, Keep&& keep) {
    std::vector<const Row*> out;
    for (const Row& row : all)
      if (row.side == side && keep(row)) out.push_back(&row);
    return out;
  }
  // Leaves so many, the largest of all stages, in their order; how many go.
  template <class Row, class Size>
  static size_t keep_largest(std::vector<const Row*>& rows, size_t most, Size&& size) {
    if (rows.size() <= most) return 0;
    std::vector<double> sizes;
    for (const Row* row : rows) sizes.push_back(size(*row));
    std::nth_element(sizes.begin(), sizes.begin() + static_cast<ptrdiff_t>(most), sizes.end(), std::greater<>());
    const double least = sizes[most];
    const size_t before = rows.size();
    std::erase_if(rows, [&](const Row* row) { return size(*row) <= least; });
    return before - rows.size();
  }

  const DiffResult& result_;
  RenderOptions options_;
  Ink ink_;
  Room room_;
};

}  // namespace

std::string render_text(const DiffResult& result, const RenderOptions& given) {
  RenderOptions options = given;
  options.width = std::max(kLeastWidth, options.width);
  std::string out;
  for (size_t less = 0; less < kOnePage.operations; ++less) {
    const DiffPage page(result, options, less);
    out = finish_page(page.text(), page.options());
    const size_t lines = static_cast<size_t>(std::count(out.begin(), out.end(), '\n'));
    if (!options.one_page || lines <= kPageLines) break;
  }
  return out;
}

}  // namespace llmprof
