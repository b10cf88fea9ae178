// A plain STREAM triad: three arrays of doubles, one OpenMP loop, nothing by hand. The baseline that the memory kernels
// of llmprof are held against; built with -O3 -march=native -fopenmp.
//
//   stream_openmp BYTES SECONDS   BYTES of each array; prints "triad GB/s" of the median pass, 24 bytes per element
#include <omp.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <vector>

int main(int count, char** arguments) {
  if (count < 3) {
    std::fprintf(stderr, "usage: stream_openmp BYTES SECONDS\n");
    return 2;
  }
  const long elements = std::atol(arguments[1]) / 8;
  const double seconds = std::atof(arguments[2]);
  // Not touched before the parallel loop: each thread has its part near it.
  const std::unique_ptr<double[]> a_owner(new double[static_cast<size_t>(elements)]);
  const std::unique_ptr<double[]> b_owner(new double[static_cast<size_t>(elements)]);
  const std::unique_ptr<double[]> c_owner(new double[static_cast<size_t>(elements)]);
  double* const a = a_owner.get();
  double* const b = b_owner.get();
  double* const c = c_owner.get();
#pragma omp parallel for
  for (long i = 0; i < elements; ++i) {
    a[i] = 1;
    b[i] = 2;
    c[i] = 0;
  }
  std::vector<double> times;
  const double end = omp_get_wtime() + seconds;
  while (times.size() < 6 || omp_get_wtime() < end) {
    const double start = omp_get_wtime();
#pragma omp parallel for
    for (long i = 0; i < elements; ++i) a[i] = b[i] + 3.0 * c[i];
    times.push_back(omp_get_wtime() - start);
  }
  if (a[elements / 2] != 2) return 1;
  times.erase(times.begin());  // STREAM leaves the first out
  std::sort(times.begin(), times.end());
  std::printf("triad %.3f\n", 24.0 * static_cast<double>(elements) / times[times.size() / 2] * 1e-9);
  return 0;
}
