// Packets of a Perfetto trace (docs/formats/perfetto.md): tracks, slices, counters, with names interned. One sequence
// of packets, whose incremental state is cleared by the first; ids of tracks count from 1.
//
// An event is begun, gets its arguments and flows, and is finished before the next one is begun. Whoever writes slices
// to a track ends them innermost first: SliceLanes sees to that.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <protozero/pbf_writer.hpp>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "export/destination.h"
#include "trace/trace.h"

namespace llmprof::exporting {

enum class TrackId : uint64_t { kNone = 0 };

struct Track {
  std::string name;
  TrackId parent = TrackId::kNone;
  std::optional<int32_t> rank = {};        // place among its siblings
  bool orders_children = false;            // its children stand by their rank
  std::optional<int64_t> process_id = {};  // of a process or, with the next, of a thread
  std::optional<int64_t> thread_id = {};
  std::optional<std::string_view> counter_unit = {};  // of a counter
};

// A name as events refer to it.
enum class NameId : uint64_t {};

class PerfettoWriter {
 public:
  // `shift_ns` is added to every time: Perfetto's times are not negative.
  PerfettoWriter(const Trace& trace, TextFile& file, int64_t shift_ns);

  // What clocks say at one moment of the trace; for a trace whose epoch is known.
  void clocks(int64_t time_ns);
  TrackId add(const Track& track);

  NameId name(StringId id);
  NameId name(std::string_view text);

  void begin(TrackId track, int64_t time_ns, std::string_view category, NameId name);
  void arg(std::string_view key, StringId text);  // none if the text is empty
  void arg(std::string_view key, std::string_view text);
  void arg(std::string_view key, int64_t number);
  void arg(std::string_view key, uint64_t number);
  void arg(std::string_view key, double number);  // none if it is NaN
  void flow(uint64_t id);
  void finish();

  void end(TrackId track, int64_t time_ns);
  void counter(TrackId track, int64_t time_ns, double value);
  void counter(TrackId track, int64_t time_ns, int64_t value);

 private:
  // One index of InternedData. Texts of the trace keep their handles as ids, others follow behind.
  struct Index {
    protozero::pbf_tag_type field;
    std::vector<bool> sent;
    std::unordered_map<std::string, uint64_t> others;
  };
  uint64_t intern(Index& index, StringId id);
  uint64_t intern(Index& index, std::string_view text);
  void send(const Index& index, uint64_t iid, std::string_view text);
  void start_event(TrackId track, int64_t time_ns, uint64_t type);
  template <class Add>
  void annotate(std::string_view key, Add&& add);
  // A packet with the fields that every one has, `fill` adding its own.
  template <class Fill>
  void packet(uint64_t flags, Fill&& fill);

  const Trace& trace_;
  TextFile& file_;
  int64_t shift_ns_;
  Index names_, categories_, keys_, values_;
  std::string event_, interned_, annotation_, packet_, kept_;  // being written
  int64_t event_ns_ = 0;
  uint64_t tracks_ = 0;
  bool first_ = true;
};

// Slices on one track so that those of each lane nest: what overlaps a slice of a lane without lying in it goes to
// another, as does what may not lie in another at all. The first lane is the track itself; the others are tracks of the
// same name, which Perfetto draws as one with it. Slices come by start, of equal ones the longest first.
class SliceLanes {
 public:
  // `nested`: slices may lie in each other. `more` makes the track of another lane.
  SliceLanes(PerfettoWriter& out, bool nested, TrackId first, std::function<TrackId()> more)
      : out_(out), nested_(nested), more_(std::move(more)) {
    lanes_.push_back({first, {}});
    free_.insert(0);
  }
  // The track on which a slice of that time is to begin now; what has ended by then is ended.
  TrackId place(int64_t start_ns, int64_t end_ns);
  void end_all();

 private:
  struct Lane {
    TrackId track;
    std::vector<int64_t> ends;  // of the slices that are open, outermost first
  };
  size_t choose(int64_t end_ns);
  void end_until(int64_t time_ns);

  PerfettoWriter& out_;
  bool nested_;
  std::function<TrackId()> more_;
  std::vector<Lane> lanes_;
  std::set<std::pair<int64_t, size_t>> open_;  // end of the innermost slice of a lane, and the lane
  std::set<size_t> free_;                      // lanes without an open slice
};

}  // namespace llmprof::exporting
