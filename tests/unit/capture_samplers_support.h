// What the sampler tests share: settings of the stand-in libraries, and a spool read back.
#pragma once

#include <dlfcn.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "capture/spool/reader.h"
#include "temporary_folder.h"

namespace llmprof::samplers::testing {

inline const std::string kFakeNvml = std::string(LLMPROF_FAKES) + "/samplers/libnvidia-ml.so.1";
inline const std::string kFakeCupti = std::string(LLMPROF_FAKES) + "/samplers/libcupti.so.13";

// Environment variables for the length of a test.
class Settings {
 public:
  Settings(std::initializer_list<std::pair<const char*, std::string>> settings) {
    for (const std::pair<const char*, std::string>& setting : settings) set(setting.first, setting.second);
  }
  ~Settings() {
    for (const std::string& name : names_) unsetenv(name.c_str());
  }
  Settings(const Settings&) = delete;
  Settings& operator=(const Settings&) = delete;
  void set(const char* name, const std::string& value) {
    setenv(name, value.c_str(), 1);
    names_.emplace_back(name);
  }

 private:
  std::vector<std::string> names_;
};

// A function of a stand-in library that is none of the real one's.
template <class Function>
Function fake_function(const std::string& library, const char* name) {
  void* handle = dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
  return handle != nullptr ? reinterpret_cast<Function>(dlsym(handle, name)) : nullptr;
}

// A sampler's spool, in memory.
struct SpoolContent {
  std::map<spool::Id, std::string> texts;
  std::map<spool::Id, spool::MetricSetDef> sets;
  std::vector<spool::NvmlSample> nvml;
  std::vector<spool::GpuSample> counters;
  std::vector<std::pair<std::string, std::string>> facts;
  std::vector<std::pair<std::string, std::string>> notes;
  std::map<std::string, uint64_t> note_counts;
  spool::ReadSummary summary;
  std::string role;

  std::string text(spool::Id id) const {
    const std::map<spool::Id, std::string>::const_iterator found = texts.find(id);
    return found != texts.end() ? found->second : std::string();
  }
  std::string fact(const std::string& key) const {
    for (const std::pair<std::string, std::string>& fact : facts)
      if (fact.first == key) return fact.second;
    return {};
  }
  std::vector<int64_t> fact_times(const std::string& key) const {
    std::vector<int64_t> times;
    for (const std::pair<std::string, std::string>& fact : facts)
      if (fact.first == key) times.push_back(std::atoll(fact.second.c_str()));
    return times;
  }
  std::string note(const std::string& key) const {
    for (const std::pair<std::string, std::string>& note : notes)
      if (note.first == key) return note.second;
    return {};
  }
  // Place of a column in the metric set of that source, -1 if it is not there.
  int column(const std::string& source, const std::string& name) const {
    for (const std::pair<const spool::Id, spool::MetricSetDef>& set : sets) {
      if (text(set.second.source) != source) continue;
      for (int i = 0; i < set.second.count; ++i)
        if (text(set.second.metrics[i]) == name) return i;
    }
    return -1;
  }

  void operator()(const spool::TextDef& def) { texts[def.id] = std::string(def.text); }
  void operator()(const spool::MetricSetDef& def) { sets[def.id] = def; }
  void operator()(const spool::NvmlSample& sample) { nvml.push_back(sample); }
  void operator()(const spool::GpuSample& sample) { counters.push_back(sample); }
  void operator()(const spool::Fact& fact) { facts.emplace_back(text(fact.key), text(fact.value)); }
  void operator()(const spool::Note& note) {
    notes.emplace_back(text(note.key), text(note.text));
    note_counts[text(note.key)] += note.count;
  }
  template <class Record>
  void operator()(const Record&) {}
};

inline SpoolContent read_spool(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  const std::string bytes((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  SpoolContent content;
  spool::FileHead head;
  if (!spool::read_head(bytes, head)) return content;
  content.role = std::string(spool::role_of(head));
  content.summary = spool::read(bytes, content);
  return content;
}

}  // namespace llmprof::samplers::testing
