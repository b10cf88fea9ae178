// Stages of a request in which nothing ran on the GPU: an image that the CPU decodes, resizes and cuts into patches.
// They are part of what a user waits for before the first token, and only a range of the program knows of them.
#pragma once

#include <vector>

#include "derive/annotate.h"
#include "derive/recorded_spans.h"
#include "derive/step_draft.h"

namespace llmprof {

// Appends a draft for every range of a vision stage in which nothing was launched, where that is known (recording never
// stopped in it) and says something: the next step of its thread is a vision stage or a prompt, and no other thread has
// steps on the device, so that the host did one after the other. A range before a decode step prepares that step, whose
// window holds it already. `steps` are those of all devices by device and host time, of known kind.
void add_host_stages(const Trace& trace, const StageRanges& stages, const RecordedSpans& recorded,
                     std::vector<StepDraft>& steps);

}  // namespace llmprof
