// Files joined to the recording: by what, with which clocks, and how much of each was found in it. The joining itself
// is done where the files are read (readings, ranks) and where their tables are made (kernels and products).
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "analyze/analysis.h"
#include "analyze/recorded_names.h"
#include "analyze/without_program.h"

namespace llmprof {
namespace {

using ProfiledLaunch = std::tuple<std::string, std::string, std::string>;  // name, grid, block

void count_matched(JoinedFileRecord& row, int64_t records, int64_t matched, std::string_view why) {
  row.records = records;
  row.matched = matched;
  row.not_matched = records - matched;
  if (matched < records) row.why = std::string(why);
}

class JoinedFileRows {
 public:
  JoinedFileRows(const Context& context, Report& report)
      : trace_(context.trace), report_(report), products_(context.products.rows_found(trace_.logged_products.size())) {
    for (const ProfiledKernelRecord& row : report.profiled_kernels)
      if (row.recorded_calls) launches_.emplace(row.name, row.grid.value_or(""), row.block.value_or(""));
    for (const ProtonProfileRecord& row : report.proton_profiles) profiles_.emplace(row.source, &row);
  }

  void add(Row at) {
    const JoinedFiles& files = trace_.files_joined;
    const std::string_view format = trace_.text(files.format[at]);
    JoinedFileRecord row;
    row.file = std::string(trace_.text(files.file[at]));
    row.format = std::string(format);
    if (files.first_row[at] < 0 && files.records[at] >= 0)
      add_readings(at, row);
    else if (files.first_row[at] < 0)
      row.why = "nothing of it has a place in the recording: its tables stand beside it";
    else if (format == "ncu")
      add_kernels(at, row);
    else if (format == "cublas")
      add_products(at, row);
    else if (format == "proton")
      add_profile(at, row);
    report_.joined_files.push_back(std::move(row));
  }

 private:
  void add_readings(Row at, JoinedFileRecord& row) const {
    const JoinedFiles& files = trace_.files_joined;
    if (files.joined_by[at] != StringId::kEmpty && files.uncertain_ns[at] >= 0) {
      row.joined_by = std::string(trace_.text(files.joined_by[at]));
      row.offset_s = static_cast<double>(files.shift_ns[at]) / 1e9;
      row.offset_bound_s = static_cast<double>(files.uncertain_ns[at]) / 2e9;
    }
    if (const int64_t compared = files.compared[at]; compared > 0) {
      row.utilisation_readings = compared;
      if (files.agreeing[at] >= 0)
        row.utilisation_agree_frac =
            static_cast<double>(std::min(files.agreeing[at], compared)) / static_cast<double>(compared);
    }
    // A damaged file of llmprof may have any numbers.
    const int64_t records = files.records[at];
    count_matched(row, records, std::clamp<int64_t>(files.matched[at], 0, records), trace_.text(files.not_matched[at]));
  }

  // [first, end) of a table of so many rows.
  std::pair<size_t, size_t> rows_of(Row at, size_t rows) const {
    const size_t first = std::min(static_cast<size_t>(trace_.files_joined.first_row[at]), rows);
    const auto records = static_cast<size_t>(std::max<int64_t>(trace_.files_joined.records[at], 0));
    return {first, first + std::min(records, rows - first)};
  }

  void add_kernels(Row at, JoinedFileRecord& row) const {
    const ProfiledKernels& kernels = trace_.profiled_kernels;
    const LaunchConfigs& configs = trace_.launch_configs;
    const auto [first, end] = rows_of(at, kernels.size());
    int64_t matched = 0;
    for (size_t kernel = first; kernel < end; ++kernel) {
      const LaunchConfigId c = kernels.config[kernel];
      const bool known = c != kNoRow;
      matched += launches_.count({std::string(trace_.text(kernels.name[kernel])),
                                  known ? launched_grid(configs, c) : "", known ? launched_block(configs, c) : ""}) > 0;
    }
    row.joined_by = "name, grid and block of kernels";
    count_matched(row, static_cast<int64_t>(end - first), matched,
                  "not in the recording, or one of several whose names the two recorders write differently");
  }

  void add_products(Row at, JoinedFileRecord& row) const {
    const auto [first, end] = rows_of(at, products_.size());
    int64_t matched = 0;
    for (size_t product = first; product < end; ++product) matched += products_[product] ? 1 : 0;
    row.joined_by = "order on the stream, and shapes where both have them";
    count_matched(row, static_cast<int64_t>(end - first), matched,
                  "no GEMM of the recording outside of CUDA graphs stands in their place");
  }

  void add_profile(Row at, JoinedFileRecord& row) const {
    const ProtonNodes& nodes = trace_.proton_nodes;
    const auto [first, end] = rows_of(at, nodes.size());
    const auto found = first < end ? profiles_.find(trace_.text(nodes.source[first])) : profiles_.end();
    if (found == profiles_.end() || !found->second->recorded_kernels) return;
    const int64_t matched = *found->second->recorded_kernels;
    row.joined_by = "name of kernels";
    count_matched(row, matched + found->second->missing_kernels.value_or(0), matched,
                  "not in the recording, or one of several");
  }

  const Trace& trace_;
  Report& report_;
  std::set<ProfiledLaunch> launches_;  // that the recording has
  std::map<std::string_view, const ProtonProfileRecord*> profiles_;
  std::vector<bool> products_;  // by row of logged_products: whether the recording has it
};

// Ranks but the first, on whose clock all of them are.
void add_rank_files(const Trace& trace, Report& report) {
  const Ranks& ranks = trace.ranks;
  std::map<std::string_view, size_t> rows;
  std::map<std::string_view, int64_t> records, matched;
  for (const RankRecord& rank : report.ranks) {
    records[rank.file] += rank.collectives;
    matched[rank.file] += rank.joined;
  }
  for (const RankRecord& rank : report.ranks) {
    if (ranks.empty() || rank.file == trace.text(ranks.file[0])) continue;
    if (!rows.emplace(rank.file, report.joined_files.size()).second) continue;  // its other devices
    JoinedFileRecord& row = report.joined_files.emplace_back();
    row.file = rank.file;
    row.format = "rank";
    row.joined_by = "order of collectives";
    row.offset_s = rank.shift_us / 1e6;
    if (rank.offset_low_us && rank.offset_high_us)
      row.offset_bound_s =
          std::max(std::abs(*rank.offset_low_us - rank.shift_us), std::abs(*rank.offset_high_us - rank.shift_us)) / 1e6;
    count_matched(row, records[rank.file], matched[rank.file],
                  "some rank of the group has no such collective, or ranks leave it early");
  }
}

}  // namespace

void analyze_joined_files(const Context& context, Report& report, std::vector<CannotTell>& /*cannot_tell*/) {
  const Trace& trace = context.trace;
  add_rank_files(trace, report);
  // Without a program, files are each other's equals; a recording that lost its tables is none of these.
  const bool of_program = !profiled_only(trace) && !(trace.gpu_ops.empty() && trace.ops.empty());
  if (!of_program && trace.diagnostics.count(DiagnosticId::kDamagedBlock) == 0) return;
  JoinedFileRows rows(context, report);
  for (Row at = 0; at < trace.files_joined.size(); ++at) rows.add(at);
}

}  // namespace llmprof
