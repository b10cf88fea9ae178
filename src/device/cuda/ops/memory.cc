#include "device/reference/memory.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <optional>

#include "device/cuda/ops/cuda_op.h"
#include "device/cuda/ops/ops.h"

namespace llmprof::device::cuda {
namespace {

// How a kernel walks: so many 16-byte words per thread and step, and blocks for everything, or as many as fit the GPU.
struct Walk {
  int unroll;
  unsigned threads;
  bool persistent;
};
constexpr Walk kWalks[] = {{4, 256, false},  {8, 256, false}, {4, 512, false},
                           {2, 1024, false}, {4, 512, true},  {8, 256, true}};
constexpr uint64_t kGridMax = 0x7fffffff;
// Larger arrays are compared in windows: at both ends, and between.
constexpr size_t kWholeBytes = size_t{16} << 20, kWindowBytes = size_t{2} << 20;
constexpr size_t kWindows = 8;
constexpr float kScale = 0.4F;  // of the triad
constexpr float kWritten = 0.75F;

class MemoryOp : public CudaOp {
 public:
  using CudaOp::CudaOp;

  Status prepare() {
    bytes_ = static_cast<size_t>(params_.axis("bytes"));
    if (bytes_ % 16 != 0)
      return fail(fmt::format("expected arrays of a multiple of 16 bytes, found {}", bytes_), "--bytes", {},
                  ExitCode::kUsage);
    variant_ = params_.variant.empty() ? "copy" : params_.variant;
    const uint64_t words = bytes_ / 16;
    const uint64_t partials = (words + 2 * 256 - 1) / (2 * 256);
    const Fill numbers{Fill::Kind::kUniform, DType::kFp32, 1, 0};
    const Array a{"a", bytes_, Role::kInput, numbers}, b{"b", bytes_, Role::kInput, numbers},
        out{"out", bytes_, Role::kOutput, {}},
        sums{"sums", 4 * static_cast<size_t>(std::max<uint64_t>(partials, 4096)), Role::kOutput, {}};
    LLMPROF_CHECK(begin(variant_ == "read"    ? std::vector<Array>{sums, a}
                        : variant_ == "write" ? std::vector<Array>{out}
                        : variant_ == "copy"  ? std::vector<Array>{out, a}
                                              : std::vector<Array>{out, a, b}));
    std::optional<Error> why;
    for (const Walk& walk : kWalks) {
      const Status added = add_walk(walk, words);
      if (!added) why = added.error();
    }
    add_driver_way();
    if (!candidates().empty()) return {};
    return tl::unexpected<Error>(*why);
  }

 protected:
  Result<Check> compare(size_t candidate) override {
    if (variant_ == "read") return compare_sums(candidate);
    if (bytes_ <= kWholeBytes) return compare_window(0, bytes_);
    Check worst;
    worst.status = CheckStatus::kPassed;
    const size_t last = (bytes_ - kWindowBytes) / 16 * 16;
    for (size_t i = 0; i < kWindows; ++i) {
      // At a place that is no multiple of a tile.
      const size_t offset = i + 1 == kWindows ? last : (last / (kWindows - 1) * i + 4096 * i * i) / 16 * 16;
      LLMPROF_ASSIGN(const Check part, compare_window(std::min(offset, last), kWindowBytes));
      worst.compared += part.compared;
      worst.worst_over_tolerance = std::max(worst.worst_over_tolerance, part.worst_over_tolerance);
      worst.rel_l2 = std::max(worst.rel_l2, part.rel_l2);
      if (part.status == CheckStatus::kPassed || worst.status == CheckStatus::kFailed) continue;
      worst.status = part.status;
      worst.note = fmt::format("from byte {}: {}", offset, part.note);
    }
    return worst;
  }

