"""Laws that every report.json obeys, checked without any code of llmprof.

Times are compared in whole nanoseconds: JSON numbers are read as decimal text, never as binary floating point.
"""

import functools
import gzip
import itertools
import json
import re
from decimal import Decimal

REPORT_KEYS = ("schema tool_version source device model latency stages operators kernels_topk categories telemetry memory "
               "overhead findings cannot_tell diagnostics").split()
STAGE_KEYS = ("name kind source count tokens wall_ms gpu_busy_ms gpu_idle_ms not_recorded_ms kernels launches flops dram_bytes_model "
              "dram_bytes_measured tflops mfu mfu_at_clock mbu intensity tensor_active_frac sm_active_frac dram_frac "
              "l2_hit_frac bound energy_j").split()
OPERATOR_KEYS = ("name stage calls cpu_total_ms cpu_self_ms gpu_total_ms gpu_mean_ms shapes flops memory_bytes").split()
KERNEL_KEYS = ("name category stage calls total_ms mean_ms min_ms p50_ms max_ms share grid block shape dtype flops bytes "
               "tflops gbs intensity bound of_roof_frac occupancy_frac provenance").split()
FINDING_KEYS = "id severity stage title evidence advice bound".split()
SUMMARY_KEYS = "n mean stddev min p50 p90 p99 max".split()
MODEL_KEYS = "schema id architecture dtype params weights kv_cache memory stages operators".split()
MODEL_STAGE_KEYS = "kind batch new_tokens context flops bytes intensity".split()

STAGE_KINDS = {"prefill", "decode", "mixed", "vision", "speculative", "other"}
STAGE_SOURCES = {"nvtx", "annotation", "detected"}
BOUNDS = {"compute", "memory", "overhead", "sync", "copy", "comm", "mixed", None}
GPU_CATEGORIES = {"kernel", "gpu_memcpy", "gpu_memset"}


class Broken(Exception):
    pass


def expect(condition, text):
    if not condition:
        raise Broken(text)


def same(what, wanted, found):
    expect(wanted == found, f"{what}: expected {wanted}, found {found}")


def need_keys(what, row, keys):
    missing = [key for key in keys if key not in row]
    expect(not missing, f"{what} lacks {', '.join(missing)}")


def ns_of(ms):
    """A time in milliseconds as whole nanoseconds, 0 if unknown; a time that is none is a broken law itself."""
    if ms is None:
        return 0
    ns = Decimal(ms) * 1000000
    whole = ns.to_integral_value()
    expect(ns == whole, f"{ms} ms is not a whole number of nanoseconds")
    return int(whole)


def total_ns(rows, key):
    return sum(ns_of(row[key]) for row in rows)


def check_document(text, recordings):
    document = json.loads(text, parse_float=Decimal, parse_constant=lambda word: expect(False, f"{word} is not JSON"))
    schema = document.get("schema", "")
    if schema == "llmprof.report/1":
        check_report(document, recordings)
    elif schema == "llmprof.model/1":
        check_model(document)


def check_report(report, recordings):
    need_keys("the report", report, REPORT_KEYS)
    stages, categories = report["stages"], report["categories"]
    for stage in stages:
        check_stage(stage)
    for row in report.get("stage_steps", []):
        check_stage_steps(row, stages, categories)
    check_client_stages(report.get("client_stages", []), report.get("client_clocks", []))
    for row in report["operators"]:
        need_keys(f"operator {row.get('name')}", row, OPERATOR_KEYS)
    for row in report["kernels_topk"]:
        check_kernel(row)
    for finding in report["findings"]:
        check_finding(finding)
        check_title(finding, stages, report["source"])
    check_severities(report["findings"], stages)
    for row in report.get("critical_path", []):
        check_critical_path(row, report["critical_path_work"])
    check_latency(report["latency"])
    for row in report["cannot_tell"]:
        need_keys("cannot_tell", row, ["question", "why", "how_to_find_out"])
        expect(row["question"] and row["why"] and row["how_to_find_out"], "a cannot_tell row is empty")
    for row in report["diagnostics"]:
        need_keys("diagnostics", row, ["key", "severity", "count", "text"])
    for row in report.get("conservation", []):
        expect(row.get("ok", row.get("holds", True)), f"llmprof's own check failed: {row}")

    devices = sorted({stage.get("device", 0) for stage in stages})
    if len(devices) == 1:
        same("stage walls against the window", ns_of(report["source"]["duration_ms"]), total_ns(stages, "wall_ms"))
    same("kernels of categories against stages", sum(row["kernels"] or 0 for row in stages),
         sum(row["kernels"] for row in categories))
    check_shares(categories)
    if "idle" in report:
        same("idle by cause against idle of the stages", total_ns(stages, "gpu_idle_ms"), total_ns(report["idle"], "total_ms"))
    kernels = report["kernels_topk"]
    gpu_ns = total_ns(categories, "time_ms")
    if sum(row["calls"] for row in kernels) == sum(row["kernels"] for row in categories):
        same("kernels against categories", gpu_ns, total_ns(kernels, "total_ms"))
    else:
        expect(total_ns(kernels, "total_ms") <= gpu_ns, "the kernels listed take longer than all GPU activities")

    damaged = any(row["severity"] in ("data-loss", "error") or row["key"] == "duplicate-event"
                  for row in report["diagnostics"])
    if report["source"]["kind"] == "kineto" and len(recordings) == 1 and not damaged:
        check_against_recording(report, recordings[0])


