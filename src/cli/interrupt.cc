#include "cli/interrupt.h"

namespace llmprof::cli {
namespace {

std::atomic<bool> g_interrupted{false};
static_assert(std::atomic<bool>::is_always_lock_free, "set in a signal handler");

void raise_flag(int) { g_interrupted = true; }

void take_over(int signal, struct sigaction& before) {
  struct sigaction mine {};
  mine.sa_handler = raise_flag;
  mine.sa_flags = static_cast<int>(SA_RESETHAND) | SA_RESTART;
  sigaction(signal, nullptr, &before);
  if (before.sa_handler != SIG_IGN) sigaction(signal, &mine, nullptr);
}

}  // namespace

Interrupt::Interrupt() {
  g_interrupted = false;
  take_over(SIGINT, int_before_);
  take_over(SIGTERM, term_before_);
}

Interrupt::~Interrupt() {
  sigaction(SIGINT, &int_before_, nullptr);
  sigaction(SIGTERM, &term_before_, nullptr);
}

const std::atomic<bool>& Interrupt::flag() const { return g_interrupted; }

}  // namespace llmprof::cli
