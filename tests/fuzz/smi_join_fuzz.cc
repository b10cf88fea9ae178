// Any bytes as a log of nvidia-smi or dcgmi beside a Kineto trace, with a line of dashes between them, through the
// whole program: read, join, derive, analyze, render.
#include <string>
#include <string_view>

#include "import/dcgm_dmon.h"
#include "import/dmon.h"
#include "import/kineto.h"
#include "import/smi_join.h"
#include "import/smi_query.h"
#include "one_format.h"
#include "trace/check_trace.h"
#include "trace/trace_builder.h"

namespace llmprof::fuzz {

void use(std::string_view bytes) {
  const auto files = two_files(bytes);
  if (!files) return;
  const std::string_view log = files->first, recording = files->second;
  Trace whole, part;
  if (!imported(recording, "fuzz.json", kineto::sniff, kineto::import, whole)) return;
  if (dmon::sniff(log) > 0) {
    part.source.kind = kDmonImporter;
    if (!imported(log, "fuzz.txt", dmon::sniff, dmon::import, part)) return;
  } else if (dcgm_dmon::sniff(log) > 0) {
    part.source.kind = kDcgmDmonImporter;
    if (!imported(log, "fuzz.txt", dcgm_dmon::sniff, dcgm_dmon::import, part)) return;
  } else {
    part.source.kind = kSmiQueryImporter;
    if (!imported(log, "fuzz.csv", smi_query::sniff, smi_query::import, part)) return;
  }
  check_trace(part);
  const auto records = static_cast<int64_t>(part.nvml_samples.size());
  JoinedFiles::Values row = join_readings("fuzz.txt", std::move(part), whole);
  if (row.records != records || row.matched > records) broken("joining", "more readings matched than there are");
  if (row.matched > 0 && row.uncertain_ns < 0) broken("joining", "readings matched without a bound of their time");
  TraceBuilder builder(whole);
  row.file = builder.text("fuzz.txt");
  row.format = builder.text("log");
  builder.add<JoinedFiles>(row);
  finish_and_report(whole, true);
}

}  // namespace llmprof::fuzz
