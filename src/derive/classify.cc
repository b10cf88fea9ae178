// Categories of GPU activities. Rules are tried once per distinct (kernel name, operators around the launch, facts
// about the inputs): the hot loop is two table look-ups per activity.
#include <algorithm>
#include <vector>

#include "base/flat_index.h"
#include "derive/derive.h"
#include "derive/kernel_rules.h"

namespace llmprof {
namespace {

constexpr uint32_t kUnset = 0xFFFFFFFFU;

class Classifier {
 public:
  explicit Classifier(Trace& trace)
      : trace_(trace), chain_of_op_(trace.ops.size(), kUnset), facts_of_signature_(trace.signatures.size(), kUnset) {
    chains_.push_back({});  // chain 0: launched outside every operator
    chains_[0].fitting = rules_for_any_operator();
    facts_.push_back({});
    facts_[0].set(static_cast<size_t>(InputFact::kAny));
  }

  void run() {
    const GpuOps& gpu_ops = trace_.gpu_ops;
    std::vector<Category>& category = trace_.gpu_links.category;
    category.assign(gpu_ops.size(), Category::kOther);
    for (size_t i = 0; i < gpu_ops.size(); ++i) {
      if (gpu_ops.kind[i] != GpuOpKind::kKernel) {
        category[i] = Category::kCopy;
        continue;
      }
      const OpId op = trace_.gpu_links.op[i];
      const uint32_t chain = op == kNoRow ? 0 : chain_of(op);
      const uint32_t facts = op == kNoRow || !chains_[chain].wants_facts ? 0 : facts_of(op);
      const uint64_t context = (static_cast<uint64_t>(chain) << 8 | facts) + 1;
      const uint32_t context_id = contexts_.find_or_insert(context, static_cast<uint32_t>(contexts_.size()));
      const uint64_t key = (static_cast<uint64_t>(context_id) + 1) << 32 | index(gpu_ops.name[i]);
      uint32_t& found = categories_.find_or_insert(key, kUnset);
      if (found == kUnset) found = static_cast<uint32_t>(decide(gpu_ops.name[i], chain, facts));
      category[i] = static_cast<Category>(found);
    }
  }

 private:
  // A distinct sequence of operator names from the innermost outwards.
  struct Chain {
    uint32_t outer = 0;
    StringId name = StringId::kEmpty;
    RuleSet fitting;           // rules that the operators allow
    bool wants_facts = false;  // one of them asks for a fact
  };

  // Chains are shared by all calls with the same operators; each operator is visited once.
  uint32_t chain_of(OpId op) {
    path_.clear();
    Row at = op;
    while (at != kNoRow && chain_of_op_[at] == kUnset) {
      path_.push_back(at);
      at = trace_.op_links.parent[at];
    }
    uint32_t chain = at == kNoRow ? 0 : chain_of_op_[at];
    for (size_t i = path_.size(); i-- > 0;) {
      chain = extend(chain, trace_.ops.name[path_[i]]);
      chain_of_op_[path_[i]] = chain;
    }
    return chain;
  }

  uint32_t extend(uint32_t outer, StringId name) {
    const uint64_t key = (static_cast<uint64_t>(outer) + 1) << 32 | index(name);
    uint32_t& found = chain_ids_.find_or_insert(key, kUnset);
    if (found != kUnset) return found;
    found = static_cast<uint32_t>(chains_.size());
    Chain chain;
    chain.outer = outer;
    chain.name = name;
    chain.fitting = rules_for_any_operator() | operator_rules(name);
    uint32_t at = outer;
    for (int depth = 1; at != 0 && depth < kMaxOperatorDepth; ++depth, at = chains_[at].outer) {
      chain.fitting |= operator_rules(chains_[at].name);
    }
    for (size_t i = chain.fitting._Find_first(); i < kernel_rules().size(); i = chain.fitting._Find_next(i)) {
      chain.wants_facts |= kernel_rules()[i].fact != InputFact::kAny;
    }
    chains_.push_back(chain);
    return found;
  }

  const RuleSet& operator_rules(StringId name) {
    uint32_t& found = operator_ids_.find_or_insert(static_cast<uint64_t>(index(name)) + 1, kUnset);
    if (found == kUnset) {
      found = static_cast<uint32_t>(operator_rules_.size());
      operator_rules_.push_back(rules_for_operator(trace_.text(name)));
    }
    return operator_rules_[found];
  }

  // Row in facts_ for the inputs of an operator. There are few distinct sets of facts: kMaxFactSets bounds them so that
  // they fit the key; beyond it (not reached by any rule set so far) inputs count as not recorded.
  uint32_t facts_of(OpId op) {
    constexpr size_t kMaxFactSets = 255;
    const SignatureId signature = trace_.ops.signature[op];
    if (signature >= facts_of_signature_.size()) return 0;
    uint32_t& known = facts_of_signature_[signature];
    if (known != kUnset) return known;
    known = 0;
    const InputFacts facts = input_facts(SignatureShapes(trace_, signature));
    const std::vector<InputFacts>::iterator place = std::find(facts_.begin(), facts_.end(), facts);
    if (place == facts_.end() && facts_.size() >= kMaxFactSets) return known;
    known = static_cast<uint32_t>(place - facts_.begin());
    if (place == facts_.end()) facts_.push_back(facts);
    return known;
  }

  Category decide(StringId kernel, uint32_t chain, uint32_t facts) {
    uint32_t& found = kernel_ids_.find_or_insert(static_cast<uint64_t>(index(kernel)) + 1, kUnset);
    if (found == kUnset) {
      found = static_cast<uint32_t>(kernel_rules_.size());
      kernel_rules_.push_back(rules_for_kernel(trace_.text(kernel)));
    }
    const int rule = first_rule(kernel_rules_[found] & chains_[chain].fitting, facts_[facts]);
    return rule < 0 ? Category::kOther : kernel_rules()[static_cast<size_t>(rule)].category;
  }

  Trace& trace_;
  std::vector<uint32_t> chain_of_op_;
  std::vector<uint32_t> facts_of_signature_;
  std::vector<Row> path_;
  std::vector<Chain> chains_;
  std::vector<InputFacts> facts_;
  std::vector<RuleSet> operator_rules_;
  std::vector<RuleSet> kernel_rules_;
  FlatMap chain_ids_, operator_ids_, kernel_ids_, contexts_, categories_;
};

}  // namespace

void classify_gpu_ops(Trace& trace) { Classifier(trace).run(); }

}  // namespace llmprof
