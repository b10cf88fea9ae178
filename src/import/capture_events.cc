// What the watched program did: kernels, calls, ranges.
#include "import/capture_records.h"

namespace llmprof::capture {

void SpoolReader::operator()(const spool::GraphLaunch& r) {
  const uint64_t launch = correlation(r.correlation);
  int64_t start_ns = 0, dur_ns = 0;
  if (r.start_ns == 0 && r.end_ns == 0) return problem(DiagnosticId::kZeroTimestamp, "graph launch");
  if (!span(r.start_ns, r.end_ns, start_ns, dur_ns)) return;
  GraphLaunches& table = trace_.graph_launches;
  table.start_ns.push_back(start_ns);
  table.dur_ns.push_back(dur_ns);
  table.stream.push_back(stream(r.stream));
  table.graph.push_back(unique(r.graph_id));
  table.correlation.push_back(launch);
}

void SpoolReader::operator()(const spool::ApiCall& r) {
  const uint64_t launch = correlation(r.correlation);
  int64_t start_ns = 0, dur_ns = 0;
  if (!span(r.start_ns, r.end_ns, start_ns, dur_ns)) return;
  const Row def = find(r.def, Kind::kApi);
  const ApiInfo info = def != kNoRow ? apis_[def] : ApiInfo{StringId::kEmpty, ApiLayer::kRuntime};
  ApiCalls& calls = trace_.api_calls;
  calls.start_ns.push_back(start_ns);
  calls.dur_ns.push_back(dur_ns);
  calls.thread.push_back(thread(r.thread));
  calls.name.push_back(info.name);
  calls.correlation.push_back(launch);
  calls.external_id.push_back(0);
  calls.layer.push_back(info.layer);
  constexpr size_t kFailuresMax = 64;
  if (r.result != 0 && r.result != kNotReady && failures_.size() < kFailuresMax) ++failures_[{info.name, r.result}];
}

void SpoolReader::operator()(const spool::LaunchSite& r) {
  const uint64_t launch = correlation(r.correlation);
  int64_t time_ns = 0;
  if (!moment(r.time_ns, time_ns) || text(r.stack) == StringId::kEmpty) return;  // lost: it would say nothing
  const StringId name = kernel_name(r.function);
  LaunchSites& table = trace_.launch_sites;
  table.time_ns.push_back(time_ns);
  table.thread.push_back(thread(r.thread));
  table.name.push_back(name != StringId::kEmpty ? name : trace_.strings.intern("[name lost]"));
  table.correlation.push_back(launch);
  table.stack.push_back(text(r.stack));
}

void SpoolReader::operator()(const spool::Synchronization& r) {
  const uint64_t launch = correlation(r.correlation);
  int64_t start_ns = 0, dur_ns = 0;
  if (!span(r.start_ns, r.end_ns, start_ns, dur_ns)) return;
  const Row row = find(r.stream, Kind::kStream);
  SyncEvents& table = trace_.sync_events;
  table.start_ns.push_back(start_ns);
  table.dur_ns.push_back(dur_ns);
  table.device.push_back(r.device >= 0 ? r.device : row != kNoRow ? trace_.streams.device[row] : -1);
  table.stream.push_back(row != kNoRow ? trace_.streams.stream[row] : -1);
  table.name.push_back(trace_.strings.intern(sync_name(r.kind)));
  table.correlation.push_back(launch);
}

void SpoolReader::operator()(const spool::Overhead& r) {
  int64_t start_ns = 0, dur_ns = 0;
  if (!span(r.start_ns, r.end_ns, start_ns, dur_ns)) return;
  Overheads& table = trace_.overheads;
  table.start_ns.push_back(start_ns);
  table.dur_ns.push_back(dur_ns);
  table.thread.push_back(r.thread == 0 ? kNoRow : thread(r.thread));
  table.name.push_back(text(r.name));
}

void SpoolReader::operator()(const spool::MemoryEvent& r) {
  correlation(r.correlation);
  int64_t time_ns = 0;
  if (!moment(r.time_ns, time_ns)) return;
  const bool on_host = r.memory_kind == 1 || r.memory_kind == 2;  // pageable, pinned
  MemoryEvents& table = trace_.memory_events;
  table.time_ns.push_back(time_ns);
  table.thread.push_back(thread(r.thread));
  table.device.push_back(on_host ? -1 : r.device);
  table.address.push_back(r.address);
  table.bytes.push_back(r.bytes);
  table.allocated_bytes.push_back(-1);
  table.reserved_bytes.push_back(-1);
}

void SpoolReader::add_annotation(Row thread, StringId name, StringId domain, int64_t start_ns, int64_t dur_ns,
                                 double payload) {
  Annotations& table = trace_.annotations;
  table.start_ns.push_back(start_ns);
  table.dur_ns.push_back(dur_ns);
  table.thread.push_back(thread);
  table.name.push_back(name);
  table.domain.push_back(domain);
  table.kind.push_back(AnnotationKind::kNvtx);
  table.payload.push_back(payload);
  table.external_id.push_back(0);
}

// With --torch, PyTorch names its operators ("aten::mm, sizes = [[1, 8], [8, 4]]") and the hook module the program's
// modules ("[module] LlamaMLP") and functions ("[python] model.py(12): forward") by ranges: they are operators and
// Python calls, not stages that the program named.
bool SpoolReader::add_torch(Row on_thread, std::string_view text, int64_t start_ns, int64_t dur_ns) {
  constexpr std::string_view kModule = "[module] ";
  constexpr std::string_view kSizes = ", sizes = ";
  constexpr std::string_view kPython = "[python] ";
  const bool module = text.substr(0, kModule.size()) == kModule;
  if (module || text.substr(0, kPython.size()) == kPython) {
    PythonCalls& calls = trace_.python_calls;
    calls.start_ns.push_back(start_ns);
    calls.dur_ns.push_back(dur_ns);
    calls.thread.push_back(on_thread);
    calls.name.push_back(module ? trace_.strings.intern("nn.Module: " + std::string(text.substr(kModule.size())))
                                : trace_.strings.intern(text.substr(kPython.size())));
    calls.python_id.push_back(-1);
    calls.parent_id.push_back(-1);
    return true;
  }
  const size_t sizes = text.find(kSizes);
  const std::string name(text.substr(0, text.find(',')));
  const size_t space = name.find("::");
  const bool named = space != std::string::npos && space != 0 && name.find(' ') == std::string::npos;
  if (sizes == std::string_view::npos && !named) return false;
  Ops& ops = trace_.ops;
  ops.start_ns.push_back(start_ns);
  ops.dur_ns.push_back(dur_ns);
  ops.thread.push_back(on_thread);
  ops.signature.push_back(sizes == std::string_view::npos ? kNoRow
                                                          : signature(std::string(text.substr(sizes + kSizes.size()))));
  ops.name.push_back(trace_.strings.intern(name));
  ops.external_id.push_back(0);
  ops.sequence.push_back(-1);
  ops.recorded_flops.push_back(kNoDouble);
  return true;
}

// PyTorch names sizes only; element types come from the library calls inside.
Row SpoolReader::signature(const std::string& dims) {
  const StringId text = trace_.strings.intern(dims);
  const auto [known, fresh] = signatures_.emplace(text, static_cast<Row>(trace_.signatures.size()));
  if (!fresh) return known->second;
  trace_.signatures.dims.push_back(text);
  trace_.signatures.types.push_back(StringId::kEmpty);
  trace_.signatures.strides.push_back(StringId::kEmpty);
  trace_.signatures.concrete.push_back(StringId::kEmpty);
  return known->second;
}

void SpoolReader::operator()(const spool::Range& r) {
  if (r.handle != 0) {
    const uint32_t open = open_by_handle_.find(r.handle);
    if (open != kNoRow) open_ranges_[open].closed = true;
  }
  int64_t start_ns = 0, dur_ns = 0;
  if (!span(r.start_ns, r.end_ns, start_ns, dur_ns)) return;
  if (r.domain == 0 && add_torch(thread(r.thread), trace_.text(text(r.name)), start_ns, dur_ns)) return;
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
  LibraryCalls& table = trace_.library_calls;
  if (r.call != 0) row_by_call_.find_or_insert(r.call, 0) = static_cast<Row>(table.size());
  const Row row = find(r.def, Kind::kLibrary);
  const spool::LibraryDef def = row != kNoRow ? libraries_[row] : spool::LibraryDef{};
  // Column-major D[m x n] = A[m x k] * B[k x n] is row-major D'[n x m] = B'[n x k] * A'[k x m]: B is the activation.
  const bool swapped = def.kind == static_cast<uint8_t>(WorkKind::kGemm) && def.row_major == 0;
  table.start_ns.push_back(start_ns);
  table.dur_ns.push_back(dur_ns);
  table.thread.push_back(thread(r.thread));
  table.name.push_back(text(def.function));
  table.kind.push_back(static_cast<WorkKind>(def.kind));
  table.dtype.push_back(operand_dtype(swapped ? def.type_b : def.type_a, def.compute_type));
  table.weight_dtype.push_back(operand_dtype(swapped ? def.type_a : def.type_b, def.compute_type));
  table.out_dtype.push_back(dtype_of_cuda(def.type_d));
  table.batch.push_back(def.batch);
  table.m.push_back(swapped ? def.n : def.m);
  table.n.push_back(swapped ? def.m : def.n);
  table.k.push_back(def.k);
  table.epilogue.push_back(text(def.epilogue));
  table.detail.push_back(text(def.detail));
  table.heads.push_back(def.heads);
  table.kv_heads.push_back(def.kv_heads);
  table.value_size.push_back(def.value_size);
  table.mask.push_back(std::min<uint8_t>(def.mask, 2));  // of later versions: not known here
}

void SpoolReader::operator()(const spool::Beat& r) {
  int64_t time_ns = 0;
  if (!moment(r.time_ns, time_ns)) return;
  trace_.beats.time_ns.push_back(time_ns);
  trace_.beats.thread.push_back(thread(r.thread));
  trace_.beats.key.push_back(unique(r.key));
}

}  // namespace llmprof::capture
