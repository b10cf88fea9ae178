#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>

#include "base/nearest.h"
#include "base/terminal.h"
#include "cli/checks.h"
#include "cli/command.h"

namespace llmprof::cli {

int report_error(const Error& error) {
  Error shown = error;
  shown.where = printable(error.where);  // a name with a line feed in it must not look like another message
  complain(shown.text());
  return static_cast<int>(error.exit_code);
}

void complain(const std::string& text) { print_error("llmprof: " + text + "\n"); }

namespace {

constexpr int kNoTerminal = -1;

TextStyle style_for(int fd, bool full, ColorChoice color) {
  TextStyle style;
  style.charset = locale_charset();
  style.color = use_color(color, fd);
  const std::optional<size_t> width = terminal_width(fd);
  if (width) style.width = *width;
  style.fit = width.has_value() && !full;
  return style;
}

}  // namespace

TextStyle output_style() { return style_for(STDOUT_FILENO, false, ColorChoice::kNever); }

TextStyle OutputOptions::style() const {
  // A file is no terminal: colours only if they are asked for in so many words.
  const ColorChoice choice = color == "always"                               ? ColorChoice::kAlways
                             : no_color || color == "never" || !path.empty() ? ColorChoice::kNever
                                                                             : ColorChoice::kAuto;
  TextStyle style = style_for(path.empty() ? STDOUT_FILENO : kNoTerminal, full, choice);
  style.more = "--full, --format csv, wider terminal";
  return style;
}

void refuse_two_formats(CLI::App& command, const bool& json, const std::string& format) {
  command.parse_complete_callback([&json, &format] {
    if (json && !format.empty() && format != "json")
      throw CLI::ValidationError("--json", "expected one format, found --json and --format " + format);
  });
}

void add_style_options(CLI::App& command, OutputOptions& options, const std::string& group) {
  command.add_flag("--full", options.full, "text: every column of every table, however wide the terminal")
      ->group(group);
  command
      .add_option(
          "--color", options.color,
          "bold and dim text: auto (on a terminal, as NO_COLOR, CLICOLOR_FORCE and TERM have it), always, never")
      ->check(one_of({"auto", "always", "never"}))
      ->type_name("WHEN")
      ->capture_default_str()
      ->group(group);
  command.add_flag("--no-color", options.no_color, "short for --color never")->group(group);
}

void add_output_options(CLI::App& command, OutputOptions& options, std::vector<std::string> formats) {
  const bool csv = std::find(formats.begin(), formats.end(), "csv") != formats.end();
  command.add_option("--format", options.format, join_or(formats))
      ->check(one_of(std::move(formats)))
      ->default_str("text");
  command.add_flag("--json", options.json, "short for --format json");
  refuse_two_formats(command, options.json, options.format);
  command
      .add_option("-o,--output", options.path,
                  fmt::format("write to this file{} instead of standard output; FILE.json: as JSON",
                              csv ? " (csv: a folder)" : ""))
      ->type_name("PATH");
  command.add_flag("-q,--quiet", options.quiet, "no progress and no warnings on standard error");
  add_style_options(command, options);
}

Status write_page(const std::string& text, const TextStyle& style, const std::string& path) {
  return write_output(finish_page(text, style), path);
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
