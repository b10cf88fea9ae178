#include "store/manifest.h"

#include <fmt/format.h>

#include "base/json_document.h"
#include "base/record_json.h"
#include "base/record_reader.h"
#include "store/files.h"

namespace llmprof::store {
namespace {

constexpr std::string_view kManifestSchema = "llmprof.manifest/1";
constexpr uint64_t kManifestBytesMax = uint64_t{64} << 20;  // 100,000 files with long names
constexpr size_t kTextMax = size_t{1} << 20;

tl::unexpected<Error> damaged_manifest(const std::string& path, const std::string& what) {
  return fail("expected the manifest of a run, found " + what, path,
              "llmprof runs verify says what is left of the run");
}

template <class Row>
bool read_rows(JsonValue list, std::vector<Row>& rows) {
  for (const JsonValue entry : list.entries()) {
    RecordReader reader(entry, kTextMax);
    rows.emplace_back().for_each_field(reader);
    if (!entry.is_object() || !reader.wrong().empty()) return false;
  }
  return list.is_array();
}

bool read_texts(JsonValue list, std::vector<std::string>& texts) {
  for (const JsonValue entry : list.entries()) {
    const std::optional<std::string_view> text = entry.text();
    if (!text || text->size() > kTextMax) return false;
    texts.emplace_back(*text);
  }
  return list.is_array();
}

// A manifest that names a file outside of its run would have verify and compression work there.
bool stays_below(std::string_view path) {
  if (path.empty() || path.front() == '/') return false;
  for (size_t at = 0; at <= path.size();) {
    const size_t end = std::min(path.find('/', at), path.size());
    const std::string_view part = path.substr(at, end - at);
    if (part.empty() || part == "." || part == ".." || part.find('\0') != std::string_view::npos) return false;
    at = end + 1;
  }
  return true;
}

}  // namespace

std::string manifest_text(const RunManifest& manifest) {
  JsonWriter json;
  json.begin_object().field("schema", kManifestSchema);
  write_fields(json, manifest);
  json.end_object();
  return json.take() + "\n";
}

Result<RunManifest> parse_manifest(std::string_view text, const std::string& path) {
  const Result<JsonDocument> parsed = JsonDocument::parse(text);
  if (!parsed) return damaged_manifest(path, "no JSON: " + parsed.error().what);
  const JsonValue document = parsed->root();
  std::string_view schema;
  if (!document["schema"].read(schema)) return damaged_manifest(path, "a JSON file without a schema");
  if (schema != kManifestSchema) return damaged_manifest(path, fmt::format("schema \"{}\"", schema.substr(0, 64)));
  RunManifest out;
  std::string wrong;
  RecordReader reader(document, kTextMax);
  out.for_each_field([&](const FieldInfo& field, auto& value) {
    using Value = std::decay_t<decltype(value)>;
    bool right = true;
    if constexpr (std::is_same_v<Value, std::vector<std::string>>) {
      right = read_texts(document[field.name], value);
    } else if constexpr (record_types::kIsList<Value>) {
      right = read_rows(document[field.name], value);
    } else if constexpr (std::is_same_v<Value, std::optional<RunGit>>) {
      const JsonValue git = document[field.name];
      if (git.is_null()) return;
      RecordReader inner(git, kTextMax);
      value.emplace().for_each_field(inner);
      right = git.is_object() && inner.wrong().empty();
    } else {
      reader(field, value);
      right = reader.wrong().empty();
    }
    if (!right && wrong.empty()) wrong = field.name;
  });
  if (!wrong.empty()) return damaged_manifest(path, fmt::format("no \"{}\" as it should be", wrong));
  for (const StoredFile& file : out.files)
    if (!stays_below(file.path) || file.bytes < 0 || file.stored_bytes < 0)
      return damaged_manifest(path, "a file that is not below its folder");
  if (out.number <= 0) return damaged_manifest(path, "no number above 0");
  if (out.state != RunState::kWhole && out.state != RunState::kIncomplete)
    return damaged_manifest(path, "a state that no manifest has");
  return out;
}

Result<RunManifest> read_manifest(const std::string& folder) {
  const std::string path = folder + "/" + kManifestName;
  LLMPROF_ASSIGN(const std::string text, read_small(path, kManifestBytesMax));
  return parse_manifest(text, path);
}

Status write_manifest(const std::string& folder, const RunManifest& manifest) {
  LLMPROF_CHECK(replace_file(folder + "/" + kManifestName, manifest_text(manifest)));
  return sync_folder(folder);
}

}  // namespace llmprof::store
