// Who launched what. Three joins, all linear in the number of rows:
//
//   1. operators nest: one sweep in start order with a stack per thread. Every instant of a thread belongs to the
//      innermost operator active then, so the self times of a thread add up to the union of its operators;
//   2. an API call belongs to the operator whose identifier it carries; where that operator is not on the call's
//      thread, to the innermost operator around the call;
//   3. a GPU activity belongs to the call with its correlation id. One call may own thousands (a CUDA graph), and one
//      id may name several calls (a driver call inside a runtime call; two processes in one file).
#include <algorithm>
#include <array>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/parallel.h"
#include "derive/derive.h"
#include "derive/graph_calls.h"
#include "derive/id_index.h"
#include "trace/empty_columns.h"

namespace llmprof {
namespace {

// Recorders that keep whole microseconds truncate start and duration separately, so that a child may seem to end up
// to this much after its parent. It is not counted as an overlap.
constexpr int64_t kRoundingNs = 1000;

// Counts an anomaly and remembers where the first ones were; texts are made only for those.
struct Anomaly {
  uint64_t count = 0;
  std::array<Row, Diagnostics::kKeptPlaces> rows{};
  void add(Row row) {
    if (count < rows.size()) rows[count] = row;
    ++count;
  }
  // `describe(row)` gives the place.
  template <class Describe>
  void report(Diagnostics& diagnostics, DiagnosticId id, Describe&& describe) const {
    const size_t kept = std::min<size_t>(count, rows.size());
    for (size_t i = 0; i < kept; ++i) diagnostics.add(id, describe(rows[i]));
    if (count > kept) diagnostics.add(id, {}, count - kept);
  }
};

std::string place(const Trace& trace, StringId name, int64_t start_ns) {
  return std::string(trace.text(name).substr(0, 48)) + " at " + std::to_string(start_ns) + " ns";
}

// ---- operators and API calls on one thread -------------------------------------------------------------------------

// The sweep over operators and API calls. A stack holds the operators active on its thread; their ends never increase
// from bottom to top, because an operator that outlives the one it started in takes over from it.
class ThreadSweep {
 public:
  explicit ThreadSweep(Trace& trace) : trace_(trace), threads_(trace.threads.size() + 1) {}

  void run() {
    const Ops& ops = trace_.ops;
    const ApiCalls& calls = trace_.api_calls;
    const size_t op_count = ops.size();
    const size_t call_count = calls.size();
    trace_.op_links.parent.assign(op_count, kNoRow);
    trace_.op_links.self_ns.assign(op_count, 0);
    make_empty(trace_.api_links.op, call_count);
    size_t call = 0;
    for (size_t op = 0; op < op_count; ++op) {
      const int64_t start = ops.start_ns[op];
      for (; call < call_count && calls.start_ns[call] < start; ++call) find_caller(static_cast<Row>(call));
      enter(static_cast<Row>(op));
    }
    for (; call < call_count; ++call) find_caller(static_cast<Row>(call));
    for (Thread& thread : threads_) leave_before(thread, std::numeric_limits<int64_t>::max());
  }

  const Anomaly& overlaps() const { return overlaps_; }

 private:
  struct Active {
    int64_t end_ns;
    OpId op;
  };
  struct Thread {
    std::vector<Active> stack;
    int64_t accounted_ns = 0;  // self times are settled up to here
  };

  // Rows outside the threads table share one extra slot.
  Thread& thread(Row row) { return threads_[std::min<size_t>(row, threads_.size() - 1)]; }

  // Settles and removes every operator that ends at or before `now`.
  void leave_before(Thread& thread, int64_t now) {
    while (!thread.stack.empty() && thread.stack.back().end_ns <= now) {
      const Active top = thread.stack.back();
      if (top.end_ns > thread.accounted_ns) {
        trace_.op_links.self_ns[top.op] += top.end_ns - thread.accounted_ns;
        thread.accounted_ns = top.end_ns;
      }
      thread.stack.pop_back();
    }
  }

  void enter(OpId op) {
    Thread& on = thread(trace_.ops.thread[op]);
    const int64_t start = trace_.ops.start_ns[op];
    const int64_t end = start + trace_.ops.dur_ns[op];
    leave_before(on, start);
    if (!on.stack.empty()) {
      trace_.op_links.self_ns[on.stack.back().op] += start - on.accounted_ns;
      OpId parent = on.stack.back().op;
      const int64_t overhang = end - on.stack.back().end_ns;
      // The rest of an operator that ends before this one lies inside this one, so it is settled for good.
      while (!on.stack.empty() && on.stack.back().end_ns < end) on.stack.pop_back();
      if (overhang > kRoundingNs) {
        overlaps_.add(op);
        parent = on.stack.empty() ? kNoRow : on.stack.back().op;
      }
      trace_.op_links.parent[op] = parent;
    }
    on.accounted_ns = start;
    on.stack.push_back({end, op});
  }

