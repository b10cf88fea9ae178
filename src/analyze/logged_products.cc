// Matrix products by the logs of cuBLAS and cuBLASLt: shapes, types, algorithms, FLOPs; and their times, where a
// recording of the same program has them (analyze/matched_products.h). Rules: docs/formats/cublas.md.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string>
#include <utility>
#include <vector>

#include "analyze/analysis.h"
#include "analyze/without_program.h"
#include "base/flat_index.h"
#include "ops/product.h"

namespace llmprof {
namespace {

// ---- rows ----------------------------------------------------------------------------------------------------------

// Products with everything in common that the logs say, but for addresses and times.
struct ProductGroupKey {
  std::array<uint64_t, 15> values;
  friend bool operator==(const ProductGroupKey&, const ProductGroupKey&) = default;
  uint64_t hash() const {
    uint64_t out = 0;
    for (const uint64_t value : values) out = mix_hash(out, value);
    return out;
  }
};
struct ProductGroup {
  LoggedProduct first{};
  int64_t calls = 0, recorded_calls = 0, recorded_ns = 0;
};

ProductGroupKey group_key(const LoggedProducts& rows, const LoggedProduct& product) {
  const Row row = product.first();
  const Row detail = product.lt != kNoRow ? product.lt : product.cublas;
  const auto bits = [](int64_t value) { return static_cast<uint64_t>(value); };
  return {{bits(rows.process_id[row]), bits(rows.thread_id[row]), bits(rows.device[row]), rows.stream[row],
           index(rows.function[row]), uint64_t{product.cublas != kNoRow} << 1 | uint64_t{product.lt != kNoRow},
           static_cast<uint64_t>(rows.dtype[row]) << 16 | static_cast<uint64_t>(rows.weight_dtype[row]) << 8 |
               static_cast<uint64_t>(rows.out_dtype[row]),
           bits(rows.batch[row]), bits(rows.m[row]), bits(rows.n[row]), bits(rows.k[row]), index(rows.layout[row]),
           index(rows.compute[row]), index(rows.epilogue[detail]), index(rows.algorithm[detail])}};
}

LoggedProductRecord product_record(const Trace& trace, const ProductGroup& group) {
  const LoggedProducts& rows = trace.logged_products;
  const Row row = group.first.first();
  const Row detail = group.first.lt != kNoRow ? group.first.lt : group.first.cublas;
  const auto known = [](int64_t value) { return value >= 0 ? OptInt(value) : OptInt(); };
  const auto text = [&](StringId id) { return id == StringId::kEmpty ? OptText() : OptText(trace.text(id)); };
  const auto type = [](DType dtype) { return dtype == DType::kUnknown ? OptText() : OptText(dtype_name(dtype)); };
  LoggedProductRecord out;
  out.process_id = rows.process_id[row];
  out.thread_id = known(rows.thread_id[row]);
  out.device = known(rows.device[row]);
  out.stream = fmt::format("{:#x}", rows.stream[row]);
  out.function = trace.text(rows.function[row]);
  out.logs = group.first.cublas == kNoRow ? "cublaslt" : group.first.lt == kNoRow ? "cublas" : "both";
  out.m = known(rows.m[row]);
  out.n = known(rows.n[row]);
  out.k = known(rows.k[row]);
  if (out.m) out.batch = known(rows.batch[row]);
  out.dtype = type(rows.dtype[row]);
  out.weight_dtype = type(rows.weight_dtype[row]);
  out.out_dtype = type(rows.out_dtype[row]);
  out.layout = trace.text(rows.layout[row]);
  out.compute_type = text(rows.compute[row]);
  out.epilogue = text(rows.epilogue[detail]);
  out.algorithm = text(rows.algorithm[detail]);
  out.calls = group.calls;
  if (out.m && out.n && out.k && out.batch) {
    const auto number = [](const OptInt& value) { return static_cast<double>(*value); };
    out.flops = ops::Gemm{number(out.batch), number(out.m), number(out.n), number(out.k)}.flops();
    out.total_flops = *out.flops * static_cast<double>(group.calls);
  }
  if (group.recorded_calls == 0) return out;
  out.recorded_calls = group.recorded_calls;
  const double mean_ns = static_cast<double>(group.recorded_ns) / static_cast<double>(group.recorded_calls);
  out.recorded_us = mean_ns / 1e3;
  if (out.flops && mean_ns > 0) out.recorded_tflops = *out.flops / mean_ns / 1e3;
  return out;
}

// ---- what is not known ---------------------------------------------------------------------------------------------

void say_what_matched(const MatchedProducts& of, std::vector<CannotTell>& cannot_tell) {
  const int64_t logged = static_cast<int64_t>(of.products.size());
  constexpr const char* kQuestion = "How long did all logged products take?";
  const std::string graphs =
      of.in_graphs > 0
          ? fmt::format("; {} GEMMs ran in CUDA graphs, whose products the logs have only once, as they were captured",
                        of.in_graphs)
          : std::string();
  if (of.recorded == 0) {
    cannot_tell.push_back({kQuestion, "the recording beside has no GEMM outside of CUDA graphs" + graphs,
                           "log and record one run of the program, without CUDA graphs"});
    return;
  }
  if (of.matched == logged && of.matched == of.recorded) return;
  std::string why = fmt::format("{} of {} logged products are in the recording, by {} on their stream", of.matched,
                                logged, of.shaped ? "shape and order" : "order alone");
  why += fmt::format(", and {} of its {} GEMMs are in no log", of.recorded - of.matched, of.recorded);
  if (!of.shaped) why += "; the recording has no shapes, so that numbers of both must be equal";
  cannot_tell.push_back({kQuestion, why + graphs,
                         of.shaped ? "log and record the same run of the program from its start to its end"
                                   : "record shapes: torch.profiler with record_shapes=True, or llmprof run"});
}

void say_what_logs_lack(const Trace& trace, const std::vector<LoggedProduct>& products,
                        std::vector<CannotTell>& cannot_tell) {
  int64_t cublas = 0, lt = 0, grouped = 0;
  for (const LoggedProduct& product : products) {
    cublas += product.cublas != kNoRow;
    lt += product.lt != kNoRow;
    grouped += trace.logged_products.m[product.first()] < 0;
  }
  if (lt == 0)
    cannot_tell.push_back({"Which algorithms do the products run with?",
                           "cuBLAS logs what it was asked for; what was chosen is in the log of cuBLASLt",
                           "log both: CUBLASLT_LOG_LEVEL=2 CUBLASLT_LOG_FILE=cublaslt.log, and give both files"});
  if (cublas == 0)
    cannot_tell.push_back(
        {"Which products does cuBLAS run without cuBLASLt, and on which thread and GPU does each run?",
         "only cuBLAS logs them", "log both: CUBLAS_LOGINFO_DBG=1 CUBLAS_LOGDEST_DBG=cublas.log, and give both files"});
  if (grouped > 0)
    cannot_tell.push_back({"What are the FLOPs of grouped products?",
                           fmt::format("of {} products the log has the addresses of the sizes, not the sizes", grouped),
                           "record the program: llmprof run -- COMMAND"});
}

}  // namespace

void analyze_logged_products(const Context& context, Report& report, std::vector<CannotTell>& cannot_tell) {
  const Trace& trace = context.trace;
  if (trace.logged_products.empty()) return;
  const bool alone = profiled_only(trace);
  const MatchedProducts& matched = context.products;
  const std::vector<LoggedProduct>& products = matched.products;
  FlatIndex<ProductGroupKey> keys;
  std::vector<ProductGroup> groups;
  for (size_t i = 0; i < products.size(); ++i) {
    const uint32_t at = keys.add(group_key(trace.logged_products, products[i]));
    if (at == groups.size()) groups.emplace_back().first = products[i];
    ++groups[at].calls;
    if (matched.gpu_of[i] == kNoRow) continue;
    ++groups[at].recorded_calls;
    groups[at].recorded_ns += trace.gpu_ops.dur_ns[matched.gpu_of[i]];
  }
  for (const ProductGroup& group : groups) report.logged_products.push_back(product_record(trace, group));
  // The most arithmetic first.
  std::stable_sort(report.logged_products.begin(), report.logged_products.end(),
                   [](const LoggedProductRecord& a, const LoggedProductRecord& b) {
                     return a.total_flops.value_or(-1) > b.total_flops.value_or(-1);
                   });
  if (!alone)
    say_what_matched(matched, cannot_tell);
  else
    cannot_tell.push_back({"How long did the logged products take, and what FLOP/s did they reach?",
                           "the logs have times of whole seconds, of calls on the host",
                           "give a recording of the same run beside them: llmprof analyze trace.json cublas.log "
                           "cublaslt.log"});
  say_what_logs_lack(trace, products, cannot_tell);
}

}  // namespace llmprof
