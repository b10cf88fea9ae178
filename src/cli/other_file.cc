#include "cli/other_file.h"

#include <array>
#include <filesystem>
#include <string>
#include <string_view>

#include "base/input_file.h"

namespace llmprof::cli {
namespace {

struct OwnFile {
  std::string_view schema, what, advice;
};
constexpr std::array<OwnFile, 10> kOwnFiles = {{
    {"llmprof.report/", "a report of llmprof", "name the recording that it was made from: source.files in it"},
    {"llmprof.bench/", "results of llmprof bench", "llmprof bench --compare FILE ... reads it"},
    {"llmprof.peaks/", "what llmprof peaks printed",
     "reports take by themselves what peaks measured; --ceilings names the file that it kept"},
    {"llmprof.ceilings/", "ceilings that llmprof peaks measured", "llmprof analyze RECORDING --ceilings FILE"},
    {"llmprof.model/", "what llmprof model printed", "llmprof model NAME makes it anew"},
    {"llmprof.session/", "the description of a session", "name the folder that it lies in"},
    {"llmprof.manifest/", "the manifest of a stored run", "name the run's number, or the folder that it lies in"},
    {"llmprof.doctor/", "what llmprof doctor printed", "name a recording"},
    {"llmprof.trace/", "tables that llmprof export wrote",
     "name the recording that they are of: source_file in their table facts"},
    {"llmprof.list/", "what llmprof list printed", "name a recording"},
}};

// The schema of a JSON document of llmprof, which comes first in it; empty if it has none.
std::string_view schema_of(std::string_view head) {
  constexpr std::string_view kKey = "\"schema\"";
  constexpr size_t kSoon = 64;
  const size_t key = head.substr(0, kSoon).find(kKey);
  const size_t from = key == std::string_view::npos ? key : head.find('"', key + kKey.size());
  const size_t to = from == std::string_view::npos ? from : head.find('"', from + 1);
  return to == std::string_view::npos ? std::string_view() : head.substr(from + 1, to - from - 1);
}

// By its application_id (src/export/sqlite.cc).
bool is_exported_database(std::string_view head) {
  constexpr size_t kApplicationIdAt = 68;
  return head.starts_with("SQLite format 3") && head.size() > kApplicationIdAt &&
         head.substr(kApplicationIdAt).starts_with("llmp");
}

// Tables of Nsight Systems (`nsys stats`) by the names of their columns.
std::string_view profiler_table(std::string_view head) {
  const auto holds = [&](std::string_view text) { return head.find(text) != std::string_view::npos; };
  if ((holds("Time (%),Total Time") || holds("Total Time (ns)")) && (holds("Instances") || holds("Num Calls")))
    return "a table of Nsight Systems (nsys stats)";
  return {};
}

}  // namespace

Error name_other_file(const std::string& path, const Error& error) {
  std::error_code failed;
  if (!std::filesystem::is_regular_file(path, failed)) return error;  // a pipe has been read
  const Result<InputFile> input = InputFile::open(path);
  if (!input) return error;
  Error better = error;
  const std::string expected = "expected a recording that llmprof can read, found ";
  const std::string_view schema = schema_of(input->head());
  for (const OwnFile& file : kOwnFiles) {
    if (!schema.starts_with(file.schema)) continue;
    better.what = expected + std::string(file.what);
    better.advice = file.advice;
    return better;
  }
  if (is_exported_database(input->head())) {
    better.what = expected + "a database that llmprof export wrote";
    better.advice = "name the recording that it is of: source_file in its table facts";
    return better;
  }
  if (const std::string_view table = profiler_table(input->head()); !table.empty()) {
    better.what = expected + std::string(table);
    better.advice =
        "llmprof reads recordings, with the times of every kernel: record with `llmprof run -- COMMAND`, or with "
        "torch.profiler and export_chrome_trace()";
  }
  return better;
}

}  // namespace llmprof::cli
