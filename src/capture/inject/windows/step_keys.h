// The program's steps as far as the recorder can tell them apart while the program runs: whatever recurs, by a key. A
// key is, best first, an outermost NVTX range by its text, a launch of a CUDA graph or a library call of one shape, or
// a kernel by its function. One table for the process, written by the program's threads without a lock.
//
// A graph or a shape may come many times a step, and thirty calls in a prompt are no thirty steps. What tells steps
// apart is that the host waits: all occurrences of a key with no wait between them are of one round.
//
// All times are the caller's, in ns of one clock; nothing here reads a clock, so that tests can play programs. Readings
// of one key by another thread may mix two of its occurrences: a window is then opened a step early or late.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace llmprof::inject {

enum class KeyKind : uint8_t { kRange, kRecurring, kKernel };

// Median and spread of the latest values; an outlier does not move them. Computed anew now and then only: reading is
// two loads.
class Usual {
 public:
  static constexpr uint32_t kKept = 16;
  void add(int64_t value_ns);
  uint32_t count() const { return count_.load(std::memory_order_relaxed); }
  int64_t median_ns() const { return median_ns_.load(std::memory_order_relaxed); }
  // The value that was added as the i-th, of the latest kKept.
  int64_t latest_ns(uint32_t i) const { return latest_[i % kKept].load(std::memory_order_relaxed); }
  // The standard error of the median, as of a normal distribution.
  double error_ns() const;
  // One and a half times the interquartile range.
  int64_t spread_ns() const { return spread_ns_.load(std::memory_order_relaxed); }
  // Whether a value lies within the spread around the median, or within a quarter of it.
  bool holds(int64_t value_ns) const;
  void clear() { count_.store(0, std::memory_order_relaxed); }

 private:
  std::atomic<uint32_t> count_{0};
  std::atomic<int64_t> latest_[kKept] = {};
  std::atomic<int64_t> median_ns_{0}, spread_ns_{0};
};

struct StepKey {
  std::atomic<uint64_t> hash{0};  // 0: a free place
  std::atomic<KeyKind> kind{KeyKind::kRange};
  std::atomic<bool> container{false};    // holds other keys' occurrences and is long: they are the steps
  std::atomic<bool> outside{false};      // the latest occurrence, of a graph or call, was in no range
  std::atomic<bool> holds_steps{false};  // a range in which another one recurs, with waits between: a request, a batch
  std::atomic<int64_t> within_ns{0};     // when the range around the latest occurrence began, and
  std::atomic<uint32_t> rounds_before{0};  // the rounds seen before that
  std::atomic<uint32_t> seen{0};           // beginnings
  std::atomic<uint32_t> open{0};
  std::atomic<int64_t> first_begin_ns{0}, last_begin_ns{0}, last_end_ns{0};
  Usual period, time;                         // between beginnings; from a beginning to its end
  Usual counted, uncounted;                   // without recording: the pace while counters are sampled, and while not
  Usual recorded, unrecorded;                 // the pace with and without recording
  std::atomic<uint32_t> disturbed_bits{0};    // of the latest 32 occurrences
  std::atomic<uint32_t> whole{0}, steady{0};  // occurrences recorded whole, and those of them that were steady
  // Of the first occurrences, by a bit each, those that may turn out to be steady once it is known what is usual, and
  // those of them that were the first of their round.
  std::atomic<uint32_t> early_bits{0}, early_round_bits{0};
  std::atomic<int64_t> counted_ns{0};  // the level at which `steady` began to count
  std::atomic<uint32_t> restarts{0};
  Usual round;                                            // between beginnings of rounds
  std::atomic<uint32_t> rounds{0}, steady_rounds{0};      // seen, and with a steady occurrence recorded whole
  std::atomic<uint64_t> round_at{0}, steady_round_at{0};  // the number of the latest one; 0: none
  std::atomic<int64_t> round_begin_ns{0};

  // How many steady occurrences are wanted: as many as come in a second, 5 to 20; of ranges that hold the steps as many
  // as come in half a second, 3 at the least.
  uint32_t wanted() const;
  // Whether so many were recorded, or so often that it will not become steady.
  bool enough() const;
  // Likewise in rounds.
  uint32_t wanted_rounds() const;
  bool enough_rounds() const;
};

// What was true while an occurrence went on.
struct Conditions {
  int64_t recorded_since_ns = 0;    // kernels are recorded without a break since; 0: they are not
  int64_t unrecorded_since_ns = 0;  // likewise the other way around, and CUPTI is as far away as it goes
  int64_t counters_since_ns = 0;    // hardware counters are sampled since; negative: not sampled since; 0: unknown
  int64_t disturbed_ns = 0;         // the last module load, allocation, instantiation or capture; 0: none was seen
};