def check_stage(stage):
    need_keys(f"stage {stage.get('name')}", stage, STAGE_KEYS)
    name = stage["name"]
    same(f"{name}: busy + idle + not recorded against wall", ns_of(stage["wall_ms"]),
         ns_of(stage["gpu_busy_ms"]) + ns_of(stage["gpu_idle_ms"]) + ns_of(stage["not_recorded_ms"]))
    for key in ("gpu_busy_ms", "gpu_idle_ms"):
        expect(stage[key] is not None or stage["not_recorded_ms"] == stage["wall_ms"],
               f"{name}: {key} is unknown although kernels were recorded")
    expect(ns_of(stage["gpu_idle_ms"]) >= 0 and ns_of(stage["gpu_busy_ms"]) >= 0, f"{name}: a negative time")
    expect(stage["kind"] in STAGE_KINDS, f"{name}: unknown kind {stage['kind']}")
    expect(stage["source"] in STAGE_SOURCES or name == "[unattributed]", f"{name}: unknown source {stage['source']}")
    expect(stage["bound"] in BOUNDS, f"{name}: unknown bound {stage['bound']}")
    for key in ("tensor_active_frac", "sm_active_frac", "dram_frac", "l2_hit_frac", "counter_coverage_frac"):
        expect(stage[key] is None or 0 <= stage[key] <= Decimal("1.05"), f"{name}: {key} is {stage[key]}")
    for key in ("mfu", "mfu_at_clock", "mbu"):
        expect(stage[key] is None or 0 <= stage[key] <= Decimal("1.1"), f"{name}: {key} is {stage[key]}")
    wall_s = Decimal(stage["wall_ms"]) / 1000
    if stage["flops"] is not None and stage["tflops"] is not None and wall_s:
        rate = Decimal(stage["flops"]) / wall_s / 10**12
        expect(abs(rate - Decimal(stage["tflops"])) <= abs(rate) / 10**6, f"{name}: tflops is not flops / wall")


def check_client_stages(rows, clocks):
    """Means of the parts of each figure add up to that of the whole."""
    for source, figure in {(row["source"], row["figure"]) for row in rows}:
        mine = {row["part"]: row["mean_ms"] for row in rows if (row["source"], row["figure"]) == (source, figure)}
        whole = mine.pop("all")
        expect(abs(sum(mine.values()) - whole) <= Decimal("1e-9") * (1 + whole), f"{source} {figure}: {mine} of {whole}")
    for row in clocks:
        expect(max(row["waits"], row["failed"]) <= row["timed"] <= row["requests"], f"client_clocks: {row}")
        expect(row["alone"] <= row["waits"] and (row["why"] is None or row["waits"] == row["outputs"] == 0), f"client_clocks: {row}")


def check_stage_steps(row, stages, categories):
    """Means of a step, times the steps, are the totals of the stage where all of its steps were recorded whole."""
    stage, = [one for one in stages if (one["name"], one["device"]) == (row["stage"], row["device"])]
    expect(row["recorded_steps"] <= row["steps"] <= row["all_steps"], f"{row['stage']}: more steps recorded than there are")
    same(f"{row['stage']}: steps of stage_steps", stage["count"], row["steps"])
    if row["recorded_steps"] != row["steps"]:
        return
    of_gpu = [one for one in categories if (one["stage"], one["device"]) == (row["stage"], row["device"])]
    for name, mean, total in [("length", row["step_mean_ms"], ns_of(stage["wall_ms"])),
                              ("busy", row["gpu_busy_mean_ms"], ns_of(stage["gpu_busy_ms"])),
                              ("idle", row["gpu_idle_mean_ms"], ns_of(stage["gpu_idle_ms"])),
                              ("kernels and copies", Decimal(row["kernels_mean_ms"]) + Decimal(row["copies_mean_ms"]),
                               total_ns(of_gpu, "time_ms"))]:
        sum_ns = Decimal(mean) * row["steps"] * 1000000
        expect(abs(sum_ns - total) <= 1 + Decimal(total) / 10**9, f"{row['stage']}: mean {name} of a step is not the stage's")


