#include "device/cpu/math_libraries.h"

#include <fmt/format.h>

#include <cstdlib>

#include "base/shared_library.h"

#if defined(__has_feature)
#if __has_feature(address_sanitizer)
// At exit LeakSanitizer of clang 14 follows notes of its own about the thread-local storage of libraries opened at run
// time, which are wrong for threads of libgomp, and crashes. Without these notes it does not.
extern "C" const char* __asan_default_options();
extern "C" const char* __asan_default_options() { return "intercept_tls_get_addr=0"; }
#endif
#endif

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
  const auto take = [&](auto& function, const char* name) {
    if (!library.load(function, name) && table.missing.empty())
      table.missing = fmt::format("this oneDNN has no {}", name);
  };
  take(table.dnnl_version, "dnnl_version");
  take(table.dnnl_engine_create, "dnnl_engine_create");
  take(table.dnnl_engine_destroy, "dnnl_engine_destroy");
  take(table.dnnl_stream_create, "dnnl_stream_create");
  take(table.dnnl_stream_destroy, "dnnl_stream_destroy");
  take(table.dnnl_stream_wait, "dnnl_stream_wait");
  take(table.dnnl_memory_desc_init_by_tag, "dnnl_memory_desc_init_by_tag");
  take(table.dnnl_memory_desc_init_by_strides, "dnnl_memory_desc_init_by_strides");
  take(table.dnnl_memory_desc_get_size, "dnnl_memory_desc_get_size");
  take(table.dnnl_memory_desc_equal, "dnnl_memory_desc_equal");
  take(table.dnnl_memory_create, "dnnl_memory_create");
  take(table.dnnl_memory_destroy, "dnnl_memory_destroy");
  take(table.dnnl_matmul_desc_init, "dnnl_matmul_desc_init");
  take(table.dnnl_primitive_desc_create, "dnnl_primitive_desc_create");
  take(table.dnnl_primitive_desc_destroy, "dnnl_primitive_desc_destroy");
  take(table.dnnl_primitive_desc_query_md, "dnnl_primitive_desc_query_md");
  take(table.dnnl_primitive_desc_query, "dnnl_primitive_desc_query");
  take(table.dnnl_primitive_create, "dnnl_primitive_create");
  take(table.dnnl_primitive_execute, "dnnl_primitive_execute");
  take(table.dnnl_primitive_destroy, "dnnl_primitive_destroy");
  take(table.dnnl_reorder_primitive_desc_create, "dnnl_reorder_primitive_desc_create");
  take(table.dnnl_primitive_attr_create, "dnnl_primitive_attr_create");
  take(table.dnnl_primitive_attr_destroy, "dnnl_primitive_attr_destroy");
  take(table.dnnl_primitive_attr_set_post_ops, "dnnl_primitive_attr_set_post_ops");
  take(table.dnnl_post_ops_create, "dnnl_post_ops_create");
  take(table.dnnl_post_ops_destroy, "dnnl_post_ops_destroy");
  take(table.dnnl_post_ops_append_eltwise, "dnnl_post_ops_append_eltwise");
  take(table.dnnl_post_ops_append_binary, "dnnl_post_ops_append_binary");
  if (!table.missing.empty()) return table;
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

dnnl_data_type_t dnnl_type(DType dtype) {
  switch (dtype) {
    case DType::kBf16:
      return dnnl_bf16;
    case DType::kInt8:
      return dnnl_s8;
    case DType::kInt32:
      return dnnl_s32;
    default:
      return dnnl_f32;
  }
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
