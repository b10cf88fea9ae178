// Times the stages between a recording and its report one by one, on a real recording held in memory:
//   build/release/bin/import_benchmark --benchmark_min_time=1
// Bytes per second are bytes of JSON text for every stage, so the stages can be compared and added.
#include <benchmark/benchmark.h>

#include <cstdio>
#include <cstdlib>
#include <string>

#include "analyze/analysis.h"
#include "derive/derive.h"
#include "import/importer.h"
#include "import/kineto.h"
#include "trace/trace_file.h"

namespace {

using namespace llmprof;

template <class T>
T or_stop(Result<T> result) {
  if (result) return std::move(*result);
  std::fprintf(stderr, "%s\n", result.error().text().c_str());
  std::exit(1);
}

const std::string& recording() {
  static const std::string text = [] {
    InputFile input = or_stop(InputFile::open(LLMPROF_RECORDING));
    std::string all;
    constexpr size_t kStep = size_t{4} << 20;
    for (size_t got = kStep; got != 0;) {
      const size_t at = all.size();
      all.resize(at + kStep);
      got = input.read(all.data() + at, kStep);
      all.resize(at + got);
    }
    return all;
  }();
  return text;
}

Trace imported() {
  InputFile input = or_stop(InputFile::from_memory(recording(), "recording"));
  Trace trace;
  if (Status status = kineto::import(input, trace); !status) std::exit(1);
  return trace;
}

Trace finished() {
  Trace trace = imported();
  finish_import(trace);
  return trace;
}

Trace derived() {
  Trace trace = finished();
  if (!derive(trace)) std::exit(1);
  return trace;
}

void per_json_byte(benchmark::State& state) {
  state.SetBytesProcessed(static_cast<int64_t>(state.iterations()) * static_cast<int64_t>(recording().size()));
}

void import_kineto(benchmark::State& state) {
  recording();
  for ([[maybe_unused]] auto iteration : state) benchmark::DoNotOptimize(imported().gpu_ops.size());
  per_json_byte(state);
}
BENCHMARK(import_kineto)->Unit(benchmark::kMillisecond)->UseRealTime();

// A pass over a trace that the passes before it have prepared.
template <class Prepare, class Pass>
void time_pass(benchmark::State& state, Prepare&& prepare, Pass&& pass) {
  for ([[maybe_unused]] auto iteration : state) {
    state.PauseTiming();
    Trace trace = prepare();
    state.ResumeTiming();
    pass(trace);
    state.PauseTiming();
    trace = Trace();
    state.ResumeTiming();
  }
  per_json_byte(state);
}

void finish(benchmark::State& state) { time_pass(state, imported, finish_import); }
BENCHMARK(finish)->Unit(benchmark::kMillisecond)->UseRealTime();

void derive_all(benchmark::State& state) {
  time_pass(state, finished, [](Trace& trace) { benchmark::DoNotOptimize(derive(trace).has_value()); });
}
BENCHMARK(derive_all)->Unit(benchmark::kMillisecond)->UseRealTime();

void analyze_all(benchmark::State& state) {
  const Trace trace = derived();
  for ([[maybe_unused]] auto iteration : state) benchmark::DoNotOptimize(analyze(trace).has_value());
  per_json_byte(state);
}
BENCHMARK(analyze_all)->Unit(benchmark::kMillisecond)->UseRealTime();

void pack(benchmark::State& state) {
  const Trace trace = derived();
  size_t bytes = 0;
  for ([[maybe_unused]] auto iteration : state) bytes = or_stop(pack_trace(trace)).size();
  per_json_byte(state);
  state.counters["file_bytes"] = static_cast<double>(bytes);
}
BENCHMARK(pack)->Unit(benchmark::kMillisecond)->UseRealTime();

void unpack(benchmark::State& state) {
  const std::string file = or_stop(pack_trace(derived()));
  for ([[maybe_unused]] auto iteration : state) {
    Trace trace;
    benchmark::DoNotOptimize(read_trace(file, trace).has_value());
  }
  per_json_byte(state);
}
BENCHMARK(unpack)->Unit(benchmark::kMillisecond)->UseRealTime();

}  // namespace

BENCHMARK_MAIN();
