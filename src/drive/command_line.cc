#include "drive/command_line.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/shell_word.h"
#include "hardware/ncu_metrics.h"

namespace llmprof::drive {
namespace {

bool is_word_character(char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-' || c == '_'; }

// Whether the text has the word by itself: not as a part of "cublas-verbose".
bool has_word(std::string_view text, std::string_view word) {
  for (size_t at = text.find(word); at != std::string_view::npos; at = text.find(word, at + 1)) {
    const size_t end = at + word.size();
    const bool begins = at == 0 || !is_word_character(text[at - 1]);
    if (begins && (end == text.size() || !is_word_character(text[end]))) return true;
  }
  return false;
}

bool begins_option(std::string_view line) {
  const size_t text = line.find_first_not_of(" \t");
  return text != std::string_view::npos && line[text] == '-';
}

// What the help says of an option: from the line with its name, which begins with a dash, to the next one that does.
std::string_view about_option(std::string_view help, std::string_view name) {
  constexpr size_t kNone = std::string_view::npos;
  size_t begin = kNone;
  for (size_t from = 0; from < help.size();) {
    const size_t end = std::min(help.find('\n', from), help.size());
    const std::string_view line = help.substr(from, end - from);
    if (begins_option(line)) {
      if (begin != kNone) return help.substr(begin, from - begin);
      if (line.find(name) != kNone) begin = from;
    }
    from = end + 1;
  }
  return begin == kNone ? std::string_view() : help.substr(begin);
}

}  // namespace

std::string escape_regex(std::string_view text) { return backslashed(text, R"(\^$.|?*+()[]{})"); }

std::string nvtx_filter(std::string_view range) { return backslashed(range, R"(\@,/[]*+)") + "/"; }

std::vector<std::string> ncu_words(const NcuLine& line) {
  // Clocks and caches as the program has them, so that counts are those of the recorded run; units that nothing rounds.
  std::vector<std::string> words = {
      line.tool, "--target-processes", "all", "--clock-control", "none", "--cache-control", "none", "--csv", "--page",
      "raw",     "--print-units",      "base"};
  const auto add = [&](const char* option, std::string value) {
    words.emplace_back(option);
    words.push_back(std::move(value));
  };
  add("--log-file", line.log);
  add("--metrics", ncu_metric_list(line.metrics));
  if (!line.range.empty()) {
    words.emplace_back("--nvtx");
    add("--nvtx-include", nvtx_filter(line.range));
  }
  if (!line.functions.empty()) {
    std::vector<std::string> names;
    for (const std::string& function : line.functions) names.push_back(escape_regex(function));
    add("--kernel-name-base", "function");
    add("--kernel-name", fmt::format("regex:^({})$", fmt::join(names, "|")));
  }
  if (line.launch_skip > 0) add("--launch-skip", std::to_string(line.launch_skip));
  if (line.launch_count > 0) add("--launch-count", std::to_string(line.launch_count));
  words.insert(words.end(), line.command.begin(), line.command.end());
  return words;
}

NsysAbilities nsys_abilities(std::string_view help) {
  NsysAbilities out;
  const std::string_view traces = about_option(help, "--trace=");
  if (!has_word(traces, "cuda")) return out;  // it is laid out in another way
  out.read = true;
  std::erase_if(out.traces, [&](const std::string& trace) { return !has_word(traces, trace); });
  const auto has = [&](std::string_view option) { return help.find(option) != std::string_view::npos; };
  out.graph_nodes = has("--cuda-graph-trace");
  out.switches = has("--cpuctxsw");
  out.kill = has("--kill");
  return out;
}

std::vector<std::string> nsys_words(const NsysLine& line) {
  const NsysAbilities& has = line.abilities;
  std::vector<std::string> words = {line.tool, "profile", fmt::format("--trace={}", fmt::join(has.traces, ","))};
  if (has.graph_nodes) words.emplace_back("--cuda-graph-trace=node");
  words.emplace_back("--sample=none");
  if (has.switches) words.emplace_back("--cpuctxsw=none");
  if (line.delay_s > 0) words.push_back(fmt::format("--delay={}", line.delay_s));
  if (line.duration_s > 0) {
    words.push_back(fmt::format("--duration={}", line.duration_s));
    // By default nsys ends the program then; under `llmprof run` it runs on.
    if (has.kill) words.emplace_back("--kill=none");
  }
  words.emplace_back("--export=sqlite");
  words.emplace_back("--force-overwrite=true");
  words.push_back("--output=" + line.output);
  words.insert(words.end(), line.command.begin(), line.command.end());
  return words;
}

}  // namespace llmprof::drive
