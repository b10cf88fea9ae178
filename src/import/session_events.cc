// What the watched program did: kernels, calls, ranges.
#include "import/session_records.h"
#include "import/torch_ranges.h"

namespace llmprof::session_importer {

void SpoolReader::operator()(const spool::GraphLaunch& r) {
  const uint64_t launch = correlation(r.correlation);
  int64_t start_ns = 0, dur_ns = 0;
  if (r.start_ns == 0 && r.end_ns == 0) return problem(DiagnosticId::kZeroTimestamp, "graph launch");
  if (!span(r.start_ns, r.end_ns, start_ns, dur_ns)) return;
  builder_.add<GraphLaunches>({.start_ns = start_ns,
                               .dur_ns = dur_ns,
                               .stream = stream(r.stream),
                               .graph = unique(r.graph_id),
                               .correlation = launch});
}

void SpoolReader::operator()(const spool::ApiCall& r) {
  const uint64_t launch = correlation(r.correlation);
  int64_t start_ns = 0, dur_ns = 0;
  last_call_ = kNoRow;
  if (!span(r.start_ns, r.end_ns, start_ns, dur_ns)) return;
  const Row def = find(r.def, Kind::kApi);
  const ApiInfo info = def != kNoRow ? apis_[def] : ApiInfo{StringId::kEmpty, ApiLayer::kRuntime};
  last_call_ = builder_.add<ApiCalls>({.start_ns = start_ns,
                                       .dur_ns = dur_ns,
                                       .thread = thread(r.thread),
                                       .name = info.name,
                                       .correlation = launch,
                                       .layer = info.layer});
  last_call_correlation_ = r.correlation;
  constexpr size_t kFailuresMax = 64;
  if (r.result != 0 && r.result != kNotReady && failures_.size() < kFailuresMax) ++failures_[{info.name, r.result}];
}

void SpoolReader::operator()(const spool::CallTarget& r) {
  if (last_call_ == kNoRow || r.correlation != last_call_correlation_) return;  // its call was lost
  trace_.api_calls.stream[last_call_] = find(r.stream, Kind::kStream);
  trace_.api_calls.event[last_call_] = unique(r.event);
}

void SpoolReader::operator()(const spool::LaunchSite& r) {
  const uint64_t launch = correlation(r.correlation);
  int64_t time_ns = 0;
  StackText frames;
  for (int32_t i = 0; i < r.frame_count; ++i)
    frames.add(modules_.line(find(r.frames[i].module, Kind::kModule), r.frames[i].offset));
  const StringId stack = r.frame_count != 0 ? builder_.text(frames.text()) : text(r.stack);
  if (!moment(r.time_ns, time_ns) || stack == StringId::kEmpty) return;  // lost: it would say nothing
  const StringId name = kernel_name(r.function);
  builder_.add<LaunchSites>({.time_ns = time_ns,
                             .thread = thread(r.thread),
                             .name = name != StringId::kEmpty ? name : builder_.text("[name lost]"),
                             .correlation = launch,
                             .stack = stack});
}

void SpoolReader::operator()(const spool::Synchronization& r) {
  const uint64_t launch = correlation(r.correlation);
  int64_t start_ns = 0, dur_ns = 0;
  if (!span(r.start_ns, r.end_ns, start_ns, dur_ns)) return;
  const Row row = find(r.stream, Kind::kStream);
  builder_.add<SyncEvents>({.start_ns = start_ns,
                            .dur_ns = dur_ns,
                            .device = r.device >= 0   ? r.device
                                      : row != kNoRow ? trace_.streams.device[row]
                                                      : -1,
                            .stream = row != kNoRow ? trace_.streams.stream[row] : -1,
                            .name = builder_.text(sync_name(r.kind)),
                            .correlation = launch});
}

void SpoolReader::operator()(const spool::Overhead& r) {
  int64_t start_ns = 0, dur_ns = 0;
  if (!span(r.start_ns, r.end_ns, start_ns, dur_ns)) return;
  builder_.add<Overheads>({.start_ns = start_ns,
                           .dur_ns = dur_ns,
                           .thread = r.thread == 0 ? ThreadId() : thread(r.thread),
                           .name = text(r.name)});
}

void SpoolReader::operator()(const spool::MemoryEvent& r) {
  correlation(r.correlation);
  int64_t time_ns = 0;
  if (!moment(r.time_ns, time_ns)) return;
  const bool on_host = r.memory_kind == 1 || r.memory_kind == 2;  // pageable, pinned
  builder_.add<MemoryEvents>({.time_ns = time_ns,
                              .thread = thread(r.thread),
                              .device = on_host ? -1 : r.device,
                              .address = r.address,
                              .bytes = r.bytes});
}

void SpoolReader::add_annotation(ThreadId thread, StringId name, StringId domain, int64_t start_ns, int64_t dur_ns,
                                 double payload) {
  builder_.add<Annotations>({.start_ns = start_ns,
                             .dur_ns = dur_ns,
                             .thread = thread,
                             .name = name,
                             .domain = domain,
                             .kind = AnnotationKind::kNvtx,
                             .payload = payload});
}

void SpoolReader::operator()(const spool::Range& r) {
  if (r.handle != 0) {
    const uint32_t open = open_by_handle_.find(r.handle);
    if (open != kNoRow) open_ranges_[open].closed = true;
  }
  int64_t start_ns = 0, dur_ns = 0;
  if (!span(r.start_ns, r.end_ns, start_ns, dur_ns)) return;
  if (r.domain == 0 && add_torch_range(builder_, thread(r.thread), trace_.text(text(r.name)), start_ns, dur_ns)) return;
  add_annotation(thread(r.thread), text(r.name), text(r.domain), start_ns, dur_ns,
                 r.payload_kind == spool::PayloadKind::kNone ? kNoDouble : r.payload);
}

void SpoolReader::operator()(const spool::RangeOpen& r) {
  const uint32_t at = static_cast<uint32_t>(open_ranges_.size());
  if (r.handle != 0 && open_by_handle_.find_or_insert(r.handle, at) != at) return;
  open_ranges_.push_back({r, false});
}

void SpoolReader::operator()(const spool::Mark& r) {
  int64_t time_ns = 0;
  if (!moment(r.time_ns, time_ns)) return;
  add_annotation(thread(r.thread), text(r.name), text(r.domain), time_ns, 0,
                 r.payload_kind == spool::PayloadKind::kNone ? kNoDouble : r.payload);
}

void SpoolReader::operator()(const spool::LibraryCall& r) {
  int64_t start_ns = 0, dur_ns = 0;
  if (!span(r.start_ns, r.end_ns, start_ns, dur_ns)) return;
  const Row row = find(r.def, Kind::kLibrary);
  const spool::LibraryDef def = row != kNoRow ? libraries_[row] : spool::LibraryDef{};
  // Column-major D[m x n] = A[m x k] * B[k x n] is row-major D'[n x m] = B'[n x k] * A'[k x m]: B is the activation.
  const bool swapped = def.kind == static_cast<uint8_t>(WorkKind::kGemm) && def.row_major == 0;
  constexpr uint8_t kMaskMax =
      static_cast<uint8_t>(AttentionMask::kUnknown);  // more: of later versions, not known here
  const LibraryCallId call =
      builder_.add<LibraryCalls>({.start_ns = start_ns,
                                  .dur_ns = dur_ns,
                                  .thread = thread(r.thread),
                                  .name = text(def.function),
                                  .kind = static_cast<WorkKind>(def.kind),
                                  .dtype = operand_dtype(swapped ? def.type_b : def.type_a, def.compute_type),
                                  .weight_dtype = operand_dtype(swapped ? def.type_a : def.type_b, def.compute_type),
                                  .out_dtype = dtype_of_cuda(def.type_d),
                                  .batch = def.batch,
                                  .m = swapped ? def.n : def.m,
                                  .n = swapped ? def.m : def.n,
                                  .k = def.k,
                                  .epilogue = text(def.epilogue),
                                  .detail = text(def.detail),
                                  .heads = def.heads,
                                  .kv_heads = def.kv_heads,
                                  .value_size = def.value_size,
                                  .mask = static_cast<AttentionMask>(std::min(def.mask, kMaskMax))});
  if (r.call != 0) row_by_call_.find_or_insert(r.call, 0) = call;
  last_product_ = call;
  last_product_call_ = r.call;
  last_product_swapped_ = swapped;
}

void SpoolReader::operator()(const spool::Operands& r) {
  const LibraryCallId row = last_product_;
  if (row == kNoRow || r.call != last_product_call_) return;  // its call was lost
  LibraryCalls& calls = trace_.library_calls;
  calls.input[row] = last_product_swapped_ ? r.b : r.a;
  calls.weights[row] = last_product_swapped_ ? r.a : r.b;
  calls.output[row] = r.d;
}

void SpoolReader::operator()(const spool::RecurringCall& r) {
  int64_t time_ns = 0;
  if (!moment(r.time_ns, time_ns)) return;
  builder_.add<RecurringCalls>({.time_ns = time_ns, .thread = thread(r.thread), .key = unique(r.key)});
}

void SpoolReader::operator()(const spool::ProductRows& r) {
  int64_t time_ns = 0;
  if (!moment(r.time_ns, time_ns)) return;
  builder_.add<ProductRows>({.time_ns = time_ns, .thread = thread(r.thread), .tokens = r.rows});
}

void SpoolReader::operator()(const spool::HostPlace& r) {
  int64_t start_ns = 0;
  if (!moment(r.start_ns, start_ns)) return;
  builder_.add<HostPlaces>({.start_ns = start_ns,
                            .dur_ns = std::max<int64_t>(0, r.end_ns - r.start_ns),
                            .thread = thread(r.thread),
                            .kind = static_cast<PlaceKind>(std::min(r.kind, spool::PlaceKind::kCodeSample)),
                            .stack = text(r.stack)});
}

void SpoolReader::operator()(const spool::CpuReading& r) {
  int64_t start_ns = 0;
  if (!moment(r.start_ns, start_ns)) return;
  builder_.add<CpuReadings>({.start_ns = start_ns,
                             .dur_ns = std::max<int64_t>(0, r.end_ns - r.start_ns),
                             .thread = thread(r.thread),
                             .cpu_ns = std::max<int64_t>(0, r.cpu_ns)});
}

void SpoolReader::operator()(const spool::HostPace& r) {
  int64_t start_ns = 0;
  if (!moment(r.start_ns, start_ns)) return;
  builder_.add<HostPaces>({.start_ns = start_ns,
                           .dur_ns = std::max<int64_t>(0, r.end_ns - r.start_ns),
                           .thread = thread(r.thread),
                           .waited_ns = std::max<int64_t>(-1, r.waited_ns)});
}

}  // namespace llmprof::session_importer
