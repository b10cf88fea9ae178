#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>

#include "base/json_document.h"
#include "report/render.h"
#include "serve/routes.h"
#include "store/manifest.h"
#include "store/store.h"
#include "temporary_folder.h"
#include "text_contains.h"

namespace llmprof::serve {
namespace {

namespace fs = std::filesystem;

constexpr const char* kHostile =
    "</script><script>alert(1)</script>=cmd|' /C calc'!A0\x1b[31m\xff\xe2\x80\xae<img src=x>";

Guard loopback() { return Guard(*parse_address("127.0.0.1", 7353), ""); }

Request ask(const std::string& target, const std::string& method = "GET") {
  Request out;
  out.method = method;
  out.target = target;
  out.headers = {{"Host", "127.0.0.1:7353"}};
  return out;
}

int code_of(const Response& response) { return static_cast<int>(response.code); }

std::string header(const Response& response, const std::string& name) {
  for (const Header& one : response.headers)
    if (one.name == name) return one.value;
  return {};
}

void put(const std::string& path, const std::string& content) { std::ofstream(path, std::ios::binary) << content; }

RunManifest manifest_named(RunKind kind, const std::string& name, const std::string& result) {
  RunManifest out;
  out.kind = kind;
  out.name = name;
  out.result = result;
  out.tpot_ms = 20;
  return out;
}

// All files and folders of a store with size and time of change: what serving must leave as it is.
std::map<std::string, std::string> state_of(const std::string& folder) {
  std::map<std::string, std::string> out;
  for (const fs::directory_entry& entry : fs::recursive_directory_iterator(folder)) {
    struct stat status {};
    lstat(entry.path().c_str(), &status);
    out[entry.path().string()] = std::to_string(status.st_size) + " " + std::to_string(status.st_mtim.tv_sec) + "." +
                                 std::to_string(status.st_mtim.tv_nsec) + " " + std::to_string(status.st_ino);
  }
  return out;
}

// Says which words it was given.
class WordsOnly : public Commands {
 public:
  Result<std::string> output_of(const std::vector<std::string>& words, const Unwanted&) const override {
    asked_ = words;
    if (!reason.empty()) return fail(reason);
    return output;
  }
  std::string output = "{\n  \"schema\": \"llmprof.diff/1\",\n  \"note\": \"</script><b>\"\n}\n", reason;
  mutable std::vector<std::string> asked_;
};

// Whatever it is that answers.
Response answer_of(const Request& request, const Guard& guard, const Library& library, const Commands& commands) {
  Answer answer = serve::answer(request, guard, library, commands);
  if (const Response* at_once = std::get_if<Response>(&answer)) return *at_once;
  return std::get<1>(answer)([] { return false; });
}

class Routes : public testing::Test {
 protected:
  Routes() : store_(folder_.path() + "/runs"), library_(store_) {
    EXPECT_TRUE(store::add_run(store_, manifest_named(RunKind::kAnalysis, kHostile, "report.json"),
                               std::string("{\"schema\": \"llmprof.report/1\", \"note\": \"</script><b>\"}")));
    EXPECT_TRUE(store::add_run(store_, manifest_named(RunKind::kBench, "gemm", "bench.json"), "{\"cases\": []}"));
  }
  Response get(const std::string& target, const std::string& method = "GET") const {
    return answer_of(ask(target, method), loopback(), library_, commands_);
  }
  // An analysis that has read these files.
  void add_analysis(const std::vector<std::string>& inputs) const {
    RunManifest manifest = manifest_named(RunKind::kAnalysis, "a", "report.json");
    manifest.inputs = inputs;
    EXPECT_TRUE(store::add_run(store_, manifest, "{}"));
  }
  std::string run_folder(int64_t number) const {
    const Result<std::vector<RunRow>> rows = library_.runs();
    EXPECT_TRUE(rows);
    for (const RunRow& row : *rows)
      if (row.number == number) return row.folder;
    return {};
  }

