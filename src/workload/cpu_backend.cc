#include "workload/cpu_backend.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "device/cpu/cpu_device.h"
#include "device/elements.h"
#include "device/fill.h"
#include "kernels/cpu/attention_kernels.h"
#include "workload/cpu_kernels.h"
#include "workload/cpu_linear.h"
#include "workload/sizes.h"

namespace llmprof::workload {
namespace {

using device::cpu::CpuDevice;
using kernels::cpu::RowArrays;

constexpr size_t kCpuAlignment = 64;
constexpr size_t kCpuSlabBytes = size_t{16} << 20;  // small tensors share pages
// Less work than waking a thread is worth is done by the calling one.
constexpr int64_t kElementShare = 8192;  // elements that a thread takes at least

void fill_numbers(const Numbers& numbers, DType dtype, int64_t first, int64_t last, void* out) {
  const uint64_t mixed = device::fill_mix(numbers.seed);
  for (int64_t i = first; i < last; ++i) {
    const float u = device::fill_uniform(device::fill_hash_mixed(mixed, static_cast<uint64_t>(i)));
    const float value = numbers.offset + numbers.scale * u;
    if (dtype == DType::kBf16)
      static_cast<uint16_t*>(out)[i] = device::to_bf16(value);
    else
      static_cast<float*>(out)[i] = value;
  }
}

class CpuBackend : public Backend {
 public:
  CpuBackend(std::unique_ptr<device::Device> device, std::unique_ptr<CpuLinears> linears, DType dtype)
      : device_(std::move(device)),
        cpu_(static_cast<CpuDevice&>(*device_)),
        linears_(std::move(linears)),
        dtype_(dtype),
        rows_(kernels::cpu::row_kernels(cpu_.instructions(), dtype).front()),
        kernels_(cpu_kernels(cpu_.instructions(), dtype)),
        attention_(cpu_.team(), kernels::cpu::attention_kernels(cpu_.instructions(), dtype).front()) {}

  const device::DeviceIdentity& identity() const override { return cpu_.identity(); }
  DType dtype() const override { return dtype_; }
  int64_t free_bytes() const override { return cpu_.free_bytes(); }

  Result<Tensor> allocate(int64_t rows, int64_t columns, DType dtype) override {
    const double bytes = static_cast<double>(rows) * static_cast<double>(columns) * dtype_bytes(dtype);
    LLMPROF_ASSIGN(void* const data, take(static_cast<size_t>(bytes)));
    return Tensor{data, rows, columns, dtype};
  }

  Result<Tensor> weights(int64_t rows, int64_t columns, const Numbers& numbers) override {
    LLMPROF_ASSIGN(const Tensor tensor, allocate(rows, columns, dtype_));
    fill(numbers, tensor);
    return tensor;
  }

  Result<Linear> linear(int64_t in, int64_t out, const Numbers& w, const std::optional<Numbers>& bias, DType out_dtype,
                        std::span<const int64_t> rows) override {
    Tensor b;
    if (bias) {
      LLMPROF_ASSIGN(b, weights(1, out, *bias));
    }
    const Tensor shape{nullptr, out, in, dtype_};
    LLMPROF_ASSIGN(const std::unique_ptr<device::Buffer> plain, cpu_.allocate(bytes_of(shape)));
    const Tensor as_is{plain->address(), out, in, dtype_};
    fill(w, as_is);
    LLMPROF_ASSIGN(const int id, linears_->add(as_is, b, out_dtype, rows, [&](size_t bytes) { return take(bytes); }));
    return Linear{id, in, out, bias.has_value()};
  }

  Status upload(const Tensor& to, const void* from) override {
    std::memcpy(to.data, from, bytes_of(to));
    return {};
  }
  Status download(const Tensor& from, void* to) override {
    std::memcpy(to, from.data, bytes_of(from));
    return {};
  }

  Status apply(const Linear& linear, const Tensor& x, const Tensor& out) override {
    return linears_->run(linear.id, x, out);
  }

  Status gather(const Tensor& table, const Tensor& ids, const Tensor& out) override {
    const int32_t* const id = static_cast<const int32_t*>(ids.data);
    const size_t row = row_bytes(out);
    share(out.rows, rows_share(out.columns), [&](int64_t first, int64_t last) {
      for (int64_t i = first; i < last; ++i)
        std::memcpy(at(out, i), static_cast<const char*>(table.data) + static_cast<size_t>(id[i]) * row, row);
    });
    return {};
  }

  Status copy(const Tensor& x, const Tensor& out) override {
    const size_t row = row_bytes(out);
    share(out.rows, rows_share(out.columns), [&](int64_t first, int64_t last) {
      std::memcpy(at(out, first), at(x, first), row * static_cast<size_t>(last - first));
    });
    return {};
  }

