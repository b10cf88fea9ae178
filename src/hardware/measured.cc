#include "hardware/measured.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
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
#include "base/record_json.h"
#include "base/record_reader.h"

namespace llmprof {
namespace {

constexpr std::string_view kSchema = "llmprof.ceilings/1";
constexpr int64_t kFileBytesMax = int64_t{1} << 20;
constexpr size_t kRatesMax = 256;  // in one group
constexpr size_t kTextBytesMax = 1024;
constexpr size_t kFileNameMax = 200;
constexpr std::string_view kMeasureAgain = "measure again: llmprof peaks";

using Rates = MeasuredRates;
constexpr Rates MeasuredCeilings::*kGroups[] = {&MeasuredCeilings::library_tflops, &MeasuredCeilings::unit_tflops,
                                                &MeasuredCeilings::bandwidth_gbs, &MeasuredCeilings::latency_us};

tl::unexpected<Error> damaged(const std::string& path, const std::string& what) {
  return fail("expected measured ceilings, found " + what, path, std::string(kMeasureAgain));
}

// A rate above 0; its other fields may be absent.
std::optional<MeasuredRate> rate_of(JsonValue object) {
  MeasuredRate rate;
  RecordReader reader(object, kTextBytesMax, Missing::kAny);
  rate.for_each_field(reader);
  const bool numbers = rate.iqr_frac >= 0 && rate.clock_mhz.value_or(0) >= 0 && rate.power_w.value_or(0) >= 0;
  if (!object.is_object() || !reader.wrong().empty() || !numbers || rate.value <= 0) return std::nullopt;
  return rate;
}

Result<Rates> rates_of(JsonValue document, std::string_view group, const std::string& path) {
  const JsonValue object = document[group];
  if (!object.is_object()) return damaged(path, fmt::format("no object \"{}\"", group));
  Rates rates;
  for (const JsonMember field : object.members()) {
    const std::optional<MeasuredRate> rate = rate_of(field.value);
    if (!rate || field.name.size() > kTextBytesMax || rates.size() >= kRatesMax)
      return damaged(path, fmt::format("\"{}\" without a value above 0 in {}", field.name.substr(0, 64), group));
    rates[std::string(field.name)] = *rate;
  }
  return rates;
}

// Absent in files of versions that did not measure it.
Result<RecorderCosts> recorder_costs_of(JsonValue document, std::string_view group, const std::string& path) {
  RecorderCosts costs;
  const std::optional<JsonValue> object = document.find(group);
  if (!object) return costs;
  if (!object->is_object()) return damaged(path, fmt::format("no object \"{}\"", group));
  for (const JsonMember field : object->members()) {
    RecorderCost cost;
    RecordReader reader(field.value, kTextBytesMax);
    if (field.value.is_object()) cost.for_each_field(reader);
    const bool numbers = cost.plain_ns > 0 && cost.recorded_ns > 0 && cost.seen_ns >= 0 && cost.spread_ns >= 0;
    if (!field.value.is_object() || !reader.wrong().empty() || !numbers || costs.size() >= kRatesMax)
      return damaged(path, fmt::format("\"{}\" without times above 0 in {}", field.name.substr(0, 64), group));
    costs[std::string(field.name)] = cost;
  }
  return costs;
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

std::optional<std::string> disturbed_remark(const MeasuredCeilings& ceilings) {
  std::vector<std::string_view> names;
  for (const Rates* rates : {&ceilings.library_tflops, &ceilings.unit_tflops, &ceilings.bandwidth_gbs})
    for (const auto& [name, rate] : *rates)
      if (rate.disturbed && std::find(names.begin(), names.end(), name) == names.end()) names.emplace_back(name);
  if (names.empty()) return std::nullopt;
  return fmt::format("{}: the measured ceiling{} may be too low (measured while disturbed: repeat `llmprof peaks`)",
                     fmt::join(names, ", "), names.size() == 1 ? "" : "s");
}

bool has_rates(const MeasuredCeilings& ceilings) {
  return std::any_of(std::begin(kGroups), std::end(kGroups),
                     [&](Rates MeasuredCeilings::*group) { return !(ceilings.*group).empty(); });
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
  if (now.recorder_ns.empty()) out.ceilings.recorder_ns = before.recorder_ns;
  const bool cpu = now.uuid.empty();
  for (Rates MeasuredCeilings::*const group : kGroups) {
    Rates& rates = out.ceilings.*group;
    for (const auto& [name, rate] : before.*group) {
      const auto [found, taken] = rates.try_emplace(name, rate);
      if (taken) continue;
      const bool lower_is_better = group == &MeasuredCeilings::latency_us;
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

std::string ceilings_text(const MeasuredCeilings& ceilings) {
  JsonWriter json;
  json.begin_object().field("schema", kSchema);
  write_fields(json, ceilings);
  json.end_object();
  return json.take() + "\n";
}

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
  Status read;
  ceilings.for_each_field([&](const FieldInfo& field, auto& value) {
    if (!read) return;
    using Value = std::decay_t<decltype(value)>;
    if constexpr (std::is_same_v<Value, Rates>) {
      Result<Rates> rates = rates_of(document, field.name, path);
      if (rates)
        value = *std::move(rates);
      else
        read = tl::unexpected<Error>(rates.error());
    } else if constexpr (std::is_same_v<Value, RecorderCosts>) {
      Result<RecorderCosts> costs = recorder_costs_of(document, field.name, path);
      if (costs)
        value = *std::move(costs);
      else
        read = tl::unexpected<Error>(costs.error());
    } else if constexpr (std::is_same_v<Value, IfKnown<int64_t>>) {
      if (const std::optional<int64_t> number = document[field.name].integer(); number && *number > 0) value = *number;
    } else {
      RecordReader reader(document, kTextBytesMax);
      reader(field, value);
      if (!reader.wrong().empty())
        read = damaged(path, fmt::format("no {} \"{}\"", std::is_same_v<Value, int64_t> ? "time" : "text", field.name));
    }
  });
  LLMPROF_CHECK(read);
  return ceilings;
}

std::string ceilings_folder_of(const std::string& recording) { return recording + "/ceilings"; }

std::vector<MeasuredCeilings> kept_ceilings() {
  return ceilings_in(std::filesystem::path(ceilings_path("x")).parent_path().string());
}

std::vector<MeasuredCeilings> ceilings_in(const std::string& folder) {
  constexpr size_t kFilesMax = 64;
  std::error_code none;
  std::vector<std::string> paths;
  for (std::filesystem::directory_iterator at(folder, none), end; at != end; at.increment(none)) {
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
  const std::string text = ceilings_text(ceilings), beside = fmt::format("{}.{}", path, getpid());
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
