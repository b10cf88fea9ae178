// The progress line of `llmprof run`: on a terminal, rewritten in place, gone when the program has ended.
#pragma once

#include <chrono>
#include <string>

#include "capture/session/control.h"

namespace llmprof::launch {

class ProgressLine {
 public:
  ProgressLine(bool shown, std::string session_folder);
  ~ProgressLine() { clear(); }
  ProgressLine(const ProgressLine&) = delete;
  ProgressLine& operator=(const ProgressLine&) = delete;

  // Draws it anew if half a second has passed. The cursor is left at the line's start, so that what the program prints
  // next overwrites it.
  void update(const session::Control& control);
  void clear();

 private:
  bool shown_, drawn_ = false;
  std::string folder_;
  std::chrono::steady_clock::time_point start_, last_;
};

// "3.5 s · 2 processes · 12,345 kernels · 4.10 MB · recording: default"
std::string progress_text(double elapsed_s, const session::Control& control, uint64_t bytes);

}  // namespace llmprof::launch
