// `llmprof doctor`: what works here, what does not, and what to do about it.
#include <algorithm>
#include <functional>

#include "base/json_writer.h"
#include "capture/launch/launch.h"
#include "capture/samplers/doctor_report.h"
#include "cli/checks.h"
#include "cli/command.h"

namespace llmprof::cli {
namespace {

using samplers::Check;
using samplers::CheckState;

// Where the injection library is, or should be.
std::string injection_path() {
  const Result<std::string> library = launch::injection_library();
  return library ? *library : library.error().where;
}

std::string conclusion(const samplers::DoctorReport& report) {
  if (report.gpus == 0) {
    return "No GPU can be used here, so nothing can be recorded. Recordings made elsewhere are analysed all the same "
           "(llmprof analyze FILE), and models are computed from their configuration (llmprof model).";
  }
  const std::function<size_t(CheckState, const std::string&)> count = [&](CheckState state, const std::string& prefix) {
    size_t found = 0;
    for (const Check& check : report.checks) found += check.state == state && check.name.rfind(prefix, 0) == 0 ? 1 : 0;
    return found;
  };
  if (count(CheckState::kWorks, "recorder") == 0)
    return "llmprof run cannot work here: this installation lacks its recorder.";
  if (count(CheckState::kWorks, "cupti") == 0 && count(CheckState::kLimited, "cupti") == 0)
    return "llmprof run can measure power and clocks here; kernels only of programs that bring CUPTI with them.";
  if (count(CheckState::kWorks, "counters of gpu ") == 0) return "llmprof run works here, without hardware counters.";
  return "llmprof run works here, with hardware counters.";
}

std::string as_json(const samplers::DoctorReport& report) {
  JsonWriter json;
  json.begin_object().field("gpus", report.gpus).key("checks").begin_array();
  for (const Check& check : report.checks) {
    json.begin_object().field("name", check.name).field("state", check_state_name(check.state));
    json.field("found", check.found);
    if (!check.advice.empty()) json.field("advice", check.advice);
    json.end_object();
  }
  json.end_array().field("conclusion", conclusion(report)).end_object();
  return json.take() + "\n";
}

std::string as_text(const samplers::DoctorReport& report, const TextStyle& style) {
  constexpr size_t kUsualWidth = 120, kState = 9, kLeastText = 30;
  const size_t width = style.fit ? style.width : kUsualWidth;
  size_t widest = 0;
  for (const Check& check : report.checks) widest = std::max(widest, check.name.size());
  // On a narrow terminal what was found stands below the name.
  const size_t beside = 2 + kState + widest + 2;
  const bool below = beside + kLeastText > width;
  const std::string indent(below ? 6 : beside, ' ');
  std::string out;
  for (const Check& check : report.checks) {
    std::string head = "  " + std::string(check_state_name(check.state));
    head.resize(2 + kState, ' ');
    head += check.name;
    if (below) out += head + "\n";
    head.resize(indent.size(), ' ');
    out += wrap_text(printable(check.found, style.charset), width, below ? indent : head, indent);
    if (!check.advice.empty())
      out += wrap_text("to do: " + printable(check.advice, style.charset), width, indent, indent);
  }
  return out + "\n" + wrap_text(conclusion(report), width, "", "");
}

}  // namespace

void add_doctor(Parser& parser) {
  struct Options {
    std::string format;
    bool json = false;
    std::string program;
  };
  const std::shared_ptr<Options> options = std::make_shared<Options>();
  const Command command =
      parser.add_command("doctor", "what works on this machine, what does not, and what to do about it");
  command.option("--format", options->format, "text or json").check(one_of({"text", "json"}));
  command.flag("--json", options->json, "short for --format json");
  refuse_two_formats(command, options->json, options->format);
  command.option("--program", options->program,
                 "program or interpreter that will be watched: its Python environment is searched for CUPTI");
  command.footer("Example:  llmprof doctor --program /opt/venv/bin/python");
  command.action([options]() -> int {
    samplers::DoctorOptions doctor;
    doctor.program = options->program;
    doctor.injection_path = injection_path();
    const samplers::DoctorReport report = samplers::examine(doctor);
    const bool json = options->json || options->format == "json";
    const TextStyle style = output_style();
    const Status status = json ? write_output(as_json(report), {}) : write_page(as_text(report, style), style);
    return status ? 0 : report_error(status.error());
  });
}

}  // namespace llmprof::cli
