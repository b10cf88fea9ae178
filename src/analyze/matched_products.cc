#include "analyze/matched_products.h"

#include <algorithm>
#include <array>
#include <map>
#include <string_view>
#include <utility>

#include "analyze/without_program.h"
#include "base/flat_index.h"
#include "derive/kernel_rules.h"

namespace llmprof {
namespace {

// ---- both logs as one ----------------------------------------------------------------------------------------------

bool by_cublaslt(const Trace& trace, Row row) {
  return trace.text(trace.logged_products.function[row]).starts_with("cublasLt");
}
// cuBLAS calls cuBLASLt through functions of its own.
bool for_cublas(const Trace& trace, Row row) {
  return trace.text(trace.logged_products.function[row]) != "cublasLtMatmul";
}

// What the two rows of one product agree on.
struct ProductKey {
  std::array<uint64_t, 8> values;
  friend bool operator==(const ProductKey&, const ProductKey&) = default;
  uint64_t hash() const {
    uint64_t out = 0;
    for (const uint64_t value : values) out = mix_hash(out, value);
    return out;
  }
};
ProductKey product_key(const LoggedProducts& rows, Row row) {
  const auto bits = [](int64_t value) { return static_cast<uint64_t>(value); };
  return {{bits(rows.process_id[row]), rows.a[row], rows.b[row], rows.d[row], bits(rows.m[row]), bits(rows.n[row]),
           bits(rows.k[row]), bits(rows.batch[row])}};
}

// Finds for each row of cuBLASLt the row of cuBLAS that is the same product: the first with its process, addresses and
// shape that no earlier row has.
class Twins {
 public:
  Twins(const LoggedProducts& rows, const std::vector<Row>& cublas) : rows_(rows) {
    for (const Row row : cublas) {
      const uint32_t key = keys_.add(product_key(rows, row));
      if (key == waiting_.size()) waiting_.emplace_back();
      waiting_[key].rows.push_back(row);
    }
  }
  Row take(Row lt) {
    if (rows_.a[lt] == 0) return kNoRow;  // nothing tells it from another of its shape
    const uint32_t key = keys_.add(product_key(rows_, lt));
    if (key >= waiting_.size()) return kNoRow;
    Queue& queue = waiting_[key];
    return queue.next < queue.rows.size() ? queue.rows[queue.next++] : Row{kNoRow};
  }

