// The workload's operators on a GPU that is not there, against those of the CPU: the kernels' own text runs, on shapes
// that fit nothing evenly. bf16 is held against fp32 on the same rounded numbers.
#include <cmath>

#include "device/elements.h"
#include "device/fill.h"
#include "device_cuda_support.h"
#include "workload/cpu_backend.h"
#include "workload/cuda_backend.h"
#include "workload/model.h"
#include "workload/run.h"

namespace llmprof::workload {
namespace {

class WorkloadCuda : public device::cuda::FakeGpu, public testing::WithParamInterface<DType> {
 protected:
  void SetUp() override {
    device::cuda::FakeGpu::SetUp();
    Result<std::unique_ptr<Backend>> cpu = open_cpu_backend(2, DType::kFp32);
    if (!cpu) GTEST_SKIP() << cpu.error().text();
    cpu_ = std::move(*cpu);
    open_gpu(true);
  }
  void TearDown() override {
    gpu_.reset();
    device::cuda::FakeGpu::TearDown();
  }
  void open_gpu(bool graph) {
    gpu_.reset();
    Result<std::unique_ptr<device::cuda::CudaDevice>> device = device::cuda::CudaDevice::open(0);
    ASSERT_TRUE(device) << device.error().text();
    Result<std::unique_ptr<Backend>> gpu = open_cuda_backend(std::move(*device), GetParam(), graph);
    ASSERT_TRUE(gpu) << gpu.error().text();
    gpu_ = std::move(*gpu);
  }

  struct Both {
    Tensor gpu, cpu;
  };
  static Tensor must(const Result<Tensor>& made) {
    EXPECT_TRUE(made) << made.error().text();
    return made ? *made : Tensor();
  }
  // [-scale, scale), the same on both, as GetParam() can hold them.
  Both numbers(int64_t rows, int64_t columns, uint64_t seed, float scale = 2) {
    std::vector<float> values(static_cast<size_t>(rows * columns));
    for (size_t i = 0; i < values.size(); ++i)
      values[i] = scale * device::fill_uniform(device::fill_hash(seed, static_cast<uint64_t>(i)));
    return put(rows, columns, values);
  }
  Both put(int64_t rows, int64_t columns, std::vector<float> values) {
    const Both both = {must(gpu_->allocate(rows, columns, GetParam())),
                       must(cpu_->allocate(rows, columns, DType::kFp32))};
    if (GetParam() == DType::kBf16) {
      std::vector<uint16_t> halves;
      for (float& value : values) {
        halves.push_back(device::to_bf16(value));
        value = device::from_bf16(halves.back());
      }
      EXPECT_TRUE(gpu_->upload(both.gpu, halves.data()));
    } else {
      EXPECT_TRUE(gpu_->upload(both.gpu, values.data()));
    }
    EXPECT_TRUE(cpu_->upload(both.cpu, values.data()));
    return both;
  }
  Both integers(const std::vector<int32_t>& values) {
    const int64_t count = static_cast<int64_t>(values.size());
    const Both both = {must(gpu_->allocate(1, count, DType::kInt32)), must(cpu_->allocate(1, count, DType::kInt32))};
    EXPECT_TRUE(gpu_->upload(both.gpu, values.data()));
    EXPECT_TRUE(cpu_->upload(both.cpu, values.data()));
    return both;
  }
  // fp32 on both.
  Both table(int64_t rows, int64_t columns, const std::vector<float>& values) {
    const Both both = {must(gpu_->allocate(rows, columns, DType::kFp32)),
                       must(cpu_->allocate(rows, columns, DType::kFp32))};
    EXPECT_TRUE(gpu_->upload(both.gpu, values.data()));
    EXPECT_TRUE(cpu_->upload(both.cpu, values.data()));
    return both;
  }
  Both space(int64_t rows, int64_t columns) { return put(rows, columns, std::vector<float>(rows * columns, -7)); }

  static std::vector<double> read(Backend& backend, const Tensor& tensor) {
    std::vector<char> bytes(static_cast<size_t>(tensor.elements()) * static_cast<size_t>(dtype_bytes(tensor.dtype)));
    const Status done = backend.download(tensor, bytes.data());
    EXPECT_TRUE(done) << done.error().text();
    std::vector<double> values(static_cast<size_t>(tensor.elements()));
    device::elements_to_double(tensor.dtype, bytes.data(), values);
    return values;
  }
  // Off by so many roundings of an element, or of one of `floor` times the largest.
  void expect_same(const Both& both, double roundings = 1, double floor = 0.1) {
    const std::vector<double> found = read(*gpu_, both.gpu), expected = read(*cpu_, both.cpu);
    double largest = 0;
    for (const double value : expected) largest = std::max(largest, std::fabs(value));
    const double step = both.gpu.dtype == DType::kBf16 ? 0x1p-8 : 4e-7;
    ASSERT_EQ(found.size(), expected.size());
    for (size_t i = 0; i < found.size(); ++i)
      ASSERT_NEAR(found[i], expected[i], roundings * step * std::max(std::fabs(expected[i]), floor * largest))
          << "element " << i;
  }
  template <class Do>
  void on_both(Do&& work) {
    const Status gpu = work(*gpu_, true), cpu = work(*cpu_, false);
    EXPECT_TRUE(gpu) << gpu.error().text();
    EXPECT_TRUE(cpu) << cpu.error().text();
  }
  static const Tensor& of(const Both& both, bool gpu) { return gpu ? both.gpu : both.cpu; }

