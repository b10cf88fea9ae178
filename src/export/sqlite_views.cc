#include "export/sqlite_views.h"

namespace llmprof::exporting {
namespace {

constexpr SqliteView kViews[] = {
    {"gpu_timeline", R"sql(
SELECT g.row, g.start_ns, g.dur_ns, s.device, s.context, s.stream, g.name, g.kind, l.category,
       t.stage, l.step, o.name AS operator, w.shape, w.flops, w.bytes AS least_bytes, g.bytes AS copied_bytes,
       c.grid_x, c.grid_y, c.grid_z, c.block_x, c.block_y, c.block_z, c.registers_per_thread, c.shared_bytes,
       a.name AS launch, a.start_ns AS launch_start_ns, g.start_ns - a.start_ns AS launch_latency_ns
FROM gpu_ops g
JOIN streams s ON s.row = g.stream
LEFT JOIN gpu_links l ON l.row = g.row
LEFT JOIN steps t ON t.row = l.step
LEFT JOIN ops o ON o.row = l.op
LEFT JOIN works w ON w.row = l.work
LEFT JOIN launch_configs c ON c.row = g.config
LEFT JOIN api_calls a ON a.row = l.api)sql"},
    {"kernel_totals", R"sql(
SELECT t.stage, g.name, l.category, COUNT(*) AS calls, SUM(g.dur_ns) AS total_ns, AVG(g.dur_ns) AS mean_ns,
       MIN(g.dur_ns) AS min_ns, MAX(g.dur_ns) AS max_ns
FROM gpu_ops g
LEFT JOIN gpu_links l ON l.row = g.row
LEFT JOIN steps t ON t.row = l.step
GROUP BY t.stage, g.name, l.category)sql"},
    {"step_times", R"sql(
SELECT t.row, t.stage, t.kind, t.source, t.device, t.phase, t.state, t.start_ns, t.end_ns - t.start_ns AS wall_ns,
       t.new_tokens, t.sequences, t.context, t.output_tokens,
       (SELECT COALESCE(SUM(dur_ns), 0) FROM gaps p WHERE p.step = t.row AND p.cause <> 'not-recorded') AS idle_ns
FROM steps t)sql"},
    {"idle_by_cause", R"sql(
SELECT p.device, t.stage, p.cause, COUNT(*) AS gaps, SUM(p.dur_ns) AS total_ns, MAX(p.dur_ns) AS max_ns
FROM gaps p
LEFT JOIN steps t ON t.row = p.step
GROUP BY p.device, t.stage, p.cause)sql"},
    {"gap_places", R"sql(
SELECT p.row, p.device, p.start_ns, p.dur_ns, p.cause, t.stage, p.step, o.name AS operator, a.name AS api,
       y.name AS python, g.name AS ended_by
FROM gaps p
LEFT JOIN steps t ON t.row = p.step
LEFT JOIN ops o ON o.row = p.op
LEFT JOIN api_calls a ON a.row = p.api
LEFT JOIN python_calls y ON y.row = p.python
LEFT JOIN gpu_ops g ON g.row = p.next_gpu_op)sql"},
    {"operator_calls", R"sql(
SELECT o.row, o.start_ns, o.dur_ns, k.self_ns, h.process_id, h.thread_id, o.name, g.dims, k.parent, m.name AS parent_name
FROM ops o
JOIN threads h ON h.row = o.thread
LEFT JOIN signatures g ON g.row = o.signature
LEFT JOIN op_links k ON k.row = o.row
LEFT JOIN ops m ON m.row = k.parent)sql"},
};

}  // namespace

std::span<const SqliteView> sqlite_views() { return kViews; }

}  // namespace llmprof::exporting
