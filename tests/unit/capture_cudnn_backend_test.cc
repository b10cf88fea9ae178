// What the injection library follows of cuDNN's descriptors, called directly: masks, lengths known at run time,
// attributes that are not understood, bounds.
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "capture/inject/libraries/cudnn_backend.h"
#include "capture/inject/libraries/cudnn_backend_table.h"
#include "nvidia/cudnn_abi.h"

namespace llmprof::test {
namespace {

using inject::CallShape;
using Dims = std::vector<int64_t>;

// Descriptors are addresses that nothing is stored at.
class Backend {
 public:
  explicit Backend(uintptr_t from) : next_(from) {}

  const void* make(int type) {
    next_ += 16;
    const void* made = reinterpret_cast<const void*>(next_);
    inject::backend_created(type, made);
    return made;
  }
  static void set(const void* descriptor, int attribute, const void* other) {
    inject::backend_set(descriptor, attribute, cudnn::kTypeDescriptor, 1, &other);
  }
  static void set(const void* descriptor, int attribute, const Dims& numbers) {
    inject::backend_set(descriptor, attribute, cudnn::kTypeInt64, static_cast<int64_t>(numbers.size()), numbers.data());
  }
  static void set(const void* descriptor, int attribute, int type, int32_t value) {
    inject::backend_set(descriptor, attribute, type, 1, &value);
  }
  const void* tensor(const Dims& dims, int32_t type = cudnn::kBfloat16, bool is_virtual = false,
                     bool by_value = false) {
    const void* made = make(cudnn::kTensor);
    set(made, cudnn::kTensorDataType, cudnn::kTypeDataType, type);
    set(made, cudnn::kTensorDimensions, dims);
    set(made, cudnn::kTensorUniqueId, Dims{static_cast<int64_t>(next_)});
    inject::backend_set(made, cudnn::kTensorIsVirtual, cudnn::kTypeBoolean, 1, &is_virtual);
    inject::backend_set(made, cudnn::kTensorIsByValue, cudnn::kTypeBoolean, 1, &by_value);
    return made;
  }
  const void* inner(const Dims& dims, int32_t type = cudnn::kFloat) { return tensor(dims, type, true); }
  const void* scalar(int32_t type = cudnn::kFloat) { return tensor({1, 1, 1, 1}, type, false, true); }
  const void* pointwise(int mode, const void* x, const void* b, const void* t, const void* y, int64_t axis = -1) {
    const void* parameters = make(cudnn::kPointwise);
    set(parameters, cudnn::kPointwiseMode, cudnn::kTypePointwiseMode, mode);
    if (axis >= 0) set(parameters, cudnn::kPointwiseAxis, Dims{axis});
    const void* operation = make(cudnn::kOpPointwise);
    set(operation, cudnn::kOpPointwiseDescriptor, parameters);
    set(operation, cudnn::kOpPointwiseX, x);
    if (b != nullptr) set(operation, cudnn::kOpPointwiseB, b);
    if (t != nullptr) set(operation, cudnn::kOpPointwiseT, t);
    set(operation, cudnn::kOpPointwiseY, y);
    return operation;
  }
  const void* matmul(const void* a, const void* b, const void* c) {
    const void* operation = make(cudnn::kOpMatmul);
    set(operation, cudnn::kOpMatmulA, a);
    set(operation, cudnn::kOpMatmulB, b);
    set(operation, cudnn::kOpMatmulC, c);
    return operation;
  }
  const void* graph(const std::vector<const void*>& operations) {
    const void* made = make(cudnn::kOperationGraph);
    inject::backend_set(made, cudnn::kGraphOperations, cudnn::kTypeDescriptor, static_cast<int64_t>(operations.size()),
                        operations.data());
    return made;
  }
  const void* plan(const std::vector<const void*>& operations) {
    const void* engine = make(cudnn::kEngine);
    set(engine, cudnn::kEngineGraph, graph(operations));
    const void* config = make(cudnn::kEngineConfig);
    set(config, cudnn::kConfigEngine, engine);
    const void* made = make(cudnn::kPlan);
    set(made, cudnn::kPlanConfig, config);
    inject::backend_finalized(made);
    return made;
  }

