// Launch sites: which frames of a stack say who launched, and which kernels they are told for.
#include <gtest/gtest.h>

#include "analyze_recording.h"

namespace llmprof {
namespace {

TEST(LaunchSite, IsTheKernelsCodeThePyTorchOperatorAndTheProgram) {
  EXPECT_EQ(launch_site("libtorch_cuda.so!at::native::gpu_kernel_impl\n"
                        "libtorch_cuda.so!at::native::gpu_kernel\n"
                        "libtorch_cuda.so!at::native::silu_kernel::{lambda#1}::operator()\n"
                        "libtorch_cuda.so!at::native::silu_kernel\n"
                        "libtorch_cuda.so!at::(anonymous namespace)::wrapper_CUDA_silu\n"
                        "libtorch_cpu.so!c10::impl::wrap_kernel_functor_unboxed_::call\n"
                        "libtorch_cpu.so!at::_ops::silu::redispatch\n"
                        "libtorch_cpu.so!at::_ops::silu::call\n"
                        "libtorch_python.so!torch::autograd::THPVariable_silu\n"
                        "[python]\n"
                        "my_ops.cpython-311-x86_64-linux-gnu.so!my::activate\n"
                        "[python]"),
            "at::native::silu_kernel < at::_ops::silu < my::activate");
}

TEST(LaunchSite, OfLibrariesWithoutNamesIsWhereTheyWereEntered) {
  EXPECT_EQ(launch_site("libcublasLt.so.12!0x1f20\nlibcublasLt.so.12!0x3f20\nlibcublasLt.so.12!cublasLtMatmul\n"
                        "libcublas.so.12!cublasGemmEx\nlibtorch_cpu.so!at::_ops::mm::call\n[python]"),
            "cublasLtMatmul < at::_ops::mm");
}

TEST(LaunchSite, OfAProgramWithoutNamesIsItsOffset) {
  EXPECT_EQ(launch_site("server!0x1234\nserver!0x2000\nlibc.so.6!__libc_start_main"), "server!0x1234");
  EXPECT_EQ(launch_site("libc.so.6!clone3\n[python]"), "[python]");
  EXPECT_EQ(launch_site("libc.so.6!clone3"), "libc.so.6!clone3");
  EXPECT_EQ(launch_site(""), "");
  EXPECT_EQ(launch_site("\n\n!\n"), "!");
}

TEST(LaunchSite, OfACudaProgramIsItsFunctions) {
  EXPECT_EQ(launch_site("server!__device_stub__Z4fillPf\nserver!fill_all\nserver!step\nserver!main\n"
                        "libc.so.6!__libc_start_main"),
            "fill_all < step");
}

void add_site(Trace& trace, std::string_view kernel, std::string_view stack) {
  TraceBuilder builder(trace);
  builder.add<LaunchSites>({.time_ns = 0, .thread = 0, .name = builder.text(kernel), .stack = builder.text(stack)});
}

AnalyzedRecording two_kernels() {
  AnalyzedRecording run;
  run.window(0, 100);
  const Row s = run.step(StageKind::kDecode, 0, 100);
  run.gpu("small", Category::kElementwise, 0, 10, {s, kNoRow});
  run.gpu("large", Category::kGemm, 10, 60, {s, kNoRow});
  run.gpu("large", Category::kGemm, 70, 10, {s, kNoRow});
  run.gpu("unseen", Category::kGemm, 80, 20, {s, kNoRow});
  run.busy(0, 100);
  return run;
}

TEST(LaunchSites, AreToldForTheKernelsWithTheMostTimeFirst) {
  AnalyzedRecording run = two_kernels();
  add_site(run.trace, "small", "a!f");
  add_site(run.trace, "large", "a!g\na!rare");
  add_site(run.trace, "large", "a!h\na!often");
  add_site(run.trace, "large", "a!h\na!often\n[python]");
  add_site(run.trace, "never ran", "a!i");
  const Report report = report_of(run);
  ASSERT_EQ(report.launch_sites.size(), 4U);
  const LaunchSiteRecord& first = report.launch_sites[0];
  EXPECT_EQ(first.kernel, "large");
  EXPECT_EQ(first.site, "h < often");
  EXPECT_EQ(first.stacks, 2);
  EXPECT_EQ(first.kernel_stacks, 3);
  EXPECT_EQ(first.kernel_calls, 2);
  EXPECT_EQ(first.kernel_ms.ns, 70);
  EXPECT_DOUBLE_EQ(*first.share, 0.7);
  EXPECT_EQ(first.stack, "a!h\na!often");
  EXPECT_EQ(report.launch_sites[1].site, "g < rare");
  EXPECT_EQ(report.launch_sites[1].stacks, 1);
  EXPECT_EQ(report.launch_sites[2].kernel, "small");
  EXPECT_EQ(report.launch_sites[3].kernel, "never ran");
  EXPECT_EQ(report.launch_sites[3].kernel_ms.ns, 0);
  EXPECT_EQ(report_of(run, {.top = 1}).launch_sites.size(), 2U);  // of one kernel
}

TEST(LaunchSites, ADeepRecordingWithoutStacksSaysSo) {
  const auto asked = [](const Report& report) {
    return std::any_of(report.cannot_tell.begin(), report.cannot_tell.end(),
                       [](const CannotTell& row) { return row.question == "Where are kernels launched from?"; });
  };
  AnalyzedRecording run = two_kernels();
  EXPECT_FALSE(asked(report_of(run)));
  run.trace.recorded.resize(1);
  run.trace.recorded.dur_ns[0] = 100;
  run.trace.recorded.level[0] = RecordingLevel::kDeep;
  EXPECT_TRUE(asked(report_of(run)));
  add_site(run.trace, "large", "a!f");
  EXPECT_FALSE(asked(report_of(run)));
}

}  // namespace
}  // namespace llmprof
