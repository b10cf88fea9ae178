#include "kernels/cuda/cuda_op.h"

namespace llmprof::kernels::cuda {

size_t CudaOp::bytes_per_set() const {
  size_t bytes = 0;
  for (const Array& array : arrays_) bytes += array.bytes;
  return bytes;
}

Status CudaOp::begin(std::vector<Array> arrays) {
  arrays_ = std::move(arrays);
  return add_set();
}

Status CudaOp::fill_array(size_t set, size_t index) {
  return device_.fill(*sets_[set][index], fill_of(static_cast<int>(set), index));
}

Fill CudaOp::fill_of(int set, size_t index) const {
  const Array& array = arrays_[index];
  Fill fill = array.fill;
  if (array.role == Role::kOutput) fill = {Fill::Kind::kPoison, DType::kInt8, 0, 0};
  fill.seed = params_.seed * 1000003 + static_cast<uint64_t>(set) * 101 + index;
  return fill;
}

Status CudaOp::add_set() {
  std::vector<std::unique_ptr<Buffer>> buffers;
  for (const Array& array : arrays_) {
    Result<std::unique_ptr<Buffer>> buffer = device_.allocate(array.bytes);
    if (!buffer) return tl::unexpected<Error>(std::move(buffer.error()));
    buffers.push_back(std::move(*buffer));
  }
  sets_.push_back(std::move(buffers));
  for (size_t index = 0; index < arrays_.size(); ++index) LLMPROF_CHECK(fill_array(sets_.size() - 1, index));
  return set_made(static_cast<int>(sets_.size()) - 1);
}

Status CudaOp::prepare_sets(int sets) {
  while (sets_.size() < static_cast<size_t>(sets)) LLMPROF_CHECK(add_set());
  return device_.synchronize();
}

Result<Check> CudaOp::check(size_t candidate) {
  for (size_t index = 0; index < arrays_.size(); ++index)
    if (arrays_[index].role != Role::kInput) LLMPROF_CHECK(fill_array(0, index));
  LLMPROF_CHECK(candidates_[candidate].enqueue(0));
  LLMPROF_CHECK(device_.synchronize());
  for (size_t index = 0; index < arrays_.size(); ++index) {
    const Status intact = device_.check_guards(array(0, index));
    if (intact) continue;
    if (context_.lost()) return tl::unexpected<Error>(intact.error());
    Check wrong;
    wrong.status = CheckStatus::kFailed;
    wrong.note = arrays_[index].name + ": " + intact.error().what;
    return wrong;
  }
  return compare(candidate);
}

}  // namespace llmprof::kernels::cuda