 private:
  struct Queue {
    std::vector<Row> rows{};
    size_t next = 0;
  };
  const LoggedProducts& rows_;
  FlatIndex<ProductKey> keys_;
  std::vector<Queue> waiting_;
};

// In the order of the program, as far as the logs tell: a product of cuBLAS alone stands before the next one that
// cuBLASLt has too.
std::vector<LoggedProduct> products_of(const Trace& trace) {
  std::vector<Row> cublas, lt;
  for (Row row = 0; row < trace.logged_products.size(); ++row) (by_cublaslt(trace, row) ? lt : cublas).push_back(row);
  Twins twins(trace.logged_products, cublas);
  std::vector<Row> twin_of_lt(lt.size(), kNoRow);
  std::vector<uint8_t> paired(trace.logged_products.size(), 0);
  for (size_t i = 0; i < lt.size(); ++i) {
    if (!for_cublas(trace, lt[i])) continue;
    twin_of_lt[i] = twins.take(lt[i]);
    if (twin_of_lt[i] != kNoRow) paired[twin_of_lt[i]] = 1;
  }
  std::vector<LoggedProduct> out;
  size_t next = 0;
  const auto take_until = [&](Row end) {
    for (; next < cublas.size() && cublas[next] < end; ++next)
      if (paired[cublas[next]] == 0) out.push_back({cublas[next], kNoRow});
  };
  for (size_t i = 0; i < lt.size(); ++i) {
    if (twin_of_lt[i] != kNoRow) take_until(twin_of_lt[i]);
    out.push_back({twin_of_lt[i], lt[i]});
  }
  take_until(kNoRow);
  return out;
}

// ---- the recording beside ------------------------------------------------------------------------------------------

struct GemmShape {
  int64_t batch = -1, m = -1, n = -1, k = -1;
  // A result may be written transposed, and its two operands change places.
  bool agrees(const GemmShape& other) const {
    return batch == other.batch && k == other.k && ((m == other.m && n == other.n) || (m == other.n && n == other.m));
  }
};

// A GEMM on a stream of the recording, or a product on a stream of the logs.
struct StreamGemm {
  GemmShape shape;
  uint32_t index;  // row in gpu_ops, or index of the product
};
struct GemmStream {
  int64_t device = -1;
  std::vector<StreamGemm> gemms{};
};

// Of the recording, in the order of execution. Kernels of CUDA graphs are left out: logs have what was captured, once.
// `shaped`: of some the shapes are known, and only those are given.
std::vector<GemmStream> recorded_gemms(const Trace& trace, bool& shaped, int64_t& in_graphs) {
  const GpuOps& gpu = trace.gpu_ops;
  const auto work_of = [&](GpuOpId op) {
    const WorkId work = trace.gpu_links.work[op];
    return work != kNoRow && trace.works.kind[work] == WorkKind::kGemm ? work : WorkId(kNoRow);
  };
  std::vector<GpuOpId> found;
  shaped = false;
  for (GpuOpId op = 0; op < gpu.size(); ++op) {
    if (gpu.kind[op] != GpuOpKind::kKernel) continue;
    const bool known = work_of(op) != kNoRow;
    if (!known && (trace.gpu_links.category[op] != Category::kGemm || is_auxiliary_kernel(trace.text(gpu.name[op]))))
      continue;
    if (gpu.graph_node[op] != 0) {
      ++in_graphs;
      continue;
    }
    shaped = shaped || known;
    found.push_back(op);
  }
  std::map<Row, GemmStream> streams;
  for (const GpuOpId op : found) {
    const WorkId work = work_of(op);
    if (shaped && work == kNoRow) continue;
    GemmStream& stream = streams[gpu.stream[op]];
    stream.device = trace.streams.device[gpu.stream[op]];
    GemmShape shape;
    if (work != kNoRow)
      shape = {trace.works.batch[work], trace.works.m[work], trace.works.n[work], trace.works.k[work]};
    stream.gemms.push_back({shape, op});
  }
  std::vector<GemmStream> out;
  for (auto& [row, stream] : streams) out.push_back(std::move(stream));
  return out;
}

std::vector<GemmStream> logged_streams(const Trace& trace, const std::vector<LoggedProduct>& products) {
  const LoggedProducts& rows = trace.logged_products;
  std::map<std::pair<int64_t, uint64_t>, GemmStream> streams;
  for (uint32_t i = 0; i < products.size(); ++i) {
    const Row row = products[i].first();
    GemmStream& stream = streams[{rows.process_id[row], rows.stream[row]}];
    stream.device = std::max<int64_t>(stream.device, rows.device[row]);
    stream.gemms.push_back({{rows.batch[row], rows.m[row], rows.n[row], rows.k[row]}, i});
  }
  std::vector<GemmStream> out;
  for (auto& [key, stream] : streams) out.push_back(std::move(stream));
  return out;
}

using Pairs = std::vector<std::pair<uint32_t, uint32_t>>;  // product, row in gpu_ops

// Two sequences side by side: equal shapes in the same order. Either may begin earlier, end later, and have GEMMs that
// the other lacks.
class SideBySide {
 public:
  SideBySide(const std::vector<StreamGemm>& logged, const std::vector<StreamGemm>& recorded)
      : logged_(logged), recorded_(recorded) {}

  Pairs pairs() const {
    Pairs out;
    auto [i, j] = start();
    while (i < logged_.size() && j < recorded_.size()) {
      if (agree(i, j)) {
        out.emplace_back(logged_[i++].index, recorded_[j++].index);
      } else if (!skip(i, j)) {
        ++i;
        ++j;
      }
    }
    return out;
  }

 private:
  static constexpr size_t kProbe = 32;  // GEMMs that places to begin are chosen by, then the best of those
  static constexpr size_t kFarProbe = 4096;
  static constexpr size_t kPlacesMost = 1024;
  static constexpr size_t kSkipMost = 256;  // GEMMs in a row that only one side has
  static constexpr size_t kSure = 4;        // GEMMs that agree behind such a place

  bool agree(size_t i, size_t j) const { return logged_[i].shape.agrees(recorded_[j].shape); }
  size_t agreeing(size_t i, size_t j, size_t most) const {
    size_t count = 0;
    for (size_t s = 0; s < most && i + s < logged_.size() && j + s < recorded_.size(); ++s)
      count += agree(i + s, j + s);
    return count;
  }