  Status add(const Tensor& x, const Tensor& to) override {
    share(to.elements(), kElementShare,
          [&](int64_t first, int64_t last) { kernels_.add(x.data, to.data, first, last); });
    return {};
  }

  Status rmsnorm(const Tensor& x, const Tensor* residual, const Tensor& gain, const Tensor& out) override {
    RowArrays arrays = arrays_of(x, out);
    arrays.gain = gain.data;
    arrays.residual = residual != nullptr ? residual->data : nullptr;
    share(out.rows, rows_share(out.columns), [&](int64_t first, int64_t last) { rows_.rmsnorm(arrays, first, last); });
    return {};
  }

  Status layernorm(const Tensor& x, const Tensor& gain, const Tensor& bias, const Tensor& out) override {
    RowArrays arrays = arrays_of(x, out);
    arrays.gain = gain.data;
    arrays.bias = bias.data;
    share(out.rows, rows_share(out.columns),
          [&](int64_t first, int64_t last) { kernels_.layernorm(arrays, first, last); });
    return {};
  }

  Status gelu(const Tensor& x, const Tensor& out) override {
    share(out.elements(), kElementShare,
          [&](int64_t first, int64_t last) { kernels_.gelu(x.data, out.data, first, last); });
    return {};
  }

  Status swiglu(const Tensor& x, const Tensor& out) override {
    const RowArrays arrays = arrays_of(x, out);
    share(out.rows, rows_share(out.columns), [&](int64_t first, int64_t last) { rows_.swiglu(arrays, first, last); });
    return {};
  }

  Status rope(const Tensor& x, int64_t heads, int64_t kv_heads, int64_t head_size, const Tensor& angles,
              const Tensor& positions) override {
    share(x.rows, rows_share(x.columns), [&](int64_t first, int64_t last) {
      rows_.rope({x.data, static_cast<const float*>(angles.data), static_cast<const int32_t*>(positions.data),
                  x.columns, heads + kv_heads, head_size},
                 first, last);
    });
    return {};
  }

  Status append(const Tensor& qkv, int64_t query_width, const Tensor& positions, int64_t sequences,
                const Cache& cache) override {
    const int32_t* const position = static_cast<const int32_t*>(positions.data);
    const int64_t head_size = cache.keys.columns, kv_width = (qkv.columns - query_width) / 2,
                  kv_heads = kv_width / head_size, tokens = qkv.rows / sequences;
    const auto element = static_cast<size_t>(dtype_bytes(dtype_));
    const size_t bytes = static_cast<size_t>(head_size) * element;
    share(qkv.rows, rows_share(qkv.columns), [&](int64_t first, int64_t last) {
      for (int64_t row = first; row < last; ++row) {
        const char* const keys = at(qkv, row) + static_cast<size_t>(query_width) * element;
        const char* const values = keys + static_cast<size_t>(kv_width) * element;
        for (int64_t head = 0; head < kv_heads; ++head) {
          const int64_t to = (row / tokens * kv_heads + head) * cache.capacity + position[row];
          const size_t offset = static_cast<size_t>(head) * bytes;
          std::memcpy(at(cache.keys, to), keys + offset, bytes);
          std::memcpy(at(cache.values, to), values + offset, bytes);
        }
      }
    });
    return {};
  }

  Status attention(const AttentionCall& call) override {
    const auto at = [](const Heads& heads) {
      return kernels::cpu::HeadsAt{heads.data, heads.sequence, heads.head, heads.token};
    };
    kernels::cpu::AttentionArrays arrays;
    arrays.q = at(call.q);
    arrays.k = at(call.k);
    arrays.v = at(call.v);
    arrays.out = {call.out.data, call.queries * call.out.columns, call.head_size, call.out.columns};
    arrays.sequences = call.sequences;
    arrays.heads = call.heads;
    arrays.kv_heads = call.kv_heads;
    arrays.head_dim = call.head_size;
    arrays.queries = call.queries;
    arrays.keys = call.keys;
    arrays.positions = call.positions ? static_cast<const int32_t*>(call.positions->data) : nullptr;
    arrays.scale = 1 / std::sqrt(static_cast<float>(call.head_size));
    attention_.run(arrays);
    return {};
  }

  Status merge(const Tensor& x, int64_t merge, const Tensor& out) override {
    const size_t bytes = row_bytes(x);
    const int64_t squares = out.rows;
    int64_t side = 1;  // squares a side
    while (side * side < squares) ++side;
    share(squares, rows_share(out.columns), [&](int64_t first, int64_t last) {
      for (int64_t square = first; square < last; ++square) {
        char* to = at(out, square);
        for (int64_t y = 0; y < merge; ++y)
          for (int64_t x_in = 0; x_in < merge; ++x_in, to += bytes)
            std::memcpy(to, at(x, (square / side * merge + y) * side * merge + square % side * merge + x_in), bytes);
      }
    });
    return {};
  }

