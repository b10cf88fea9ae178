#include "export/perfetto_writer.h"

#include <cmath>
#include <limits>

#include "export/perfetto_fields.h"
#include "export/table_view.h"

namespace llmprof::exporting {
namespace {

using protozero::pbf_writer;

constexpr uint64_t kSequence = 1;

uint64_t raw(TrackId track) { return static_cast<uint64_t>(track); }

// Perfetto keeps ids of processes and threads in 32 bits; 0 is the kernel's idle process to it.
bool is_system_id(int64_t id) { return id > 0 && id <= std::numeric_limits<int32_t>::max(); }

}  // namespace

PerfettoWriter::PerfettoWriter(const Trace& trace, TextFile& file, int64_t shift_ns)
    : trace_(trace),
      file_(file),
      shift_ns_(shift_ns),
      names_{perfetto::interned::kEventNames, {}, {}},
      categories_{perfetto::interned::kCategories, {}, {}},
      keys_{perfetto::interned::kAnnotationNames, {}, {}},
      values_{perfetto::interned::kAnnotationValues, {}, {}} {}

template <class Fill>
void PerfettoWriter::packet(uint64_t flags, Fill&& fill) {
  packet_.clear();
  pbf_writer out(packet_);
  fill(out);
  out.add_uint32(perfetto::packet::kSequenceId, kSequence);
  if (first_) {
    out.add_bool(perfetto::packet::kPreviousPacketDropped, true);
    out.add_bool(perfetto::packet::kFirstPacketOnSequence, true);
    flags |= perfetto::kStateCleared;
    first_ = false;
  }
  if (flags != 0) out.add_uint32(perfetto::packet::kSequenceFlags, static_cast<uint32_t>(flags));
  pbf_writer trace(file_.buffer());
  trace.add_message(perfetto::trace::kPacket, packet_);
  file_.flush_if_large();
}

void PerfettoWriter::clocks(int64_t time_ns) {
  packet(0, [&](pbf_writer& out) {
    const auto add_clock = [](pbf_writer& snapshot, uint64_t id, int64_t at) {
      pbf_writer clock(snapshot, perfetto::clock_snapshot::kClocks);
      clock.add_uint32(perfetto::clock_snapshot::kClockId, static_cast<uint32_t>(id));
      clock.add_uint64(perfetto::clock_snapshot::kTimestamp, static_cast<uint64_t>(at));
    };
    pbf_writer snapshot(out, perfetto::packet::kClockSnapshot);
    add_clock(snapshot, perfetto::kBoottime, time_ns + shift_ns_);
    add_clock(snapshot, perfetto::kRealtime, trace_.base_unix_ns + time_ns);
  });
}

TrackId PerfettoWriter::add(const Track& track) {
  const TrackId id = static_cast<TrackId>(++tracks_);
  packet(0, [&](pbf_writer& out) {
    pbf_writer descriptor(out, perfetto::packet::kTrackDescriptor);
    descriptor.add_uint64(perfetto::descriptor::kUuid, raw(id));
    if (track.parent != TrackId::kNone) descriptor.add_uint64(perfetto::descriptor::kParentUuid, raw(track.parent));
    const std::string name(as_utf8(track.name, kept_));
    const bool known = track.process_id && is_system_id(*track.process_id);
    if (track.thread_id && known && is_system_id(*track.thread_id)) {
      pbf_writer thread(descriptor, perfetto::descriptor::kThread);
      thread.add_int32(perfetto::thread::kPid, static_cast<int32_t>(*track.process_id));
      thread.add_int32(perfetto::thread::kTid, static_cast<int32_t>(*track.thread_id));
      thread.add_string(perfetto::thread::kName, name);
    } else if (known && !track.thread_id) {
      pbf_writer process(descriptor, perfetto::descriptor::kProcess);
      process.add_int32(perfetto::process::kPid, static_cast<int32_t>(*track.process_id));
      process.add_string(perfetto::process::kName, name);
    } else {
      descriptor.add_string(perfetto::descriptor::kName, name);
    }
    if (track.counter_unit) {
      // As a text of its own: a nested writer takes back a message without fields, which here says that it is a
      // counter.
      std::string message;
      pbf_writer counter(message);
      if (*track.counter_unit == "bytes")
        counter.add_enum(perfetto::counter::kUnit, static_cast<int32_t>(perfetto::kUnitBytes));
      else if (!track.counter_unit->empty())
        counter.add_string(perfetto::counter::kUnitName, std::string(*track.counter_unit));
      descriptor.add_message(perfetto::descriptor::kCounter, message);
    }
    if (track.orders_children)
      descriptor.add_enum(perfetto::descriptor::kChildOrdering, static_cast<int32_t>(perfetto::kExplicitOrder));
    if (track.rank) descriptor.add_int32(perfetto::descriptor::kSiblingOrderRank, *track.rank);
  });
  return id;
}

void PerfettoWriter::send(const Index& index, uint64_t iid, std::string_view text) {
  pbf_writer interned(interned_);
  pbf_writer entry(interned, index.field);
  entry.add_uint64(perfetto::interned::kIid, iid);
  const std::string_view valid = as_utf8(text, kept_);
  entry.add_string(perfetto::interned::kText, valid.data(), valid.size());
}

uint64_t PerfettoWriter::intern(Index& index, StringId id) {
  const uint64_t iid = llmprof::index(id);
  if (index.sent.empty()) index.sent.resize(trace_.strings.size());
  if (iid >= index.sent.size() || iid == 0) return intern(index, trace_.text(id));
  if (!index.sent[iid]) {
    index.sent[iid] = true;
    send(index, iid, trace_.text(id));
  }
  return iid;
}

uint64_t PerfettoWriter::intern(Index& index, std::string_view text) {
  const auto [at, fresh] = index.others.try_emplace(std::string(text), trace_.strings.size() + 1 + index.others.size());
  if (fresh) send(index, at->second, text);
  return at->second;
}

NameId PerfettoWriter::name(StringId id) { return static_cast<NameId>(intern(names_, id)); }
NameId PerfettoWriter::name(std::string_view text) { return static_cast<NameId>(intern(names_, text)); }

void PerfettoWriter::start_event(TrackId track, int64_t time_ns, uint64_t type) {
  event_.clear();
  event_ns_ = time_ns;
  pbf_writer event(event_);
  event.add_enum(perfetto::event::kType, static_cast<int32_t>(type));
  event.add_uint64(perfetto::event::kTrackUuid, raw(track));
}

void PerfettoWriter::begin(TrackId track, int64_t time_ns, std::string_view category, NameId name) {
  start_event(track, time_ns, perfetto::kSliceBegin);
  pbf_writer event(event_);
  event.add_uint64(perfetto::event::kCategoryIids, intern(categories_, category));
  event.add_uint64(perfetto::event::kNameIid, static_cast<uint64_t>(name));
}

template <class Add>
void PerfettoWriter::annotate(std::string_view key, Add&& add) {
  annotation_.clear();
  pbf_writer annotation(annotation_);
  annotation.add_uint64(perfetto::annotation::kNameIid, intern(keys_, key));
  add(annotation);
  pbf_writer(event_).add_message(perfetto::event::kDebugAnnotations, annotation_);
}

void PerfettoWriter::arg(std::string_view key, StringId text) {
  if (text == StringId::kEmpty) return;
  const uint64_t iid = intern(values_, text);
  annotate(key, [&](pbf_writer& out) { out.add_uint64(perfetto::annotation::kStringValueIid, iid); });
}
void PerfettoWriter::arg(std::string_view key, std::string_view text) {
  const uint64_t iid = intern(values_, text);
  annotate(key, [&](pbf_writer& out) { out.add_uint64(perfetto::annotation::kStringValueIid, iid); });
}
void PerfettoWriter::arg(std::string_view key, int64_t number) {
  annotate(key, [&](pbf_writer& out) { out.add_int64(perfetto::annotation::kIntValue, number); });
}
void PerfettoWriter::arg(std::string_view key, uint64_t number) {
  annotate(key, [&](pbf_writer& out) { out.add_uint64(perfetto::annotation::kUintValue, number); });
}
void PerfettoWriter::arg(std::string_view key, double number) {
  if (!std::isfinite(number)) return;
  annotate(key, [&](pbf_writer& out) { out.add_double(perfetto::annotation::kDoubleValue, number); });
}

void PerfettoWriter::flow(uint64_t id) { pbf_writer(event_).add_fixed64(perfetto::event::kFlowIds, id); }

void PerfettoWriter::finish() {
  packet(perfetto::kNeedsState, [&](pbf_writer& out) {
    out.add_uint64(perfetto::packet::kTimestamp, static_cast<uint64_t>(event_ns_ + shift_ns_));
    out.add_message(perfetto::packet::kTrackEvent, event_);
    if (!interned_.empty()) out.add_message(perfetto::packet::kInternedData, interned_);
  });
  interned_.clear();
}

void PerfettoWriter::end(TrackId track, int64_t time_ns) {
  packet(0, [&](pbf_writer& out) {
    out.add_uint64(perfetto::packet::kTimestamp, static_cast<uint64_t>(time_ns + shift_ns_));
    pbf_writer event(out, perfetto::packet::kTrackEvent);
    event.add_enum(perfetto::event::kType, static_cast<int32_t>(perfetto::kSliceEnd));
    event.add_uint64(perfetto::event::kTrackUuid, raw(track));
  });
}

void PerfettoWriter::counter(TrackId track, int64_t time_ns, double value) {
  start_event(track, time_ns, perfetto::kCounter);
  pbf_writer(event_).add_double(perfetto::event::kDoubleCounterValue, value);
  finish();
}
void PerfettoWriter::counter(TrackId track, int64_t time_ns, int64_t value) {
  start_event(track, time_ns, perfetto::kCounter);
  pbf_writer(event_).add_int64(perfetto::event::kCounterValue, value);
  finish();
}

// ---- lanes ---------------------------------------------------------------------------------------------------------

void SliceLanes::end_until(int64_t time_ns) {
  while (!open_.empty() && open_.begin()->first <= time_ns) {
    const auto [end_ns, at] = *open_.begin();
    open_.erase(open_.begin());
    Lane& lane = lanes_[at];
    out_.end(lane.track, end_ns);
    lane.ends.pop_back();
    if (lane.ends.empty())
      free_.insert(at);
    else
      open_.insert({lane.ends.back(), at});
  }
}

size_t SliceLanes::choose(int64_t end_ns) {
  if (nested_) {
    if (lanes_[0].ends.empty() || lanes_[0].ends.back() >= end_ns) return 0;
    const auto around = open_.lower_bound({end_ns, 0});
    if (around != open_.end()) return around->second;
  }
  if (!free_.empty()) return *free_.begin();
  lanes_.push_back({more_(), {}});
  free_.insert(lanes_.size() - 1);
  return lanes_.size() - 1;
}

TrackId SliceLanes::place(int64_t start_ns, int64_t end_ns) {
  end_until(start_ns);
  const size_t at = choose(end_ns);
  Lane& lane = lanes_[at];
  if (lane.ends.empty())
    free_.erase(at);
  else
    open_.erase({lane.ends.back(), at});
  lane.ends.push_back(end_ns);
  open_.insert({end_ns, at});
  return lane.track;
}

void SliceLanes::end_all() { end_until(std::numeric_limits<int64_t>::max()); }

}  // namespace llmprof::exporting
