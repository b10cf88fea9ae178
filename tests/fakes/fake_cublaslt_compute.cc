// The part of fake_cuda that multiplies: calls of cuBLASLt and cuBLAS on column-major matrices in host memory, in
// double.
#include <cmath>
#include <cstring>
#include <map>
#include <memory>
#include <vector>

#include "device/elements.h"
#include "fake_cuda.h"
#include "nvidia/cublaslt_abi.h"

using namespace llmprof;
using namespace llmprof::cublaslt;

extern "C" int cuLaunchHostWork(void (*work)(void*), void* data);

namespace {

struct FakeDesc {
  std::map<int, std::vector<char>> values;
  int compute = 0, scale = 0;
  template <class T>
  T get(int attribute, T otherwise) const {
    const auto found = values.find(attribute);
    if (found == values.end()) return otherwise;
    T value;
    std::memcpy(&value, found->second.data(), sizeof value);
    return value;
  }
};
struct FakeLayout {
  int type;
  uint64_t rows, cols;
  int64_t ld;
  int32_t batch = 1;
  int64_t stride = 0;  // in elements
};

DType type_of(int type) {
  switch (type) {
    case cublas::kR64F:
      return DType::kFp64;
    case cublas::kR16F:
      return DType::kFp16;
    case cublas::kR16BF:
      return DType::kBf16;
    case cublas::kR8I:
      return DType::kInt8;
    case cublas::kR32I:
      return DType::kInt32;
    case cublas::kR8FE4M3:
      return DType::kFp8;
    case cublas::kR4FE2M1:
      return DType::kFp4;
    default:
      return DType::kFp32;
  }
}

double tf32(double value) {
  float narrow = static_cast<float>(value);
  uint32_t bits;
  std::memcpy(&bits, &narrow, 4);
  bits = (bits + 0x1000u) & ~0x1fffu;
  std::memcpy(&narrow, &bits, 4);
  return static_cast<double>(narrow);
}

void put(DType type, void* at, uint64_t index, double value) {
  const auto write = [&](auto v) { std::memcpy(static_cast<char*>(at) + index * sizeof v, &v, sizeof v); };
  switch (type) {
    case DType::kFp64:
      return write(value);
    case DType::kFp16:
      return write(device::to_fp16(static_cast<float>(value)));
    case DType::kBf16:
      return write(device::to_bf16(static_cast<float>(value)));
    case DType::kInt32:
      return write(static_cast<int32_t>(value));
    default:
      return write(static_cast<float>(value));
  }
}

const void* element(const FakeLayout& layout, const void* data, int64_t product) {
  const double bytes = dtype_bytes(type_of(layout.type));
  return static_cast<const char*>(data) + static_cast<int64_t>(static_cast<double>(product * layout.stride) * bytes);
}

struct Product {
  FakeDesc desc;
  FakeLayout a, b, d;
  const void *a_data, *b_data, *c_data;
  void* d_data;
  bool adds_c, wrong;

  void run() const {
    for (int64_t product = 0; product < d.batch; ++product)
      run_one(element(a, a_data, product), element(b, b_data, product), element(d, c_data, product),
              const_cast<void*>(element(d, d_data, product)));
  }

  // What a row or column is multiplied by, beside one factor for all.
  double scale_of(int attribute, int mode, uint64_t index) const {
    const float* factor = desc.get<const float*>(attribute, nullptr);
    if (factor == nullptr || desc.get<int32_t>(mode, 0) == cublas::kScaleVec16Ue4m3) return 1;
    return static_cast<double>(desc.get<int32_t>(mode, cublas::kScaleScalar) == cublas::kScaleOuterVec ? factor[index]
                                                                                                       : *factor);
  }

  // Of 16 elements along the depth. Factors lie in tiles of 128 rows by 4: (row % 32, row / 32 % 4, factor % 4).
  double block_scale(int attribute, int mode, uint64_t row, uint64_t k, uint64_t depth) const {
    if (desc.get<int32_t>(mode, 0) != cublas::kScaleVec16Ue4m3) return 1;
    const uint64_t factor = k / 16, tiles = (depth + 63) / 64;
    const uint64_t tile = row / 128 * tiles + factor / 4;
    const uint64_t at = tile * 512 + row % 32 * 16 + row / 32 % 4 * 4 + factor % 4;
    return static_cast<double>(device::from_fp8(desc.get<const uint8_t*>(attribute, nullptr)[at]));
  }

