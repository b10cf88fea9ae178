// What the command line is made of: one file per command, listed in main.cc.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/page.h"
#include "base/result.h"
#include "cli/declare.h"
#include "results/results.h"

namespace llmprof::cli {

// Each declares its command.
void add_analyze(Parser& parser);
void add_bench(Parser& parser);
void add_call_costs(Parser& parser);  // hidden: `peaks` starts it with and without the recorder
void add_completion(Parser& parser);
void add_counters(Parser& parser);  // hidden: `run` starts it beside the target
void add_ctl(Parser& parser);
void add_demo(Parser& parser);
void add_diff(Parser& parser);
void add_doctor(Parser& parser);
void add_export(Parser& parser);
void add_list(Parser& parser);
void add_model(Parser& parser);
void add_peaks(Parser& parser);
void add_report(Parser& parser);
void add_runs(Parser& parser);
void add_serve(Parser& parser);
void add_workload(Parser& parser);

// The command line of the program that `run` starts: what follows "--", which no parser ever looks at.
struct ProgramArguments {
  bool separated = false;  // there was a "--"
  std::vector<std::string> words;
};
void add_run(Parser& parser, const ProgramArguments& program);

// Prints the error on stderr, as every command does, and gives its exit code.
int report_error(const Error& error);

// Options that mean the same everywhere.
struct OutputOptions {
  std::string format;  // empty: none was asked for
  std::string path;    // -o: a file, or a folder for csv
  bool json = false, quiet = false, no_color = false;
  std::string color = "auto";
  bool full = false;      // every table of a report, and every column however wide
  bool tables = false;    // every table of a report: something was asked for that only they have
  bool profiled = false;  // the page has the kernels that another profiler counted, too
  bool redact = false;    // of a recording: paths, hosts, addresses, UUIDs and arguments are left out (trace/redact.h)
  std::string page;       // a report is also written to this file, as HTML; empty: it is not
  // After parsing: --json is short for --format json; FILE.json is JSON and FILE.html is HTML unless another format was
  // asked for.
  std::string effective_format() const {
    if (json) return "json";
    if (!format.empty()) return format;
    return named("json") ? "json" : named("html") ? "html" : "text";
  }
  // Whether the file's name alone says which format it has.
  bool format_by_name() const { return !json && format.empty() && (named("json") || named("html")); }
  bool is_text() const { return effective_format() == "text"; }
  // How text is laid out for whoever reads it: a terminal, a pipe or a file.
  TextStyle style() const;

 private:
  bool named(std::string_view ending) const {
    return path.size() > ending.size() + 1 && path.ends_with(ending) && path[path.size() - ending.size() - 1] == '.';
  }
};
// What a command writes as tables: one file, or one for each list of its result, in a folder; none: it has text and
// JSON of its own, and no declared result.
enum class CsvOutput : uint8_t { kNone, kFile, kFolder };
// --full, --color and --no-color, which add_output_options has too.
void add_style_options(const Command& command, OutputOptions& options, const std::string& group = "OPTIONS");
// --format, of the formats that there are (report/registry.cc).
Option add_format_option(const Command& command, OutputOptions& options, CsvOutput csv);
void add_output_options(const Command& command, OutputOptions& options, CsvOutput csv = CsvOutput::kFolder);
// Options that contradict each other are an error before anything runs: --json beside a --format of another kind,
// --no-color beside another --color, and a page of text in a file named .csv. `path_option` is the name of -o.
void refuse_contradictions(const Command& command, const OutputOptions& options, CsvOutput csv,
                           const std::string& path_option);

// A file that a command reads must not be the one that it writes: `path` (of the option) against each input, by what
// they are and not by how they are named. An empty path stands for none, "-" among the inputs for standard input; of a
// folder, what is in it counts.
Status refuse_overwriting(const std::string& option, const std::string& path, const std::vector<std::string>& inputs);

// What makes a file for each table needs a folder: the error has `example`, a command line with one.
Status check_folder(const OutputOptions& options, const std::string& example, const std::string& path_option = "-o");

// How text is laid out by a command without these options: for standard output.
TextStyle output_style();  // of standard output
TextStyle error_style();   // of standard error

// Writes to the file, or to stdout if there is none; an error names the path.
Status write_output(const std::string& text, const std::string& path);
// A page of text rather than data: goes through finish_page() (base/page.h).
Status write_page(const std::string& text, const TextStyle& style, const std::string& path = {});
// A result in the format that was asked for: to the file or folder, or to standard output. `top`: rows of long tables
// of a page. `timeline`: of a report, packed (report/timeline_data.h), for the formats that show one.
Status write_result(const AnyResult& result, const OutputOptions& output, size_t top = SIZE_MAX,
                    const std::string* timeline = nullptr);
// "llmprof: TEXT" and a line end on standard error, through print_error() (base/terminal.h).
void complain(const std::string& text);

}  // namespace llmprof::cli