  // Where the first GEMMs agree best; layers repeat their shapes, so of equal places the one behind which the most
  // agree, and of those the earliest.
  std::pair<size_t, size_t> start() const {
    std::vector<std::pair<size_t, size_t>> places;
    size_t most = 0;
    const auto offer = [&](size_t i, size_t j) {
      const size_t count = agreeing(i, j, kProbe);
      if (count > most) places.clear();
      if (count >= most && places.size() < kPlacesMost) places.emplace_back(i, j);
      most = std::max(most, count);
    };
    for (size_t i = 0; i < logged_.size(); ++i) offer(i, 0);
    for (size_t j = 1; j < recorded_.size(); ++j) offer(0, j);
    std::pair<size_t, size_t> best{0, 0};
    size_t agreed = 0;
    for (const auto& [i, j] : places) {
      const size_t count = agreeing(i, j, kFarProbe);
      if (count > agreed) best = {i, j};
      agreed = std::max(agreed, count);
    }
    return best;
  }

  // Goes on to the nearest place behind which both agree again.
  bool skip(size_t& i, size_t& j) const {
    for (size_t s = 1; s <= kSkipMost; ++s)
      for (const auto& [di, dj] : {std::pair{s, size_t{0}}, std::pair{size_t{0}, s}, std::pair{s, s}}) {
        if (i + di >= logged_.size() || j + dj >= recorded_.size()) continue;
        const size_t left = std::min(logged_.size() - i - di, recorded_.size() - j - dj);
        if (agreeing(i + di, j + dj, kSure) < std::min(kSure, left)) continue;
        i += di;
        j += dj;
        return true;
      }
    return false;
  }

  const std::vector<StreamGemm>& logged_;
  const std::vector<StreamGemm>& recorded_;
};

// Handles of streams in a log and numbers of streams in a recording have nothing to do with each other: the longest
// stream of the recording takes the stream of the logs that agrees most with it, and so on.
void match_streams(const Trace& trace, MatchedProducts& out) {
  constexpr size_t kStreamsMost = 32;
  std::vector<GemmStream> recorded = recorded_gemms(trace, out.shaped, out.in_graphs);
  std::vector<GemmStream> logged = logged_streams(trace, out.products);
  const auto longer = [](const GemmStream& a, const GemmStream& b) { return a.gemms.size() > b.gemms.size(); };
  for (std::vector<GemmStream>* side : {&recorded, &logged}) std::stable_sort(side->begin(), side->end(), longer);
  for (const GemmStream& stream : recorded) out.recorded += static_cast<int64_t>(stream.gemms.size());
  recorded.resize(std::min(recorded.size(), kStreamsMost));
  logged.resize(std::min(logged.size(), kStreamsMost));
  for (const GemmStream& stream : recorded) {
    Pairs best;
    size_t taken = logged.size();
    for (size_t i = 0; i < logged.size(); ++i) {
      if (logged[i].device >= 0 && logged[i].device != stream.device) continue;
      Pairs pairs;
      if (out.shaped)
        pairs = SideBySide(logged[i].gemms, stream.gemms).pairs();
      else if (logged[i].gemms.size() == stream.gemms.size())  // by order alone
        for (size_t g = 0; g < stream.gemms.size(); ++g)
          pairs.emplace_back(logged[i].gemms[g].index, stream.gemms[g].index);
      if (pairs.size() <= best.size()) continue;
      best = std::move(pairs);
      taken = i;
    }
    if (taken == logged.size()) continue;
    for (const auto& [product, gpu] : best) out.gpu_of[product] = gpu;
    out.matched += static_cast<int64_t>(best.size());
    logged.erase(logged.begin() + static_cast<std::ptrdiff_t>(taken));
  }
}

}  // namespace

std::vector<bool> MatchedProducts::rows_found(size_t rows) const {
  std::vector<bool> out(rows, false);
  for (size_t i = 0; i < products.size(); ++i)
    for (const Row row : {products[i].cublas, products[i].lt})
      if (row != kNoRow) out[row] = gpu_of[i] != kNoRow;
  return out;
}

MatchedProducts match_products(const Trace& trace) {
  MatchedProducts out;
  if (trace.logged_products.empty()) return out;
  out.products = products_of(trace);
  out.gpu_of.assign(out.products.size(), kNoRow);
  if (!profiled_only(trace)) match_streams(trace, out);
  return out;
}

}  // namespace llmprof
