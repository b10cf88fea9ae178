// What the first products of passes tell of the passes, which are seen at every recording level
// (Trace::first_products): a prompt runs its first product on more rows than a step that makes tokens.
#pragma once

#include <vector>

#include "derive/step_draft.h"
#include "trace/trace.h"

namespace llmprof {

// The first products of one thread, in order of time.
class FirstProductsOf {
 public:
  FirstProductsOf(const Trace& trace, ThreadId thread);
  struct Product {
    int64_t time_ns = -1, rows = -1;
  };
  // The first in [from_ns, to_ns]; of -1 rows if there is none.
  Product within(int64_t from_ns, int64_t to_ns) const;

 private:
  std::vector<Product> products_;
};

// Prompts and decode steps in unrecorded time, of ranges whose words do not tell them apart ("pass"): by the rows of
// the first product inside, where nearly all recorded prompts of the same text have more of them than any recorded step
// that makes tokens. Call when recorded steps have their kinds.
void settle_by_first_products(const Trace& trace, std::vector<StepDraft>& steps);

}  // namespace llmprof