def check_critical_path(row, work):
    parts = "host_code no_input cuda_calls launch_latency gpu_work gpu_gap wake_up unexplained"
    same(f"critical path of {row['stage']}: parts against the step", ns_of(row["step_ms"]),
         sum(ns_of(row[part + "_ms"]) for part in parts.split()))
    of_stage = [one for one in work if (one["stage"], one["device"]) == (row["stage"], row["device"])]
    same(f"critical path of {row['stage']}: its GPU work by category", ns_of(row["gpu_work_ms"]), total_ns(of_stage, "ms"))
    expect(len({one["category"] for one in of_stage}) == len(of_stage), "a category of the critical path stands twice")


def check_kernel(row):
    need_keys(f"kernel {row.get('name')}", row, KERNEL_KEYS)
    name, calls, total = row["name"], row["calls"], Decimal(row["total_ms"])
    expect(calls > 0, f"{name}: {calls} calls")
    expect(abs(Decimal(row["mean_ms"]) * calls - total) <= total / 10**9 + Decimal("1e-9") * calls,
           f"{name}: mean_ms x calls is not total_ms")
    low, high = Decimal(row["min_ms"]), Decimal(row["max_ms"])
    expect(low <= Decimal(row["p50_ms"]) <= high and low * calls <= total <= high * calls,
           f"{name}: min, p50, max and total_ms contradict each other")


def check_finding(finding):
    need_keys(f"finding {finding.get('id')}", finding, FINDING_KEYS)
    expect(finding["evidence"], f"finding {finding['id']} has no evidence")
    expect(finding["advice"], f"finding {finding['id']} has no advice")
    for row in finding["evidence"]:
        need_keys(f"evidence of {finding['id']}", row, ["metric", "value", "unit", "provenance"])


def check_title(finding, stages, source):
    """A share in a title stands in the evidence: as that share, or as times of a step that make it up. What the evidence
    calls a share of the stage's time is the share that the title has of it."""
    evidence = finding["evidence"]
    told = re.findall(r"([0-9.]+) %(?: of the ([CG]PU time))?", finding["title"])
    rows = [row for row in stages if row["name"] == finding["stage"] and row["count"]]
    wholes = [ns_of(row[key]) / Decimal(row["count"]) for row in rows for key in ("wall_ms", "gpu_busy_ms")]
    wholes.append(Decimal(ns_of(source["duration_ms"])))
    shares = [row["value"] for row in evidence if row["unit"] == "frac"]
    times_ns = [row["value"] * 1000000 for row in evidence if row["unit"] == "ms"]
    shares += [sum(some) / whole for whole in wholes if whole for size in (1, 2)
               for some in itertools.combinations(times_ns, size)]
    of_stage = [row["value"] for row in evidence if row["metric"].startswith("share of the stage's")]
    for number, of in told:
        off = Decimal("0.51") * Decimal(10) ** -len(number.partition(".")[2])
        expect(any(abs(100 * share - Decimal(number)) <= off for share in shares),
               f"{finding['id']}: {number} % of its title stands in no evidence")
        expect(not of or all(abs(100 * share - Decimal(number)) <= off for share in of_stage),
               f"{finding['id']}: {number} % of the {of} in its title, {of_stage} in its evidence")


# The most that findings can be, however large the share (`llmprof list findings`).
SEVERITIES = ["info", "minor", "major", "critical"]
SEVERITY_MOST = {"first-call-cost": "minor", "compute-bound": "minor", "gemm-shape-misaligned": "minor",
                 "wave-quantization": "minor", "profiler-distortion": "minor", "attention-unfused": "major",
                 "low-occupancy": "major", "batch-too-small": "info"}
# Where replay says what is to be gained, nothing is assumed, and the share alone decides.
DECIDED_BY_REPLAY = {"attention-unfused"}


def check_severity(finding):
    """The severity is at most that of the share that the bound promises. Bounds are those of the typical step, severity
    goes by the mean one: a tenth apart. Returns which figure it is of, and between which parts of a request that figure
    must then be; None where it says nothing."""
    bound, found = finding["bound"], SEVERITIES.index(finding["severity"])
    simulated = finding["id"] in DECIDED_BY_REPLAY and finding["gain"] and finding["gain"]["method"] == "replay"
    most = SEVERITIES.index("critical" if simulated else SEVERITY_MOST.get(finding["id"], "critical"))
    expect(found <= most, f"{finding['id']} is {finding['severity']}")
    if bound is None or not bound["from"]:
        return None
    if finding["id"] == "rank-skew" and finding["severity"] == "minor":
        return None  # where a finding of the late GPU brings most of it, that one has the severity
    share = 1 - bound["to"] / bound["from"]
    levels = [Decimal(0), Decimal("0.03"), Decimal("0.1"), Decimal("0.3"), Decimal("Infinity")]
    least = levels[found] / (share * Decimal("1.1")) if share > 0 else Decimal(0)
    expect(found == 0 or (share > 0 and least <= 1),
           f"{finding['id']}: {finding['severity']} although {share:.3f} of {bound['metric']} could go")
    above = levels[found + 1] / (share * Decimal("0.9")) if share > 0 and found < most else Decimal("Infinity")
    return bound["metric"], least, min(above, Decimal(1))


