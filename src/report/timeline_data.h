// The timeline of a recording as bytes for the page that draws it (docs/formats/page-timeline.md). The bytes are not
// compressed, but laid out so that gzip makes little of them; they hold names of the recording as they are.
#pragma once

#include <string>

#include "trace/timeline_choice.h"
#include "trace/trace.h"

namespace llmprof {

// `trace` has been through derive(). The same recording gives the same bytes; one that holds
// nothing to show gives none.
std::string pack_timeline(const Trace& trace, const TimelineChoice& choice);

}  // namespace llmprof
