// Opening files: which importer reads what, and what to say about a file that none can read.
#include <algorithm>
#include <filesystem>

#include "base/json_document.h"
#include "import/importer.h"
#include "import/nsys.h"
#include "import/ranks.h"
#include "import/session.h"
#include "import/smi_join.h"
#include "trace/check_trace.h"
#include "trace/trace_builder.h"

namespace llmprof {
namespace {

constexpr std::string_view kBlanks = " \n\r\t";

// An object, or a list of objects, lists or texts. Logs begin with [ too: "[2025-11-24 10:00:00] ...".
bool begins_as_json(std::string_view head) {
  const size_t at = head.find_first_not_of(kBlanks);
  if (at == std::string_view::npos || (head[at] != '{' && head[at] != '[')) return false;
  const size_t next = head.find_first_not_of(kBlanks, at + 1);
  if (next == std::string_view::npos) return true;  // cut
  return head[at] == '{' ? head[next] == '"' || head[next] == '}'
                         : head[next] == '{' || head[next] == '[' || head[next] == '"' || head[next] == ']';
}

// What a file that no importer wants looks like, for the error message.
std::string describe(std::string_view head) {
  const auto starts = [&](std::string_view magic) { return head.starts_with(magic); };
  if (starts("\x89PNG") || starts("\xFF\xD8\xFF") || starts("GIF8")) return "an image";
  if (starts("%PDF")) return "a PDF document";
  if (starts("PK\x03\x04")) return "a zip archive; unpack it and name the recording inside";
  if (starts("\x7F"
             "ELF"))
    return "a program, not a recording";
  if (starts("NVDR") || starts("PK")) return "an NVIDIA report file";
  if (starts("<")) return "an HTML or XML document";
  if (begins_as_json(head)) return "JSON without trace events (no \"traceEvents\" and no \"ph\")";
  const size_t look = std::min<size_t>(head.size(), 512);
  const bool binary = std::any_of(head.begin(), head.begin() + static_cast<std::ptrdiff_t>(look),
                                  [](char c) { return static_cast<unsigned char>(c) < 9; });
  return binary ? "binary data of an unknown kind" : "text of an unknown kind";
}

// Whether a text is one object or list of JSON, judged by its brackets: numbers may be such as JSON does not know
// (Infinity).
bool is_whole_document(std::string_view text) {
  if (text.empty() || (text.front() != '{' && text.front() != '[')) return false;
  size_t depth = 0;
  bool quoted = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (quoted) {
      if (c == '\\') ++i;
      if (c == '"') quoted = false;
      continue;
    }
    if (c == '"') quoted = true;
    if (c == '{' || c == '[') ++depth;
    if ((c == '}' || c == ']') && --depth == 0) return i + 1 == text.size();
  }
  return false;
}

// Whether the whole of the file is in its head, begins as JSON and is none.
bool is_broken_json(std::string_view head) {
  const size_t at = head.find_first_not_of(kBlanks);
  if (!begins_as_json(head) || head.size() >= InputFile::kHeadBytes || JsonDocument::parse(head)) return false;
  // A complete one with such numbers is neither cut nor damaged.
  const bool numbers =
      head.find(": Infinity") != std::string_view::npos || head.find(": NaN") != std::string_view::npos;
  return !numbers || !is_whole_document(head.substr(at, head.find_last_not_of(kBlanks) + 1 - at));
}

// Whether every line is a document of its own (JSON Lines); the last may be cut where the head ends.
bool is_json_lines(std::string_view head) {
  const bool whole = head.size() < InputFile::kHeadBytes;
  size_t documents = 0;
  for (size_t at = 0; at < head.size();) {
    const size_t end = std::min(head.find('\n', at), head.size());
    std::string_view line = head.substr(at, end - at);
    while (!line.empty() && (line.back() == '\r' || line.back() == ' ')) line.remove_suffix(1);
    const bool cut = end == head.size() && !whole;
    if (!line.empty() && !cut) {
      if (!is_whole_document(line)) return false;
      ++documents;
    }
    at = end + 1;
  }
  return documents >= 2;
}

// What to name in a folder that is no recording itself: the first recording that lies in it, by name.
std::string advice_for_folder(const std::string& path) {
  namespace fs = std::filesystem;
  constexpr size_t kEntriesMax = 10'000;
  std::error_code failed;
  std::string first;
  size_t found = 0, seen = 0;
  for (fs::directory_iterator at(path, failed), end; !failed && at != end && seen < kEntriesMax;
       at.increment(failed), ++seen) {
    const std::string name = at->path().filename().string();
    const bool named = name.ends_with(".llmprof") || name.ends_with(".json") || name.ends_with(".json.gz") ||
                       name.ends_with(".json.zst") || name.ends_with(".spool") ||
                       (name.ends_with(".sqlite") && name != "index.sqlite") || nsys::is_report(name);
    if (!named && !session_importer::is_session(at->path().string())) continue;
    if (found++ == 0 || at->path().string() < first) first = at->path().string();
  }
  if (failed) return "what is in it cannot be read: check its permissions";
  if (found == 0) return "no recording lies in it: name a file, or a session folder of llmprof run";
  return "name what lies in it: " + first +
         (found == 1 ? "" : " (one of " + std::to_string(found) + " that may be recordings)");
}

Result<const Importer*> importer_for(const InputFile& input) {
  const Importer* best = nullptr;
  int best_score = 0;
  for (const Importer& importer : importers()) {
    const int score = importer.sniff(input.head());
    if (score > best_score) {
      best = &importer;
      best_score = score;
    }
  }
  if (best != nullptr) return best;
  // A cut or corrupt archive says little about what was in it: what is wrong with it comes first.
  if (input.damaged())
    return fail("expected a recording that llmprof can read, found that " + input.damage() +
                    "; what could be unpacked is " + describe(input.head()),
                input.name(), "it was cut while it was written or copied: copy or record it again");
  if (input.head().starts_with(std::string_view("NVR\0", 4)))
    return fail("expected a recording that llmprof can read, found a report of Nsight Compute", input.name(),
                "its format is not public; let ncu print it: ncu --import " + input.name() +
                    " --csv --page raw --print-units base > ncu.csv");
  if (is_json_lines(input.head()))
    return fail(
        "expected a recording that llmprof can read, found several JSON documents, one a line", input.name(),
        "of results of server benchmarks llmprof reads such files (SGLang, AIPerf); these have none of their figures. "
        "Name the recording of the profiler, or the result file");
  if (is_broken_json(input.head()))
    return fail("expected a recording that llmprof can read, found JSON that is cut or broken", input.name(),
                "copy it again, or let the program that writes it finish");
  if (input.head().starts_with('<'))
    return fail("expected a recording that llmprof can read, found " + describe(input.head()), input.name(),
                "a server answers so where it has no metrics page or file: check the address that was asked, for "
                "example http://HOST:PORT/metrics; `llmprof list importers` names the formats");
  return fail("expected a recording that llmprof can read, found " + describe(input.head()), input.name(),
              "`llmprof list importers` names the formats; record with torch.profiler and export_chrome_trace()");
}

// Whether any importer reads what the file holds, whatever its name is.
bool knows(const InputFile& input) {
  return std::any_of(importers().begin(), importers().end(),
                     [&](const Importer& importer) { return importer.sniff(input.head()) > 0; });
}

Status import_nsys_report(const InputFile& input, Trace& trace) {
  LLMPROF_CHECK(nsys::import_report(input.name(), trace));
  trace.source.kind = kNsysImporter;
  trace.source.files.push_back(input.name());
  trace.source.bytes += input.stored_bytes();
  return {};
}

}  // namespace