  void run_one(const void* a_data, const void* b_data, const void* c_data, void* d_data) const {
    const bool a_transposed = desc.get<int>(cublas::kMatmulTransA, 0) != 0;
    const bool b_transposed = desc.get<int>(cublas::kMatmulTransB, 0) != 0;
    const uint64_t depth = a_transposed ? a.rows : a.cols;
    const uint32_t epilogue = desc.get<uint32_t>(cublas::kMatmulEpilogue, cublas::kEpilogue_DEFAULT);
    const void* bias = desc.get<const void*>(cublas::kMatmulBiasPointer, nullptr);
    const bool round = desc.compute == cublas::kCompute32FFastTf32;
    const auto at = [round](const FakeLayout& layout, const void* data, bool transposed, uint64_t row, uint64_t col) {
      const uint64_t index =
          transposed ? row * static_cast<uint64_t>(layout.ld) + col : col * static_cast<uint64_t>(layout.ld) + row;
      const double value = device::element_at(type_of(layout.type), data, index);
      return round ? tf32(value) : value;
    };
    for (uint64_t col = 0; col < d.cols - (wrong ? 1 : 0); ++col) {
      for (uint64_t row = 0; row < d.rows; ++row) {
        double sum = 0;
        for (uint64_t k = 0; k < depth; ++k)
          sum += at(a, a_data, a_transposed, row, k) *
                 block_scale(cublas::kMatmulAScale, cublas::kMatmulAScaleMode, row, k, depth) *
                 at(b, b_data, b_transposed, k, col) *
                 block_scale(cublas::kMatmulBScale, cublas::kMatmulBScaleMode, col, k, depth);
        sum *= scale_of(cublas::kMatmulAScale, cublas::kMatmulAScaleMode, row) *
               scale_of(cublas::kMatmulBScale, cublas::kMatmulBScaleMode, col);
        if (adds_c) sum += device::element_at(type_of(d.type), c_data, col * static_cast<uint64_t>(d.ld) + row);
        if ((epilogue & cublas::kEpilogue_BIAS) != 0)
          sum += device::element_at(type_of(desc.get<int32_t>(cublas::kMatmulBiasType, d.type)), bias, row);
        if ((epilogue & cublas::kEpilogue_GELU) != 0)
          sum = 0.5 * sum * (1 + std::tanh(0.7978845608028654 * (sum + 0.044715 * sum * sum * sum)));
        put(type_of(d.type), d_data, col * static_cast<uint64_t>(d.ld) + row, sum);
      }
    }
  }
};

Status launch(Product product) {
  // A captured graph may run it any number of times, so it stays to the end.
  static std::vector<std::unique_ptr<Product>> kept;
  kept.push_back(std::make_unique<Product>(std::move(product)));
  const int result = cuLaunchHostWork([](void* data) { static_cast<Product*>(data)->run(); }, kept.back().get());
  return result == 0 ? cublas::kSuccess : cublas::kExecutionFailed;
}

FakeDesc& desc_of(MatmulDesc desc) { return *reinterpret_cast<FakeDesc*>(desc); }
FakeLayout& layout_of(Layout layout) { return *reinterpret_cast<FakeLayout*>(layout); }

}  // namespace

