// The Kineto importer against an independent reader (simdjson) on real recordings, against itself with other block
// sizes, and on damaged input.
#include <gtest/gtest.h>
#include <simdjson.h>
#include <zlib.h>
#include <zstd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>

#include "import/importer.h"
#include "import/kineto.h"

namespace llmprof {
namespace {

const std::string kInputs = std::string(LLMPROF_TEST_DATA) + "/golden/inputs/";

std::vector<std::string> recordings() {
  std::vector<std::string> paths;
  for (const std::filesystem::directory_entry& entry : std::filesystem::directory_iterator(kInputs))
    if (entry.path().string().ends_with(".json.gz")) paths.push_back(entry.path().string());
  std::sort(paths.begin(), paths.end());
  return paths;
}

std::string content_of(const std::string& path) {
  Result<InputFile> input = InputFile::open(path);
  EXPECT_TRUE(input) << path;
  std::string text;
  std::string chunk(1 << 20, '\0');
  for (size_t got = input->read(chunk.data(), chunk.size()); got != 0; got = input->read(chunk.data(), chunk.size()))
    text.append(chunk, 0, got);
  return text;
}

Trace import_text(std::string_view text, size_t block_bytes = kineto::kBlockBytes, unsigned workers = 2) {
  Trace trace;
  Result<InputFile> input = InputFile::from_memory(text, "test");
  EXPECT_TRUE(input);
  EXPECT_TRUE(kineto::import_in_blocks(*input, trace, block_bytes, workers));
  finish_import(trace);
  return trace;
}

// Decimal microseconds with up to three decimals to ns, by moving the point: not how the importer does it.
int64_t plain_ns(std::string_view text) {
  while (!text.empty() && (text.back() == ' ' || text.back() == '\n')) text.remove_suffix(1);
  std::string digits;
  const size_t point = text.find('.');
  digits = std::string(text.substr(0, point));
  std::string fraction = point == std::string_view::npos ? "" : std::string(text.substr(point + 1));
  EXPECT_LE(fraction.size(), 3U) << text;
  fraction.resize(3, '0');
  return std::strtoll((digits + fraction).c_str(), nullptr, 10);
}

// Sums wrap around: equal inputs have equal sums all the same.
struct Totals {
  int64_t count = 0;
  uint64_t start_sum_ns = 0, dur_sum_ns = 0, id_sum = 0;
  friend bool operator==(const Totals&, const Totals&) = default;
};
std::ostream& operator<<(std::ostream& out, const Totals& t) {
  return out << t.count << " rows, starts " << t.start_sum_ns << ", durations " << t.dur_sum_ns << ", ids " << t.id_sum;
}

// Totals per category as simdjson sees the file.
std::map<std::string, Totals> oracle(const std::string& text) {
  std::map<std::string, Totals> totals;
  simdjson::ondemand::parser parser;
  const simdjson::padded_string padded(text);
  simdjson::ondemand::document document = parser.iterate(padded);
  for (simdjson::ondemand::object event : document["traceEvents"]) {
    std::string category;
    std::string_view phase;
    int64_t start = 0, dur = 0;
    uint64_t id = 0;
    for (simdjson::ondemand::field field : event) {
      const std::string_view key = field.unescaped_key();
      if (key == "ph") phase = field.value().get_string();
      if (key == "cat") category = std::string(std::string_view(field.value().get_string()));
      if (key == "ts") start = plain_ns(field.value().raw_json_token());
      if (key == "dur") dur = plain_ns(field.value().raw_json_token());
      if (key == "args") {
        for (simdjson::ondemand::field arg : field.value().get_object()) {
          const std::string_view name = arg.unescaped_key();
          if (name == "correlation" || name == "External id") id += uint64_t(arg.value().get_uint64());
        }
      }
    }
    if (phase != "X") continue;
    Totals& total = totals[category];
    ++total.count;
    total.start_sum_ns += static_cast<uint64_t>(start);
    total.dur_sum_ns += static_cast<uint64_t>(dur);
    total.id_sum += id;
  }
  return totals;
}

Totals totals_of(const std::vector<int64_t>& start, const auto& dur, auto&& keep, auto&& id_of) {
  Totals total;
  for (size_t row = 0; row < start.size(); ++row) {
    if (!keep(row)) continue;
    ++total.count;
    total.start_sum_ns += static_cast<uint64_t>(start[row]);
    total.dur_sum_ns += static_cast<uint64_t>(dur[row]);
    total.id_sum += id_of(row);
  }
  return total;
}

TEST(KinetoImport, AgreesWithSimdjsonOnEveryRecording) {
  ASSERT_GE(recordings().size(), 15U);
  for (const std::string& path : recordings()) {
    SCOPED_TRACE(path);
    const std::string text = content_of(path);
    std::map<std::string, Totals> expected = oracle(text);
    const Trace trace = import_text(text);
    const auto all = [](size_t) { return true; };
    const Ops& ops = trace.ops;
    EXPECT_EQ(expected["cpu_op"],
              totals_of(ops.start_ns, ops.dur_ns, all, [&](size_t r) { return ops.external_id[r]; }));
    const GpuOps& gpu = trace.gpu_ops;
    const auto gpu_id = [&](size_t r) { return gpu.correlation[r] + gpu.external_id[r]; };
    const auto of_kind = [&](GpuOpKind kind) { return [&gpu, kind](size_t r) { return gpu.kind[r] == kind; }; };
    EXPECT_EQ(expected["kernel"], totals_of(gpu.start_ns, gpu.dur_ns, of_kind(GpuOpKind::kKernel), gpu_id));
    EXPECT_EQ(expected["gpu_memcpy"], totals_of(gpu.start_ns, gpu.dur_ns, of_kind(GpuOpKind::kMemcpy), gpu_id));
    EXPECT_EQ(expected["gpu_memset"], totals_of(gpu.start_ns, gpu.dur_ns, of_kind(GpuOpKind::kMemset), gpu_id));
    const ApiCalls& api = trace.api_calls;
    const auto api_id = [&](size_t r) { return api.correlation[r] + api.external_id[r]; };
    const auto of_layer = [&](ApiLayer layer) { return [&api, layer](size_t r) { return api.layer[r] == layer; }; };
    EXPECT_EQ(expected["cuda_runtime"], totals_of(api.start_ns, api.dur_ns, of_layer(ApiLayer::kRuntime), api_id));
    EXPECT_EQ(expected["cuda_driver"], totals_of(api.start_ns, api.dur_ns, of_layer(ApiLayer::kDriver), api_id));
    const PythonCalls& python = trace.python_calls;
    EXPECT_EQ(expected["python_function"], totals_of(python.start_ns, python.dur_ns, all, [](size_t) { return 0; }));
    EXPECT_EQ(expected["user_annotation"].count + expected["gpu_user_annotation"].count,
              static_cast<int64_t>(trace.annotations.size()));
  }
}

// Every table as text, so that two traces can be compared value by value.
std::string fingerprint(const Trace& trace) {
  std::ostringstream out;
  trace.for_each_table([&](const auto& table) {
    out << table.info().name << ' ' << table.size() << '\n';
    table.for_each_column([&]<class Column>(const FieldInfo& info, const Column& column) {
      using T = typename Column::value_type;
      out << info.name;
      for (const T value : column) {
        if constexpr (std::is_same_v<T, StringId>)
          out << '|' << trace.text(value);
        else if constexpr (std::is_enum_v<T>)
          out << '|' << static_cast<int>(value);
        else
          out << '|' << +value;
      }
      out << '\n';
    });
  });
  for (size_t i = 0; i < kDiagnosticCount; ++i) out << trace.diagnostics.count(static_cast<DiagnosticId>(i)) << ' ';
  return out.str();
}

TEST(KinetoImport, DoesNotDependOnBlocksOrThreads) {
  const std::string text = content_of(kInputs + "serving_annotations.json.gz");
  const std::string whole = fingerprint(import_text(text, text.size() * 2, 1));
  for (const size_t block_bytes : {512, 1000, 4096, 65536, 1 << 20})
    for (const unsigned workers : {1U, 2U, 5U})
      EXPECT_EQ(whole, fingerprint(import_text(text, block_bytes, workers))) << block_bytes << " bytes, " << workers;
}

TEST(KinetoImport, SurvivesWrongCuts) {
  // Arrays of objects inside args look like events, so nearly every cut is wrong; quotes hide braces.
  std::string text = R"({"traceEvents":[)";
  for (int i = 0; i < 400; ++i)
    text += R"({"ph":"X","cat":"cpu_op","name":"},{\"ph\":\"X\"","pid":1,"tid":1,"ts":)" + std::to_string(10 * i) +
            R"(,"dur":5,"args":{"External id":)" + std::to_string(i + 1) +
            R"(,"stack":[{"name":"a"},{"name":"b, {"},{"ph":"X"}]}},)";
  text += "]}";
  const std::string whole = fingerprint(import_text(text, 1 << 20, 1));
  for (const size_t block_bytes : {64, 100, 257, 1024})
    EXPECT_EQ(whole, fingerprint(import_text(text, block_bytes, 3))) << block_bytes;
  EXPECT_EQ(import_text(text).ops.size(), 400U);
}

std::string event(const std::string& more) {
  return R"({"ph":"X","cat":"kernel","name":"k","pid":0,"tid":7,)" + more +
         R"(,"args":{"correlation":5,"stream":7,"device":0}})";
}

TEST(KinetoImport, CountsWhatIsWrongAndKeepsTheRest) {
  const std::string good = event(R"("ts":1000.5,"dur":2)");
  struct Case {
    std::string text;
    DiagnosticId id;
    size_t kept;
  };
  const Case cases[] = {
      {"[" + good + "," + event(R"("ts":NaN,"dur":2)") + "]", DiagnosticId::kBadNumber, 1},
      {"[" + good + "," + event(R"("ts":5000,"dur":-2)") + "]", DiagnosticId::kNegativeDuration, 1},
      {"[" + good + "," + event(R"("ts":5000)") + "]", DiagnosticId::kMissingDuration, 2},
      {"[" + good + "," + event(R"("dur":5)") + "]", DiagnosticId::kMissingField, 1},
      {"[" + good + "," + event(R"("ts":0,"dur":0)") + "]", DiagnosticId::kZeroTimestamp, 1},
      {"[" + good + "," + good + "]", DiagnosticId::kDuplicateEvent, 1},
      {"[" + event(R"("ts":2000,"dur":1)") + "," + good + "]", DiagnosticId::kUnsortedEvents, 2},
      {"[" + good + R"(,{"ph":"X","cat" "kernel"},)" + event(R"("ts":9000,"dur":1)") + "]",
       DiagnosticId::kMalformedEvent, 2},
      {"[" + good + R"(, 17, )" + event(R"("ts":9000,"dur":1)") + "]", DiagnosticId::kMalformedEvent, 2},
      {"[" + good + ",{\"ph\":\"X\",\"name\":\"open\n" + R"(},)" + event(R"("ts":9000,"dur":1)") + "]",
       DiagnosticId::kMalformedEvent, 2},
      {"[" + good + R"(,{"ph":"X","cat":"weather","name":"k","ts":1,"dur":1}])", DiagnosticId::kUnknownCategory, 1},
      {"[" + good + "," + good.substr(0, 40), DiagnosticId::kTruncatedFile, 1},
      {"[" + good + "] trailing", DiagnosticId::kTrailingData, 1},
      {"[" + good + "," + event(R"("ts":1e300,"dur":2)") + "]", DiagnosticId::kBadNumber, 1},
      {"[" + good + R"(,{"ph":"B","cat":"cpu_op","name":"x","ts":1}])", DiagnosticId::kUnfinishedRange, 1},
  };
  for (const Case& one : cases) {
    SCOPED_TRACE(one.text);
    const Trace trace = import_text(one.text);
    EXPECT_EQ(trace.diagnostics.count(one.id), 1U);
    EXPECT_FALSE(trace.diagnostics.places(one.id).empty());
    EXPECT_EQ(trace.gpu_ops.size(), one.kept);
    EXPECT_EQ(trace.diagnostics.total(), 1U);
  }
}

TEST(KinetoImport, ReadsMetadataBehindTheEvents) {
  const Trace trace = import_text(R"({"traceEvents": [)" + event(R"("ts":1,"dur":2)") +
                                  R"(], "baseTimeNanoseconds": 1790857026000000000,
      "deviceProperties": [{"id": 0, "name": "NVIDIA H200", "numSms": 132, "computeMajor": 9, "computeMinor": 0, "totalGlobalMem": 150109880320}],
      "cuda_driver_version": 13000})");
  EXPECT_EQ(trace.base_unix_ns, 1790857026000000000);
  ASSERT_EQ(trace.devices.size(), 1U);
  EXPECT_EQ(trace.text(trace.devices.name[0]), "NVIDIA H200");
  EXPECT_EQ(trace.devices.sm_count[0], 132);
  EXPECT_EQ(trace.devices.memory_bytes[0], 150109880320);
  EXPECT_EQ(trace.metadata.at("cuda_driver_version"), "13000");
  EXPECT_EQ(trace.diagnostics.total(), 0U);
}

// As torch.profiler writes with enable_cuda_sync_events: on what a call waits stands in records beside it.
TEST(KinetoImport, CallsNameTheirStreamsAndEvents) {
  const Trace trace = import_text(R"json({"traceEvents": [
    {"ph":"X","cat":"kernel","name":"a","pid":0,"tid":7,"ts":10,"dur":3,"args":{"device":0,"context":1,"stream":7,"correlation":1}},
    {"ph":"X","cat":"kernel","name":"b","pid":0,"tid":20,"ts":20,"dur":3,"args":{"device":0,"context":1,"stream":20,"correlation":4}},
    {"ph":"X","cat":"cuda_runtime","name":"cudaEventRecord","pid":3,"tid":4,"ts":1,"dur":1,"args":{"correlation":2}},
    {"ph":"X","cat":"cuda_runtime","name":"cudaStreamWaitEvent","pid":3,"tid":4,"ts":3,"dur":1,"args":{"correlation":3}},
    {"ph":"X","cat":"cuda_runtime","name":"cudaStreamSynchronize","pid":3,"tid":4,"ts":5,"dur":30,"args":{"correlation":5}},
    {"ph":"X","cat":"cuda_runtime","name":"cudaEventSynchronize","pid":3,"tid":4,"ts":36,"dur":1,"args":{"correlation":6}},
    {"ph":"X","cat":"cuda_runtime","name":"cudaEventRecord","pid":3,"tid":4,"ts":38,"dur":1,"args":{"correlation":7}},
    {"ph":"X","cat":"cuda_sync","name":"Stream Wait Event","pid":0,"tid":20,"ts":3,"dur":1,
      "args":{"cuda_sync_kind":"Stream Wait Event","wait_on_stream":7,"wait_on_cuda_event_record_corr_id":2,
      "wait_on_cuda_event_id":1,"stream":20,"correlation":3,"device":0,"context":1}},
    {"ph":"X","cat":"cuda_sync","name":"Stream Sync","pid":0,"tid":20,"ts":5,"dur":30,
      "args":{"cuda_sync_kind":"Stream Sync","stream":20,"correlation":5,"device":0,"context":1}},
    {"ph":"X","cat":"cuda_sync","name":"Event Sync","pid":0,"tid":-1,"ts":36,"dur":1,
      "args":{"cuda_sync_kind":"Event Sync","wait_on_stream":-1,"wait_on_cuda_event_record_corr_id":-1,
      "wait_on_cuda_event_id":3,"stream":-1,"correlation":6,"device":0,"context":1}},
    {"ph":"X","cat":"cuda_event","name":"cudaEventRecord","pid":0,"tid":20,"ts":38,"dur":0,
      "args":{"event_id":9,"stream":20,"correlation":7,"device":0,"context":1}}
  ]})json");
  EXPECT_EQ(trace.diagnostics.total(), 0U);
  ASSERT_EQ(trace.api_calls.size(), 5U);
  EXPECT_EQ(trace.api_calls.event, (std::vector<uint64_t>{2, 2, 0, 0, 7}));
  std::vector<int64_t> streams;
  for (const StreamId stream : trace.api_calls.stream)
    streams.push_back(stream == kNoRow ? -1 : trace.streams.stream[stream]);
  EXPECT_EQ(streams, (std::vector<int64_t>{7, 20, 20, -1, 20}));
}

