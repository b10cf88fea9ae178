#include "store/settings.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <string_view>
#include <vector>

#include "base/json_document.h"
#include "base/nearest.h"
#include "store/files.h"

namespace llmprof::store {
namespace {

constexpr uint64_t kSettingsBytesMax = uint64_t{1} << 20;
constexpr double kMost = 1e9;

struct Setting {
  const char *key, *variable;
  int64_t Settings::*whole;  // one of the two
  double Settings::*real;
  double least;
};
constexpr Setting kSettings[] = {
    {"keep", "LLMPROF_STORE_KEEP", &Settings::keep, nullptr, 1},
    {"keep_compressed", "LLMPROF_STORE_KEEP_COMPRESSED", &Settings::keep_compressed, nullptr, 0},
    {"total_gb", "LLMPROF_STORE_TOTAL_GB", nullptr, &Settings::total_gb, 0},
    {"run_gb", "LLMPROF_STORE_RUN_GB", nullptr, &Settings::run_gb, 0.001},
    {"compress_from_kb", "LLMPROF_STORE_COMPRESS_FROM_KB", &Settings::compress_from_kb, nullptr, 0},
};
constexpr const char* kRecordings = "recordings";
constexpr const char* kRecordingsVariable = "LLMPROF_STORE_RECORDINGS";

std::string value_of(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr ? value : "";
}

bool take(const Setting& setting, double value, Settings& out) {
  if (!(value >= setting.least) || value > kMost) return false;
  if (setting.whole != nullptr && value != std::floor(value)) return false;
  if (setting.whole != nullptr)
    out.*setting.whole = static_cast<int64_t>(value);
  else
    out.*setting.real = value;
  return true;
}

tl::unexpected<Error> wrong_setting(const Setting& setting, const std::string& found, const std::string& where) {
  return fail(fmt::format("expected a {} of {} or more, found {}", setting.whole != nullptr ? "whole number" : "number",
                          setting.least, found),
              where, "llmprof runs --help says what each setting is", ExitCode::kUsage);
}

Status take_place(std::string_view place, const std::string& where, Settings& out) {
  if (place != "store" && place != "here")
    return fail("expected store or here, found \"" + std::string(place) + "\"", where,
                "store: in the run store; here: in ./llmprof-runs", ExitCode::kUsage);
  out.recordings = place == "store";
  return {};
}

Status read_file(const std::string& path, Settings& out) {
  if (access(path.c_str(), F_OK) != 0) return {};
  LLMPROF_ASSIGN(const std::string text, read_small(path, kSettingsBytesMax));
  const Result<JsonDocument> parsed = JsonDocument::parse(text);
  if (!parsed || !parsed->root().is_object())
    return fail("expected settings as a JSON object, found " + (parsed ? "something else" : parsed.error().what), path,
                "{\"keep\": 5, \"total_gb\": 20}", ExitCode::kUsage);
  for (const JsonMember member : parsed->root().members()) {
    const std::string where = path + ": " + std::string(member.name.substr(0, 64));
    if (member.name == kRecordings) {
      LLMPROF_CHECK(take_place(member.value.text().value_or("something else"), where, out));
      continue;
    }
    std::vector<std::string> known = {kRecordings};
    const Setting* found = nullptr;
    for (const Setting& setting : kSettings) {
      known.emplace_back(setting.key);
      if (member.name == setting.key) found = &setting;
    }
    if (found == nullptr)
      return fail("expected a setting of the run store, found another key", where,
                  "did you mean " + nearest_or_all(std::string(member.name.substr(0, 64)), known) + "?",
                  ExitCode::kUsage);
    const std::optional<double> number = member.value.number();
    if (!number || !take(*found, *number, out))
      return wrong_setting(*found, number ? fmt::format("{}", *number) : "something else", where);
  }
  return {};
}

}  // namespace

std::string store_folder() {
  const auto absolute = [](const std::string& path) {
    std::error_code failed;
    const std::filesystem::path whole = std::filesystem::absolute(path, failed);
    std::string out = failed ? path : whole.lexically_normal().string();
    while (out.size() > 1 && out.back() == '/') out.pop_back();
    return out;
  };
  if (const std::string named = value_of("LLMPROF_STORE"); !named.empty()) return named == "off" ? "" : absolute(named);
  if (const std::string home = value_of("LLMPROF_HOME"); !home.empty()) return absolute(home + "/runs");
  if (const std::string state = value_of("XDG_STATE_HOME"); !state.empty()) return absolute(state + "/llmprof/runs");
  const std::string home = value_of("HOME");
  return home.empty() ? "" : absolute(home + "/.local/state/llmprof/runs");
}

Result<Settings> read_settings(const std::string& folder) {
  Settings out;
  LLMPROF_CHECK(read_file(folder + "/settings.json", out));
  for (const Setting& setting : kSettings) {
    const std::string text = value_of(setting.variable);
    if (text.empty()) continue;
    char* end = nullptr;
    const double value = std::strtod(text.c_str(), &end);
    if (*end != '\0' || !take(setting, value, out)) return wrong_setting(setting, "\"" + text + "\"", setting.variable);
  }
  if (const std::string place = value_of(kRecordingsVariable); !place.empty())
    LLMPROF_CHECK(take_place(place, kRecordingsVariable, out));
  return out;
}

}  // namespace llmprof::store
