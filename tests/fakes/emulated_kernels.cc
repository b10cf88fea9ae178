#include "emulated_kernels.h"

#include <ucontext.h>

#include <map>
#include <memory>
#include <tuple>
#include <utility>
#include <vector>

#include "device/elements.h"

u16 bf16_of(float v) { return llmprof::device::to_bf16(v); }
u16 fp16_of(float v) { return llmprof::device::to_fp16(v); }
float of_fp16(u16 v) { return llmprof::device::from_fp16(v); }
float of_bf16(u16 v) { return llmprof::device::from_bf16(v); }

#include "kernels/cuda/source/common.cuh"

namespace kernels_fill {
#include "kernels/cuda/source/fill.cu"
}
namespace kernels_product {
#include "kernels/cuda/source/product.cu"
}
namespace kernels_few_rows {
#include "kernels/cuda/source/few_rows.cu"
}
namespace kernels_routing {
#include "kernels/cuda/source/routing.cu"
}
namespace kernels_timing {
#include "kernels/cuda/source/timing.cu"
}
#define UNROLL 2
namespace kernels_memory_2 {
#include "kernels/cuda/source/memory.cu"
}
#include "emulated_undef.h"
#define UNROLL 4
namespace kernels_memory_4 {
#include "kernels/cuda/source/memory.cu"
}
#include "emulated_undef.h"
#define UNROLL 8
namespace kernels_memory_8 {
#include "kernels/cuda/source/memory.cu"
}
#include "emulated_undef.h"
namespace kernels_attention {
#include "kernels/cuda/source/attention_decode.cu"
}
namespace kernels_prompt {
#include "kernels/cuda/source/attention.cu"
}
namespace kernels_exact {
#include "kernels/cuda/source/rows_exact.cu"
}
#include "emulated_undef.h"

namespace kernels_workload_attention {
#include "kernels/cuda/source/workload_attention.cu"
}

#define T Bf16
#include "emulated_type.h"
#undef T
#define T Fp16
#include "emulated_type.h"
#undef T
#define T Fp32
#include "emulated_type.h"
#undef T

// registers.cu is inline PTX throughout. These keep what it promises: sums that grow by the same each time.
namespace kernels_registers {
static void registers(u32 iterations, float* out) {
  const u32 thread = blockIdx.x * blockDim.x + threadIdx.x;
  out[thread] = static_cast<float>(iterations) * (1.0f + static_cast<float>(thread % 7));
}
static void registers_of_groups(u32 iterations, float* out) { registers(iterations, out); }
}  // namespace kernels_registers

