// Any bytes as a log of cuBLAS or cuBLASLt, through the whole program: read, import, derive, analyze, render.
#include <string>
#include <string_view>

#include "import/cublas.h"
#include "one_format.h"

namespace llmprof::fuzz {

void use(std::string_view bytes) {
  Trace trace;
  if (!imported(bytes, "fuzz.log", blas_logs::sniff, blas_logs::import, trace)) return;
  // The shortest product has some hundred bytes; compressed bytes stand for more.
  if (more_than_text(bytes, trace.logged_products.size(), 50)) broken("reading", "more products than text");
  for (size_t row = 0; row < trace.logged_products.size(); ++row)
    if (trace.logged_products.batch[row] <= 0 || trace.logged_products.k[row] == 0)
      broken("reading", "a product without a size");
  finish_and_report(trace, true);
}

}  // namespace llmprof::fuzz
