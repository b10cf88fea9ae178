#include "import/kineto_block.h"

#include <cstring>

#include "import/kineto_emit.h"
#include "import/kineto_event.h"

namespace llmprof::kineto {
namespace {

using json::Outcome;

// Top-level values other than the events are kept as text up to this size (deviceProperties of 16 GPUs takes 8 KiB).
constexpr size_t kMetadataBytesMax = 1024 * 1024;
// One event may be this long before it counts as damage: a lost quote must not pull the rest of the file into memory.
constexpr size_t kEventBytesMax = 16 * 1024 * 1024;

std::string place(const Block& block, const char* at) {
  return "byte " + std::to_string(block.offset + static_cast<uint64_t>(at - block.bytes.data()));
}

// `p` stands on the brace of an object. True if its first key is one that events start with.
bool first_key_is_of_event(const char* p, const char* end) {
  p = json::skip_space(p + 1);
  if (p >= end || *p != '"') return false;
  static constexpr std::string_view kKeys[] = {"ph\"", "cat\"", "name\"", "pid\"", "tid\"", "ts\"", "dur\"", "args\""};
  const std::string_view rest(p + 1, static_cast<size_t>(end - p - 1));
  for (const std::string_view key : kKeys)
    if (rest.starts_with(key)) return true;
  return false;
}

bool is_event_start(std::string_view bytes, size_t at) {
  if (bytes[at] != '{') return false;
  size_t before = at;
  while (before > 0 && json::is_space(bytes[before - 1])) --before;
  if (before == 0 || (bytes[before - 1] != ',' && bytes[before - 1] != '[')) return false;
  return first_key_is_of_event(bytes.data() + at, bytes.data() + bytes.size());
}

// Moves behind one top-level key and its value. kOk with state changed when the events begin.
Outcome parse_top_key(Block& block, const char*& p, const char* end, State& state) {
  if (*p == ',') return ++p, Outcome::kOk;
  if (*p == '}') {
    ++p;
    state = State::kDone;
    return Outcome::kOk;
  }
  if (*p != '"') return Outcome::kBad;
  bool escaped = false;
  const char* at = p + 1;
  if (const Outcome outcome = json::scan_string(at, end, escaped); outcome != Outcome::kOk) return outcome;
  const std::string_view key(p + 1, static_cast<size_t>(at - p - 1));
  at = json::skip_space(at + 1);
  if (at >= end) return Outcome::kIncomplete;
  if (*at != ':') return Outcome::kBad;
  at = json::skip_space(at + 1);
  if (at >= end) return Outcome::kIncomplete;
  if (key == "traceEvents" && *at == '[') {
    p = at + 1;
    state = State::kEvents;
    return Outcome::kOk;
  }
  const char* value = at;
  if (const Outcome outcome = json::skip_value(at, end); outcome != Outcome::kOk) return outcome;
  const size_t length = static_cast<size_t>(at - value);
  if (length <= kMetadataBytesMax)
    block.metadata.emplace_back(std::string(key), std::string(value, length));
  else
    block.rows.diagnostics.add(DiagnosticId::kLimitReached, "metadata \"" + std::string(key.substr(0, 64)) + "\"");
  p = at;
  return Outcome::kOk;
}

// Counts a broken event at `p` and moves to the next place that looks like an event, or to the end.
void resync(Block& block, const char*& p, const char* end) {
  block.rows.diagnostics.add(DiagnosticId::kMalformedEvent, place(block, p));
  const char* begin = block.bytes.data();
  const std::string_view bytes(begin, static_cast<size_t>(end - begin));
  const size_t next = find_event_start(bytes, static_cast<size_t>(p - begin) + 1);
  p = next == std::string_view::npos ? end : begin + next;
}

}  // namespace

size_t find_last_event_start(std::string_view bytes, size_t from) {
  for (size_t at = bytes.size(); at > from;) {
    const void* hit = memrchr(bytes.data() + from, '{', at - from);
    if (hit == nullptr) break;
    at = static_cast<size_t>(static_cast<const char*>(hit) - bytes.data());
    if (is_event_start(bytes, at)) return at;
  }
  return std::string_view::npos;
}

size_t find_event_start(std::string_view bytes, size_t from) {
  for (size_t at = bytes.find('{', from); at != std::string_view::npos; at = bytes.find('{', at + 1))
    if (is_event_start(bytes, at)) return at;
  return std::string_view::npos;
}

void Block::clear_results() {
  builder.clear();
  signature_index.clear();
  metadata.clear();
  thread_names.clear();
  consumed = 0;
}

void parse_block(Block& block, State state, bool bare_array, bool last) {
  block.clear_results();
  Emitter emitter(block);
  Event event;
  const char* p = block.bytes.data();
  const char* end = p + block.size;
  const char* done = p;  // everything before it is parsed
  while (state != State::kDone) {
    p = json::skip_space(p);
    if (p >= end) {
      done = end;
      break;
    }
    Outcome outcome = Outcome::kOk;
    const char* start = p;
    switch (state) {
      case State::kStart:
        if (std::string_view(p, static_cast<size_t>(end - p)).starts_with("\xEF\xBB\xBF")) p += 3;  // byte order mark
        p = json::skip_space(p);
        state = *p == '[' ? State::kEvents : State::kTop;
        if (*p != '[' && *p != '{') outcome = Outcome::kBad;
        ++p;
        break;
      case State::kTop:
        outcome = parse_top_key(block, p, end, state);
        break;
      case State::kEvents:
        if (*p == ',') {
          ++p;
        } else if (*p == ']') {
          ++p;
          state = bare_array ? State::kDone : State::kTop;
        } else if (*p == '{') {
          outcome = scan_event(p, end, event);
          if (outcome == Outcome::kOk) emitter.add(event, start);
        } else {
          outcome = Outcome::kBad;
        }
        break;
      case State::kDone:
        break;
    }
    if (outcome == Outcome::kIncomplete) {
      const bool too_long = static_cast<size_t>(end - start) > kEventBytesMax;
      if (!too_long) break;  // the next block brings the rest; at the end of the file it is cut
      block.rows.diagnostics.add(DiagnosticId::kLimitReached, place(block, start));
      outcome = Outcome::kBad;
    }
    if (outcome == Outcome::kBad) {
      p = start;
      resync(block, p, end);
      state = State::kEvents;  // also where the block ends here: the next one starts with what looks like an event
    }
    done = p;
  }
  if (state == State::kDone) {
    const char* rest = json::skip_space(done);
    if (rest < end) block.rows.diagnostics.add(DiagnosticId::kTrailingData, place(block, rest));
    done = end;
  }
  if (last && state != State::kDone) block.rows.diagnostics.add(DiagnosticId::kTruncatedFile, place(block, done));
  block.consumed = static_cast<size_t>(done - block.bytes.data());
  block.end_state = state;
}

}  // namespace llmprof::kineto
