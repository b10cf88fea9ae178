// Runs of benchmarks of a server, as their client saw them, in the order of the file.
#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "base/text_table.h"
#include "report/text_parts.h"

namespace llmprof {
namespace {

// "vllm, backend openai, model meta-llama/Llama-3.1-8B", where all runs agree.
std::string benchmarked(const std::vector<ClientRunRecord>& runs) {
  const auto common = [&](auto&& text_of) {
    const std::string first = text_of(runs.front());
    const bool all = std::all_of(runs.begin(), runs.end(), [&](const auto& run) { return text_of(run) == first; });
    return all ? first : std::string();
  };
  std::string out = common([](const ClientRunRecord& run) { return run.format; });
  const auto append = [&](const char* what, const std::string& text) {
    if (!text.empty() && text != out) out += (out.empty() ? "" : ", ") + std::string(what) + " " + printable(text);
  };
  append("backend", common([](const ClientRunRecord& run) { return run.backend.value_or(""); }));
  append("model", common([](const ClientRunRecord& run) { return run.model.value_or(""); }));
  return out;
}

// "2" of "sweep.jsonl:2" where all runs are of one file; else the end of a name that is too long, which has the number.
std::string run_label(const std::string& source, bool one_file) {
  constexpr size_t kLongest = 30;
  const size_t colon = source.rfind(':');
  if (one_file && colon != std::string::npos) return printable(source.substr(colon + 1));
  const std::string name = printable(source);
  size_t from = name.size() > kLongest ? name.size() - kLongest : 0;
  while (from > 0 && from < name.size() && (static_cast<unsigned char>(name[from]) & 0xC0) == 0x80) ++from;
  return from == 0 ? name : "…" + name.substr(from);
}

std::string load_rate(const ClientRunRecord& run) {
  return run.unlimited_rate ? "inf" : run.request_rate ? format_rate(*run.request_rate) : "-";
}

// How far the clocks may be apart where they were taken as one.
std::string ahead_text(const ClientClockRecord& clock) {
  const auto ms = [](double value) { return value < 0 ? "-" + format_ms(-value) : format_ms(value); };
  if (clock.ahead_least_ms && clock.ahead_most_ms)
    return fmt::format("the client's clock is ahead by {} to {}", ms(*clock.ahead_least_ms), ms(*clock.ahead_most_ms));
  if (!clock.ahead_least_ms && !clock.ahead_most_ms)
    return "clocks taken as one: nothing recorded bounds the difference";
  return clock.ahead_least_ms ? fmt::format("the client's clock is ahead by {} or more", ms(*clock.ahead_least_ms))
                              : fmt::format("the client's clock is ahead by {} or less", ms(*clock.ahead_most_ms));
}

// Of one run: a row for TTFT and one for TPOT.
std::vector<std::vector<std::string>> stage_rows(const Report& report, const ClientClockRecord& clock,
                                                 const std::string& label) {
  std::vector<std::vector<std::string>> rows;
  for (const char* figure : {"ttft", "tpot"}) {
    std::vector<std::string> row = {label, figure == std::string("ttft") ? "TTFT" : "TPOT"};
    for (const char* part : {"all", "queue", "prefill", "mixed", "decode", "other", "host", "gap"}) {
      const auto found =
          std::find_if(report.client_stages.begin(), report.client_stages.end(), [&](const ClientStageRecord& of) {
            return of.source == clock.source && of.figure == figure && of.part == part;
          });
      row.push_back(found == report.client_stages.end() ? "-" : format_ms(found->mean_ms));
      if (part == std::string("all")) {
        if (found == report.client_stages.end()) break;
        row.insert(row.begin() + 2, format_count(static_cast<double>(found->requests)));
      }
    }
    if (row.size() > 3) rows.push_back(std::move(row));
  }
  return rows;
}

// Why runs of a client are not split, a line each.
std::string not_split(const Report& report, bool one_file, size_t most, const RenderOptions& options) {
  std::string out;
  size_t shown = 0, all = 0;
  for (const ClientClockRecord& clock : report.client_clocks) {
    if (clock.waits > 0 || clock.outputs > 0 || ++all > most) continue;
    ++shown;
    std::string why =
        clock.why.value_or(fmt::format("none of {} requests lies wholly in recorded time", clock.requests));
    if (clock.apart_ms) why += fmt::format(" by at least {}", format_ms(*clock.apart_ms));
    out += wrap_text(run_label(clock.source, one_file) + " not split: " + why, options.width, "  ", "      ");
  }
  return all > shown ? out + fmt::format("  {} more not split: --full\n", all - shown) : out;
}

// Mean parts of TTFT and TPOT by what the GPU did meanwhile, with how many requests they are of.
std::string waiting_table(const Report& report, bool one_file, size_t most, const RenderOptions& options,
                          const Ink& ink) {
  const std::string rest_of_runs = not_split(report, one_file, most, options);
  if (report.client_stages.empty())
    return rest_of_runs.empty() ? "" : title(ink, "While they waited") + rest_of_runs + "\n";
  TextTable table({{"run", kLeft, 34, 4},
                   {"mean", kLeft},
                   {"of", kRight, 0, 5},
                   {"all"},
                   {"queue"},
                   {"prefill"},
                   {"mixed", kRight, 0, 6},
                   {"decode"},
                   {"other", kRight, 0, 6},
                   {"host"},
                   {"gap"}});
  std::string bounds;
  int64_t timed = 0, split = 0;
  size_t shown = 0, all = 0;
  for (const ClientClockRecord& clock : report.client_clocks) {
    timed += clock.requests;
    split += clock.waits;
    std::vector<std::vector<std::string>> rows = stage_rows(report, clock, run_label(clock.source, one_file));
    all += !rows.empty();
    if (rows.empty() || ++shown > most) continue;
    for (std::vector<std::string>& row : rows) table.add_row(std::move(row));
    bounds += wrap_text(run_label(clock.source, one_file) + ": " + ahead_text(clock), options.width, "  ", "      ");
  }
  const std::string rest = all > most ? ink.dim(fmt::format("  {} more: --full, --format csv\n", all - most)) : "";
  return title(ink, "While they waited",
               fmt::format("what the GPU did, by time; {} of {} requests lie in recorded time", split, timed)) +
         table.render("  ", options) + bounds + rest + rest_of_runs + "\n";
}

}  // namespace

std::string text_client_runs(const Report& report, const RenderOptions& options, const Ink& ink) {
  constexpr size_t kRowsOfPage = 25, kRowsBeside = 4;
  if (report.client_runs.empty()) return {};
  const size_t page_rows = profiled_alone(report) ? kRowsOfPage : kRowsBeside;
  const size_t most = options.one_page ? std::min(page_rows, options.top) : options.top;
  const bool one_file = report.source.files.size() == 1 && report.client_runs.size() > 1;
  TextTable table({{"run", kLeft, 34},
                   {"sent/s", kRight, 0, 2},
                   {"at once", kRight, 0, 3},
                   {"done", kRight, 0, 1},
                   {"failed", kRight, 0, 1},
                   {"TTFT"},
                   {"p99", kRight, 0, 4},
                   {"TPOT"},
                   {"p99", kRight, 0, 5},
                   {"ITL", kRight, 0, 6},
                   {"p99", kRight, 0, 7},
                   {"latency"},
                   {"p99", kRight, 0, 6},
                   {"req/s", kRight, 0, 1},
                   {"tokens/s"}});
  size_t shown = 0;
  for (const ClientRunRecord& run : report.client_runs) {
    if (++shown > most) break;
    const auto ms = [](const OptDouble& value) { return value ? format_ms(*value) : std::string("-"); };
    const auto count = [](const OptInt& value) {
      return value ? format_count(static_cast<double>(*value)) : std::string("-");
    };
    const auto rate = [](const OptDouble& value) { return value ? format_rate(*value) : std::string("-"); };
    table.add_row({run_label(run.source, one_file), load_rate(run), count(run.max_concurrency), count(run.completed),
                   count(run.failed), ms(run.ttft_median_ms), ms(run.ttft_p99_ms), ms(run.tpot_median_ms),
                   ms(run.tpot_p99_ms), ms(run.itl_median_ms), ms(run.itl_p99_ms), ms(run.e2e_median_ms),
                   ms(run.e2e_p99_ms), rate(run.requests_per_s), rate(run.output_tokens_per_s)});
  }
  const size_t all = report.client_runs.size();
  const std::string rest = all > most ? ink.dim(fmt::format("  {} more: --full, --format csv\n", all - most)) : "";
  const std::string what = benchmarked(report.client_runs);
  return title(ink, "What clients saw", (what.empty() ? "" : what + "; ") + "medians, and p99 behind each") +
         table.render("  ", options) + rest + "\n" + waiting_table(report, one_file, most, options, ink);
}

}  // namespace llmprof
