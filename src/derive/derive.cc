#include "derive/derive.h"

#include "derive/steady.h"

namespace llmprof {

Status derive(Trace& trace, const DeriveOptions& options) {
  fold_whole_graphs(trace);
  link_launches(trace);
  classify_gpu_ops(trace);
  link_library_calls(trace);
  attach_work(trace);
  find_busy(trace);
  LLMPROF_CHECK(find_steps(trace, options));
  find_steady(trace);
  attribute_idle(trace);
  split_client_times(trace);
  return {};
}

}  // namespace llmprof
