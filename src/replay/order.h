// In which order a replay works out when things were, where GPUs meet in collectives: what follows such an activity on
// its stream may have been launched long before the other GPUs' part in it was, so that the order of the calls does
// not do. Everything comes behind all that it depends on.
#pragma once

#include "replay/timeline.h"

namespace llmprof::replay {

// Sets `order` and `last_given` of a timeline with meetings. Where dependencies go round in a circle, as they cannot in
// what has run, the meetings are wrong: it has none then.
void set_order(Timeline& timeline);

}  // namespace llmprof::replay
