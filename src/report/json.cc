// report.json, schema llmprof.report/1. Rows walk their declarations; the single objects are spelled out here.
#include "report/field_writer.h"
#include "report/render.h"

namespace llmprof {
namespace {

template <class T>
void write_optional(JsonWriter& json, std::string_view key, const std::optional<T>& value) {
  json.key(key);
  write_json(json, value);
}

void write_summary(JsonWriter& json, std::string_view key, const std::optional<Summary>& summary) {
  json.key(key);
  if (summary) {
    write_record(json, *summary);
  } else {
    json.null();
  }
}

void write_source(JsonWriter& json, const SourceReport& source) {
  json.key("source").begin_object();
  json.field("kind", source.kind);
  json.key("files").begin_array();
  for (const std::string& file : source.files) json.value(file);
  json.end_array();
  write_optional(json, "start_unix_ns", source.start_unix_ns);
  json.field("duration_ms", source.duration_ms.ms());
  json.field("recorded_ms", source.recorded_ms.ms());
  json.end_object();
}

void write_device(JsonWriter& json, const std::optional<DeviceReport>& device) {
  json.key("device");
  if (!device) {
    json.null();
    return;
  }
  json.begin_object();
  json.field("device", device->device);
  json.field("name", device->name);
  write_optional(json, "sku", device->sku);
  write_optional(json, "compute_capability", device->compute_capability);
  write_optional(json, "sm_count", device->sm_count);
  write_optional(json, "memory_bytes", device->memory_bytes);
  json.key("sm_clock_mhz");
  if (device->sm_clock_mhz) {
    json.begin_object();
    json.field("min", device->sm_clock_mhz->min);
    json.field("median", device->sm_clock_mhz->p50);
    json.field("max", device->sm_clock_mhz->max);
    json.end_object();
  } else {
    json.null();
  }
  json.key("peaks").begin_object();
  for (const Peak& peak : device->peaks) {
    json.key(peak.name).begin_object();
    json.field("value", peak.value);
    json.field("provenance", peak.provenance);
    write_optional(json, "at_clock", peak.at_clock);
    if (peak.measured) {
      json.field("measured", *peak.measured);
      json.field("how", peak.how);
    }
    json.end_object();
  }
  json.end_object();
  write_optional(json, "arithmetic", device->arithmetic);
  write_optional(json, "ridge", device->ridge);
  if (device->measured_by) json.field("measured_by", *device->measured_by);
  json.key("remarks").begin_array();
  for (const std::string& remark : device->remarks) json.value(remark);
  json.end_array();
  json.end_object();
}

void write_model(JsonWriter& json, const std::optional<ModelSummary>& model) {
  json.key("model");
  if (!model) {
    json.null();
    return;
  }
  json.begin_object();
  json.field("id", model->id);
  json.field("origin", model->origin);
  json.field("evidence", model->evidence);
  write_optional(json, "params", model->params);
  write_optional(json, "dtype", model->dtype);
  write_optional(json, "weight_bytes", model->weight_bytes);
  write_optional(json, "kv_bytes_per_token", model->kv_bytes_per_token);
  json.end_object();
}

void write_latency(JsonWriter& json, const std::optional<Latency>& latency) {
  json.key("latency");
  if (!latency) {
    json.null();
    return;
  }
  json.begin_object();
  json.key("headline");
  write_record(json, latency->headline);
  write_summary(json, "ttft_ms", latency->ttft_ms);
  write_summary(json, "tpot_ms", latency->tpot_ms);
  write_summary(json, "itl_ms", latency->itl_ms);
  write_optional(json, "output_tokens_per_s", latency->headline.output_tokens_per_s);
  write_optional(json, "warmup_ms", latency->warmup_ms);
  json.end_object();
}

void write_telemetry(JsonWriter& json, const std::optional<TelemetryReport>& telemetry) {
  json.key("telemetry");
  if (!telemetry) {
    json.null();
    return;
  }
  json.begin_object();
  json.field("device", telemetry->device);
  json.field("window_ms", telemetry->window_ms.ms());
  json.field("nvml_samples", telemetry->nvml_samples);
  json.field("counter_samples", telemetry->counter_samples);
  write_optional(json, "counter_source", telemetry->counter_source);
  write_optional(json, "counter_interval_us", telemetry->counter_interval_us);
  write_optional(json, "counter_coverage_frac", telemetry->counter_coverage_frac);
  write_optional(json, "counter_clock_offset_us", telemetry->counter_clock_offset_us);
  write_summary(json, "power_w", telemetry->power_w);
  write_summary(json, "sm_clock_mhz", telemetry->sm_clock_mhz);
  write_optional(json, "sm_clock_source", telemetry->sm_clock_source);
  write_summary(json, "memory_clock_mhz", telemetry->memory_clock_mhz);
  write_summary(json, "temperature_c", telemetry->temperature_c);
  write_summary(json, "memory_temperature_c", telemetry->memory_temperature_c);
  write_optional(json, "gpu_util_frac", telemetry->gpu_util_frac);
  write_optional(json, "energy_j", telemetry->energy_j);
  write_optional(json, "energy_per_token_j", telemetry->energy_per_token_j);
  write_optional(json, "memory_used_peak_bytes", telemetry->memory_used_peak_bytes);
  write_optional(json, "pcie_rx_bytes_per_s", telemetry->pcie_rx_bytes_per_s);
  write_optional(json, "pcie_tx_bytes_per_s", telemetry->pcie_tx_bytes_per_s);
  write_optional(json, "nvlink_rx_bytes_per_s", telemetry->nvlink_rx_bytes_per_s);
  write_optional(json, "nvlink_tx_bytes_per_s", telemetry->nvlink_tx_bytes_per_s);
  write_records(json, "throttle", telemetry->throttle);
  write_records(json, "series", telemetry->series);
  json.end_object();
}

void write_memory(JsonWriter& json, const std::optional<MemoryReport>& memory) {
  json.key("memory");
  if (!memory) {
    json.null();
    return;
  }
  json.begin_object();
  write_optional(json, "peak_allocated_bytes", memory->peak_allocated_bytes);
  write_optional(json, "peak_reserved_bytes", memory->peak_reserved_bytes);
  write_optional(json, "capacity_bytes", memory->capacity_bytes);
  write_optional(json, "peak_time_ms", memory->peak_time_ms);
  write_optional(json, "peak_stage", memory->peak_stage);
  json.field("events", memory->events);
  json.field("allocations", memory->allocations);
  json.field("frees", memory->frees);
  write_records(json, "operators", memory->operators);
  write_records(json, "series", memory->series);
  json.end_object();
}

void write_overhead(JsonWriter& json, const std::optional<OverheadReport>& overhead) {
  json.key("overhead");
  if (!overhead) {
    json.null();
    return;
  }
  json.begin_object();
  write_optional(json, "distortion_frac", overhead->distortion_frac);
  json.key("ci95");
  if (overhead->ci95) {
    json.begin_array();
    for (const double edge : *overhead->ci95) json.value(edge);
    json.end_array();
  } else {
    json.null();
  }
  json.field("stage", overhead->stage);
  json.field("method", overhead->method);
  write_records(json, "stages", overhead->stages);
  json.field("recorded_ms", overhead->recorded_ms.ms());
  json.field("records", overhead->records);
  json.end_object();
}

void write_findings(JsonWriter& json, const std::vector<Finding>& findings) {
  json.key("findings").begin_array();
  for (const Finding& finding : findings) {
    json.begin_object();
    json.field("id", finding.id);
    json.field("severity", name_of(finding.severity));
    json.field("stage", finding.stage);
    json.field("title", finding.title);
    write_records(json, "evidence", finding.evidence);
    json.key("advice").begin_array();
    for (const std::string& advice : finding.advice) json.value(advice);
    json.end_array();
    json.key("bound");
    if (finding.bound) {
      write_record(json, *finding.bound);
    } else {
      json.null();
    }
    json.end_object();
  }
  json.end_array();
}

}  // namespace

std::string render_json(const Report& report) {
  JsonWriter json;
  json.begin_object();
  json.field("schema", "llmprof.report/1");
  json.field("tool_version", report.tool_version);
  write_source(json, report.source);
  write_device(json, report.device);
  write_model(json, report.model);
  write_latency(json, report.latency);
  write_records(json, "stages", report.stages);
  write_records(json, "operators", report.operators);
  write_records(json, "kernels_topk", report.kernels_topk);
  write_records(json, "categories", report.categories);
  write_records(json, "roofline", report.roofline);
  write_records(json, "launch_sites", report.launch_sites);
  write_records(json, "idle", report.idle);
  write_records(json, "idle_sites", report.idle_sites);
  write_records(json, "host", report.host);
  write_telemetry(json, report.telemetry);
  write_memory(json, report.memory);
  write_overhead(json, report.overhead);
  write_findings(json, report.findings);
  write_records(json, "cannot_tell", report.cannot_tell);
  write_records(json, "diagnostics", report.diagnostics);
  write_records(json, "conservation", report.conservation);
  write_records(json, "coverage", report.coverage);
  json.end_object();
  return json.take() + "\n";
}

}  // namespace llmprof