 private:
  uintptr_t next_;
};

class CudnnBackend : public testing::Test {
 protected:
  void TearDown() override { inject::abandon_cudnn_backend(); }

  // The shape of a plan; kind 255 if it is unknown.
  static CallShape shape_of(const void* plan, const void* pack = nullptr) {
    CallShape shape;
    if (!inject::plan_shape(plan, pack, shape)) shape.kind = 255;
    return shape;
  }
  static std::string detail(const CallShape& shape) {
    char text[256];
    return {text, inject::call_detail(shape, text, sizeof(text))};
  }

  // Attention of 4 queries and 6 keys; `change` adds what lies between the scores and the softmax, and gives back what
  // the softmax reads.
  using Change = std::function<const void*(const void* scores, std::vector<const void*>& operations)>;
  CallShape attention(const Change& change, const std::function<void(const void* q)>& change_q = {}) {
    const void* q = b_.tensor({2, 8, 4, 64});
    if (change_q) change_q(q);
    const void* s = b_.inner(kScores);
    std::vector<const void*> operations = {b_.matmul(q, b_.tensor({2, 2, 64, 6}), s)};
    const void* read = change ? change(s, operations) : s;
    const void* p = b_.inner(kScores, cudnn::kBfloat16);
    operations.push_back(b_.pointwise(cudnn::kExp, read, nullptr, nullptr, p));
    operations.push_back(b_.matmul(p, b_.tensor({2, 2, 6, 64}), b_.tensor({2, 8, 4, 64})));
    return shape_of(b_.plan(operations));
  }
  const void* masked(const void* scores, const void* row, const void* column, std::vector<const void*>& operations,
                     int compare) {
    const void* visible = b_.inner(kScores, 11);
    const void* out = b_.inner(kScores);
    operations.push_back(b_.pointwise(compare, row, column, nullptr, visible));
    operations.push_back(b_.pointwise(cudnn::kBinarySelect, scores, b_.scalar(), visible, out));
    return out;
  }
  const void* index(const void* scores, int64_t axis, std::vector<const void*>& operations) {
    const void* out = b_.inner(kScores, cudnn::kInt32);
    operations.push_back(b_.pointwise(cudnn::kGenIndex, scores, nullptr, nullptr, out, axis));
    return out;
  }
  // Sets what `change` sets on an attention operation.
  CallShape single(const std::function<void(const void* operation)>& change) {
    const void* operation = b_.make(cudnn::kOpAttentionForward);
    Backend::set(operation, cudnn::kOpAttentionQ, b_.tensor({2, 8, 4, 64}));
    Backend::set(operation, cudnn::kOpAttentionK, b_.tensor({2, 2, 6, 64}));
    Backend::set(operation, cudnn::kOpAttentionV, b_.tensor({2, 2, 6, 64}));
    Backend::set(operation, cudnn::kOpAttentionO, b_.tensor({2, 8, 4, 64}));
    change(operation);
    return shape_of(b_.plan({operation}));
  }

