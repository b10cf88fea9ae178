// Python that is called back for each line or function (sys.settrace, sys.setprofile): a debugger, coverage, a
// profiler. It makes all Python code slower by a factor that nothing in a recording tells.
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "analyze/finding.h"
#include "base/text_table.h"

namespace llmprof {
namespace {

// Fewer may be a moment in which the program traces something.
constexpr double kTracedMin = 0.5;
constexpr int64_t kPlacesMin = 5;
constexpr double kIdleMin = 0.10;  // of the stage's time: what the GPU does not wait for costs nothing

struct Traced {
  int64_t places = 0, traced = 0;
  std::map<std::string_view, int64_t> hooks;  // "sys.settrace Audit.line (/app/audit.py:7)"
};

std::map<uint32_t, Traced> traced_places(const FindingContext& finding) {
  const Trace& trace = finding.trace();
  const HostPlaces& places = trace.host_places;
  std::map<uint32_t, Traced> out;
  HostCursor host(finding.context.groups);
  for (Row row = 0; row < places.size(); ++row) {
    if (places.stack[row] == StringId::kEmpty) continue;
    Traced& of = out[host.stage_at(places.thread[row], places.start_ns[row])];
    const std::string_view hooks = hooks_of(trace.text(places.stack[row]));
    ++of.places;
    if (hooks.empty()) continue;
    ++of.traced;
    ++of.hooks[hooks];
  }
  return out;
}

}  // namespace

void find_python_traced(const FindingContext& finding) {
  const std::map<uint32_t, Traced> by_stage = traced_places(finding);
  for (const StageView& stage : finding.stages) {
    const auto found = by_stage.find(stage.stage);
    if (found == by_stage.end()) continue;
    const Traced& of = found->second;
    const double traced = static_cast<double>(of.traced), places = static_cast<double>(of.places);
    if (of.places < kPlacesMin || traced < kTracedMin * places) continue;
    const double idle_ns = std::max(0.0, stage.own_ns() - stage.busy_ns());
    if (idle_ns < kIdleMin * stage.own_ns()) continue;
    const std::string_view hook = std::max_element(of.hooks.begin(), of.hooks.end(), [](const auto& a, const auto& b) {
                                    return a.second < b.second;
                                  })->first;
    const size_t space = std::min(hook.find(' '), hook.size());
    const std::string_view setter = hook.substr(0, space), called = hook.substr(std::min(space + 1, hook.size()));
    Finding& out = finding.add(
        "python-traced", &stage,
        fmt::format("{}Python calls {} for each {} ({}), which the GPU waits for", stage.label(), python_place(called),
                    setter == "sys.settrace" ? "line that it runs" : "function that it calls", setter),
        idle_ns);
    out.evidence = {measured("stacks of the stage's calls in which it was set", traced / places, Unit::kFrac),
                    counted("stacks", places, Unit::kOne),
                    measured("idle time of the GPU per step", stage.per_step_ms(idle_ns), Unit::kMs)};
    out.where = {{"python", python_place(called), 0}};
    out.advice = {
        "Run without it (a debugger, coverage, cProfile, a trace function of the program's own) and record again: "
        "times of the host, and findings about them, are of Python slowed down by it, by how much nothing here says.",
        "Where it is needed, set it around the code that it is about only, and take it away with None."};
    out.bound = stage.bound_of_waiting(idle_ns);
  }
}

}  // namespace llmprof
