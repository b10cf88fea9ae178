#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "cli/checks.h"
#include "cli/command.h"

namespace llmprof::cli {

int report_error(const Error& error) {
  std::fprintf(stderr, "llmprof: %s\n", error.text().c_str());
  return static_cast<int>(error.exit_code);
}

bool OutputOptions::color() const {
  const char* no = std::getenv("NO_COLOR");
  return !no_color && path.empty() && (no == nullptr || *no == '\0') && isatty(STDOUT_FILENO) == 1;
}

void refuse_two_formats(CLI::App& command, const bool& json, const std::string& format) {
  command.parse_complete_callback([&json, &format] {
    if (json && !format.empty() && format != "json")
      throw CLI::ValidationError("--json", "expected one format, found --json and --format " + format);
  });
}

void add_output_options(CLI::App& command, OutputOptions& options) {
  command.add_option("--format", options.format, "text, json or csv")
      ->check(one_of({"text", "json", "csv"}))
      ->default_str("text");
  command.add_flag("--json", options.json, "short for --format json");
  refuse_two_formats(command, options.json, options.format);
  command
      .add_option("-o,--output", options.path,
                  "write to this file (csv: a folder) instead of standard output; FILE.json: as JSON")
      ->type_name("PATH");
  command.add_flag("-q,--quiet", options.quiet, "no progress and no warnings on standard error");
  command.add_flag("--no-color", options.no_color, "plain text, also on a terminal");
}

Status write_output(const std::string& text, const std::string& path) {
  std::FILE* file = path.empty() ? stdout : std::fopen(path.c_str(), "wb");
  if (file == nullptr)
    return fail(std::string("cannot write the output: ") + std::strerror(errno), path,
                "choose a path in a folder that exists and that you may write to");
  const bool wrote = std::fwrite(text.data(), 1, text.size(), file) == text.size() && std::fflush(file) == 0;
  const int why = errno;
  const bool closed = file == stdout || std::fclose(file) == 0;
  if (wrote && closed) return {};
  // A reader that has seen enough (`| head`) is no failure.
  if (file == stdout && why == EPIPE) return {};
  return fail(std::string("cannot write the output: ") + std::strerror(why), path.empty() ? "standard output" : path,
              "check that the disk is not full");
}

}  // namespace llmprof::cli
