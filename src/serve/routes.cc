#include "serve/routes.h"

#include <algorithm>
#include <charconv>

#include "base/embedded.h"
#include "base/json_writer.h"
#include "base/printable.h"
#include "report/render.h"
#include "serve/trends.h"

namespace llmprof {
std::span<const EmbeddedFile> embedded_runs_page();
}

namespace llmprof::serve {
namespace {

constexpr const char* kHtml = "text/html; charset=utf-8";
constexpr const char* kJson = "application/json; charset=utf-8";
constexpr size_t kDigitsMost = 15;  // as the store reads numbers
// What is no page must not act as one.
constexpr std::string_view kNothingRuns = "default-src 'none'; sandbox";

// "12": digits without a zero before them.
std::optional<int64_t> number_in(std::string_view text) {
  int64_t number = 0;
  const auto [end, wrong] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (text.empty() || text.size() > kDigitsMost || text[0] < '1' || text[0] > '9') return std::nullopt;
  if (wrong != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return number;
}

// The start of a text, at most kTextMost bytes, never within a character.
std::string cut(const std::string& text) {
  if (text.size() <= kTextMost) return text;
  std::string_view start = std::string_view(text).substr(0, kTextMost);
  size_t end = 0;
  while (end < start.size()) {
    const size_t bytes = first_glyph(std::string_view(text).substr(end)).bytes;
    if (end + bytes > kTextMost) break;
    end += bytes;
  }
  return std::string(start.substr(0, end)) + "…";
}

Response not_found(std::string_view why = "There is nothing at this address.") { return say(Code::kNotFound, why); }

Response json_of(std::string text) {
  Response out;
  out.type = kJson;
  out.body = std::move(text);
  return out;
}

Response page_of(std::string text, std::string_view policy) {
  Response out;
  out.type = kHtml;
  out.body = std::move(text);
  out.headers.push_back({"Content-Security-Policy", std::string(policy) + "; frame-ancestors 'none'"});
  return out;
}

Response all_runs(const Library& library) {
  Result<std::vector<RunRow>> rows = library.runs();
  if (!rows) return say(Code::kFailed, "The run store cannot be read.");
  RunList list;
  for (RunRow& row : *rows) {
    list.stored_bytes += row.stored_bytes;
    row.folder.clear();
    for (std::string* text : {&row.name, &row.gpu, &row.command}) *text = cut(*text);
  }
  list.runs = *std::move(rows);
  return json_of(render_json(list, 0));
}

void write_changes(JsonWriter& json, std::string_view name, const Trend& trend, OptDouble Trend::Point::*figure,
                   const std::vector<Change>& changes) {
  std::vector<int64_t> numbers;
  for (const Trend::Point& point : trend.points)
    if (point.*figure) numbers.push_back(point.number);
  json.key(name).begin_array();
  for (const Change& change : changes) {
    json.begin_object().field("number", numbers[change.at]).field("before_ms", change.before);
    json.field("after_ms", change.after).field("probability", change.probability).end_object();
  }
  json.end_array();
}

Response all_trends(const Library& library) {
  const Result<std::vector<RunRow>> rows = library.runs();
  if (!rows) return say(Code::kFailed, "The run store cannot be read.");
  JsonWriter json(0);
  json.begin_object().field("schema", "llmprof.trends/1").field("false_alarms_most_frac", kFalseAlarmsMost);
  json.field("part_least", static_cast<uint64_t>(kPartLeast)).key("trends").begin_array();
  for (const Trend& trend : trends_of(*rows)) {
    json.begin_object().field("kind", name_of(trend.kind)).field("name", cut(trend.name)).field("gpu", cut(trend.gpu));
    json.key("points").begin_array();
    for (const Trend::Point& point : trend.points) {
      json.begin_object().field("number", point.number).field("start_unix_ns", point.start_unix_ns);
      json.field("ttft_ms", point.ttft_ms).field("tpot_ms", point.tpot_ms).end_object();
    }
    json.end_array();
    write_changes(json, "ttft_changes", trend, &Trend::Point::ttft_ms, trend.ttft_changes);
    write_changes(json, "tpot_changes", trend, &Trend::Point::tpot_ms, trend.tpot_changes);
    json.end_object();
  }
  json.end_array().end_object();
  return json_of(json.take() + "\n");
}

Response one_manifest(const Library& library, int64_t number) {
  Result<RunManifest> manifest = library.manifest(number);
  if (!manifest) return not_found(manifest.error().what);
  return json_of(render_json(RunShown{*std::move(manifest), {}}, 0));
}

Response one_result(const Library& library, int64_t number) {
  Result<StoredResult> result = library.result(number, false);
  if (!result) return not_found(result.error().what);
  return json_of(std::move(result->json));
}

Response page_of_result(const StoredResult& result, std::string no_timeline, std::string timeline_address) {
  return page_of(render_stored_html({result.kind, result.json, result.timeline, true, std::move(no_timeline),
                                     std::move(timeline_address)}),
                 report_page_policy());
}

// A timeline that was not kept can be made of the recording, if that is there.
Response one_page(const Library& library, int64_t number) {
  const Result<StoredResult> result = library.result(number, true);
  if (!result) return not_found(result.error().what);
  if (result->kind != "report" || !result->timeline.empty()) return page_of_result(*result, {}, {});
  const Result<Readable> run = library.readable(number);
  if (!run) return page_of_result(*result, run.error().what, {});
  return page_of_result(*result, {}, "/runs/" + std::to_string(number) + "/timeline");
}

Answer page_with_timeline(const Library& library, const Commands& commands, int64_t number) {
  Result<StoredResult> result = library.result(number, true);
  if (!result) return not_found(result.error().what);
  if (result->kind != "report") return not_found("Only reports have a timeline.");
  if (!result->timeline.empty()) return page_of_result(*result, {}, {});
  const Result<Readable> run = library.readable(number);
  if (!run) return page_of_result(*result, run.error().what, {});
  std::vector<std::string> words = {"analyze", "--no-store", "-q", "--format", "html", run->word};
  return [&commands, words = std::move(words), result = *std::move(result)](const Unwanted& unwanted) mutable {
    const Result<std::string> page = commands.output_of(words, unwanted);
    if (page) result.timeline = packed_timeline_in(*page);
    return sealed(page_of_result(result, page ? "Nothing in the recording can be drawn." : page.error().what, {}));
  };
}

// ---- comparisons

struct Compared {
  std::vector<int64_t> before, after;
};

// "12,13": at least one number.
std::optional<std::vector<int64_t>> numbers_in(std::string_view text) {
  std::vector<int64_t> out;
  while (true) {
    const size_t comma = std::min(text.find(','), text.size());
    const std::optional<int64_t> number = number_in(text.substr(0, comma));
    if (!number || out.size() == kComparedMost) return std::nullopt;
    out.push_back(*number);
    if (comma == text.size()) return out;
    text.remove_prefix(comma + 1);
  }
}

std::optional<Compared> compared_in(std::string_view text) {
  const size_t slash = text.find('/');
  if (slash == std::string_view::npos) return std::nullopt;
  std::optional<std::vector<int64_t>> before = numbers_in(text.substr(0, slash));
  std::optional<std::vector<int64_t>> after = numbers_in(text.substr(slash + 1));
  if (!before || !after || before->size() + after->size() > kComparedMost) return std::nullopt;
  return Compared{*std::move(before), *std::move(after)};
}

// The word of a side for `llmprof diff`.
Result<std::string> side_of(const std::vector<int64_t>& numbers, const Library& library, bool& bench, bool& recorded) {
  std::string out;
  for (const int64_t number : numbers) {
    LLMPROF_ASSIGN(const Readable run, library.readable(number));
    (run.kind == RunKind::kBench ? bench : recorded) = true;
    out += (out.empty() ? "" : ",") + run.word;
  }
  return out;
}

Result<std::vector<std::string>> diff_words(const Compared& wanted, const Library& library) {
  bool bench = false, recorded = false;
  LLMPROF_ASSIGN(std::string before, side_of(wanted.before, library, bench, recorded));
  LLMPROF_ASSIGN(std::string after, side_of(wanted.after, library, bench, recorded));
  if (bench && recorded) return fail("Results of llmprof bench compare with each other, not with recordings.");
  return std::vector<std::string>{"diff", "--json", "-q", std::move(before), std::move(after)};
}

std::string address_of(const Compared& compared) {
  std::string out;
  for (const std::vector<int64_t>* side : {&compared.before, &compared.after})
    for (size_t i = 0; i < side->size(); ++i) out += (i == 0 ? "/" : ",") + std::to_string((*side)[i]);
  return out;
}

// Where there is no comparison, the page of the runs says why, and what can be said all the same.
Response see_why(const Compared& compared) {
  Response out;
  out.code = Code::kSeeOther;
  out.headers.push_back({"Location", "/#compare" + address_of(compared)});
  return out;
}

// The page that `llmprof diff --format html` writes of the same.
Response diff_page(std::string_view json) {
  const bool bench = json.substr(0, json.find('\n', 2)).find("bench") != std::string_view::npos;
  return page_of(render_stored_html({bench ? "comparison" : "diff", json, {}, true}), report_page_policy());
}

Answer one_diff(const Library& library, const Commands& commands, const Compared& compared, bool page) {
  Result<std::vector<std::string>> words = diff_words(compared, library);
  if (!words) return page ? see_why(compared) : say(Code::kConflict, words.error().what);
  return [&commands, words = *std::move(words), compared, page](const Unwanted& unwanted) {
    Result<std::string> json = commands.output_of(words, unwanted);
    if (!json) return sealed(page ? see_why(compared) : say(Code::kConflict, json.error().what));
    return sealed(page ? diff_page(*json) : json_of(*std::move(json)));
  };
}

Response runs_page() {
  const std::string_view page = embedded_runs_page().front().text;
  return page_of(std::string(page), page_policy(page));
}

Answer route(std::string_view target, const Library& library, const Commands& commands) {
  if (target == "/") return runs_page();
  if (target == "/api/runs") return all_runs(library);
  if (target == "/api/trends") return all_trends(library);
  if (target == "/favicon.ico") {
    Response out;
    out.code = Code::kNoContent;
    return out;
  }
  constexpr std::string_view kPages = "/runs/", kManifests = "/api/runs/", kResult = "/result", kTimeline = "/timeline";
  constexpr std::string_view kDiffs = "/diff/", kDiffData = "/api/diff/";
  for (const std::string_view start : {kDiffs, kDiffData}) {
    if (!target.starts_with(start)) continue;
    const std::optional<Compared> compared = compared_in(target.substr(start.size()));
    return compared ? one_diff(library, commands, *compared, start == kDiffs) : not_found();
  }
  if (target.starts_with(kPages)) {
    target.remove_prefix(kPages.size());
    const bool with_timeline = target.ends_with(kTimeline);
    if (with_timeline) target.remove_suffix(kTimeline.size());
    const std::optional<int64_t> number = number_in(target);
    if (!number) return not_found();
    return with_timeline ? page_with_timeline(library, commands, *number) : one_page(library, *number);
  }
  if (!target.starts_with(kManifests)) return not_found();
  target.remove_prefix(kManifests.size());
  const bool of_result = target.ends_with(kResult);
  if (of_result) target.remove_suffix(kResult.size());
  const std::optional<int64_t> number = number_in(target);
  if (!number) return not_found();
  return of_result ? one_result(library, *number) : one_manifest(library, *number);
}

bool has_header(const Response& response, std::string_view name) {
  for (const Header& header : response.headers)
    if (header.name == name) return true;
  return false;
}

Answer unguarded(const Request& request, const Library& library, const Commands& commands) {
  if (request.method != "GET" && request.method != "HEAD") {
    Response out = say(Code::kMethodNotAllowed, "Only GET and HEAD are answered: this server changes nothing.");
    out.headers.push_back({"Allow", "GET, HEAD"});
    return out;
  }
  if (request.has_body) return say(Code::kBadRequest, "A request with a body is not answered.");
  return route(request.target, library, commands);
}

}  // namespace

Response sealed(Response out) {
  if (!has_header(out, "Content-Security-Policy"))
    out.headers.push_back({"Content-Security-Policy", std::string(kNothingRuns) + "; frame-ancestors 'none'"});
  for (const auto& [name, value] : {std::pair("Cache-Control", "no-store"),
                                    {"X-Content-Type-Options", "nosniff"},
                                    {"X-Frame-Options", "DENY"},
                                    {"Referrer-Policy", "no-referrer"},
                                    {"Cross-Origin-Opener-Policy", "same-origin"},
                                    {"Cross-Origin-Resource-Policy", "same-origin"}})
    out.headers.push_back({name, value});
  return out;
}

Answer answer(const Request& request, const Guard& guard, const Library& library, const Commands& commands) {
  if (std::optional<Response> refused = guard.refuse(request)) return sealed(*std::move(refused));
  Answer out = unguarded(request, library, commands);
  if (Response* at_once = std::get_if<Response>(&out)) *at_once = sealed(std::move(*at_once));
  return out;
}

}  // namespace llmprof::serve
