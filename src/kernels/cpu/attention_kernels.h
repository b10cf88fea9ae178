// Attention on the CPU, in the widths of row_kernels.h: out = softmax(scale q k^T) v with the sums of a running softmax
// in fp32, query heads in groups over key heads. Elements fp32 or bf16, heads of any size.
//
// Many queries: blocks of them (of all heads of a group) against 64 keys at a time, which are packed once for the
// block. Few: one pass over keys and values, in parts if there are fewer heads than threads.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "base/dtype.h"
#include "device/cpu/facts.h"
#include "device/cpu/team.h"

namespace llmprof::kernels::cpu {

// Where element 0 of head 0 of token 0 is, and how many elements later the next are.
struct HeadsAt {
  const void* data = nullptr;
  int64_t sequence = 0, head = 0, token = 0;
};

struct AttentionArrays {
  HeadsAt q, k, v, out;
  int64_t sequences = 0, heads = 0, kv_heads = 0, head_dim = 0;
  int64_t queries = 0, keys = 0;       // of each sequence
  bool causal = false;                 // query i sees keys up to keys - queries + i
  const int32_t* positions = nullptr;  // or: query i of sequence s sees keys up to positions[s * queries + i]
  // Keys and values in pages of `page_tokens`: page i of sequence s is table[s * pages + i], `sequence` of k and v is
  // from page to page.
  const int32_t* table = nullptr;
  int64_t page_tokens = 1, pages = 0;
  float scale = 1;
};

// How the work is cut up; AttentionRunner chooses it.
struct AttentionPlan {
  int64_t block_queries = 1;  // many queries: of a block
  int64_t splits = 1;         // few: parts of the keys
  float* parts = nullptr;     // of more than one split, as attention_part_floats says
};

struct AttentionKernels {
  std::string_view name;  // "own AVX-512"
  // Unit u of sequences * kv_heads * blocks.
  void (*many)(const AttentionArrays& arrays, const AttentionPlan& plan, int64_t unit, float* scratch);
  // Unit u of sequences * kv_heads * splits.
  void (*few)(const AttentionArrays& arrays, const AttentionPlan& plan, int64_t unit, float* scratch);
  // Joins the splits of unit u of sequences * kv_heads.
  void (*join)(const AttentionArrays& arrays, const AttentionPlan& plan, int64_t unit);
};
// Widest first. Of fp32 or bf16.
std::vector<AttentionKernels> attention_kernels(const device::cpu::Instructions& instructions, DType dtype);

// Runs kernels on a team, with memory of its own that is kept from one run to the next.
class AttentionRunner {
 public:
  AttentionRunner(const device::cpu::Team& team, const AttentionKernels& kernels) : team_(team), kernels_(kernels) {}
  void run(const AttentionArrays& arrays);

 private:
  const device::cpu::Team& team_;
  AttentionKernels kernels_;
  std::vector<float> scratch_, parts_;
};

}  // namespace llmprof::kernels::cpu
