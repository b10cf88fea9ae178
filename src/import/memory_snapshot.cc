#include "import/memory_snapshot.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/printable.h"
#include "import/memory_annotations.h"
#include "import/memory_snapshot_places.h"
#include "import/memory_snapshot_words.h"
#include "import/pickle.h"
#include "trace/trace_builder.h"

namespace llmprof::memory_snapshot {
namespace {

using pickle::Kind;
using pickle::Value;

constexpr size_t kDevicesMax = 1024;
constexpr int64_t kBytesMax = int64_t{1} << 56;  // no GPU comes near; sums of a file's blocks fit an int64_t
constexpr int64_t kMicrosecondsMax = 4'102'444'800'000'000;  // the year 2100
constexpr size_t kActionNameMax = 60;
constexpr size_t kSettingMax = 500;
constexpr size_t kRangeNameMax = 200;

struct Event {
  Action action = Action::kUnknown;
  uint64_t address = 0;
  int64_t bytes = -1, time_us = -1, free_bytes = -1;
  StringId place = StringId::kEmpty;
};

// What the blocks of a device come to.
struct DeviceState {
  int64_t reserved = 0, allocated = 0, active = 0, requested = 0;
  bool reserved_known = false, allocated_known = false, active_known = false;  // stated by segments
  int64_t live_requested = 0;                                                  // by blocks
  std::map<uint64_t, int64_t> live{};                                          // blocks in use: requested bytes
};

class SnapshotReader {
 public:
  SnapshotReader(const pickle::Document& document, const InputFile& input, Trace& trace, bool whole)
      : document_(document),
        trace_(trace),
        builder_(trace),
        whole_(whole),
        keys_(document.text_count(), Key::kUnknown),
        places_(document, keys_, builder_),
        seen_(document.container_count()),
        source_(builder_.text(input.name().substr(input.name().rfind('/') + 1))) {
    for (const NamedKey& known : kKeys)
      if (const StringId text = document.find_text(known.name); text != StringId::kEmpty)
        keys_[index(text)] = known.key;
    for (const NamedAction& known : kActions)
      if (const StringId text = document.find_text(known.name); text != StringId::kEmpty)
        actions_[index(text)] = known.action;
  }

  // Whether it is a snapshot at all.
  bool read() {
    const Value root = document_.root();
    Value segments, traces, settings, annotations;
    bool found = false;
    if (root.kind() == Kind::kList) segments = root;  // of PyTorch before 2.0
    members(root, [&](Key key, Value value) {
      if (key == Key::kSegments) segments = value, found = true;
      if (key == Key::kTraces) traces = value, found = true;
      if (key == Key::kSettings) settings = value;
      if (key == Key::kAnnotations) annotations = value;
    });
    entries(segments, "segments", [&](Value item) { segment(item); });
    if (!found && segments_ == 0) return false;
    device_traces(traces);
    read_settings(settings);
    read_annotations(annotations);
    finish();
    return true;
  }
  bool empty() const { return segments_ == 0 && events_ == 0; }

 private:
  // ---- walking ----

  // Built for the first places only.
  void count(DiagnosticId id, std::string_view what) {
    const bool kept = trace_.diagnostics.places(id).size() < Diagnostics::kKeptPlaces;
    trace_.diagnostics.add(id, kept ? std::string(what) : std::string());
  }
  template <class F>
  void members(Value dict, F&& use, uint32_t most = UINT32_MAX) const {
    const auto named = [&](Value key, Value value) {
      use(key.kind() == Kind::kText ? keys_[key.index()] : Key::kUnknown, value);
    };
    document_.members(dict, named, most);
  }
  // Each container of a list once: one that stands in a list a million times costs no more than that.
  template <class F>
  void entries(Value list, const char* where, F&& use) {
    if (!list.is_container() || list.kind() == Kind::kDict || !first_visit(list)) return;
    document_.each(list, [&](Value item) {
      if (item.kind() != Kind::kDict && item.kind() != Kind::kList)
        count(DiagnosticId::kMalformedEvent, fmt::format("{} in {}", kind_name(item.kind()), where));
      else if (item.kind() == Kind::kDict && !first_visit(item))
        count(DiagnosticId::kDuplicateEvent, where);
      else
        use(item);
      return true;
    });
  }
  bool first_visit(Value container) {
    const bool first = !seen_[container.index()];
    seen_[container.index()] = true;
    return first;
  }