Status import_input(InputFile& input, Trace& trace) {
  LLMPROF_ASSIGN(const Importer* importer, importer_for(input));
  LLMPROF_CHECK(importer->import(input, trace));
  trace.source.kind = std::string(importer->name);
  trace.source.files.push_back(input.name());
  trace.source.bytes += input.stored_bytes();
  return {};
}

namespace {

Status import_path(const std::string& path, Trace& trace) {
  if (session_importer::is_session(path)) {
    LLMPROF_CHECK(session_importer::import_session(path, trace));
    trace.source.kind = kSessionImporter;
    trace.source.files.push_back(path);
    return {};
  }
  if (std::error_code none; std::filesystem::is_directory(path, none))
    return fail("expected a recording, found a directory", path, advice_for_folder(path));
  LLMPROF_ASSIGN(InputFile input, InputFile::open(path));
  return nsys::is_report(path) && !knows(input) ? import_nsys_report(input, trace) : import_input(input, trace);
}

// A regular file by its first bytes; a pipe is read once, and is the recording.
std::string_view importer_of(const std::string& path) {
  std::error_code failed;
  if (!std::filesystem::is_regular_file(path, failed)) return {};
  const Result<InputFile> input = InputFile::open(path);
  if (!input) return {};
  const Result<const Importer*> importer = importer_for(*input);
  return importer ? (*importer)->name : std::string_view();
}

// Logs of nvidia-smi, whose times are local ones, and of dcgmi, which have none.
bool is_readings(std::string_view importer) {
  return importer == kDmonImporter || importer == kSmiQueryImporter || importer == kDcgmDmonImporter;
}

// Whether it holds what has no place in the time of the recording, and so joins any; derive() compares what has a
// clock.
bool stands_beside(std::string_view importer) {
  for (const std::string_view name :
       {kNcuImporter, kBlasLogImporter, kServingImporter, kMetricsPageImporter, kNcclLogImporter, kMemoryStatsImporter,
        kTrtexecImporter, kNcclInspectorImporter, kProtonImporter})
    if (importer == name) return true;
  return false;
}

// Where the records of a file that analyses match will stand.
JoinedFiles::Values records_of(const Trace& part, const Trace& whole) {
  JoinedFiles::Values row;
  const auto take = [&row](size_t before, size_t added) {
    if (added == 0) return;
    row.first_row = static_cast<int64_t>(before);
    row.records = static_cast<int64_t>(added);
  };
  take(whole.profiled_kernels.size(), part.profiled_kernels.size());
  take(whole.logged_products.size(), part.logged_products.size());
  take(whole.proton_nodes.size(), part.proton_nodes.size());
  return row;
}

Status join_beside(const std::string& path, Trace& trace) {
  LLMPROF_ASSIGN(InputFile input, InputFile::open(path));
  Trace part;
  part.source.files = trace.source.files;  // an importer that names rows after its file sees which names are taken
  LLMPROF_CHECK(import_input(input, part));
  check_trace(part);
  trace.source.files.push_back(path);
  trace.source.bytes += part.source.bytes;
  const std::string format = part.source.kind;
  JoinedFiles::Values row;
  if (is_readings(format)) {
    row = join_readings(path, std::move(part), trace);
  } else {
    row = records_of(part, trace);
    trace.metadata.insert(part.metadata.begin(), part.metadata.end());
    TraceBuilder(trace).append(std::move(part));
  }
  TraceBuilder builder(trace);
  row.file = builder.text(path);
  row.format = builder.text(format);
  builder.add<JoinedFiles>(row);
  return {};
}

}  // namespace

