// A report read again from its JSON, so that every format can be rendered without the recording.
#pragma once

#include <string_view>

#include "base/result.h"
#include "results/report.h"

namespace llmprof {

// What render_json() has written of a report, by this version or one whose report has the same fields. What stands
// beside the fields for the text page alone (Report, StageMark, Peak, DeviceReport::cpu) is found again from them; what
// only analyses use is not. The error names the first field that does not fit, and the version that wrote the text.
Result<Report> read_report(std::string_view json);

}  // namespace llmprof
