// What every recording goes through once an importer has read it, whatever the input was: nothing is left to repair,
// nothing crashes, the report's totals add up, and no name does harm in any format.
#pragma once

#include <cstdlib>
#include <string>

#include "import/importer.h"

namespace llmprof::fuzz {

// One thread: libFuzzer runs thousands of inputs a second, and starting threads would take most of the time.
inline const bool kOneThread = setenv("LLMPROF_THREADS", "1", 1) == 0;

[[noreturn]] void broken(const char* what, const std::string& detail);

// `save`: as a file of llmprof's own, too.
void finish_and_report(Trace& trace, bool save);

}  // namespace llmprof::fuzz
