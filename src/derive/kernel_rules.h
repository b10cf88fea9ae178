// What a GPU activity is for, told by the names of its kernel and of the operators that launched it. The rules are
// data, tried in order, and the first that fits wins; an activity that none fits is Category::kOther, so the time of
// kOther is exactly the time that no rule names. Copies and memsets are Category::kCopy by kind and need no rule.
//
// Patterns are compared without case. '|' separates alternatives; '^' at the start of one anchors it to the start of
// the name, '$' at its end to the end; '*' inside one stands for any characters. An empty pattern fits everything.
#pragma once

#include <array>
#include <bitset>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "trace/signature.h"

namespace llmprof {

// What a rule may ask of the inputs of the innermost operator. PyTorch's generic kernels take their meaning from it.
enum class InputFact : uint8_t {
  kAny,
  kJoinsHalves,    // joins equal tensors along the last dimension of at most 256: the two halves of rotated heads
  kGrowsSequence,  // joins 4-D tensors along the second last dimension: keys or values and the new tokens
  kScalesRows,     // two tensors, equal but for a last dimension of 1 in one: a factor per token
  kScalesColumns,  // a vector as long as the other tensor's last dimension: a weight per feature
  kOnePerRow,      // one tensor with a last dimension of 1
  kPerHead,        // two 4-D tensors, equal but for 1 in the head dimension of one: cos and sin for every head
  kVocabulary,     // at most 3-D with a last dimension of 8192 or more: logits
  kRouter,         // 2-D with a last dimension from 2 to 1024: scores of experts
  kCacheRows,      // first tensor 3-D or more: a cache of keys or values
  kCount
};
std::string_view input_fact_name(InputFact fact);
using InputFacts = std::bitset<static_cast<size_t>(InputFact::kCount)>;
// Every fact that holds; kAny always does.
InputFacts input_facts(const SignatureShapes& shapes);

struct KernelRule {
  Category category;
  std::string_view kernel;     // pattern for the kernel's name
  std::string_view operators;  // pattern for any of the operators around the launch, innermost kMaxOperatorDepth
  InputFact fact;
  std::string_view why;  // where such kernels come from
};
constexpr int kMaxOperatorDepth = 16;

// Every rule in order. `llmprof list rules` prints it.
std::span<const KernelRule> kernel_rules();
constexpr size_t kMaxKernelRules = 192;
using RuleSet = std::bitset<kMaxKernelRules>;

// Rules whose kernel pattern fits a kernel's name; rules whose operator pattern fits an operator's name (rules without
// an operator pattern are left out there: they fit whatever the operators are).
RuleSet rules_for_kernel(std::string_view kernel_name);
RuleSet rules_for_operator(std::string_view operator_name);
// Rules without an operator pattern.
const RuleSet& rules_for_any_operator();
// The first rule in `fitting` whose fact holds, as an index into kernel_rules(), or -1.
int first_rule(const RuleSet& fitting, const InputFacts& facts);

// Kernels that finish another kernel's arithmetic (split-K sums, merges of split attention). They never carry work.
bool is_auxiliary_kernel(std::string_view kernel_name);

// Whether `name` fits `pattern` as described above; `lower_name` is in lower case already.
bool fits(std::string_view pattern, std::string_view lower_name);

// ---- honesty about the rules -------------------------------------------------------------------------------------

struct UnnamedKernel {
  StringId name;
  int64_t time_ns = 0;
  int64_t count = 0;
};
struct UnnamedTime {
  int64_t total_ns = 0;            // sum of the durations of all GPU activities
  int64_t unnamed_ns = 0;          // of those in Category::kOther
  double unnamed_frac = 0;         // 0 if there is no GPU activity
  std::vector<UnnamedKernel> top;  // longest first
};
// Which part of the GPU time no rule names, and the kernels with most of it. Needs classify_gpu_ops().
UnnamedTime unnamed_gpu_time(const Trace& trace, size_t top_count = 10);

}  // namespace llmprof
