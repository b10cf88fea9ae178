#!/usr/bin/env python3
"""What trtexec exports, against the same files read here with json and statistics.

Every layer and every figure of queries in the report must be what the files say. Then files are given in other forms: each alone, in another
order, with names alone, of another engine, with a broken or cut line, as TensorRT 11 writes layers.
"""

import argparse
import collections
import json
import math
import pathlib
import statistics
import sys
import tempfile

from report_checks import expect, near, problems, report_of

INPUTS = pathlib.Path(__file__).resolve().parent / "inputs"
PROFILE, LAYERS, TIMES, OLDER = (INPUTS / f"trtexec_{name}.json" for name in ("profile", "layers", "times", "times_older"))
TABLES = ("engine_profiles", "engine_layers", "engine_latency")


def read(file):
    # C++ streams write nan in their own way.
    return json.loads(file.read_text().replace("-nan", "null"))


def keys(report):
    return [(row["key"], row["count"]) for row in report["diagnostics"]]


def tensors(rows):
    return "; ".join("[" + ",".join(map(str, row["Dimensions"])) + "] " + row["Format/Datatype"] for row in rows) or None


def check_layers(report):
    count, *timed = read(PROFILE)
    count = count["count"]
    total = sum(row["timeMs"] for row in timed)
    free = collections.defaultdict(list)
    for row in read(LAYERS)["Layers"]:
        free[row["Name"]].append(row)
    wanted = []
    for row in timed:
        wanted.append((row, free[row["name"]].pop(0) if free[row["name"]] else None))
    wanted.sort(key=lambda pair: -pair[0]["timeMs"])
    rest = [row for rows in free.values() for row in rows]
    found = report["engine_layers"]
    expect(len(found) == len(wanted) + len(rest) == 29, f"{len(found)} layers")
    for row, (time, layer) in zip(found, wanted):
        name = time["name"]
        expect(row["name"] == name and row["found_in"] == ("both" if layer else "times"), f"{row['name']}, not {name}")
        expect(near(row["total_ms"], time["timeMs"], 1e-6) and near(row["iteration_ms"], time["timeMs"] / count, 1e-6), f"time of {name}")
        expect(near(row["frac"], time["timeMs"] / total, 1e-6), f"share of {name}")
        expect(near(row["mean_ms"], time["averageMs"], 1e-6) if time["averageMs"] is not None else row["mean_ms"] is None, f"mean of {name}")
        expect(near(row["median_ms"], time["medianMs"], 1e-6), f"median of {name}")
        layer = layer or {"LayerType": None, "Inputs": [], "Outputs": [], "StreamId": None}
        expect(row["type"] == layer["LayerType"] and row["stream"] == layer["StreamId"], f"type or stream of {name}")
        expect(row["inputs"] == tensors(layer["Inputs"]) and row["outputs"] == tensors(layer["Outputs"]), f"shapes of {name}")
        expect(row["tactic"] == layer.get("TacticName", layer.get("TacticValue")), f"tactic of {name}")
        expect(row["metadata"] == (layer.get("Metadata", "").replace("\x1e", "; ") or None), f"metadata of {name}")
    expect([(row["name"], row["found_in"], row["total_ms"]) for row in found[len(wanted):]] == [(row["Name"], "layers", None) for row in rest], "untimed")
    expect(math.isclose(sum(row["frac"] for row in found[:len(wanted)]), 1), "shares")
    [profile] = report["engine_profiles"]
    unmatched = sum(time["timeMs"] for time, layer in wanted if not layer)
    expect((profile["source"], profile["layers_source"], profile["iterations"]) == (PROFILE.name, LAYERS.name, count), f"{profile}")
    expect((profile["timed_layers"], profile["described_layers"], profile["matched"], profile["times_only"], profile["layers_only"]) ==
           (28, 27, 26, 2, 1), f"{profile}")
    expect(near(profile["unmatched_frac"], unmatched / total, 1e-6) and near(profile["iteration_ms"], total / count, 1e-6), f"{profile}")
    expect((profile["checked"], profile["disagreeing"]) == (len(timed), 0), f"{profile}")
    print(f"{len(found)} layers, {profile['matched']} in both files")


def quantile(values, p):  # linearly between ranks, as numpy's default and statistics' inclusive method
    return statistics.quantiles(values, n=100, method="inclusive")[p - 1]


def check_queries(report, file, figures, enqueue):
    rows = read(file)
    wanted = {"latency": "latencyMs", "gpu-compute": "computeMs", "h2d": "h2dMs", "d2h": "d2hMs", "end-to-end": "endToEndMs"}
    found = {row["figure"]: row for row in report["engine_latency"] if row["source"] == file.name}
    expect(set(found) == set(figures), f"figures of {file.name}: {sorted(found)}")
    for figure, row in found.items():
        values = [one[wanted[figure]] if figure in wanted else one["endEnqMs"] - one["startEnqMs"] for one in rows]
        expect(row["queries"] == len(rows), f"{figure}: {row['queries']}")
        for key, value in (("mean_ms", statistics.fmean(values)), ("median_ms", statistics.median(values)), ("least_ms", min(values)),
                           ("most_ms", max(values)), ("p90_ms", quantile(values, 90)), ("p95_ms", quantile(values, 95)), ("p99_ms", quantile(values, 99))):
            expect(near(row[key], value, 1e-6), f"{file.name}, {figure}, {key}: {row[key]}, {value}")
        expect((row["checked"], row["disagreeing"]) == ((len(rows), 0) if figure == "latency" else (0, 0)), f"{figure}: {row}")
    expect(("enqueue" in found) == enqueue, f"{file.name}: enqueue")
    print(f"{len(rows)} queries of {file.name}: {', '.join(found)}")


