#include "bench/results_file.h"

#include <fmt/format.h>
#include <simdjson.h>

#include <cerrno>
#include <cmath>
#include <cstring>
#include <limits>

#include "base/record_writer.h"
#include "bench/peaks_report.h"

namespace llmprof::bench {
namespace {

constexpr std::string_view kSchema = "llmprof.bench/1", kJournalSchema = "llmprof.bench.journal/1";
constexpr size_t kFileBytesMax = size_t{512} << 20, kSamplesMax = 4096, kRecordsMax = 100'000;
constexpr size_t kTextBytesMax = 4096;

void write_facts(JsonWriter& json, const RunFacts& facts) {
  json.field("tool_version", facts.tool_version).field("device_key", facts.device_key);
  json.field("device_name", facts.device_name).field("driver", facts.driver).field("libraries", facts.libraries);
  json.field("protocol", facts.protocol);
}

void write_case(JsonWriter& json, const CaseRecord& record) {
  json.begin_object();
  write_fields(json, record.row);
  json.key("samples_us").begin_array();
  for (const double us : record.samples_us) json.value(us);
  json.end_array();
  json.end_object();
}

std::string one_line(const CaseRecord& record) {
  JsonWriter json(0);
  write_case(json, record);
  return json.take() + "\n";
}

tl::unexpected<Error> unreadable(const std::string& path, const std::string& found) {
  return fail("expected results of llmprof bench, found " + found, path, "llmprof bench -o FILE writes them");
}

// Fields of a row from JSON, by their type; false at the first that is missing or of another type. Numbers that may be
// unknown may be missing, and fields added since: files of earlier versions do not have all of them.
class RowReader {
 public:
  explicit RowReader(simdjson::dom::object object) : object_(object) {}
  const std::string& wrong() const { return wrong_; }

  template <class T>
  void operator()(const FieldInfo& field, T& value) {
    simdjson::dom::element element;
    if (!wrong_.empty()) return;
    const bool there = object_[field.name].get(element) == simdjson::SUCCESS;
    if (!there && (std::is_same_v<T, OptNumber> || field.name == "drifting" || field.name == "compared")) return;
    if (!there || !read(element, value)) wrong_ = field.name;
  }

 private:
  static bool read(simdjson::dom::element element, std::string& value) {
    std::string_view text;
    if (element.get(text) != simdjson::SUCCESS || text.size() > kTextBytesMax) return false;
    value = text;
    return true;
  }
  static bool read(simdjson::dom::element element, int64_t& value) { return element.get(value) == simdjson::SUCCESS; }
  static bool read(simdjson::dom::element element, bool& value) { return element.get(value) == simdjson::SUCCESS; }
  static bool read(simdjson::dom::element element, OptNumber& value) {
    double number = 0;
    if (element.is_null()) return true;
    if (element.get(number) != simdjson::SUCCESS || !std::isfinite(number)) return false;
    value = number;
    return true;
  }

