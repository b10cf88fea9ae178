// The CPU as a device, and its operations: right on odd shapes, and a wrong kernel is seen.
#include <gtest/gtest.h>
#include <sched.h>
#include <stdlib.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <set>
#include <thread>

#include "device/cpu/cpu_device.h"
#include "device/cpu/math_libraries.h"
#include "device/cpu/run_queue.h"
#include "device/fill.h"
#include "kernels/cpu/ops.h"
#include "kernels/op.h"
#include "kernels/reference/compare.h"
#include "kernels/reference/gemm.h"
#include "kernels/reference/memory.h"
#include "temporary_folder.h"

namespace llmprof::device {
namespace {

std::unique_ptr<Device> open_with(int threads) {
  Result<std::unique_ptr<Device>> device = cpu::open_cpu(threads);
  EXPECT_TRUE(device) << device.error().text();
  return std::move(*device);
}

Result<kernels::OpParams> catalog_params(std::string_view name, DType dtype, std::string_view variant,
                                         const std::vector<std::pair<std::string, int64_t>>& axes) {
  return kernels::make_params(*kernels::find_operation(name), dtype, variant, axes);
}

// ---- the device ---------------------------------------------------------------------------------------------------

TEST(CpuDevice, SaysWhatItIs) {
  const std::unique_ptr<Device> device = open_with(0);
  const DeviceIdentity& identity = device->identity();
  EXPECT_EQ(identity.kind, DeviceKind::kCpu);
  EXPECT_FALSE(identity.name.empty());
  EXPECT_GE(identity.units, 1);
  EXPECT_GT(identity.memory_bytes, int64_t{1} << 28);
  EXPECT_GT(identity.cache_bytes, 0);
  for (const char c : identity.key) EXPECT_TRUE((c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-') << c;
  EXPECT_TRUE(identity.uuid.empty());
}

TEST(CpuDevice, RefusesMoreThreadsThanThereAre) {
  const Result<std::unique_ptr<Device>> device = cpu::open_cpu(1'000'000);
  ASSERT_FALSE(device);
  EXPECT_EQ(device.error().exit_code, ExitCode::kUsage);
  EXPECT_NE(device.error().what.find("found 1000000"), std::string::npos);
}

TEST(CpuDevice, RefusesMoreMemoryThanThereIs) {
  const std::unique_ptr<Device> device = open_with(1);
  const Result<std::unique_ptr<Buffer>> buffer = device->allocate(size_t{1} << 60);
  ASSERT_FALSE(buffer);
  EXPECT_NE(buffer.error().what.find("are free"), std::string::npos);
}

TEST(CpuDevice, CountsMemory) {
  const std::unique_ptr<Device> device = open_with(1);
  {
    const Result<std::unique_ptr<Buffer>> one = device->allocate(5000), other = device->allocate(300);
    ASSERT_TRUE(one && other);
    EXPECT_EQ((*one)->bytes(), 5000U);
    EXPECT_EQ(device->peak_bytes(), 5300);
  }
  EXPECT_EQ(device->peak_bytes(), 5300);
  device->reset_peak();
  EXPECT_EQ(device->peak_bytes(), 0);
}

TEST(CpuDevice, FillDoesNotDependOnThreads) {
  const std::unique_ptr<Device> one = open_with(1), all = open_with(0);
  Fill fill;
  fill.dtype = DType::kBf16;
  fill.seed = 9;
  std::vector<uint16_t> expected(100'001), found(100'001);
  fill_elements(fill, 0, expected.size(), expected.data());
  for (const std::unique_ptr<Device>* device : {&one, &all}) {
    const Result<std::unique_ptr<Buffer>> buffer = (*device)->allocate(200'002);
    ASSERT_TRUE(buffer);
    ASSERT_TRUE((*device)->fill(**buffer, fill));
    ASSERT_TRUE((*device)->download(**buffer, 0, found.data(), 200'002));
    EXPECT_EQ(found, expected);
  }
}

TEST(CpuDevice, RefusesBytesOutside) {
  const std::unique_ptr<Device> device = open_with(1);
  const Result<std::unique_ptr<Buffer>> buffer = device->allocate(16);
  char data[32] = {};
  EXPECT_FALSE(device->download(**buffer, 8, data, 9));
  EXPECT_FALSE(device->upload(**buffer, 17, data, 0));
  EXPECT_TRUE(device->upload(**buffer, 8, data, 8));
}

TEST(CpuDevice, TimesEachSetInTurn) {
  const std::unique_ptr<Device> device = open_with(1);
  std::vector<int> order;
  TimingRequest request;
  request.enqueue = [&](int set) {
    order.push_back(set);
    return Status();
  };
  request.sets = 3;
  request.launches = 2;
  request.samples = 4;
  const Result<std::vector<Sample>> samples = device->time_sustained(request);
  ASSERT_TRUE(samples);
  EXPECT_EQ(samples->size(), 4U);
  EXPECT_EQ(order, (std::vector<int>{0, 1, 2, 0, 1, 2, 0, 1}));
  request.flush_cache = true;
  EXPECT_EQ(device->time_cold(request)->size(), 4U);
  request.enqueue = [](int) -> Status { return fail("broken"); };
  EXPECT_EQ(device->time_sustained(request).error().what, "broken");
}

TEST(CpuDevice, TimeIsThatOfOneLaunch) {
  const std::unique_ptr<Device> device = open_with(1);
  TimingRequest request;
  request.enqueue = [](int) {
    timespec pause{0, 3'000'000};
    nanosleep(&pause, nullptr);
    return Status();
  };
  request.launches = 4;
  const Result<std::vector<Sample>> samples = device->time_sustained(request);
  EXPECT_GE((*samples)[0].us, 3000);
  EXPECT_LT((*samples)[0].us, 12'000);
}

TEST(CpuRunQueue, AddsUpWhatThreadsWaited) {
  const TemporaryFolder folder;
  const auto write = [&](const char* thread, const char* text) {
    const std::filesystem::path at = std::filesystem::path(folder.path()) / "proc/self/task" / thread;
    std::filesystem::create_directories(at);
    std::ofstream(at / "schedstat") << text;
  };
  EXPECT_FALSE(cpu::RunQueue(folder.path()).waited_ns().has_value()) << "no such files";
  write("7", "1000 20 3\n");
  cpu::RunQueue queue(folder.path());
  EXPECT_EQ(queue.waited_ns(), 20);
  write("8", "5 300 1\n");
  queue.find_threads();
  EXPECT_EQ(queue.waited_ns(), 320);
  write("7", "0 0 1\n");
  write("8", "0 0 1\n");
  EXPECT_FALSE(queue.waited_ns().has_value()) << "a kernel that does not count";
}

// Two threads that want the same core: while one has it, the other waits.
TEST(CpuRunQueue, SeesThatACoreIsShared) {
  if (!cpu::RunQueue().waited_ns()) GTEST_SKIP() << "this kernel does not count waiting";
  cpu_set_t before, one;
  ASSERT_EQ(sched_getaffinity(0, sizeof before, &before), 0);
  CPU_ZERO(&one);
  CPU_SET(sched_getcpu(), &one);
  ASSERT_EQ(sched_setaffinity(0, sizeof one, &one), 0);
  std::atomic<bool> stop = false;
  std::thread other([&] {
    while (!stop) {
    }
  });
  cpu::RunQueue queue;
  const auto begin = std::chrono::steady_clock::now();
  const int64_t waited = *queue.waited_ns();
  while (std::chrono::steady_clock::now() - begin < std::chrono::milliseconds(200)) {
  }
  const int64_t more = *queue.waited_ns() - waited;
  stop = true;
  other.join();
  ASSERT_EQ(sched_setaffinity(0, sizeof before, &before), 0);
  EXPECT_GT(more, 80'000'000) << "of 200 ms, at nearly any moment of which one of the two waited";
}

TEST(CpuTeam, EveryThreadOnce) {
  for (const int threads : {1, 2, 5}) {
    const cpu::Team team(threads);
    std::vector<int> runs(static_cast<size_t>(threads));
    team.run([&](int thread) { ++runs[static_cast<size_t>(thread)]; });
    EXPECT_EQ(runs, std::vector<int>(static_cast<size_t>(threads), 1));
  }
}

TEST(CpuTeam, SharesCoverEverythingOnce) {
  for (const size_t count : {size_t{0}, size_t{1}, size_t{63}, size_t{64}, size_t{1000}, size_t{4097}}) {
    size_t next = 0;
    for (int thread = 0; thread < 7; ++thread) {
      const auto [first, last] = cpu::share_of(count, 64, thread, 7);
      EXPECT_EQ(first, next);
      EXPECT_TRUE(first == count || first % 64 == 0);
      next = last;
    }
    EXPECT_EQ(next, count);
  }
}

// A folder that stands in for the root of the file system.
class FakeRoot {
 public:
  void write(const std::string& file, const std::string& text) const {
    const std::filesystem::path at = path() + file;
    std::filesystem::create_directories(at.parent_path());
    std::ofstream(at) << text;
  }
  const std::string& path() const { return folder_.path(); }

 private:
  TemporaryFolder folder_;
};

TEST(CpuFacts, OfAMachine) {
  const FakeRoot root;
  root.write("/proc/cpuinfo",
             "processor\t: 0\ncpu family\t: 6\nmodel\t\t: 143\nmodel name\t: Intel(R) Xeon(R) Platinum 8480+\n");
  root.write("/proc/meminfo", "MemTotal:       32000000 kB\nMemFree: 1 kB\nMemAvailable:   20000000 kB\n");
  for (const int cpu : {0, 1}) {
    const std::string cache = "/sys/devices/system/cpu/cpu" + std::to_string(cpu) + "/cache/index";
    for (const auto& [index, level, type, size] : {std::tuple{0, 1, "Data", "48K"},
                                                   {1, 1, "Instruction", "32K"},
                                                   {2, 2, "Unified", "2048K"},
                                                   {3, 3, "Unified", "105M"}}) {
      root.write(cache + std::to_string(index) + "/level", std::to_string(level) + "\n");
      root.write(cache + std::to_string(index) + "/type", std::string(type) + "\n");
      root.write(cache + std::to_string(index) + "/size", std::string(size) + "\n");
      root.write(cache + std::to_string(index) + "/shared_cpu_list", level == 3 ? "0-1\n" : std::to_string(cpu) + "\n");
    }
    root.write("/sys/devices/system/cpu/cpu" + std::to_string(cpu) + "/cpufreq/cpuinfo_max_freq", "3800000\n");
  }
  const cpu::Facts facts = cpu::read_facts(root.path());
  EXPECT_EQ(facts.name, "Intel(R) Xeon(R) Platinum 8480+");
  EXPECT_EQ(facts.key, "intel-r-xeon-r-platinum-8480-family6-model143");
  EXPECT_EQ(facts.memory_bytes, int64_t{32'000'000} << 10);
  EXPECT_EQ(cpu::available_memory(root.path()), int64_t{20'000'000} << 10);
  // CPUs 0 and 1 share one cache of the third level.
  if (facts.threads <= 2) {
    EXPECT_EQ(facts.cache_bytes, int64_t{105} << 20);
  }
}

TEST(CpuFacts, OfAContainer) {
  const FakeRoot root;
  root.write("/proc/meminfo", "MemTotal: 32000000 kB\nMemAvailable: 20000000 kB\n");
  root.write("/sys/fs/cgroup/cpu.max", "100000 100000\n");
  root.write("/sys/fs/cgroup/memory.max", "1000000000\n");
  root.write("/sys/fs/cgroup/memory.current", "400000000\n");
  const cpu::Facts facts = cpu::read_facts(root.path());
  EXPECT_EQ(facts.threads, 1);
  EXPECT_EQ(facts.memory_bytes, 1'000'000'000);
  EXPECT_EQ(facts.cache_bytes, 0);
  EXPECT_EQ(facts.clock_max_mhz, 0);
  EXPECT_EQ(cpu::available_memory(root.path()), 600'000'000);
  root.write("/sys/fs/cgroup/cpu.max", "max 100000\n");
  EXPECT_GE(cpu::read_facts(root.path()).threads, 1);
}

// ---- operations ---------------------------------------------------------------------------------------------------

void expect_right(Device& device, std::string_view name, DType dtype, std::string_view variant,
                  const std::vector<std::pair<std::string, int64_t>>& axes) {
  const kernels::Operation& operation = *kernels::find_operation(name);
  const Result<kernels::OpParams> params = catalog_params(name, dtype, variant, axes);
  ASSERT_TRUE(params) << params.error().text();
  if (const std::optional<std::string> why = operation.unsupported(device.identity(), *params)) {
    GTEST_LOG_(INFO) << "not here: " << *why;
    return;
  }
  Result<std::unique_ptr<kernels::PreparedOp>> op = operation.prepare_cpu(device, *params);
  ASSERT_TRUE(op) << op.error().text();
  ASSERT_FALSE((*op)->candidates().empty());
  ASSERT_TRUE((*op)->prepare_sets(3));
  for (size_t i = 0; i < (*op)->candidates().size(); ++i) {
    const Result<kernels::Check> check = (*op)->check(i);
    ASSERT_TRUE(check) << check.error().text();
    EXPECT_EQ(check->status, kernels::CheckStatus::kPassed) << name << " " << variant << " " << dtype_name(dtype) << " "
                                                            << (*op)->candidates()[i].backend << ": " << check->note;
    EXPECT_TRUE((*op)->candidates()[i].enqueue(2));
  }
}

TEST(CpuOps, GemmIsRightOnOddShapes) {
  const std::unique_ptr<Device> device = open_with(0);
  for (const DType dtype : {DType::kFp32, DType::kFp64, DType::kBf16, DType::kInt8}) {
    expect_right(*device, "gemm", dtype, "", {{"m", 1}, {"n", 130}, {"k", 257}});
    expect_right(*device, "gemm", dtype, "", {{"m", 67}, {"n", 33}, {"k", 129}});
    expect_right(*device, "gemm", dtype, "", {{"m", 300}, {"n", 700}, {"k", 511}});
  }
}

TEST(CpuOps, MemoryIsRightOnOddSizes) {
  const std::unique_ptr<Device> device = open_with(0);
  for (const char* variant : {"read", "write", "copy", "triad"})
    for (const int64_t elements : {1, 15, 1024, 4096 + 77, 100'003})
      expect_right(*device, "memory", DType::kFp32, variant, {{"bytes", elements * 4}});
}

TEST(CpuOps, RegistersAndForkJoin) {
  const std::unique_ptr<Device> device = open_with(0);
  expect_right(*device, "registers", DType::kFp32, "", {{"mflop", 20}});
  expect_right(*device, "registers", DType::kFp64, "", {{"mflop", 20}});
  expect_right(*device, "launch", DType::kFp32, "fork_join", {});
}

TEST(CpuOps, OneThreadWorksToo) {
  const std::unique_ptr<Device> device = open_with(1);
  expect_right(*device, "gemm", DType::kFp32, "", {{"m", 67}, {"n", 33}, {"k", 129}});
  expect_right(*device, "memory", DType::kFp32, "triad", {{"bytes", 40'012}});
}

TEST(CpuOps, UnsupportedTypesAreSaid) {
  const kernels::Operation& gemm = *kernels::find_operation("gemm");
  DeviceIdentity identity;
  Result<kernels::OpParams> params = catalog_params("gemm", DType::kFp8, "", {});
  EXPECT_EQ(gemm.unsupported(identity, *params).value_or(""),
            "products of fp8 are not measured on CPUs; fp32, fp64, bf16 and int8 are");
  params = catalog_params("gemm", DType::kBf16, "", {});
  const bool has_bf16 = cpu::cpu_instructions().bf16() && cpu::one_dnn().missing.empty();
  EXPECT_EQ(gemm.unsupported(identity, *params).has_value(), !has_bf16);
  const kernels::Operation& registers = *kernels::find_operation("registers");
  params = catalog_params("registers", DType::kBf16, "", {});
  EXPECT_EQ(registers.unsupported(identity, *params).value_or(""),
            "the units' own limit is measured in fp32 and fp64 on CPUs, not in bf16");
}

// ---- a wrong kernel is seen ---------------------------------------------------------------------------------------

class WrongGemm : public testing::Test {
 protected:
  static constexpr int64_t kM = 96, kN = 80, kK = 512;
  void SetUp() override {
    device_ = open_with(1);
    Fill fill;
    for (std::unique_ptr<Buffer>* buffer : {&a_, &w_, &out_}) {
      const int64_t elements = buffer == &a_ ? kM * kK : buffer == &w_ ? kN * kK : kM * kN;
      *buffer = std::move(*device_->allocate(static_cast<size_t>(elements) * 4));
      ++fill.seed;
      ASSERT_TRUE(device_->fill(**buffer, fill));
    }
    multiply(kK);
  }
  // Adds up the first `terms` of each element.
  void multiply(int64_t terms) {
    const auto* a = static_cast<const float*>(a_->address());
    const auto* w = static_cast<const float*>(w_->address());
    for (int64_t i = 0; i < kM; ++i)
      for (int64_t j = 0; j < kN; ++j) {
        float sum = 0;
        for (int64_t k = 0; k < terms; ++k) sum += a[i * kK + k] * w[j * kK + k];
        out()[i * kN + j] = sum;
      }
  }
  float* out() { return static_cast<float*>(out_->address()); }
  kernels::Check check() {
    const ops::Product product{{0, kM}, kN, kK};
    const Result<kernels::Check> check = kernels::check_gemm(*device_, {*a_, *w_, *out_, product}, 5);
    EXPECT_TRUE(check);
    return *check;
  }
  std::unique_ptr<Device> device_;
  std::unique_ptr<Buffer> a_, w_, out_;
};

TEST_F(WrongGemm, RightOnePasses) {
  const kernels::Check result = check();
  EXPECT_EQ(result.status, kernels::CheckStatus::kPassed) << result.note;
  EXPECT_EQ(result.compared, kM * kN);
  EXPECT_LT(result.rel_l2, 1e-6);
  EXPECT_GT(result.rel_l2, 0);
}

TEST_F(WrongGemm, OneTermLeftOut) {
  multiply(kK - 1);
  EXPECT_EQ(check().status, kernels::CheckStatus::kFailed);
}

TEST_F(WrongGemm, OneTermLeftOutOfOneElement) {
  const auto* a = static_cast<const float*>(a_->address());
  const auto* w = static_cast<const float*>(w_->address());
  out()[50 * kN + 20] -= a[50 * kK] * w[20 * kK];
  const kernels::Check result = check();
  EXPECT_EQ(result.status, kernels::CheckStatus::kFailed);
  EXPECT_NE(result.note.find("element 4020"), std::string::npos) << result.note;
}

TEST_F(WrongGemm, OneElementUnwritten) {
  std::memset(out() + 4321, 0xff, 4);
  const kernels::Check result = check();
  EXPECT_EQ(result.status, kernels::CheckStatus::kFailed);
  EXPECT_NE(result.note.find("element 4321 was never written"), std::string::npos) << result.note;
}

TEST_F(WrongGemm, WrongRow) {
  std::memcpy(out() + 3 * kN, out() + 4 * kN, kN * 4);
  EXPECT_EQ(check().status, kernels::CheckStatus::kFailed);
}

TEST(WrongMemory, IsSeen) {
  const std::unique_ptr<Device> device = open_with(1);
  constexpr int64_t kCount = 10'000;
  const Result<std::unique_ptr<Buffer>> a = device->allocate(kCount * 4), out = device->allocate(kCount * 4);
  ASSERT_TRUE(device->fill(**a, {}));
  ASSERT_TRUE(device->fill(**out, {}));
  auto* values = static_cast<float*>((*out)->address());
  EXPECT_EQ(kernels::check_copy(*device, **a, **out, kCount)->status, kernels::CheckStatus::kPassed);
  values[9999] = std::nextafter(values[9999], 2.0F);
  EXPECT_EQ(kernels::check_copy(*device, **a, **out, kCount)->status, kernels::CheckStatus::kFailed);
  std::memset(values + 77, 0xff, 4);
  EXPECT_NE(kernels::check_copy(*device, **a, **out, kCount)->note.find("element 77 was never written"),
            std::string::npos);
  // The sum of all words but one.
  uint32_t sum = 0;
  for (int64_t i = 1; i < kCount; ++i) {
    uint32_t word = 0;
    std::memcpy(&word, static_cast<const char*>((*a)->address()) + i * 4, 4);
    sum += word;
  }
  std::memcpy(values, &sum, 4);
  EXPECT_EQ(kernels::check_read(*device, **a, **out, kCount)->status, kernels::CheckStatus::kFailed);
  Fill poison;
  poison.kind = Fill::Kind::kPoison;
  ASSERT_TRUE(device->fill(**out, poison));
  for (int64_t i = 0; i < kCount - 1; ++i) values[i] = 0.5F;
  EXPECT_EQ(kernels::check_write(*device, **out, 0.5F, kCount)->status, kernels::CheckStatus::kFailed);
  values[kCount - 1] = 0.5F;
  EXPECT_EQ(kernels::check_write(*device, **out, 0.5F, kCount)->status, kernels::CheckStatus::kPassed);
}

TEST(Comparison, DoesNotTrustOneValue) {
  kernels::Comparison zeros(1);
  for (int64_t i = 0; i < 100; ++i) zeros.add(0, 0, 1, i);
  EXPECT_EQ(zeros.finish().status, kernels::CheckStatus::kMistrusted);
  kernels::Comparison varied(1);
  for (int64_t i = 0; i < 100; ++i) varied.add(static_cast<double>(i), static_cast<double>(i), 0, i);
  EXPECT_EQ(varied.finish().status, kernels::CheckStatus::kPassed);
  kernels::Comparison nan(1);
  nan.add(std::nan(""), 1, 100, 0);
  EXPECT_EQ(nan.finish().status, kernels::CheckStatus::kFailed);
  EXPECT_EQ(kernels::Comparison(1).finish().status, kernels::CheckStatus::kSkipped);
}

TEST(Comparison, SamplesAreDifferentAndReachTheEnds) {
  const std::vector<int64_t> indices = kernels::sampled_indices(1000, 64, 3);
  EXPECT_EQ(indices.size(), 64U);
  EXPECT_EQ(indices.front(), 0);
  EXPECT_EQ(indices.back(), 999);
  EXPECT_EQ(std::set<int64_t>(indices.begin(), indices.end()).size(), 64U);
  EXPECT_EQ(kernels::sampled_indices(5, 64, 3), (std::vector<int64_t>{0, 1, 2, 3, 4}));
}

// ---- the catalog --------------------------------------------------------------------------------------------------

TEST(Catalog, EveryRowIsWhole) {
  for (const kernels::Operation& operation : kernels::operations()) {
    EXPECT_EQ(kernels::find_operation(operation.name), &operation);
    EXPECT_FALSE(operation.title.empty());
    EXPECT_FALSE(operation.dtypes.empty());
    EXPECT_TRUE(operation.prepare_cpu != nullptr || operation.prepare_cuda != nullptr);
    const Result<kernels::OpParams> params = kernels::make_params(operation, DType::kUnknown, "", {});
    ASSERT_TRUE(params) << params.error().text();
    EXPECT_GE(operation.footprint_bytes(*params), static_cast<int64_t>(operation.cost(*params).bytes()));
  }
  EXPECT_EQ(kernels::find_operation("no such"), nullptr);
}

TEST(Catalog, UnknownDevice) {
  const Result<std::unique_ptr<Device>> device = open_device({"gpu", 0});
  ASSERT_FALSE(device);
  EXPECT_EQ(device.error().what, "no device \"gpu\"");
  EXPECT_EQ(device.error().exit_code, ExitCode::kUsage);
}

}  // namespace
}  // namespace llmprof::device
