#include "kernels/reference/memory.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <optional>

#include "kernels/cuda/cuda_op.h"
#include "kernels/cuda/ops.h"

namespace llmprof::kernels::cuda {
namespace {

// How a kernel walks: so many 16-byte words per thread and step, and blocks for everything, or as many as fit the GPU.
struct CopyWalk {
  int unroll;
  unsigned threads;
  bool persistent;
};
constexpr CopyWalk kCopyWalks[] = {{4, 256, false},  {8, 256, false}, {4, 512, false}, {2, 128, false},
                                   {2, 1024, false}, {4, 512, true},  {8, 256, true}};
constexpr uint64_t kTileMin = 2 * 128;  // words of a block's step, the least of kCopyWalks
constexpr uint64_t kGridMax = 0x7fffffff;
constexpr float kScale = 0.4F;  // of the triad
constexpr float kWritten = 0.75F;

enum class MemoryKind : uint8_t { kCopy, kRead, kWrite, kTriad };
MemoryKind memory_kind(std::string_view variant) {
  if (variant == "read") return MemoryKind::kRead;
  if (variant == "write") return MemoryKind::kWrite;
  return variant == "triad" ? MemoryKind::kTriad : MemoryKind::kCopy;
}

class MemoryOp : public CudaOp {
 public:
  using CudaOp::CudaOp;

  Status prepare() {
    bytes_ = static_cast<size_t>(params_.axis("bytes"));
    if (bytes_ % 16 != 0)
      return fail(fmt::format("expected arrays of a multiple of 16 bytes, found {}", bytes_), "--bytes", {},
                  ExitCode::kUsage);
    kind_ = memory_kind(params_.variant);
    const uint64_t words = bytes_ / 16;
    const uint64_t partials = (words + kTileMin - 1) / kTileMin;
    const Fill numbers{Fill::Kind::kUniform, DType::kFp32, 1, 0};
    const Array a{"a", bytes_, Role::kInput, numbers}, b{"b", bytes_, Role::kInput, numbers},
        out{"out", bytes_, Role::kOutput, {}},
        sums{"sums", 4 * static_cast<size_t>(std::max<uint64_t>(partials, 4096)), Role::kOutput, {}};
    LLMPROF_CHECK(begin(kind_ == MemoryKind::kRead    ? std::vector<Array>{sums, a}
                        : kind_ == MemoryKind::kWrite ? std::vector<Array>{out}
                        : kind_ == MemoryKind::kCopy  ? std::vector<Array>{out, a}
                                                      : std::vector<Array>{out, a, b}));
    std::optional<Error> why;
    std::vector<device::cuda::KernelSource> sources;
    for (const CopyWalk& walk : kCopyWalks) sources.push_back(source_of(walk));
    context_.compile_ahead(sources);
    for (const CopyWalk& walk : kCopyWalks) {
      const Status added = add_walk(walk, words);
      if (!added) why = added.error();
    }
    add_driver_way();
    if (!candidates().empty()) return {};
    return tl::unexpected<Error>(*why);
  }

 protected:
  Result<Check> compare(size_t candidate) override {
    if (kind_ == MemoryKind::kRead) return compare_sums(candidate);
    const int64_t count = static_cast<int64_t>(bytes_ / 4);
    if (kind_ == MemoryKind::kWrite) return check_write(device_, array(0, 0), kWritten, count);
    if (kind_ == MemoryKind::kCopy) return check_copy(device_, array(0, 1), array(0, 0), count);
    return check_triad(device_, array(0, 1), array(0, 2), array(0, 0), kScale, count);
  }

 private:
  static device::cuda::KernelSource source_of(const CopyWalk& walk) {
    return {"memory.cu", {fmt::format("UNROLL={}", walk.unroll)}};
  }
  Status add_walk(const CopyWalk& walk, uint64_t words) {
    const char* name = kind_ == MemoryKind::kRead    ? "memory_read"
                       : kind_ == MemoryKind::kWrite ? "memory_write"
                       : kind_ == MemoryKind::kCopy  ? "memory_copy"
                                                     : "memory_triad";
    LLMPROF_ASSIGN(const device::cuda::Kernel kernel, context_.kernel(source_of(walk), name));
    const uint64_t tile = static_cast<uint64_t>(walk.threads) * static_cast<uint64_t>(walk.unroll);
    uint64_t grid = std::min((words + tile - 1) / tile, kGridMax);
    if (walk.persistent)
      grid = std::min(grid, static_cast<uint64_t>(context_.sms() * context_.blocks_per_sm(kernel, walk.threads)));
    grids_.push_back(static_cast<size_t>(grid));
    add(fmt::format("own {} x 16 B, {} threads{}", walk.unroll, walk.threads, walk.persistent ? ", persistent" : ""),
        [this, kernel, walk, grid, words](int set) {
          const unsigned blocks = static_cast<unsigned>(grid);
          if (kind_ == MemoryKind::kRead)
            return context_.launch(kernel, blocks, walk.threads, at(set, 1), words, at(set, 0));
          if (kind_ == MemoryKind::kWrite) {
            uint32_t bits = 0;
            std::memcpy(&bits, &kWritten, 4);
            return context_.launch(kernel, blocks, walk.threads, at(set, 0), words, bits);
          }
          if (kind_ == MemoryKind::kCopy)
            return context_.launch(kernel, blocks, walk.threads, at(set, 0), at(set, 1), words);
          return context_.launch(kernel, blocks, walk.threads, at(set, 0), at(set, 1), at(set, 2), words, kScale);
        });
    return {};
  }

  void add_driver_way() {
    if (kind_ == MemoryKind::kCopy)
      add("cuMemcpyDtoD", [this](int set) {
        return context_.check(context_.api().copy_on_device(at(set, 0), at(set, 1), bytes_, context_.stream()),
                              "copying on the GPU");
      });
    if (kind_ == MemoryKind::kWrite)
      add("cuMemsetD32", [this](int set) {
        uint32_t bits = 0;
        std::memcpy(&bits, &kWritten, 4);
        return context_.check(context_.api().set_d32(at(set, 0), bits, bytes_ / 4, context_.stream()),
                              "filling on the GPU");
      });
  }

  // The sum of what the blocks left, against that of the numbers that were filled in.
  Result<Check> compare_sums(size_t candidate) {
    std::vector<uint32_t> partial(grids_[candidate]);
    LLMPROF_CHECK(device_.download(array(0, 0), 0, partial.data(), partial.size() * 4));
    uint32_t sum = 0;
    for (const uint32_t some : partial) sum += some;
    if (!expected_) expected_ = sum_of_words(fill_of(0, 1), static_cast<int64_t>(bytes_ / 4));
    Check check;
    check.compared = 1;
    check.status = sum == *expected_ ? CheckStatus::kPassed : CheckStatus::kFailed;
    if (sum == *expected_) return check;
    check.note = fmt::format("the words add up to {:#010x}, expected {:#010x}", sum, *expected_);
    check.worst_over_tolerance = std::numeric_limits<double>::infinity();
    check.rel_l2 = 1;
    return check;
  }

  size_t bytes_ = 0;
  MemoryKind kind_ = MemoryKind::kCopy;
  std::vector<size_t> grids_;  // of the own candidates, which come first
  std::optional<uint32_t> expected_;
};

}  // namespace

Result<std::unique_ptr<PreparedOp>> prepare_memory(Device& device, const OpParams& params) {
  return prepare_as<MemoryOp>(device, params);
}

}  // namespace llmprof::kernels::cuda
