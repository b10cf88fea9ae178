// What changes of a program would bring each stage, by replay of its recorded steps (replay/what_if.h).
#pragma once

#include <array>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "analyze/analysis.h"
#include "replay/what_if.h"

namespace llmprof {

Combination combination_of(std::initializer_list<std::string_view> ids);  // which are in the registry
std::string joined_ids(const Combination& combination);

// Of the steps of a stage that were recorded whole and that replay gives back within 5 %.
struct StageGain {
  size_t steps = 0;
  double step_ms = 0, then_ms = 0;  // medians, without the recorder where its cost is known
  double gain_ms = 0;               // median of what each step gains; below 0: it becomes longer
  // What they would take if the long host code that is gone ran in another thread instead, beside them: then_ms where
  // it is shorter.
  double beside_ms = 0;
  // Of the gain, of three steps or more, wider by what replay is off, by what the rates of changed
  // kernels are, and by what equal processes differ.
  std::optional<std::array<double, 2>> ci95_ms;
  std::optional<double> full_pace_frac;  // frac() of the steps at the full pace of their CPU, five or more
  double tokens = 1;                     // that a step makes then, over now
  std::string forbidden;  // why the program cannot be changed so as it is, or what of the change is not known
  double frac() const { return step_ms > 0 ? gain_ms / step_ms : 0; }
};

class Simulation {
 public:
  explicit Simulation(const Context& context);
  ~Simulation();
  Simulation(const Simulation&) = delete;
  Simulation& operator=(const Simulation&) = delete;

  // Row of Groups::stages. Nothing where none of its steps can be replayed.
  std::optional<StageGain> gain(uint32_t stage, const Combination& combination);
  // Where in the program that time goes: Python code that launches what takes less then, and how much less in all of
  // its steps, ns, most first. Kernels count where a change is of kernels, else the host's calls and the code before
  // them.
  struct Place {
    StringId stack = StringId::kEmpty;
    double saved_ns = 0, launches = 0;
  };
  std::vector<Place> places(uint32_t stage, const Combination& combination);
  bool replays(uint32_t stage) const { return !stages_[stage].steps.empty(); }
  // Whether steps of it were recorded whole, but replay does not give them back.
  bool fails(uint32_t stage) const { return stages_[stage].recorded > 0 && !replays(stage); }

 private:
  // The replayed steps of one stage, by their place among all replayed ones.
  struct StageSteps {
    size_t recorded = 0;
    std::vector<size_t> places;
    std::vector<StepId> steps;
    std::vector<double> errors;  // of those that no latency was learned from
  };
  struct Program;  // as recorded, and without the recorder
  struct Changed;
  const Changed& changed(const Combination& combination);

  const Context& context_;
  std::vector<StageSteps> stages_;
  std::unique_ptr<Program> program_;  // made when it is first asked for
  std::map<std::string, std::unique_ptr<Changed>> changes_;
};

}  // namespace llmprof