  void find_caller(Row call) {
    Thread& on = thread(trace_.api_calls.thread[call]);
    leave_before(on, trace_.api_calls.start_ns[call]);
    if (!on.stack.empty()) trace_.api_links.op[call] = on.stack.back().op;
  }

  Trace& trace_;
  std::vector<Thread> threads_;
  Anomaly overlaps_;
};

// ---- names of API calls
// ----------------------------------------------------------------------------------------------

enum class CallRole : uint8_t {
  kUnseen,
  kSync,
  kOther,
  kBeginCapture,
  kEndCapture,
  kLaunch,
  kGraphLaunch,
  kMemcpy,
  kMemset
};

CallRole role_of_name(std::string_view name) {
  const auto has = [&](std::string_view piece) { return name.find(piece) != std::string_view::npos; };
  switch (graph_call_of(name)) {
    case GraphCall::kBeginCapture:
      return CallRole::kBeginCapture;
    case GraphCall::kEndCapture:
      return CallRole::kEndCapture;
    case GraphCall::kLaunch:
      return CallRole::kGraphLaunch;
    case GraphCall::kInstantiate:
    case GraphCall::kNone:
      break;
  }
  if (has("Launch") && !has("HostFunc")) return CallRole::kLaunch;
  if (has("Memcpy")) return CallRole::kMemcpy;
  if (has("Memset")) return CallRole::kMemset;
  if (has("Synchronize") || has("Query") || has("Wait")) return CallRole::kSync;
  return CallRole::kOther;
}

class CallRoles {
 public:
  explicit CallRoles(const Trace& trace) : trace_(trace), roles_(trace.strings.size(), CallRole::kUnseen) {}
  CallRole operator()(Row call) {
    const StringId name = trace_.api_calls.name[call];
    if (index(name) >= roles_.size()) return CallRole::kOther;
    CallRole& role = roles_[index(name)];
    if (role == CallRole::kUnseen) role = role_of_name(trace_.text(name));
    return role;
  }

 private:
  const Trace& trace_;
  std::vector<CallRole> roles_;
};

// How well a call of this role explains an activity of this kind; only the order matters.
int fit(CallRole role, GpuOpKind kind) {
  if (role == CallRole::kGraphLaunch) return 3;  // a graph holds every kind
  if (role == CallRole::kLaunch) return kind == GpuOpKind::kKernel ? 4 : 2;
  if (role == CallRole::kMemcpy) return kind == GpuOpKind::kMemcpy ? 4 : 2;
  if (role == CallRole::kMemset) return kind == GpuOpKind::kMemset ? 4 : 2;
  return role == CallRole::kSync ? 0 : 1;
}

// ---- GPU activities and their calls
// ----------------------------------------------------------------------------------

class CorrelationJoin {
 public:
  explicit CorrelationJoin(Trace& trace) : trace_(trace), roles_(trace), calls_(trace.api_calls.correlation) {}

  void run() {
    const size_t count = trace_.gpu_ops.size();
    std::vector<ApiCallId>& api = trace_.gpu_links.api;
    api.assign(count, kNoRow);
    used_.assign(trace_.api_calls.size(), 0);
    for (size_t i = 0; i < count; ++i) {
      const GpuOpId gpu = static_cast<Row>(i);
      const Row first = calls_.first(trace_.gpu_ops.correlation[i]);
      if (first == kNoRow) {
        unlinked_kernels_.add(gpu);
        continue;
      }
      const Row call = calls_.repeats() && calls_.next(first) != kNoRow ? choose(gpu, first) : first;
      api[i] = call;
      used_[call] = 1;
      if (trace_.gpu_ops.start_ns[i] < trace_.api_calls.start_ns[call]) early_kernels_.add(gpu);
    }
    count_unused_launches();
  }

  void report(Diagnostics& diagnostics) const {
    const auto gpu_place = [&](Row row) {
      return place(trace_, trace_.gpu_ops.name[row], trace_.gpu_ops.start_ns[row]);
    };
    unlinked_kernels_.report(diagnostics, DiagnosticId::kUnlinkedKernel, gpu_place);
    early_kernels_.report(diagnostics, DiagnosticId::kLaunchAfterKernel, gpu_place);
    unlinked_launches_.report(diagnostics, DiagnosticId::kUnlinkedLaunch, [&](Row row) {
      return place(trace_, trace_.api_calls.name[row], trace_.api_calls.start_ns[row]);
    });
  }

