// Names of kernels as two recorders write them: CUPTI's demangled ones and Nsight Compute's, of the same run on an
// H200.
#include <gtest/gtest.h>

#include "derive/kernel_function.h"

namespace llmprof {
namespace {

struct Pair {
  const char *cupti, *ncu, *function;
};
constexpr Pair kSame[] = {
    {"void at::native::vectorized_elementwise_kernel<4, at::native::AUnaryFunctor<float, float, float, "
     "at::native::binary_internal::MulFunctor<float> >, std::array<char*, 2ul> >(int, at::native::AUnaryFunctor<float, "
     "float, float, at::native::binary_internal::MulFunctor<float> >, std::array<char*, 2ul>)",
     "void at::vectorized_elementwise_kernel<4, at::AUnaryFunctor<float, float, float, "
     "binary_internal::MulFunctor<float>>, std::array<char *, 2>>(int, T2, T3)",
     "vectorized_elementwise_kernel"},
    {"void at::native::vectorized_elementwise_kernel<4, at::native::(anonymous "
     "namespace)::pow_tensor_scalar_kernel_impl<float, float>(at::TensorIteratorBase&, float)::{lambda(float)#2}, "
     "std::array<char*, 2ul> >(int, at::native::(anonymous namespace)::pow_tensor_scalar_kernel_impl<float, "
     "float>(at::TensorIteratorBase&, float)::{lambda(float)#2}, std::array<char*, 2ul>)",
     "void at::vectorized_elementwise_kernel<4, void at::<unnamed>::pow_tensor_scalar_kernel_impl<float, "
     "float>(at::TensorIteratorBase &, T2)::[lambda(float) (instance 2)], std::array<char *, 2>>(int, T2, T3)",
     "vectorized_elementwise_kernel"},
    {"void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>, std::array<char*, 3ul> "
     ">(int, at::native::CUDAFunctor_add<float>, std::array<char*, 3ul>)",
     "void at::vectorized_elementwise_kernel<4, at::CUDAFunctor_add<float>, std::array<char *, 3>>(int, T2, T3)",
     "vectorized_elementwise_kernel"},
    {"nvjet_sm90_tst_256x8_64x6_2x1_v_bz_TNT", "nvjet_sm90_tst_256x8_64x6_2x1_v_bz_TNT",
     "nvjet_sm90_tst_256x8_64x6_2x1_v_bz_TNT"}};

TEST(KernelFunction, IsTheSameOfBothRecorders) {
  for (const Pair& one : kSame) {
    EXPECT_EQ(kernel_function(one.cupti), one.function);
    EXPECT_EQ(kernel_function(one.ncu), one.function);
  }
}

TEST(KernelWords, AreTheSameOfBothRecordersAndDifferBetweenFunctors) {
  for (const Pair& one : kSame) {
    EXPECT_EQ(kernel_words(one.cupti), kernel_words(one.ncu));
    for (const Pair& other : kSame)
      EXPECT_EQ(kernel_words(one.cupti) == kernel_words(other.ncu), &one == &other) << one.cupti << "\n" << other.ncu;
  }
  EXPECT_EQ(kernel_words("void at::copy<4, at::native::Mul<float>>(int, T2)"), "4 Mul copy float int");
  EXPECT_EQ(kernel_words("a::b::c{lambda(int)#2}"), kernel_words("c[lambda(int) (instance 2)]"));
  EXPECT_EQ(kernel_words(""), "");
  EXPECT_EQ(kernel_words("::"), "");
  EXPECT_EQ(kernel_words("x::"), "x") << "a name that was cut";
}

}  // namespace
}  // namespace llmprof
