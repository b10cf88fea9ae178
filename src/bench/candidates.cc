#include "bench/candidates.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>

#include "bench/timing.h"

namespace llmprof::bench {
namespace {

constexpr int kRounds = 3;           // interleaved, so that a drift meets all candidates
constexpr double kScreenUs = 5'000;  // of one candidate in one round
constexpr int kScreenLaunchesMax = 5;
constexpr size_t kFinalists = 3;
constexpr double kFinalUs = 10'000;  // of one finalist in one round
constexpr int kFinalLaunchesMax = 4096;
// Of the finalists under a limit. A round of them is shorter than a turn of the power's control, several are longer;
// what a finalist's own power makes of the clock shows after some tens of milliseconds.
constexpr int kAgainRounds = 6, kAgainRoundsAll = 2;
constexpr double kAgainLongS = 1;    // who measures for less than a turn wants no more than the rounds of all
constexpr double kAgainLost = 0.03;  // slower by this after the rounds of all: not worth more of them
constexpr double kAgainSampleUs = 10'000;
constexpr int kAgainSamples = 12, kAgainSamplesSkipped = 2;
// Of the finalists in isolation: batches in turn, as large and as many as there is time for.
constexpr int kColdRounds = 8, kColdTrialsMax = 8;
constexpr double kColdChooseS = 0.25;
constexpr double kRunsPerTime = 3;  // of a timing: warm-up, the repetition that is not timed, and the one that is

struct Entry {
  size_t position;
  double once_us = 0;  // of the warm-up: what the rounds are sized by
  std::vector<double> us;
  bool lost = false;
  double median() const { return median_of(us); }
};

int launches_for(double us, double budget_us, int most) {
  return static_cast<int>(std::clamp(budget_us / std::max(us, 0.01), 1.0, static_cast<double>(most)));
}

Result<double> time_once(device::Device& device, const device::Candidate& candidate, int sets, int launches) {
  LLMPROF_ASSIGN(const std::vector<device::Sample> samples,
                 device.time_sustained({candidate.enqueue, sets, launches, 1, false}));
  if (samples.empty()) return fail(fmt::format("the device gave no time of {}", candidate.backend));
  return samples[0].us;
}

struct Rounds {
  int rounds = 0;  // 0: nothing is played
  double each_us = 0;
};
// As many rounds as the budget allows for, up to kRounds, and what one entry may take in one of them.
Rounds plan_rounds(const std::vector<Entry>& entries, double budget_us, double each_us_max) {
  double once_us = 0;
  for (const Entry& entry : entries) once_us += entry.once_us;
  Rounds plan;
  plan.rounds = static_cast<int>(std::clamp(budget_us / (kRunsPerTime * std::max(once_us, 1.0)), 0.0, double{kRounds}));
  if (plan.rounds > 0)
    plan.each_us = std::min(each_us_max, budget_us / (2.0 * plan.rounds * static_cast<double>(entries.size())));
  return plan;
}

// Times of the entries, one in each round; an error if one cannot be run any more.
Status play_rounds(device::Device& device, device::PreparedOp& op, const std::vector<size_t>& index, int sets,
                   const Rounds& plan, int launches_max, std::vector<Entry>& entries, const std::atomic<bool>& stop) {
  if (plan.rounds > 0)
    for (Entry& entry : entries) entry.us.clear();
  for (int round = 0; round < plan.rounds; ++round) {
    for (Entry& entry : entries) {
      if (stop) return {};
      const int launches = launches_for(entry.once_us, plan.each_us, launches_max);
      LLMPROF_ASSIGN(const double us, time_once(device, op.candidates()[index[entry.position]], sets, launches));
      entry.us.push_back(us);
    }
  }
  return {};
}

// A stretch long enough for the clock to follow; its beginning, which has the clock of the one before, is left out.
Result<double> time_held(device::Device& device, const device::Candidate& candidate, int sets, double once_us) {
  const int launches = launches_for(once_us, kAgainSampleUs, kFinalLaunchesMax);
  LLMPROF_ASSIGN(const std::vector<device::Sample> samples,
                 device.time_sustained({candidate.enqueue, sets, launches, kAgainSamples, false}));
  std::vector<double> us;
  for (size_t i = std::min<size_t>(kAgainSamplesSkipped, samples.size() / 2); i < samples.size(); ++i)
    us.push_back(samples[i].us);
  if (us.empty()) return fail(fmt::format("the device gave no time of {}", candidate.backend));
  return median_of(std::move(us));
}

bool faster(const Entry& a, const Entry& b) { return a.median() < b.median(); }

Choice best_of(const std::vector<Entry>& entries) {
  const Entry& best = *std::min_element(entries.begin(), entries.end(), faster);
  Choice choice{best.position, best.median(), 0, {}};
  for (const Entry& entry : entries) {
    choice.finalists.push_back(entry.position);
    if (entry.position == 0 && choice.us > 0) choice.gap_frac = entry.median() / choice.us - 1;
  }
  return choice;
}

}  // namespace

RightCandidates check_candidates(device::PreparedOp& op, const std::atomic<bool>& stop) {
  RightCandidates out;
  bool mistrusted = false, failed = false;
  for (size_t i = 0; i < op.candidates().size() && !stop; ++i) {
    const std::string& backend = op.candidates()[i].backend;
    const auto leave_out = [&](const std::string& why) {
      out.note += fmt::format("{}{}: {}", out.note.empty() ? "" : "; ", backend, why);
    };
    Result<device::Check> check = op.check(i);
    if (!check) {
      leave_out(check.error().what);
      continue;
    }
    if (check->status == device::CheckStatus::kFailed) {
      failed = true;
      leave_out(fmt::format(
          "wrong results, {}",
          check->note.empty() ? fmt::format("{:.3g} times the tolerance", check->worst_over_tolerance) : check->note));
      continue;
    }
    mistrusted |= check->status == device::CheckStatus::kMistrusted;
    if (check->status == device::CheckStatus::kMistrusted && !check->note.empty()) leave_out(check->note);
    out.index.push_back(i);
    out.checks.push_back(*std::move(check));
  }
  out.status = out.index.empty() ? (failed ? CaseStatus::kFailed : CaseStatus::kError)
               : mistrusted      ? CaseStatus::kMistrusted
                                 : CaseStatus::kPassed;
  return out;
}

Result<Choice> choose_candidate(device::Device& device, device::PreparedOp& op, const std::vector<size_t>& index,
                                int sets, double budget_s, const std::atomic<bool>& stop) {
  std::vector<Entry> entries;
  for (size_t i = 0; i < index.size() && !stop; ++i) {
    const device::Candidate& candidate = op.candidates()[index[i]];
    LLMPROF_ASSIGN(double us, time_once(device, candidate, sets, 1));
    // First calls load, compile and allocate; where they take long anyhow, the check has made them already.
    if (us < kScreenUs) {
      LLMPROF_ASSIGN(us, time_once(device, candidate, sets, 1));
    }
    entries.push_back({i, us, {us}});
  }
  if (stop) return Choice{};
  const double half_us = budget_s * 1e6 / 2;
  if (entries.size() > 1) {
    LLMPROF_CHECK(play_rounds(device, op, index, sets, plan_rounds(entries, half_us, kScreenUs), kScreenLaunchesMax,
                              entries, stop));
    if (stop) return Choice{};
    std::stable_sort(entries.begin(), entries.end(), faster);
    std::vector<Entry> finalists(entries.begin(),
                                 entries.begin() + static_cast<std::ptrdiff_t>(std::min(kFinalists, entries.size())));
    for (size_t i = finalists.size(); i < entries.size(); ++i)
      if (entries[i].position == 0) finalists.push_back(entries[i]);
    entries = std::move(finalists);
    for (Entry& entry : entries) entry.once_us = entry.median();
  }
  // The times of slow candidates are good enough after one round, and those of one candidate alone size its batches.
  Rounds last = plan_rounds(entries, half_us, kFinalUs);
  last.rounds = std::max(last.rounds, 1);
  LLMPROF_CHECK(play_rounds(device, op, index, sets, last, kFinalLaunchesMax, entries, stop));
  if (stop) return Choice{};
  return best_of(entries);
}

Result<Choice> choose_again(device::Device& device, device::PreparedOp& op, const std::vector<size_t>& index, int sets,
                            const Choice& before, double held_down_s, const std::atomic<bool>& stop) {
  if (before.finalists.size() < 2) return before;
  std::vector<Entry> entries;
  for (const size_t position : before.finalists) entries.push_back({position, before.us, {}});
  const int rounds = held_down_s < kAgainLongS ? kAgainRoundsAll : kAgainRounds;
  for (int round = 0; round < rounds; ++round) {
    for (Entry& entry : entries) {
      if (stop) return before;
      if (entry.lost) continue;
      LLMPROF_ASSIGN(const double us, time_held(device, op.candidates()[index[entry.position]], sets, entry.once_us));
      entry.us.push_back(us);
    }
    if (round + 1 != kAgainRoundsAll) continue;
    const double best_us = std::min_element(entries.begin(), entries.end(), faster)->median();
    for (Entry& entry : entries) entry.lost = entry.median() > (1 + kAgainLost) * best_us;
    if (std::count_if(entries.begin(), entries.end(), [](const Entry& entry) { return !entry.lost; }) == 1) break;
  }
  return best_of(entries);
}

Result<Choice> choose_cold(device::Device& device, device::PreparedOp& op, const std::vector<size_t>& index, int sets,
                           const Choice& warm, double duty_max, const std::atomic<bool>& stop) {
  if (warm.finalists.size() < 2) return warm;
  using Clock = std::chrono::steady_clock;
  std::vector<Entry> entries;
  for (const size_t position : warm.finalists) entries.push_back({position, warm.us, {}});
  const Clock::time_point start = Clock::now();
  const auto spent_s = [&](Clock::time_point since) {
    return std::chrono::duration<double>(Clock::now() - since).count();
  };
  double trial_s = kColdChooseS;  // with what lies between; the first batches are of one trial
  for (int round = 0; round < kColdRounds && (round == 0 || spent_s(start) < kColdChooseS); ++round) {
    for (Entry& entry : entries) {
      if (stop) return warm;
      const Work work{op.candidates()[index[entry.position]].enqueue, sets, entry.once_us};
      const double each_s = kColdChooseS / (kColdRounds * static_cast<double>(entries.size()));
      const int trials = launches_for(trial_s * 1e6, each_s * 1e6, kColdTrialsMax);
      const Clock::time_point before = Clock::now();
      LLMPROF_ASSIGN(const std::vector<device::Sample> samples,
                     device.time_cold({work.enqueue, sets, cold_launches(work), trials, true}));
      for (const device::Sample& sample : samples) entry.us.push_back(sample.us);
      if (samples.empty()) return fail("the device gave no times");
      trial_s = spent_s(before) / trials;
      rest(device, spent_s(before), duty_max);
    }
  }
  return best_of(entries);
}

}  // namespace llmprof::bench