  simdjson::dom::object object_;
  std::string wrong_;
};

Result<CaseRecord> case_of(simdjson::dom::element element, const std::string& path) {
  simdjson::dom::object object;
  if (element.get(object) != simdjson::SUCCESS) return unreadable(path, "a case that is no object");
  CaseRecord record;
  RowReader reader(object);
  record.row.for_each_field(reader);
  if (!reader.wrong().empty()) return unreadable(path, fmt::format("a case without a valid \"{}\"", reader.wrong()));
  simdjson::dom::array samples;
  if (object["samples_us"].get(samples) != simdjson::SUCCESS || samples.size() > kSamplesMax)
    return unreadable(path, "a case without a valid \"samples_us\"");
  for (const simdjson::dom::element sample : samples) {
    double us = 0;
    if (sample.get(us) != simdjson::SUCCESS || !std::isfinite(us) || us < 0)
      return unreadable(path, "a sample that is no time");
    record.samples_us.push_back(us);
  }
  return record;
}

Result<RunFacts> facts_of(simdjson::dom::element document, const std::string& path) {
  RunFacts facts;
  const std::pair<const char*, std::string*> fields[] = {
      {"tool_version", &facts.tool_version}, {"device_key", &facts.device_key},
      {"device_name", &facts.device_name},   {"driver", &facts.driver},
      {"libraries", &facts.libraries},       {"protocol", &facts.protocol}};
  for (const auto& [name, value] : fields) {
    std::string_view text;
    if (document[name].get(text) != simdjson::SUCCESS || text.size() > kTextBytesMax)
      return unreadable(path, fmt::format("no text \"{}\"", name));
    *value = text;
  }
  return facts;
}

std::string_view schema_of(simdjson::dom::element document) {
  std::string_view schema;
  return document["schema"].get(schema) == simdjson::SUCCESS ? schema : std::string_view{};
}

// Line by line; a last line without its end was being written when the run ended.
Result<ResultsFile> parse_journal(const std::string& text, const std::string& path) {
  ResultsFile out;
  out.interrupted = true;
  simdjson::dom::parser parser;
  bool first = true;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = text.find('\n', begin);
    if (end == std::string::npos) break;
    simdjson::dom::element document;
    if (parser.parse(text.data() + begin, end - begin).get(document) != simdjson::SUCCESS)
      return unreadable(path, fmt::format("a line that is no JSON, at byte {}", begin));
    if (first) {
      LLMPROF_ASSIGN(out.facts, facts_of(document, path));
    } else {
      LLMPROF_ASSIGN(CaseRecord record, case_of(document, path));
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
  simdjson::dom::parser parser;
  simdjson::dom::element document;
  return parser.parse(text.data(), end).get(document) == simdjson::SUCCESS && schema_of(document) == kJournalSchema;
}

}  // namespace

std::string protocol_text(const Protocol& p) {
  return fmt::format(
      "cold {} {} s, sustained {} {} s, settle {} s, wall {} s, n {}, stdev {}, change {} of {}, sets {}, turn {} s, "
      "held down {} s, duty {:.3g}",
      p.cold, p.cold_min_s, p.sustained, p.sustained_min_s, p.settle_max_s, p.wall_max_s, p.samples_min,
      p.rel_stdev_max, p.noise_change_max, p.noise_window, p.sets_max, p.turn_s, p.held_down_s, p.cold_duty_max);
}

RunFacts facts_of(const device::DeviceIdentity& device, const Protocol& protocol, const std::string& tool_version) {
  RunFacts facts{tool_version, device.key, device.name, device.driver, {}, protocol_text(protocol)};
  for (const device::LibraryVersion& library : device.libraries)
    facts.libraries += fmt::format("{}{} {}", facts.libraries.empty() ? "" : ", ", library.name, library.version);
  return facts;
}

std::string results_json(const ResultsFile& results, const device::DeviceIdentity& device,
                         const std::vector<ModelStepRow>& steps) {
  JsonWriter json;
  json.begin_object().field("schema", kSchema);
  json.key("device");
  write_device(json, device);
  write_facts(json, results.facts);
  json.field("interrupted", results.interrupted);
  json.key("cases").begin_array();
  for (const CaseRecord& record : results.records) write_case(json, record);
  json.end_array();
  if (!steps.empty()) write_records(json, "model_steps", steps);
  json.end_object();
  return json.take() + "\n";
}

Result<ResultsFile> parse_results(const std::string& text, const std::string& path) {
  if (text.empty()) return unreadable(path, "an empty file");
  if (is_journal(text)) return parse_journal(text, path);
  simdjson::dom::parser parser;
  simdjson::dom::element document;
  if (const simdjson::error_code error = parser.parse(text).get(document); error != simdjson::SUCCESS)
    return unreadable(path, fmt::format("no JSON: {}", simdjson::error_message(error)));
  const std::string_view schema = schema_of(document);
  if (schema != kSchema)
    return unreadable(path, schema.empty() ? "no schema" : fmt::format("schema \"{}\"", schema.substr(0, 64)));
  ResultsFile out;
  LLMPROF_ASSIGN(out.facts, facts_of(document, path));
  simdjson::dom::array cases;
  if (document["interrupted"].get(out.interrupted) != simdjson::SUCCESS ||
      document["cases"].get(cases) != simdjson::SUCCESS)
    return unreadable(path, "no list \"cases\"");
  for (const simdjson::dom::element element : cases) {
    LLMPROF_ASSIGN(CaseRecord record, case_of(element, path));
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
  write_facts(json, facts);
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
