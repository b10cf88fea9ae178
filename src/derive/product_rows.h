// What the rows of products tell of passes of the model, which are seen at every recording level (Trace::product_rows):
// a prompt multiplies more rows with the weights than a step that makes tokens.
#pragma once

#include <vector>

#include "derive/step_draft.h"
#include "trace/trace.h"

namespace llmprof {

// Those of one thread, in order of time.
class ProductRowsOf {
 public:
  ProductRowsOf(const Trace& trace, ThreadId thread);
  struct Product {
    int64_t time_ns = -1, rows = -1;
  };
  // The first one of the most rows in [from_ns, to_ns]: a pass begins with it, for what is beside the model (the choice
  // of a token, a check of it) runs on fewer rows. Of -1 rows if there is none.
  Product within(int64_t from_ns, int64_t to_ns) const;

 private:
  std::vector<Product> products_;
};

// Prompts and decode steps in unrecorded time, of ranges whose words do not tell them apart ("pass"): by the rows of
// products inside, where nearly all recorded prompts of the same text have more of them than any recorded step that
// makes tokens. Call when recorded steps have their kinds.
void settle_by_product_rows(const Trace& trace, std::vector<StepDraft>& steps);

}  // namespace llmprof