namespace emulated {
namespace {

constexpr size_t kStackBytes = 64 << 10;

struct Fragments {
  u32 a[4], b[2];
};
constexpr size_t kSharedBytes = 227 << 10;
alignas(16) char shared_memory[kSharedBytes];

struct Fiber {
  ucontext_t context{};
  std::unique_ptr<char[]> stack = std::make_unique<char[]>(kStackBytes);
  Index3 thread;
  bool done = true;
  int waits_for = 0;  // 0 runs, 1 the block, 2 the warp
};

struct Block {
  std::vector<Fiber> fibers;
  ucontext_t scheduler{};
  size_t current = 0, size = 0;
  Index3 index, dimensions, grid;
  std::vector<u32> exchange;
  std::vector<Fragments> fragments;
  std::vector<const Words*> rows;
  const std::function<void()>* work = nullptr;
};
Block block;
u64 now_ns = 0, now_cycles = 0;
int sm_count = 1;

void enter() {
  (*block.work)();
  block.fibers[block.current].done = true;
  // Falls back to the scheduler through uc_link.
}

void wait_for(int what) {
  Fiber& fiber = block.fibers[block.current];
  fiber.waits_for = what;
  swapcontext(&fiber.context, &block.scheduler);
}

// Lets go of all threads of [first, last) if every one that still runs waits for `what`.
void release(size_t first, size_t last, int what) {
  for (size_t i = first; i < last; ++i)
    if (!block.fibers[i].done && block.fibers[i].waits_for != what) return;
  for (size_t i = first; i < last; ++i) block.fibers[i].waits_for = 0;
}

void run_block() {
  size_t left = block.size;
  for (size_t i = 0; i < block.size; ++i) {
    Fiber& fiber = block.fibers[i];
    fiber.done = false;
    fiber.waits_for = 0;
    fiber.thread = {static_cast<unsigned>(i), 0, 0};
    getcontext(&fiber.context);
    fiber.context.uc_stack.ss_sp = fiber.stack.get();
    fiber.context.uc_stack.ss_size = kStackBytes;
    fiber.context.uc_link = &block.scheduler;
    makecontext(&fiber.context, enter, 0);
  }
  while (left > 0) {
    for (size_t i = 0; i < block.size; ++i) {
      Fiber& fiber = block.fibers[i];
      if (fiber.done || fiber.waits_for != 0) continue;
      block.current = i;
      swapcontext(&block.scheduler, &fiber.context);
      if (fiber.done) --left;
    }
    for (size_t warp = 0; warp < block.size; warp += 32) release(warp, std::min(warp + 32, block.size), 2);
    release(0, block.size, 1);
  }
}

template <class... Parameters>
Launch bind(void (*kernel)(Parameters...)) {
  return [kernel](void** parameters) -> std::function<void()> {
    size_t i = 0;
    // Braces: read in order.
    std::tuple<Parameters...> values{*static_cast<Parameters*>(parameters[i++])...};
    return [kernel, values] { std::apply(kernel, values); };
  };
}

std::map<std::pair<std::string, std::string>, Launch> make_table() {
  std::map<std::pair<std::string, std::string>, Launch> table;
#define EMULATE(source, space, name) table[{source, #name}] = bind(space::name);
  EMULATE("fill.cu", kernels_fill, fill_fp64)
  EMULATE("fill.cu", kernels_fill, fill_fp32)
  EMULATE("fill.cu", kernels_fill, fill_bf16)
  EMULATE("fill.cu", kernels_fill, fill_fp16)
  EMULATE("fill.cu", kernels_fill, fill_fp8)
  EMULATE("fill.cu", kernels_fill, fill_int8)
  EMULATE("fill.cu", kernels_fill, fill_index)
  EMULATE("fill.cu", kernels_fill, fill_scaled_fp32)
  EMULATE("fill.cu", kernels_fill, fill_scaled_bf16)
  EMULATE("product.cu", kernels_product, scale_sums_int32)
  EMULATE("product.cu", kernels_product, scale_sums_fp32)
  EMULATE("timing.cu", kernels_timing, stamp)
  EMULATE("timing.cu", kernels_timing, flush_read)
  EMULATE("timing.cu", kernels_timing, empty)
#define EMULATE_MEMORY(unroll)                                                \
  EMULATE("memory.cu UNROLL=" #unroll, kernels_memory_##unroll, memory_read)  \
  EMULATE("memory.cu UNROLL=" #unroll, kernels_memory_##unroll, memory_write) \
  EMULATE("memory.cu UNROLL=" #unroll, kernels_memory_##unroll, memory_copy)  \
  EMULATE("memory.cu UNROLL=" #unroll, kernels_memory_##unroll, memory_triad)
  for (const char* kind : {"Fp64Mma", "Fp32Fma", "Tf32Mma", "Fp16Mma", "Bf16Mma", "Fp8Mma", "Int8Mma"})
    EMULATE(std::string("registers.cu KIND=") + kind, kernels_registers, registers)
  for (const char* group : {"Tf32Group", "Fp16Group", "Bf16Group", "Fp8Group", "Int8Group"})
    EMULATE(std::string("registers.cu GROUP=") + group, kernels_registers, registers_of_groups)
  EMULATE_MEMORY(2)
  EMULATE_MEMORY(4)
  EMULATE_MEMORY(8)
#define EMULATE_ROWS(type, items)                                                               \
  EMULATE("rows.cu T=" #type " ITEMS=" #items, kernels_rows_##type##_##items, rmsnorm)          \
  EMULATE("rows.cu T=" #type " ITEMS=" #items, kernels_rows_##type##_##items, rmsnorm_residual) \
  EMULATE("rows.cu T=" #type " ITEMS=" #items, kernels_rows_##type##_##items, layernorm_gelu)   \
  EMULATE("rows.cu T=" #type " ITEMS=" #items, kernels_rows_##type##_##items, softmax)          \
  EMULATE("rows.cu T=" #type " ITEMS=" #items, kernels_rows_##type##_##items, softmax_long)     \
  EMULATE("rows.cu T=" #type " ITEMS=" #items, kernels_rows_##type##_##items, quantise)
// Only these lengths of rows. How many blocks an SM is to hold is no matter here.
#define EMULATE_EXACT(type, items, threads, rows, shared, blocks)                                         \
  table[{"rows_exact.cu T=" #type " ITEMS=" #items " THREADS=" #threads " ROWS=" #rows " SHARED=" #shared \
         " MIN_BLOCKS=" #blocks,                                                                          \
         "layernorm_gelu_exact"}] = bind(kernels_exact::ExactRows<type, items, threads, rows, shared != 0>::run);
#define EMULATE_EXACT_TYPE(type)       \
  EMULATE_EXACT(type, 8, 32, 1, 0, 20) \
  EMULATE_EXACT(type, 8, 32, 1, 0, 28) \
  EMULATE_EXACT(type, 8, 32, 1, 1, 20) \
  EMULATE_EXACT(type, 8, 32, 2, 0, 16) \
  EMULATE_EXACT(type, 8, 96, 1, 0, 6)  \
  EMULATE_EXACT(type, 8, 96, 1, 0, 9)  \
  EMULATE_EXACT(type, 8, 96, 1, 1, 6)  \
  EMULATE_EXACT(type, 8, 96, 2, 0, 5)  \
  EMULATE_EXACT(type, 8, 128, 1, 0, 5) \
  EMULATE_EXACT(type, 8, 128, 1, 0, 7) \
  EMULATE_EXACT(type, 8, 128, 1, 1, 5) \
  EMULATE_EXACT(type, 8, 128, 2, 0, 4) \
  EMULATE_EXACT(type, 4, 32, 1, 0, 32) \
  EMULATE_EXACT(type, 4, 64, 1, 0, 16) \
  EMULATE_EXACT(type, 4, 192, 1, 0, 5) \
  EMULATE_EXACT(type, 4, 256, 1, 0, 4) \
  EMULATE_EXACT(type, 2, 96, 1, 0, 13)
  EMULATE_EXACT_TYPE(Bf16)
  EMULATE_EXACT_TYPE(Fp16)
#define EMULATE_TYPE(type)                                                    \
  EMULATE("elementwise.cu T=" #type, kernels_elementwise_##type, swiglu)      \
  EMULATE("elementwise.cu T=" #type, kernels_elementwise_##type, rope)        \
  EMULATE("elementwise.cu T=" #type, kernels_elementwise_##type, gather)      \
  EMULATE("elementwise.cu T=" #type, kernels_elementwise_##type, dequantise)  \
  EMULATE("elementwise.cu T=" #type, kernels_elementwise_##type, scatter_two) \
  EMULATE("sampling.cu T=" #type, kernels_sampling_##type, sample_greedy)     \
  EMULATE("sampling.cu T=" #type, kernels_sampling_##type, sample_top)        \
  EMULATE_ROWS(type, 1)                                                       \
  EMULATE_ROWS(type, 2)                                                       \
  EMULATE_ROWS(type, 4)
  EMULATE_TYPE(Bf16)
  EMULATE_TYPE(Fp16)
  EMULATE_TYPE(Fp32)
#define EMULATE_WORKLOAD(type)                                               \
  EMULATE("workload.cu T=" #type, kernels_workload_##type, add_into)         \
  EMULATE("workload.cu T=" #type, kernels_workload_##type, gelu)             \
  EMULATE("workload.cu T=" #type, kernels_workload_##type, layernorm)        \
  EMULATE("workload.cu T=" #type, kernels_workload_##type, rotary_positions) \
  EMULATE("workload.cu T=" #type, kernels_workload_##type, store_kv_cache)   \
  EMULATE("workload.cu T=" #type, kernels_workload_##type, merge_patches)    \
  EMULATE("workload.cu T=" #type, kernels_workload_##type, advance)
  EMULATE_WORKLOAD(Bf16)
  EMULATE_WORKLOAD(Fp32)
#define EMULATE_ATTEND(type, head)                                        \
  table[{"workload_attention.cu T=" #type " HEAD=" #head, "attention"}] = \
      bind(kernels_workload_attention::attend_as<type, head>);
#define EMULATE_ATTEND_TYPE(type) \
  EMULATE_ATTEND(type, 16)        \
  EMULATE_ATTEND(type, 32)        \
  EMULATE_ATTEND(type, 64)        \
  EMULATE_ATTEND(type, 128)
  EMULATE_ATTEND_TYPE(Bf16)
  EMULATE_ATTEND_TYPE(Fp32)
#define EMULATE_ROUTING(type, each)                                                                                   \
  table[{"routing.cu T=" #type " LANES_EACH=" #each, "route_top"}] = bind(kernels_routing::route_top_as<type, each>); \
  table[{"routing.cu T=" #type " LANES_EACH=" #each, "route_few"}] = bind(kernels_routing::route_few_as<type, each>); \
  table[{"routing.cu T=" #type " LANES_EACH=" #each, "route_offsets"}] = bind(kernels_routing::route_offsets_as);     \
  table[{"routing.cu T=" #type " LANES_EACH=" #each, "route_order"}] = bind(kernels_routing::route_order_as);
#define EMULATE_ROUTING_TYPE(type) \
  EMULATE_ROUTING(type, 1)         \
  EMULATE_ROUTING(type, 4)         \
  EMULATE_ROUTING(type, 32)
  EMULATE_ROUTING_TYPE(Bf16)
  EMULATE_ROUTING_TYPE(Fp16)
  EMULATE_ROUTING_TYPE(Fp32)
#define EMULATE_DECODE(type, head, rows, stages, paged)                                                    \
  table[{"attention_decode.cu T=" #type " HEAD=" #head " ROWS=" #rows " STAGES=" #stages " PAGED=" #paged, \
         "attention_decode"}] = bind(kernels_attention::attention_decode_as<type, head, rows, stages, paged != 0>);
#define EMULATE_DECODE_STAGES(type, head, rows, paged) \
  EMULATE_DECODE(type, head, rows, 1, paged)           \
  EMULATE_DECODE(type, head, rows, 2, paged)           \
  EMULATE_DECODE(type, head, rows, 3, paged)
#define EMULATE_DECODE_HEAD(type, head)    \
  EMULATE_DECODE_STAGES(type, head, 8, 0)  \
  EMULATE_DECODE_STAGES(type, head, 8, 1)  \
  EMULATE_DECODE_STAGES(type, head, 16, 0) \
  EMULATE_DECODE_STAGES(type, head, 16, 1)
  EMULATE_DECODE_HEAD(Bf16, 64)
  EMULATE_DECODE_HEAD(Bf16, 128)
  EMULATE_DECODE_HEAD(Bf16, 256)
  EMULATE_DECODE_HEAD(Fp16, 64)
  EMULATE_DECODE_HEAD(Fp16, 128)
  EMULATE_DECODE_HEAD(Fp16, 256)
#define EMULATE_PROMPT(type, head, rows, keys, warps)                                                           \
  table[{"attention.cu T=" #type " HEAD=" #head " ROWS=" #rows " KEYS=" #keys " WARPS=" #warps, "attention"}] = \
      bind(kernels_prompt::PromptTile<type, head, rows, keys, warps>::run);
#define EMULATE_PROMPTS(type)          \
  EMULATE_PROMPT(type, 64, 32, 64, 4)  \
  EMULATE_PROMPT(type, 64, 16, 64, 8)  \
  EMULATE_PROMPT(type, 128, 32, 64, 4) \
  EMULATE_PROMPT(type, 128, 32, 32, 4) \
  EMULATE_PROMPT(type, 128, 16, 64, 8) \
  EMULATE_PROMPT(type, 256, 16, 32, 4) \
  EMULATE_PROMPT(type, 256, 16, 64, 8)
  EMULATE_PROMPTS(Bf16)
  EMULATE_PROMPTS(Fp16)
#define EMULATE_FEW_ROWS(type, groups, tiles, ahead)                                                 \
  table[{"few_rows.cu T=" #type " GROUPS=" #groups " TILES=" #tiles " AHEAD=" #ahead, "few_rows"}] = \
      bind(kernels_few_rows::few_rows_as<type, groups, tiles, ahead>);
#define EMULATE_FEW_ROWS_TYPE(type) \
  EMULATE_FEW_ROWS(type, 1, 1, 4)   \
  EMULATE_FEW_ROWS(type, 1, 1, 8)   \
  EMULATE_FEW_ROWS(type, 1, 2, 4)   \
  EMULATE_FEW_ROWS(type, 2, 1, 4)   \
  EMULATE_FEW_ROWS(type, 2, 1, 6)   \
  EMULATE_FEW_ROWS(type, 2, 2, 3)
  EMULATE_FEW_ROWS_TYPE(Bf16)
  EMULATE_FEW_ROWS_TYPE(Fp16)
  return table;
}

}  // namespace

Index3& thread_index() { return block.fibers[block.current].thread; }
Index3& block_index() { return block.index; }
Index3& block_size() { return block.dimensions; }
Index3& grid_size() { return block.grid; }
void block_barrier() { wait_for(1); }
void warp_barrier() { wait_for(2); }
u32 shuffle_xor_bits(u32 value, int lanes) {
  block.exchange[block.current] = value;
  wait_for(2);
  const u32 other = block.exchange[block.current ^ static_cast<size_t>(lanes)];
  wait_for(2);
  return other;
}
void mma(float* c, const u32 (&a)[4], const u32 (&b)[2], float (*number)(u16)) {
  const size_t lane = block.current % 32, warp = block.current - lane;
  Fragments& mine = block.fragments[block.current];
  std::copy(a, a + 4, mine.a);
  std::copy(b, b + 2, mine.b);
  wait_for(2);
  const auto half = [&](u32 word, size_t k) { return number(static_cast<u16>(k % 2 == 0 ? word : word >> 16)); };
  // Elements k and k + 8 of a row of a, or a column of b, lie in the same lane.
  for (size_t i = 0; i < 4; ++i) {
    const size_t row = lane / 4, column = lane % 4 * 2 + i % 2;
    for (size_t k = 0; k < 16; ++k) {
      const Fragments& left = block.fragments[warp + row * 4 + k % 8 / 2];
      const Fragments& right = block.fragments[warp + column * 4 + k % 8 / 2];
      c[i] += half(left.a[k / 8 * 2 + i / 2], k) * half(right.b[k / 8], k);
    }
  }
  wait_for(2);
}
void matrices(u32 (&m)[4], const Words* row, bool turned) {
  const size_t lane = block.current % 32, warp = block.current - lane;
  block.rows[block.current] = row;
  wait_for(2);
  for (size_t j = 0; j < 4; ++j) {
    const auto element = [&](size_t of_row, size_t column) {
      const u32 word = block.rows[warp + 8 * j + of_row]->w[column / 2];
      return column % 2 == 0 ? word & 0xffffu : word >> 16;
    };
    const size_t a = lane / 4, b = lane % 4 * 2;
    m[j] = turned ? element(b, a) | element(b + 1, a) << 16 : element(a, b) | element(a, b + 1) << 16;
  }
  wait_for(2);
}
Words* dynamic_shared() { return reinterpret_cast<Words*>(shared_memory); }
u64 time_ns() { return now_ns; }
u64 cycles() { return now_cycles; }
u32 sm() { return block.index.x % static_cast<u32>(sm_count); }
void set_time(u64 ns, u64 cycles, int sms) {
  now_ns = ns;
  now_cycles = cycles;
  sm_count = sms;
}

void run(Index3 grid, Index3 size, const std::function<void()>& thread) {
  block.size = size.x;
  block.dimensions = size;
  block.grid = grid;
  block.work = &thread;
  if (block.fibers.size() < block.size) block.fibers.resize(block.size);
  block.exchange.assign(block.size, 0);
  block.fragments.assign(block.size, {});
  block.rows.assign(block.size, nullptr);
  for (unsigned y = 0; y < grid.y; ++y) {
    for (unsigned x = 0; x < grid.x; ++x) {
      block.index = {x, y, 0};
      run_block();
    }
  }
}

Launch find_kernel(const std::string& source_and_macros, const std::string& name) {
  static const std::map<std::pair<std::string, std::string>, Launch> table = make_table();
  const auto found = table.find({source_and_macros, name});
  return found != table.end() ? found->second : Launch{};
}

}  // namespace emulated