 private:
  bool contains(Row outer, Row inner) const {
    const ApiCalls& calls = trace_.api_calls;
    return calls.thread[outer] == calls.thread[inner] && calls.start_ns[outer] <= calls.start_ns[inner] &&
           calls.start_ns[outer] + calls.dur_ns[outer] >= calls.start_ns[inner] + calls.dur_ns[inner];
  }

  // The best of several calls with one id: first by role, then one that starts before the activity, then the closest.
  // A call inside an equally good one loses: it is the driver's half of the same launch. A launch with two calls is
  // usual, more than kTriedCalls of the same id are not; the bound keeps a hostile file linear.
  Row choose(GpuOpId gpu, Row first) {
    constexpr int kTriedCalls = 64;
    const int64_t start = trace_.gpu_ops.start_ns[gpu];
    const GpuOpKind kind = trace_.gpu_ops.kind[gpu];
    Row best = first;
    int tried = 1;
    for (Row call = calls_.next(first); call != kNoRow && tried < kTriedCalls; call = calls_.next(call), ++tried) {
      const int better = fit(roles_(call), kind) - fit(roles_(best), kind);
      if (better < 0 || (better == 0 && contains(best, call))) continue;
      const int64_t call_start = trace_.api_calls.start_ns[call];
      const int64_t best_start = trace_.api_calls.start_ns[best];
      const bool closer = call_start <= start ? (best_start > start || call_start > best_start)
                                              : (best_start > start && call_start < best_start);
      if (better > 0 || contains(call, best) || closer) best = call;
    }
    return best;
  }

  // Launches while a stream is captured become nodes of a graph and run with it, not now.
  void find_captures() {
    const ApiCalls& calls = trace_.api_calls;
    std::vector<int64_t> since(trace_.threads.size(), -1);
    captures_.resize(trace_.threads.size());
    for (size_t i = 0; i < calls.size(); ++i) {
      const ThreadId thread = calls.thread[i];
      const CallRole role = roles_(static_cast<Row>(i));
      if (thread >= since.size()) continue;
      if (role == CallRole::kBeginCapture) {
        since[thread] = calls.start_ns[i];
      } else if (role == CallRole::kEndCapture && since[thread] >= 0) {
        captures_[thread].push_back({std::exchange(since[thread], -1), calls.start_ns[i]});
      }
    }
  }

  bool captured(Row call) const {
    const ThreadId thread = trace_.api_calls.thread[call];
    if (thread >= captures_.size()) return false;
    const int64_t start = trace_.api_calls.start_ns[call];
    return std::any_of(captures_[thread].begin(), captures_[thread].end(), [start](const Capture& capture) {
      return capture.start_ns <= start && start <= capture.end_ns;
    });
  }

  void count_unused_launches() {
    find_captures();
    for (size_t i = 0; i < used_.size(); ++i) {
      const Row call = static_cast<Row>(i);
      if (used_[i] != 0 || roles_(call) < CallRole::kLaunch || captured(call)) continue;
      bool half_of_used = false;
      if (calls_.repeats()) {
        int tried = 0;
        for (Row other = calls_.first(trace_.api_calls.correlation[i]); other != kNoRow && tried < 64;
             other = calls_.next(other), ++tried) {
          half_of_used |= used_[other] != 0 && (contains(other, call) || contains(call, other));
        }
      }
      if (!half_of_used) unlinked_launches_.add(call);
    }
  }

  Trace& trace_;
  CallRoles roles_;
  IdIndex calls_;
  std::vector<uint8_t> used_;
  struct Capture {
    int64_t start_ns, end_ns;
  };
  std::vector<std::vector<Capture>> captures_;  // by thread
  Anomaly unlinked_kernels_, early_kernels_, unlinked_launches_;
};

// ---- operators by identifier
// -----------------------------------------------------------------------------------------

// Corrects the callers found by time where the call carries another operator's identifier, and finds operators of
// activities whose call has none. Recorders write the innermost operator's id, so almost every call agrees already and
// the index is seldom built.
class IdentifierJoin {
 public:
  explicit IdentifierJoin(Trace& trace) : trace_(trace) {}

