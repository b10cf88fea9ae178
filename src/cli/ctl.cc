// `llmprof ctl start|stop|status|counters`: speaks to a `llmprof run` that is under way.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <iterator>

#include "base/clock.h"
#include "base/json_document.h"
#include "base/json_writer.h"
#include "base/nearest.h"
#include "base/text_table.h"
#include "capture/launch/control_page.h"
#include "capture/launch/session_folder.h"
#include "capture/session/level.h"
#include "cli/checks.h"
#include "cli/command.h"

namespace llmprof::cli {
namespace {

using launch::ControlPage;
using session::SlotState;

struct CtlArguments {
  std::string what, counters;
  std::string folder;
  double duration_s = 0;
  bool json = false;
};

const char* state_name(uint32_t state) {
  switch (static_cast<SlotState>(state)) {
    case SlotState::kStarting:
      return "starting";
    case SlotState::kRecording:
      return "watched";
    case SlotState::kNoCupti:
      return "no CUPTI";
    case SlotState::kCuptiHeld:
      return "CUPTI held by another tool";
    case SlotState::kNoSpool:
      return "cannot write";
    case SlotState::kEnded:
      return "ended";
  }
  return "unknown";
}

// What session.json says; nothing of it is needed, so a file that cannot be read leaves the fields empty.
struct Description {
  std::string command;
  int64_t start_unix_ns = 0;
};
Description describe(const std::string& folder) {
  Description out;
  std::ifstream file(folder + "/session.json", std::ios::binary);
  const std::string json{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  const Result<JsonDocument> document = JsonDocument::parse(json);
  if (!document) return out;
  for (const JsonValue word : document->root()["command"].entries())
    if (const std::optional<std::string_view> text = word.text())
      out.command += (out.command.empty() ? "" : " ") + std::string(*text);
  document->root()["start_unix_ns"].read(out.start_unix_ns);
  return out;
}

const char* counters_text(session::Counters counters) {
  switch (counters) {
    case session::Counters::kSampled:
      return "sampled";
    case session::Counters::kOnByHand:
      return "sampled, by `llmprof ctl counters on`";
    case session::Counters::kOffByHand:
      return "not sampled, by `llmprof ctl counters off`";
    case session::Counters::kOffForComparison:
      return "not sampled for some steps, to know what they cost";
    case session::Counters::kOffTooCostly:
      return "not sampled: they cost more than the budget";
  }
  return "unknown";
}

std::string status_text(const std::string& folder, const session::Control& control, const TextStyle& style) {
  const Description description = describe(folder);
  const launch::Progress progress = launch::progress_of(control);
  const uint32_t level = control.wanted_level.load();
  const int64_t now = realtime_ns(), until = control.record_until_ns.load();
  std::string out = fmt::format("session    {}\n", folder);
  if (!description.command.empty())
    out += fmt::format("program    {}\n", ellipsize(printable(description.command, style.charset), 90, style.charset));
  if (description.start_unix_ns != 0)
    out +=
        fmt::format("elapsed    {} s\n", format_fixed(static_cast<double>(now - description.start_unix_ns) * 1e-9, 1));
  out += level == 0 ? fmt::format("recording  no (`llmprof ctl start` records at level {})\n",
                                  session::level_name(control.planned_level))
                    : fmt::format("recording  yes, at level {}{}\n", session::level_name(level),
                                  until > now ? fmt::format(", for {} s more",
                                                            format_fixed(static_cast<double>(until - now) * 1e-9, 1))
                                              : "");
  if (const session::Counters counters = static_cast<session::Counters>(control.counters.load());
      counters != session::Counters::kSampled)
    out += fmt::format("counters   {}\n", counters_text(counters));
  out +=
      fmt::format("processes  {} watched, {} of them ended\n", progress.processes, progress.processes - progress.alive);
  out += fmt::format("so far     {} kernels, {} on disk\n", format_count(static_cast<double>(progress.kernels)),
                     format_bytes(static_cast<double>(launch::recorded_bytes(folder))));
  using Align = TextTable::Align;
  TextTable table({{"process"},
                   {"state", Align::kLeft},
                   {"level", Align::kLeft, 0, 2},
                   {"kernels", Align::kRight, 0, 1},
                   {"written", Align::kRight, 0, 3}});
  for (const session::Slot& slot : control.slots) {
    const int64_t process = slot.process_id.load();
    if (process == 0) continue;
    table.add_row({std::to_string(process), state_name(slot.state.load()), session::level_name(slot.level.load()),
                   format_count(static_cast<double>(slot.kernels.load())),
                   format_bytes(static_cast<double>(slot.bytes.load()))});
  }
  return table.empty() ? out : out + "\n" + table.render("  ", style);
}

std::string status_json(const std::string& folder, const session::Control& control) {
  const int64_t until = control.record_until_ns.load();
  JsonWriter json;
  json.begin_object();
  json.field("schema", "llmprof.status/1").field("session", folder);
  json.field("level", session::level_name(control.wanted_level.load()));
  json.field("planned_level", session::level_name(control.planned_level));
  json.field("record_until_unix_ns", until == 0 ? std::optional<int64_t>() : until);
  json.field("counters", session::sampled(static_cast<session::Counters>(control.counters.load())));
  json.field("bytes_on_disk", launch::recorded_bytes(folder));
  json.key("processes").begin_array();
  for (const session::Slot& slot : control.slots) {
    const int64_t process = slot.process_id.load();
    if (process == 0) continue;
    json.begin_object();
    json.field("process_id", process).field("state", state_name(slot.state.load()));
    json.field("level", session::level_name(slot.level.load())).field("kernels", slot.kernels.load());
    json.field("bytes", slot.bytes.load());
    json.field("heartbeat_unix_ns", slot.heartbeat_ns.load());
    json.end_object();
  }
  json.end_array();
  json.end_object();
  return json.take() + "\n";
}

Result<std::string> choose_session(const CtlArguments& options) {
  if (!options.folder.empty()) {
    LLMPROF_CHECK(ControlPage::open(options.folder));
    if (launch::session_is_running(options.folder)) return options.folder;
    return fail("expected a session that is running, found a finished one", options.folder,
                "llmprof analyze " + options.folder);
  }
  const std::vector<std::string> running = launch::running_sessions();
  if (running.empty())
    return fail(
        "expected a running session, found none of this user", {},
        "start one: llmprof run -- PROGRAM; or name its folder: llmprof ctl " + options.what + " --session DIR");
  if (running.size() > 1)
    complain(
        fmt::format("notice: {} sessions are running; this is the newest (--session names another)", running.size()));
  return running.front();
}

Status act(const CtlArguments& options) {
  LLMPROF_ASSIGN(const std::string folder, choose_session(options));
  LLMPROF_ASSIGN(const ControlPage page, ControlPage::open(folder));
  if (options.what == "status")
    return options.json ? write_output(status_json(folder, *page), {})
                        : write_page(status_text(folder, *page, output_style()), output_style());
  if (options.what == "stop") {
    page.set_level(spool::Level::kOff);
    return write_page("stopped recording: " + folder + "\n", output_style());
  }
  if (options.what == "counters") {
    const bool on = options.counters == "on";
    page.set_counters(on ? session::Counters::kOnByHand : session::Counters::kOffByHand);
    return write_page(fmt::format("hardware counters {}: {}\n", on ? "on" : "off", folder), output_style());
  }
  const int64_t until = options.duration_s > 0 ? realtime_ns() + std::llround(options.duration_s * 1e9) : int64_t{0};
  page.set_level(static_cast<spool::Level>(page->planned_level), until);
  return write_page(fmt::format("recording at level {}: {}\n", session::level_name(page->planned_level), folder),
                    output_style());
}

int run(const CtlArguments& options) {
  const std::vector<std::string> known = {"start", "stop", "status", "counters"};
  if (std::find(known.begin(), known.end(), options.what) == known.end())
    return report_error({"expected start, stop, status or counters, found \"" + options.what + "\"", "",
                         "llmprof ctl " + nearest_or_all(options.what, known), ExitCode::kUsage});
  const bool switches = options.what == "counters";
  if (switches && options.counters != "on" && options.counters != "off")
    return report_error({"expected on or off behind counters, found " +
                             (options.counters.empty() ? "nothing" : "\"" + options.counters + "\""),
                         "", "llmprof ctl counters off", ExitCode::kUsage});
  if (!switches && !options.counters.empty())
    return report_error({"expected nothing behind " + options.what + ", found \"" + options.counters + "\"", "",
                         "llmprof ctl " + options.what, ExitCode::kUsage});
  if (options.duration_s > 0 && options.what != "start")
    return report_error({"--duration goes with `llmprof ctl start` only", "", "", ExitCode::kUsage});
  const Status status = act(options);
  return status ? 0 : report_error(status.error());
}

}  // namespace

void add_ctl(Parser& parser) {
  const std::shared_ptr<CtlArguments> options = std::make_shared<CtlArguments>();
  const Command command =
      parser.add_command("ctl", "start and stop recording or counters in a running `llmprof run`, or show its state");
  command.option("WHAT", options->what, "start, stop, status, or counters").required().type_name("");
  command.option("SWITCH", options->counters, "counters: on or off").type_name("");
  command.option("--session", options->folder, "session folder (default: the newest that is running)").type_name("DIR");
  command.option("--duration", options->duration_s, "start: stop again after S seconds")
      .type_name("S")
      .check(decimal_number(0.001, 1e6));
  command.flag("--json", options->json, "status: as JSON");
  command.footer("Example:  llmprof ctl start --duration 5");
  command.action([options] { return run(*options); });
}

}  // namespace llmprof::cli
