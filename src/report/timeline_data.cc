#include "report/timeline_data.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "base/json_writer.h"
#include "report/timeline_slices.h"

namespace llmprof {
namespace {

using namespace timeline;

constexpr uint32_t kNoSlice = 0xFFFFFFFFU;
constexpr uint16_t kNoValue = 0xFFFF;

uint64_t zigzag(int64_t value) { return (static_cast<uint64_t>(value) << 1) ^ static_cast<uint64_t>(value >> 63); }

struct PackedColumn {
  const char* name;
  size_t width = 0;
  std::string bytes;
};

// As many planes as the largest value needs: all lowest bytes, then all second bytes, ...
PackedColumn planes(const char* name, const std::vector<uint64_t>& values) {
  uint64_t all = 0;
  for (const uint64_t value : values) all |= value;
  PackedColumn out{name, 1, {}};
  while (out.width < sizeof(uint64_t) && (all >> (8 * out.width)) != 0) ++out.width;
  out.bytes.resize(out.width * values.size());
  size_t at = 0;
  for (size_t plane = 0; plane < out.width; ++plane)
    for (const uint64_t value : values) out.bytes[at++] = static_cast<char>(value >> (8 * plane));
  return out;
}

// Where rows of the recording lie among the slices of all tracks.
class Places {
 public:
  Places(const Trace& trace, const Timeline& timeline) {
    of(Of::kActivity).assign(trace.gpu_ops.size(), kNoSlice);
    of(Of::kCall).assign(trace.api_calls.size(), kNoSlice);
    of(Of::kRange).assign(trace.annotations.size(), kNoSlice);
    of(Of::kGraph).assign(trace.graph_launches.size(), kNoSlice);
    uint32_t first = 0;
    for (const Track& track : timeline.tracks) {
      for (uint32_t i = 0; i < track.slices.size(); ++i) note(track.slices[i].own, first + i);
      for (const auto& [anchor, slice] : track.merged) note(anchor, first + slice);
      first += static_cast<uint32_t>(track.slices.size());
    }
  }
  uint32_t slice(Anchor anchor) const {
    if (anchor.of == Of::kNothing) return kNoSlice;
    const std::vector<uint32_t>& rows = rows_[static_cast<size_t>(anchor.of)];
    return anchor.row < rows.size() ? rows[anchor.row] : kNoSlice;
  }

 private:
  void note(Anchor anchor, uint32_t slice) {
    if (anchor.of != Of::kNothing) of(anchor.of)[anchor.row] = slice;
  }
  std::vector<uint32_t>& of(Of table) { return rows_[static_cast<size_t>(table)]; }
  std::array<std::vector<uint32_t>, static_cast<size_t>(Of::kCount)> rows_;
};

// The steps that are shown first stay exact, and so does what the host did for them.
int64_t shown_from(const Trace& trace, StepId step) {
  const int64_t start = trace.steps.start_ns[step], length = trace.steps.end_ns[step] - start;
  return std::max(std::min(start, trace.steps.host_start_ns[step]), start - length);
}

std::vector<timeline::Stretch> shown_steps(const Trace& trace, const TimelineChoice& choice) {
  std::vector<timeline::Stretch> all, out;
  for (const StageChoice& stage : choice.stages)
    for (const StepId step : {stage.median.step, stage.slowest.step})
      if (step != kNoRow) all.push_back({shown_from(trace, step), trace.steps.end_ns[step]});
  std::sort(all.begin(), all.end(), [](const auto& a, const auto& b) { return a.start_ns < b.start_ns; });
  for (const timeline::Stretch& one : all) {
    if (out.empty() || one.start_ns > out.back().end_ns)
      out.push_back(one);
    else
      out.back().end_ns = std::max(out.back().end_ns, one.end_ns);
  }
  return out;
}

class Packer {
 public:
  Packer(const Trace& trace, const TimelineChoice& choice)
      : trace_(trace), choice_(choice), timeline_(collect(trace, choice)) {
    merge_short(timeline_, choice.slices_most, shown_steps(trace, choice));
  }

