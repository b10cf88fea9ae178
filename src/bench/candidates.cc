#include "bench/candidates.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <iterator>
#include <memory>
#include <optional>

#include "bench/timing.h"

namespace llmprof::bench {
namespace {

constexpr int kRounds = 3;           // interleaved, so that a drift meets all candidates
constexpr double kScreenUs = 5'000;  // of one candidate in one round
constexpr int kFirstTries = 5;
constexpr double kFirstUs = 50'000;  // at most, or little longer
constexpr int kScreenLaunchesMax = 5;
constexpr size_t kFinalists = 4;
constexpr double kFinalUs = 10'000;  // of one finalist in one round
constexpr int kFinalLaunchesMax = 4096;
// Under a limit: a stretch of its own for each, after the tenth of a second that the power's control takes to answer
// another kernel. Mixed, all have the clock that their mixture leaves, so one that needs more power than the others
// looks faster than it is, by up to 5 percent on an H200. Those that are near after a short timing, clear of the
// control's first corrections, have a whole period.
constexpr double kAnswerS = 0.1, kLookS = 0.12;
constexpr double kNear = 0.025;
constexpr size_t kTurnsMax = 3;
// Before checks: what the screen of a library's algorithms may take, how many of a slow operation it times all the
// same, and how much longer than the best one an algorithm takes that is not timed again.
constexpr double kShortlistUs = 150'000;
constexpr size_t kShortlistMin = 4;
constexpr int kShortlistRounds = 3;
constexpr double kHopeless = 1.3;
constexpr int kRoundBatch = 10;  // samples that are queued at once
// Slower by this before there was a limit: not worth more time. With 8 % two of four convolutions had a period in one
// run, by the time it took, and all in the next, whose winner was 1.6 % faster.
constexpr double kAgainLost = 0.15;
constexpr int kAgainQuickRounds = 2;  // where there is no time for periods
constexpr double kAgainSampleUs = 10'000;
constexpr int kAgainSamples = 12, kAgainSamplesSkipped = 2;
// Of the finalists in isolation: batches one after the other, as large and as many as there is time for.
constexpr int kColdRounds = 8, kColdTrialsMax = 8;
constexpr double kColdChooseS = 0.25;
constexpr double kColdTie = 0.02;   // as near as this: as much again
constexpr double kRunsPerTime = 3;  // of a timing: warm-up, the repetition that is not timed, and the one that is

// What was seen of one candidate. Samples whose threads waited for a core count only while there are no others.
struct Entry {
  size_t position;
  double once_us = 0;  // of the warm-up: what the rounds are sized by
  std::vector<double> us;
  std::vector<device::Sample> waited;

