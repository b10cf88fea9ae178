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
         table.render("  ", options) + rest + "\n";
}

}  // namespace llmprof