  std::string run() {
    if (timeline_.tracks.empty() && timeline_.counters.empty()) return {};
    find_ends();
    pack_slices();
    pack_counters();
    const std::string header = make_header();
    std::string out = "LPTIME1\n";
    for (size_t byte = 0; byte < 4; ++byte) out += static_cast<char>(header.size() >> (8 * byte));
    out += header;
    for (const PackedColumn& column : columns_) out += column.bytes;
    return out;
  }

 private:
  void find_ends() {
    start_ns_ = std::numeric_limits<int64_t>::max(), end_ns_ = std::numeric_limits<int64_t>::min();
    for (const Track& track : timeline_.tracks) {
      for (const Slice& slice : track.slices) {
        start_ns_ = std::min(start_ns_, slice.start_ns);
        end_ns_ = std::max(end_ns_, slice.end_ns());
      }
    }
    for (const Counter& counter : timeline_.counters) {
      start_ns_ = std::min(start_ns_, counter.times_ns.front());
      end_ns_ = std::max(end_ns_, counter.times_ns.back());
    }
  }

  template <class Value>
  void add_column(const char* name, Value&& value) {
    std::vector<uint64_t> values;
    values.reserve(slices_);
    for (const Track& track : timeline_.tracks) {
      const Slice* before = nullptr;
      for (const Slice& slice : track.slices) {
        values.push_back(value(slice, before));
        before = &slice;
      }
    }
    columns_.push_back(planes(name, values));
  }

  void pack_slices() {
    for (const Track& track : timeline_.tracks) slices_ += track.slices.size();
    add_column("start", [&](const Slice& slice, const Slice* before) {
      return static_cast<uint64_t>(slice.start_ns - (before != nullptr ? before->start_ns : start_ns_));
    });
    add_column("dur", [](const Slice& slice, const Slice*) { return static_cast<uint64_t>(slice.dur_ns); });
    add_column("name", [&](const Slice& slice, const Slice*) { return text_id(slice.name); });
    add_column("detail", [&](const Slice& slice, const Slice*) { return text_id(slice.detail); });
    add_column("depth", [](const Slice& slice, const Slice*) { return slice.depth; });
    add_column("tint", [](const Slice& slice, const Slice*) { return slice.tint; });
    const Places places(trace_, timeline_);
    int64_t last = 0;
    add_column("flow", [&](const Slice& slice, const Slice* before) -> uint64_t {
      if (before == nullptr) last = 0;
      const uint32_t target = places.slice(slice.target);
      if (target == kNoSlice) return 0;
      const uint64_t code = 1 + zigzag(int64_t{target} - last);
      last = target;
      return code;
    });
  }

  // Texts in the order in which slices need them: neighbours have neighbouring numbers.
  uint64_t text_id(uint32_t text) {
    if (ids_.empty()) ids_.assign(timeline_.texts.size(), 0);
    if (text != 0 && ids_[text] == 0) {
      texts_.push_back(text);
      ids_[text] = static_cast<uint32_t>(texts_.size());
    }
    return ids_[text];
  }

  void pack_counters() {
    std::vector<uint64_t> times, values;
    for (const Counter& counter : timeline_.counters) {
      Range& range = ranges_.emplace_back();
      for (const float value : counter.values) {
        if (std::isnan(value)) continue;
        range.low = std::min(range.low, double{value});
        range.high = std::max(range.high, double{value});
      }
      if (counter.unit == "%" && range.high <= 100) range.high = 100;
      int64_t before = start_ns_;
      for (size_t i = 0; i < counter.values.size(); ++i) {
        times.push_back(static_cast<uint64_t>(counter.times_ns[i] - before));
        before = counter.times_ns[i];
        values.push_back(range.code(counter.values[i]));
      }
    }
    columns_.push_back(planes("counter_time", times));
    columns_.push_back(planes("counter_value", values));
  }