  // ---- values ----

  int64_t bytes(Value value, const char* field) {
    const std::optional<int64_t> number = document_.integer(value);
    if (number && *number >= 0 && *number <= kBytesMax) return *number;
    count(DiagnosticId::kBadNumber, fmt::format("{} is {}", field, number ? std::to_string(*number) : found(value)));
    return -1;
  }
  uint64_t unsigned_number(Value value) const { return static_cast<uint64_t>(document_.integer(value).value_or(0)); }
  static std::string found(Value value) { return std::string(pickle::kind_name(value.kind())); }
  StringId text(Value value) { return builder_.text(document_.text(value).substr(0, kActionNameMax)); }

  // ---- segments ----

  struct Segment {
    int64_t device = 0;
    uint64_t address = 0, stream = 0;
    int64_t total = -1, allocated = -1, active = -1;
    StringId pool = StringId::kEmpty;
    Value blocks{};
  };

  void segment(Value item) {
    Segment segment;
    bool known = false;
    members(item, [&](Key key, Value value) {
      if (key == Key::kDevice) segment.device = document_.integer(value).value_or(-1);
      if (key == Key::kAddress) segment.address = unsigned_number(value);
      if (key == Key::kStream) segment.stream = unsigned_number(value);
      if (key == Key::kTotalSize) segment.total = bytes(value, "total_size"), known = true;
      if (key == Key::kAllocatedSize) segment.allocated = bytes(value, "allocated_size");
      if (key == Key::kActiveSize) segment.active = bytes(value, "active_size");
      if (key == Key::kSegmentType) segment.pool = text(value);
      if (key == Key::kBlocks) segment.blocks = value, known = true;
    });
    if (!known) return count(DiagnosticId::kMissingField, "a segment without total_size and blocks");
    if (segment.device < 0 || segment.device >= static_cast<int64_t>(kDevicesMax))
      return count(DiagnosticId::kBadNumber, fmt::format("device {} of a segment", segment.device));
    ++segments_;
    DeviceState& state = states_[static_cast<int32_t>(segment.device)];
    const auto add = [](int64_t value, int64_t& sum, bool& stated) {
      if (value >= 0 && !__builtin_add_overflow(sum, value, &sum)) stated = true;
    };
    add(segment.total, state.reserved, state.reserved_known);
    add(segment.allocated, state.allocated, state.allocated_known);
    add(segment.active, state.active, state.active_known);
    uint64_t next = segment.address;  // of blocks that do not have theirs, as PyTorch before 2.1 wrote them
    entries(segment.blocks, "blocks", [&](Value block) { this->block(segment, block, state, next); });
  }

