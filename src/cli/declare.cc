#include "cli/declare.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <sstream>
#include <string_view>

#include "base/nearest.h"

namespace llmprof::cli {
namespace {

// The way of an Error through CLI11, from check_together() to parse().
class Refusal : public CLI::ValidationError {
 public:
  // CLI11 has an Error, too, which its exceptions are.
  explicit Refusal(const llmprof::Error& error) : CLI::ValidationError(error.what), error_(error) {}
  const llmprof::Error& error() const { return error_; }

 private:
  llmprof::Error error_;
};

// ---- what CLI11 says about a command line, in the form of every other error

// "--batch: message" as CLI11 joins them.
struct Parts {
  std::string option, message;
};
Parts parts_of(const std::string& text) {
  const size_t colon = text.find(": ");
  if (colon == std::string::npos || text.find(' ') < colon) return {"", text};
  return {text.substr(0, colon), text.substr(colon + 2)};
}

// The example of a command's help: "Example:  llmprof analyze trace.json.gz" -> what stands behind the word.
std::string example_of(const CLI::App& command) {
  const std::string& footer = command.get_footer();
  const size_t at = footer.find("llmprof ", footer.find("Example"));
  if (footer.find("Example") == std::string::npos || at == std::string::npos) return {};
  return footer.substr(at, footer.find('\n', at) - at);
}

std::vector<std::string> option_names(const CLI::App& command) {
  std::vector<std::string> names;
  for (const CLI::Option* option : command.get_options())
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
  return names;
}

// The first word that no option and no argument took.
Error unexpected_word(const CLI::App& command, const std::string& name) {
  const std::vector<std::string> rest = command.remaining();
  std::string word = rest.empty() ? "" : rest.front();
  for (const std::string& one : rest)
    if (one.size() > 1 && one.front() == '-') {
      word = one;
      break;
    }
  const std::string help = name + " --help";
  if (word.size() < 2 || word.front() != '-')
    return {fmt::format("expected nothing more, found \"{}\"", word), "", help, ExitCode::kUsage};
  word = word.substr(0, word.find('='));
  const std::vector<std::string> near = nearest_names(word, option_names(command), 1);
  return {fmt::format("{} has no option {}", name, word), "",
          near.empty() ? help : near.front() + "  (all: " + help + ")", ExitCode::kUsage};
}

std::string plain_mismatch(const Parts& parts, std::string& option) {
  option = parts.option;
  const std::string& text = parts.message;
  if (text.find(" required ") != std::string::npos && text.find(" missing") != std::string::npos)
    return fmt::format("expected a value behind {}, found none", option);
  if (text.find("required but received") != std::string::npos) {
    const bool most = text.rfind("At Most", 0) == 0 || text.rfind("At most", 0) == 0;
    return fmt::format("expected at {} {} behind {}, found{}", most ? "most" : "least",
                       text.substr(8, text.find(' ', 8) - 8), option, text.substr(text.rfind(' ')));
  }
  return text;
}

// `app` after its parse() threw `error`.
Error error_of(const CLI::App& app, const CLI::ParseError& error) {
  const CLI::App* command = &app;
  std::string name = app.get_name();
  for (const CLI::App* chosen : app.get_subcommands()) {
    command = chosen;
    name += " " + chosen->get_name();
  }
  const std::string help = name + " --help";
  if (const Refusal* const refusal = dynamic_cast<const Refusal*>(&error)) {
    Error refused = refusal->error();
    if (refused.advice.empty()) refused.advice = help;
    return refused;
  }
  const Parts parts = parts_of(error.what());
  if (dynamic_cast<const CLI::ExtrasError*>(&error) != nullptr) return unexpected_word(*command, name);
  if (dynamic_cast<const CLI::RequiredError*>(&error) != nullptr) {
    const std::string what = parts.message.substr(0, parts.message.find(" is required"));
    const std::string example = example_of(*command);
    return {fmt::format("expected {}, found none", what), "",
            example.empty() ? help : example + "  (all: " + help + ")", ExitCode::kUsage};
  }
  if (dynamic_cast<const CLI::ArgumentMismatch*>(&error) != nullptr) {
    std::string option;
    const std::string what = plain_mismatch(parts, option);
    return {what, option, help, ExitCode::kUsage};
  }
  if (dynamic_cast<const CLI::ConversionError*>(&error) != nullptr) {
    const std::string_view kCould = "Could not convert: ";
    const std::string text = error.what();
    const size_t equals = text.find(" = ");
    if (text.starts_with(kCould) && equals != std::string::npos)
      return {fmt::format("expected a number, found \"{}\"", text.substr(equals + 3)),
              text.substr(kCould.size(), equals - kCould.size()), help, ExitCode::kUsage};
    if (!parts.option.empty())
      return {fmt::format("{} takes no value", parts.option), parts.option, help, ExitCode::kUsage};
  }
  return {parts.message, parts.option, help, ExitCode::kUsage};
}

}  // namespace

// ---- Option

Option Option::type_name(const std::string& name) const { return Option(option_->type_name(name)); }
Option Option::check(const Check& check) const {
  return Option(option_->check(CLI::Validator(
      [complaint = check.complaint](const std::string& text) { return complaint(text); }, check.range, "")));
}
Option Option::group(const std::string& name) const { return Option(option_->group(name)); }
Option Option::capture_default() const { return Option(option_->capture_default_str()); }
Option Option::shown_default(const std::string& text) const { return Option(option_->default_str(text)); }
Option Option::description(const std::string& text) const { return Option(option_->description(text)); }
Option Option::required() const { return Option(option_->required()); }
Option Option::delimiter(char between) const { return Option(option_->delimiter(between)); }
Option Option::one_word() const { return Option(option_->allow_extra_args(false)); }
Option Option::expected(int least, int most) const { return Option(option_->expected(least, most)); }

const std::vector<std::string>& Option::short_names() const { return option_->get_snames(); }
const std::vector<std::string>& Option::long_names() const { return option_->get_lnames(); }
const std::string& Option::name() const { return option_->get_single_name(); }
const std::string& Option::description() const { return option_->get_description(); }
const std::string& Option::group() const { return option_->get_group(); }
std::string Option::type_name() const { return option_->get_type_name(); }
std::string Option::default_text() const { return option_->get_default_str(); }
char Option::delimiter() const { return option_->get_delimiter(); }
bool Option::is_required() const { return option_->get_required(); }
bool Option::is_argument() const { return !option_->nonpositional(); }
bool Option::takes_value() const { return option_->get_items_expected_max() != 0; }
bool Option::holds_many() const { return option_->get_items_expected_max() >= CLI::detail::expected_max_vector_size; }
size_t Option::count() const { return option_->count(); }

// ---- Command

Option Command::option(const std::string& names, std::string& value, const std::string& description) const {
  return Option(app_->add_option(names, value, description));
}
Option Command::option(const std::string& names, int& value, const std::string& description) const {
  return Option(app_->add_option(names, value, description));
}
Option Command::option(const std::string& names, int64_t& value, const std::string& description) const {
  return Option(app_->add_option(names, value, description));
}
Option Command::option(const std::string& names, uint64_t& value, const std::string& description) const {
  return Option(app_->add_option(names, value, description));
}
Option Command::option(const std::string& names, double& value, const std::string& description) const {
  return Option(app_->add_option(names, value, description));
}
Option Command::option(const std::string& names, std::optional<int64_t>& value, const std::string& description) const {
  return Option(app_->add_option(names, value, description));
}
Option Command::option(const std::string& names, std::optional<uint64_t>& value, const std::string& description) const {
  return Option(app_->add_option(names, value, description));
}
Option Command::option(const std::string& names, std::vector<std::string>& value,
                       const std::string& description) const {
  return Option(app_->add_option(names, value, description));
}
Option Command::option(const std::string& names, std::vector<int64_t>& value, const std::string& description) const {
  return Option(app_->add_option(names, value, description));
}
Option Command::flag(const std::string& names, bool& value, const std::string& description) const {
  return Option(app_->add_flag(names, value, description));
}

void Command::footer(const std::string& text) const { app_->footer(text); }
void Command::hide() const { app_->group(""); }  // the help leaves out what has no group
void Command::take_other_words() const { app_->allow_extras(); }
void Command::check_together(std::function<Status()> check) const {
  app_->parse_complete_callback([check = std::move(check)] {
    if (const Status status = check(); !status) throw Refusal(status.error());
  });
}
void Command::action(Action action) const {
  app_->callback([chosen = chosen_, action = std::move(action)] { *chosen = action; });
}

Option Command::declared(const std::string& name) const { return Option(app_->get_option(name)); }
std::vector<Option> Command::options() const {
  std::vector<Option> out;
  for (CLI::Option* option : app_->get_options()) out.emplace_back(option);
  return out;
}
const std::string& Command::name() const { return app_->get_name(); }
std::string Command::description() const { return app_->get_description(); }
std::string Command::footer() const { return app_->get_footer(); }
bool Command::is_hidden() const { return app_->get_group().empty(); }
bool Command::takes_other_words() const { return app_->get_allow_extras(); }
std::vector<std::string> Command::other_words() const { return app_->remaining(); }

// ---- Parser

Parser::Parser(const std::string& name, const std::string& description, const std::string& version)
    : app_(std::make_unique<CLI::App>(description)), chosen_(std::make_unique<Action>()) {
  app_->name(name);
  app_->set_version_flag("-V,--version", version);
  app_->require_subcommand(0, 1);
  // Of an option given twice the last counts: wrappers append theirs. Commands inherit it; lists keep all.
  app_->option_defaults()->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
}
Parser::~Parser() = default;

Command Parser::add_command(const std::string& name, const std::string& description) {
  return {app_->add_subcommand(name, description), chosen_.get()};
}
std::vector<Command> Parser::commands() const {
  std::vector<Command> out;
  for (CLI::App* command : app_->get_subcommands([](CLI::App*) { return true; }))
    out.emplace_back(command, chosen_.get());
  return out;
}
Command Parser::program() const { return {app_.get(), chosen_.get()}; }
std::string Parser::help() const { return app_->help(); }

Result<Request> Parser::parse(std::vector<std::string> words) {
  std::reverse(words.begin(), words.end());  // as CLI11 takes them
  try {
    app_->parse(std::move(words));
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() != 0) return tl::unexpected<Error>(error_of(*app_, error));
    std::ostringstream text;  // --help, --version
    app_->exit(error, text, text);
    return Request{text.str(), {}};
  }
  return Request{{}, *chosen_};
}

}  // namespace llmprof::cli
