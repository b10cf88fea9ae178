#include "hardware/measured.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <utility>

#include "base/json_document.h"
#include "base/json_writer.h"

namespace llmprof {
namespace {

constexpr std::string_view kSchema = "llmprof.ceilings/1";
constexpr int64_t kFileBytesMax = int64_t{1} << 20;
constexpr size_t kRatesMax = 256;  // in one group
constexpr size_t kTextBytesMax = 1024;
constexpr size_t kFileNameMax = 200;
constexpr std::string_view kMeasureAgain = "measure again: llmprof peaks";

using Rates = std::map<std::string, MeasuredRate>;
struct Group {
  const char* name;
  Rates MeasuredCeilings::*rates;
};
constexpr Group kGroups[] = {{"library_tflops", &MeasuredCeilings::library_tflops},
                             {"unit_tflops", &MeasuredCeilings::unit_tflops},
                             {"bandwidth_gbs", &MeasuredCeilings::bandwidth_gbs},
                             {"latency_us", &MeasuredCeilings::latency_us}};
struct Text {
  const char* name;
  std::string MeasuredCeilings::*text;
};
constexpr Text kTexts[] = {{"device_key", &MeasuredCeilings::device_key},
                           {"name", &MeasuredCeilings::name},
                           {"uuid", &MeasuredCeilings::uuid},
                           {"driver", &MeasuredCeilings::driver},
                           {"tool_version", &MeasuredCeilings::tool_version}};

void write_rate(JsonWriter& json, const MeasuredRate& rate) {
  const auto known = [](double value) { return value > 0 ? std::optional<double>(value) : std::nullopt; };
  json.begin_object();
  json.field("value", rate.value).field("how", rate.how).field("iqr_frac", rate.iqr_frac);
  json.field("clock_mhz", known(rate.clock_mhz)).field("power_w", known(rate.power_w)).field("quick", rate.quick);
  json.field("disturbed", rate.disturbed);
  json.end_object();
}

std::string to_text(const MeasuredCeilings& ceilings) {
  JsonWriter json;
  json.begin_object();
  json.field("schema", kSchema);
  for (const Text& text : kTexts) json.field(text.name, ceilings.*text.text);
  json.field("unix_s", ceilings.unix_s);
  if (ceilings.cache_bytes > 0) json.field("cache_bytes", ceilings.cache_bytes);
  for (const Group& group : kGroups) {
    json.key(group.name).begin_object();
    for (const auto& [name, rate] : ceilings.*group.rates) {
      json.key(name);
      write_rate(json, rate);
    }
    json.end_object();
  }
  json.end_object();
  return json.take() + "\n";
}

tl::unexpected<Error> damaged(const std::string& path, const std::string& what) {
  return fail("expected measured ceilings, found " + what, path, std::string(kMeasureAgain));
}

std::optional<std::string> short_text(JsonValue value) {
  const std::optional<std::string_view> text = value.text();
  if (!text || text->size() > kTextBytesMax) return std::nullopt;
  return std::string(*text);
}

// A rate above 0; its other fields may be absent or null.
std::optional<MeasuredRate> rate_of(JsonValue object) {
  if (!object.is_object()) return std::nullopt;
  MeasuredRate rate;
  for (const JsonMember field : object.members()) {
    if (field.name == "how") {
      const std::optional<std::string> how = short_text(field.value);
      if (!how) return std::nullopt;
      rate.how = *how;
      continue;
    }
    if (field.name == "quick" || field.name == "disturbed") {
      if (!field.value.read(field.name == "quick" ? rate.quick : rate.disturbed)) return std::nullopt;
      continue;
    }
    double* const number = field.name == "value"       ? &rate.value
                           : field.name == "iqr_frac"  ? &rate.iqr_frac
                           : field.name == "clock_mhz" ? &rate.clock_mhz
                           : field.name == "power_w"   ? &rate.power_w
                                                       : nullptr;
    if (number == nullptr || field.value.is_null()) continue;
    const std::optional<double> value = field.value.number();
    if (!value || *value < 0) return std::nullopt;
    *number = *value;
  }
  if (rate.value <= 0) return std::nullopt;
  return rate;
}

Result<Rates> rates_of(JsonValue document, const Group& group, const std::string& path) {
  const JsonValue object = document[group.name];
  if (!object.is_object()) return damaged(path, fmt::format("no object \"{}\"", group.name));
  Rates rates;
  for (const JsonMember field : object.members()) {
    const std::optional<MeasuredRate> rate = rate_of(field.value);
    if (!rate || field.name.size() > kTextBytesMax || rates.size() >= kRatesMax)
      return damaged(path, fmt::format("\"{}\" without a value above 0 in {}", field.name.substr(0, 64), group.name));
    rates[std::string(field.name)] = *rate;
  }
  return rates;
}

Result<std::string> read_small_file(const std::string& path) {
  std::FILE* file = std::fopen(path.c_str(), "rb");
  if (file == nullptr)
    return fail(std::string("cannot read the measured ceilings: ") + std::strerror(errno), path,
                std::string(kMeasureAgain));
  std::string text(static_cast<size_t>(kFileBytesMax) + 1, '\0');
  const size_t got = std::fread(text.data(), 1, text.size(), file);
  const bool unreadable = std::ferror(file) != 0;
  std::fclose(file);
  if (unreadable) return fail("cannot read the measured ceilings", path, std::string(kMeasureAgain));
  if (got > static_cast<size_t>(kFileBytesMax)) return damaged(path, "a file of over 1 MiB");
  text.resize(got);
  return text;
}

Status make_folders(const std::string& file) {
  for (size_t at = file.find('/', 1); at != std::string::npos; at = file.find('/', at + 1)) {
    const std::string folder = file.substr(0, at);
    if (mkdir(folder.c_str(), 0777) == 0 || errno == EEXIST) continue;
    return fail(std::string("cannot make a folder for the measured ceilings: ") + std::strerror(errno), folder,
                "set LLMPROF_HOME to a folder that you may write to, or pass --no-store");
  }
  return {};
}

}  // namespace

std::optional<MeasuredRate> memory_ceiling(const MeasuredCeilings& ceilings) {
  std::optional<MeasuredRate> best;
  for (const char* kind : {"read", "write", "copy", "triad"}) {
    const Rates::const_iterator found = ceilings.bandwidth_gbs.find(kind);
    if (found != ceilings.bandwidth_gbs.end() && (!best || found->second.value > best->value)) best = found->second;
  }
  return best;
}

std::optional<double> memory_ceiling_for(const std::map<std::string, MeasuredRate>& bandwidth_gbs, double write_frac) {
  constexpr std::pair<const char*, double> kMixes[] = {
      {"read", 0.0}, {"triad", 1.0 / 3}, {"copy", 0.5}, {"write", 1.0}};
  double most = 0;
  for (const auto& [kind, mix] : kMixes)
    if (const Rates::const_iterator found = bandwidth_gbs.find(kind); found != bandwidth_gbs.end())
      most = std::max(most, found->second.value);
  std::optional<std::pair<double, double>> below, above;  // mix and GB/s
  for (const auto& [kind, mix] : kMixes) {
    const Rates::const_iterator found = bandwidth_gbs.find(kind);
    if (found == bandwidth_gbs.end()) continue;
    const double gbs = found->second.disturbed ? most : found->second.value;
    if (mix <= write_frac) below = {mix, gbs};
    if (mix >= write_frac && !above) above = {mix, gbs};
  }
  if (!below || !above)
    return below ? std::optional(below->second) : above ? std::optional(above->second) : std::nullopt;
  if (above->first <= below->first) return below->second;
  const double part = (write_frac - below->first) / (above->first - below->first);
  return below->second + part * (above->second - below->second);
}

std::optional<double> measured_ridge(const MeasuredCeilings& ceilings, std::string_view dtype) {
  const Rates::const_iterator peak = ceilings.library_tflops.find(std::string(dtype));
  const std::optional<MeasuredRate> memory = memory_ceiling(ceilings);
  if (peak == ceilings.library_tflops.end() || !memory || memory->value <= 0) return std::nullopt;
  return peak->second.value * 1e12 / (memory->value * 1e9);
}

MergedCeilings merge_ceilings(const MeasuredCeilings& before, const MeasuredCeilings& now) {
  MergedCeilings out{now, 0, 0};
  if (before.driver != now.driver) return out;
  const bool cpu = now.uuid.empty();
  for (const Group& group : kGroups) {
    Rates& rates = out.ceilings.*group.rates;
    for (const auto& [name, rate] : before.*group.rates) {
      const auto [found, taken] = rates.try_emplace(name, rate);
      if (taken) continue;
      const bool lower_is_better = group.rates == &MeasuredCeilings::latency_us;
      const double gain = lower_is_better ? rate.value - found->second.value : found->second.value - rate.value;
      if (cpu && gain >= 0) continue;
      if (cpu && found->second.disturbed) {
        found->second = rate;
        ++out.better;
        continue;
      }
      if (!found->second.quick || rate.quick) continue;
      found->second = rate;
      ++out.fuller;
    }
  }
  return out;
}

std::string ceilings_path(std::string_view device_key) {
  const auto variable = [](const char* name) {
    const char* value = std::getenv(name);
    return std::string(value != nullptr ? value : "");
  };
  std::string folder = variable("LLMPROF_HOME");
  if (folder.empty()) {
    const std::string state = variable("XDG_STATE_HOME");
    folder = (state.empty() ? variable("HOME") + "/.local/state" : state) + "/llmprof";
  }
  std::string name;
  for (const char c : device_key.substr(0, kFileNameMax)) {
    const bool plain = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '-';
    name += plain ? c : '_';
  }
  return folder + "/ceilings/" + name + ".json";
}

std::string ceilings_text(const MeasuredCeilings& ceilings) { return to_text(ceilings); }

Result<MeasuredCeilings> read_ceilings(const std::string& path) {
  LLMPROF_ASSIGN(const std::string text, read_small_file(path));
  return parse_ceilings(text, path);
}

Result<MeasuredCeilings> parse_ceilings(std::string_view text, const std::string& path) {
  if (text.empty()) return damaged(path, "an empty file");
  const Result<JsonDocument> parsed = JsonDocument::parse(text);
  if (!parsed) return damaged(path, "no JSON: " + parsed.error().what);
  const JsonValue document = parsed->root();
  std::string_view schema;
  if (!document["schema"].read(schema)) return damaged(path, "a JSON file without a schema");
  if (schema != kSchema) return damaged(path, fmt::format("schema \"{}\"", schema.substr(0, 64)));
  MeasuredCeilings ceilings;
  for (const Text& text_field : kTexts) {
    const std::optional<std::string> value = short_text(document[text_field.name]);
    if (!value) return damaged(path, fmt::format("no text \"{}\"", text_field.name));
    ceilings.*text_field.text = *value;
  }
  if (!document["unix_s"].read(ceilings.unix_s)) return damaged(path, "no time \"unix_s\"");
  // Files of earlier versions do not have it.
  if (!document["cache_bytes"].read(ceilings.cache_bytes) || ceilings.cache_bytes < 0) ceilings.cache_bytes = 0;
  for (const Group& group : kGroups) {
    LLMPROF_ASSIGN(ceilings.*group.rates, rates_of(document, group, path));
  }
  return ceilings;
}

std::vector<MeasuredCeilings> kept_ceilings() {
  constexpr size_t kFilesMax = 64;
  const std::string any = ceilings_path("x");
  std::error_code none;
  std::vector<std::string> paths;
  for (std::filesystem::directory_iterator at(std::filesystem::path(any).parent_path(), none), end; at != end;
       at.increment(none)) {
    if (none) break;
    if (at->path().extension() == ".json") paths.push_back(at->path().string());
  }
  std::sort(paths.begin(), paths.end());
  if (paths.size() > kFilesMax) paths.resize(kFilesMax);
  std::vector<MeasuredCeilings> all;
  for (const std::string& path : paths)
    if (Result<MeasuredCeilings> one = read_ceilings(path)) all.push_back(*std::move(one));
  return all;
}

Status write_ceilings(const std::string& path, const MeasuredCeilings& ceilings) {
  LLMPROF_CHECK(make_folders(path));
  const std::string text = to_text(ceilings), beside = fmt::format("{}.{}", path, getpid());
  const auto failed = [&path](const char* why) {
    return fail(std::string("cannot keep the measured ceilings: ") + why, path,
                "set LLMPROF_HOME to a folder that you may write to, or pass --no-store");
  };
  std::FILE* file = std::fopen(beside.c_str(), "wb");
  if (file == nullptr) return failed(std::strerror(errno));
  const bool wrote = std::fwrite(text.data(), 1, text.size(), file) == text.size();
  const bool closed = std::fclose(file) == 0;
  if (wrote && closed && std::rename(beside.c_str(), path.c_str()) == 0) return {};
  const int why = errno;
  std::remove(beside.c_str());
  return failed(std::strerror(why));
}

}  // namespace llmprof
