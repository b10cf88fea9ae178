// `llmprof serve`: the runs of the store as pages for a browser (src/serve/).
#include <fmt/format.h>
#include <spawn.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>

#include "base/printable.h"
#include "cli/checks.h"
#include "cli/command.h"
#include "cli/interrupt.h"
#include "serve/routes.h"
#include "serve/server.h"
#include "store/files.h"
#include "store/settings.h"

extern "C" char** environ;

namespace llmprof::cli {
namespace {

constexpr int64_t kServePort = 7353;

struct ServeArguments {
  int64_t port = kServePort;
  std::string host = "127.0.0.1";
  std::string token_file;
  bool token = false, open = false;
};

// A token that others can read is none.
Result<std::string> token_in(const std::string& path) {
  constexpr mode_t kOthers = S_IRWXG | S_IRWXO;
  struct stat status {};
  if (stat(path.c_str(), &status) == 0 && (status.st_mode & kOthers) != 0)
    return fail("expected a file that only its owner can read, found one that others can", path, "chmod 600 " + path);
  LLMPROF_ASSIGN(std::string text, store::read_small(path, 4096));
  while (!text.empty() && (text.back() == '\n' || text.back() == '\r')) text.pop_back();
  if (!serve::is_token(text))
    return fail("expected one token of 22 to 200 letters, digits, - and _, found something else", path,
                "openssl rand -hex 16 > " + path);
  return text;
}

Result<std::string> token_of(const ServeArguments& options, const serve::Address& address) {
  if (!options.token_file.empty()) return token_in(options.token_file);
  if (options.token || !address.is_loopback()) return serve::random_token();
  return std::string();
}

std::string machine_name() {
  std::array<char, 256> name{};
  return gethostname(name.data(), name.size() - 1) == 0 ? std::string(name.data()) : std::string();
}

// Not waited for, and what it says is not ours.
void open_browser(const std::string& url) {
  std::string program = "xdg-open", address = url;
  std::array<char*, 3> words = {program.data(), address.data(), nullptr};
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", 0, 0);
  posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, "/dev/null", 1, 0);
  posix_spawn_file_actions_adddup2(&actions, STDOUT_FILENO, STDERR_FILENO);
  pid_t process = 0;
  if (posix_spawnp(&process, program.c_str(), &actions, nullptr, words.data(), environ) != 0)
    complain("xdg-open, which opens a browser, is not there: open the address yourself");
  posix_spawn_file_actions_destroy(&actions);
}

Result<int> serve_runs(const ServeArguments& options) {
  const std::string store = store::store_folder();
  if (store.empty())
    return fail("expected a run store, found none: LLMPROF_STORE is off, or neither it nor HOME is set", {},
                "LLMPROF_STORE=FOLDER llmprof serve", ExitCode::kUsage);
  LLMPROF_ASSIGN(const serve::Address wanted, serve::parse_address(options.host, static_cast<uint16_t>(options.port)));
  LLMPROF_ASSIGN(const std::string token, token_of(options, wanted));
  if (options.open && !token.empty())
    return fail("--open goes without a token: everyone on this machine would see it among the programs that run", {},
                "llmprof serve without --open, and open the address that it prints", ExitCode::kUsage);
  const serve::StoreLibrary library(store);
  LLMPROF_ASSIGN(const std::vector<RunRow> runs, library.runs());
  LLMPROF_ASSIGN(serve::Server server, serve::Server::listen(wanted));
  const serve::Guard guard(server.address(), token, machine_name());
  const std::string url = server.address().url() + "/" + (token.empty() ? "" : "?token=" + token);
  // The address is all of standard output, so that a script can read it.
  LLMPROF_CHECK(write_output(url + "\n", {}));
  if (runs.empty())
    complain("there are no runs yet in " + printable(store) +
             ": llmprof run -- PROGRAM makes one; reload the page then");
  if (!wanted.is_loopback())
    complain(
        "others can reach this address, and read along what is sent: it is not encrypted. ssh -L keeps it to yourself");
  const Interrupt interrupt(true);
  if (options.open) open_browser(url);
  const serve::ProcessCommands commands("/proc/self/exe", store);
  server.run([&](const serve::Request& request) { return serve::answer(request, guard, library, commands); },
             interrupt.flag());
  return static_cast<int>(ExitCode::kOk);
}

}  // namespace

void add_serve(Parser& parser) {
  const std::shared_ptr<ServeArguments> options = std::make_shared<ServeArguments>();
  const Command command = parser.add_command("serve", "a local page of all runs: reports, comparisons, trends");
  constexpr int64_t kPortMost = 65535;
  command.option("--port", options->port, "listen here; 0: on a free port")
      .capture_default()
      .check(whole_number(0, kPortMost))
      .type_name("N");
  command.option("--host", options->host, "an address of this machine; other than loopback: with a token")
      .capture_default()
      .type_name("ADDRESS");
  command.flag("--token", options->token, "ask for a token on loopback too: where others use this machine");
  command.option("--token-file", options->token_file, "take the token from this file, not a random one")
      .type_name("FILE");
  command.flag("--open", options->open, "open the page in a browser");
  command.footer(
      "Prints the address to open; Ctrl-C ends it. It reads the store of `llmprof runs` and changes nothing.\n"
      "Example:  llmprof serve --open");
  command.action([options] {
    const Result<int> code = serve_runs(*options);
    return code ? *code : report_error(code.error());
  });
}

}  // namespace llmprof::cli