def check_severities(findings, stages):
    """Severities of one report agree on what part of a typical request TTFT makes up: the steps behind it are the rest,
    and where there is nothing before or behind a first token, the other is all of it."""
    before = any(row["kind"] in ("prefill", "vision") for row in stages)
    least, most = Decimal(0), Decimal(1 if before else 0)
    for metric, low, high in filter(None, map(check_severity, findings)):
        if metric.startswith("TTFT"):
            least, most = max(least, low), min(most, high)
        elif metric.startswith("TPOT"):
            least, most = max(least, 1 - high), min(most, 1 - low)
    expect(least <= most, f"severities say that TTFT is at least {least:.3f} and at most {most:.3f} of a request")


def check_latency(latency):
    if latency is None:
        return
    need_keys("latency", latency, ["ttft_ms", "tpot_ms", "itl_ms", "output_tokens_per_s", "warmup_ms"])
    for name in ("ttft_ms", "tpot_ms", "itl_ms"):
        summary = latency[name]
        if summary is None:
            continue
        need_keys(name, summary, SUMMARY_KEYS)
        ordered = [summary[key] for key in ("min", "p50", "p90", "p99", "max")]
        expect(ordered == sorted(ordered), f"{name}: percentiles out of order")
        expect(summary["min"] <= summary["mean"] <= summary["max"], f"{name}: the mean is outside min..max")


def check_shares(categories):
    """Shares of the categories of a stage on one GPU are fractions of its GPU time and add up to 1."""
    stages = {}
    for row in categories:
        stages.setdefault((row.get("stage"), row.get("device")), []).append(row)
    for stage, rows in stages.items():
        if not total_ns(rows, "time_ms"):
            continue
        share = sum(Decimal(row["share"]) for row in rows)
        expect(abs(share - 1) < Decimal("1e-9") * len(rows) + Decimal("1e-9"), f"shares of {stage} add up to {share}")


def check_model(model):
    need_keys("the model", model, MODEL_KEYS)
    for stage in model["stages"]:
        need_keys(f"stage {stage.get('kind')}", stage, MODEL_STAGE_KEYS)
        flops, moved = stage["flops"], stage["bytes"]
        same(f"{stage['kind']}: FLOPs", flops["total"], flops["linear"] + flops["attention_causal"] + flops["lm_head"])
        same(f"{stage['kind']}: bytes", moved["total"],
             moved["weights"] + moved["kv_read"] + moved["kv_write"] + moved["activations"])


# ---- the recording itself ------------------------------------------------------------------------------------------


@functools.lru_cache(maxsize=2)
def gpu_activities(path):
    """(device, start_ns, dur_ns) of every GPU activity of a Kineto file."""
    with (gzip.open if path.suffix == ".gz" else open)(path, "rb") as file:
        events = json.load(file, parse_float=Decimal)["traceEvents"]
    # Copies between GPUs name both ("fromDevice", "toDevice"); they run on that of their row.
    return [(event["args"].get("device", event["pid"]), int(Decimal(event["ts"]) * 1000), int(Decimal(event["dur"]) * 1000))
            for event in events if event.get("ph") == "X" and event.get("cat") in GPU_CATEGORIES]


def busy_ns(activities):
    """Time in which at least one activity ran, overlap counted once, and the span from the first to the last."""
    busy = end = 0
    ordered = sorted(activities)
    for i, (start, dur) in enumerate(ordered):
        if i == 0 or start > end:
            busy += dur
            end = start + dur
        elif start + dur > end:
            busy += start + dur - end
            end = start + dur
    return busy


def check_against_recording(report, path):
    activities = gpu_activities(path)
    stages = report["stages"]
    same("GPU activities in the recording", len(activities), sum(stage["kernels"] or 0 for stage in stages))
    same("sum of GPU durations in the recording", sum(dur for _, _, dur in activities),
         total_ns(report["categories"], "time_ms"))
    for device in sorted({device for device, _, _ in activities}):
        busy = busy_ns((start, dur) for at, start, dur in activities if at == device)
        same(f"busy time of device {device}, overlap counted once", busy,
             total_ns([stage for stage in stages if stage.get("device", 0) == device], "gpu_busy_ms"))