  Status argmax(const Tensor& x, const Tensor& out) override {
    share(x.rows, rows_share(x.columns), [&](int64_t first, int64_t last) {
      for (int64_t row = first; row < last; ++row) {
        const float* const values = static_cast<const float*>(x.data) + row * x.columns;
        static_cast<int32_t*>(out.data)[row] = static_cast<int32_t>(kernels_.largest(values, x.columns));
      }
    });
    return {};
  }

  Status advance(const Tensor& numbers) override {
    int32_t* const first = static_cast<int32_t*>(numbers.data);
    std::for_each(first, first + numbers.elements(), [](int32_t& number) { ++number; });
    return {};
  }

 private:
  static size_t bytes_of(const Tensor& tensor) {
    return static_cast<size_t>(tensor.elements()) * static_cast<size_t>(dtype_bytes(tensor.dtype));
  }
  static size_t row_bytes(const Tensor& tensor) {
    return static_cast<size_t>(tensor.columns) * static_cast<size_t>(dtype_bytes(tensor.dtype));
  }
  static char* at(const Tensor& tensor, int64_t row) {
    return static_cast<char*>(tensor.data) + static_cast<size_t>(row) * row_bytes(tensor);
  }
  static RowArrays arrays_of(const Tensor& x, const Tensor& out) {
    RowArrays arrays;
    arrays.x = x.data;
    arrays.out = out.data;
    arrays.columns = out.columns;
    arrays.epsilon = kNormEpsilon;
    return arrays;
  }

  static int64_t rows_share(int64_t columns) { return std::max<int64_t>(1, kElementShare / columns); }

  // body(first, last) for equal shares of `count`, at multiples of `multiple`.
  template <class Body>
  void share(int64_t count, int64_t multiple, Body&& body) {
    const int threads = cpu_.team().threads();
    if (count <= multiple) return body(int64_t{0}, count);
    cpu_.team().run([&](int thread) {
      const auto [first, last] =
          device::cpu::share_of(static_cast<size_t>(count), static_cast<size_t>(multiple), thread, threads);
      if (first < last) body(static_cast<int64_t>(first), static_cast<int64_t>(last));
    });
  }

  void fill(const Numbers& numbers, const Tensor& tensor) {
    share(tensor.elements(), kElementShare,
          [&](int64_t first, int64_t last) { fill_numbers(numbers, dtype_, first, last, tensor.data); });
  }

  Result<void*> take(size_t bytes) {
    bytes = (std::max<size_t>(bytes, 1) + kCpuAlignment - 1) / kCpuAlignment * kCpuAlignment;
    if (slabs_.empty() || slab_used_ + bytes > slabs_.back()->bytes()) {
      LLMPROF_ASSIGN(std::unique_ptr<device::Buffer> slab, cpu_.allocate(std::max(bytes, kCpuSlabBytes)));
      slabs_.push_back(std::move(slab));
      slab_used_ = 0;
    }
    void* const address = static_cast<char*>(slabs_.back()->address()) + slab_used_;
    slab_used_ += bytes;
    return address;
  }

  // Before everything that lies in it.
  std::unique_ptr<device::Device> device_;
  CpuDevice& cpu_;
  std::vector<std::unique_ptr<device::Buffer>> slabs_;
  size_t slab_used_ = 0;
  std::unique_ptr<CpuLinears> linears_;
  DType dtype_;
  kernels::cpu::RowKernels rows_;
  CpuKernels kernels_;
  kernels::cpu::AttentionRunner attention_;
};

}  // namespace

DType cpu_dtype() { return device::cpu::cpu_instructions().bf16() ? DType::kBf16 : DType::kFp32; }

Result<std::unique_ptr<Backend>> open_cpu_backend(int threads, DType dtype) {
  if (dtype != DType::kFp32 && dtype != DType::kBf16)
    return fail(fmt::format("expected fp32 or bf16, found {}", dtype_name(dtype)), "--dtype", "--dtype bf16",
                ExitCode::kUsage);
  if (dtype == DType::kBf16 && !device::cpu::cpu_instructions().bf16())
    return fail("this CPU has no instructions for bf16 products (AVX512-BF16 or AMX)", "--dtype", "--dtype fp32");
  LLMPROF_ASSIGN(std::unique_ptr<device::Device> device, device::cpu::open_cpu(threads));
  LLMPROF_ASSIGN(std::unique_ptr<CpuLinears> linears, CpuLinears::open());
  return std::unique_ptr<Backend>(std::make_unique<CpuBackend>(std::move(device), std::move(linears), dtype));
}

}  // namespace llmprof::workload