  const Dims kScores = {2, 8, 4, 6};
  Backend b_{0x10000};
};

TEST_F(CudnnBackend, MasksOfComposedAttention) {
  CallShape plain = attention({});
  EXPECT_EQ(plain.kind, inject::kWorkAttention);
  EXPECT_EQ(plain.m, 4);
  EXPECT_EQ(plain.n, 6);
  EXPECT_EQ(plain.k, 64);
  EXPECT_EQ(plain.heads, 8);
  EXPECT_EQ(plain.kv_heads, 2);
  EXPECT_EQ(plain.mask, inject::kMaskNone);
  EXPECT_EQ(detail(plain), "");

  CallShape causal = attention([&](const void* s, std::vector<const void*>& operations) {
    const void* row = index(s, 2, operations);
    return masked(s, row, index(s, 3, operations), operations, cudnn::kCompareGe);
  });
  EXPECT_EQ(causal.mask, inject::kMaskCausal);

  // Moved by a number that comes with the call: a window, or aligned to the last key.
  CallShape moved = attention([&](const void* s, std::vector<const void*>& operations) {
    const void* row = b_.inner(kScores, cudnn::kInt32);
    operations.push_back(b_.pointwise(cudnn::kAdd, index(s, 2, operations), b_.scalar(cudnn::kInt32), nullptr, row));
    return masked(s, row, index(s, 3, operations), operations, cudnn::kCompareGe);
  });
  EXPECT_EQ(moved.mask, inject::kMaskUnknown);
  EXPECT_EQ(moved.n, 6);
  EXPECT_EQ(detail(moved), "mask not known, all pairs counted");

  // Keys and queries the other way round.
  CallShape turned = attention([&](const void* s, std::vector<const void*>& operations) {
    const void* row = index(s, 3, operations);
    return masked(s, row, index(s, 2, operations), operations, cudnn::kCompareGe);
  });
  EXPECT_EQ(turned.mask, inject::kMaskUnknown);
  constexpr int kCompareLt = 304;
  CallShape other = attention([&](const void* s, std::vector<const void*>& operations) {
    const void* row = index(s, 2, operations);
    return masked(s, row, index(s, 3, operations), operations, kCompareLt);
  });
  EXPECT_EQ(other.mask, inject::kMaskUnknown);
}

TEST_F(CudnnBackend, TensorsAddedToScoresMayMask) {
  const auto added = [&](const Dims& dims, int mode) {
    return attention([&, mode](const void* s, std::vector<const void*>& operations) {
      const void* out = b_.inner(kScores);
      operations.push_back(b_.pointwise(mode, s, b_.tensor(dims), nullptr, out));
      return out;
    });
  };
  EXPECT_EQ(added({1, 1, 4, 6}, cudnn::kAdd).mask, inject::kMaskUnknown);
  EXPECT_EQ(added({2, 1, 1, 6}, cudnn::kAdd).mask, inject::kMaskUnknown);
  EXPECT_EQ(added({1, 8, 1, 1}, cudnn::kAdd).mask, inject::kMaskNone);
  EXPECT_EQ(added({2, 8, 4, 6}, cudnn::kMultiply).mask, inject::kMaskNone);  // dropout
}

TEST_F(CudnnBackend, LengthsToldAtRunTimeAreUnknown) {
  CallShape padded = attention([&](const void* s, std::vector<const void*>& operations) {
    return masked(s, index(s, 3, operations), b_.tensor({2, 1, 1, 1}, cudnn::kInt32), operations, 304);
  });
  EXPECT_EQ(padded.kind, inject::kWorkAttention);
  EXPECT_EQ(padded.m, -1);
  EXPECT_EQ(padded.n, -1);
  EXPECT_EQ(detail(padded), "lengths known at run time, at most 4 queries and 6 keys, mask not known");

  CallShape ragged = attention({}, [&](const void* q) {
    Backend::set(q, cudnn::kTensorRaggedOffset, b_.tensor({3, 1, 1, 1}));
  });
  EXPECT_EQ(ragged.m, -1);
  EXPECT_EQ(detail(ragged), "lengths known at run time, at most 4 queries and 6 keys");

  CallShape lengths = single([&](const void* operation) {
    Backend::set(operation, cudnn::kOpAttentionLengthsKv, b_.tensor({2, 1, 1, 1}, cudnn::kInt32));
  });
  EXPECT_EQ(lengths.m, -1);
  CallShape paged = single([&](const void* operation) {
    Backend::set(operation, cudnn::kOpAttentionK, b_.tensor({900, 2, 16, 64}));
    Backend::set(operation, cudnn::kOpAttentionV, b_.tensor({900, 2, 16, 64}));
    Backend::set(operation, cudnn::kOpAttentionPageTableK, b_.tensor({2, 1, 8, 1}, cudnn::kInt32));
  });
  EXPECT_EQ(paged.n, -1);
  EXPECT_EQ(detail(paged), "lengths known at run time, at most 4 queries, keys in pages");
}

TEST_F(CudnnBackend, AttentionAsOneOperation) {
  EXPECT_EQ(single([](const void*) {}).mask, inject::kMaskNone);
  EXPECT_EQ(single([&](const void* operation) {
              Backend::set(operation, cudnn::kOpAttentionBlockMask, b_.tensor({1, 1, 1, 1}));
            }).mask,
            inject::kMaskUnknown);
  // An attribute of a later version, which may be about anything.
  EXPECT_EQ(single([&](const void* operation) { Backend::set(operation, 2840, b_.tensor({3, 1, 1, 1})); }).kind, 255);

  const auto band_mask = [&](int bound, int32_t comparison) {
    const void* mask = b_.make(cudnn::kOpBandMask);
    Backend::set(mask, cudnn::kOpBandMaskX, b_.inner(kScores));
    Backend::set(mask, cudnn::kOpBandMaskY, b_.inner(kScores));
    if (bound >= 0) Backend::set(mask, bound, b_.scalar(cudnn::kInt32));
    Backend::set(mask, cudnn::kOpBandMaskComparison, cudnn::kTypePointwiseMode, comparison);
    const void* changes = b_.graph({mask});
    return single([&](const void* operation) { Backend::set(operation, cudnn::kOpAttentionSubgraph, changes); }).mask;
  };
  EXPECT_EQ(band_mask(-1, cudnn::kCompareGe), inject::kMaskCausal);
  EXPECT_EQ(band_mask(-1, 304), inject::kMaskUnknown);
  EXPECT_EQ(band_mask(cudnn::kOpBandMaskLeftBound, cudnn::kCompareGe), inject::kMaskUnknown);
  EXPECT_EQ(band_mask(cudnn::kOpBandMaskRightShift, cudnn::kCompareGe), inject::kMaskUnknown);
}

TEST_F(CudnnBackend, WhatIsNotUnderstoodIsUnknown) {
  const void* a = b_.tensor({16, 32});
  const void* d = b_.tensor({16, 64});
  EXPECT_EQ(shape_of(b_.plan({b_.matmul(a, b_.tensor({32, 64}), d)})).kind, inject::kWorkGemm);
  EXPECT_EQ(shape_of(b_.plan({b_.matmul(a, b_.tensor({33, 64}), d)})).kind, 255);  // contradicts itself
  EXPECT_EQ(shape_of(b_.plan({b_.matmul(a, b_.tensor({-1, 64}), d)})).kind, 255);  // told later
  EXPECT_EQ(shape_of(b_.plan({b_.matmul(a, b_.make(cudnn::kTensor), d)})).kind, 255);

  const void* packed = b_.tensor({32, 64});
  Backend::set(packed, cudnn::kTensorVectorCount, Dims{32});
  EXPECT_EQ(shape_of(b_.plan({b_.matmul(a, packed, d)})).kind, 255);
  const void* wrong_type = b_.tensor({32, 64});
  const int32_t dims[] = {32, 64};
  inject::backend_set(wrong_type, cudnn::kTensorDimensions, 23, 2, dims);
  EXPECT_EQ(shape_of(b_.plan({b_.matmul(a, wrong_type, d)})).kind, 255);

  const void* sized_later = b_.matmul(a, b_.tensor({32, 64}), d);
  Backend::set(sized_later, cudnn::kOpMatmulM, b_.tensor({1, 1}, cudnn::kInt32));
  EXPECT_EQ(shape_of(b_.plan({sized_later})).kind, 255);
  // Beside an operation of an unknown kind.
  EXPECT_EQ(shape_of(b_.plan({b_.matmul(a, b_.tensor({32, 64}), d), b_.make(42)})).kind, 255);
  // Two products with no softmax between them.
  const void* inside = b_.inner({16, 64});
  EXPECT_EQ(
      shape_of(b_.plan({b_.matmul(a, b_.tensor({32, 64}), inside), b_.matmul(inside, b_.tensor({64, 8}), d)})).kind,
      255);
}

TEST_F(CudnnBackend, ConvolutionWithUnequalPaddingHasNoText) {
  const auto convolution = [&](const Dims& behind) {
    const void* parameters = b_.make(cudnn::kConvolution);
    Backend::set(parameters, cudnn::kConvolutionSpatialDims, Dims{2});
    Backend::set(parameters, cudnn::kConvolutionStrides, Dims{1, 1});
    Backend::set(parameters, cudnn::kConvolutionDilations, Dims{1, 1});
    Backend::set(parameters, cudnn::kConvolutionPrePaddings, Dims{1, 1});
    Backend::set(parameters, cudnn::kConvolutionPostPaddings, behind);
    const void* operation = b_.make(cudnn::kOpConvolutionForward);
    Backend::set(operation, cudnn::kOpConvolutionForwardConvolution, parameters);
    Backend::set(operation, cudnn::kOpConvolutionForwardX, b_.tensor({1, 8, 5, 5}));
    Backend::set(operation, cudnn::kOpConvolutionForwardW, b_.tensor({16, 8, 3, 3}));
    Backend::set(operation, cudnn::kOpConvolutionForwardY, b_.tensor({1, 16, 5, 5}));
    return shape_of(b_.plan({operation}));
  };
  CallShape even = convolution({1, 1}), uneven = convolution({1, 2});
  EXPECT_EQ(even.n, 25);
  EXPECT_EQ(uneven.n, 25);
  EXPECT_EQ(uneven.k, 72);
  EXPECT_NE(detail(even), "");
  EXPECT_EQ(detail(uneven), "");
}

TEST_F(CudnnBackend, DestroyedPlansAreForgotten) {
  const void* operation = b_.matmul(b_.tensor({16, 32}), b_.tensor({32, 64}), b_.tensor({16, 64}));
  const void* plan = b_.plan({operation});
  ASSERT_EQ(shape_of(plan).kind, inject::kWorkGemm);
  inject::backend_destroyed(operation);  // no longer needed
  EXPECT_EQ(shape_of(plan).kind, inject::kWorkGemm);
  inject::backend_destroyed(plan);
  EXPECT_EQ(shape_of(plan).kind, 255);
  // The same address again, for a plan of which nothing is known, and where the destruction was not seen.
  const void* second = b_.plan({b_.matmul(b_.tensor({16, 32}), b_.tensor({32, 64}), b_.tensor({16, 64}))});
  ASSERT_EQ(shape_of(second).kind, inject::kWorkGemm);
  inject::backend_created(cudnn::kPlan, second);
  inject::backend_finalized(second);
  EXPECT_EQ(shape_of(second).kind, 255);
}

TEST_F(CudnnBackend, PacksThatOverrideSizes) {
  const void* plan = b_.plan({b_.matmul(b_.tensor({16, 32}), b_.tensor({32, 64}), b_.tensor({16, 64}))});
  const void* pack = b_.make(cudnn::kVariantPack);
  EXPECT_EQ(shape_of(plan, pack).kind, inject::kWorkGemm);
  Backend::set(pack, cudnn::kPackOverrideShapes, Dims{8, 32});
  EXPECT_EQ(shape_of(plan, pack).kind, 255);
  inject::backend_destroyed(pack);
  EXPECT_EQ(shape_of(plan, pack).kind, inject::kWorkGemm);
}

TEST_F(CudnnBackend, ConfigurationsAreFoundAgainFromAPlan) {
  const void* plan = b_.plan({b_.matmul(b_.tensor({16, 32}), b_.tensor({32, 64}), b_.tensor({16, 64}))});
  const void* config = b_.make(cudnn::kEngineConfig);
  inject::backend_got(plan, cudnn::kPlanConfig, cudnn::kTypeDescriptor, 1, &config);
  const void* again = b_.make(cudnn::kPlan);
  Backend::set(again, cudnn::kPlanConfig, config);
  inject::backend_finalized(again);
  EXPECT_EQ(shape_of(again).m, 16);
  // Read from a file, whatever was set before.
  const void* from_file = b_.make(cudnn::kPlan);
  Backend::set(from_file, cudnn::kPlanConfig, config);
  inject::backend_set(from_file, cudnn::kPlanJson, cudnn::kTypeChar, 2, "{}");
  inject::backend_finalized(from_file);
  EXPECT_EQ(shape_of(from_file).kind, 255);
}

// Threads build, find and destroy plans of their own while all look one up; the sanitizers watch.
TEST_F(CudnnBackend, AnyThreadAtAnyTime) {
  const void* shared = b_.plan({b_.matmul(b_.tensor({1, 2}), b_.tensor({2, 3}), b_.tensor({1, 3}))});
  std::vector<int> wrong(4, 0);
  std::vector<std::thread> threads;
  for (size_t t = 0; t < wrong.size(); ++t) {
    threads.emplace_back([&, t] {
      for (int64_t i = 1; i <= 200; ++i) {
        Backend mine(0x1000000 * (t + 1));
        const int64_t m = 1000 * static_cast<int64_t>(t) + i;
        const void* plan = mine.plan({mine.matmul(mine.tensor({m, 2}), mine.tensor({2, 3}), mine.tensor({m, 3}))});
        wrong[t] += shape_of(plan).m != m || shape_of(shared).m != 1;
        inject::backend_destroyed(plan);
        wrong[t] += shape_of(plan).kind != 255;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, std::vector<int>(4, 0));
}

TEST(AddressTable, TheOneLongestUnusedGivesWay) {
  static inject::AddressTable<int, 4> table{};
  const auto key = [](uintptr_t i) { return reinterpret_cast<const void*>(i * 16); };
  bool displaced = true;
  for (uintptr_t i = 1; i <= 4; ++i) {
    table.add(key(i), displaced) = static_cast<int>(i);
    EXPECT_FALSE(displaced);
  }
  ASSERT_NE(table.find(key(1)), nullptr);  // used: 2 is the next to go
  table.add(key(5), displaced) = 5;
  EXPECT_TRUE(displaced);
  EXPECT_EQ(table.find(key(2)), nullptr);
  EXPECT_EQ(*table.find(key(1)), 1);
  EXPECT_EQ(*table.find(key(5)), 5);
  table.erase(key(3));
  EXPECT_EQ(table.find(key(3)), nullptr);
  table.add(key(6), displaced) = 6;
  EXPECT_FALSE(displaced);  // in the place of 3
  table.add(key(6), displaced) = 7;
  EXPECT_FALSE(displaced);
  EXPECT_EQ(*table.find(key(6)), 7);
  EXPECT_EQ(*table.find(key(4)), 4);
  table.clear();
  EXPECT_EQ(table.find(key(6)), nullptr);
  // Against a plain map, many times through the free places.
  std::vector<int> expected(9, 0);
  for (uintptr_t i = 0; i < 2000; ++i) {
    const uintptr_t k = 1 + i * 7 % 3;
    if (i % 5 == 4) {
      table.erase(key(k));
      expected[k] = 0;
    } else {
      table.add(key(k), displaced) = expected[k] = static_cast<int>(i) + 1;
    }
    for (uintptr_t other = 1; other <= 3; ++other) {
      const int* found = table.find(key(other));
      ASSERT_EQ(found == nullptr ? 0 : *found, expected[other]) << i;
    }
  }
}

}  // namespace
}  // namespace llmprof::test
