#include "cli/interrupt.h"

#include <unistd.h>

#include <cerrno>
#include <string_view>

namespace llmprof::cli {
namespace {

std::atomic<bool> g_interrupted{false};
static_assert(std::atomic<bool>::is_always_lock_free, "set in a signal handler");

volatile sig_atomic_t g_quiet = 0;

void raise_flag(int) {
  constexpr std::string_view kText = "\nllmprof: ending after what runs just now; once more ends at once\n";
  const int before = errno;
  g_interrupted = true;
  if (g_quiet == 0 && write(STDERR_FILENO, kText.data(), kText.size()) < 0) g_quiet = 1;  // nobody is there to read it
  errno = before;
}

void take_over(int signal, struct sigaction& before) {
  struct sigaction mine {};
  mine.sa_handler = raise_flag;
  mine.sa_flags = static_cast<int>(SA_RESETHAND) | SA_RESTART;
  sigaction(signal, nullptr, &before);
  if (before.sa_handler != SIG_IGN) sigaction(signal, &mine, nullptr);
}

}  // namespace

Interrupt::Interrupt(bool quiet) {
  g_interrupted = false;
  g_quiet = quiet ? 1 : 0;
  take_over(SIGINT, int_before_);
  take_over(SIGTERM, term_before_);
}

Interrupt::~Interrupt() {
  sigaction(SIGINT, &int_before_, nullptr);
  sigaction(SIGTERM, &term_before_, nullptr);
}

const std::atomic<bool>& Interrupt::flag() const { return g_interrupted; }

}  // namespace llmprof::cli
