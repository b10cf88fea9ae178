// The one path from an imported Trace to printed output, shared by analyze and demo.
#pragma once

#include "analyze/analysis.h"
#include "cli/command.h"
#include "derive/derive.h"
#include "import/importer.h"

namespace llmprof::cli {

// Derives, analyses and prints. Exit code 3 when the input had error-level diagnostics, even though a report was
// printed.
int analyze_and_print(Trace& trace, const DeriveOptions& derive_options, const AnalyzeOptions& analyze_options,
                      const OutputOptions& output);

}  // namespace llmprof::cli
