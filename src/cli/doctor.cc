// `llmprof doctor`: what works here, what does not, and what to do about it.
#include "capture/launch/launch.h"
#include "capture/samplers/doctor_report.h"
#include "cli/command.h"

namespace llmprof::cli {
namespace {

// Where the injection library is, or should be.
std::string injection_path() {
  const Result<std::string> library = launch::injection_library();
  return library ? *library : library.error().where;
}

}  // namespace

void add_doctor(Parser& parser) {
  struct Options {
    OutputOptions output;
    std::string program;
  };
  const std::shared_ptr<Options> options = std::make_shared<Options>();
  const Command command =
      parser.add_command("doctor", "what works on this machine, what does not, and what to do about it");
  add_output_options(command, options->output, CsvOutput::kFile);
  command.option("--program", options->program,
                 "program or interpreter that will be watched: its Python environment is searched for CUPTI");
  command.footer("Example:  llmprof doctor --program /opt/venv/bin/python");
  command.action([options]() -> int {
    samplers::DoctorOptions doctor;
    doctor.program = options->program;
    doctor.injection_path = injection_path();
    const Status status = write_result(samplers::examine(doctor), options->output);
    return status ? 0 : report_error(status.error());
  });
}

}  // namespace llmprof::cli