TEST(KinetoImport, ReadsEveryKindOfEvent) {
  const Trace trace = import_text(R"json({"traceEvents": [
    {"ph":"X","cat":"Kernel","name":"ncclDevKernel_AllReduce","pid":0,"tid":20,"ts":10,"dur":3,
      "args":{"device":0,"context":1,"stream":20,"correlation":9,"grid":[4,2,1],"block":[128,1,1],
      "registers per thread":96,"shared memory":1024,"est. achieved occupancy %":25,"graph node id":77,
      "Collective name":"allreduce","dtype":"BFloat16","In msg nelems":4096,"Out msg nelems":4096,"Group size":8}},
    {"ph":"X","cat":"gpu_memcpy","name":"Memcpy HtoD (Pageable -> Device)","pid":0,"tid":7,"ts":20,"dur":1,
      "args":{"bytes":65536,"stream":7,"correlation":10}},
    {"ph":"X","cat":"cuda_sync","name":"Stream Sync","pid":0,"tid":7,"ts":21,"dur":1,
      "args":{"stream":7,"device":0,"correlation":11}},
    {"ph":"X","cat":"overhead","name":"Activity Buffer Request","pid":-1,"tid":0,"ts":1,"dur":1},
    {"ph":"C","name":"dram","pid":"GPU 0 Counters","tid":0,"ts":22,"args":{"read":1.5,"write":2}},
    {"ph":"i","cat":"cpu_instant_event","s":"t","name":"[memory]","pid":3,"tid":4,"ts":23,
      "args":{"Total Reserved":100,"Total Allocated":90,"Bytes":-8,"Device Id":0,"Device Type":1,"Addr":140470507275264}},
    {"ph":"X","cat":"python_function","name":"f.py(1): \u00e9","pid":3,"tid":4,"ts":5,"dur":50,
      "args":{"Python id":2,"Python parent id":null}},
    {"ph":"X","cat":"user_annotation","name":"decode","pid":3,"tid":4,"ts":6,"dur":40,"args":{"External id":8}},
    {"ph":"s","id":9,"pid":3,"tid":4,"ts":7,"cat":"ac2g","name":"ac2g"},
    {"name":"thread_name","ph":"M","ts":1,"pid":3,"tid":4,"args":{"name":"main"}}
  ]})json");
  ASSERT_EQ(trace.gpu_ops.size(), 2U);
  EXPECT_EQ(trace.gpu_ops.graph_node[0], 77U);
  const Row config = trace.gpu_ops.config[0];
  EXPECT_EQ(trace.launch_configs.grid_x[config], 4);
  EXPECT_EQ(trace.launch_configs.grid_y[config], 2);
  EXPECT_EQ(trace.launch_configs.block_x[config], 128);
  EXPECT_EQ(trace.launch_configs.registers_per_thread[config], 96);
  EXPECT_FLOAT_EQ(trace.launch_configs.occupancy_frac[config], 0.25F);
  ASSERT_EQ(trace.collectives.size(), 1U);
  EXPECT_EQ(trace.collectives.gpu_op[0], 0U);
  EXPECT_EQ(trace.collectives.group_size[0], 8);
  EXPECT_EQ(trace.text(trace.collectives.dtype[0]), "BFloat16");
  EXPECT_EQ(trace.gpu_ops.bytes[1], 65536);
  EXPECT_EQ(trace.sync_events.size(), 1U);
  ASSERT_EQ(trace.overheads.size(), 1U);
  EXPECT_EQ(trace.overheads.thread[0], kNoRow);
  ASSERT_EQ(trace.counters.size(), 2U);
  EXPECT_EQ(trace.text(trace.counters.name[1]), "dram.write");
  EXPECT_EQ(trace.counters.device[0], 0);
  ASSERT_EQ(trace.memory_events.size(), 1U);
  EXPECT_EQ(trace.memory_events.bytes[0], -8);
  EXPECT_EQ(trace.memory_events.allocated_bytes[0], 90);
  ASSERT_EQ(trace.python_calls.size(), 1U);
  EXPECT_EQ(trace.text(trace.python_calls.name[0]), "f.py(1): \xC3\xA9");
  EXPECT_EQ(trace.text(trace.threads.name[trace.python_calls.thread[0]]), "main");
  EXPECT_EQ(trace.diagnostics.total(), 0U);
}

