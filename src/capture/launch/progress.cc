#include "capture/launch/progress.h"

#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>

#include "base/page.h"
#include "base/terminal.h"
#include "base/text_table.h"
#include "capture/launch/control_page.h"
#include "capture/launch/session_folder.h"
#include "capture/session/level.h"

namespace llmprof::launch {
namespace {

constexpr std::chrono::milliseconds kPeriod(500);
constexpr size_t kUsualWidth = 80;

void write_all(const std::string& text) {
  // A terminal that is stopped (Ctrl-S) must not hold up the signals that are to be passed on.
  pollfd terminal{STDERR_FILENO, POLLOUT, 0};
  if (poll(&terminal, 1, 0) != 1 || (terminal.revents & POLLOUT) == 0) return;
  size_t at = 0;
  while (at < text.size()) {
    const ssize_t wrote = write(STDERR_FILENO, text.data() + at, text.size() - at);
    if (wrote <= 0) return;  // a terminal that is gone is no reason to stop
    at += static_cast<size_t>(wrote);
  }
}

}  // namespace

std::string progress_text(double elapsed_s, const session::Control& control, uint64_t bytes) {
  const Progress progress = progress_of(control);
  const uint32_t level = control.wanted_level.load();
  return fmt::format(
      "{} s · {} process{} · {} kernels · {} · {}", format_fixed(elapsed_s, 1), format_count(progress.alive),
      progress.alive == 1 ? "" : "es", format_count(static_cast<double>(progress.kernels)),
      format_bytes(static_cast<double>(bytes)),
      level == 0 ? std::string("not recording") : fmt::format("recording: {}", session::level_name(level)));
}

ProgressLine::ProgressLine(bool shown, std::string session_folder)
    : shown_(shown), folder_(std::move(session_folder)), start_(std::chrono::steady_clock::now()), last_(start_) {}

void ProgressLine::update(const session::Control& control) {
  const std::chrono::steady_clock::time_point now = std::chrono::steady_clock::now();
  if (!shown_ || now - last_ < kPeriod) return;
  last_ = now;
  // A background job must not write over the work of the one in front.
  const pid_t front = tcgetpgrp(STDERR_FILENO);
  if (front > 0 && front != getpgrp()) return;
  const size_t width = std::max(terminal_width(STDERR_FILENO).value_or(kUsualWidth), kLeastWidth);
  const double elapsed_s = std::chrono::duration<double>(now - start_).count();
  const std::string text = "llmprof: " + progress_text(elapsed_s, control, recorded_bytes(folder_));
  const Charset charset = locale_charset();
  write_all("\r" + ellipsize(printable(text, charset), width - 1, charset) + "\x1b[K\r");
  drawn_ = true;
}

void ProgressLine::clear() {
  if (drawn_) write_all("\r\x1b[K");
  drawn_ = false;
}

}  // namespace llmprof::launch