  std::string make_header() const {
    JsonWriter json(0);
    json.begin_object().field("format", "llmprof-timeline").field("version", 1);
    json.field("base_unix_ns", std::to_string(trace_.base_unix_ns == 0 ? 0 : trace_.base_unix_ns + start_ns_));
    json.field("duration_ns", end_ns_ - start_ns_).field("slices", uint64_t{slices_});
    write_merged(json);
    json.key("tints").begin_array();
    for (uint8_t tint = 0; tint < static_cast<uint8_t>(Tint::kCount); ++tint) json.value(tint_name(tint));
    json.end_array().key("groups").begin_array();
    for (const std::string& group : timeline_.groups) json.value(group);
    json.end_array();
    write_tracks(json);
    write_choices(json);
    json.key("texts").begin_array();
    for (const uint32_t text : texts_) json.value(timeline_.texts.get(StringId{text}));
    json.end_array().key("shorts").begin_object();
    for (const auto& [text, shown] : timeline_.shorts)
      if (ids_.size() > text && ids_[text] != 0) json.field(std::to_string(ids_[text]), shown);
    json.end_object().key("columns").begin_array();
    size_t offset = 0;
    for (const PackedColumn& column : columns_) {
      json.begin_object().field("name", column.name).field("width", uint64_t{column.width});
      json.field("offset", uint64_t{offset}).field("bytes", uint64_t{column.bytes.size()}).end_object();
      offset += column.bytes.size();
    }
    return json.end_array().end_object().take();
  }

  void write_merged(JsonWriter& json) const {
    json.key("merged");
    if (timeline_.merged_below_ns == 0) {
      json.null();
      return;
    }
    json.begin_object().field("below_ns", timeline_.merged_below_ns);
    json.field("slices", timeline_.merged_slices).end_object();
  }

  void write_tracks(JsonWriter& json) const {
    json.key("tracks").begin_array();
    uint64_t first = 0;
    for (const Track& track : timeline_.tracks) {
      json.begin_object().field("name", track.name).field("group", track.group).field("kind", name_of(track.kind));
      json.field("first", first).field("count", uint64_t{track.slices.size()}).end_object();
      first += track.slices.size();
    }
    json.end_array().key("counters").begin_array();
    first = 0;
    for (size_t i = 0; i < timeline_.counters.size(); ++i) {
      const Counter& counter = timeline_.counters[i];
      json.begin_object().field("name", counter.name).field("unit", counter.unit).field("group", counter.group);
      json.field("low", ranges_[i].low).field("high", ranges_[i].high).field("first", first);
      json.field("count", uint64_t{counter.values.size()}).end_object();
      first += counter.values.size();
    }
    json.end_array();
  }

  void write_choices(JsonWriter& json) const {
    const auto step = [&](const char* key, StepId of) {
      json.key(key).begin_object();
      json.field("from_ns", std::max<int64_t>(shown_from(trace_, of) - start_ns_, 0));
      json.field("start_ns", trace_.steps.start_ns[of] - start_ns_);
      json.field("end_ns", trace_.steps.end_ns[of] - start_ns_).end_object();
    };
    json.key("stages").begin_array();
    for (const StageChoice& stage : choice_.stages) {
      if (stage.median.step == kNoRow || stage.slowest.step == kNoRow) continue;
      json.begin_object().field("stage", stage.stage).field("steps", uint64_t{stage.steps});
      step("median", stage.median.step);
      step("slowest", stage.slowest.step);
      json.end_object();
    }
    json.end_array();
  }

  struct Range {
    double low = 0, high = 0;
    uint64_t code(float value) const {
      if (std::isnan(value)) return kNoValue;
      if (high <= low) return 0;
      return static_cast<uint64_t>(std::lround((double{value} - low) / (high - low) * (kNoValue - 1)));
    }
  };

  const Trace& trace_;
  const TimelineChoice& choice_;
  Timeline timeline_;
  int64_t start_ns_ = 0, end_ns_ = 0;
  size_t slices_ = 0;
  std::vector<uint32_t> ids_, texts_;  // text -> its number in the file, less 1: its place in texts_
  std::vector<Range> ranges_;          // by counter
  std::vector<PackedColumn> columns_;
};

}  // namespace

std::string pack_timeline(const Trace& trace, const TimelineChoice& choice) { return Packer(trace, choice).run(); }

}  // namespace llmprof
