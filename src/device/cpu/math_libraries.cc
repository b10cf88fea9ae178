#include "device/cpu/math_libraries.h"

#include <fmt/format.h>

#include <cstdlib>

#include "base/shared_library.h"

namespace llmprof::device::cpu {
namespace {

// The library's own words are in brackets; the advice is the package of Debian.
std::string missing_sentence(const char* name, const char* package, const std::string& reason) {
  return fmt::format("{} could not be opened ({}); Debian has it in {}", name, reason, package);
}

std::string library_file(const char* variable, const char* usual) {
  const char* chosen = std::getenv(variable);
  return chosen != nullptr && *chosen != '\0' ? chosen : usual;
}

OneDnn load_one_dnn() {
  OneDnn table;
  SharedLibrary library(library_file("LLMPROF_ONEDNN", "libdnnl.so.2"));
  if (!library) {
    table.missing = missing_sentence("oneDNN", "libdnnl2", library.error());
    return table;
  }
#define X(name)                                  \
  if (!library.load(table.name, #name)) {        \
    table.missing = "this oneDNN has no " #name; \
    return table;                                \
  }
  LLMPROF_DNNL_FUNCTIONS(X)
#undef X
  library.keep_open();
  const dnnl_version_t* version = table.dnnl_version();
  table.version = fmt::format("{}.{}.{}", version->major, version->minor, version->patch);
  table.path = SharedLibrary::file_of(table.dnnl_version);
  if (version->major != DNNL_VERSION_MAJOR)
    table.missing = fmt::format("expected oneDNN {}, found {} in {}", DNNL_VERSION_MAJOR, table.version, table.path);
  return table;
}

OpenBlas load_open_blas() {
  OpenBlas table;
  SharedLibrary library(library_file("LLMPROF_OPENBLAS", "libopenblas.so.0"));
  if (!library) {
    table.missing = missing_sentence("OpenBLAS", "libopenblas0-openmp", library.error());
    return table;
  }
  if (!library.load(table.cblas_sgemm, "cblas_sgemm") || !library.load(table.cblas_dgemm, "cblas_dgemm") ||
      !library.load(table.openblas_set_num_threads, "openblas_set_num_threads")) {
    table.missing = "this OpenBLAS has no cblas_sgemm, cblas_dgemm or openblas_set_num_threads";
    return table;
  }
  library.load(table.openblas_get_config, "openblas_get_config");
  library.load(table.openblas_get_parallel, "openblas_get_parallel");
  library.keep_open();
  table.path = SharedLibrary::file_of(table.cblas_sgemm);
  if (table.openblas_get_parallel != nullptr) {
    const int parallel = table.openblas_get_parallel();
    table.threads = parallel == 2 ? "OpenMP" : parallel == 1 ? "own threads" : "one thread";
  }
  // "OpenBLAS 0.3.21 NO_LAPACKE DYNAMIC_ARCH NO_AFFINITY USE_OPENMP Zen MAX_THREADS=128"
  const std::string config = table.openblas_get_config != nullptr ? table.openblas_get_config() : "";
  const size_t start = config.find(' ');
  if (start != std::string::npos) table.version = config.substr(start + 1, config.find(' ', start + 1) - start - 1);
  return table;
}

const char* dnnl_status_name(dnnl_status_t status) {
  switch (status) {
    case dnnl_out_of_memory:
      return "out of memory";
    case dnnl_invalid_arguments:
      return "invalid arguments";
    case dnnl_unimplemented:
      return "it has no implementation for this on this CPU";
    case dnnl_runtime_error:
      return "runtime error";
    default:
      return "not possible";
  }
}

}  // namespace

const OneDnn& one_dnn() {
  static const OneDnn table = load_one_dnn();
  return table;
}

Status dnnl_ok(dnnl_status_t status, const char* what) {
  if (status == dnnl_success) return {};
  return fail(fmt::format("oneDNN could not {}: {}", what, dnnl_status_name(status)));
}

const OpenBlas& open_blas() {
  static const OpenBlas table = load_open_blas();
  return table;
}

}  // namespace llmprof::device::cpu
