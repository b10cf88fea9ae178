#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <string_view>
#include <utility>

#include "base/nearest.h"
#include "diff/diff.h"

namespace llmprof::diff {
namespace {

constexpr const char* kGrammar =
    "METRIC>N% with METRIC ttft, tpot or rate: worse by more than N %; slower:N%: any stage slower by more than N %; "
    "several with commas";

struct GateName {
  std::string_view name;
  Gate::What what;
  char between;
};
constexpr std::array kGateNames = {GateName{"ttft", Gate::What::kTtft, '>'}, GateName{"tpot", Gate::What::kTpot, '>'},
                                   GateName{"rate", Gate::What::kRate, '>'},
                                   GateName{"slower", Gate::What::kAnyStage, ':'}};

tl::unexpected<Error> bad_gate(const std::string& what, const std::string& word, const std::string& advice) {
  return fail(what, "--fail-on \"" + word + "\"", advice, ExitCode::kUsage);
}

Result<Gate> parse_gate(const std::string& word) {
  const size_t at = word.find_first_of(">:<=");
  const std::string name = word.substr(0, at);
  const auto known =
      std::find_if(kGateNames.begin(), kGateNames.end(), [&](const GateName& one) { return one.name == name; });
  if (known == kGateNames.end()) {
    std::vector<std::string> names;
    for (const GateName& one : kGateNames) names.emplace_back(one.name);
    return bad_gate("expected ttft, tpot, rate or slower, found \"" + name + "\"", word,
                    did_you_mean(nearest_names(name, names, 1)) + kGrammar);
  }
  if (at == std::string::npos || word[at] != known->between)
    return bad_gate(fmt::format("expected {}{}N%, found \"{}\"", known->name, known->between, word), word, kGrammar);
  std::string number = word.substr(at + 1);
  if (!number.ends_with('%'))
    return bad_gate(fmt::format("expected a share that ends in %, found \"{}\"", number), word, kGrammar);
  number.pop_back();
  double value = 0;
  const auto [end, failed] = std::from_chars(number.data(), number.data() + number.size(), value);
  if (failed != std::errc() || end != number.data() + number.size() || !std::isfinite(value) || value < 0 ||
      value > 1000)
    return bad_gate(fmt::format("expected a number of 0 to 1000 before %, found \"{}\"", number), word, kGrammar);
  return Gate{known->what, value / 100, word};
}

bool concerns(const Gate& gate, const DiffStage& row) {
  switch (gate.what) {
    case Gate::What::kTtft:
      return row.metric == DiffMetric::kTtft;
    case Gate::What::kTpot:
      return row.metric == DiffMetric::kTpot;
    case Gate::What::kRate:
      return row.metric == DiffMetric::kRate;
    case Gate::What::kAnyStage:
      return row.metric != DiffMetric::kRate;
  }
  return false;
}

// How much worse: for rates less is.
std::pair<double, double> worse(const DiffStage& row) {
  const std::array<double, 2> interval = row.ci95.value_or(std::array<double, 2>{0, 0});
  return row.metric == DiffMetric::kRate ? std::pair(-interval[1], -interval[0]) : std::pair(interval[0], interval[1]);
}

std::string in_words(const DiffStage& row) {
  const std::array<double, 2> interval = row.ci95.value_or(std::array<double, 2>{0, 0});
  return fmt::format("{} {} {:+.1f} % ({:+.1f} to {:+.1f} %)", std::string(row.kind), name_of(row.metric),
                     100 * row.change_frac.value_or(0), 100 * interval[0], 100 * interval[1]);
}

}  // namespace

Result<std::vector<Gate>> parse_gates(const std::vector<std::string>& words) {
  std::vector<Gate> out;
  for (const std::string& whole : words) {
    for (size_t from = 0; from <= whole.size();) {
      const size_t comma = std::min(whole.find(',', from), whole.size());
      std::string word = whole.substr(from, comma - from);
      std::erase(word, ' ');
      LLMPROF_ASSIGN(Gate gate, parse_gate(word));
      out.push_back(std::move(gate));
      from = comma + 1;
    }
  }
  return out;
}

std::vector<DiffGate> judge(const std::vector<Gate>& gates, const DiffResult& result) {
  std::vector<DiffGate> out;
  for (size_t side = 1; side < result.sides.size(); ++side) {
    for (const Gate& gate : gates) {
      DiffGate& row = out.emplace_back();
      row.side = static_cast<int64_t>(side);
      row.expression = gate.expression;
      row.state = GateState::kAmbiguous;
      const DiffStage* broken = nullptr;
      const DiffStage* doubtful = nullptr;
      const DiffStage* worst = nullptr;
      const DiffStage* unsure = nullptr;  // of which nothing is known
      const std::optional<double> clock = clock_difference(result, side);
      const double slack = clock.value_or(0);
      for (const DiffStage& stage : result.stages) {
        if (stage.side != row.side || !concerns(gate, stage)) continue;
        if (!stage.ci95) {
          if (unsure == nullptr) unsure = &stage;
          continue;
        }
        const auto [low, high] = worse(stage);
        if (low - slack > gate.limit_frac && (broken == nullptr || low > worse(*broken).first)) broken = &stage;
        if (low - slack <= gate.limit_frac && high + slack > gate.limit_frac && doubtful == nullptr) doubtful = &stage;
        if (worst == nullptr || high > worse(*worst).second) worst = &stage;
      }
      if (worst == nullptr) {
        row.reason = unsure != nullptr ? unsure->reason : "not both sides have it, of like requests";
      } else if (broken != nullptr) {
        row.state = GateState::kBroken;
        row.reason = in_words(*broken);
      } else if (doubtful != nullptr) {
        row.reason = in_words(*doubtful) + (slack > 0 ? fmt::format(", of which {:.1f} % may be the clock", 100 * slack)
                                                      : ": more repeats a side would tell");
      } else if (unsure != nullptr) {
        row.reason = unsure->reason;
      } else {
        row.state = GateState::kHolds;
        row.reason = in_words(*worst);
      }
      if (row.state != GateState::kAmbiguous && !clock) {
        row.state = GateState::kAmbiguous;
        row.reason += "; but the machines differ: " + result.comparable.differs.front();
      }
    }
  }
  return out;
}

}  // namespace llmprof::diff