 private:
  Status add_walk(const Walk& walk, uint64_t words) {
    const char* name = variant_ == "read"    ? "memory_read"
                       : variant_ == "write" ? "memory_write"
                       : variant_ == "copy"  ? "memory_copy"
                                             : "memory_triad";
    LLMPROF_ASSIGN(const Kernel kernel, context_.kernel({"memory.cu", {fmt::format("UNROLL={}", walk.unroll)}}, name));
    const uint64_t tile = static_cast<uint64_t>(walk.threads) * static_cast<uint64_t>(walk.unroll);
    uint64_t grid = std::min((words + tile - 1) / tile, kGridMax);
    if (walk.persistent)
      grid = std::min(grid, static_cast<uint64_t>(context_.sms() * context_.blocks_per_sm(kernel, walk.threads)));
    grids_.push_back(static_cast<size_t>(grid));
    add(fmt::format("own {} x 16 B, {} threads{}", walk.unroll, walk.threads, walk.persistent ? ", persistent" : ""),
        [this, kernel, walk, grid, words](int set) {
          const unsigned blocks = static_cast<unsigned>(grid);
          if (variant_ == "read") return context_.launch(kernel, blocks, walk.threads, at(set, 1), words, at(set, 0));
          if (variant_ == "write") {
            uint32_t bits = 0;
            std::memcpy(&bits, &kWritten, 4);
            return context_.launch(kernel, blocks, walk.threads, at(set, 0), words, bits);
          }
          if (variant_ == "copy") return context_.launch(kernel, blocks, walk.threads, at(set, 0), at(set, 1), words);
          return context_.launch(kernel, blocks, walk.threads, at(set, 0), at(set, 1), at(set, 2), words, kScale);
        });
    return {};
  }

  void add_driver_way() {
    if (variant_ == "copy")
      add("cuMemcpyDtoD", [this](int set) {
        return context_.check(context_.api().copy_on_device(at(set, 0), at(set, 1), bytes_, context_.stream()),
                              "copying on the GPU");
      });
    if (variant_ == "write")
      add("cuMemsetD32", [this](int set) {
        uint32_t bits = 0;
        std::memcpy(&bits, &kWritten, 4);
        return context_.check(context_.api().set_d32(at(set, 0), bits, bytes_ / 4, context_.stream()),
                              "filling on the GPU");
      });
  }

  Result<Check> compare_window(size_t offset, size_t bytes) {
    const View out(array(0, 0), offset, bytes);
    const int64_t count = static_cast<int64_t>(bytes / 4);
    if (variant_ == "write") return check_write(device_, out, kWritten, count);
    const View a(array(0, 1), offset, bytes);
    if (variant_ == "copy") return check_copy(device_, a, out, count);
    const View b(array(0, 2), offset, bytes);
    return check_triad(device_, a, b, out, kScale, count);
  }

  // The sum of what the blocks left. The host adds up the array once; that takes a second for some GB.
  Result<Check> compare_sums(size_t candidate) {
    std::vector<uint32_t> partial(grids_[candidate]);
    LLMPROF_CHECK(device_.download(array(0, 0), 0, partial.data(), partial.size() * 4));
    uint32_t sum = 0;
    for (const uint32_t some : partial) sum += some;
    if (expected_) {
      Check check;
      check.compared = 1;
      check.status = sum == *expected_ ? CheckStatus::kPassed : CheckStatus::kFailed;
      if (sum != *expected_)
        check.note = fmt::format("the words add up to {:#010x}, expected {:#010x}", sum, *expected_);
      return check;
    }
    LLMPROF_CHECK(device_.upload(array(0, 0), 0, &sum, 4));
    LLMPROF_ASSIGN(const Check check, check_read(device_, array(0, 1), array(0, 0), static_cast<int64_t>(bytes_ / 4)));
    if (check.status == CheckStatus::kPassed) expected_ = sum;
    return check;
  }

  size_t bytes_ = 0;
  std::string variant_;
  std::vector<size_t> grids_;  // of the own candidates, which come first
  std::optional<uint32_t> expected_;
};

}  // namespace

Result<std::unique_ptr<PreparedOp>> prepare_memory(Device& device, const OpParams& params) {
  return prepare_as<MemoryOp>(device, params);
}

}  // namespace llmprof::device::cuda
