// Every way to do an operation that `llmprof bench` would check on a GPU, with its time back to back: which of them the
// choice is among, and what each is worth.
//
//   candidate_times OPERATION DTYPE VARIANT|- [AXIS=VALUE...]
// prints a line for each, the fastest first: "US<tab>GB/s<tab>CHECK<tab>BACKEND". Times are medians of interleaved
// rounds over rotating sets of buffers, as many as `bench` has.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "base/statistics.h"
#include "kernels/op.h"

using namespace llmprof;

namespace {

constexpr int kRounds = 3;
constexpr double kSampleUs = 8000;
constexpr size_t kSetsBytes = size_t{4} << 30, kSetsMin = 2, kSetsMax = 64;

struct Row {
  std::string backend, check;
  std::vector<double> us;
};

Result<double> time_once(device::Device& gpu, const kernels::Candidate& candidate, int sets, int launches) {
  LLMPROF_ASSIGN(const std::vector<device::Sample> samples,
                 gpu.time_sustained({candidate.enqueue, sets, launches, 3, false}));
  std::vector<double> us;
  for (const device::Sample& sample : samples) us.push_back(sample.us);
  return median_of(us);
}

Status look(device::Device& gpu, const kernels::Operation& operation, const kernels::OpParams& params) {
  LLMPROF_ASSIGN(const std::unique_ptr<kernels::PreparedOp> op, operation.prepare_cuda(gpu, params));
  std::vector<Row> rows;
  for (size_t i = 0; i < op->candidates().size(); ++i) {
    const Result<kernels::Check> check = op->check(i);
    rows.push_back({op->candidates()[i].backend,
                    !check                                               ? check.error().what
                    : check->status == kernels::CheckStatus::kPassed     ? "passed"
                    : check->status == kernels::CheckStatus::kMistrusted ? "mistrusted"
                                                                         : "failed " + check->note,
                    {}});
  }
  const size_t sets = std::clamp(kSetsBytes / std::max<size_t>(op->bytes_per_set(), 1), kSetsMin, kSetsMax);
  LLMPROF_CHECK(op->prepare_sets(static_cast<int>(sets)));
  const double bytes = operation.cost(params).bytes();
  for (int round = 0; round <= kRounds; ++round) {
    for (size_t i = 0; i < rows.size(); ++i) {
      // The first round loads code and says how many launches a sample has.
      const double once = rows[i].us.empty() ? kSampleUs : rows[i].us[0];
      const int launches = static_cast<int>(std::clamp(kSampleUs / once, 1.0, 2000.0));
      const Result<double> us = time_once(gpu, op->candidates()[i], static_cast<int>(sets), launches);
      if (!us) {
        rows[i].check += ", " + us.error().what;
        continue;
      }
      if (round == 1) rows[i].us.clear();
      rows[i].us.push_back(*us);
    }
  }
  std::erase_if(rows, [](const Row& row) { return row.us.empty(); });
  std::stable_sort(rows.begin(), rows.end(),
                   [](const Row& a, const Row& b) { return median_of(a.us) < median_of(b.us); });
  for (const Row& row : rows)
    fmt::print("{:.3f}\t{:.0f}\t{}\t{}\n", median_of(row.us), bytes / median_of(row.us) * 1e-3, row.check, row.backend);
  return {};
}

}  // namespace

int main(int count, char** arguments) {
  if (count < 4) {
    std::fputs("usage: candidate_times OPERATION DTYPE VARIANT|- [AXIS=VALUE...]\n", stderr);
    return 2;
  }
  const kernels::Operation* const operation = kernels::find_operation(arguments[1]);
  const std::optional<DType> dtype = parse_dtype(arguments[2]);
  if (operation == nullptr || !dtype || operation->prepare_cuda == nullptr) return 2;
  std::vector<std::pair<std::string, int64_t>> axes;
  for (int i = 4; i < count; ++i) {
    const std::string argument = arguments[i];
    const size_t equals = argument.find('=');
    if (equals == std::string::npos) return 2;
    axes.emplace_back(argument.substr(0, equals), std::atoll(argument.c_str() + equals + 1));
  }
  const std::string variant = arguments[3];
  const Result<kernels::OpParams> params = make_params(*operation, *dtype, variant == "-" ? "" : variant, axes);
  const Result<std::unique_ptr<device::Device>> gpu = device::open_device({"cuda:0", 0});
  if (!params || !gpu) {
    std::fputs((params ? gpu.error() : params.error()).text().c_str(), stderr);
    return 1;
  }
  const Status looked = look(**gpu, *operation, *params);
  if (!looked) std::fputs(looked.error().text().c_str(), stderr);
  return looked ? 0 : 1;
}
