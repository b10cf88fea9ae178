// The kernels that are compiled for each type, for the type T; included once for each, outside of any namespace.
#define EMULATED_JOIN(a, b) a##b
#define EMULATED_NAME(a, b) EMULATED_JOIN(a, b)

namespace EMULATED_NAME(kernels_elementwise_, T) {
#include "kernels/cuda/source/elementwise.cu"
}
namespace EMULATED_NAME(kernels_sampling_, T) {
#include "kernels/cuda/source/sampling.cu"
}
namespace EMULATED_NAME(kernels_workload_, T) {
#include "kernels/cuda/source/workload.cu"
}
#define ITEMS 1
namespace EMULATED_NAME(EMULATED_NAME(kernels_rows_, T), _1) {
#include "kernels/cuda/source/rows.cu"
}
#include "emulated_undef.h"
#define ITEMS 2
namespace EMULATED_NAME(EMULATED_NAME(kernels_rows_, T), _2) {
#include "kernels/cuda/source/rows.cu"
}
#include "emulated_undef.h"
#define ITEMS 4
namespace EMULATED_NAME(EMULATED_NAME(kernels_rows_, T), _4) {
#include "kernels/cuda/source/rows.cu"
}
#include "emulated_undef.h"

#undef EMULATED_NAME
#undef EMULATED_JOIN
