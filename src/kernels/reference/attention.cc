#include "kernels/reference/attention.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "device/elements.h"
#include "kernels/reference/compare.h"
#include "ops/attention.h"

namespace llmprof::kernels {
namespace {

constexpr int64_t kRowsSampled = 16, kRowsLookedAt = 4096;
// So many multiply-adds cost a tenth of a second.
constexpr int64_t kTerms = 50'000'000;
// A rounded weight is off by up to half a unit of its last place, evenly: 6 standard deviations of the sum of such
// errors are 1.8 units times the root of the sum of squares.
constexpr double kWeightRounding = 2;

Result<std::vector<float>> download_floats(Device& device, const Buffer& buffer, DType dtype, int64_t first,
                                           int64_t count) {
  const size_t element = static_cast<size_t>(dtype_bytes(dtype)), size = static_cast<size_t>(count);
  std::vector<char> data(size * element);
  LLMPROF_CHECK(device.download(buffer, static_cast<size_t>(first) * element, data.data(), data.size()));
  std::vector<float> values(size);
  for (size_t i = 0; i < size; ++i) values[i] = static_cast<float>(device::element_at(dtype, data.data(), i));
  return values;
}

}  // namespace

double AttentionShape::scale() const { return 1 / std::sqrt(static_cast<double>(head_dim)); }

AttentionRow attention_row(std::span<const double> q, std::span<const float> k, std::span<const float> v, int64_t keys,
                           double scale) {
  const size_t size = q.size(), count = static_cast<size_t>(keys);
  std::vector<double> weights(count);
  double most = -INFINITY, largest_score = 0;
  for (size_t key = 0; key < count; ++key) {
    double dot = 0, absolute = 0;
    for (size_t i = 0; i < size; ++i) {
      const double product = q[i] * static_cast<double>(k[key * size + i]);
      dot += product;
      absolute += std::fabs(product);
    }
    weights[key] = dot * scale;
    most = std::max(most, weights[key]);
    largest_score = std::max(largest_score, absolute * scale);
  }
  double sum = 0;
  for (double& weight : weights) sum += weight = std::exp(weight - most);
  AttentionRow row{Row(size, 0), Row(size, 0), Row(size, 0)};
  for (size_t key = 0; key < count; ++key) {
    const double weight = weights[key] / sum;
    for (size_t i = 0; i < size; ++i) {
      const double term = weight * static_cast<double>(v[key * size + i]);
      row.out[i] += term;
      row.terms[i] += std::fabs(term);
      row.squares[i] += term * term;
    }
  }
  // The exponential is off by the rounding of its argument, which is a sum.
  for (double& terms : row.terms) terms *= 4 + largest_score;
  for (double& squares : row.squares) squares = std::sqrt(squares);
  return row;
}

HeadReader dense_heads(Device& device, const Buffer& buffer, const AttentionShape& shape) {
  return [&device, &buffer, shape](int64_t sequence, int64_t kv_head) {
    const int64_t elements = shape.keys * shape.head_dim;
    return download_floats(device, buffer, shape.dtype, (sequence * shape.kv_heads + kv_head) * elements, elements);
  };
}

HeadReader paged_heads(Device& device, const Buffer& buffer, const AttentionShape& shape, std::vector<int32_t> table) {
  return [&device, &buffer, shape, table = std::move(table)](int64_t sequence,
                                                             int64_t kv_head) -> Result<std::vector<float>> {
    const int64_t pages = (shape.keys + ops::kPageTokens - 1) / ops::kPageTokens,
                  token_size = shape.kv_heads * shape.head_dim;
    std::vector<float> rows;
    for (int64_t i = 0; i < pages; ++i) {
      const int64_t page = table[static_cast<size_t>(sequence * pages + i)];
      LLMPROF_ASSIGN(const std::vector<float> whole,
                     download_floats(device, buffer, shape.dtype, page * ops::kPageTokens * token_size,
                                     ops::kPageTokens * token_size));
      for (int64_t token = 0; token < std::min(ops::kPageTokens, shape.keys - i * ops::kPageTokens); ++token) {
        const auto from = whole.begin() + token * token_size + kv_head * shape.head_dim;
        rows.insert(rows.end(), from, from + shape.head_dim);
      }
    }
    return rows;
  };
}

std::vector<int32_t> page_table(int64_t pages, int set) {
  int64_t stride = pages * 5 / 8 + 1;
  while (std::gcd(stride, pages) != 1) ++stride;
  std::vector<int32_t> table(static_cast<size_t>(pages));
  for (int64_t i = 0; i < pages; ++i) table[static_cast<size_t>(i)] = static_cast<int32_t>((i * stride + set) % pages);
  return table;
}

Result<AttentionExpected> expect_attention(Device& device, const AttentionShape& shape, const Buffer& q,
                                           const HeadReader& k, const HeadReader& v, uint64_t seed) {
  AttentionExpected expected;
  const int64_t all = shape.batch * shape.heads * shape.queries, terms = 2 * shape.keys * shape.head_dim;
  expected.rows = sampled_indices(all, std::max(kRowsSampled, std::min<int64_t>(kTerms / terms, 256)), seed);
  // Rows ascend, so those of one key head follow each other.
  int64_t loaded = -1;
  std::vector<float> keys, values;
  for (const int64_t row : expected.rows) {
    const int64_t head = row / shape.queries % shape.heads, sequence = row / shape.queries / shape.heads;
    const int64_t kv_head = head / (shape.heads / shape.kv_heads);
    if (loaded != sequence * shape.kv_heads + kv_head) {
      LLMPROF_ASSIGN(keys, k(sequence, kv_head));
      LLMPROF_ASSIGN(values, v(sequence, kv_head));
      loaded = sequence * shape.kv_heads + kv_head;
    }
    LLMPROF_ASSIGN(const std::vector<float> narrow,
                   download_floats(device, q, shape.dtype, row * shape.head_dim, shape.head_dim));
    const std::vector<double> query(narrow.begin(), narrow.end());
    const int64_t seen = shape.causal ? shape.keys - shape.queries + row % shape.queries + 1 : shape.keys;
    expected.values.push_back(attention_row(query, keys, values, seen, shape.scale()));
  }
  return expected;
}

Result<Check> check_attention(Device& device, const AttentionShape& shape, const Buffer& out,
                              const AttentionExpected& expected) {
  // The sums are those of fp32, whatever the elements are.
  const Rounding rounding = rounding_of(DType::kFp32, shape.dtype);
  Comparison comparison(std::max(rel_l2_limit(shape.dtype), rel_l2_limit(DType::kFp32)));
  const size_t size = static_cast<size_t>(shape.head_dim), bytes = size * static_cast<size_t>(dtype_bytes(shape.dtype));
  std::vector<char> data(bytes);
  for (size_t i = 0; i < expected.rows.size(); ++i) {
    const int64_t row = expected.rows[i];
    LLMPROF_CHECK(device.download(out, static_cast<size_t>(row) * bytes, data.data(), bytes));
    for (size_t e = 0; e < size; ++e) {
      const int64_t index = row * shape.head_dim + static_cast<int64_t>(e);
      if (device::is_poison(shape.dtype, data.data(), e)) {
        comparison.add_unwritten(index);
        continue;
      }
      const double reference = expected.values[i].out[e];
      comparison.add(device::element_at(shape.dtype, data.data(), e), reference,
                     element_tolerance(rounding, reference, expected.values[i].terms[e]) +
                         kWeightRounding * rounding.out * expected.values[i].squares[e],
                     index);
    }
  }
  // Stretches of rows, for what was never written.
  const int64_t all = shape.batch * shape.heads * shape.queries, stretch = std::min<int64_t>(all, 64);
  data.resize(bytes * static_cast<size_t>(stretch));
  for (int64_t first = 0, step = std::max<int64_t>(all * stretch / kRowsLookedAt, stretch); first < all;
       first += step) {
    const int64_t from = std::min(first, all - stretch);
    LLMPROF_CHECK(device.download(out, static_cast<size_t>(from) * bytes, data.data(), data.size()));
    for (size_t e = 0; e < size * static_cast<size_t>(stretch); ++e)
      if (device::is_poison(shape.dtype, data.data(), e))
        comparison.add_unwritten(from * shape.head_dim + static_cast<int64_t>(e));
  }
  return comparison.finish();
}

}  // namespace llmprof::kernels
