// Results of benchmarks of servers: `vllm bench serve`, SGLang's bench_serving, AIPerf and GenAI-Perf, GuideLLM.
// Figures of each run, and its requests where the file has them. Format: docs/formats/serving-benchmarks.md.
#pragma once

#include "import/importer.h"

namespace llmprof::serving {
int sniff(std::string_view head);
Status import(InputFile& input, Trace& trace);
}  // namespace llmprof::serving
