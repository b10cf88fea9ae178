// Runs a piece of work in a forked child, because what it touches (drivers, foreign libraries) may crash or hang: the
// caller always gets an answer. The child may do anything but return control to the caller's code; what it has to say
// comes back as text. Not for processes that have started threads which hold locks.
#pragma once

#include <functional>
#include <string>

namespace llmprof::samplers {

struct IsolatedResult {
  bool finished = false;  // the work returned
  std::string text;       // what it returned
  std::string trouble;    // otherwise: "crashed (signal 11, Segmentation fault)", "gave no answer within 20 s", ...
};

IsolatedResult run_isolated(const std::function<std::string()>& work, int timeout_s);

}  // namespace llmprof::samplers
