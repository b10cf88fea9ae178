// What arithmetic an operator does, told by its name and the shapes of its inputs. The rules are data: a name, the
// kind of formula, and which input is which. The formulas are in work_formulas.h.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "trace/tables.h"

namespace llmprof {

// How inputs become a Works row. Letters are dimensions; [..., k] means any leading dimensions.
enum class OpRuleKind : uint8_t {
  kMm,                   // a[m,k] b[k,n]
  kLinear,               // a[...,k] b[n,k]
  kInt4Linear,           // a[m,k] b[n/8,...] packed 4-bit weights
  kBmm,                  // a[batch,m,k] b[batch,k,n]
  kMatmul,               // a[...,m,k] b[...,k,n] with broadcasting, vectors allowed
  kMv,                   // a[n,k] b[k]: the matrix is the weight, one row of activation
  kGroupedMm,            // a[m,k] b[experts,k,n]: each row meets one expert
  kConvolution,          // a[N,C,...] b[O,C/groups,...]
  kAttention,            // a = q[B,heads,S,d], b = k[B,kv_heads,n,d], c = v[B,kv_heads,n,dv]
  kAttentionTokenFirst,  // a = q[B,S,heads,d], b = k[B,n,kv_heads,d], c = v; packed [T,heads,d] where cu is given
  kAttentionOpaque,      // keys live in a cache that the inputs do not describe: no figure can be given
  kGatherRows,           // rows of a along dimension `dim`, as many as b has elements
  kGatherElements,       // as many elements of a as b has
  kPointwise,            // reads every tensor input, writes their broadcast; 1 FLOP per element written
  kCompare,              // the same, writes booleans
  kMove,                 // reads and writes as the masks say, no arithmetic
  kScatter,              // reads as the mask says and writes the same amount into a larger tensor
  kInPlace,              // reads and writes as the masks say, 1 FLOP per element written
  kReduce,               // reads a, writes a without the dimensions `dim`; 1 FLOP per element read
  kRowwise,              // reads every tensor input, writes the size of a; 1 FLOP per element read
  kConcat,               // reads and writes every tensor of list a
  kCount
};
std::string_view op_rule_kind_name(OpRuleKind kind);

// Positions count inputs from 0 as the operator's schema does; -1 where the rule has no such input.
struct OpRule {
  std::string_view name;  // exact name of the operator; a '*' at the end matches any rest
  OpRuleKind kind = OpRuleKind::kPointwise;
  int8_t a = 0;
  int8_t b = 1;
  int8_t c = 2;
  int8_t bias = -1;      // extra input that is read once
  int8_t out_type = -1;  // scalar input with the ScalarType of the result
  int8_t causal = -1;    // attention: scalar input; a number other than 0 also asks for the mask
  int8_t mask = -1;      // attention: tensor input
  int8_t window = -1;    // attention: scalar input, keys left of the query that it sees; negative: all
  int8_t cu = -1;        // attention: tensor of cumulative lengths; the longest lengths are two inputs later
  int8_t dim = -1;       // scalar input with the dimension or dimensions
  int8_t stride = -1;    // convolution: lists of integers
  int8_t padding = -1;
  int8_t dilation = -1;
  int8_t transposed = -1;          // convolution: boolean; transposed ones get no figure
  uint16_t reads = 0;              // bit i: input i is read
  uint16_t writes = 0;             // bit i: input i is written; GEMM: the input that receives the result
  DType result = DType::kUnknown;  // element type of the result where it is fixed
};

// Every rule, in the order in which names are compared. `llmprof list rules` prints it.
std::span<const OpRule> op_rules();

// The rule for an operator, or null.
const OpRule* find_op_rule(std::string_view operator_name);

// The kind of Works row that a rule makes.
WorkKind work_kind_of(OpRuleKind kind);

// True for the kinds whose FLOPs make up a model's FLOPs: multiply-adds of GEMM, attention and convolution. Sums that
// are compared with formulas or used for MFU leave the others out.
constexpr bool is_matrix_work(WorkKind kind) {
  return kind == WorkKind::kGemm || kind == WorkKind::kAttention || kind == WorkKind::kConvolution;
}

}  // namespace llmprof