  void block(const Segment& segment, Value item, DeviceState& state, uint64_t& next) {
    MemoryBlocks::Values row;
    row.source = source_;
    row.device = static_cast<int32_t>(segment.device);
    row.segment = segment.address;
    row.address = next;
    row.stream = segment.stream;
    row.pool = segment.pool;
    row.bytes = row.requested_bytes = -1;
    Value frames, history;
    members(item, [&](Key key, Value value) {
      if (key == Key::kAddress) row.address = unsigned_number(value);
      if (key == Key::kSize) row.bytes = bytes(value, "size of a block");
      if (key == Key::kRequestedSize) row.requested_bytes = bytes(value, "requested_size");
      if (key == Key::kState) row.state = text(value);
      if (key == Key::kFrames) frames = value;
      if (key == Key::kHistory) history = value;
    });
    if (row.bytes < 0) return count(DiagnosticId::kMissingField, "a block without its size");
    next = row.address + static_cast<uint64_t>(row.bytes);
    first_of_history(history, row.requested_bytes, frames);
    row.place = places_.of(frames);
    builder_.add<MemoryBlocks>(row);
    if (trace_.text(row.state) != "active_allocated") return;
    const int64_t used = row.requested_bytes >= 0 ? row.requested_bytes : row.bytes;
    if (__builtin_add_overflow(state.live_requested, used, &state.live_requested)) state.live_requested = INT64_MAX;
    state.live.try_emplace(row.address, used);
  }
  // What PyTorch before 2.1 says of the last allocation in a block.
  void first_of_history(Value history, int64_t& requested, Value& frames) {
    const auto take = [&](Key key, Value value) {
      if (key == Key::kRealSize && requested < 0) requested = bytes(value, "real_size");
      if (key == Key::kFrames && !frames.is_container()) frames = value;
    };
    document_.each(history, [&](Value entry) {
      members(entry, take, kFieldsMax);
      return false;
    });
  }

  // ---- events ----

  static bool is_time(int64_t us) { return us >= 0 && us <= kMicrosecondsMax; }

  // The first event of the file is at 0.
  void device_traces(Value traces) {
    std::vector<std::vector<Event>> all;
    entries(traces, "device_traces", [&](Value list) {
      if (all.size() >= kDevicesMax) return count(DiagnosticId::kLimitReached, "more than 1024 devices");
      std::vector<Event>& events = all.emplace_back();
      entries(list, "device_traces", [&](Value item) { add_event(item, events); });
    });
    int64_t first = INT64_MAX;
    for (const std::vector<Event>& events : all)
      for (const Event& event : events) first = std::min(first, event.time_us);
    epoch_us_ = first == INT64_MAX ? 0 : first;
    trace_.base_unix_ns = epoch_us_ * 1000;
    for (size_t device = 0; device < all.size(); ++device)
      if (!all[device].empty()) add_events(static_cast<int32_t>(device), all[device]);
    add_rows();
    if (assumed_ > 0) trace_.diagnostics.add(DiagnosticId::kAssumedTimes, "one microsecond between events", assumed_);
  }

  // Each GPU has its own history: theirs are put in the order of time.
  void add_rows() {
    const auto earlier = [](const MemoryEvents::Values& a, const MemoryEvents::Values& b) {
      return a.time_ns < b.time_ns;
    };
    if (!std::is_sorted(rows_.begin(), rows_.end(), earlier)) std::stable_sort(rows_.begin(), rows_.end(), earlier);
    for (const MemoryEvents::Values& row : rows_) builder_.add<MemoryEvents>(row);
    rows_ = {};
  }

  void add_event(Value item, std::vector<Event>& events) {
    Event event;
    Value frames, action;
    bool timed = false;
    members(item, [&](Key key, Value value) {
      if (key == Key::kAction) action = value;
      if (key == Key::kEventAddress) event.address = unsigned_number(value);
      if (key == Key::kSize) event.bytes = document_.integer(value).value_or(-1);
      if (key == Key::kTime) event.time_us = document_.integer(value).value_or(-1), timed = true;
      if (key == Key::kDeviceFree) event.free_bytes = bytes(value, "device_free");
      if (key == Key::kFrames) frames = value;
    });
    event.action = action_of(action);
    if (event.action == Action::kUnknown || event.action == Action::kIgnored) return;
    if (!timed) {  // PyTorch 2.0
      event.time_us = events.empty() ? 0 : events.back().time_us + 1;
      ++assumed_;
    }
    if (!is_time(event.time_us) || event.bytes < 0 || event.bytes > kBytesMax)
      return count(DiagnosticId::kMissingField, fmt::format("event {} without its size or time", events.size() + 1));
    // The order of the list is what happened; a clock that was set back does not change it.
    if (!events.empty() && event.time_us < events.back().time_us) {
      event.time_us = events.back().time_us;
      count(DiagnosticId::kUnsortedEvents, fmt::format("event {}", events.size() + 1));
    }
    if (event.action == Action::kAllocated || event.action == Action::kFailed) event.place = places_.of(frames);
    events.push_back(event);
  }
  Action action_of(Value name) {
    if (name.kind() != Kind::kText) {
      count(DiagnosticId::kMissingField, "an event without its action");
      return Action::kUnknown;
    }
    const auto [found, added] = actions_.try_emplace(name.index(), Action::kUnknown);
    if (added)
      count(DiagnosticId::kUnknownCategory,
            fmt::format("event \"{}\"", printable(document_.text(name).substr(0, kActionNameMax))));
    return found->second;
  }

