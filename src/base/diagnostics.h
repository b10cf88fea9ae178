// Counted anomalies. Bad data is not an error: it is counted here under a stable key, with a severity, a sentence, and
// where the first ones were seen; everything readable is kept. The foot of every report lists them.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace llmprof {

enum class Severity : uint8_t { kInfo, kNotice, kDataLoss, kError };
std::string_view name_of(Severity severity);

// Every diagnostic, once: symbol, key, severity, sentence. `llmprof list diagnostics` prints this list.
#define LLMPROF_DIAGNOSTICS(D)                                                                                        \
  D(kTruncatedFile, "truncated-file", kError,                                                                         \
    "The file ends in the middle of its content; the events before are kept.")                                        \
  D(kTrailingData, "trailing-data", kNotice, "Bytes after the end of the document were ignored.")                     \
  D(kMalformedEvent, "malformed-event", kDataLoss,                                                                    \
    "An event is not valid JSON, or a line has more or fewer cells than its header; it was skipped.")                 \
  D(kMissingField, "missing-field", kDataLoss,                                                                        \
    "An event lacks a field it needs (name, ts, dur, category, device); it was skipped.")                             \
  D(kBadNumber, "bad-number", kDataLoss,                                                                              \
    "A number is NaN, infinite, out of range or not a number; the event, or that value of a sample, was skipped.")    \
  D(kNegativeDuration, "negative-duration", kDataLoss, "An event ends before it starts; it was skipped.")             \
  D(kMissingDuration, "missing-duration", kNotice, "A complete event has no duration; it counts as 0 ns.")            \
  D(kDuplicateEvent, "duplicate-event", kNotice, "The same event appears twice; only one was kept.")                  \
  D(kUnknownCategory, "unknown-category", kInfo,                                                                      \
    "Events of a category, or columns, that llmprof does not know were ignored.")                                     \
  D(kUnfinishedRange, "unfinished-range", kNotice, "A begin event has no end; it was ignored.")                       \
  D(kUnsortedEvents, "unsorted-events", kInfo, "Events were out of time order and have been sorted.")                 \
  D(kOverlapOnStream, "overlap-on-stream", kNotice,                                                                   \
    "Activities overlap on one stream; busy time counts the overlap once.")                                           \
  D(kOverlapOnThread, "overlap-on-thread", kNotice,                                                                   \
    "Host ranges on one thread overlap without nesting; the time they share counts for the later one.")               \
  D(kZeroTimestamp, "zero-timestamp", kDataLoss,                                                                      \
    "GPU activities have no timing (start and end are 0); they were skipped.")                                        \
  D(kUnlinkedKernel, "unlinked-kernel", kNotice, "GPU activities have no launching API call in the file.")            \
  D(kUnlinkedLaunch, "unlinked-launch", kInfo, "Launch calls have no GPU activity in the file.")                      \
  D(kNoOperatorForKernel, "no-operator-for-kernel", kInfo,                                                            \
    "GPU activities were not launched from a recorded operator.")                                                     \
  D(kLaunchAfterKernel, "launch-after-kernel", kNotice,                                                               \
    "Kernels start before the call that launched them: the clocks of host and GPU disagree.")                         \
  D(kAboveCeiling, "above-ceiling", kNotice,                                                                          \
    "Kernels ran faster than the measured ceiling, so shares of it are too high; often the device was "               \
    "slower or busy when it was measured. `llmprof peaks` measures it again.")                                        \
  D(kBadShape, "bad-shape", kNotice,                                                                                  \
    "The recorded input shapes of an operator could not be read; its FLOPs are unknown.")                             \
  D(kLimitReached, "limit-reached", kDataLoss,                                                                        \
    "A limit on untrusted input was reached (string length, nesting, count); the rest was cut.")                      \
  D(kBadMetadata, "bad-metadata", kNotice, "A metadata field has an unexpected type and was ignored.")                \
  D(kUnknownStage, "unknown-stage", kInfo, "GPU time could not be given to a stage and is listed as [unattributed].") \
  D(kNoDeviceProperties, "no-device-properties", kNotice,                                                             \
    "The file does not describe the GPU; name it with --gpu to get peaks.")                                           \
  D(kDamagedBlock, "damaged-block", kError,                                                                           \
    "A block of a llmprof trace file fails its checksum; its table was dropped.")                                     \
  D(kDamagedTable, "damaged-table", kError,                                                                           \
    "A table of an SQLite file is damaged; its rows before the damage were kept.")                                    \
  D(kUnknownTable, "unknown-table", kInfo,                                                                            \
    "A file holds tables or columns that llmprof does not know or has no place for; they were ignored.")              \
  D(kUnfinishedSpool, "unfinished-spool", kNotice,                                                                    \
    "A watched process ended without closing its recording (killed, crashed or _exit); up to its last second is "     \
    "missing.")                                                                                                       \
  D(kUnreadableFile, "unreadable-file", kDataLoss,                                                                    \
    "A file or folder of the recording could not be read; what it holds is missing.")                                 \
  D(kDamagedSpoolBlock, "damaged-spool-block", kDataLoss,                                                             \
    "A block of a recording fails its checksum; its records were dropped.")                                           \
  D(kUnknownRecord, "unknown-record", kInfo,                                                                          \
    "A recording holds kinds of records this version does not know; they were ignored.")                              \
  D(kLostRecords, "lost-records", kDataLoss, "The recorder could not keep up or store; records are missing.")         \
  D(kLaunchSitesDropped, "launch-sites-dropped", kNotice,                                                             \
    "The recorder dropped call stacks of launches; launch sites may be missing.")                                     \
  D(kSpoolUnwritable, "spool-unwritable", kError,                                                                     \
    "The output folder could not be written (full, read-only or removed); the recording stops there.")                \
  D(kLateEnd, "late-end", kInfo,                                                                                      \
    "A GPU activity was stamped with an end behind the beginning of the next one on its stream; it ends there.")      \
  D(kEdgeActivity, "edge-activity", kInfo,                                                                            \
    "GPU activities in flight when recording paused were left out: the recorder does not know their true end.")       \
  D(kNoCupti, "no-cupti", kError, "CUPTI could not be loaded in a watched process; its kernels were not recorded.")   \
  D(kCuptiHeld, "cupti-held", kError,                                                                                 \
    "Another tool already traces a watched process through CUPTI; its kernels were not recorded.")                    \
  D(kSecondCuptiUser, "second-cupti-user", kDataLoss,                                                                 \
    "Another tool used CUPTI in a watched process during the recording; kernels may be missing from then on.")        \
  D(kForeignInjection, "foreign-injection", kNotice,                                                                  \
    "CUDA_INJECTION64_PATH already named another tool; it was loaded as well.")                                       \
  D(kForkedChild, "forked-child", kInfo,                                                                              \
    "A process forked after CUDA had started; the child was left alone until it runs another program.")               \
  D(kModeLowered, "mode-lowered", kNotice, "Recording cost more than its limit; a lighter mode was taken.")           \
  D(kNoCounterPermission, "no-counter-permission", kNotice,                                                           \
    "GPU counters are limited to administrators here; GPM or formulas stand in for them.")                            \
  D(kCountersBusy, "counters-busy", kNotice, "Another profiler holds the GPU's counters; none were sampled.")         \
  D(kNoCounters, "no-counters", kNotice, "Hardware counters could not be sampled.")                                   \
  D(kImpossibleCounter, "impossible-counter", kNotice,                                                                \
    "A hardware counter gave a share far above 1; those values were left out.")                                       \
  D(kCounterSamplesLost, "counter-samples-lost", kDataLoss, "Hardware counter samples were lost.")                    \
  D(kCounterGap, "counter-gap", kNotice,                                                                              \
    "Hardware counters have a gap, in which their interval was changed; nothing that was sampled is lost.")           \
  D(kOtherGpu, "option-other-gpu", kNotice, "--gpu names another part than the one that was recorded.")               \
  D(kOtherCeilings, "option-other-ceilings", kNotice,                                                                 \
    "--ceilings names ceilings of another device; they were not used.")                                               \
  D(kModelDoesNotFit, "option-model-unfit", kNotice, "--model names a model that does not fit the recording.")        \
  D(kOptionDoubtful, "option-doubtful", kNotice, "An option changes nothing here, or contradicts what was recorded.") \
  D(kNoNvml, "no-nvml", kNotice, "NVML is not available; power, clocks and throttling are unknown.")                  \
  D(kReadingsPlaced, "readings-placed", kInfo,                                                                        \
    "Readings of a log whose times are local ones were placed beside the recording.")                                 \
  D(kReadingsContradict, "readings-contradict", kNotice,                                                              \
    "Utilisation in a log beside the recording contradicts the recording: another GPU or program, or clocks differ.") \
  D(kAssumedTimes, "assumed-times", kNotice,                                                                          \
    "Samples have no times; they were taken to be evenly apart, so how long anything lasted is a guess.")             \
  D(kAmbiguousNumber, "ambiguous-number", kNotice,                                                                    \
    "Numbers could be read in two ways (1,234: thousands, or a decimal comma); they were read as thousands.")         \
  D(kCutRecord, "cut-record", kDataLoss,                                                                              \
    "A record of a log is incomplete or mixed with that of another thread; it was skipped.")                          \
  D(kOtherFigure, "figure-disagrees", kNotice,                                                                        \
    "Figures that a file states are not what its own rows give (requests, blocks, layers, queries).")                 \
  D(kRecorderNote, "recorder-note", kInfo, "The recorder left a remark.")