  void add(const device::Sample& sample) {
    if (waited_too_long(sample))
      waited.push_back(sample);
    else
      us.push_back(sample.us);
  }
  void clear() {
    us.clear();
    waited.clear();
  }
  double median() const {
    if (!us.empty()) return median_of(us);
    std::vector<double> all;
    for (const device::Sample& sample : waited) all.push_back(sample.us);
    return median_of(std::move(all));
  }
  double least() const {
    if (!us.empty()) return median();
    double least_us = waited[0].us;
    for (const device::Sample& sample : waited) least_us = std::min(least_us, sample.us - sample.waited_us);
    return std::max(least_us, 0.0);
  }
  Finalist finalist(bool compared = true) const { return {position, median(), least(), compared}; }
};

int launches_for(double us, double budget_us, int most) {
  return static_cast<int>(std::clamp(budget_us / std::max(us, 0.01), 1.0, static_cast<double>(most)));
}

Result<device::Sample> time_once(device::Device& device, const kernels::Candidate& candidate, int sets, int launches) {
  LLMPROF_ASSIGN(const std::vector<device::Sample> samples,
                 device.time_sustained({candidate.enqueue, sets, launches, 1, false}));
  if (samples.empty()) return fail(fmt::format("the device gave no time of {}", candidate.backend));
  return samples[0];
}

bool is_cpu(const device::Device& device) { return device.identity().kind == device::DeviceKind::kCpu; }

// The warm-up: what rounds are sized by. First calls load, compile and allocate; where they take long anyhow, the check
// has made them already. Of a CPU whose threads waited for a core the least of a few, while there is time: by the time
// slice of another program a short kernel would be taken for a thousand times as long.
Result<device::Sample> time_first(device::Device& device, const kernels::Candidate& candidate, int sets) {
  const Stopwatch all(device);
  LLMPROF_ASSIGN(device::Sample least, time_once(device, candidate, sets, 1));
  if (least.us >= kScreenUs && !waited_too_long(least)) return least;
  LLMPROF_ASSIGN(least, time_once(device, candidate, sets, 1));
  for (int tries = 1; tries < kFirstTries && waited_too_long(least) && all.seconds() * 1e6 < kFirstUs; ++tries) {
    LLMPROF_ASSIGN(const device::Sample sample, time_once(device, candidate, sets, 1));
    if (sample.us < least.us) least = sample;
  }
  return least;
}

// One round of one candidate: a GPU's is one sample; a CPU's are as short as those of the regime, so that some lie
// between the time slices that other programs have on its cores.
Status time_round(device::Device& device, const kernels::Candidate& candidate, int sets, int launches, double each_us,
                  Entry& entry) {
  const int most = is_cpu(device) ? sustained_launches(device, {candidate.enqueue, sets, entry.once_us}) : launches;
  if (launches <= most) {
    LLMPROF_ASSIGN(const device::Sample sample, time_once(device, candidate, sets, launches));
    entry.add(sample);
    return {};
  }
  LLMPROF_ASSIGN(const std::unique_ptr<device::Repetitions> loop,
                 device.loop({candidate.enqueue, sets, most, 1, false}));
  const Stopwatch all(device);
  for (int left = launches; left > 0 && (left == launches || all.seconds() * 1e6 < each_us); left -= most) {
    LLMPROF_ASSIGN(const std::vector<device::Sample> samples, loop->time(1));
    if (samples.empty()) return fail(fmt::format("the device gave no time of {}", candidate.backend));
    entry.add(samples[0]);
  }
  return {};
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
Status play_rounds(device::Device& device, kernels::PreparedOp& op, const std::vector<size_t>& index, int sets,
                   const Rounds& plan, int launches_max, std::vector<Entry>& entries, const std::atomic<bool>& stop) {
  if (plan.rounds > 0)
    for (Entry& entry : entries) entry.clear();
  for (int round = 0; round < plan.rounds; ++round) {
    for (Entry& entry : entries) {
      if (stop) return {};
      const int launches = launches_for(entry.once_us, plan.each_us, launches_max);
      const kernels::Candidate& candidate = op.candidates()[index[entry.position]];
      LLMPROF_CHECK(time_round(device, candidate, sets, launches, plan.each_us, entry));
    }
  }
  return {};
}

// A stretch long enough for the clock to follow; its beginning, which has the clock of the one before, is left out.
Result<double> time_held(device::Device& device, const kernels::Candidate& candidate, int sets, double once_us) {
  const int launches = loop_launches({candidate.enqueue, sets, once_us}, kAgainSampleUs);
  LLMPROF_ASSIGN(const std::vector<device::Sample> samples,
                 device.time_sustained({candidate.enqueue, sets, launches, kAgainSamples, false}));
  std::vector<double> us;
  for (size_t i = std::min<size_t>(kAgainSamplesSkipped, samples.size() / 2); i < samples.size(); ++i)
    us.push_back(samples[i].us);
  if (us.empty()) return fail(fmt::format("the device gave no time of {}", candidate.backend));
  return median_of(std::move(us));
}

// A stretch of one candidate by itself.
struct Stretch {
  double seconds = 0;    // at least
  PowerControl control;  // whose corrections it avoids
};
// The mean over it, as it is at its own clock: what comes before the control has answered is not in it.
Result<double> time_alone(device::Device& device, const kernels::Candidate& candidate, int sets, double once_us,
                          const Stretch& stretch, const std::atomic<bool>& stop) {
  const int launches = loop_launches({candidate.enqueue, sets, once_us}, kAgainSampleUs);
  const double sample_s = std::max(once_us * launches, 0.01) * 1e-6;
  LLMPROF_ASSIGN(const std::unique_ptr<device::Repetitions> loop,
                 device.loop({candidate.enqueue, sets, launches, 1, false}));
  // Of at least one sample, and until nothing is left.
  const auto mean_while = [&](const std::function<int64_t()>& left_ns) -> Result<double> {
    double sum_us = 0;
    int64_t count = 0;
    do {
      const double left_s = static_cast<double>(left_ns()) * 1e-9;
      const int queued = static_cast<int>(std::clamp(left_s / sample_s, 1.0, double{kRoundBatch}));
      LLMPROF_ASSIGN(const std::vector<device::Sample> samples, loop->time(queued));
      for (const device::Sample& sample : samples) sum_us += sample.us;
      count += static_cast<int64_t>(samples.size());
      if (samples.empty()) return fail(fmt::format("the device gave no time of {}", candidate.backend));
    } while (!stop && left_ns() > 0);
    return sum_us / static_cast<double>(count);
  };
  const auto in_ns = [&](double seconds) { return device.now_ns() + static_cast<int64_t>(seconds * 1e9); };
  const int64_t answered_ns = in_ns(kAnswerS);
  LLMPROF_CHECK(mean_while([&] {
    const int64_t now_ns = device.now_ns();
    return stretch.control.clear_from(std::max(answered_ns, now_ns), stretch.seconds) - now_ns;
  }));
  const int64_t end_ns = in_ns(stretch.seconds);
  return mean_while([&] { return end_ns - device.now_ns(); });
}

bool faster(const Entry& a, const Entry& b) { return a.median() < b.median(); }

// Whether one that is not chosen may be the faster one by what is known of it.
void find_disturbed(Choice& choice) {
  const auto may_win = [&](const Finalist& one) { return one.position != choice.position && one.least_us < choice.us; };
  choice.disturbed = std::any_of(choice.finalists.begin(), choice.finalists.end(), may_win) ||
                     std::any_of(choice.screened.begin(), choice.screened.end(), may_win);
}

// Of at least one; the entries may be in any order.
Choice best_of(std::vector<Entry> entries) {
  std::stable_sort(entries.begin(), entries.end(), faster);
  Choice choice;
  choice.position = entries[0].position;
  choice.us = entries[0].median();
  for (const Entry& entry : entries) {
    choice.finalists.push_back(entry.finalist());
    if (entry.position == 0 && choice.us > 0) choice.gap_frac = entry.median() / choice.us - 1;
  }
  find_disturbed(choice);
  return choice;
}

// Leaves those within `near` of the fastest, in their order; the others are returned.
std::vector<Entry> keep_near(std::vector<Entry>& entries, double near) {
  const double best_us = std::min_element(entries.begin(), entries.end(), faster)->median();
  const auto behind = std::stable_partition(entries.begin(), entries.end(),
                                            [&](const Entry& entry) { return entry.median() <= (1 + near) * best_us; });
  std::vector<Entry> others(std::make_move_iterator(behind), std::make_move_iterator(entries.end()));
  entries.erase(behind, entries.end());
  return others;
}

// Two rounds of short stretches. Nothing after `stop`.
Result<std::optional<Choice>> choose_quickly(device::Device& device, kernels::PreparedOp& op,
                                             const std::vector<size_t>& index, int sets, std::vector<Entry> entries,
                                             const std::atomic<bool>& stop) {
  for (int round = 0; round < kAgainQuickRounds; ++round) {
    for (Entry& entry : entries) {
      if (stop) return std::nullopt;
      LLMPROF_ASSIGN(const double us, time_held(device, op.candidates()[index[entry.position]], sets, entry.once_us));
      entry.us.push_back(us);
    }
  }
  return best_of(std::move(entries));
}

// A short timing of each, a period for the first of those that are near. Nothing after `stop`.
Result<std::optional<Choice>> choose_by_rounds(device::Device& device, kernels::PreparedOp& op,
                                               const std::vector<size_t>& index, int sets, std::vector<Entry> entries,
                                               double period_s, const PowerControl& control,
                                               const std::atomic<bool>& stop) {
  const auto time = [&](double once_us, size_t position, const Stretch& stretch) {
    return time_alone(device, op.candidates()[index[position]], sets, once_us, stretch, stop);
  };
  const auto time_each = [&](const Stretch& stretch) -> Status {
    for (Entry& entry : entries) {
      if (stop) return {};
      LLMPROF_ASSIGN(const double us, time(entry.once_us, entry.position, stretch));
      entry.us.push_back(us);
    }
    return {};
  };
  LLMPROF_CHECK(time_each({kLookS, control}));
  if (stop) return std::nullopt;
  const Choice first = best_of(entries);
  std::vector<Entry> behind = keep_near(entries, kNear);
  if (entries.size() > kTurnsMax) {
    std::stable_sort(entries.begin(), entries.end(), faster);
    std::move(entries.begin() + kTurnsMax, entries.end(), std::back_inserter(behind));
    entries.resize(kTurnsMax);
  }
  if (entries.size() > 1) {
    for (Entry& entry : entries) entry.clear();
    LLMPROF_CHECK(time_each({period_s, {}}));
    if (stop) return std::nullopt;
  }
  Choice choice = best_of(entries);
  // What is timed next finds the clock that it had here.
  LLMPROF_CHECK(time(choice.us, choice.position, {}));
  std::stable_sort(behind.begin(), behind.end(), faster);
  for (const Entry& entry : behind) {
    choice.finalists.push_back(entry.finalist());
    if (entry.position == 0) choice.gap_frac = first.gap_frac;
  }
  return choice;
}

// What is worth a check, in the library's order: the first that runs, and of the others those that a few isolated runs
// find fastest. What is refused after all is left out.
Result<std::vector<size_t>> worth_checking(device::Device& device, kernels::PreparedOp& op,
                                           const std::atomic<bool>& stop) {
  std::vector<kernels::Candidate>& all = op.candidates();
  std::vector<size_t> order;
  if (op.worth_checking() == kernels::PreparedOp::kEveryCandidate) {
    for (size_t i = 0; i < all.size(); ++i) order.push_back(i);
    return order;
  }
  constexpr double kNotYet = std::numeric_limits<double>::infinity();
  std::vector<double> us(all.size(), kNotYet);
  double best = kNotYet, spent = 0;
  Status refused;
  for (size_t i = 0; i < all.size() && !stop; ++i) {
    if (order.size() >= kShortlistMin && spent > kShortlistUs) break;
    LLMPROF_ASSIGN(const std::unique_ptr<device::Repetitions> trials, device.trials({all[i].enqueue, 1, 1, 1, false}));
    for (const int rounds : {1, kShortlistRounds - 1}) {
      if (us[i] > kHopeless * best && rounds > 1) break;
      const Result<std::vector<device::Sample>> samples = trials->time(rounds);
      if (!samples) {
        refused = tl::unexpected<Error>(samples.error());
        break;
      }
      for (const device::Sample& sample : *samples) us[i] = std::min(us[i], sample.us);
      spent += us[i] * (rounds + 1);  // and one to warm up
    }
    if (us[i] == kNotYet) continue;
    best = std::min(best, us[i]);
    order.push_back(i);
  }
  if (order.empty() && !refused) return tl::unexpected<Error>(refused.error());
  if (order.size() <= op.worth_checking()) return order;
  std::stable_sort(order.begin() + 1, order.end(), [&](size_t a, size_t b) { return us[a] < us[b]; });
  order.resize(op.worth_checking());
  std::sort(order.begin() + 1, order.end());
  return order;
}

}  // namespace

RightCandidates check_candidates(device::Device& device, kernels::PreparedOp& op, const std::atomic<bool>& stop) {
  RightCandidates out;
  const Result<std::vector<size_t>> worth = worth_checking(device, op, stop);
  if (!worth) {
    out.note = worth.error().what;
    return out;
  }
  bool mistrusted = false, failed = false;
  for (const size_t i : *worth) {
    if (stop) break;
    const std::string& backend = op.candidates()[i].backend;
    const auto leave_out = [&](const std::string& why) {
      out.note += fmt::format("{}{}: {}", out.note.empty() ? "" : "; ", backend, why);
    };
    Result<kernels::Check> check = op.check(i);
    if (!check) {
      leave_out(check.error().what);
      continue;
    }
    if (check->status == kernels::CheckStatus::kFailed) {
      failed = true;
      leave_out(fmt::format(
          "wrong results, {}",
          check->note.empty() ? fmt::format("{:.3g} times the tolerance", check->worst_over_tolerance) : check->note));
      continue;
    }
    mistrusted |= check->status == kernels::CheckStatus::kMistrusted;
    if (check->status == kernels::CheckStatus::kMistrusted && !check->note.empty()) leave_out(check->note);
    out.index.push_back(i);
    out.checks.push_back(*std::move(check));
  }
  out.status = out.index.empty() ? (failed ? CaseStatus::kFailed : CaseStatus::kError)
               : mistrusted      ? CaseStatus::kMistrusted
                                 : CaseStatus::kPassed;
  return out;
}

Result<Choice> choose_candidate(device::Device& device, kernels::PreparedOp& op, const std::vector<size_t>& index,
                                int sets, double budget_s, const std::atomic<bool>& stop) {
  std::vector<Entry> entries;
  std::vector<Finalist> screened;
  for (size_t i = 0; i < index.size() && !stop; ++i) {
    const kernels::Candidate& candidate = op.candidates()[index[i]];
    LLMPROF_ASSIGN(const device::Sample first, time_first(device, candidate, sets));
    entries.push_back({i, first.us, {}, {}});
    entries.back().add(first);
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
    for (size_t i = finalists.size(); i < entries.size(); ++i) {
      if (entries[i].position == 0)
        finalists.push_back(entries[i]);
      else
        screened.push_back(entries[i].finalist(false));
    }
    entries = std::move(finalists);
    for (Entry& entry : entries) entry.once_us = entry.median();
  }
  // The times of slow candidates are good enough after one round, and those of one candidate alone size its batches.
  Rounds last = plan_rounds(entries, half_us, kFinalUs);
  last.rounds = std::max(last.rounds, 1);
  LLMPROF_CHECK(play_rounds(device, op, index, sets, last, kFinalLaunchesMax, entries, stop));
  if (stop) return Choice{};
  Choice choice = best_of(entries);
  choice.screened = std::move(screened);
  find_disturbed(choice);
  return choice;
}

Result<Choice> choose_again(device::Device& device, kernels::PreparedOp& op, const std::vector<size_t>& index, int sets,
                            const Choice& before, const Protocol& protocol, const PowerControl& control,
                            const std::atomic<bool>& stop) {
  if (before.finalists.size() < 2) return before;
  const bool quick = protocol.held_down_s < protocol.period_s;
  std::vector<Entry> entries;
  const auto add_near = [&](const std::vector<Finalist>& of) {
    for (const Finalist& one : of)
      if (one.us <= (1 + kAgainLost) * before.us) entries.push_back({one.position, before.us, {}, {}});
  };
  add_near(before.finalists);
  // The quick round saw mixed clocks: of eight products of 4096 x 28672 the fastest by itself was not among four.
  if (!quick) add_near(before.screened);
  if (entries.size() < 2) return before;
  LLMPROF_ASSIGN(std::optional<Choice> chosen, quick ? choose_quickly(device, op, index, sets, std::move(entries), stop)
                                                     : choose_by_rounds(device, op, index, sets, std::move(entries),
                                                                        protocol.period_s, control, stop));
  if (!chosen) return before;
  Choice choice = *std::move(chosen);
  // Those that were far behind stay so.
  for (const Finalist& finalist : before.finalists) {
    if (finalist.us <= (1 + kAgainLost) * before.us) continue;
    choice.finalists.push_back({finalist.position, finalist.us, finalist.least_us, false});
    if (finalist.position == 0) choice.gap_frac = finalist.us / before.us - 1;
  }
  return choice;
}

Result<Choice> choose_cold(device::Device& device, kernels::PreparedOp& op, const std::vector<size_t>& index, int sets,
                           const Choice& warm, const Protocol& protocol, const std::atomic<bool>& stop) {
  if (warm.finalists.size() < 2) return warm;
  std::vector<Entry> entries;
  for (const Finalist& finalist : warm.finalists)
    if (entries.size() < kFinalists || finalist.position == 0) entries.push_back({finalist.position, warm.us, {}, {}});
  std::vector<std::unique_ptr<device::Repetitions>> trials_of;
  for (const Entry& entry : entries) {
    const Work work{op.candidates()[index[entry.position]].enqueue, sets, entry.once_us};
    LLMPROF_ASSIGN(std::unique_ptr<device::Repetitions> trials,
                   device.trials({work.enqueue, sets, cold_launches(work), 1, true}));
    trials_of.push_back(std::move(trials));
  }
  double trial_s = kColdChooseS;  // with what lies between; the first batches are of one trial
  const auto rounds = [&]() -> Status {
    const Stopwatch all(device);
    for (int round = 0; round < kColdRounds && (round == 0 || all.seconds() < kColdChooseS); ++round) {
      for (size_t i = 0; i < entries.size(); ++i) {
        if (stop) return {};
        const double each_s = kColdChooseS / (kColdRounds * static_cast<double>(entries.size()));
        const int trials = launches_for(trial_s * 1e6, each_s * 1e6, kColdTrialsMax);
        const Stopwatch each(device);
        LLMPROF_ASSIGN(const std::vector<device::Sample> samples, trials_of[i]->time(trials));
        for (const device::Sample& sample : samples) entries[i].add(sample);
        if (samples.empty()) return fail("the device gave no times");
        const double busy_s = each.seconds();
        trial_s = busy_s / trials;
        rest(device, busy_s, protocol.cold_duty_max);
      }
    }
    return {};
  };
  // A GPU that was held down has less than its clock for a moment.
  if (held_down(device.telemetry(device.now_ns() - kLookBackNs))) rest(device, kColdChooseS, protocol.cold_duty_max);
  LLMPROF_CHECK(rounds());
  if (stop) return warm;
  Choice choice = best_of(entries);
  const auto near = [&](const Entry& entry) { return entry.median() <= (1 + kColdTie) * choice.us; };
  if (std::count_if(entries.begin(), entries.end(), near) > 1) {
    LLMPROF_CHECK(rounds());
    if (stop) return warm;
    choice = best_of(entries);
  }
  return choice;
}

}  // namespace llmprof::bench