  TemporaryFolder folder_;
  std::string store_;
  StoreLibrary library_;
  WordsOnly commands_;
};

TEST_F(Routes, every_route_answers_with_what_it_is_for) {
  EXPECT_TRUE(contains(get("/").body, "<title>llmprof</title>"));
  EXPECT_EQ(get("/").type, "text/html; charset=utf-8");
  const Response rows = get("/api/runs");
  EXPECT_EQ(rows.type, "application/json; charset=utf-8");
  const Result<JsonDocument> list = JsonDocument::parse(rows.body);
  ASSERT_TRUE(list);
  EXPECT_EQ(list->root()["runs"].size(), 2U);
  EXPECT_FALSE(contains(rows.body, folder_.path())) << "folders of this machine are nobody's business";
  const Result<JsonDocument> manifest = JsonDocument::parse(get("/api/runs/2").body);
  ASSERT_TRUE(manifest);
  EXPECT_EQ(manifest->root()["name"].text(), "gemm");
  EXPECT_EQ(get("/api/runs/2/result").body, "{\"cases\": []}");
  EXPECT_TRUE(JsonDocument::parse(get("/api/trends").body));
  EXPECT_TRUE(contains(get("/runs/2").body, "data-kind=\"bench\">{\"cases\": []}</script>"));
  EXPECT_EQ(code_of(get("/favicon.ico")), 204);
}

TEST_F(Routes, nothing_else_is_a_route) {
  const std::string secret = "secret";
  put(folder_.path() + "/passwd", secret);
  put(store_ + "/passwd", secret);
  put(run_folder(1) + "/passwd", secret);
  for (const char* target : {"",
                             "*",
                             "runs/1",
                             "//",
                             "/runs",
                             "/runs/",
                             "/runs/0",
                             "/runs/01",
                             "/runs/-1",
                             "/runs/+1",
                             "/runs/ 1",
                             "/runs/1 ",
                             "/runs/1/",
                             "/runs/1?",
                             "/runs/1?a=b",
                             "/runs/1#a",
                             "/runs/1%00",
                             "/runs/1.html",
                             "/runs/%31",
                             "/runs/1e0",
                             "/runs/0x1",
                             "/runs/99999999999999999999",
                             "/runs/9223372036854775808",
                             "/runs/1000000000000000",
                             "/runs/3",
                             "/RUNS/1",
                             "/api",
                             "/api/",
                             "/api/runs/",
                             "/api/runs/1/",
                             "/api/runs/1/passwd",
                             "/api/runs/1/result/",
                             "/api/runs//result",
                             "/api/runs/result",
                             "/api/runs/1/../passwd",
                             "/api/runs/1/result/../../passwd",
                             "/../passwd",
                             "/runs/../passwd",
                             "/runs/..%2fpasswd",
                             "/runs/%2e%2e/passwd",
                             "/runs/..\\passwd",
                             "/runs/....//passwd",
                             "/runs/%252e%252e%252fpasswd",
                             "/runs/\xc0\xae\xc0\xae/passwd",
                             "/passwd",
                             "/./",
                             "/api/runs/1/manifest.json",
                             "/index.sqlite",
                             "/settings.json",
                             "/?",
                             "/?token=",
                             "/?a",
                             "/favicon.ico/",
                             "http://127.0.0.1:7353/",
                             "/\r\nX: y",
                             "/runs/1\r\nSet-Cookie: a=b",
                             "/runs/timeline",
                             "/runs//timeline",
                             "/runs/1/timeline/",
                             "/runs/1/timelines",
                             "/runs/01/timeline",
                             "/runs/1/../1/timeline",
                             "/runs/2/timeline",
                             "/runs/9/timeline",
                             "/diff",
                             "/diff/",
                             "/diff/2",
                             "/diff/2/",
                             "/diff//2",
                             "/diff/2/2/",
                             "/diff/2/2/2",
                             "/diff/2,/2",
                             "/diff/,2/2",
                             "/diff/2,,2/2",
                             "/diff/2%2c2/2",
                             "/diff/2/../../passwd",
                             "/diff/02/2",
                             "/diff/--help/2",
                             "/diff/2/2?a",
                             "/diff/last/2",
                             "/api/diff",
                             "/api/diff/2",
                             "/api/diff/2/-o",
                             "/api/diff/1,1,1,1,1,1,1,1,1,1/1,1,1,1,1,1,1,1,1,1,1"}) {
    const Response response = get(target);
    EXPECT_EQ(code_of(response), 404) << target;
    EXPECT_FALSE(contains(response.body, secret)) << target;
  }
  EXPECT_EQ(code_of(get("/runs/" + std::string(1 << 20, '1'))), 404);
  EXPECT_EQ(code_of(get("/" + std::string(1 << 20, 'a'))), 404);
  EXPECT_EQ(code_of(get(std::string("/\0", 2))), 404);
}

TEST_F(Routes, only_get_and_head_are_methods) {
  EXPECT_EQ(code_of(get("/", "HEAD")), 200);
  for (const char* method : {"POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "CONNECT", "get", "", "GET /"}) {
    const Response response = get("/", method);
    EXPECT_EQ(code_of(response), 405) << method;
    EXPECT_EQ(header(response, "Allow"), "GET, HEAD");
  }
  Request with_body = ask("/");
  with_body.has_body = true;
  EXPECT_EQ(code_of(answer_of(with_body, loopback(), library_, commands_)), 400);
}

TEST_F(Routes, every_answer_forbids_what_no_page_needs) {
  Request foreign = ask("/");
  foreign.headers[0].value = "evil.com";
  for (const Response& response : {get("/"), get("/runs/1"), get("/api/runs"), get("/nothing"), get("/", "POST"),
                                   get("/favicon.ico"), answer_of(foreign, loopback(), library_, commands_)}) {
    const std::string policy = header(response, "Content-Security-Policy");
    EXPECT_TRUE(policy.starts_with("default-src 'none'; ")) << policy;
    EXPECT_TRUE(contains(policy, "frame-ancestors 'none'"));
    EXPECT_FALSE(contains(policy, "unsafe")) << policy;
    EXPECT_EQ(header(response, "X-Content-Type-Options"), "nosniff");
    EXPECT_EQ(header(response, "Cache-Control"), "no-store");
    EXPECT_EQ(header(response, "X-Frame-Options"), "DENY");
    EXPECT_EQ(header(response, "Referrer-Policy"), "no-referrer");
    EXPECT_EQ(header(response, "Cross-Origin-Resource-Policy"), "same-origin");
    EXPECT_EQ(header(response, "Access-Control-Allow-Origin"), "");
  }
  EXPECT_TRUE(contains(header(get("/"), "Content-Security-Policy"), "connect-src 'self'"));
  EXPECT_FALSE(contains(header(get("/runs/1"), "Content-Security-Policy"), "connect-src"));
}

// A page may hold two scripts that run: none of them comes from data.
TEST_F(Routes, hostile_texts_are_data) {
  const std::string page = get("/runs/1").body;
  EXPECT_TRUE(contains(page, "\\u003c/script\\u003e\\u003cb\\u003e"));
  EXPECT_FALSE(contains(page, "</script><b>"));
  const std::string rows = get("/api/runs").body;
  EXPECT_FALSE(contains(rows, "\x1b")) << "a control character in JSON";
  const Result<JsonDocument> parsed = JsonDocument::parse(rows);
  ASSERT_TRUE(parsed) << parsed.error().what;
}

TEST_F(Routes, long_names_are_cut_between_characters) {
  std::string name;
  for (int i = 0; i < 30000; ++i) name += i % 2 == 0 ? "a" : "\xe2\x82\xac";
  ASSERT_TRUE(store::add_run(store_, manifest_named(RunKind::kAnalysis, name, "report.json"), "{}"));
  ASSERT_TRUE(store::add_run(store_, manifest_named(RunKind::kAnalysis, name, "report.json"), "{}"));
  for (const char* target : {"/api/runs", "/api/trends"}) {
    const std::string text = get(target).body;
    EXPECT_LT(text.size(), 10000U) << target;
    EXPECT_TRUE(contains(text, "€…\"")) << target;
    EXPECT_FALSE(contains(text, "\xef\xbf\xbd\xe2\x80\xa6")) << "a character that was cut in two";
  }
}

TEST_F(Routes, serving_changes_nothing_in_the_store) {
  // Not even an index that is missing is made, and one that is behind is not brought up to date.
  fs::remove(store_ + "/index.sqlite");
  const auto before = state_of(store_);
  for (const char* target :
       {"/", "/api/runs", "/api/trends", "/api/runs/1", "/api/runs/1/result", "/runs/1", "/runs/9", "/diff/2/2"})
    EXPECT_NE(code_of(get(target)), 500);
  EXPECT_EQ(state_of(store_), before);
}

TEST_F(Routes, a_manifest_cannot_name_another_file) {
  put(folder_.path() + "/report.json", "secret");
  RunManifest manifest = *store::read_manifest(run_folder(1));
  for (const char* name : {"../../report.json", "/etc/passwd", "manifest.json", "recording/report.json", ""}) {
    manifest.result = std::string(name);
    ASSERT_TRUE(store::write_manifest(run_folder(1), manifest));
    for (const char* target : {"/runs/1", "/api/runs/1/result"}) EXPECT_EQ(code_of(get(target)), 404) << name;
  }
  // Nor can a link lead there.
  manifest.result = std::string("report.json");
  ASSERT_TRUE(store::write_manifest(run_folder(1), manifest));
  fs::remove(run_folder(1) + "/report.json");
  fs::create_symlink(folder_.path() + "/report.json", run_folder(1) + "/report.json");
  EXPECT_EQ(code_of(get("/runs/1")), 404);
  EXPECT_EQ(code_of(get("/api/runs/1/result")), 404);
}

TEST_F(Routes, a_compressed_result_is_served_as_it_was) {
  const std::string text = "{\"cases\": [" + std::string(100000, ' ') + "]}";
  ASSERT_TRUE(store::add_run(store_, manifest_named(RunKind::kBench, "b", "bench.json"), text));
  RunRow row;
  row.folder = run_folder(3);
  ASSERT_TRUE(store::compress_run(store_, row, 1));
  ASSERT_LT(fs::file_size(row.folder + "/bench.json"), 1000U);
  EXPECT_EQ(get("/api/runs/3/result").body, text);
}

// Of a kept page only its timeline is taken, and only where it is base64.
TEST_F(Routes, of_a_kept_page_nothing_but_the_timeline_is_served) {
  RunManifest manifest = manifest_named(RunKind::kRun, "r", "report.json");
  const std::string start = "<script type=\"application/octet-stream;base64\" id=\"llmprof-timeline\">";
  Result<store::OpenRun> run = store::begin_run(store_, manifest);
  ASSERT_TRUE(run);
  run->manifest().recording = std::string("recording");
  run->manifest().result = std::string("report.json");
  ASSERT_EQ(mkdir((run->folder() + "/recording").c_str(), 0700), 0);
  put(run->folder() + "/report.json", "{}");
  const std::string page = run->folder() + "/recording/report.html";
  put(page, "<script>alert(1)</script>" + start + "H4sIAAAA+/==</script><img src=x onerror=alert(2)>");
  ASSERT_TRUE(run->finish());
  const std::string served = get("/runs/3").body;
  EXPECT_TRUE(contains(served, start + "H4sIAAAA+/==</script>\n"));
  EXPECT_FALSE(contains(served, "alert("));
  put(page, start + "H4s\"onload=alert(1)</script>");
  EXPECT_FALSE(contains(get("/runs/3").body, start));
  put(page, "no page");
  EXPECT_FALSE(contains(get("/runs/3").body, start));
}

constexpr const char* kTimelineElement = "<script type=\"application/octet-stream;base64\" id=\"llmprof-timeline\">";

// `run -o DIR`: the store knows where it is.
TEST_F(Routes, a_recording_elsewhere_has_its_timeline_as_long_as_it_is_that_of_the_run) {
  const std::string elsewhere = folder_.path() + "/elsewhere";
  fs::create_directory(elsewhere);
  put(elsewhere + "/session.json", "{}");
  put(elsewhere + "/report.html", kTimelineElement + std::string("H4sIAAAA+/==</script><img src=x>"));
  RunManifest manifest = manifest_named(RunKind::kRun, "r", "report.json");
  manifest.recording = elsewhere;
  ASSERT_TRUE(store::add_run(store_, manifest, "{}"));
  const std::string served = get("/runs/3").body;
  EXPECT_TRUE(contains(served, kTimelineElement + std::string("H4sIAAAA+/==</script>\n")));
  EXPECT_FALSE(contains(served, "<img src=x>"));
  EXPECT_FALSE(contains(served, "id=\"llmprof-timeline-missing\""));
  // Recorded into again, it is another run's.
  fs::last_write_time(elsewhere + "/session.json", fs::file_time_type::clock::now() + std::chrono::seconds(5));
  EXPECT_FALSE(contains(get("/runs/3").body, kTimelineElement));
  EXPECT_TRUE(contains(get("/runs/3").body, "\"The recording of run 3 has been changed since the run.\""));
  fs::remove_all(elsewhere);
  EXPECT_TRUE(contains(get("/runs/3").body, "\"The recording of run 3 is not there any more.\""));
  // A link is no page.
  fs::create_directory(elsewhere);
  put(elsewhere + "/session.json", "{}");
  fs::last_write_time(elsewhere + "/session.json", fs::file_time_type::clock::now() - std::chrono::hours(1));
  put(folder_.path() + "/other.html", kTimelineElement + std::string("H4sIAAAA</script>"));
  fs::create_symlink(folder_.path() + "/other.html", elsewhere + "/report.html");
  EXPECT_FALSE(contains(get("/runs/3").body, kTimelineElement));
}

TEST_F(Routes, a_timeline_that_was_not_kept_is_made_of_the_recording) {
  const std::string recording = folder_.path() + "/trace.json";
  put(recording, "{}");
  add_analysis({recording});
  EXPECT_TRUE(contains(get("/runs/3").body, "{\"why\":\"\",\"address\":\"/runs/3/timeline\"}"));
  EXPECT_TRUE(commands_.asked_.empty());
  commands_.output = std::string("<script>alert(1)</script>") + kTimelineElement + "H4sIAAAA</script>";
  const Response made = get("/runs/3/timeline");
  EXPECT_EQ(code_of(made), 200);
  EXPECT_EQ(commands_.asked_,
            (std::vector<std::string>{"analyze", "--no-store", "-q", "--format", "html", "0003-analysis-a"}));
  EXPECT_TRUE(contains(made.body, kTimelineElement + std::string("H4sIAAAA</script>\n")));
  EXPECT_FALSE(contains(made.body, "alert("));
  EXPECT_TRUE(header(made, "Content-Security-Policy").starts_with("default-src 'none'; "));
  commands_.output = "no page";
  EXPECT_TRUE(contains(get("/runs/3/timeline").body, "Nothing in the recording can be drawn."));
  commands_.reason = "Expected </script><b>.";
  EXPECT_TRUE(contains(get("/runs/3/timeline").body, "Expected \\u003c/script\\u003e\\u003cb\\u003e."));
  fs::remove(recording);
  commands_.asked_.clear();
  for (const char* target : {"/runs/3", "/runs/3/timeline"})
    EXPECT_TRUE(contains(get(target).body, "The recording of run 3 is not there any more.")) << target;
  EXPECT_TRUE(commands_.asked_.empty());
}

TEST_F(Routes, runs_without_a_result_say_so) {
  Result<store::OpenRun> run = store::begin_run(store_, RunManifest{});
  ASSERT_TRUE(run);
  EXPECT_EQ(code_of(get("/runs/3")), 404);
  EXPECT_TRUE(contains(get("/runs/3").body, "no result"));
  put(run_folder(2) + "/manifest.json", "{");
  EXPECT_EQ(code_of(get("/api/runs/2")), 404);
  EXPECT_TRUE(contains(get("/api/runs/2").body, "damaged"));
  EXPECT_TRUE(contains(get("/api/runs").body, "\"state\":\"damaged\""));
}

TEST_F(Routes, a_comparison_is_what_diff_says_of_these_runs) {
  const std::string recording = folder_.path() + "/trace.json";
  put(recording, "{}");
  add_analysis({recording});
  add_analysis({recording});
  const Response data = get("/api/diff/3,4/4");
  EXPECT_EQ(code_of(data), 200);
  EXPECT_EQ(data.type, "application/json; charset=utf-8");
  EXPECT_EQ(data.body, commands_.output);
  EXPECT_EQ(commands_.asked_,
            (std::vector<std::string>{"diff", "--json", "-q", "0003-analysis-a,0004-analysis-a", "0004-analysis-a"}));
  const Response page = get("/diff/3/4");
  EXPECT_EQ(code_of(page), 200);
  EXPECT_EQ(commands_.asked_.back(), "0004-analysis-a");
  EXPECT_TRUE(contains(page.body, "data-kind=\"diff\">"));
  EXPECT_TRUE(contains(page.body, "<link rel=\"up\" href=\"/\">"));
  EXPECT_FALSE(contains(page.body, "</script><b>"));
  EXPECT_TRUE(header(page, "Content-Security-Policy").starts_with("default-src 'none'; "));
  EXPECT_EQ(header(page, "Cache-Control"), "no-store");
  // The page's data are those of `diff --format html`, units too.
  const std::string own = render_html(DiffResult(), {});
  const std::string units = "id=\"llmprof-units\">";
  const size_t from = own.find(units);
  ASSERT_NE(from, std::string::npos);
  EXPECT_TRUE(contains(page.body, own.substr(from, own.find("</script>", from) - from)));
  commands_.output = "{\n  \"schema\": \"llmprof.bench.comparison/1\"\n}\n";
  EXPECT_TRUE(contains(get("/diff/2/2").body, "data-kind=\"comparison\">"));
}

TEST_F(Routes, why_there_is_no_comparison_is_said_at_the_page_of_the_runs) {
  const std::string recording = folder_.path() + "/trace.json";
  put(recording, "{}");
  add_analysis({recording});                                                                      // 3
  add_analysis({"-"});                                                                            // 4
  add_analysis({folder_.path() + "/gone.json"});                                                  // 5
  EXPECT_TRUE(store::add_run(store_, manifest_named(RunKind::kPeaks, "p", "peaks.json"), "{}"));  // 6
  commands_.asked_.clear();
  for (const auto& [target, why] : {std::pair("3/1", "no recording"),
                                    {"3/2", "compare with each other"},
                                    {"3/4", "standard input"},
                                    {"5/3", "not there any more"},
                                    {"3/6", "llmprof peaks"},
                                    {"3/99", "no run with this number"}}) {
    const Response data = get(std::string("/api/diff/") + target);
    EXPECT_EQ(code_of(data), 409) << target;
    EXPECT_TRUE(contains(data.body, why)) << data.body;
    EXPECT_FALSE(contains(data.body, folder_.path())) << data.body;
    const Response page = get(std::string("/diff/") + target);
    EXPECT_EQ(code_of(page), 303) << target;
    EXPECT_EQ(header(page, "Location"), std::string("/#compare/") + target);
    EXPECT_EQ(header(page, "Cache-Control"), "no-store");
  }
  EXPECT_TRUE(commands_.asked_.empty()) << "no process for what cannot be";
  // What the command says is wrong.
  commands_.reason = "Expected different recordings.";
  EXPECT_EQ(get("/api/diff/3/3").body, "Expected different recordings.\n");
  EXPECT_EQ(header(get("/diff/3/3"), "Location"), "/#compare/3/3");
  // A file that another recording has taken the place of.
  fs::last_write_time(recording, fs::file_time_type::clock::now() + std::chrono::seconds(5));
  EXPECT_TRUE(contains(get("/api/diff/3/3").body, "has been changed since the run"));
}

TEST_F(Routes, a_folder_that_is_no_word_is_none) {
  const std::string recording = folder_.path() + "/trace.json";
  put(recording, "{}");
  add_analysis({recording});
  fs::rename(run_folder(3), store_ + "/0003-analysis-a,b -o x");
  EXPECT_EQ(code_of(get("/api/diff/3/2")), 409);
  EXPECT_EQ(code_of(get("/api/diff/3/3")), 409);
}

TEST(RoutesOfNothing, an_empty_store_is_an_empty_list) {
  const TemporaryFolder folder;
  const StoreLibrary library(folder.path() + "/none");
  EXPECT_TRUE(contains(answer_of(ask("/api/runs"), loopback(), library, WordsOnly()).body, "\"runs\":[]"));
  EXPECT_EQ(access((folder.path() + "/none").c_str(), F_OK), -1);
}

}  // namespace
}  // namespace llmprof::serve
