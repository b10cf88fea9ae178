// A list of cases, one after the other: what was measured before is taken over, every result is handed on as soon as it
// is there, and a device that is lost ends the run with what there is.
#pragma once

#include <atomic>
#include <functional>
#include <set>
#include <string>
#include <vector>

#include "base/result.h"
#include "bench/case_rows.h"
#include "bench/plan.h"
#include "bench/protocol.h"

namespace llmprof::bench {

struct RunProgress {
  size_t done = 0, all = 0;
  const CasePlan* now = nullptr;
  double left_s = 0;  // by the protocol's budgets, corrected by what cases took so far
};

struct RunHooks {
  std::string note;     // added to every row that is measured
  std::string options;  // of the command line, behind the repro line of every row: what the case itself does not say
  std::function<void(const RunProgress&)> begin = [](const RunProgress&) {};  // before each case
  std::function<Status(const std::vector<CaseRecord>&)> done = [](const std::vector<CaseRecord>&) { return Status(); };
};

struct RunOutcome {
  std::vector<CaseRecord> records;  // of the plans, in their order; those taken over included
  size_t measured = 0, taken_over = 0, left = 0;
  bool interrupted = false;
  std::string lost;  // why nothing after it could be measured; empty if the device is well
};

// `earlier`: records of an interrupted run; their cases are not measured again unless they failed to run.
Result<RunOutcome> run_cases(device::Device& device, const std::vector<CasePlan>& plans, const Protocol& protocol,
                             const Ceilings& ceilings, const std::vector<CaseRecord>& earlier,
                             const std::atomic<bool>& stop, const RunHooks& hooks);

// Of `earlier`, the rows that belong to none of the plans, by operation and shape, each once: a run that goes on with
// them would write its results without them.
std::vector<std::string> rows_of_no_plan(const std::vector<CasePlan>& plans, const std::vector<CaseRecord>& earlier);

// What one case takes by its budgets, on the average.
double budget_s(const Protocol& protocol, device::DeviceKind kind);

}  // namespace llmprof::bench
