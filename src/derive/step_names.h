// What the text of a range says about one run of the model. Servers write the composition of each step into the name
// of the range around it; the formats read here are those of vLLM (execute_*context_*generation_*), SGLang
// (step[MODE bs=.. toks=..]), ATOM-style decode[bs=.. tok=..] and TensorRT-LLM (.. ctx reqs, .. gen reqs). Any other
// text is judged by its words. Counts that the text does not hold are -1, never 0.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "trace/tables.h"

namespace llmprof {

struct StepName {
  StageKind kind = StageKind::kOther;
  std::string stage;               // name to group by: the kind, the server's mode, or the text without its counter
  bool one_step = false;           // a server's step format: the range is exactly one run of the model
  bool says_step = false;          // the text calls itself a step: "decode_step", not "decode" or "decode_steps"
  bool recurs = false;             // known to be steps because they recur (recurring_ranges.h); shapes decide the kind
  bool holds_known_steps = false;  // of those: they hold steps that detection knows by more than their period
  bool by_rule = false;            // the user said so
  int64_t new_tokens = -1;         // tokens the model ran on, all sequences together
  int64_t sequences = -1;          // requests in the step
  int64_t output_tokens = -1;      // known for pure decode steps; a prompt chunk may or may not end its prompt
  int64_t context = -1;            // longest context; known from sums only where there is one request
  int64_t attended = -1;           // contexts of all requests together, for steps of one phase
  int64_t context_tokens = -1;     // prompt tokens among new_tokens
};

// The exact formats of servers. No value if the text is none of them.
std::optional<StepName> parse_server_step(std::string_view text);

// Judges the words of a text: prefill, context, extend, first token -> prefill; decode, generation, token step ->
// decode; mixed; vision, visual, image, vit, patch, preprocess, tokenize -> vision, the kind of all that comes before a
// prompt. Names that frameworks give to their own
// ranges (optimizer, collectives, compiled regions, phases inside a step) are never stages.
std::optional<StepName> parse_stage_words(std::string_view text);

// Whether the program may have named a step so: frameworks and operators ("aten::mm, seq = 3") name ranges of their
// own.
bool may_name_step(std::string_view text);

// What steps are called whose ranges have such a text: without its numbers. "embed 12 x 64" is "embed".
std::string stage_of_text(std::string_view text);

// parse_server_step, else parse_stage_words.
std::optional<StepName> parse_step_name(std::string_view text);

// The kind that a stage name asks for: its words, anything else is kOther.
StageKind stage_kind_of(std::string_view name);

}  // namespace llmprof
