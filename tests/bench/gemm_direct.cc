// One GEMM timed by the libraries directly, as their own harnesses time it; nothing of llmprof is in here. oneDNN's
// matmul with weights in the format that it chooses (packed before, not timed), OpenBLAS with weights either way round.
//
//   gemm_direct M N K fp32|bf16 SECONDS [OPENBLAS]
// prints "oneDNN GFLOPS", "OpenBLAS nt GFLOPS", "OpenBLAS nn GFLOPS": of the median execution.
#include <dlfcn.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <oneapi/dnnl/dnnl.hpp>
#include <random>
#include <string>
#include <vector>

namespace {

double median_gflops(double flops, double seconds, const std::function<void()>& run) {
  using clock = std::chrono::steady_clock;
  for (int warm = 0; warm < 3; ++warm) run();
  std::vector<double> times;
  const clock::time_point end =
      clock::now() + std::chrono::duration_cast<clock::duration>(std::chrono::duration<double>(seconds));
  // Short ones are timed several at once.
  const clock::time_point probe = clock::now();
  run();
  const double once = std::chrono::duration<double>(clock::now() - probe).count();
  const int launches = std::max(1, static_cast<int>(1e-3 / once));
  while (times.size() < 5 || clock::now() < end) {
    const clock::time_point start = clock::now();
    for (int launch = 0; launch < launches; ++launch) run();
    times.push_back(std::chrono::duration<double>(clock::now() - start).count() / launches);
  }
  std::sort(times.begin(), times.end());
  return flops / times[times.size() / 2] * 1e-9;
}

void one_dnn(int64_t m, int64_t n, int64_t k, dnnl::memory::data_type type, double seconds, const std::vector<float>& a,
             const std::vector<float>& b) {
  using dnnl::memory;
  dnnl::engine engine(dnnl::engine::kind::cpu, 0);
  dnnl::stream stream(engine);
  const memory::desc a_md({m, k}, type, memory::format_tag::ab);
  const memory::desc out_md({m, n}, type, memory::format_tag::ab);
  const memory::desc any_md({k, n}, type, memory::format_tag::any);
  const dnnl::matmul::primitive_desc description(dnnl::matmul::desc(a_md, any_md, out_md), engine);
  memory source(a_md, engine), weights(description.weights_desc(), engine), out(out_md, engine);
  memory plain_a({{m, k}, memory::data_type::f32, memory::format_tag::ab}, engine, const_cast<float*>(a.data()));
  memory plain_b({{k, n}, memory::data_type::f32, memory::format_tag::ab}, engine, const_cast<float*>(b.data()));
  dnnl::reorder(plain_a, source).execute(stream, plain_a, source);
  dnnl::reorder(plain_b, weights).execute(stream, plain_b, weights);
  stream.wait();
  const dnnl::matmul matmul(description);
  const double flops = 2.0 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k);
  std::printf("oneDNN %.2f\n", median_gflops(flops, seconds, [&] {
                matmul.execute(stream, {{DNNL_ARG_SRC, source}, {DNNL_ARG_WEIGHTS, weights}, {DNNL_ARG_DST, out}});
                stream.wait();
              }));
}

void open_blas(const char* file, int64_t m, int64_t n, int64_t k, double seconds, const std::vector<float>& a,
               const std::vector<float>& b) {
  void* library = dlopen(file, RTLD_NOW | RTLD_LOCAL);
  using Sgemm = void (*)(int, int, int, int, int, int, float, const float*, int, const float*, int, float, float*, int);
  const Sgemm sgemm = library != nullptr ? reinterpret_cast<Sgemm>(dlsym(library, "cblas_sgemm")) : nullptr;
  if (sgemm == nullptr) return;
  std::vector<float> out(static_cast<size_t>(m * n));
  const double flops = 2.0 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k);
  const int rows = static_cast<int>(m), columns = static_cast<int>(n), inner = static_cast<int>(k);
  std::printf("OpenBLAS nt %.2f\n", median_gflops(flops, seconds, [&] {
                sgemm(101, 111, 112, rows, columns, inner, 1, a.data(), inner, b.data(), inner, 0, out.data(), columns);
              }));
  std::printf("OpenBLAS nn %.2f\n", median_gflops(flops, seconds, [&] {
                sgemm(101, 111, 111, rows, columns, inner, 1, a.data(), inner, b.data(), columns, 0, out.data(),
                      columns);
              }));
}

}  // namespace

int main(int count, char** arguments) {
  if (count < 6) {
    std::fprintf(stderr, "usage: gemm_direct M N K fp32|bf16 SECONDS [OPENBLAS]\n");
    return 2;
  }
  const int64_t m = std::atoll(arguments[1]), n = std::atoll(arguments[2]), k = std::atoll(arguments[3]);
  const bool bf16 = std::string(arguments[4]) == "bf16";
  const double seconds = std::atof(arguments[5]);
  std::vector<float> a(static_cast<size_t>(m * k)), b(static_cast<size_t>(k * n));
  std::minstd_rand random(7);
  std::uniform_real_distribution<float> uniform(-1, 1);
  for (float& value : a) value = uniform(random);
  for (float& value : b) value = uniform(random);
  one_dnn(m, n, k, bf16 ? dnnl::memory::data_type::bf16 : dnnl::memory::data_type::f32, seconds, a, b);
  if (!bf16) open_blas(count > 6 ? arguments[6] : "libopenblas.so.0", m, n, k, seconds, a, b);
  return 0;
}
