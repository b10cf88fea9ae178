// grow_trace: makes a large Kineto recording from a small one, for measuring the importer. The events are written k
// times; in copy i all times are later by i whole periods, and every identifier that ties events together (correlation,
// External id, Ev Idx, flow id, Python ids, record function id) is larger by i times the largest one, so the copies do
// not touch. Everything else is copied byte for byte. Memory use: the small recording and one copy's numbers.
//
//   grow_trace IN.json[.gz|.zst] OUT.json SIZE     SIZE in bytes, or with MB or GB behind it (1e6, 1e9)
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/input_file.h"

namespace {

using llmprof::InputFile;

// A number inside the text of the events that differs from copy to copy.
struct Slot {
  size_t at, length;     // of the number in the text
  bool time;             // microseconds with decimals, or an identifier
  int64_t whole;         // the part before the point
  std::string fraction;  // the rest, with the point
};

struct Recording {
  std::string head, events, tail;  // "...traceEvents": [", the events without the last comma, "]..."
  std::vector<Slot> slots;
  int64_t period_us = 0;
  int64_t period_id = 1;
};

[[noreturn]] void stop(const std::string& text) {
  fmt::print(stderr, "grow_trace: {}\n", text);
  std::exit(1);
}

std::string read_all(const char* path) {
  llmprof::Result<InputFile> input = InputFile::open(path);
  if (!input) stop(input.error().text());
  std::string text;
  constexpr size_t kStep = size_t{4} << 20;
  for (size_t got = kStep; got != 0;) {
    const size_t at = text.size();
    text.resize(at + kStep);
    got = input->read(text.data() + at, kStep);
    text.resize(at + got);
  }
  if (input->damaged()) stop("the recording is damaged: " + input->damage());
  return text;
}

// Where the string that starts at the quote `at` ends (behind its closing quote).
size_t string_end(std::string_view text, size_t at) {
  for (++at; at < text.size() && text[at] != '"'; ++at)
    if (text[at] == '\\') ++at;
  return std::min(at + 1, text.size());
}

// Where the bracket that is open at `at` closes.
size_t closing(std::string_view text, size_t at) {
  size_t depth = 1;
  while (at < text.size()) {
    const char c = text[at];
    if (c == '"') {
      at = string_end(text, at);
      continue;
    }
    if (c == '[' || c == '{') ++depth;
    if ((c == ']' || c == '}') && --depth == 0) return at;
    ++at;
  }
  stop("the events array does not end: grow a whole recording");
}

Recording split(const std::string& text) {
  const size_t key = text.find("\"traceEvents\"");
  const size_t open = key == std::string::npos ? key : text.find('[', key);
  if (open == std::string::npos) stop("expected a Kineto recording with \"traceEvents\": [...]");
  const size_t close = closing(text, open + 1);
  size_t end = close;
  while (end > open + 1 && std::strchr(" \n\r\t", text[end - 1]) != nullptr) --end;
  Recording recording;
  recording.head = text.substr(0, open + 1);
  recording.events = text.substr(open + 1, end - open - 1);
  recording.tail = text.substr(close);
  if (recording.events.empty()) stop("the recording has no events");
  return recording;
}

bool is_identifier(std::string_view key) {
  static constexpr std::string_view kKeys[] = {"correlation",      "External id",       "Ev Idx", "id", "Python id",
                                               "Python parent id", "Record function id"};
  return std::find(std::begin(kKeys), std::end(kKeys), key) != std::end(kKeys);
}

// Finds the numbers that copies change, and how far copies must be apart.
void find_slots(Recording& recording) {
  const std::string& text = recording.events;
  int64_t first_us = INT64_MAX, last_us = INT64_MIN, event_us = 0;
  for (size_t at = 0; at < text.size();) {
    if (text[at] != '"') {
      ++at;
      continue;
    }
    const size_t end = string_end(text, at);
    const std::string_view key = std::string_view(text).substr(at + 1, end - at - 2);
    size_t value = end;
    while (value < text.size() && text[value] == ' ') ++value;
    at = end;
    if (value >= text.size() || text[value] != ':') continue;
    ++value;
    while (value < text.size() && text[value] == ' ') ++value;
    const bool time = key == "ts", duration = key == "dur", id = is_identifier(key);
    if (!time && !duration && !id) continue;
    Slot slot{value, 0, time, 0, {}};
    const std::from_chars_result whole = std::from_chars(text.data() + value, text.data() + text.size(), slot.whole);
    if (whole.ec != std::errc()) continue;
    const char* stop_at = whole.ptr;
    while (std::strchr("0123456789.", *stop_at) != nullptr && *stop_at != '\0') ++stop_at;
    slot.fraction.assign(whole.ptr, stop_at);
    slot.length = static_cast<size_t>(stop_at - text.data()) - value;
    if (duration) {
      last_us = std::max(last_us, event_us + slot.whole + 1);
      continue;
    }
    // Identifiers beyond 2^40 are addresses or hashes, 0 and below stand for "none".
    if (id && (slot.whole <= 0 || slot.whole > int64_t{1} << 40)) continue;
    if (time && slot.whole == 0) continue;  // metadata events
    if (time) {
      event_us = slot.whole;
      first_us = std::min(first_us, event_us);
      last_us = std::max(last_us, event_us + 1);
    } else {
      recording.period_id = std::max(recording.period_id, slot.whole + 1);
    }
    recording.slots.push_back(std::move(slot));
  }
  if (first_us > last_us) stop("the recording has no timed events");
  // A little later than the end, so that no two copies overlap.
  recording.period_us = last_us - first_us + 1000;
}

uint64_t parse_size(const char* text) {
  char* unit = nullptr;
  const double value = std::strtod(text, &unit);
  const std::string_view name = unit;
  const double scale = name.empty() ? 1 : name == "MB" ? 1e6 : name == "GB" ? 1e9 : 0;
  if (!(value > 0) || scale == 0) stop(fmt::format("expected a size like 400MB, found '{}'", text));
  return static_cast<uint64_t>(value * scale);
}

class Writer {
 public:
  explicit Writer(const char* path) : file_(std::fopen(path, "wb"), std::fclose), path_(path) {
    if (file_ == nullptr) stop(fmt::format("cannot write {}: {}", path, std::strerror(errno)));
  }
  void write(std::string_view text) {
    if (std::fwrite(text.data(), 1, text.size(), file_.get()) != text.size())
      stop(fmt::format("cannot write {}: {}", path_, std::strerror(errno)));
    written_ += text.size();
  }
  uint64_t written() const { return written_; }
  void close() {
    if (std::fclose(file_.release()) != 0) stop(fmt::format("cannot write {}: {}", path_, std::strerror(errno)));
  }