  static int64_t change_in_use(const Event& event) {
    return event.action == Action::kAllocated ? event.bytes : event.action == Action::kFreed ? -event.bytes : 0;
  }
  static int64_t change_reserved(const Event& event) {
    return event.action == Action::kReserved ? event.bytes : event.action == Action::kReleased ? -event.bytes : 0;
  }

  // Whether the history leads to the blocks of the snapshot: what it leaves in use is there, no smaller.
  bool leads_to(const std::vector<Event>& events, const DeviceState& state) const {
    std::map<uint64_t, int64_t> in_use;
    for (const Event& event : events) {
      if (event.action == Action::kAllocated) in_use[event.address] = event.bytes;
      if (event.action == Action::kFreed) in_use.erase(event.address);
    }
    return std::all_of(in_use.begin(), in_use.end(), [&](const auto& block) {
      const auto found = state.live.find(block.first);
      return found != state.live.end() && found->second >= block.second;
    });
  }
  // What is in use or held before the first event: what there is at the end, less all changes. -1: not known.
  template <class Change>
  static int64_t before(const std::vector<Event>& events, int64_t at_end, Change&& change) {
    int64_t level = at_end, least = at_end;
    for (size_t i = events.size(); i-- > 0;) {
      if (__builtin_sub_overflow(level, change(events[i]), &level)) return -1;
      least = std::min(least, level);
    }
    return least < 0 ? -1 : level;
  }

  void add_events(int32_t device, const std::vector<Event>& events) {
    DeviceState& state = states_[device];
    const bool leads = whole_ && leads_to(events, state);
    int64_t in_use = leads ? before(events, state.live_requested, change_in_use) : -1;
    int64_t reserved = leads && state.reserved_known ? before(events, state.reserved, change_reserved) : -1;
    if (in_use < 0) trace_.metadata[fmt::format("memory_history.{}", device)] = "does not lead to the snapshot";
    if (in_use >= 0) add_figure(device, "snapshot.before_history_bytes", static_cast<double>(in_use));
    const ThreadId thread = builder_.thread(0, -1, builder_.text("PyTorch memory"));
    int64_t last_us = -1, same = 0;
    for (const Event& event : events) {
      // Events of one microsecond keep their order.
      same = event.time_us == last_us ? std::min<int64_t>(same + 1, 999) : 0;
      last_us = event.time_us;
      const int64_t time_ns = (event.time_us - epoch_us_) * 1000 + same;
      if (in_use >= 0) in_use += change_in_use(event);
      if (reserved >= 0) reserved += change_reserved(event);
      ++events_;
      if (event.action == Action::kFailed)
        builder_.add<MemoryFailures>({.time_ns = time_ns,
                                      .device = device,
                                      .requested_bytes = event.bytes,
                                      .free_bytes = event.free_bytes,
                                      .place = event.place});
      if (change_in_use(event) == 0) continue;
      rows_.push_back({.time_ns = time_ns,
                       .thread = thread,
                       .device = device,
                       .address = event.address,
                       .bytes = change_in_use(event),
                       .allocated_bytes = in_use,
                       .reserved_bytes = reserved,
                       .place = event.place});
    }
  }

