// What can be measured: one row per operation, with its axes, its cost and how each kind of device does it. Adding one
// is a row in catalogue/operations.cc, its cost in src/ops, a file in cpu/ or cuda/, and a reference in reference/
// (docs/howto/add-a-benchmark.md).
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"
#include "device/device.h"
#include "ops/op.h"

namespace llmprof::kernels {

using device::Buffer;
using device::Device;
using device::DeviceIdentity;
using device::DeviceKind;
using device::Fill;
using device::Repetitions;
using device::Sample;
using ops::Axis;
using ops::Cost;
using ops::OpParams;

// One way to do it: an algorithm of a library, or a kernel of our own.
struct Candidate {
  std::string backend;  // "cuBLASLt #3", "own", "oneDNN"
  std::function<Status(int set)> enqueue;
};

enum class CheckStatus : uint8_t { kPassed, kMistrusted, kFailed, kSkipped };
struct Check {
  CheckStatus status = CheckStatus::kSkipped;
  double worst_over_tolerance = 0;  // largest error over what the element may have; passed up to 1
  double rel_l2 = 0;                // |out - reference| / |reference| over what was compared
  int64_t compared = 0;             // elements
  std::string note;                 // why it failed, is mistrusted or was skipped
};

// Buffers and handles of one case on one device.
class PreparedOp {
 public:
  virtual ~PreparedOp() = default;
  virtual std::vector<Candidate>& candidates() = 0;  // at least one; the library's first choice first
  // How many of them are worth a check at most: the first, and those that a short screen finds fastest. Libraries offer
  // dozens of algorithms, and checking one takes longer than running it.
  virtual size_t worth_checking() const { return kEveryCandidate; }
  static constexpr size_t kEveryCandidate = SIZE_MAX;
  virtual size_t bytes_per_set() const = 0;
  // Inputs and outputs so many times, so that a rotation over them does not stay in the cache. Set 0 exists already.
  virtual Status prepare_sets(int sets) = 0;
  // Outputs of set 0 poisoned, the candidate run once, sampled outputs compared with the reference.
  virtual Result<Check> check(size_t candidate) = 0;
};

// Which ceilings of a device an operation is there for (`llmprof peaks`), and what its own rate is held against.
enum class Ceiling : uint8_t {
  kNone,
  kProducts,    // arithmetic as libraries reach it
  kRegisters,   // arithmetic on registers alone
  kMemory,      // bandwidth, by variant: read, write, copy, triad
  kLink,        // bandwidth between host and device, by variant
  kFixedCosts,  // what starting work and waiting for it takes, by variant
};

struct Operation {
  std::string_view name;   // "gemm"
  std::string_view title;  // one line for `llmprof list benchmarks`
  std::span<const Axis> axes;
  std::span<const DType> dtypes;
  std::span<const std::string_view> variants;  // the first is the usual one; empty: none
  Cost (*cost)(const OpParams&);
  // Bytes of one set of buffers and of everything else, known before anything is allocated. Null: those of the cost.
  int64_t (*footprint_of)(const OpParams&);
  // The sentence that says why this device cannot, or nothing.
  std::optional<std::string> (*unsupported)(const DeviceIdentity&, const OpParams&);
  // Null where that kind of device has none.
  Result<std::unique_ptr<PreparedOp>> (*prepare_cpu)(Device&, const OpParams&);
  Result<std::unique_ptr<PreparedOp>> (*prepare_cuda)(Device&, const OpParams&);
  Ceiling ceiling = Ceiling::kNone;

  int64_t footprint_bytes(const OpParams& params) const {
    return footprint_of != nullptr ? footprint_of(params) : static_cast<int64_t>(cost(params).bytes());
  }
};
std::span<const Operation> operations();
const Operation* find_operation(std::string_view name);

// Every axis at its usual value; `changes` replace some. Errors: an axis that the operation does not have (with the
// nearest names), a value below 1, a data type or variant that it does not have.
Result<OpParams> make_params(const Operation& operation, DType dtype, std::string_view variant,
                             const std::vector<std::pair<std::string, int64_t>>& changes);

}  // namespace llmprof::kernels