Result<Trace> import_files(const std::vector<std::string>& paths) {
  if (paths.empty())
    return fail("expected at least one recording, found none", {}, "llmprof analyze trace.json.gz", ExitCode::kUsage);
  // Counters of profiled kernels, logs of products, metrics pages, what clients saw, statistics of an allocator,
  // times of an engine and trees of Proton have no place in its time: they join any recording.
  std::vector<std::string> recordings, tables, readings;
  for (const std::string& path : paths) {
    const std::string_view importer = paths.size() > 1 ? importer_of(path) : std::string_view();
    (stands_beside(importer) ? tables : is_readings(importer) ? readings : recordings).push_back(path);
  }
  // Without a recording that they could stand beside, they are the recordings.
  std::vector<std::string>& beside = recordings.empty() ? recordings : tables;
  beside.insert(beside.end(), readings.begin(), readings.end());
  if (recordings.empty()) {
    recordings.push_back(tables.front());
    tables.erase(tables.begin());
  }
  Trace trace;
  std::error_code ignored;
  for (const std::string& path : recordings)  // a name that was misspelt is no second recording
    if (path != "-" && !std::filesystem::exists(path, ignored)) LLMPROF_CHECK(import_path(path, trace));
  const bool ranks = recordings.size() > 1;
  if (ranks) {
    LLMPROF_ASSIGN(trace, import_ranks(recordings, import_path));
  } else {
    LLMPROF_CHECK(import_path(recordings.front(), trace));
  }
  for (const std::string& table : tables) LLMPROF_CHECK(join_beside(table, trace));
  ranks ? finish_joined(trace) : finish_import(trace);
  return trace;
}

}  // namespace llmprof