enum class DiagnosticId : uint8_t {
#define LLMPROF_D(symbol, key, severity, text) symbol,
  LLMPROF_DIAGNOSTICS(LLMPROF_D)
#undef LLMPROF_D
      kCount
};

// About what was asked for, not about the input: reports say it first.
constexpr bool is_about_options(DiagnosticId id) {
  return id == DiagnosticId::kOtherGpu || id == DiagnosticId::kOtherCeilings || id == DiagnosticId::kModelDoesNotFit ||
         id == DiagnosticId::kOptionDoubtful;
}

struct DiagnosticInfo {
  std::string_view key;
  Severity severity;
  std::string_view text;
};
constexpr size_t kDiagnosticCount = static_cast<size_t>(DiagnosticId::kCount);
const std::array<DiagnosticInfo, kDiagnosticCount>& diagnostic_table();

// Counts per diagnostic, with the first few places. Cheap to create: workers hold their own and are merged.
class Diagnostics {
 public:
  // `where` is kept for the first kKeptPlaces of each kind, for example "byte 1234 (ts \"NaN\")".
  void add(DiagnosticId id, std::string where = {}, uint64_t count = 1);
  // Why: joined to the first place of what is counted already, or counted as one.
  void explain(DiagnosticId id, const std::string& cause);
  void merge(const Diagnostics& other);
  uint64_t count(DiagnosticId id) const { return counts_[static_cast<size_t>(id)]; }
  const std::vector<std::string>& places(DiagnosticId id) const { return places_[static_cast<size_t>(id)]; }
  // Replaces every place by what `text_of` makes of it.
  void rewrite_places(const std::function<std::string(std::string_view)>& text_of);
  uint64_t total() const;
  bool has(Severity at_least) const;

  static constexpr size_t kKeptPlaces = 3;

 private:
  std::array<uint64_t, kDiagnosticCount> counts_{};
  std::array<std::vector<std::string>, kDiagnosticCount> places_;
};

}  // namespace llmprof
