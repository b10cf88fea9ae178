#include "bench/results_file.h"

#include <fmt/format.h>

#include <cerrno>
#include <cmath>
#include <cstring>
#include <limits>

#include "base/json_document.h"
#include "base/record_json.h"
#include "base/record_reader.h"
#include "bench/peak_rows.h"

namespace llmprof::bench {
namespace {

constexpr std::string_view kJournalSchema = "llmprof.bench.journal/1";
constexpr size_t kFileBytesMax = size_t{512} << 20, kSamplesMax = 4096, kRecordsMax = 100'000;
constexpr size_t kTextBytesMax = 4096;

std::string one_line(const CaseRecord& record) {
  JsonWriter json(0);
  write_record(json, record);
  return json.take() + "\n";
}

tl::unexpected<Error> unreadable(const std::string& path, const std::string& found) {
  return fail("expected results of llmprof bench, found " + found, path, "llmprof bench -o FILE writes them");
}

Result<CaseRecord> case_of(JsonValue object, const std::string& path) {
  if (!object.is_object()) return unreadable(path, "a case that is no object");
  CaseRecord record;
  RecordReader reader(object, kTextBytesMax);
  record.row.for_each_field(reader);
  if (!reader.wrong().empty()) return unreadable(path, fmt::format("a case without a valid \"{}\"", reader.wrong()));
  // Its name when it was called a share, which it is not.
  if (!record.row.wait_ratio) record.row.wait_ratio = object["wait_frac"].number();
  const JsonValue samples = object["samples_us"];
  if (!samples.is_array() || samples.size() > kSamplesMax)
    return unreadable(path, "a case without a valid \"samples_us\"");
  for (const JsonValue sample : samples.entries()) {
    const std::optional<double> us = sample.number();
    if (!us || *us < 0) return unreadable(path, "a sample that is no time");
    record.samples_us.push_back(*us);
  }
  return record;
}

Result<RunFacts> facts_of(JsonValue document, const std::string& path) {
  RunFacts facts;
  RecordReader reader(document, kTextBytesMax);
  facts.for_each_field(reader);
  if (!reader.wrong().empty())
    return unreadable(path, fmt::format("no text \"{}\" of at most {} bytes", reader.wrong(), kTextBytesMax));
  return facts;
}

std::string_view schema_of(JsonValue document) { return document["schema"].text().value_or(std::string_view()); }

// Line by line; a last line without its end was being written when the run ended.
Result<ResultsFile> parse_journal(const std::string& text, const std::string& path) {
  ResultsFile out;
  out.interrupted = true;
  bool first = true;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = text.find('\n', begin);
    if (end == std::string::npos) break;
    const Result<JsonDocument> line = JsonDocument::parse({text.data() + begin, end - begin});
    if (!line) return unreadable(path, fmt::format("a line that is no JSON, at byte {}", begin));
    if (first) {
      LLMPROF_ASSIGN(out.facts, facts_of(line->root(), path));
    } else {
      LLMPROF_ASSIGN(CaseRecord record, case_of(line->root(), path));
      if (out.records.size() >= kRecordsMax) return unreadable(path, "too many cases");
      out.records.push_back(std::move(record));
    }
    first = false;
    begin = end + 1;
  }
  return out;
}

// Whether the first line is that of a journal.
bool is_journal(const std::string& text) {
  const size_t end = text.find('\n');
  if (end == std::string::npos || end > kTextBytesMax * 8) return false;
  const Result<JsonDocument> document = JsonDocument::parse({text.data(), end});
  return document && schema_of(document->root()) == kJournalSchema;
}

}  // namespace

std::string protocol_text(const Protocol& p) {
  return fmt::format(
      "cold {} {} s, sustained {} {} s, settle {} s, wall {} s, n {}, stdev {}, change {} of {}, sets {}, period {} s, "
      "held down {} s, duty {:.3g}",
      p.cold, p.cold_min_s, p.sustained, p.sustained_min_s, p.settle_max_s, p.wall_max_s, p.samples_min,
      p.rel_stdev_max, p.noise_change_max, p.noise_window, p.sets_max, p.period_s, p.held_down_s, p.cold_duty_max);
}

