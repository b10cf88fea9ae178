// Logs of cuBLAS and cuBLASLt, each in a file of its own or both mixed into what the program prints: one row for every
// matrix product. Format: docs/formats/cublas.md.
#pragma once

#include "import/importer.h"

namespace llmprof::blas_logs {
int sniff(std::string_view head);
Status import(InputFile& input, Trace& trace);
}  // namespace llmprof::blas_logs
