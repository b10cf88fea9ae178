// The manual page, in the man macros that every roff knows.
#include <fmt/format.h>

#include "base/result.h"
#include "cli/shell/command_line.h"

namespace llmprof::cli {
namespace {

// Text as roff has it: no hyphen becomes a typographic one, and no line starts a request.
std::string roff(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if ((c == '.' || c == '\'') && (out.empty() || out.back() == '\n')) out += "\\&";
    if (c == '\\')
      out += "\\e";
    else if (c == '-')
      out += "\\-";
    else
      out += c;
  }
  return out;
}

std::string bold(std::string_view text) { return "\\fB" + roff(text) + "\\fR"; }
std::string italic(std::string_view text) { return "\\fI" + roff(text) + "\\fR"; }

std::string option_entry(const OptionText& option) {
  std::string head;
  for (const std::string& name : option.names) head += (head.empty() ? "" : ", ") + bold(name);
  if (option.takes_value()) head += " " + italic(option.placeholder);
  std::string out = ".TP\n" + head + "\n" + roff(option.meaning);
  if (!option.preset.empty()) out += roff(" (default: " + option.preset + ")");
  if (option.repeatable) out += " (may be given again)";
  return out + "\n";
}

std::string command_section(const CommandText& command) {
  std::string usage = bold("llmprof " + command.name) + " [" + italic("OPTIONS") + "]";
  for (const ArgumentText& argument : command.arguments) {
    const std::string name = italic(argument.name) + (argument.many ? "..." : "");
    usage += " " + (argument.required ? name : "[" + name + "]");
  }
  if (command.runs_program) usage += " \\-\\- " + italic("PROGRAM") + " [" + italic("ARGUMENTS") + "]";
  std::string out = fmt::format(".SS {}\n{}\n.PP\n{}.\n", roff(command.name), usage, roff(command.meaning));
  for (const ArgumentText& argument : command.arguments)
    out += ".TP\n" + italic(argument.name) + "\n" + roff(argument.meaning) + "\n";
  for (const OptionText& option : command.options)
    if (option.names.back() != "--help") out += option_entry(option);
  if (!command.footer.empty()) out += ".PP\n.nf\n" + roff(command.footer) + "\n.fi\n";
  return out;
}

constexpr const char* kTail = R"(.SH EXIT STATUS
.TP
.B 0
all is well
.TP
.B 1
the command failed
.TP
.B 2
wrong usage
.TP
.B 3
answered, although the input has errors (a cut file)
.TP
.B 4
.B bench \-\-fail\-on
was met
.PP
.B llmprof run
ends with the exit status of the program.
.SH ENVIRONMENT
.TP
.B LLMPROF_HOME
where measured ceilings are kept, instead of
.IR $XDG_STATE_HOME/llmprof " or " ~/.local/state/llmprof
.TP
.B LLMPROF_STORE
the run store, instead of
.I runs
in the same folder;
.B off
for none
.TP
.B LLMPROF_CUPTI
the CUPTI library that a watched program is recorded with
.TP
.B NO_COLOR
set to anything: no color
.SH SEE ALSO
.B llmprof
.IR COMMAND " " \fB\-\-help\fR;
.B llmprof list
.I TOPIC
for what is known of findings, metrics, GPUs and models;
.B llmprof doctor
for what works on a machine.
)";

}  // namespace

std::string manual_page(const CommandLine& line, std::string_view version) {
  std::string out = ".\\\" Written by: llmprof man\n";
  out += fmt::format(".TH LLMPROF 1 \"\" \"llmprof {}\" \"User Commands\"\n.nh\n.ad l\n", version);
  const std::string prefix = "llmprof: ";
  const std::string meaning = line.meaning.starts_with(prefix) ? line.meaning.substr(prefix.size()) : line.meaning;
  out += ".SH NAME\nllmprof \\- " + roff(meaning) + "\n";
  out += ".SH SYNOPSIS\n" + bold("llmprof") + " " + italic("COMMAND") + " [" + italic("OPTIONS") + "]\n";
  out += ".PP\n.nf\n" + roff(line.footer) + "\n.fi\n.SH OPTIONS\n";
  for (const OptionText& option : line.options) out += option_entry(option);
  out += ".SH COMMANDS\n";
  for (const CommandText& command : line.commands) out += command_section(command);
  return out + kTail;
}

}  // namespace llmprof::cli