  // ---- the rest ----

  void read_settings(Value settings) {
    document_.members(settings, [&](Value key, Value value) {
      const std::string name = "allocator." + std::string(document_.text(key).substr(0, kActionNameMax));
      if (key.kind() != Kind::kText || trace_.metadata.size() > 1000) return;
      if (value.kind() == Kind::kText)
        trace_.metadata[name] = document_.text(value).substr(0, kSettingMax);
      else if (value.kind() == Kind::kBoolean)
        trace_.metadata[name] = value.payload() != 0 ? "True" : "False";
      else if (const std::optional<double> number = document_.number(value))
        trace_.metadata[name] = fmt::format("{}", *number);
    });
  }

  // Starts and ends of ranges of the program; of a snapshot without events they have no epoch, and say nothing.
  void read_annotations(Value annotations) {
    size_t marks = 0;
    AnnotationPairs pairs;
    entries(annotations, "external_annotations", [&](Value item) {
      if (item.kind() != Kind::kDict) return;
      ++marks;
      if (events_ > 0) read_mark(item, pairs);
    });
    if (marks > 0) trace_.metadata["external_annotations"] = std::to_string(marks);
    for (const AnnotationPairs::Range& range : pairs.ranges())
      builder_.add<MemoryRanges>({.source = source_,
                                  .start_ns = (range.start.time_us - epoch_us_) * 1000,
                                  .dur_ns = range.end_us < 0 ? -1 : (range.end_us - range.start.time_us) * 1000,
                                  .device = range.start.device,
                                  .name = range.start.name});
  }
  void read_mark(Value item, AnnotationPairs& pairs) {
    AnnotationMark mark;
    std::string_view stage;
    members(item, [&](Key key, Value value) {
      if (key == Key::kName && value.kind() == Kind::kText)
        mark.name = builder_.text(document_.text(value).substr(0, kRangeNameMax));
      if (key == Key::kStage && value.kind() == Kind::kText) stage = document_.text(value);
      if (key == Key::kTime) mark.time_us = document_.integer(value).value_or(-1);
      if (key == Key::kDevice) {
        const int64_t device = document_.integer(value).value_or(-1);
        if (device >= 0 && device < static_cast<int64_t>(kDevicesMax)) mark.device = static_cast<int32_t>(device);
      }
    });
    if (stage != "START" && stage != "END") return;  // what a program notes down itself
    if (mark.name == StringId::kEmpty || mark.device < 0 || !is_time(mark.time_us))
      return count(DiagnosticId::kMissingField, "an annotation without its name, device or time");
    if (stage == "START" && !pairs.start(mark)) count(DiagnosticId::kLimitReached, "annotations");
    // Without its start it began before the history.
    if (stage == "END") pairs.end(mark);
  }

  void add_figure(int32_t device, const char* name, double value) {
    builder_.add<AllocatorFigures>({.source = source_, .device = device, .name = builder_.text(name), .value = value});
  }
  void finish() {
    for (const auto& [device, state] : states_) {
      builder_.add<Devices>({.device = device, .name = builder_.text("")});
      if (state.reserved_known || whole_)
        add_figure(device, "snapshot.total_size", static_cast<double>(state.reserved));
      if (state.allocated_known) add_figure(device, "snapshot.allocated_size", static_cast<double>(state.allocated));
      if (state.active_known) add_figure(device, "snapshot.active_size", static_cast<double>(state.active));
    }
  }