TEST(KinetoImport, KeysInAnyOrder) {
  const Trace trace = import_text(
      R"([{"args":{"Input Dims":[[2,3],[3,4]],"External id":4},"tid":2,"pid":1,"dur":2.5,"ts":1.25,"name":"aten::mm","cat":"cpu_op","ph":"X"}])");
  ASSERT_EQ(trace.ops.size(), 1U);
  EXPECT_EQ(trace.ops.start_ns[0], 1250);
  EXPECT_EQ(trace.ops.external_id[0], 4U);
  EXPECT_EQ(trace.text(trace.signatures.dims[trace.ops.signature[0]]), "[[2,3],[3,4]]");
}

TEST(KinetoImport, EveryCutOfAFileIsReadable) {
  std::string text = R"({"schemaVersion":1,"traceEvents":[)";
  for (int i = 0; i < 20; ++i) text += (i != 0 ? "," : "") + event("\"ts\":" + std::to_string(10 + i) + ",\"dur\":1");
  text += "]}";
  size_t last = 0;
  for (size_t length = 1; length < text.size(); ++length) {
    const Trace trace = import_text(std::string_view(text).substr(0, length), 128, 2);
    EXPECT_GE(trace.gpu_ops.size(), last);  // more bytes never give less
    last = trace.gpu_ops.size();
    EXPECT_EQ(trace.diagnostics.count(DiagnosticId::kTruncatedFile), 1U) << length;
  }
  EXPECT_EQ(last, 20U);
}

