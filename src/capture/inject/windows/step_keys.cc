#include "capture/inject/windows/step_keys.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>

namespace llmprof::inject {
namespace {

constexpr int64_t kMillisecond = 1'000'000, kSecond = 1'000'000'000;
// Fewer occurrences say nothing about what is usual.
constexpr uint32_t kUsualLeast = 3;
// How many steady ones are wanted of a key: so many as come within a second, within these bounds.
constexpr uint32_t kWantedLeast = 5, kWantedMost = 20, kSeldomLeast = 3;
constexpr int64_t kWantedWithinNs = kSecond, kHoldersWithinNs = kSecond / 2;
// So many times what is wanted recorded whole without being steady: then steadiness is not waited for any longer.
constexpr uint32_t kWholeEnough = 3;
// Of kernels, which come by the hundred while a model loads, what lies around them tells, not only between two of one
// function; and none counts that is disturbed.
constexpr int64_t kKernelsQuietNs = kSecond;
// A level below this share of the one that counting began at: what was counted was warm-up. Not for ever: a key may
// have two levels.
constexpr double kLowerLevel = 0.75;
constexpr uint32_t kRestartsMost = 4;
// Keys that did not come for three of their periods, and not for so long, are over.
constexpr int64_t kAliveLeastNs = kSecond;
// A first occurrence may take so long before it is taken for the program rather than a step of it.
constexpr int64_t kFirstOpenMostNs = 30 * kSecond;
constexpr int64_t kLongPeriodNs = 200 * kMillisecond;
constexpr uint32_t kPaceLeast = 8;
constexpr uint32_t kShapesMost = 12;

uint32_t loaded(const std::atomic<uint32_t>& value) { return value.load(std::memory_order_relaxed); }
int64_t loaded(const std::atomic<int64_t>& value) { return value.load(std::memory_order_relaxed); }
void store(std::atomic<int64_t>& to, int64_t value) { to.store(value, std::memory_order_relaxed); }
void count_up(std::atomic<uint32_t>& counter) { counter.fetch_add(1, std::memory_order_relaxed); }

uint32_t wanted_of(const StepKey& key, int64_t period_ns) {
  const bool holder = key.holds_steps.load(std::memory_order_relaxed);
  return static_cast<uint32_t>(
      std::clamp<int64_t>((holder ? kHoldersWithinNs : kWantedWithinNs) / std::max<int64_t>(period_ns, 1),
                          holder ? kSeldomLeast : kWantedLeast, kWantedMost));
}

bool is_container(const StepKey& key) {
  return key.container.load(std::memory_order_relaxed) &&
         (key.time.count() == 0 || key.time.median_ns() >= StepKeys::kContainerNs);
}

bool is_alive(const StepKey& key, int64_t now_ns) {
  if (is_container(key)) return false;
  const int64_t since_ns = now_ns - loaded(key.last_begin_ns);
  if (loaded(key.open) > 0 && since_ns <= std::max(kFirstOpenMostNs, 3 * key.time.median_ns())) return true;
  return loaded(key.seen) >= 2 && since_ns <= std::max(kAliveLeastNs, 3 * key.period.median_ns());
}

// An allocation in most occurrences is part of the step, one now and then disturbs it.
bool disturbed(StepKey& key, int64_t begin_ns, int64_t disturbed_ns) {
  if (key.kind.load(std::memory_order_relaxed) == KeyKind::kKernel)
    return disturbed_ns != 0 && disturbed_ns >= begin_ns - kKernelsQuietNs;
  const bool now = disturbed_ns >= begin_ns;
  const uint32_t before = loaded(key.disturbed_bits);
  key.disturbed_bits.store(before << 1 | (now ? 1U : 0U), std::memory_order_relaxed);
  return now && __builtin_popcount(before & 0xFFU) < 4;
}

// Counting begins anew where the key has become that much faster than when it began, with and without recording.
void follow_level(StepKey& key) {
  const int64_t level_ns = key.time.median_ns(), counted_ns = loaded(key.counted_ns);
  if (counted_ns == 0) return store(key.counted_ns, level_ns);
  if (static_cast<double>(level_ns) >= kLowerLevel * static_cast<double>(counted_ns) ||
      loaded(key.restarts) >= kRestartsMost)
    return;
  store(key.counted_ns, level_ns);
  count_up(key.restarts);
  key.whole.store(0, std::memory_order_relaxed);
  key.steady.store(0, std::memory_order_relaxed);
  key.steady_rounds.store(0, std::memory_order_relaxed);
  key.early_bits.store(0, std::memory_order_relaxed);
  key.recorded.clear();
  key.unrecorded.clear();
}

void count_recorded(StepKey& key, int64_t pace_ns, bool steady) {
  count_up(key.whole);
  if (!steady) return;
  count_up(key.steady);
  key.recorded.add(pace_ns);
}

// When a key comes again: of calls that come many times a round, the time between rounds tells.
const Usual& comes_every(const StepKey& key) {
  return key.kind.load(std::memory_order_relaxed) == KeyKind::kRecurring && key.round.count() != 0 ? key.round
                                                                                                   : key.period;
}

// So long after it came last a key may still come. One interval alone, that from a warm-up to the first request as
// often as not, is no promise.
int64_t patience_ns(const StepKey& key) {
  const int64_t period_ns = comes_every(key).median_ns();
  return comes_every(key).count() < 2 ? period_ns + period_ns / 4 : 3 * period_ns;
}

// When a key with a long period must be waited for.
int64_t due_of(const StepKey& key) {
  const int64_t last_ns = loaded(key.last_begin_ns), period_ns = comes_every(key).median_ns();
  const int64_t early_ns = std::min(comes_every(key).spread_ns() + period_ns / 20 + 50 * kMillisecond, period_ns / 2);
  return std::max(last_ns + period_ns - early_ns, last_ns + 1);
}

}  // namespace

void Usual::add(int64_t value_ns) {
  const uint32_t at = count_.fetch_add(1, std::memory_order_relaxed);
  latest_[at % kKept].store(value_ns, std::memory_order_relaxed);
  if (at >= kKept && at % 8 != 0) return;
  const uint32_t known = std::min(at + 1, kKept);
  int64_t sorted[kKept];
  for (uint32_t i = 0; i < known; ++i) sorted[i] = latest_[i].load(std::memory_order_relaxed);
  std::sort(sorted, sorted + known);
  median_ns_.store(sorted[known / 2], std::memory_order_relaxed);
  spread_ns_.store((sorted[3 * known / 4] - sorted[known / 4]) * 3 / 2, std::memory_order_relaxed);
}

double Usual::error_ns() const {
  const double known = std::min(std::max(count(), 1U), kKept);
  // 1.25 standard deviations over the root of how many; 1.35 of them lie between the quartiles.
  return 1.25 * static_cast<double>(spread_ns()) / 1.5 / 1.35 / std::sqrt(known);
}

bool Usual::holds(int64_t value_ns) const {
  const int64_t off_ns = value_ns > median_ns() ? value_ns - median_ns() : median_ns() - value_ns;
  return off_ns <= std::max(spread_ns(), median_ns() / 4);
}

uint32_t StepKey::wanted() const {
  return period.count() == 0 || period.median_ns() <= 0 ? kWantedLeast : wanted_of(*this, period.median_ns());
}

bool StepKey::enough() const { return loaded(steady) >= wanted() || loaded(whole) >= kWholeEnough * wanted(); }

uint32_t StepKey::wanted_rounds() const {
  return round.count() == 0 ? kWantedMost : wanted_of(*this, round.median_ns());
}

bool StepKey::enough_rounds() const { return loaded(steady_rounds) >= wanted_rounds(); }

StepKey* StepKeys::place(KeyKind kind, uint64_t hash) {
  hash |= 1;  // 0 is a free place
  for (size_t i = 0; i < 8; ++i) {
    StepKey& key = keys_[(hash + i) % kKeys];
    uint64_t known = key.hash.load(std::memory_order_relaxed);
    if (known == hash) return &key;
    if (known != 0) continue;
    if (key.hash.compare_exchange_strong(known, hash, std::memory_order_relaxed)) {
      key.kind.store(kind, std::memory_order_relaxed);
      return &key;
    }
    if (known == hash) return &key;
  }
  return nullptr;
}

StepKey* StepKeys::find(KeyKind kind, uint64_t stage, uint64_t shape) {
  if (shape == 0) return place(kind, stage);
  // Where every batch is another one, the shapes would fill the table and none would come often enough.
  const uint32_t slot = static_cast<uint32_t>(stage % kKeys);
  const uint64_t both = (stage ^ shape * 0x9E3779B97F4A7C15ULL) | 1;
  for (size_t i = 0; i < 8; ++i)
    if (keys_[(both + i) % kKeys].hash.load(std::memory_order_relaxed) == both) return &keys_[(both + i) % kKeys];
  if (shapes_[slot].fetch_add(1, std::memory_order_relaxed) >= kShapesMost) return place(kind, stage);
  return place(kind, both);
}

void StepKeys::begins(StepKey& key, int64_t now_ns, int64_t disturbed_ns) {
  if (key.seen.fetch_add(1, std::memory_order_relaxed) != 0)
    key.period.add(now_ns - loaded(key.last_begin_ns));
  else
    store(key.first_begin_ns, now_ns);
  store(key.last_begin_ns, now_ns);
  count_up(key.open);
  if (key.kind.load(std::memory_order_relaxed) != KeyKind::kKernel) count_round(key, now_ns, disturbed_ns);
}

bool StepKeys::looks_within(StepKey& outer) {
  if (outer.time.count() != 0 && outer.time.median_ns() < kContainerNs &&
      !outer.holds_steps.load(std::memory_order_relaxed))
    return false;
  outer.container.store(true, std::memory_order_relaxed);
  return true;
}

void StepKeys::begins_within(StepKey& key, StepKey& outer, int64_t outer_begin_ns) {
  if (loaded(key.within_ns) != outer_begin_ns) {
    store(key.within_ns, outer_begin_ns);
    key.rounds_before.store(loaded(key.rounds) - 1, std::memory_order_relaxed);
  } else if (loaded(key.rounds) - loaded(key.rounds_before) >= kSeldomLeast) {
    outer.holds_steps.store(true, std::memory_order_relaxed);
  }
}

void StepKeys::waited(int64_t now_ns) {
  waits_.fetch_add(1, std::memory_order_relaxed);
  store(last_wait_ns_, now_ns);
}

void StepKeys::count_round(StepKey& key, int64_t now_ns, int64_t disturbed_ns) {
  const uint64_t round = waits_.load(std::memory_order_relaxed) + 1,
                 before = key.round_at.load(std::memory_order_relaxed);
  const int64_t since_ns = now_ns - loaded(key.round_begin_ns);
  if (round == before) {
    // Waits are not seen while CUPTI is away: then what goes on for longer than it takes to come and go recurs. Where
    // code was loaded meanwhile, that is what took so long.
    if (disturbed_ns >= loaded(key.round_begin_ns)) store(key.round_begin_ns, now_ns);
    if (now_ns - loaded(key.round_begin_ns) < kLongPeriodNs) return;
  }
  if (before != 0 && round != before) key.round.add(since_ns);
  count_up(key.rounds);
  key.round_at.store(round, std::memory_order_relaxed);
  store(key.round_begin_ns, now_ns);
}

// Whether an occurrence that was recorded whole and steady is the first of its round. Of calls, nothing may have
// happened since the last wait either.
bool StepKeys::is_new_steady_round(const StepKey& key, const Conditions& conditions) const {
  const uint64_t round = waits_.load(std::memory_order_relaxed) + 1;
  const KeyKind kind = key.kind.load(std::memory_order_relaxed);
  if (kind == KeyKind::kKernel || round == 1 || round == key.steady_round_at.load(std::memory_order_relaxed))
    return false;
  return kind != KeyKind::kRecurring || conditions.disturbed_ns < loaded(last_wait_ns_);
}

void StepKeys::count_steady_rounds(StepKey& key, uint32_t rounds) {
  const uint32_t before = key.steady_rounds.fetch_add(rounds, std::memory_order_relaxed);
  if (before + rounds >= kSeldomLeast && before < key.wanted_rounds()) grown_.store(true, std::memory_order_relaxed);
}

// What came before it was known what is usual counts if it took as long as the first one after that: a prompt that
// comes five times in a program would else be steady twice. The very first is cold, however long it took.
void StepKeys::count_early(StepKey& key, int64_t usual_ns) {
  const uint32_t bits = key.early_bits.exchange(0, std::memory_order_relaxed),
                 round_bits = key.early_round_bits.load(std::memory_order_relaxed);
  uint32_t rounds = 0;
  for (uint32_t i = 1; i < kUsualLeast; ++i) {
    if ((bits & 1U << i) == 0 || std::abs(key.time.latest_ns(i) - usual_ns) > usual_ns / 4) continue;
    count_up(key.steady);
    rounds += (round_bits & 1U << i) != 0;
  }
  if (rounds != 0) count_steady_rounds(key, rounds);
}

void StepKeys::ends(StepKey& key, int64_t begin_ns, int64_t now_ns, const Conditions& conditions) {
  if (loaded(key.open) > 0) key.open.fetch_sub(1, std::memory_order_relaxed);
  const int64_t before_ns = loaded(key.last_end_ns), took_ns = now_ns - begin_ns;
  store(key.last_end_ns, now_ns);
  const bool undisturbed = !disturbed(key, begin_ns, conditions.disturbed_ns);
  const uint32_t nth = key.time.count();
  const bool steady = undisturbed && nth >= kUsualLeast && key.time.holds(took_ns);
  key.time.add(took_ns);
  if (steady) follow_level(key);
  // The pace of steps that follow each other is from end to end: a range may be over long before its work.
  const auto pace_ns = [&](int64_t since_ns) {
    return before_ns >= since_ns && now_ns - before_ns <= 3 * took_ns ? now_ns - before_ns : took_ns;
  };
  if (!undisturbed && key.kind.load(std::memory_order_relaxed) == KeyKind::kKernel) return;
  if (conditions.recorded_since_ns != 0 && conditions.recorded_since_ns <= begin_ns) {
    count_recorded(key, pace_ns(conditions.recorded_since_ns), steady);
    // Those of a seldom stage count without being steady (stays_unsteady).
    if (!undisturbed && loaded(key.whole) > kSeldomLeast && loaded(key.whole) <= key.wanted_rounds() + 1)
      grown_.store(true, std::memory_order_relaxed);
    const bool early = undisturbed && nth < kUsualLeast && key.kind.load(std::memory_order_relaxed) != KeyKind::kKernel;
    const bool new_round = (steady || early) && is_new_steady_round(key, conditions);
    if (new_round) key.steady_round_at.store(waits_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
    if (steady && new_round) count_steady_rounds(key, 1);
    if (early) {
      key.early_bits.fetch_or(1U << nth, std::memory_order_relaxed);
      if (new_round) key.early_round_bits.fetch_or(1U << nth, std::memory_order_relaxed);
    }
    if (steady && loaded(key.early_bits) != 0) count_early(key, took_ns);
  } else if (steady && conditions.unrecorded_since_ns != 0 && conditions.unrecorded_since_ns <= begin_ns) {
    key.unrecorded.add(pace_ns(conditions.unrecorded_since_ns));
    const int64_t since_ns = conditions.counters_since_ns;
    if (since_ns > 0 && since_ns <= begin_ns) key.counted.add(pace_ns(since_ns));
    if (since_ns < 0 && -since_ns <= begin_ns) key.uncounted.add(pace_ns(-since_ns));
  }
}

void StepKeys::recurs(StepKey& key, int64_t now_ns, const Conditions& conditions, bool outside) {
  key.outside.store(outside, std::memory_order_relaxed);
  uint64_t none = 0;
  if (outside && key.kind.load(std::memory_order_relaxed) == KeyKind::kRecurring)
    first_outside_.compare_exchange_strong(none, key.hash.load(std::memory_order_relaxed), std::memory_order_relaxed);
  const int64_t before_ns = loaded(key.last_begin_ns);
  begins(key, now_ns, conditions.disturbed_ns);
  if (loaded(key.seen) > 1)
    ends(key, before_ns, now_ns, conditions);
  else
    key.open.store(0, std::memory_order_relaxed);  // it has no end
}

bool StepKeys::named(int64_t now_ns) const {
  for (const StepKey& key : keys_)
    if (key.hash.load(std::memory_order_relaxed) != 0 && key.kind.load(std::memory_order_relaxed) != KeyKind::kKernel &&
        loaded(key.seen) >= 2 && is_alive(key, now_ns))
      return true;
  return false;
}

double StepKeys::cost() const {
  double with = 0, without = 0;
  for (const StepKey& key : keys_) {
    if (key.recorded.count() < kPaceLeast || key.unrecorded.count() < kPaceLeast) continue;
    const double often = loaded(key.seen);
    with += often * static_cast<double>(key.recorded.median_ns());
    without += often * static_cast<double>(key.unrecorded.median_ns());
  }
  return without <= 0 ? -1 : std::max(with / without - 1, 0.0);
}

StepKeys::CountersCost StepKeys::counters_cost() const {
  CountersCost out;
  double most = 0;
  for (const StepKey& key : keys_) {
    const double takes = loaded(key.seen) * static_cast<double>(key.time.median_ns());
    if (takes <= most || is_container(key) || key.time.count() < kPaceLeast) continue;
    most = takes;
    out = {key.time.median_ns(), key.counted.count(), key.uncounted.count(), 0, -1};
    if (out.with < kPaceLeast || out.without < kPaceLeast || key.uncounted.median_ns() <= 0) continue;
    const double alone = static_cast<double>(key.uncounted.median_ns());
    out.cost = static_cast<double>(key.counted.median_ns()) / alone - 1;
    // Not std::hypot: its version in new C libraries would keep this library out of programs on older ones.
    const double counted = key.counted.error_ns(), uncounted = key.uncounted.error_ns();
    out.error = std::sqrt(counted * counted + uncounted * uncounted) / alone;
  }
  return out;
}

// A call that came in one round only may be of a prompt, however often it came there.
bool StepKeys::came_once(const StepKey& key) {
  return key.kind.load(std::memory_order_relaxed) == KeyKind::kRecurring && loaded(key.rounds) < 2;
}

// Of the first one outside of ranges, where it came in one round only: it may come again once as many rounds have
// passed as before it, or twice as many. Later ones, as prompts of ever new lengths have, are not waited for.
bool StepKeys::may_follow_ranges(const StepKey& key) const {
  const uint64_t round = key.round_at.load(std::memory_order_relaxed);
  return key.hash.load(std::memory_order_relaxed) == first_outside_.load(std::memory_order_relaxed) && came_once(key) &&
         waits_.load(std::memory_order_relaxed) + 1 <= 3 * round;
}

// Of one that came in one round only: whether it did for so long that it is a loop without waits rather than a prompt.
bool StepKeys::recurred_for_long(const StepKey& key) {
  return static_cast<int64_t>(loaded(key.seen)) * key.period.median_ns() >= kSecond;
}

StepKeys::Present StepKeys::present_steps(int64_t now_ns) const {
  Present out;
  for (const StepKey& key : keys_) {
    if (key.hash.load(std::memory_order_relaxed) == 0 || key.round.count() == 0 || !key.enough_rounds()) continue;
    const int64_t round_ns = key.round.median_ns(), rounds_ns = key.wanted_rounds() * round_ns;
    if (now_ns - loaded(key.last_begin_ns) > rounds_ns) continue;
    out.rounds_ns = std::max(out.rounds_ns, rounds_ns);
    const bool range = key.kind.load(std::memory_order_relaxed) == KeyKind::kRange;
    for (int64_t* commonest_ns : {&out.commonest_ns, range ? &out.commonest_range_ns : &out.commonest_ns})
      if (*commonest_ns == 0 || round_ns < *commonest_ns) *commonest_ns = round_ns;
  }
  return out;
}

// Of a stage that comes once in several steps, so many as come in as many steps as are wanted; three at least.
int64_t StepKeys::share_of(const StepKey& key, const Present& present) {
  if (key.holds_steps.load(std::memory_order_relaxed)) return key.wanted_rounds();
  const bool range = key.kind.load(std::memory_order_relaxed) == KeyKind::kRange;
  const int64_t commonest_ns = range ? present.commonest_range_ns : present.commonest_ns;
  return std::max<int64_t>(kWantedMost * commonest_ns / std::max<int64_t>(key.round.median_ns(), 1), kSeldomLeast);
}

// More of a range than its share wait for windows to come: steps of the program alone are worth more.
bool StepKeys::has_its_share(const StepKey& key, const Present& present) {
  if (key.enough_rounds()) return true;
  if (key.kind.load(std::memory_order_relaxed) != KeyKind::kRange || present.commonest_range_ns == 0) return false;
  return key.round.count() != 0 && loaded(key.steady_rounds) >= share_of(key, present);
}

// Steady ones wait as well where none comes steady: prompts, each of a new length, go on loading code for as long as a
// short program runs.
bool StepKeys::stays_unsteady(const StepKey& key, const Present& present) {
  if (present.commonest_ns == 0 || key.round.count() == 0) return false;
  const uint32_t rounds = loaded(key.rounds);
  // The first is cold. What comes many times a round is counted in rounds; graphs and calls that do come steady are
  // waited for, for each is of steps of its own.
  if (key.kind.load(std::memory_order_relaxed) == KeyKind::kRange)
    return present.commonest_range_ns != 0 && loaded(key.whole) > share_of(key, present);
  // What is behind ranges comes in every step, if they are layers: it is steady once it is known what is usual.
  const bool behind = present.commonest_range_ns != 0 && key.outside.load(std::memory_order_relaxed);
  return rounds > share_of(key, present) && 2 * loaded(key.steady_rounds) + (behind ? kUsualLeast : 0) < rounds;
}

// Whether a key keeps what goes on from being complete.
bool StepKeys::holds_open(const StepKey& key, int64_t now_ns, const Present& present) const {
  if (present.commonest_range_ns != 0 && may_follow_ranges(key)) return true;
  if (key.kind.load(std::memory_order_relaxed) == KeyKind::kKernel || is_container(key) ||
      has_its_share(key, present) || stays_unsteady(key, present))
    return false;
  const int64_t since_ns = now_ns - loaded(key.last_begin_ns);
  // In one that has gone on for as long as the wanted rounds take, they are what it holds.
  if (loaded(key.open) > 0) return is_alive(key, now_ns) && (present.rounds_ns == 0 || since_ns <= present.rounds_ns);
  if (loaded(key.rounds) < 2 || loaded(key.rounds) >= kWholeEnough * key.wanted_rounds()) return false;
  const Usual& every = comes_every(key);
  const int64_t period_ns = every.median_ns();
  // It is over; one interval alone, that from a warm-up to the first request as often as not, is no promise.
  if (since_ns > std::max(present.rounds_ns, every.count() < 2 ? period_ns + period_ns / 4 : 3 * period_ns))
    return false;
  // CUPTI can leave and come back before it is due.
  return period_ns < kLongPeriodNs || due_of(key) <= now_ns + kLongPeriodNs;
}

StepKeys::Summary StepKeys::summary(int64_t now_ns) const {
  Summary out;
  out.cost = cost();
  const Present present = present_steps(now_ns);
  out.complete = present.rounds_ns != 0;
  // Ranges decide alone where they cover most of the time, of what is in them: where they are around layers, the output
  // layer behind them tells the steps.
  double covered = 0;
  bool has_range = false, has_recurring = false;
  for (const StepKey& key : keys_) {
    if (key.hash.load(std::memory_order_relaxed) == 0) continue;
    const KeyKind kind = key.kind.load(std::memory_order_relaxed);
    out.last_active_ns = std::max({out.last_active_ns, loaded(key.last_begin_ns), loaded(key.last_end_ns)});
    if (kind != KeyKind::kKernel && key.enough())
      out.newest_steps_ns = std::max(out.newest_steps_ns, loaded(key.first_begin_ns));
    out.satisfied += key.enough() && (!came_once(key) || recurred_for_long(key));
    out.complete = out.complete && !holds_open(key, now_ns, present);
    if (!is_alive(key, now_ns)) continue;
    out.open = out.open || (kind == KeyKind::kRange && loaded(key.open) > 0);
    has_recurring = has_recurring || kind == KeyKind::kRecurring;
    if (kind != KeyKind::kRange) continue;
    has_range = true;
    if (key.period.median_ns() > 0)
      covered += static_cast<double>(key.time.median_ns()) / static_cast<double>(key.period.median_ns());
  }
  const bool ranges_alone = has_range && (covered >= 0.5 || !has_recurring);
  for (const StepKey& key : keys_) {
    if (key.hash.load(std::memory_order_relaxed) == 0) continue;
    const bool may_follow = has_range && may_follow_ranges(key);
    if (!may_follow && (!is_alive(key, now_ns) || came_once(key))) continue;
    const KeyKind kind = key.kind.load(std::memory_order_relaxed);
    const bool by_ranges = ranges_alone && !key.outside.load(std::memory_order_relaxed);
    if (kind == KeyKind::kKernel ? has_range || has_recurring : kind == KeyKind::kRecurring && by_ranges) continue;
    ++out.alive;
    const int64_t time_ns = key.time.median_ns();
    out.longest_ns = std::max(out.longest_ns, time_ns);
    if (time_ns > 0 && (out.shortest_ns == 0 || time_ns < out.shortest_ns)) out.shortest_ns = time_ns;
    if (key.enough() || has_its_share(key, present)) continue;
    ++out.lacking;
    const int64_t period_ns = comes_every(key).median_ns();
    // What is seen only while it is recorded cannot be waited for.
    if (key.period.count() == 0 || kind == KeyKind::kKernel) continue;
    const bool seldom = period_ns >= kLongPeriodNs;
    // What comes often and did not come in the present steps is over.
    const int64_t since_ns = now_ns - loaded(key.last_begin_ns);
    if (!seldom && present.rounds_ns != 0 && since_ns > std::max(present.rounds_ns, 3 * period_ns)) continue;
    if (seldom && comes_every(key).count() < 2 && since_ns > patience_ns(key)) continue;
    const int64_t due_ns = seldom ? due_of(key) : now_ns;
    if (out.due_ns != 0 && out.due_ns <= due_ns) continue;
    out.due_ns = due_ns;
    out.due_period_ns = period_ns;
  }
  return out;
}

// ---- texts ---------------------------------------------------------------------------------------------------------

namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_word(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }

uint64_t hashed(uint64_t hash, unsigned value) { return (hash ^ value) * 1099511628211ULL; }  // FNV-1a

// Whether the word in front of "=" counts steps, requests or positions.
bool counts(std::string_view text, size_t equals) {
  size_t begin = equals;
  while (begin > 0 && is_word(text[begin - 1])) --begin;
  const std::string_view word = text.substr(begin, equals - begin);
  for (const std::string_view counter :
       {"step",     "iter", "it",    "i",   "id",      "idx",   "index", "n",   "no",    "pos",
        "position", "seq",  "seqno", "req", "request", "token", "rid",   "uid", "epoch", "seed"})
    if (word == counter || (word.size() > counter.size() && word.substr(word.size() - counter.size()) == counter &&
                            word[word.size() - counter.size() - 1] == '_'))
      return true;
  return false;
}

}  // namespace

KeyText key_of_text(std::string_view text) {
  text = text.substr(0, 512);  // longer ones are judged by their beginning
  KeyText out;
  uint64_t shape = 1469598103934665603ULL;
  unsigned numbers = 0;
  out.stage = 1469598103934665603ULL;
  for (size_t i = 0; i < text.size();) {
    if (!is_digit(text[i])) {
      out.stage = hashed(out.stage, static_cast<unsigned char>(text[i++]));
      continue;
    }
    const size_t begin = i;
    uint64_t value = 0;
    for (; i < text.size() && is_digit(text[i]); ++i) value = value * 10 + static_cast<uint64_t>(text[i] - '0');
    if (begin > 0 && text[begin - 1] == '=') {
      if (counts(text, begin - 1)) continue;
      unsigned bits = 0;
      for (; value != 0; value >>= 1) ++bits;
      shape = hashed(hashed(shape, ++numbers), bits);
    } else if (value == 0 && i < text.size()) {
      out.stage = hashed(out.stage, '0');
    }
  }
  if (numbers != 0) out.shape = shape | 1;
  return out;
}

}  // namespace llmprof::inject
