// Where a thread was in its Python program during long host code between two CUDA calls (host_places of kind
// host-code). A recording has samples of that (kind code-sample), or only the stack of the call behind the code: the
// function that did the work has returned by then, so that stack names whoever called it.
#pragma once

#include <cstdint>
#include <string_view>
#include <unordered_map>

#include "trace/trace.h"

namespace llmprof {

struct CodePlace {
  StringId stack = StringId::kEmpty;
  uint32_t from = 0;     // where in the stack's text the innermost function begins: the ones before it are left out
  bool sampled = false;  // false: the stack of the call behind it
  std::string_view text(const Trace& trace) const { return trace.text(stack).substr(from); }
};

class CodePlaces {
 public:
  explicit CodePlaces(const Trace& trace);
  // Of a row of host_places with host code: the innermost functions that most of its samples share, by the time they
  // stand for; without samples what most of the same thread's code before the same call shares; else the call behind
  // it. Equal texts have equal stacks and beginnings.
  CodePlace of(Row row) const;

 private:
  const HostPlaces& places_;
  std::unordered_map<Row, CodePlace> sampled_;
};

}  // namespace llmprof
