#include "derive/annotate.h"

#if defined(__GNUC__) && !defined(__clang__)
// GCC 12 under -fsanitize takes std::regex's own std::function for uninitialised; the warning comes from where the
// template is instantiated, so it is off for this file.
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif

#include <algorithm>
#include <array>
#include <limits>
#include <regex>

namespace llmprof {
namespace {

constexpr std::array<std::string_view, 9> kLibraryDomains{"nccl", "cublas", "cudnn",    "cufft",  "cusolver",
                                                          "cccl", "nvjpeg", "cutensor", "nvshmem"};

constexpr size_t kTextMax = 512;  // std::regex recurses on its input; longer texts are searched in their beginning

struct CompiledRule {
  StepName step;
  std::regex regex;
};

Result<std::regex> compile(const StageRule& rule) {
  try {
    return std::regex(rule.regex, std::regex::ECMAScript | std::regex::icase | std::regex::optimize);
  } catch (const std::regex_error& error) {
    return fail("a stage rule needs a regular expression, but '" + rule.regex + "' does not compile: " + error.what(),
                "--stage " + rule.name + "=" + rule.regex,
                "escape special characters, for example --stage 'decode=step\\[DECODE'", ExitCode::kUsage);
  }
}

bool matches(const std::regex& regex, std::string_view text) {
  text = text.substr(0, kTextMax);
  try {
    return std::regex_search(text.begin(), text.end(), regex);
  } catch (const std::regex_error&) {
    return false;  // the expression is too complex for this text
  }
}

std::optional<StepName> name_of_text(std::string_view text, const std::vector<CompiledRule>& rules,
                                     std::vector<size_t>& matched) {
  for (size_t i = 0; i < rules.size(); ++i) {
    const CompiledRule& rule = rules[i];
    if (!matches(rule.regex, text)) continue;
    ++matched[i];
    StepName step = rule.step;
    // Counts that a server wrote into the text hold under the user's name as well.
    if (const std::optional<StepName> counted = parse_server_step(text)) {
      step = *counted;
      step.stage = rule.step.stage;
      step.kind = rule.step.kind;
      step.by_rule = true;
    }
    return step;
  }
  return parse_step_name(text);
}

// Matching ranges of one thread, outer before inner, to disjoint ones.
void flatten(std::vector<StageRange>& nested, const std::vector<StepName>& names, std::vector<StageRange>& out) {
  std::stable_sort(nested.begin(), nested.end(), [](const StageRange& a, const StageRange& b) {
    return a.start_ns != b.start_ns ? a.start_ns < b.start_ns : a.end_ns > b.end_ns;
  });
  struct Open {
    StageRange range;
    bool container = false;    // holds a range of its own kind
    int64_t inner_end_ns = 0;  // end of the last range inside
    bool has_inner = false;
    size_t first_flat = 0;  // steps from here on lie inside
  };
  std::vector<Open> open;
  std::vector<StageRange> flat;
  const auto close = [&](int64_t before) {
    while (!open.empty() && open.back().range.end_ns <= before) {
      const Open done = open.back();
      open.pop_back();
      StageRange range = done.range;
      if (done.has_inner) range.start_ns = done.inner_end_ns;
      const bool step = !done.container && range.start_ns < range.end_ns;
      if (step) flat.push_back(range);
      for (size_t i = done.first_flat; done.container && i < flat.size(); ++i) {
        const bool same = names[flat[i].name].kind == names[range.name].kind;
        if (!same || flat[i].outer_start_ns < flat[i].outer_end_ns) continue;
        flat[i].outer_start_ns = done.range.start_ns;
        flat[i].outer_end_ns = done.range.end_ns;
      }
      if (!open.empty()) {
        Open& outer = open.back();
        outer.has_inner = true;
        outer.inner_end_ns = std::max(outer.inner_end_ns, done.range.end_ns);
        outer.container |= done.container || names[done.range.name].kind == names[outer.range.name].kind ||
                           names[done.range.name].one_step;
      }
    }
  };
  for (StageRange range : nested) {
    close(range.start_ns);
    // Ranges that overlap without nesting follow each other: the later one is cut to fit.
    while (!open.empty() && open.back().range.end_ns < range.end_ns) {
      range.start_ns = open.back().range.end_ns;
      close(range.start_ns);
    }
    if (range.end_ns > range.start_ns) open.push_back({range, false, 0, false, flat.size()});
  }
  close(std::numeric_limits<int64_t>::max());
  std::sort(flat.begin(), flat.end(), [](const StageRange& a, const StageRange& b) { return a.start_ns < b.start_ns; });
  out.insert(out.end(), flat.begin(), flat.end());
}

}  // namespace

bool is_library_domain(std::string_view domain) {
  std::string small;
  for (const char c : domain.substr(0, 16)) small += c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  return std::any_of(kLibraryDomains.begin(), kLibraryDomains.end(),
                     [&](std::string_view name) { return std::string_view(small).substr(0, name.size()) == name; });
}

std::string without_counters(std::string_view text) {
  std::string out;
  for (const char c : text.substr(0, 60)) {
    const bool digit = c >= '0' && c <= '9';
    if (!digit)
      out += c;
    else if (out.empty() || out.back() != '#')
      out += '#';
  }
  return out;
}

std::string range_texts(const Trace& trace) {
  constexpr size_t kShown = 4;
  std::vector<std::string> texts;
  for (size_t i = 0; i < trace.annotations.size() && texts.size() <= kShown; ++i) {
    const StringId domain = trace.annotations.domain[i];
    if (trace.annotations.kind[i] == AnnotationKind::kGpuUser) continue;
    if (domain != StringId::kEmpty && is_library_domain(trace.text(domain))) continue;
    std::string text = without_counters(trace.text(trace.annotations.name[i]));
    if (std::find(texts.begin(), texts.end(), text) == texts.end()) texts.push_back(std::move(text));
  }
  if (texts.empty()) return "the program names no ranges";
  const bool more = texts.size() > kShown;
  if (more) texts.pop_back();
  std::string out = "its ranges are";
  for (size_t i = 0; i < texts.size(); ++i) out += (i == 0 ? " \"" : ", \"") + texts[i] + "\"";
  return out + (more ? ", ..." : "");
}

Result<StageRule> parse_stage_rule(std::string_view text) {
  const size_t equals = text.find('=');
  if (equals == std::string_view::npos || equals == 0 || equals + 1 == text.size()) {
    return fail("a stage rule is NAME=REGEX, but '" + std::string(text) + "' is not", "--stage " + std::string(text),
                "write for example --stage 'decode=generate_one_token'", ExitCode::kUsage);
  }
  StageRule rule{std::string(text.substr(0, equals)), std::string(text.substr(equals + 1))};
  LLMPROF_CHECK(compile(rule));
  return rule;
}

Result<StageRanges> find_stage_ranges(const Trace& trace, const std::vector<StageRule>& rules) {
  std::vector<CompiledRule> compiled;
  for (const StageRule& rule : rules) {
    LLMPROF_ASSIGN(std::regex regex, compile(rule));
    StepName step;
    step.stage = rule.name;
    step.kind = stage_kind_of(rule.name);
    step.by_rule = true;
    compiled.push_back({step, std::move(regex)});
  }
  StageRanges found;
  found.matched.resize(rules.size());
  constexpr uint32_t kUnjudged = 0, kNotStage = 1, kFirst = 2;
  std::vector<uint32_t> name_of(trace.annotations.empty() ? 0 : trace.strings.size(), kUnjudged);
  std::vector<std::vector<StageRange>> by_thread(trace.threads.size());
  for (size_t i = 0; i < trace.annotations.size(); ++i) {
    const ThreadId thread = trace.annotations.thread[i];
    if (trace.annotations.kind[i] == AnnotationKind::kGpuUser || thread >= by_thread.size()) continue;
    const StringId domain = trace.annotations.domain[i];
    if (domain != StringId::kEmpty && is_library_domain(trace.text(domain))) continue;
    uint32_t& name = name_of[index(trace.annotations.name[i])];
    if (name == kUnjudged) {
      name = kNotStage;
      if (std::optional<StepName> step = name_of_text(trace.text(trace.annotations.name[i]), compiled, found.matched)) {
        name = kFirst + static_cast<uint32_t>(found.names.size());
        found.names.push_back(std::move(*step));
      }
    }
    if (name == kNotStage) continue;
    const int64_t start = trace.annotations.start_ns[i];
    by_thread[thread].push_back(
        {start, start + trace.annotations.dur_ns[i], thread, static_cast<Row>(i), name - kFirst, 0, 0});
  }
  for (std::vector<StageRange>& nested : by_thread) flatten(nested, found.names, found.ranges);
  return found;
}

}  // namespace llmprof
