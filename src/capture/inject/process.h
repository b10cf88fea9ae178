// The ends of the process and its control page: internal to the injection library.
#pragma once

#include "capture/session/control.h"

namespace llmprof::inject {

// The session's control page; null if there is none.
session::Control* control_page();

// What the slot of this process says about CUPTI.
void set_cupti_state(session::SlotState state);

// Writes everything that is known and closes the spool; once. `orderly`: the process runs its exit handlers, so waiting
// for the GPU is safe; false from _exit(), where nothing but our own locks may be touched.
void end_process(bool orderly);

}  // namespace llmprof::inject