TEST(KinetoImport, CutCompressedFileIsReadable) {
  std::ifstream file(kInputs + "batched.json.gz", std::ios::binary);
  std::string bytes((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  ASSERT_GT(bytes.size(), 100000U);
  bytes.resize(bytes.size() / 2);
  const Trace trace = import_text(bytes);
  EXPECT_GT(trace.ops.size(), 1000U);
  EXPECT_GE(trace.diagnostics.count(DiagnosticId::kTruncatedFile), 1U);
}

TEST(KinetoImport, ReadsZstdAndSeveralGzipMembers) {
  const std::string text = content_of(kInputs + "two_streams.json.gz");
  const std::string whole = fingerprint(import_text(text));
  std::string packed(ZSTD_compressBound(text.size()), '\0');
  packed.resize(ZSTD_compress(packed.data(), packed.size(), text.data(), text.size(), 3));
  EXPECT_EQ(whole, fingerprint(import_text(packed)));
  // Half of its only block gives nothing at all, which is an error and not an empty report.
  const Result<InputFile> cut = InputFile::from_memory(std::string_view(packed).substr(0, packed.size() / 2), "cut");
  ASSERT_FALSE(cut);
  EXPECT_NE(cut.error().what.find("zstd"), std::string::npos) << cut.error().what;
  // gzip files may be concatenated; `cat a.gz b.gz` is one file to every reader of the format.
  const auto gzip = [](std::string_view part) {
    std::string out(part.size() + 1024, '\0');
    z_stream stream{};
    constexpr int kGzipWindow = 15 + 16;
    EXPECT_EQ(deflateInit2(&stream, 6, Z_DEFLATED, kGzipWindow, 8, Z_DEFAULT_STRATEGY), Z_OK);
    stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(part.data()));
    stream.avail_in = static_cast<uInt>(part.size());
    stream.next_out = reinterpret_cast<Bytef*>(out.data());
    stream.avail_out = static_cast<uInt>(out.size());
    EXPECT_EQ(deflate(&stream, Z_FINISH), Z_STREAM_END);
    out.resize(stream.total_out);
    deflateEnd(&stream);
    return out;
  };
  const std::string_view view = text;
  EXPECT_EQ(whole, fingerprint(import_text(gzip(view.substr(0, 1000)) + gzip(view.substr(1000)))));
}

TEST(Sniff, KnowsKinetoFromOtherJson) {
  EXPECT_GT(kineto::sniff(R"({"schemaVersion": 1, "deviceProperties": [)"), 0);
  EXPECT_GT(kineto::sniff(R"([{"ph":"X","ts":1}])"), 0);
  EXPECT_EQ(kineto::sniff(R"({"architectures": ["LlamaForCausalLM"]})"), 0);
  EXPECT_EQ(kineto::sniff("\x89PNG"), 0);
  EXPECT_EQ(kineto::sniff(""), 0);
}

}  // namespace
}  // namespace llmprof
