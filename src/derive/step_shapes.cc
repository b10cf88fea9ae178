#include "derive/step_shapes.h"

#include <algorithm>
#include <array>
#include <map>
#include <utility>

#include "derive/whole_graphs.h"

namespace llmprof {
namespace {

constexpr int64_t kTokensMax = int64_t{1} << 40;
constexpr int64_t kLogitsMin = 1000;  // an output layer has more features than any router or head has

// What the shapes of one step add up to.
struct ShapeTally {
  int64_t queries = -1;    // new tokens per sequence, from attention
  int64_t sequences = -1;  // from attention
  int64_t context = -1;
  struct Rows {
    int64_t m = -1;
    uint32_t count = 0;
  };
  std::array<Rows, 6> gemm_rows{};  // the first few distinct m
  uint32_t gemms = 0;
  int64_t most_rows = -1;
  double weights = 0;                                            // elements
  int64_t widest_n = -1, last_n = -1, last_k = -1, last_m = -1;  // of the GEMMs with weights, in launch order

  int64_t leading_rows = 0, leading = 0, following_rows = 0, following = 0;
  bool rows_return = false,
       rows_differ = false;  // those that follow have the rows of the leading ones, or others again

  void add_gemm(int64_t m) {
    ++gemms;
    if (leading == 0 || (following == 0 && m == leading_rows)) {
      leading_rows = m;
      ++leading;
    } else if (m == leading_rows) {
      rows_return = true;
    } else {
      rows_differ |= following > 0 && m != following_rows;
      following_rows = m;
      ++following;
    }
    most_rows = std::max(most_rows, m);
    for (Rows& rows : gemm_rows) {
      if (rows.count == 0) rows.m = m;
      if (rows.m != m) continue;
      ++rows.count;
      return;
    }
  }
  void add_width(int64_t m, int64_t n, int64_t k) {
    weights += static_cast<double>(n) * static_cast<double>(k);
    widest_n = std::max(widest_n, n);
    // An output layer that runs once more, on states of earlier layers, say, says nothing of tokens.
    if (n == last_n && k == last_k) return;
    last_n = n;
    last_k = k;
    last_m = m;
  }
  double last_weights() const { return static_cast<double>(last_n) * static_cast<double>(last_k); }
  int64_t logit_rows() const { return last_n >= kLogitsMin && last_n == widest_n ? last_m : -1; }
  int64_t usual_rows() const { return usual().m; }
  bool rows_agree() const { return usual().count * 2 > gemms; }