def questions(report):
    return " ".join(row["question"] + " " + row["why"] for row in report["cannot_tell"])


def check_forms(binary, folder, report):
    wanted = {name: report[name] for name in TABLES}
    again = report_of(binary, TIMES, LAYERS, PROFILE)
    expect({name: again[name] for name in TABLES} == wanted, "another order of files")
    expect("warm-up" not in questions(report) and "Which layers take the time" not in questions(report), questions(report))
    expect("2 of the 28 layers" in questions(report), questions(report))

    alone = report_of(binary, PROFILE)
    expect([row["found_in"] for row in alone["engine_layers"]] == ["times"] * 28 and "engine_latency" not in alone, "profile alone")
    expect("no layer information was given" in questions(alone) and "How long does a query take" in questions(alone), questions(alone))
    alone = report_of(binary, LAYERS)
    expect([row["name"] for row in alone["engine_layers"]] == [row["Name"] for row in read(LAYERS)["Layers"]], "layer information alone")
    expect(all(row["frac"] is None for row in alone["engine_layers"]) and "Which layers take the time" in questions(alone), questions(alone))
    alone = report_of(binary, TIMES)
    expect("engine_layers" not in alone and alone["engine_latency"] == wanted["engine_latency"], "times alone")

    def write(name, text):
        file = folder / f"{name}.json"
        file.write_text(text)
        return file

    names = write("names", json.dumps({"Layers": [row["Name"] for row in read(LAYERS)["Layers"]], "Bindings": []}))
    got = report_of(binary, PROFILE, names)
    expect(got["engine_profiles"][0]["matched"] == 26 and "names alone" in questions(got), f"names alone: {questions(got)}")
    other = write("other", json.dumps({"Layers": [{"Name": "z", "LayerType": "gemm", "Inputs": [], "Outputs": []}]}))
    got = report_of(binary, PROFILE, other)
    expect([(row["matched"], row["layers_source"]) for row in got["engine_profiles"]] == [(0, None), (0, "other.json")], "another engine")
    expect("of another engine" in questions(got) and len(got["engine_layers"]) == 29, questions(got))
    got = report_of(binary, other, PROFILE, LAYERS)  # which belongs to the profile is found by the names
    expect([row["layers_source"] for row in got["engine_profiles"]] == [LAYERS.name, "other.json"], "two engines")
    # TensorRT 11: format and type apart, I/O tensors first.
    eleven = {"I/O Tensors": [{"Name": "x", "Dimensions": [1]}], "Layers": []}
    for row in read(LAYERS)["Layers"]:
        row = json.loads(json.dumps(row))
        for tensor in row["Inputs"] + row["Outputs"]:
            tensor["DataType"] = tensor.pop("Format/Datatype")
        eleven["Layers"].append(row)
    got = report_of(binary, PROFILE, write("eleven", json.dumps(eleven)))
    expect([row["inputs"] for row in got["engine_layers"]] == [row["inputs"] for row in report["engine_layers"]], "TensorRT 11")
    # Old versions: no enqueue times, other names, no median.
    seven = [{key.replace("H2d", "In").replace("D2h", "Out").replace("h2d", "in").replace("d2h", "out"): value
              for key, value in row.items() if "Enq" not in key} for row in read(TIMES)]
    got = report_of(binary, write("trtexec_times", json.dumps(seven)))
    expect(got["engine_latency"] == [row for row in wanted["engine_latency"] if row["figure"] != "enqueue"], "old versions")

    # Damage.
    text = TIMES.read_text()
    got = report_of(binary, write("cut", text[:len(text) // 2]), code=3)
    expect(got["engine_latency"][0]["queries"] == text[:len(text) // 2].count("}") and ("truncated-file", 1) in keys(got), f"cut: {keys(got)}")
    got = report_of(binary, write("cut_layers", LAYERS.read_text()[:9000]), code=3)
    expect(0 < len(got["engine_layers"]) < 27 and ("truncated-file", 1) in keys(got), f"cut layers: {keys(got)}")
    rows = read(PROFILE)
    rows[3]["timeMs"], rows[4]["timeMs"], rows[5]["name"], rows[6]["averageMs"] = -1, 1e300, 7, "slow"
    rows.append(5)
    got = report_of(binary, write("wrong", json.dumps(rows)))
    expect(len(got["engine_layers"]) == 25 and got["engine_profiles"][0]["disagreeing"] > 0, f"{len(got['engine_layers'])} layers")
    expect(dict(keys(got)) == {"negative-duration": 1, "bad-number": 2, "missing-field": 3, "malformed-event": 1, "figure-disagrees": 24},
           f"wrong types: {keys(got)}")
    rows = read(TIMES)
    rows[0]["latencyMs"] = 9
    got = report_of(binary, write("sum", json.dumps(rows)))
    expect(got["engine_latency"][0]["disagreeing"] == 1 and ("figure-disagrees", 1) in keys(got), f"another sum: {keys(got)}")
    print("14 other forms")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--binary", required=True)
    binary = parser.parse_args().binary
    report = report_of(binary, PROFILE, LAYERS, TIMES)
    check_layers(report)
    check_queries(report, TIMES, ("latency", "gpu-compute", "h2d", "d2h", "enqueue"), True)
    expect(keys(report) == [], f"{report['diagnostics']}")
    older = report_of(binary, OLDER)
    check_queries(older, OLDER, ("latency", "gpu-compute", "h2d", "d2h", "end-to-end"), False)
    expect("warm-up" in questions(older) and "enqueue" in questions(older), questions(older))
    with tempfile.TemporaryDirectory() as folder:
        check_forms(binary, pathlib.Path(folder), report)
    for problem in problems:
        print(problem)
    sys.exit(1 if problems else 0)


main()
