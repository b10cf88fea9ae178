// Metrics pages of servers in the text formats of Prometheus and OpenMetrics, one or several in a file: one row for
// every sample. Format: docs/formats/prometheus.md.
#pragma once

#include "import/importer.h"

namespace llmprof::metrics_pages {
int sniff(std::string_view head);
Status import(InputFile& input, Trace& trace);
}  // namespace llmprof::metrics_pages