class StepKeys {
 public:
  // The place of a key, taken if it is new; null where the table is full around it. `shape` is 0, or a part of the key
  // that counts only for a stage of few shapes.
  StepKey* find(KeyKind kind, uint64_t stage, uint64_t shape = 0);
  // `disturbed_ns`: as in Conditions, where it is known.
  void begins(StepKey& key, int64_t now_ns, int64_t disturbed_ns = 0);
  // A range begins in this one: whether it may be one of its steps, where this one is a request or the whole program.
  static bool looks_within(StepKey& outer);
  // It has begun, in the one that began then: whether it is the steps that `outer` holds is known by how it recurs.
  static void begins_within(StepKey& key, StepKey& outer, int64_t outer_begin_ns);
  void ends(StepKey& key, int64_t begin_ns, int64_t now_ns, const Conditions& conditions);
  // An event without an end: the occurrence before it ends with it. `outside`: of any range.
  void recurs(StepKey& key, int64_t now_ns, const Conditions& conditions, bool outside);
  // The host waited for the GPU.
  void waited(int64_t now_ns);
  // Whether a key may have come to its wanted rounds since this was asked last: the moment to ask for a summary.
  bool take_grown() {
    return grown_.load(std::memory_order_relaxed) && grown_.exchange(false, std::memory_order_relaxed);
  }

  // What the plan of windows asks (plan.h).
  struct Summary {
    uint32_t alive = 0;      // keys that recur now, among those that decide
    uint32_t lacking = 0;    // of them, without enough steady occurrences
    uint32_t satisfied = 0;  // keys with enough, alive or not
    int64_t due_ns = 0;      // when the next lacking key with a long, regular period will begin; 0: none
    int64_t due_period_ns = 0;
    int64_t longest_ns = 0, shortest_ns = 0;  // usual times of the keys that are alive
    int64_t last_active_ns = 0;               // the latest beginning or end
    bool open = false;                        // an occurrence of a range goes on
    int64_t disturbed_ns = 0;                 // Conditions::disturbed_ns, for whoever asks to fill in
    int64_t graph_made_ns = 0;                // when a graph was made executable last; 0: never; likewise
    int64_t newest_steps_ns = 0;              // when the newest range, graph or call with enough occurrences came first
    double cost = -1;                         // of a recorded second, as a share; -1 not known
    // Every range, graph and call that the present steps are made of has its wanted rounds recorded. What does not
    // belong to them, because it came in one round only, is over or is far from due, is not waited for.
    bool complete = false;
  };
  Summary summary(int64_t now_ns) const;
  // Of the key that takes most of the time, what is published for the sampler of counters (session/control.h).
  struct CountersCost {
    int64_t step_ns = 0;
    uint32_t with = 0, without = 0;
    double cost = 0, error = -1;  // error -1: not known
  };
  CountersCost counters_cost() const;
  // Whether ranges or recurring calls tell the steps, so that kernels need not.
  bool named(int64_t now_ns) const;

  static constexpr size_t kKeys = 256;
  // Ranges that take so long may be requests, in which other ranges are the steps.
  static constexpr int64_t kContainerNs = 1'000'000'000;

 private:
  StepKey* place(KeyKind kind, uint64_t hash);
  double cost() const;
  void count_round(StepKey& key, int64_t now_ns, int64_t disturbed_ns);
  bool is_new_steady_round(const StepKey& key, const Conditions& conditions) const;
  void count_steady_rounds(StepKey& key, uint32_t rounds);
  void count_early(StepKey& key, int64_t usual_ns);
  // The steps that the program makes now, by the keys that have their wanted rounds.
  struct Present {
    int64_t rounds_ns = 0;  // how far back the wanted rounds go; 0: no key has them
    // From one round to the next of the key that comes most often, and of the range that does; 0: there is none.
    int64_t commonest_ns = 0, commonest_range_ns = 0;
  };
  Present present_steps(int64_t now_ns) const;
  static int64_t share_of(const StepKey& key, const Present& present);
  static bool stays_unsteady(const StepKey& key, const Present& present);
  static bool has_its_share(const StepKey& key, const Present& present);
  bool holds_open(const StepKey& key, int64_t now_ns, const Present& present) const;
  static bool came_once(const StepKey& key);
  bool may_follow_ranges(const StepKey& key) const;
  static bool recurred_for_long(const StepKey& key);

  std::atomic<uint64_t> waits_{0};
  std::atomic<uint64_t> first_outside_{0};  // hash of the first graph or call outside of ranges; 0: none yet
  std::atomic<int64_t> last_wait_ns_{0};
  std::atomic<bool> grown_{false};
  StepKey keys_[kKeys];
  std::atomic<uint32_t> shapes_[kKeys] = {};  // by stage, those that have a place of their own
};

// A text as a stage and a shape. Numbers behind "=" give a shape, on a scale of powers of two, except those of
// counters ("step=17"); of others only whether they are 0 counts, inside the text:
// "execute_context_0(0)_generation_8(8)".
struct KeyText {
  uint64_t stage = 0;
  uint64_t shape = 0;  // 0: none
};
KeyText key_of_text(std::string_view text);

}  // namespace llmprof::inject
