// Operators that show tokens: the embedding of the vocabulary, and the choice of the next token from the logits.
#include <algorithm>
#include <array>

#include "derive/step_draft.h"
#include "trace/signature.h"

namespace llmprof {
namespace {

constexpr int64_t kVocabularyMin = 1000;  // rows wider than this are logits, not routing scores or masks

enum class OpRole : uint8_t { kUnjudged, kNone, kEmbedding, kSampling };

constexpr std::array<std::string_view, 4> kSamplingOps{"aten::argmax", "aten::multinomial", "aten::topk", "aten::sort"};

OpRole role_of(std::string_view name) {
  if (name == "aten::embedding") return OpRole::kEmbedding;
  return std::find(kSamplingOps.begin(), kSamplingOps.end(), name) != kSamplingOps.end() ? OpRole::kSampling
                                                                                         : OpRole::kNone;
}

// Elements of the leading `rank` dimensions.
int64_t leading(const Shape& shape, int rank) {
  int64_t value = 1;
  for (int i = 0; i < rank; ++i) value *= shape[i];  // a divisor of Shape::elements, which is bounded
  return value;
}

TokenEvent read_shape(const SignatureShapes& shapes, OpRole role) {
  TokenEvent event;
  const std::optional<Shape> first = shapes.tensor(0), second = shapes.tensor(1);
  if (!first || first->rank == 0) return event;
  if (role == OpRole::kEmbedding) {
    if (first->rank == 2) event.size = (*first)[0];
    if (second && second->elements > 0) {
      event.tokens = second->elements;
      if (second->rank == 2) event.sequences = (*second)[0];
    }
  } else {
    event.size = first->back(1);
    event.sequences = leading(*first, first->rank - 1);
  }
  return event;
}

// Keeps the events with the largest size; where no sizes are recorded, all of them.
void keep_largest(std::vector<TokenEvent>& events, int64_t at_least) {
  int64_t largest = -1;
  for (const TokenEvent& event : events) largest = std::max(largest, event.size);
  if (largest < 0) return;
  const bool none = largest < at_least;
  events.erase(std::remove_if(events.begin(), events.end(),
                              [&](const TokenEvent& event) { return none || event.size != largest; }),
               events.end());
}

}  // namespace

TokenEvents find_token_events(const Trace& trace) {
  TokenEvents events;
  std::vector<OpRole> roles(trace.strings.size(), OpRole::kUnjudged);
  std::vector<TokenEvent> known;
  std::vector<uint32_t> shape_of(trace.signatures.size() * 2, kNoRow);  // by signature and role
  for (size_t i = 0; i < trace.ops.size(); ++i) {
    const StringId name = trace.ops.name[i];
    OpRole& role = roles[index(name)];
    if (role == OpRole::kUnjudged) role = role_of(trace.text(name));
    if (role == OpRole::kNone) continue;
    TokenEvent event;
    const SignatureId signature = trace.ops.signature[i];
    if (signature < trace.signatures.size()) {
      uint32_t& slot = shape_of[signature * 2 + (role == OpRole::kSampling ? 1 : 0)];
      if (slot == kNoRow) {
        slot = static_cast<uint32_t>(known.size());
        known.push_back(read_shape(SignatureShapes(trace, signature), role));
      }
      event = known[slot];
    }
    event.start_ns = trace.ops.start_ns[i];
    event.end_ns = event.start_ns + trace.ops.dur_ns[i];
    event.thread = trace.ops.thread[i];
    (role == OpRole::kEmbedding ? events.embeddings : events.samplings).push_back(event);
  }
  keep_largest(events.embeddings, 0);
  keep_largest(events.samplings, kVocabularyMin);
  return events;
}

}  // namespace llmprof