RunFacts facts_of(const device::DeviceIdentity& device, const Protocol& protocol, const std::string& tool_version) {
  RunFacts facts{tool_version, device.key, device.name, device.driver, {}, protocol_text(protocol)};
  for (const LibraryVersion& library : device.libraries)
    facts.libraries += fmt::format("{}{} {}", facts.libraries.empty() ? "" : ", ", library.name, library.version);
  return facts;
}

BenchResult bench_result(const ResultsFile& results, const device::DeviceIdentity& device,
                         const std::vector<ModelStepRow>& steps) {
  const RunFacts& facts = results.facts;
  BenchResult out;
  out.device = measured_device(device);
  out.tool_version = facts.tool_version;
  out.device_key = facts.device_key;
  out.device_name = facts.device_name;
  out.driver = facts.driver;
  out.libraries = facts.libraries;
  out.protocol = facts.protocol;
  out.interrupted = results.interrupted;
  out.cases = results.records;
  out.model_steps = steps;
  return out;
}

Result<ResultsFile> parse_results(const std::string& text, const std::string& path) {
  if (text.empty()) return unreadable(path, "an empty file");
  if (is_journal(text)) return parse_journal(text, path);
  const Result<JsonDocument> parsed = JsonDocument::parse(text);
  if (!parsed) return unreadable(path, "no JSON: " + parsed.error().what);
  const JsonValue document = parsed->root();
  const std::string_view schema = schema_of(document);
  if (schema != kBenchSchema)
    return unreadable(path, schema.empty() ? "no schema" : fmt::format("schema \"{}\"", schema.substr(0, 64)));
  ResultsFile out;
  LLMPROF_ASSIGN(out.facts, facts_of(document, path));
  if (!document["interrupted"].read(out.interrupted) || !document["cases"].is_array())
    return unreadable(path, "no list \"cases\"");
  for (const JsonValue one : document["cases"].entries()) {
    LLMPROF_ASSIGN(CaseRecord record, case_of(one, path));
    if (out.records.size() >= kRecordsMax) return unreadable(path, "too many cases");
    out.records.push_back(std::move(record));
  }
  return out;
}

Result<ResultsFile> read_results(const std::string& path) {
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(path.c_str(), "rb"), std::fclose);
  if (!file)
    return fail(std::string("cannot read the results: ") + std::strerror(errno), path,
                "llmprof bench -o FILE writes them");
  std::string text;
  char part[65536];
  for (size_t got = 0; (got = std::fread(part, 1, sizeof part, file.get())) > 0;) {
    text.append(part, got);
    if (text.size() > kFileBytesMax) return unreadable(path, "a file of over 512 MiB");
  }
  if (std::ferror(file.get()) != 0) return fail("cannot read the results", path, {});
  return parse_results(text, path);
}

std::string journal_path(const std::string& path) { return path + ".partial"; }

Result<Journal> Journal::open(const std::string& path, const RunFacts& facts, const std::vector<CaseRecord>& kept) {
  Journal journal;
  journal.path_ = path;
  journal.file_.reset(std::fopen(path.c_str(), "wb"));
  if (!journal.file_)
    return fail(std::string("cannot write the journal of this run: ") + std::strerror(errno), path,
                "choose a path in a folder that exists and that you may write to");
  JsonWriter json(0);
  json.begin_object().field("schema", kJournalSchema);
  write_fields(json, facts);
  json.end_object();
  std::string text = json.take() + "\n";
  for (const CaseRecord& record : kept) text += one_line(record);
  if (std::fwrite(text.data(), 1, text.size(), journal.file_.get()) != text.size() ||
      std::fflush(journal.file_.get()) != 0)
    return fail(std::string("cannot write the journal of this run: ") + std::strerror(errno), path, {});
  return journal;
}

Status Journal::add(const CaseRecord& record) {
  const std::string text = one_line(record);
  if (std::fwrite(text.data(), 1, text.size(), file_.get()) == text.size() && std::fflush(file_.get()) == 0) return {};
  return fail(std::string("cannot write the journal of this run: ") + std::strerror(errno), path_,
              "check that the disk is not full");
}

void Journal::remove() { std::remove(path_.c_str()); }

}  // namespace llmprof::bench