  std::unique_ptr<Backend> gpu_, cpu_;
};

TEST_P(WorkloadCuda, WeightsAreTheSameNumbers) {
  const Numbers numbers = {7, 0.1F, 1};
  const Both both = {must(gpu_->weights(3, 1000, numbers)), must(cpu_->weights(3, 1000, numbers))};
  const std::vector<double> found = read(*gpu_, both.gpu), expected = read(*cpu_, both.cpu);
  for (size_t i = 0; i < found.size(); ++i) {
    const float value = static_cast<float>(expected[i]);
    ASSERT_EQ(found[i],
              static_cast<double>(GetParam() == DType::kBf16 ? device::from_bf16(device::to_bf16(value)) : value));
  }
}

TEST_P(WorkloadCuda, RowsAreMoved) {
  const Both from = numbers(11, 40, 1), ids = integers({10, 0, 3, 3, 7}), to = space(5, 40), whole = space(11, 40);
  on_both([&](Backend& b, bool gpu) { return b.gather(of(from, gpu), of(ids, gpu), of(to, gpu)); });
  expect_same(to, 0);
  on_both([&](Backend& b, bool gpu) { return b.copy(of(from, gpu), of(whole, gpu)); });
  expect_same(whole, 0);
  const Both patches = numbers(36, 24, 2), merged = space(9, 96);
  on_both([&](Backend& b, bool gpu) { return b.merge(of(patches, gpu), 2, of(merged, gpu)); });
  expect_same(merged, 0);
  const Both positions = integers({5, 9, 0});
  on_both([&](Backend& b, bool gpu) { return b.advance(of(positions, gpu)); });
  expect_same(positions, 0);
}

TEST_P(WorkloadCuda, ElementsAreWorkedOn) {
  const Both x = numbers(7, 24, 3), sum = numbers(7, 24, 4), gates = numbers(5, 2 * 56, 5, 6), active = space(5, 56);
  on_both([&](Backend& b, bool gpu) { return b.add(of(x, gpu), of(sum, gpu)); });
  expect_same(sum);
  on_both([&](Backend& b, bool gpu) { return b.gelu(of(sum, gpu), of(sum, gpu)); });
  expect_same(sum, 3);
  on_both([&](Backend& b, bool gpu) { return b.swiglu(of(gates, gpu), of(active, gpu)); });
  expect_same(active, 3);
}

TEST_P(WorkloadCuda, RowsAreNormalised) {
  for (const int64_t columns : {int64_t{24}, int64_t{200}, int64_t{5000}}) {
    const Both x = numbers(3, columns, 6), residual = numbers(3, columns, 7), gain = numbers(1, columns, 8),
               bias = numbers(1, columns, 9), out = space(3, columns);
    on_both([&](Backend& b, bool gpu) { return b.rmsnorm(of(x, gpu), nullptr, of(gain, gpu), of(out, gpu)); });
    expect_same(out, 4);
    on_both([&](Backend& b, bool gpu) { return b.layernorm(of(x, gpu), of(gain, gpu), of(bias, gpu), of(out, gpu)); });
    expect_same(out, 8);
    on_both(
        [&](Backend& b, bool gpu) { return b.rmsnorm(of(x, gpu), &of(residual, gpu), of(gain, gpu), of(out, gpu)); });
    expect_same(residual);
    expect_same(out, 4);
  }
}

TEST_P(WorkloadCuda, TheFirstHighestIsChosen) {
  std::vector<float> logits(3 * 516, -1);
  logits[500] = logits[20] = 3;
  logits[516 + 515] = 0;
  const Both x = table(3, 516, logits), best = integers({-1, -1, -1});
  on_both([&](Backend& b, bool gpu) { return b.argmax(of(x, gpu), of(best, gpu)); });
  EXPECT_EQ(read(*gpu_, best.gpu), (std::vector<double>{20, 515, 0}));
  expect_same(best, 0);
}

TEST_P(WorkloadCuda, ProductsHaveTheirBias) {
  const int64_t rows[] = {5, 1};
  for (const bool bias : {false, true}) {
    for (const DType out_dtype : {GetParam(), DType::kFp32}) {
      if (bias && out_dtype != GetParam()) continue;  // cuBLASLt wants the bias in the type of the output
      const std::optional<Numbers> b = bias ? std::optional<Numbers>({12, 0.5F, 0}) : std::nullopt;
      // The second has the shape of the first: another weight, the same algorithm.
      for (const uint64_t seed : {uint64_t{10}, uint64_t{11}}) {
        const Result<Linear> on_gpu = gpu_->linear(36, 20, {seed, 0.3F, 0}, b, out_dtype, rows),
                             on_cpu = cpu_->linear(36, 20, {seed, 0.3F, 0}, b, DType::kFp32, rows);
        ASSERT_TRUE(on_gpu) << on_gpu.error().text();
        ASSERT_TRUE(on_cpu) << on_cpu.error().text();
        for (const int64_t count : rows) {
          const Both x = numbers(count, 36, 13),
                     out = {must(gpu_->allocate(count, 20, out_dtype)), must(cpu_->allocate(count, 20, DType::kFp32))};
          on_both([&](Backend& backend, bool gpu) {
            return backend.apply(gpu ? *on_gpu : *on_cpu, of(x, gpu), of(out, gpu));
          });
          const std::vector<double> found = read(*gpu_, out.gpu), expected = read(*cpu_, out.cpu);
          const double tolerance = GetParam() == DType::kBf16 ? 0.05 : 1e-5;  // weights are rounded too
          for (size_t i = 0; i < found.size(); ++i) ASSERT_NEAR(found[i], expected[i], tolerance);
        }
      }
    }
  }
  const Result<Linear> linear = gpu_->linear(36, 20, {10, 0.3F, 0}, std::nullopt, GetParam(), rows);
  const Both x = numbers(2, 36, 13), out = space(2, 20);
  EXPECT_FALSE(gpu_->apply(*linear, x.gpu, out.gpu)) << "two rows were not prepared";
}

TEST_P(WorkloadCuda, KeysAreTurnedAndKept) {
  constexpr int64_t kSequences = 2, kTokens = 3, kHeads = 3, kKvHeads = 2, kCapacity = 9;
  for (const int64_t head : {int64_t{16}, int64_t{48}}) {
    std::vector<float> angles(static_cast<size_t>(kCapacity * head));
    for (size_t i = 0; i < angles.size(); ++i) angles[i] = std::cos(static_cast<float>(i));
    const Both qkv = numbers(kSequences * kTokens, (kHeads + 2 * kKvHeads) * head, 14),
               table_of_angles = table(kCapacity, head, angles), positions = integers({4, 5, 6, 0, 1, 8}),
               keys = space(kSequences * kKvHeads * kCapacity, head),
               values = space(kSequences * kKvHeads * kCapacity, head);
    on_both([&](Backend& b, bool gpu) {
      return b.rope(of(qkv, gpu), kHeads, kKvHeads, head, of(table_of_angles, gpu), of(positions, gpu));
    });
    expect_same(qkv, 2);
    on_both([&](Backend& b, bool gpu) {
      return b.append(of(qkv, gpu), kHeads * head, of(positions, gpu), kSequences,
                      {of(keys, gpu), of(values, gpu), kCapacity});
    });
    expect_same(keys, 2);
    expect_same(values, 0);
  }
}

// Queries in rows of queries, keys and values side by side; keys and values in a cache.
struct AttentionCase {
  int64_t sequences, queries, keys, capacity, heads, kv_heads, head;
  bool positions, causal;
};

TEST_P(WorkloadCuda, QueriesSeeTheirKeys) {
  for (const AttentionCase& c :
       {AttentionCase{1, 9, 9, 9, 3, 3, 16, false, false}, AttentionCase{2, 7, 7, 13, 4, 2, 32, true, true},
        AttentionCase{2, 1, 5, 600, 2, 1, 64, true, false}, AttentionCase{1, 1, 600, 600, 2, 2, 128, true, false},
        AttentionCase{1, 1, 131, 300, 3, 1, 16, true, false}, AttentionCase{1, 5, 40, 64, 2, 1, 64, true, false}}) {
    SCOPED_TRACE(testing::Message() << c.queries << " queries, " << c.keys << " keys, head " << c.head);
    const int64_t width = c.heads * c.head, rows = c.sequences * c.queries, columns = width + 2 * c.kv_heads * c.head;
    const Both qkv = numbers(rows, columns, 15), keys = numbers(c.sequences * c.kv_heads * c.capacity, c.head, 16),
               values = numbers(c.sequences * c.kv_heads * c.capacity, c.head, 17), out = space(rows, width);
    std::vector<int32_t> seen;
    for (int64_t row = 0; row < rows; ++row) seen.push_back(static_cast<int32_t>(c.keys - c.queries + row % c.queries));
    const Both positions = integers(seen);
    on_both([&](Backend& b, bool gpu) -> Status {
      AttentionCall call;
      call.sequences = c.sequences;
      call.queries = c.queries;
      call.keys = c.keys;
      call.capacity = c.capacity;
      call.heads = c.heads;
      call.kv_heads = c.kv_heads;
      call.head_size = c.head;
      call.q = {of(qkv, gpu).data, c.queries * columns, columns, c.head};
      call.k = {of(keys, gpu).data, c.kv_heads * c.capacity * c.head, c.head, c.capacity * c.head};
      call.v = {of(values, gpu).data, c.kv_heads * c.capacity * c.head, c.head, c.capacity * c.head};
      call.out = of(out, gpu);
      if (c.positions) call.positions = of(positions, gpu);
      call.causal = c.causal;
      LLMPROF_CHECK(b.prepare(call));
      LLMPROF_CHECK(b.attention(call));
      return b.attention(call);  // what splits leave behind does not matter to the next one
    });
    expect_same(out, 4, 1);  // sums of both signs
  }
  EXPECT_TRUE(gpu_->notes().empty());
}

TEST_P(WorkloadCuda, WithoutCudnnAnOwnKernelDoesPrompts) {
  setenv(nvidia::kEnvCudnn, "/nowhere/libcudnn.so.9", 1);
  const Both qkv = numbers(6, 3 * 32, 18), out = space(6, 32);
  on_both([&](Backend& b, bool gpu) {
    AttentionCall call;
    call.sequences = 1;
    call.queries = call.keys = call.capacity = 6;
    call.heads = call.kv_heads = 2;
    call.head_size = 16;
    const size_t width = 32 * static_cast<size_t>(dtype_bytes(of(qkv, gpu).dtype));
    const char* const first = static_cast<const char*>(of(qkv, gpu).data);
    call.q = {first, 6 * 96, 96, 16};
    call.k = {first + width, 6 * 96, 96, 16};
    call.v = {first + 2 * width, 6 * 96, 96, 16};
    call.out = of(out, gpu);
    return b.attention(call);
  });
  expect_same(out, 4, 1);
  const std::vector<std::string> notes = gpu_->notes();
  if (GetParam() == DType::kFp32) {
    EXPECT_TRUE(notes.empty()) << "cuDNN is not for fp32";
    return;
  }
  ASSERT_EQ(notes.size(), 1U);
  EXPECT_NE(notes[0].find("cuDNN 9"), std::string::npos) << notes[0];
}

// The whole model in both ways of decoding: each step of the graph is what the operators one by one are.
TEST_P(WorkloadCuda, AGraphMakesTheSameTokens) {
  const Size& size = *find_size("tiny");
  ModelOptions options{2, 10, 6, 2};
  const std::atomic<bool> stop = false;
  std::vector<RunResult> results;
  for (const bool graph : {true, false}) {
    open_gpu(graph);
    EXPECT_EQ(gpu_->records(), graph);
    script_->graph_launches = script_->launches = 0;
    Result<std::unique_ptr<Model>> model = Model::make(*gpu_, size, options, {});
    ASSERT_TRUE(model) << model.error().text();
    const Result<RunResult> result = run_model(**model, size, options, {}, nullptr, stop);
    ASSERT_TRUE(result) << result.error().text();
    EXPECT_EQ(script_->graph_launches, graph ? 5U : 0U);
    results.push_back(*result);
  }
  EXPECT_EQ(results[0].tokens, results[1].tokens);
  EXPECT_EQ(results[0].tokens[0].size(), 6U);
  EXPECT_NE(results[0].tokens[0], results[0].tokens[1]);
}

TEST_P(WorkloadCuda, WhatIsMissingIsSaid) {
  gpu_.reset();
  setenv(nvidia::kEnvCublasLt, "/nowhere/libcublasLt.so", 1);
  Result<std::unique_ptr<device::cuda::CudaDevice>> device = device::cuda::CudaDevice::open(0);
  ASSERT_TRUE(device);
  EXPECT_FALSE(check_cuda_libraries(**device));
  const Result<std::unique_ptr<Backend>> backend = open_cuda_backend(std::move(*device), GetParam(), true);
  ASSERT_FALSE(backend);
  EXPECT_NE(backend.error().what.find("expected cuBLASLt"), std::string::npos) << backend.error().what;
}

INSTANTIATE_TEST_SUITE_P(Types, WorkloadCuda, testing::Values(DType::kFp32, DType::kBf16),
                         [](const testing::TestParamInfo<DType>& type) { return std::string(dtype_name(type.param)); });

}  // namespace
}  // namespace llmprof::workload
