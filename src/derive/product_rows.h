// What the rows of products tell of passes of the model, which are seen at every recording level (Trace::product_rows):
// a prompt multiplies more rows with the weights than a step that makes tokens.
#pragma once

#include <optional>
#include <vector>

#include "derive/step_draft.h"
#include "trace/trace.h"

namespace llmprof {

// Those of one thread, or of several (in order) that work by turns, by time.
class ProductRowsOf {
 public:
  ProductRowsOf(const Trace& trace, const std::vector<ThreadId>& threads);
  struct Product {
    int64_t time_ns = -1, rows = -1;
  };
  // The first one of the most rows in [from_ns, to_ns]: a pass begins with it, for what is beside the model (the choice
  // of a token, a check of it) runs on fewer rows. Of -1 rows if there is none.
  Product within(int64_t from_ns, int64_t to_ns) const;

 private:
  std::vector<Product> products_;
};

// Whether rows tell prompts from steps that make tokens, by recorded ones: nearly all prompts have more rows than any
// of those steps, and nothing else runs the model.
class PromptsByRows {
 public:
  void add(StageKind kind, int64_t rows);
  // The most rows of a step that makes tokens, -1 where none has any; nothing where rows do not tell.
  std::optional<int64_t> most_of_tokens() const;
  // Of a pass on so many rows; nothing where it cannot be said.
  std::optional<StageKind> kind_of(int64_t rows) const;

 private:
  int64_t most_of_tokens_ = -1;
  size_t tokens_ = 0;
  std::vector<int64_t> of_prompts_;
  bool others_ = false;
};

// Prompts and decode steps in unrecorded time, of ranges whose words do not tell them apart ("pass"): by the rows of
// products inside, where those of recorded ranges of the same text do (PromptsByRows). One without a graph or a product
// of an output layer, which all of these have, makes no token. Call when recorded steps have their kinds.
void settle_by_product_rows(const Trace& trace, std::vector<StepDraft>& steps);

}  // namespace llmprof