  void calls() {
    const ApiCalls& calls = trace_.api_calls;
    std::vector<OpId>& op = trace_.api_links.op;
    for (size_t i = 0; i < calls.size(); ++i) {
      const uint64_t id = calls.external_id[i];
      if (id == 0 || (op[i] != kNoRow && trace_.ops.external_id[op[i]] == id)) continue;
      const Row found = around_call(static_cast<Row>(i), id);
      if (found == kNoRow) continue;
      // An operator on another thread is only better than nothing (old recorders number threads of calls otherwise).
      if (trace_.ops.thread[found] == calls.thread[i] || op[i] == kNoRow) op[i] = found;
    }
  }

  void activities() {
    const size_t count = trace_.gpu_ops.size();
    std::vector<OpId>& op = trace_.gpu_links.op;
    make_empty(op, count);
    // A recording without operators has none for any kernel: not worth a word.
    if (trace_.ops.empty()) return;
    for (size_t i = 0; i < count; ++i) {
      const ApiCallId api = trace_.gpu_links.api[i];
      if (api != kNoRow) op[i] = trace_.api_links.op[api];
      if (op[i] == kNoRow) op[i] = before_activity(static_cast<Row>(i));
      if (op[i] == kNoRow) without_operator_.add(static_cast<Row>(i));
    }
  }

  void report(Diagnostics& diagnostics) const {
    without_operator_.report(diagnostics, DiagnosticId::kNoOperatorForKernel, [&](Row row) {
      return place(trace_, trace_.gpu_ops.name[row], trace_.gpu_ops.start_ns[row]);
    });
  }

 private:
  static constexpr int kTriedOps = 64;  // operators of one identifier; two processes share ids, hundreds do not

  const IdIndex& ops() {
    if (!ops_) ops_.emplace(trace_.ops.external_id);
    return *ops_;
  }
  int64_t process(ThreadId thread) const {
    return thread < trace_.threads.size() ? trace_.threads.process_id[thread] : -1;
  }

  // An operator with this id whose time holds the start of the call: on its thread, else in its process.
  Row around_call(Row call, uint64_t id) {
    const int64_t start = trace_.api_calls.start_ns[call];
    const ThreadId thread = trace_.api_calls.thread[call];
    Row best = kNoRow;
    int tried = 0;
    for (OpId op = ops().first(id); op != kNoRow && tried < kTriedOps; op = ops().next(op), ++tried) {
      if (trace_.ops.start_ns[op] > start || trace_.ops.start_ns[op] + trace_.ops.dur_ns[op] < start) continue;
      if (trace_.ops.thread[op] == thread) return op;
      if (process(trace_.ops.thread[op]) == process(thread)) best = op;
    }
    return best;
  }

  // The operator with the activity's own id that starts last before it; in the process of its call if that is known.
  Row before_activity(GpuOpId gpu) {
    const uint64_t id = trace_.gpu_ops.external_id[gpu];
    if (id == 0 || trace_.ops.empty()) return kNoRow;
    const ApiCallId api = trace_.gpu_links.api[gpu];
    Row best = kNoRow;
    int tried = 0;
    for (OpId op = ops().first(id); op != kNoRow && tried < kTriedOps; op = ops().next(op), ++tried) {
      if (api != kNoRow && process(trace_.ops.thread[op]) != process(trace_.api_calls.thread[api])) continue;
      if (best == kNoRow || trace_.ops.start_ns[op] <= trace_.gpu_ops.start_ns[gpu]) best = op;
    }
    return best;
  }

  Trace& trace_;
  std::optional<IdIndex> ops_;
  Anomaly without_operator_;
};

}  // namespace

void link_launches(Trace& trace) {
  const size_t gpu_count = trace.gpu_ops.size();
  make_empty(trace.gpu_links.op, gpu_count);
  make_empty(trace.gpu_links.work, gpu_count);
  make_empty(trace.gpu_links.step, gpu_count);
  make_empty(trace.gpu_links.library_call, gpu_count);
  trace.gpu_links.category.assign(gpu_count, Category::kOther);

  ThreadSweep sweep(trace);
  CorrelationJoin correlations(trace);
  parallel_run({[&] { sweep.run(); }, [&] { correlations.run(); }});
  IdentifierJoin identifiers(trace);
  identifiers.calls();
  identifiers.activities();

  sweep.overlaps().report(trace.diagnostics, DiagnosticId::kOverlapOnThread,
                          [&](Row row) { return place(trace, trace.ops.name[row], trace.ops.start_ns[row]); });
  correlations.report(trace.diagnostics);
  identifiers.report(trace.diagnostics);
}

}  // namespace llmprof