 private:
  Rows usual() const {
    Rows best;
    for (const Rows& rows : gemm_rows) {
      if (rows.count > best.count) best = rows;
    }
    return best;
  }
};

// Spreads a handle over 64 bits (finaliser of MurmurHash3).
uint64_t mixed(uint64_t h) {
  h = (h + 1) * 0xff51afd7ed558ccdULL;
  h = (h ^ (h >> 33)) * 0xc4ceb9fe1a85ec53ULL;
  return h ^ (h >> 33);
}

// Kernels that exist only for one query per sequence.
bool names_decode(std::string_view name) {
  static constexpr std::array<std::string_view, 8> kParts{"splitkv",         "split_kv", "paged_attention", "gemv",
                                                          "BatchDecodeWith", "mmha",     "flash_decod",     "decode"};
  return std::any_of(kParts.begin(), kParts.end(),
                     [&](std::string_view part) { return name.find(part) != std::string_view::npos; });
}

// Sets `multiplies`. Where one thread launches all there is nothing to tell apart.
void find_own_products(const Trace& trace, const std::vector<LaunchOrder>& orders, std::vector<StepDraft>& steps) {
  if (std::all_of(orders.begin(), orders.end(), is_of_one_thread)) return;
  for (const LaunchOrder& order : orders) {
    for (size_t i = 0; i < order.size(); ++i) {
      const StepId step = trace.gpu_links.step[order.gpu[i]];
      if (step == kNoRow || trace.gpu_links.category[order.gpu[i]] != Category::kGemm) continue;
      if (order.thread[i] == steps[step].thread) steps[step].multiplies = true;
    }
  }
}

void tally_works(const Trace& trace, const std::vector<LaunchOrder>& orders, const std::vector<StepDraft>& steps,
                 std::vector<ShapeTally>& tallies) {
  if (trace.works.empty()) return;
  const bool live = !trace.library_calls.empty();
  for (const LaunchOrder& order : orders) {
    for (size_t i = 0; i < order.size(); ++i) {
      const GpuOpId gpu = order.gpu[i];
      const StepId step = trace.gpu_links.step[gpu];
      const WorkId work = trace.gpu_links.work[gpu];
      if (step == kNoRow || work == kNoRow || !says_what_runs(steps[step], order.thread[i])) continue;
      ShapeTally& tally = tallies[step];
      if (trace.works.kind[work] == WorkKind::kGemm) {
        if (live && trace.works.batch[work] != 1) continue;  // products of attention run on queries, not on tokens
        tally.add_gemm(trace.works.m[work]);
        tally.add_width(trace.works.m[work], trace.works.n[work], trace.works.k[work]);
      } else if (trace.works.kind[work] == WorkKind::kAttention) {
        // The last attention of a step is the language model's, whatever ran before it.
        tally.queries = trace.works.m[work];
        tally.sequences = trace.works.batch[work];
        tally.context = std::max(tally.context, trace.works.n[work]);
      }
    }
  }
}

// Calls take(step, event) for the step of each device that an event's launches belong to: the last one to begin before
// the event ends. Events are in time order; `steps` are by device and host time.
template <class F>
void for_events(std::vector<StepDraft>& steps, const std::vector<TokenEvent>& events, F&& take) {
  std::map<std::pair<Row, int32_t>, std::vector<size_t>> lanes;
  for (size_t i = 0; i < steps.size(); ++i) lanes[{steps[i].thread, steps[i].device}].push_back(i);
  for (std::pair<const std::pair<Row, int32_t>, std::vector<size_t>>& lane : lanes) {
    const std::vector<size_t>& mine = lane.second;
    size_t next = 0;  // first step that begins after the event
    for (const TokenEvent& event : events) {
      if (event.thread != lane.first.first) continue;
      while (next < mine.size() && steps[mine[next]].begin_ns < event.end_ns) ++next;
      if (next > 0 && steps[mine[next - 1]].end_ns > event.start_ns) take(steps[mine[next - 1]], event);
    }
  }
}

// Which numbers of a grid count the tiles of queries and the sequences, by kernel. FlashAttention-2: (tiles, sequences,
// heads); where it splits the keys the first counts something else. Memory-efficient attention of PyTorch: (tiles,
// heads, sequences). FlashAttention-3 and cuDNN have grids of other shapes.
enum class QueryGrid : uint8_t { kNone, kSequencesSecond, kSequencesThird };

QueryGrid query_grid(std::string_view name) {
  if (name.find("splitkv") != std::string_view::npos) return QueryGrid::kNone;
  if (name.find("flash_fwd_kernel") != std::string_view::npos) return QueryGrid::kSequencesSecond;
  if (name.find("fmha_cutlassF") != std::string_view::npos) return QueryGrid::kSequencesThird;
  return QueryGrid::kNone;
}

void add_tiles(const LaunchConfigs& configs, LaunchConfigId config, QueryGrid grid, StepDraft& step) {
  if (grid == QueryGrid::kNone || config == kNoRow) return;
  const int64_t tiles = configs.grid_x[config];
  const int64_t sequences = grid == QueryGrid::kSequencesSecond ? configs.grid_y[config] : configs.grid_z[config];
  step.tiles_differ |= step.query_tiles != 0 && (step.query_tiles != tiles || step.tiled_sequences != sequences);
  step.query_tiles = tiles;
  step.tiled_sequences = sequences;
}

// Whether so many tokens are several tiles of queries of each sequence, of one of the sizes that tiles have. One tile
// says little: a token of each sequence has one, and so has a short prompt.
bool fits_tiles(const StepDraft& step, int64_t tokens) {
  if (step.tiles_differ || step.query_tiles < 2 || step.tiled_sequences < 1 || tokens % step.tiled_sequences != 0)
    return false;
  const int64_t each = tokens / step.tiled_sequences;
  const auto tiles_of = [each](int64_t size) { return (each + size - 1) / size; };
  return step.query_tiles == tiles_of(64) || step.query_tiles == tiles_of(128) || step.query_tiles == tiles_of(32);
}

}  // namespace

int64_t sequences_of_grid(std::string_view kernel, const LaunchConfigs& configs, LaunchConfigId config) {
  const QueryGrid grid = query_grid(kernel);
  if (grid == QueryGrid::kNone || config == kNoRow) return -1;
  return grid == QueryGrid::kSequencesSecond ? configs.grid_y[config] : configs.grid_z[config];
}

void measure_steps(const Trace& trace, const std::vector<LaunchOrder>& orders, std::vector<StepDraft>& steps) {
  constexpr uint8_t kUnjudged = 0xFF;
  std::vector<uint8_t> decode_name(trace.strings.size(), kUnjudged), grids(trace.strings.size(), kUnjudged);
  const StringId whole = whole_graph_name(trace);
  find_own_products(trace, orders, steps);
  for (const LaunchOrder& order : orders) {
    Row previous_api = kNoRow;
    for (size_t i = 0; i < order.size(); ++i) {
      const GpuOpId gpu = order.gpu[i];
      const ApiCallId api = trace.gpu_links.api[gpu];
      const bool same_call = api != kNoRow && api == previous_api;
      previous_api = api;
      const Row row = trace.gpu_links.step[gpu];
      if (row == kNoRow) continue;
      StepDraft& step = steps[row];
      const StringId name = trace.gpu_ops.name[gpu];
      const Category category = trace.gpu_links.category[gpu];
      const bool counts = says_what_runs(step, order.thread[i]);
      ++step.launches;
      if (same_call && counts) ++step.graph_nodes;
      // A sum, because parallel branches of a graph finish in any order; copies and memsets vary in name.
      if (trace.gpu_ops.kind[gpu] == GpuOpKind::kKernel && counts) step.names_hash += mixed(index(name));
      step.gpu_ns += trace.gpu_ops.dur_ns[gpu];
      if (counts) {
        step.gpu_start_ns = std::min(step.gpu_start_ns, trace.gpu_ops.start_ns[gpu]);
        step.gpu_end_ns = std::max(step.gpu_end_ns, trace.end_of(gpu));
      }
      if (order.thread[i] == step.thread) step.last_launch_ns = std::max(step.last_launch_ns, order.time_ns[i]);
      if (category == Category::kSampling) step.samples = true;
      if (whole != StringId::kEmpty && name == whole) step.whole_graph = true;
      if ((category != Category::kGemm && category != Category::kAttention) || !counts) continue;
      ++step.heavy;
      uint8_t& verdict = decode_name[index(name)];
      if (verdict == kUnjudged) verdict = names_decode(trace.text(name)) ? 1 : 0;
      if (category == Category::kAttention) {
        uint8_t& grid = grids[index(name)];
        if (grid == kUnjudged) grid = static_cast<uint8_t>(query_grid(trace.text(name)));
        add_tiles(trace.launch_configs, trace.gpu_ops.config[gpu], static_cast<QueryGrid>(grid), step);
      }
      if (verdict == 1) ++(category == Category::kAttention ? step.decode_attentions : step.vector_gemms);
    }
  }
}

void count_tokens(const Trace& trace, const std::vector<LaunchOrder>& orders, const TokenEvents& events,
                  std::vector<StepDraft>& steps) {
  std::vector<ShapeTally> tallies(steps.size());
  tally_works(trace, orders, steps, tallies);
  std::vector<int64_t> embedded(steps.size(), -1), chosen(steps.size(), -1), batch(steps.size(), -1);
  for_events(steps, events.embeddings, [&](StepDraft& step, const TokenEvent& event) {
    const size_t i = static_cast<size_t>(&step - steps.data());
    if (embedded[i] < 0) {
      embedded[i] = event.tokens;
      batch[i] = event.sequences;
    }
  });
  for_events(steps, events.samplings, [&](StepDraft& step, const TokenEvent& event) {
    step.samples = true;
    chosen[static_cast<size_t>(&step - steps.data())] = event.sequences;
  });
  for (size_t i = 0; i < steps.size(); ++i) {
    StepDraft& step = steps[i];
    const ShapeTally& tally = tallies[i];
    step.gemm_rows = tally.usual_rows();
    step.most_gemm_rows = tally.most_rows;
    step.weights = tally.weights;
    if (tally.leading_rows > tally.following_rows && tally.following > 0 && !tally.rows_differ) {
      step.leading_rows = tally.leading_rows;
      step.leading = tally.leading;
      step.following_rows = tally.following_rows;
      step.following = tally.following;
      step.rows_return = tally.rows_return;
    }
    step.attention_sequences = tally.sequences;
    step.chosen_rows = chosen[i];
    if (!trace.library_calls.empty()) step.logit_rows = tally.logit_rows();
    if (step.logit_rows > 0) step.logit_weights = tally.last_weights();
    if (step.kind == StageKind::kVision) {
      if (step.new_tokens < 0) step.new_tokens = tally.usual_rows();
      continue;
    }
    int64_t tokens = embedded[i];
    if (tokens < 0 && tally.queries > 0 && tally.sequences > 0 && tally.queries <= kTokensMax / tally.sequences) {
      tokens = tally.queries * tally.sequences;
      // Heads that share keys may be rows of one query; most weights run over each token once.
      const int64_t rows = tally.usual_rows();
      const bool heads_are_rows = rows > 0 && rows < tokens && tokens % rows == 0 && rows % tally.sequences == 0;
      if (tally.rows_agree() && heads_are_rows) tokens = rows;
    }
    step.tokens_sure = tokens > 0 || tally.rows_agree();
    if (tokens < 0) tokens = tally.usual_rows();
    int64_t sequences = batch[i];
    if (sequences < 0 && chosen[i] > 0 && (tokens < 0 || chosen[i] <= tokens)) sequences = chosen[i];
    if (sequences < 0) sequences = tally.sequences;
    if (sequences < 0 && !trace.library_calls.empty()) {
      if (tokens == 1) sequences = 1;
      if (step.logit_rows > 0 && step.logit_rows < tokens) sequences = step.logit_rows;
    }
    if (tokens > 0 && fits_tiles(step, tokens)) sequences = step.tiled_sequences;
    if (step.new_tokens < 0) step.new_tokens = tokens;
    if (step.sequences < 0) step.sequences = sequences;
    if (step.context < 0) step.context = tally.context;
    if (step.output_tokens < 0 && chosen[i] > 0) step.output_tokens = chosen[i];
    if (step.output_tokens < 0 && step.samples) step.output_tokens = step.sequences;
  }
}

}  // namespace llmprof
