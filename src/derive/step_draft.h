// A step while it is being found: its host range, then what its GPU activities and shapes say about it.
#pragma once

#include <limits>
#include <string>
#include <vector>

#include "derive/launch_order.h"
#include "trace/trace.h"

namespace llmprof {

struct StepDraft {
  int32_t device = 0;
  ThreadId thread = kNoRow;
  StageSource source = StageSource::kDetected;
  StageKind kind = StageKind::kOther;
  bool kind_known = false;  // by the annotation or the structure; shapes decide otherwise
  bool split = false;       // a piece of an annotation that spans several runs of the model
  // Detected only because kernel names recur; layers recur too, so this is the weakest evidence.
  bool by_period = false;
  bool by_waits = false;   // detected only by the host's waits between equal launches
  bool recurs = false;     // of a range whose words do not say a kind
  bool unseen = false;     // a range of the program in which kernels were not recorded; no activities
  bool host_only = false;  // a range of the program in which nothing was launched; no activities either
  uint32_t pass = 0;       // steps of several GPUs with the same one are one pass of the model; 0 for none
  bool continues = false;  // the same run of the host as the step before (a prompt after its images)
  std::string stage;       // empty: name it after its kind
  std::string range;       // of a piece whose stage has its kind in its name: the stage of the range; else empty
  AnnotationId annotation = kNoRow;

  // Launches in [begin_ns, end_ns) on `thread` belong to the step; first activity of the host is at host_start_ns.
  int64_t begin_ns = 0;
  int64_t end_ns = 0;
  int64_t host_start_ns = 0;

  // From the activities.
  uint32_t launches = 0;
  bool multiplies = false;   // its own thread launches a product, and others launch too (step_shapes.cc)
  uint32_t graph_nodes = 0;  // launched by a CUDA graph
  bool whole_graph = false;  // one of the activities is a graph launch without recorded nodes
  uint64_t names_hash = 0;   // of the kernel names, whatever their order
  int64_t gpu_ns = 0;
  int64_t gpu_start_ns = std::numeric_limits<int64_t>::max();
  int64_t gpu_end_ns = std::numeric_limits<int64_t>::min();
  int64_t last_launch_ns = std::numeric_limits<int64_t>::min();
  bool samples = false;            // ran a sampling kernel
  uint32_t decode_attentions = 0;  // attention kernels made for one query per sequence
  uint32_t vector_gemms = 0;       // matrix-vector products
  int64_t query_tiles = 0;  // of attention kernels whose grid counts them: tiles of queries of a sequence, 0 unknown
  int64_t tiled_sequences = 0;  // and sequences
  bool tiles_differ = false;    // from kernel to kernel
  uint32_t heavy = 0;           // GEMM and attention kernels

  // -1 unknown
  int64_t new_tokens = -1, sequences = -1, context = -1, output_tokens = -1;
  int64_t attended = -1;             // contexts of all sequences together, as the annotation has it
  int64_t gemm_rows = -1;            // rows that most GEMMs ran on
  int64_t most_gemm_rows = -1;       // the most rows that one ran on
  int64_t logit_rows = -1;           // rows of the output layer, where the last GEMM is the widest
  int64_t chosen_rows = -1;          // rows of logits that operators choose tokens from
  double weights = 0;                // elements of the weights that products with known shapes multiply with
  double logit_weights = 0;          // those of the output layer among them, where logit_rows is known
  int64_t attention_sequences = -1;  // batch of the last attention
  // A pass on many rows that products on fewer follow, of an encoder and its decoder, say: rows and products of it, and
  // of what follows; 0: the step is not so.
  int64_t leading_rows = 0, leading = 0, following_rows = 0, following = 0;
  int64_t other_model_end_ns = 0;  // the host has what passes of another model before a prompt give; 0: there are none
  bool rows_return = false;        // products on the rows of the leading pass are among those that follow
  bool tokens_sure = false;        // new_tokens is not the rows of some GEMMs among others (of experts)
  int64_t sync_ns = -1;
  int64_t window_start_ns = 0, window_end_ns = 0;
};

// Whether what that thread launches says what the step runs. A thread without steps of its own, of another model's,
// say, launches into the step that another one is at: that is GPU time of the step alone. Where the step's own thread
// launches no product, as where a range is on one thread and its launches on others, all counts.
inline bool says_what_runs(const StepDraft& step, ThreadId thread) {
  return !step.multiplies || thread == kNoRow || thread == step.thread;
}

struct StageRange;
struct StepName;
// The step of a range that the program named; what it launched is to be found.
StepDraft draft_of_range(const StageRange& range, const StepName& name, AnnotationKind kind, int32_t device);

// An operator that shows a batch of tokens: an embedding look-up or the choice of the next token.
struct TokenEvent {
  int64_t start_ns = 0;
  int64_t end_ns = 0;
  ThreadId thread = kNoRow;
  int64_t sequences = -1;  // embedding: rows of a 2-D index; sampling: rows of the logits
  int64_t tokens = -1;     // embedding: all indices
  int64_t size = -1;       // vocabulary: rows of the table, columns of the logits
};

// A product of rows with one matrix, and one that is an output layer: as wide as a vocabulary and much wider than what
// goes in (a projection inside a layer has at most 3.5 times the features on one side, 7 where gate and up are one
// matrix).
bool is_product(const Works& works, WorkId work);
bool gives_logits(const Works& works, WorkId work);

struct TokenEvents {
  std::vector<TokenEvent> embeddings;  // of the largest table only
  std::vector<TokenEvent> samplings;   // over the widest rows only
};

// Embedding and sampling operators by start. One look at each distinct name and signature.
TokenEvents find_token_events(const Trace& trace);

}  // namespace llmprof