extern "C" {
#pragma GCC visibility push(default)

size_t cublasLtGetVersion() { return fake_cuda_script()->cublaslt_version; }
Status cublasLtCreate(Handle* handle) {
  *handle = reinterpret_cast<Handle>(fake_cuda_script());
  return cublas::kSuccess;
}
Status cublasLtDestroy(Handle) { return cublas::kSuccess; }
Status cublasLtMatmulDescCreate(MatmulDesc* desc, int compute, int scale) {
  FakeDesc* made = new FakeDesc;
  made->compute = compute;
  made->scale = scale;
  *desc = reinterpret_cast<MatmulDesc>(made);
  return cublas::kSuccess;
}
Status cublasLtMatmulDescDestroy(MatmulDesc desc) {
  delete &desc_of(desc);
  return cublas::kSuccess;
}
Status cublasLtMatmulDescSetAttribute(MatmulDesc desc, int attribute, const void* value, size_t bytes) {
  const char* from = static_cast<const char*>(value);
  desc_of(desc).values[attribute].assign(from, from + bytes);
  return cublas::kSuccess;
}
Status cublasLtMatrixLayoutCreate(Layout* layout, int type, uint64_t rows, uint64_t cols, int64_t ld) {
  *layout = reinterpret_cast<Layout>(new FakeLayout{type, rows, cols, ld});
  return cublas::kSuccess;
}
Status cublasLtMatrixLayoutDestroy(Layout layout) {
  delete &layout_of(layout);
  return cublas::kSuccess;
}
Status cublasLtMatrixLayoutSetAttribute(Layout layout, int attribute, const void* value, size_t bytes) {
  FakeLayout& of = layout_of(layout);
  if (attribute == cublas::kLayoutBatchCount && bytes == sizeof of.batch) std::memcpy(&of.batch, value, bytes);
  if (attribute == cublas::kLayoutBatchStride && bytes == sizeof of.stride) std::memcpy(&of.stride, value, bytes);
  return cublas::kSuccess;
}
Status cublasLtMatmulPreferenceCreate(Preference* preference) {
  *preference = reinterpret_cast<Preference>(fake_cuda_script());
  return cublas::kSuccess;
}
Status cublasLtMatmulPreferenceDestroy(Preference) { return cublas::kSuccess; }
Status cublasLtMatmulPreferenceSetAttribute(Preference, int, const void*, size_t) { return cublas::kSuccess; }
Status cublasLtMatmulAlgoGetHeuristic(Handle, MatmulDesc, Layout, Layout, Layout, Layout, Preference, int requested,
                                      HeuristicResult* results, int* found) {
  const FakeCudaScript& script = *fake_cuda_script();
  *found = script.heuristic_status != 0 ? 0 : std::min(requested, script.algorithms);
  for (int i = 0; i < *found; ++i) {
    results[i] = HeuristicResult{};
    results[i].algo.data[0] = static_cast<uint64_t>(i);
  }
  return static_cast<Status>(script.heuristic_status);
}
Status cublasLtMatmul(Handle, MatmulDesc desc, const void*, const void* a, Layout a_layout, const void* b,
                      Layout b_layout, const void* beta, const void* c, Layout, void* d, Layout d_layout,
                      const Algo* algo, void*, size_t, Stream) {
  const FakeCudaScript& script = *fake_cuda_script();
  const float zero = 0;
  const bool adds_c = desc_of(desc).scale == cublas::kR32F && std::memcmp(beta, &zero, sizeof zero) != 0;
  return launch({desc_of(desc), layout_of(a_layout), layout_of(b_layout), layout_of(d_layout), a, b, c, d, adds_c,
                 static_cast<int>(algo->data[0]) == script.wrong_algorithm});
}

// cuBLAS: groups of matrices, whose sizes the host has and whose addresses lie on the device.
int cublasCreate_v2(void** handle) {
  *handle = fake_cuda_script();
  return cublas::kSuccess;
}
int cublasDestroy_v2(void*) { return cublas::kSuccess; }
int cublasGetVersion_v2(void*, int* version) {
  *version = 120804;
  return cublas::kSuccess;
}
int cublasSetStream_v2(void*, void*) { return cublas::kSuccess; }
int cublasSetWorkspace_v2(void*, void*, size_t) { return cublas::kSuccess; }
int cublasGemmEx(void*, int a_transpose, int b_transpose, int m, int n, int k, const void*, const void* a, int a_type,
                 int lda, const void* b, int b_type, int ldb, const void*, void* c, int c_type, int ldc, int, int) {
  FakeDesc desc;
  for (const auto& [attribute, value] : {std::pair<int, int>(cublas::kMatmulTransA, a_transpose),
                                         std::pair<int, int>(cublas::kMatmulTransB, b_transpose)}) {
    const char* from = reinterpret_cast<const char*>(&value);
    desc.values[attribute].assign(from, from + sizeof value);
  }
  const auto layout = [](int type, int rows, int cols, int ld) {
    return FakeLayout{type, static_cast<uint64_t>(rows), static_cast<uint64_t>(cols), ld};
  };
  return launch({desc, layout(a_type, a_transpose != 0 ? k : m, a_transpose != 0 ? m : k, lda),
                 layout(b_type, b_transpose != 0 ? n : k, b_transpose != 0 ? k : n, ldb), layout(c_type, m, n, ldc), a,
                 b, c, c, false, false});
}
int cublasGemmGroupedBatchedEx(void*, const int* a_transposes, const int* b_transposes, const int* m, const int* n,
                               const int* k, const void*, const void* const* a, int a_type, const int* lda,
                               const void* const* b, int b_type, const int* ldb, const void*, void* const* c,
                               int c_type, const int* ldc, int groups, const int* group_size, int) {
  const auto layout = [](int type, int rows, int cols, int ld) {
    return FakeLayout{type, static_cast<uint64_t>(rows), static_cast<uint64_t>(cols), ld};
  };
  for (int group = 0, matrix = 0; group < groups; ++group) {
    FakeDesc desc;
    const auto set = [&](int attribute, int value) {
      const char* from = reinterpret_cast<const char*>(&value);
      desc.values[attribute].assign(from, from + sizeof value);
    };
    set(cublas::kMatmulTransA, a_transposes[group]);
    set(cublas::kMatmulTransB, b_transposes[group]);
    const bool a_across = a_transposes[group] != 0, b_across = b_transposes[group] != 0;
    const FakeLayout left = layout(a_type, a_across ? k[group] : m[group], a_across ? m[group] : k[group], lda[group]);
    const FakeLayout right = layout(b_type, b_across ? n[group] : k[group], b_across ? k[group] : n[group], ldb[group]);
    for (int i = 0; i < group_size[group]; ++i, ++matrix)
      if (launch({desc, left, right, layout(c_type, m[group], n[group], ldc[group]), a[matrix], b[matrix], c[matrix],
                  c[matrix], false, false}) != cublas::kSuccess)
        return cublas::kExecutionFailed;
  }
  return cublas::kSuccess;
}

#pragma GCC visibility pop
}  // extern "C"