 private:
  std::unique_ptr<std::FILE, int (*)(std::FILE*)> file_;
  const char* path_;
  uint64_t written_ = 0;
};

std::string make_copy(const Recording& recording, int64_t copy) {
  std::string out;
  out.reserve(recording.events.size() + recording.slots.size() * 4);
  size_t from = 0;
  for (const Slot& slot : recording.slots) {
    out.append(recording.events, from, slot.at - from);
    fmt::format_to(std::back_inserter(out), "{}{}",
                   slot.whole + copy * (slot.time ? recording.period_us : recording.period_id), slot.fraction);
    from = slot.at + slot.length;
  }
  out.append(recording.events, from);
  return out;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) {
    fmt::print(stderr, "usage: grow_trace IN.json[.gz|.zst] OUT.json SIZE (for example 400MB)\n");
    return 2;
  }
  Recording recording = split(read_all(argv[1]));
  find_slots(recording);
  const uint64_t wanted = parse_size(argv[3]);
  Writer out(argv[2]);
  out.write(recording.head);
  int64_t copies = 0;
  do {
    if (copies != 0) out.write(",");
    out.write(make_copy(recording, copies++));
  } while (out.written() + recording.tail.size() + recording.events.size() / 2 < wanted);
  out.write("\n  ");
  out.write(recording.tail);
  out.close();
  fmt::print("{} bytes, {} copies\n", out.written(), copies);
  return 0;
}
