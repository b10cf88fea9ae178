// What becomes otherwise on the timeline of one run when parts of it are those of another: sums that are added to what
// a replay keeps constant (replay::Durations), by part.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "diff/align.h"
#include "replay/replay.h"
#include "results/diff.h"

namespace llmprof::diff {

using PartSet = uint32_t;  // one bit for each DiffPart
constexpr PartSet bit_of(DiffPart part) { return PartSet{1} << static_cast<uint32_t>(part); }

// Whether a kernel's time goes with the SM clock, by what bounds it: arithmetic does, reading memory does not, and of
// short ones and those far from every roof some part does, of which only both sides together tell how much.
enum class FollowsClock : uint8_t { kNo, kPartly, kWholly };

// One side: its recording, and what of it is taken for constant. What is pointed to must outlive the exchange.
struct Replayable {
  const replay::Recording* recording = nullptr;
  const replay::StepReplay* replay = nullptr;
  replay::Durations durations;  // without the recorder, where that is known
  replay::Latencies latencies;
  OptDouble sm_clock_mhz;
  std::map<std::string, FollowsClock> follows_clock;  // by kernel of the stage
  const Trace& trace() const { return recording->trace(); }
};

// How much longer the host of B takes for the same as that of A (pace.h).
struct HostPaceRatio {
  double code = 1, calls = 1;
  size_t places = 0;                           // of each at least
  static constexpr size_t kFewestPlaces = 40;  // a part of fewer could be what was changed
  bool known() const { return places >= kFewestPlaces; }
  // Whether it is the host that moved, by 5 % and more. It takes the driver along, whose calls took longer by a quarter
  // as much at least in pairs of equal runs whose code was half as long again (of the logarithm); a program that became
  // slower everywhere, under a tracer say, leaves them as they are.
  bool host_moved() const;
};

class Exchange {
 public:
  Exchange(const Replayable& a, const Replayable& b) : a_(a), b_(b) {}

  const Replayable& a() const { return a_; }
  const Replayable& b() const { return b_; }

  // Steps of both that stand for each other, and the pace between them. `counted`: their differences by name are kept.
  void add(const AlignedStep& aligned, const HostPaceRatio& pace, bool counted);
  // Behind the last add(). `pace`: that of the steps that were counted, to be named.
  void finish(const HostPaceRatio& pace);

  // Parts in which the two differ. `kCount` is among them where one side has launches that the other has not; else the
  // change from one timeline to the other counts as `kCopy` where copies share a stream on one side that they do not
  // share on the other, and as `kOther` where not even that is known.
  PartSet active() const { return active_; }
  DiffPart structure() const { return structure_; }
  // As in A but for the parts in `set`: the mean window of the steps, ns.
  double evaluate(PartSet set, const std::vector<StepId>& steps_a, const std::vector<StepId>& steps_b) const;
  // B's steps, each with the host at the pace of the step of A that it was added with, ns.
  std::vector<int64_t> at_pace_of_a(const std::vector<StepId>& steps_b) const;

  // By part and name, b - a in ns, of all steps that were counted.
  const std::array<std::map<std::string, double>, kDiffParts>& by_name() const { return by_name_; }

 private:
  struct Changed {  // of a call or of the code before it
    ApiCallId call;
    int64_t add_ns;
    DiffPart part;
  };
  struct ChangedOp {
    GpuOpId op;
    double clock;    // times this where the clock is exchanged
    double rest_ns;  // and so much more where `part` is
    DiffPart part;
  };
  // Of a call that the other side does not have. On the timeline of the other side it cannot be put, so what it brings
  // there is what taking it away changes here.
  struct Alone {
    ApiCallId call;
    DiffPart part;
    int64_t before_ns;  // of the code before it, that goes with it
    bool gone;          // the call goes too, with what it launched
  };
  struct Edits {
    std::vector<Changed> calls, before;
    std::vector<ChangedOp> ops;
    std::vector<Alone> alone;
  };

  // How many kernels, copies to the GPU, to the host and others each stream runs.
  static constexpr size_t kClasses = 4;
  using Streams = std::map<StreamId, std::array<int64_t, kClasses>>;
  // For each pair of these, one of them copies, whether they share a stream; empty where either is not there.
  using Sharing = std::array<std::array<std::optional<bool>, kClasses>, kClasses>;

  static void note_streams(const Trace& trace, GpuOpId op, Streams& streams);
  static Sharing sharing(const Streams& streams);
  static size_t copying_streams(const Streams& streams);
  bool copies_moved() const;

  void add_calls(const AlignedStep& aligned, const HostPaceRatio& pace, bool counted);
  // Whether a call that one side alone has can be exchanged by itself.
  static bool has_own_part(const Replayable& own, ApiCallId call);
  // By place among the aligned calls: of one that one side alone has, ns of the code before it that came with it.
  std::vector<int64_t> code_of_alone(const AlignedStep& aligned, double code_pace) const;
  void add_alone(const Replayable& own, ApiCallId call, int64_t code_ns, const HostPaceRatio& pace, bool counted);
  void add_ops(const AlignedStep& aligned, bool counted);
  // What code or a call takes: at the other side's pace, and what it takes otherwise.
  void change_host(ApiCallId a, int64_t a_ns, ApiCallId b, int64_t b_ns, double pace, DiffPart part,
                   std::vector<Changed> Edits::*where);
  void change_op(GpuOpId a, double to_a_ns, GpuOpId b, double to_b_ns, DiffPart part);
  void change_one(const Replayable& own, GpuOpId op, double to_ns, double clock, DiffPart part, Edits& edits);
  static double clock_factor(const Replayable& own, GpuOpId op, double to_ns, double factor);
  void count(DiffPart part, const std::string& name, double ns, bool counted);
  replay::Latencies latencies_with(const Replayable& own, const Replayable& other, PartSet set) const;
  static replay::Durations durations_with(const Replayable& own, const Edits& edits, PartSet set, PartSet without);
  double window_with(bool on_b, PartSet changed, PartSet without, const std::vector<StepId>& steps) const;

  const Replayable& a_;
  const Replayable& b_;
  Edits edits_a_, edits_b_;
  Streams streams_a_, streams_b_;  // of the steps that are counted
  PartSet active_ = 0;
  DiffPart structure_ = DiffPart::kOther;
  std::array<std::map<std::string, double>, kDiffParts> by_name_;
  int64_t launches_a_ = 0, launches_b_ = 0, ops_a_ = 0, ops_b_ = 0, counted_ = 0;
};

// Which part a call's own time is.
DiffPart part_of(ApiKind kind);
// Where the host was before a call: the line of code where that was recorded, else the operator that made it.
std::string host_place(const Trace& trace, ApiCallId call, int64_t before_ns);

}  // namespace llmprof::diff
