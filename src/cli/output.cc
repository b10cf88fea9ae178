#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>

#include "base/nearest.h"
#include "base/terminal.h"
#include "cli/checks.h"
#include "cli/command.h"
#include "report/render.h"

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

namespace {

Status check_formats(bool json, const std::string& format) {
  if (json && !format.empty() && format != "json")
    return fail("expected one format, found --json and --format " + format, "--json", {}, ExitCode::kUsage);
  return {};
}

// Whether `path` is the file `source`, or one of a recording in the folder `source`. Pages lie beside a recording, and
// are written anew.
bool is_or_holds(const std::filesystem::path& source, const std::filesystem::path& path) {
  namespace fs = std::filesystem;
  std::error_code failed;
  if (fs::equivalent(source, path, failed)) return true;
  if (!fs::is_directory(source, failed)) return false;
  const std::string name = path.filename().string();
  if (name != "session.json" && name != "config.json" && path.extension() != ".spool") return false;
  for (fs::recursive_directory_iterator at(source, fs::directory_options::skip_permission_denied, failed), end;
       !failed && at != end; at.increment(failed)) {
    std::error_code none;
    if (fs::equivalent(at->path(), path, none)) return true;
  }
  return false;
}

}  // namespace

TextStyle output_style() { return style_for(STDOUT_FILENO, false, ColorChoice::kNever); }

TextStyle error_style() { return style_for(STDERR_FILENO, false, ColorChoice::kNever); }

TextStyle OutputOptions::style() const {
  // A file is no terminal: colours only if they are asked for in so many words.
  const ColorChoice choice = color == "always"                               ? ColorChoice::kAlways
                             : no_color || color == "never" || !path.empty() ? ColorChoice::kNever
                                                                             : ColorChoice::kAuto;
  TextStyle style = style_for(path.empty() ? STDOUT_FILENO : kNoTerminal, full, choice);
  style.more = "--full, --format csv, wider terminal";
  return style;
}

void refuse_contradictions(const Command& command, const OutputOptions& options, CsvOutput csv,
                           const std::string& path_option) {
  const Option color = command.declared("--color");
  command.check_together([&options, csv, path_option, color]() -> Status {
    LLMPROF_CHECK(check_formats(options.json, options.format));
    if (options.no_color && color.count() > 0 && options.color != "never")
      return fail("expected one choice of colours, found --color " + options.color + " and --no-color", "--no-color",
                  {}, ExitCode::kUsage);
    const std::string& format = options.json ? "json" : options.format;
    const bool other_name = (options.path.ends_with(".csv") && !format.empty() && format != "csv") ||
                            (options.path.ends_with(".json") && !format.empty() && format != "json") ||
                            (options.path.ends_with(".html") && !format.empty() && format != "html");
    if (other_name && !options.quiet)
      complain(fmt::format("notice: {} is written as {}, whatever its name says", printable(options.path), format));
    if (csv == CsvOutput::kNone || options.json || !options.format.empty() || !options.path.ends_with(".csv"))
      return {};
    const bool folder = csv == CsvOutput::kFolder;
    return fail(folder ? "expected a folder for CSV, found a file named .csv"
                       : "expected --format csv beside a file named .csv, found no --format",
                path_option + " " + options.path,
                folder ? "--format csv " + path_option + " FOLDER, or --format text for a page in this file"
                       : "--format csv, or --format text for a page in this file",
                ExitCode::kUsage);
  });
}

Status refuse_overwriting(const std::string& option, const std::string& path, const std::vector<std::string>& inputs) {
  namespace fs = std::filesystem;
  std::error_code failed;
  if (path.empty() || !fs::is_regular_file(path, failed)) return {};  // what is not there cannot be lost
  for (const std::string& input : inputs) {
    const std::string source = input == "-" ? "/dev/stdin" : input;
    if (!is_or_holds(source, path)) continue;
    return fail("expected a file to write to, found one that this command reads", option + " " + path,
                "name another file: this one would be overwritten", ExitCode::kUsage);
  }
  return {};
}

Status check_folder(const OutputOptions& options, const std::string& example, const std::string& path_option) {
  const Renderer* renderer = find_renderer(options.effective_format());
  if (renderer == nullptr || !renderer->tables || !options.path.empty()) return {};
  return fail("expected a folder for the CSV files, found no " + path_option, {}, example, ExitCode::kUsage);
}

void add_style_options(const Command& command, OutputOptions& options, const std::string& group) {
  command.flag("--full", options.full, "text: every table of a report and every column, however long and wide")
      .group(group);
  command
      .option("--color", options.color,
              "bold and dim text: auto (on a terminal, as NO_COLOR, CLICOLOR_FORCE and TERM have it), always, never")
      .check(one_of({"auto", "always", "never"}))
      .type_name("WHEN")
      .capture_default()
      .group(group);
  command.flag("--no-color", options.no_color, "short for --color never").group(group);
}

Option add_format_option(const Command& command, OutputOptions& options, CsvOutput csv) {
  std::vector<std::string> formats;
  for (const Renderer& renderer : renderers())
    if (csv != CsvOutput::kNone || renderer.name == "text" || renderer.name == "json")
      formats.emplace_back(renderer.name);
  return command.option("--format", options.format, join_or(formats))
      .check(one_of(formats))
      .shown_default(formats.front());
}

void add_output_options(const Command& command, OutputOptions& options, CsvOutput csv) {
  add_format_option(command, options, csv);
  command.flag("--json", options.json, "short for --format json");
  command
      .option("-o,--output", options.path,
              fmt::format("write to this file{} instead of standard output; FILE.json: as JSON{}",
                          csv == CsvOutput::kFolder ? " (csv: a folder)" : "",
                          csv == CsvOutput::kNone ? "" : ", FILE.html: for a browser"))
      .type_name("PATH");
  command.flag("-q,--quiet", options.quiet, "no progress and no warnings on standard error");
  add_style_options(command, options);
  refuse_contradictions(command, options, csv, "-o");
}

Status write_result(const AnyResult& result, const OutputOptions& output, size_t top, const std::string* timeline) {
  const Renderer* renderer = find_renderer(output.effective_format());
  if (renderer == nullptr) return fail("no such format: " + output.effective_format(), {}, {}, ExitCode::kUsage);
  const bool one_table = result.visit([](const auto& record) { return !result_info(record).one_table.empty(); });
  const std::vector<RenderedFile> files =
      renderer->render(result, {output.style(), top, !output.full && !output.tables, timeline, output.profiled});
  return renderer->tables && !one_table ? write_files(output.path, files)
                                        : write_output(files.front().content, output.path);
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
