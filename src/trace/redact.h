// Takes out of a trace what says where and on what machine a program ran, so that a report can be handed to others:
// folders of absolute paths (the file's name stays; of an installed Python package what lies below it), names of the
// host, IP addresses, UUIDs of GPUs, and what the program was called with. Texts that the program itself chose (names
// of ranges, of functions, of kernels) stay: nobody but their author knows what they give away.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "trace/trace.h"

namespace llmprof {

// One text. `hosts`: names to take out, as whole words.
std::string redacted(std::string_view text, std::span<const std::string> hosts = {});

// Every text of the trace, with those of its diagnostics and facts. Names of hosts are those that the trace has in
// columns and facts of that name, and what this machine is called. Handles of strings stay valid.
void redact(Trace& trace, std::span<const std::string> machine);

}  // namespace llmprof