  const pickle::Document& document_;
  Trace& trace_;
  TraceBuilder builder_;
  const bool whole_;
  std::vector<Key> keys_;                 // by text
  std::map<uint32_t, Action> actions_{};  // by text
  Places places_;
  std::vector<bool> seen_;  // by container
  StringId source_;
  std::map<int32_t, DeviceState> states_{};
  std::vector<MemoryEvents::Values> rows_{};
  int64_t epoch_us_ = 0;
  uint64_t segments_ = 0, events_ = 0, assumed_ = 0;
};

constexpr const char* kHowToDump =
    "make one with torch.cuda.memory._record_memory_history() before and torch.cuda.memory._dump_snapshot(\"FILE\") "
    "after the code in question";

bool has_text(std::string_view head, std::string_view text) { return head.find(text) != std::string_view::npos; }

bool is_pickle(std::string_view head) { return head.size() >= 3 && head[0] == '\x80' && head[1] >= 2 && head[1] <= 5; }

Error refused(const pickle::Ending& ending, const InputFile& input) {
  if (ending.text.ends_with("of protocol 0"))
    return {"expected a pickle of protocol 2 or later, found the opcode " + ending.text,
            fmt::format("{}, byte {}", input.name(), ending.offset),
            "write it again with pickle.dump(snapshot, file, protocol=4), or with torch.cuda.memory._dump_snapshot"};
  return {fmt::format("expected a memory snapshot, found a pickle with the opcode {}: it makes objects, of which a "
                      "snapshot has none, and llmprof runs nothing that a file names",
                      ending.text),
          fmt::format("{}, byte {}", input.name(), ending.offset), kHowToDump};
}

}  // namespace

int sniff(std::string_view head) {
  if (head.starts_with("PK\x03\x04")) return has_text(head.substr(0, 512), "/data.pkl") ? 60 : 0;
  const bool named = has_text(head, "segments") || has_text(head, "device_traces") || has_text(head, "segment_type");
  if (is_pickle(head)) return named ? 95 : 10;
  // Protocol 0 is text.
  return (head.starts_with("(dp") || head.starts_with("(lp")) && named ? 60 : 0;
}

Status import(InputFile& input, Trace& trace) {
  if (input.head().starts_with("PK\x03\x04"))
    return fail("expected a memory snapshot, found a zip archive of torch.save", input.name(),
                "a snapshot is a plain pickle; torch.cuda.memory._dump_snapshot(\"FILE\") writes it. From this one: "
                "pickle.dump(torch.load(\"FILE\"), open(\"snapshot.pickle\", \"wb\"))");
  pickle::Document document;
  const pickle::Ending ending = document.read(input);
  if (ending.why == pickle::Ending::Why::kRefused) return tl::unexpected<Error>(refused(ending, input));
  if (ending.why == pickle::Ending::Why::kTooLarge)
    return fail("expected a memory snapshot of a size that can be read, found " + ending.text,
                fmt::format("{}, byte {}", input.name(), ending.offset),
                "record a shorter history: torch.cuda.memory._record_memory_history(max_entries=100000)");
  const bool whole = ending.why == pickle::Ending::Why::kWhole;
  const std::string what = whole ? "" : fmt::format("byte {}: {}", ending.offset, ending.text);
  SnapshotReader reader(document, input, trace, whole);
  if (!reader.read()) {
    if (!whole)
      return fail("expected a memory snapshot, found a pickle that ends before it has a segment or an event: " +
                      (input.damaged() ? input.damage() : ending.text),
                  fmt::format("{}, byte {}", input.name(), ending.offset), "copy it again, or dump it again");
    return fail(
        fmt::format("expected a memory snapshot, a dict with \"segments\" and \"device_traces\", found a pickle "
                    "of {} without them",
                    pickle::kind_name(document.root().kind())),
        input.name(), kHowToDump);
  }
  if (whole && reader.empty())
    return fail(
        "expected a memory snapshot with segments or events, found one without either: the process had no "
        "memory of a GPU",
        input.name(), kHowToDump);
  if (!whole) trace.diagnostics.add(DiagnosticId::kTruncatedFile, what);
  if (ending.trailing) trace.diagnostics.add(DiagnosticId::kTrailingData, "behind the end of the pickle");
  if (input.damaged()) trace.diagnostics.explain(DiagnosticId::kTruncatedFile, input.damage());
  return {};
}

}  // namespace llmprof::memory_snapshot
