#include "bench/runner.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "bench/timing.h"

namespace llmprof::bench {
namespace {

constexpr double kOverheadS = 0.45;    // filling, checking and choosing, roughly
constexpr double kSettleS = 0.5;       // the same of settling
constexpr double kHeldDownPart = 0.6;  // of cases of a GPU a third meets the power limit, and takes twice as long again

std::string case_key(const CasePlan& plan) {
  CaseRecord record;
  record.row.name = plan.operation->name;
  record.row.variant = plan.params.variant;
  record.row.shape = shape_text(plan.params);
  record.row.dtype = dtype_name(plan.params.dtype);
  record.row.seed = static_cast<int64_t>(plan.params.seed);
  return record.case_key();
}

bool worth_keeping(const CaseRecord& record) {
  return record.row.status != CaseStatus::kInterrupted && record.row.status != CaseStatus::kError;
}

}  // namespace

double budget_s(const Protocol& protocol, device::DeviceKind kind) {
  const double held_down_s = kind == device::DeviceKind::kCpu ? 0 : kHeldDownPart * protocol.held_down_s;
  return kOverheadS + held_down_s + std::min(protocol.settle_max_s, kSettleS) +
         (protocol.cold ? protocol.cold_min_s : 0) + (protocol.sustained ? protocol.sustained_min_s : 0);
}

std::vector<std::string> rows_of_no_plan(const std::vector<CasePlan>& plans, const std::vector<CaseRecord>& earlier) {
  std::set<std::string> known;
  for (const CasePlan& plan : plans) known.insert(case_key(plan));
  std::vector<std::string> out;
  for (const CaseRecord& record : earlier) {
    // A second regime of a case is no second case.
    if (known.insert(record.case_key()).second)
      out.push_back(fmt::format("{} {} {}", record.row.name, record.row.shape, record.row.dtype));
  }
  return out;
}

Result<RunOutcome> run_cases(device::Device& device, const std::vector<CasePlan>& plans, const Protocol& protocol,
                             const Ceilings& ceilings, const std::vector<CaseRecord>& earlier,
                             const std::atomic<bool>& stop, const RunHooks& hooks) {
  std::map<std::string, std::vector<CaseRecord>> known;
  for (const CaseRecord& record : earlier)
    if (worth_keeping(record)) known[record.case_key()].push_back(record);
  RunOutcome out;
  const Stopwatch all(device);
  for (size_t i = 0; i < plans.size(); ++i) {
    if (const auto found = known.find(case_key(plans[i])); found != known.end()) {
      out.records.insert(out.records.end(), found->second.begin(), found->second.end());
      ++out.taken_over;
      continue;
    }
    const double spent_s = all.seconds();
    const double each_s =
        out.measured > 0 ? spent_s / static_cast<double>(out.measured) : budget_s(protocol, device.identity().kind);
    hooks.begin({i, plans.size(), &plans[i], each_s * static_cast<double>(plans.size() - i)});
    CaseResult result = measure(device, *plans[i].operation, plans[i].params, protocol, stop);
    if (result.status == CaseStatus::kInterrupted) {
      out.interrupted = true;
      out.left = plans.size() - i;
      return out;
    }
    if (!hooks.note.empty() && !result.timings.empty()) result.note += (result.note.empty() ? "" : "; ") + hooks.note;
    std::vector<CaseRecord> records = records_of(result, ceilings);
    for (CaseRecord& record : records) record.row.repro += hooks.options;
    out.records.insert(out.records.end(), records.begin(), records.end());
    ++out.measured;
    LLMPROF_CHECK(hooks.done(records));
    if (result.status != CaseStatus::kError) continue;
    if (const Status well = device.synchronize(); !well) {
      out.lost = fmt::format("{} ended the device's context: {}", records[0].row.repro, well.error().what);
      out.left = plans.size() - i - 1;
      return out;
    }
  }
  return out;
}

}  // namespace llmprof::bench
