// The importer of `llmprof run`: sessions written with spool::Writer, read with import_files().
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "capture/spool/writer.h"
#include "import/importer.h"
#include "import/session.h"
#include "import/session_names.h"
#include "temporary_folder.h"
#include "trace/check_trace.h"
#include "trace/trace_file.h"

namespace llmprof {
namespace {

namespace fs = std::filesystem;
using spool::Id;
using spool::Writer;

constexpr int64_t kStart = 1795217989000000000;
constexpr const char* kUuid0 = "GPU-00000000-0000-0000-0000-000000000000";
constexpr const char* kUuid1 = "GPU-11111111-1111-1111-1111-111111111111";

class CaptureTest : public testing::Test {
 protected:
  void SetUp() override {
    fs::create_directory(folder_ / "spool");
    fs::create_directory(folder_ / "samples");
    write_text("session.json", R"({"command": ["python", "serve.py"], "mode": "default", "exit_status": 0,
      "start_unix_ns": 1795217989000000000, "gpus": [{"name": "NVIDIA H200", "sm_count": 132}], "nothing": null})");
  }

  void write_text(const char* name, std::string_view text) const { std::ofstream(folder_ / name) << text; }
  void open(Writer& writer, const std::string& name, std::string_view role) const {
    ASSERT_TRUE(writer.open((folder_ / name).c_str(), role));
  }
  Trace import() const {
    Result<Trace> trace = import_files({folder_.string()});
    EXPECT_TRUE(trace) << trace.error().text();
    if (!trace) return {};
    const uint64_t found = trace->diagnostics.total();
    check_trace(*trace);
    EXPECT_EQ(trace->diagnostics.total(), found) << "left something to repair";
    return std::move(*trace);
  }

  const TemporaryFolder temporary_;
  const fs::path folder_ = temporary_.path();
};

void add_device(Writer& writer, int32_t ordinal, const char* uuid) {
  spool::DeviceDef def;
  def.device = ordinal;
  def.name = writer.text("NVIDIA H200");
  def.sm_count = 100;
  def.compute_major = 9;
  def.compute_minor = 0;
  def.uuid = writer.text(uuid);
  writer.add(def);
}

// A device, a stream of it, a thread of the program and the call with which it launches.
struct OneThread {
  Id stream, thread, launch;
};
OneThread define_one_thread(Writer& writer) {
  add_device(writer, 0, kUuid0);
  return {writer.define(spool::StreamDef{0, 0, 1, 7}), writer.define(spool::ThreadDef{0, 4242, writer.text("python")}),
          writer.define(spool::ApiDef{0, 0, 211, writer.text("cudaLaunchKernel")})};
}

Id kernel(Writer& writer, std::string_view name, Id stream) {
  spool::KernelDef def;
  def.name = writer.text(name);
  def.stream = stream;
  def.grid[0] = 50;
  def.grid[1] = 4;
  def.grid[2] = 1;
  def.block[0] = 128;
  def.block[1] = def.block[2] = 1;
  def.registers_per_thread = 40;
  def.static_shared_bytes = 1024;
  def.dynamic_shared_bytes = 16;
  return writer.define(def);
}

TEST_F(CaptureTest, OneProcessFillsTheTables) {
  Writer writer;
  open(writer, "spool/1-1.spool", "target");
  const auto [stream, thread, launch] = define_one_thread(writer);
  writer.add(spool::LevelChange{kStart + 100, spool::Level::kDefault, writer.text("start")});
  writer.add(spool::ApiCall{launch, thread, kStart + 1000, kStart + 3000, 17, 0});
  writer.add(spool::ApiCall{launch, thread, kStart + 500, kStart + 900, 16, 2});
  writer.add(spool::Kernel{kernel(writer, "_ZN2at6native4fillEv", stream), kStart + 5000, kStart + 7000, 17, 0, 0});
  writer.add(spool::Kernel{kernel(writer, "gemm", stream), 0, 0, 18, 0, 0});
  const Id filled = writer.text("_ZN2at6native4fillEv");
  writer.add(spool::LaunchSite{kStart + 2000, thread, filled, writer.text("libx.so!second"), 17});
  writer.add(spool::LaunchSite{kStart + 1500, thread, filled, writer.text("libx.so!f\n[python]"), 16});
  const Id module = writer.define(spool::ModuleDef{0, writer.text("/nowhere/liby.so"), writer.text("00ff")});
  writer.add(spool::LaunchSite{kStart + 2500, thread, filled, 0, 17, 3, {{module, 0x1f20}, {0, 7}, {0, 8}}});
  writer.add(spool::Memcpy{stream, 1, 1, 3, 1, 4096, kStart + 8000, kStart + 9000, 19, 0});
  writer.add(spool::Memset{stream, 512, kStart + 9500, kStart + 9600, 20, 0});
  writer.add(spool::GraphLaunch{stream, 5, kStart + 9700, kStart + 9800, 21});
  writer.add(spool::Synchronization{3, stream, -1, kStart + 9000, kStart + 9900, 22});
  writer.add(spool::Overhead{writer.text("Buffer Flush"), 0, kStart + 1, kStart + 2});
  writer.add(spool::MemoryEvent{kStart + 400, thread, 0, 3, 0xABC0, 1 << 20, 15});
  writer.add(spool::MemoryEvent{kStart + 401, thread, 0, 2, 0xABD0, -64, 15});
  spool::Range range;
  range.thread = thread;
  range.name = writer.text("decode");
  range.domain = writer.text("vllm");
  range.start_ns = kStart + 300;
  range.end_ns = kStart + 9999;
  range.payload_kind = spool::PayloadKind::kUnsigned;
  range.payload = 12;
  range.handle = 77;
  writer.add(spool::RangeOpen{77, thread, range.name, range.domain, range.start_ns, 0});
  writer.add(spool::RangeOpen{78, thread, writer.text("request"), 0, kStart + 250, 0});
  writer.add(range);
  writer.add(spool::Mark{thread, writer.text("token"), 0, kStart + 9000, spool::PayloadKind::kNone, 0});
  writer.add(spool::RecurringCall{thread, 99, kStart + 1000});
  writer.add(spool::ClockReading{kStart + 10, 5, kStart + 13});
  writer.add(spool::Note{writer.text("cupti-held"), writer.text("nsys"), 1});
  writer.add(spool::Note{writer.text("of-a-later-version"), writer.text("what it says"), 3});
  writer.add(spool::Fact{writer.text("cupti_version"), writer.text("130001")});
  writer.add(spool::Fact{writer.text("mode"), writer.text("something else")});
  writer.add(spool::LevelChange{kStart + 10000, spool::Level::kOff, writer.text("ctl stop")});
  writer.close();

  const Trace trace = import();
  EXPECT_EQ(trace.source.kind, "session");
  EXPECT_EQ(trace.base_unix_ns, kStart);
  EXPECT_EQ(trace.metadata.at("command"), "python serve.py");
  EXPECT_EQ(trace.metadata.at("exit_status"), "0");
  EXPECT_EQ(trace.metadata.at("gpus.0.name"), "NVIDIA H200");
  EXPECT_EQ(trace.metadata.at("mode"), "default");
  EXPECT_EQ(trace.metadata.at("process." + std::to_string(getpid()) + ".mode"), "something else");
  EXPECT_EQ(trace.metadata.at("cupti_version"), "130001");
  EXPECT_EQ(trace.metadata.at("clock_offset_ns"), "3");
  EXPECT_EQ(trace.metadata.at("processes"), "1");
  EXPECT_EQ(trace.metadata.count("nothing"), 0U);

  ASSERT_EQ(trace.devices.size(), 1U);
  EXPECT_EQ(trace.devices.sm_count[0], 100);
  ASSERT_EQ(trace.threads.size(), 1U);
  EXPECT_EQ(trace.threads.process_id[0], getpid());
  EXPECT_EQ(trace.threads.thread_id[0], 4242);
  EXPECT_EQ(trace.text(trace.threads.name[0]), "python");
  ASSERT_EQ(trace.streams.size(), 1U);
  EXPECT_EQ(trace.streams.stream[0], 7);

  ASSERT_EQ(trace.api_calls.size(), 2U);  // in the order of time
  EXPECT_EQ(trace.api_calls.start_ns, (std::vector<int64_t>{500, 1000}));
  EXPECT_EQ(trace.api_calls.dur_ns, (std::vector<int64_t>{400, 2000}));
  EXPECT_EQ(trace.api_calls.correlation[1], 17U);
  EXPECT_EQ(trace.text(trace.api_calls.name[1]), "cudaLaunchKernel");
  EXPECT_EQ(trace.diagnostics.places(DiagnosticId::kRecorderNote).at(0), "of-a-later-version: what it says");
  EXPECT_EQ(trace.diagnostics.places(DiagnosticId::kRecorderNote).at(1), "cudaLaunchKernel returned error 2");

  ASSERT_EQ(trace.gpu_ops.size(), 3U);
  EXPECT_EQ(trace.text(trace.gpu_ops.name[0]), "at::native::fill()");
  EXPECT_EQ(trace.gpu_ops.start_ns[0], 5000);
  EXPECT_EQ(trace.gpu_ops.dur_ns[0], 2000);
  EXPECT_EQ(trace.gpu_ops.correlation[0], 17U);
  EXPECT_EQ(trace.gpu_ops.bytes[0], -1);
  EXPECT_EQ(trace.text(trace.gpu_ops.name[1]), "Memcpy HtoD (Pageable -> Device)");
  EXPECT_EQ(trace.gpu_ops.bytes[1], 4096);
  EXPECT_EQ(trace.gpu_ops.config[1], kNoRow);
  EXPECT_EQ(trace.text(trace.gpu_ops.name[2]), "Memset (Device)");
  EXPECT_EQ(trace.diagnostics.count(DiagnosticId::kZeroTimestamp), 1U);
  ASSERT_EQ(trace.launch_configs.size(), 1U);
  EXPECT_EQ(trace.launch_configs.shared_bytes[0], 1040);
  EXPECT_TRUE(std::isnan(trace.launch_configs.occupancy_frac[0]));

  ASSERT_EQ(trace.launch_sites.size(), 3U);  // in the order of time
  EXPECT_EQ(trace.launch_sites.time_ns, (std::vector<int64_t>{1500, 2000, 2500}));
  EXPECT_EQ(trace.launch_sites.thread[0], 0U);
  EXPECT_EQ(trace.launch_sites.name[0], trace.gpu_ops.name[0]);  // joins the kernel by its readable name
  EXPECT_EQ(trace.launch_sites.correlation, (std::vector<uint64_t>{16, 17, 17}));
  EXPECT_EQ(trace.text(trace.launch_sites.stack[2]), "liby.so!0x1f20\n[unknown]");
  EXPECT_EQ(trace.text(trace.launch_sites.stack[0]), "libx.so!f\n[python]");

  ASSERT_EQ(trace.graph_launches.size(), 1U);
  EXPECT_EQ(trace.graph_launches.graph[0], 5U);
  ASSERT_EQ(trace.sync_events.size(), 1U);
  EXPECT_EQ(trace.text(trace.sync_events.name[0]), "Stream Sync");
  EXPECT_EQ(trace.sync_events.device[0], 0);
  EXPECT_EQ(trace.sync_events.stream[0], 7);
  ASSERT_EQ(trace.overheads.size(), 1U);
  EXPECT_EQ(trace.overheads.thread[0], kNoRow);
  ASSERT_EQ(trace.memory_events.size(), 2U);
  EXPECT_EQ(trace.memory_events.device, (std::vector<int32_t>{0, -1}));

  ASSERT_EQ(trace.annotations.size(), 3U);
  EXPECT_EQ(trace.text(trace.annotations.name[0]), "request");  // never closed: until the end of the process
  EXPECT_GT(trace.annotations.dur_ns[0], 9000);
  EXPECT_EQ(trace.diagnostics.count(DiagnosticId::kUnfinishedRange), 1U);
  EXPECT_EQ(trace.text(trace.annotations.name[1]), "decode");
  EXPECT_EQ(trace.text(trace.annotations.domain[1]), "vllm");
  EXPECT_EQ(trace.annotations.payload[1], 12);
  EXPECT_EQ(trace.annotations.kind[1], AnnotationKind::kNvtx);
  EXPECT_EQ(trace.annotations.dur_ns[2], 0);
  EXPECT_TRUE(std::isnan(trace.annotations.payload[2]));

  ASSERT_EQ(trace.recurring_calls.size(), 1U);
  EXPECT_EQ(trace.recurring_calls.key[0], 99U);
  ASSERT_EQ(trace.recorded.size(), 2U);
  EXPECT_EQ(trace.recorded.start_ns[0], 100);
  EXPECT_EQ(trace.recorded.dur_ns[0], 9900);
  EXPECT_EQ(trace.recorded.level[0], RecordingLevel::kDefault);
  EXPECT_EQ(trace.recorded.level[1], RecordingLevel::kOff);
  EXPECT_EQ(trace.text(trace.recorded.reason[1]), "ctl stop");
  EXPECT_EQ(trace.diagnostics.count(DiagnosticId::kCuptiHeld), 1U);
  EXPECT_EQ(trace.diagnostics.count(DiagnosticId::kUnfinishedSpool), 0U);
}

TEST_F(CaptureTest, ActivitiesThatRunIntoAnUnrecordedWindowAreDroppedAndTheirLaunchesKnown) {
  Writer writer;
  open(writer, "spool/1-1.spool", "target");
  const auto [stream, thread, launch] = define_one_thread(writer);
  writer.add(spool::LevelChange{kStart, spool::Level::kDefault, writer.text("start")});
  for (uint32_t i = 0; i < 4; ++i) {
    writer.add(spool::ApiCall{launch, thread, kStart + 1000 + i * 100, kStart + 1050 + i * 100, i + 1, 0});
    writer.add(
        spool::Kernel{kernel(writer, "gemm", stream), kStart + 2000 + i * 1000, kStart + 2900 + i * 1000, i + 1, 0, 0});
  }
  writer.add(spool::LevelChange{kStart + 4500, spool::Level::kLight, writer.text("gap")});
  writer.add(spool::Mark{thread, writer.text("end"), 0, kStart + 9000, spool::PayloadKind::kNone, 0});
  writer.close();
  const Trace trace = import();
  EXPECT_EQ(trace.gpu_ops.size(), 2U) << "the third runs into the window, the fourth begins in it";
  EXPECT_EQ(trace.diagnostics.count(DiagnosticId::kEdgeActivity), 2U);
  ASSERT_EQ(trace.recorded.size(), 2U);
  EXPECT_EQ(trace.recorded.cut_ns[0], 0);
  EXPECT_EQ(trace.recorded.cut_ns[1], 4500 - 1200) << "launched at 1200 ns";
}

// CUPTI stamps some copies with the time of a flush: they were over when the next one on the stream began.
TEST_F(CaptureTest, AnActivityEndsWhereTheNextOnItsStreamBegins) {
  Writer writer;
  open(writer, "spool/1-1.spool", "target");
  const auto [stream, thread, launch] = define_one_thread(writer);
  writer.add(spool::LevelChange{kStart, spool::Level::kDefault, writer.text("start")});
  const Id gemm = kernel(writer, "gemm", stream);
  const int64_t ends[] = {1500, 4600, 3500};
  for (uint32_t i = 0; i < 3; ++i) {
    writer.add(spool::ApiCall{launch, thread, kStart + 800 + i * 10, kStart + 805 + i * 10, i + 1, 0});
    writer.add(spool::Kernel{gemm, kStart + 1000 + i * 1000, kStart + ends[i], i + 1, 0, 0});
  }
  writer.add(spool::LevelChange{kStart + 4500, spool::Level::kLight, writer.text("gap")});
  writer.add(spool::Mark{thread, writer.text("end"), 0, kStart + 9000, spool::PayloadKind::kNone, 0});
  writer.close();
  const Trace trace = import();
  ASSERT_EQ(trace.gpu_ops.size(), 3U);
  EXPECT_EQ(trace.gpu_ops.dur_ns[0], 500);
  EXPECT_EQ(trace.gpu_ops.dur_ns[1], 1000) << "to the start of the third";
  EXPECT_EQ(trace.gpu_ops.dur_ns[2], 500);
  EXPECT_EQ(trace.recorded.cut_ns[1], 0);
  EXPECT_EQ(trace.diagnostics.count(DiagnosticId::kLateEnd), 1U);
  EXPECT_EQ(trace.diagnostics.count(DiagnosticId::kEdgeActivity), 0U);
}

// In the middle of recorded time too; a copy that really is as long has nothing of its stream within it.
TEST_F(CaptureTest, ACopyEndsWhereTheNextOnItsStreamBegins) {
  Writer writer;
  open(writer, "spool/1-1.spool", "target");
  const auto [stream, thread, launch] = define_one_thread(writer);
  writer.add(spool::LevelChange{kStart, spool::Level::kDefault, writer.text("start")});
  constexpr int64_t kMs = 1'000'000;
  const int64_t starts[] = {1 * kMs, 2 * kMs, 20 * kMs, 40 * kMs}, ends[] = {117 * kMs, 3 * kMs, 39 * kMs, 41 * kMs};
  for (uint32_t i = 0; i < 4; ++i)
    writer.add(spool::Memcpy{stream, 8, 3, 3, 1, 512, kStart + starts[i], kStart + ends[i], i + 1, 0});
  writer.add(spool::Mark{thread, writer.text("end"), 0, kStart + 120 * kMs, spool::PayloadKind::kNone, 0});
  writer.close();
  const Trace trace = import();
  ASSERT_EQ(trace.gpu_ops.size(), 4U);
  EXPECT_EQ(trace.gpu_ops.dur_ns[0], 1 * kMs);
  for (size_t i = 1; i < 4; ++i) EXPECT_EQ(trace.gpu_ops.dur_ns[i], ends[i] - starts[i]);
  EXPECT_EQ(trace.diagnostics.count(DiagnosticId::kLateEnd), 1U);
}

TEST_F(CaptureTest, LibraryCallsAndTheirGraphNodes) {
  Writer writer;
  open(writer, "spool/1-1.spool", "target");
  const Id thread = writer.define(spool::ThreadDef{0, 1, 0});
  spool::LibraryDef gemm;  // X[8 x 4096] * W^T[4096 x 14336] as PyTorch asks for it
  gemm.function = writer.text("cublasGemmEx");
  gemm.m = 14336;
  gemm.n = 8;
  gemm.k = 4096;
  gemm.type_a = 28;  // weights in fp8
  gemm.type_b = 14;
  gemm.type_d = 2;
  gemm.transpose_a = 1;
  gemm.epilogue = writer.text("BIAS");
  const Id column_major = writer.define(gemm);
  gemm.row_major = 1;
  gemm.type_a = gemm.type_b = gemm.type_d = 0;
  gemm.compute_type = 77;
  const Id row_major = writer.define(gemm);
  writer.add(spool::LibraryCall{5, row_major, thread, kStart + 2000, kStart + 2100});
  writer.add(spool::Operands{5, 0xa00, 0xb00, 0xd00});
  writer.add(spool::LibraryCall{4, column_major, thread, kStart + 1000, kStart + 1100});
  writer.add(spool::Operands{4, 0x7f0000000000, 0x7f0000100000, 0x7f0000200000});
  writer.add(spool::Operands{77, 1, 2, 3});   // whose call was lost
  writer.add(spool::GraphNode{300, 200, 0});  // a copy of a copy
  writer.add(spool::GraphNode{100, 0, 5});
  writer.add(spool::GraphNode{200, 100, 0});
  writer.add(spool::GraphNode{101, 0, 0});      // captured outside every call
  writer.add(spool::GraphNode{102, 0, 12345});  // of a call that was lost
  writer.add(spool::GraphNode{400, 401, 0});    // in a circle
  writer.add(spool::GraphNode{401, 400, 0});
  writer.add(spool::GraphNode{150, 0, 4});
  writer.add(spool::NodePlace{101, writer.text("norm (model.py:20)")});
  writer.add(spool::NodePlace{100, writer.text("linear (model.py:10)")});
  writer.add(spool::GraphNode{201, 103, 0});  // of one that was captured outside every call, which is not recorded
  writer.add(spool::NodePlace{103, writer.text("gate (model.py:30)")});
  writer.close();
  const Trace trace = import();
  ASSERT_EQ(trace.library_calls.size(), 2U);
  EXPECT_EQ(trace.library_calls.start_ns, (std::vector<int64_t>{1000, 2000}));
  EXPECT_EQ(trace.library_calls.m, (std::vector<int64_t>{8, 14336}));
  EXPECT_EQ(trace.library_calls.n, (std::vector<int64_t>{14336, 8}));
  EXPECT_EQ(trace.library_calls.k[0], 4096);
  EXPECT_EQ(trace.library_calls.dtype[0], DType::kBf16);
  EXPECT_EQ(trace.library_calls.weight_dtype[0], DType::kFp8);
  EXPECT_EQ(trace.library_calls.out_dtype[0], DType::kFp16);
  EXPECT_EQ(trace.library_calls.dtype[1], DType::kTf32);
  EXPECT_EQ(trace.library_calls.out_dtype[1], DType::kFp32);
  EXPECT_EQ(trace.text(trace.library_calls.epilogue[0]), "BIAS");
  EXPECT_EQ(trace.library_calls.weights, (std::vector<uint64_t>{0x7f0000000000, 0xb00}));
  EXPECT_EQ(trace.library_calls.input, (std::vector<uint64_t>{0x7f0000100000, 0xa00}));
  EXPECT_EQ(trace.library_calls.output, (std::vector<uint64_t>{0x7f0000200000, 0xd00}));
  EXPECT_EQ(trace.graph_nodes.node, (std::vector<uint64_t>{100, 150, 200, 300}));
  EXPECT_EQ(trace.graph_nodes.library_call, (std::vector<LibraryCallId>{1, 0, 1, 1}));
  EXPECT_EQ(trace.node_places.node, (std::vector<uint64_t>{100, 101, 200, 201, 300}));
  std::vector<std::string_view> code;
  for (const StringId stack : trace.node_places.stack) code.push_back(trace.text(stack));
  EXPECT_EQ(code, (std::vector<std::string_view>{"linear (model.py:10)", "norm (model.py:20)", "linear (model.py:10)",
                                                 "gate (model.py:30)", "linear (model.py:10)"}));
}

TEST_F(CaptureTest, CallsHaveTheStreamAndTheEventThatStandBehindThem) {
  Writer writer;
  open(writer, "spool/1-1.spool", "target");
  const auto [stream, thread, launch] = define_one_thread(writer);
  const Id other = writer.define(spool::StreamDef{0, 0, 1, 13});
  const Id records = writer.define(spool::ApiDef{0, 1, 119, writer.text("cuEventRecord")});
  writer.add(spool::ApiCall{records, thread, kStart + 3000, kStart + 3100, 12, 0});
  writer.add(spool::CallTarget{12, other, 0x7f0000001000});
  writer.add(spool::ApiCall{launch, thread, kStart + 1000, kStart + 1100, 10, 0});
  writer.add(spool::CallTarget{12, stream, 5});  // whose call was lost
  writer.add(spool::ApiCall{records, thread, kStart + 2000, kStart + 2100, 11, 0});
  writer.add(spool::CallTarget{11, 4711, 0x7f0000001000});  // a stream whose definition was lost
  writer.add(spool::GraphEdge{102, 101});
  writer.add(spool::GraphEdge{101, 0});
  writer.add(spool::GraphEdge{102, 101});
  writer.close();
  const Trace trace = import();
  ASSERT_EQ(trace.api_calls.size(), 3U);
  EXPECT_EQ(trace.api_calls.event, (std::vector<uint64_t>{0, 0x7f0000001000, 0x7f0000001000}));
  EXPECT_EQ(trace.api_calls.stream[0], kNoRow);
  EXPECT_EQ(trace.api_calls.stream[1], kNoRow);
  ASSERT_NE(trace.api_calls.stream[2], kNoRow);
  EXPECT_EQ(trace.streams.stream[trace.api_calls.stream[2]], 13);
  EXPECT_EQ(trace.graph_edges.node, (std::vector<uint64_t>{101, 102}));
  EXPECT_EQ(trace.graph_edges.after, (std::vector<uint64_t>{0, 101}));
}

TEST_F(CaptureTest, AttentionCallsAreTakenAsTheyAre) {
  Writer writer;
  open(writer, "spool/1-1.spool", "target");
  const Id thread = writer.define(spool::ThreadDef{0, 1, 0});
  spool::LibraryDef def;
  def.function = writer.text("cudnnBackendExecute");
  def.kind = 1;
  def.batch = 2;
  def.m = 128;
  def.n = 513;
  def.k = 64;
  def.heads = 32;
  def.kv_heads = 8;
  def.value_size = 96;
  def.mask = 1;
  def.type_a = 14;
  def.type_b = 28;
  def.type_d = 2;
  writer.add(spool::LibraryCall{1, writer.define(def), thread, kStart + 1000, kStart + 1100});
  def.mask = 77;  // of a later version
  writer.add(spool::LibraryCall{2, writer.define(def), thread, kStart + 2000, kStart + 2100});
  writer.close();
  const Trace trace = import();
  const LibraryCalls& calls = trace.library_calls;
  ASSERT_EQ(calls.size(), 2U);
  EXPECT_EQ(calls.kind[0], WorkKind::kAttention);
  EXPECT_EQ(calls.batch[0], 2);
  EXPECT_EQ(calls.m[0], 128);
  EXPECT_EQ(calls.n[0], 513);
  EXPECT_EQ(calls.k[0], 64);
  EXPECT_EQ(calls.heads[0], 32);
  EXPECT_EQ(calls.kv_heads[0], 8);
  EXPECT_EQ(calls.value_size[0], 96);
  EXPECT_EQ(calls.mask, (std::vector<AttentionMask>{AttentionMask::kCausal, AttentionMask::kUnknown}));
  EXPECT_EQ(calls.dtype[0], DType::kBf16);
  EXPECT_EQ(calls.weight_dtype[0], DType::kFp8);
  EXPECT_EQ(calls.out_dtype[0], DType::kFp16);
}

// Two ranks that both call their GPU 0, and samplers that see three GPUs.
TEST_F(CaptureTest, NamesOfTorchAreOperatorsAndPythonCalls) {
  Writer writer;
  open(writer, "spool/1-1.spool", "target");
  const Id thread = writer.define(spool::ThreadDef{0, 4242, writer.text("python")});
  writer.add(spool::LevelChange{kStart, spool::Level::kDefault, writer.text("start")});
  int64_t at = kStart + 100;
  for (const char* const text : {"[python] llama/modeling_llama.py(241): LlamaAttention.forward", "[module] LlamaMLP",
                                 "aten::mm, sizes = [[1, 8], [8, 4]]", "aten::add", "decode_step"}) {
    spool::Range range;
    range.thread = thread;
    range.name = writer.text(text);
    range.start_ns = at;
    range.end_ns = at + 50;
    writer.add(range);
    at += 100;
  }
  writer.close();

  const Trace trace = import();
  ASSERT_EQ(trace.python_calls.size(), 2U);
  EXPECT_EQ(trace.text(trace.python_calls.name[0]), "llama/modeling_llama.py(241): LlamaAttention.forward");
  EXPECT_EQ(trace.text(trace.python_calls.name[1]), "nn.Module: LlamaMLP");
  ASSERT_EQ(trace.ops.size(), 2U);
  EXPECT_EQ(trace.text(trace.ops.name[0]), "aten::mm");
  EXPECT_EQ(trace.text(trace.signatures.dims[trace.ops.signature[0]]), "[[1, 8], [8, 4]]");
  EXPECT_EQ(trace.text(trace.ops.name[1]), "aten::add");
  ASSERT_EQ(trace.annotations.size(), 1U);
  EXPECT_EQ(trace.text(trace.annotations.name[0]), "decode_step");
}

TEST_F(CaptureTest, SeveralProcessesAndSamplers) {
  const char* uuids[] = {kUuid0, kUuid1};
  for (int rank = 0; rank < 2; ++rank) {
    Writer writer;
    open(writer, "spool/" + std::to_string(rank) + "-1.spool", "target");
    writer.text(rank == 0 ? "this shifts" : "the ids");
    add_device(writer, 0, uuids[rank]);
    const Id stream = writer.define(spool::StreamDef{0, 0, 1, 7});
    const Id thread = writer.define(spool::ThreadDef{0, 100 + rank, writer.text("rank")});
    const Id api = writer.define(spool::ApiDef{0, 1, 1, writer.text("cuLaunchKernel")});
    spool::LibraryDef def;
    def.m = rank;
    def.function = writer.text("cublasSgemm_v2");
    writer.add(spool::LibraryCall{1, writer.define(def), thread, kStart + rank, kStart + rank + 5});
    writer.add(spool::GraphNode{9, 0, 1});
    writer.add(spool::ApiCall{api, thread, kStart + rank, kStart + 10, 33, 0});
    writer.add(spool::LaunchSite{kStart + rank, thread, writer.text(rank == 0 ? "first" : "second"),
                                 writer.text(rank == 0 ? "a!a" : "b!b"), 33});
    writer.add(spool::Kernel{kernel(writer, rank == 0 ? "first" : "second", stream), kStart + 20 + rank, kStart + 30,
                             33, 9, 1});
    writer.close();
  }
  {
    Writer writer;
    open(writer, "samples/nvml.spool", "nvml");
    spool::NvmlSample sample;
    for (const char* uuid : {"GPU-other", kUuid1}) {
      sample.gpu_uuid = writer.text(uuid);
      sample.time_ns = kStart + 1000;
      sample.power_w = 512.25F;
      sample.energy_j = 123456.789;
      writer.add(sample);
    }
    writer.close();
    open(writer, "samples/counters-1.spool", "counters");
    spool::MetricSetDef set;
    set.count = 3;
    set.metrics[0] = writer.text("sm_active_frac");
    set.metrics[1] = writer.text("no_such_metric");
    set.metrics[2] = writer.text("dram_read_frac");
    set.source = writer.text("gpm");
    set.gpu_uuid = writer.text(kUuid1);
    spool::GpuSample counters;
    counters.set = writer.define(set);
    counters.start_ns = kStart + 100;
    counters.end_ns = kStart + 200;
    counters.values[0] = 0.5F;
    counters.values[1] = 9;
    counters.values[2] = 0.25F;
    writer.add(counters);
    writer.flush();
    writer.abandon();  // killed
  }
  const Trace trace = import();
  EXPECT_EQ(trace.metadata.at("processes"), "2");
  EXPECT_EQ(trace.devices.device, (std::vector<int32_t>{0, 1}));
  EXPECT_EQ(trace.streams.device, (std::vector<int32_t>{0, 1}));
  ASSERT_EQ(trace.gpu_ops.size(), 2U);
  ASSERT_EQ(trace.api_calls.size(), 2U);
  for (Row row = 0; row < 2; ++row) {
    EXPECT_EQ(trace.text(trace.gpu_ops.name[row]), row == 0 ? "first" : "second");
    EXPECT_EQ(trace.device_of(row), static_cast<int32_t>(row));
    EXPECT_EQ(trace.gpu_ops.correlation[row], trace.api_calls.correlation[row]);
    EXPECT_EQ(trace.threads.thread_id[trace.api_calls.thread[row]], 100 + row);
    EXPECT_EQ(trace.launch_sites.correlation[row], trace.api_calls.correlation[row]);
    EXPECT_EQ(trace.launch_sites.thread[row], trace.api_calls.thread[row]);
    EXPECT_EQ(trace.launch_sites.name[row], trace.gpu_ops.name[row]);
    EXPECT_EQ(trace.text(trace.launch_sites.stack[row]), row == 0 ? "a!a" : "b!b");
    EXPECT_EQ(trace.gpu_ops.graph_node[row], trace.graph_nodes.node[row]);
    EXPECT_EQ(trace.library_calls.n[trace.graph_nodes.library_call[row]], row);
    EXPECT_EQ(trace.text(trace.library_calls.name[row]), "cublasSgemm_v2");
  }
  EXPECT_NE(trace.gpu_ops.correlation[0], trace.gpu_ops.correlation[1]);
  EXPECT_NE(trace.gpu_ops.graph_node[0], trace.gpu_ops.graph_node[1]);
  EXPECT_EQ(trace.nvml_samples.device, (std::vector<int32_t>{-1, 1}));
  EXPECT_EQ(trace.nvml_samples.energy_j[1], 123456.789);
  EXPECT_EQ(trace.nvml_samples.power_w[1], 512.25F);
  ASSERT_EQ(trace.gpu_samples.size(), 1U);
  EXPECT_EQ(trace.gpu_samples.device[0], 1);
  EXPECT_EQ(trace.gpu_samples.source[0], CounterSource::kGpm);
  EXPECT_EQ(trace.gpu_samples.dur_ns[0], 100);
  EXPECT_EQ(trace.gpu_samples.sm_active_frac[0], 0.5F);
  EXPECT_EQ(trace.gpu_samples.dram_read_frac[0], 0.25F);
  EXPECT_TRUE(std::isnan(trace.gpu_samples.dram_write_frac[0]));
  EXPECT_EQ(trace.diagnostics.count(DiagnosticId::kUnknownRecord), 1U);
  EXPECT_EQ(trace.diagnostics.count(DiagnosticId::kUnfinishedSpool), 1U);

  // Everything survives a trace file.
  const Result<std::string> packed = pack_trace(trace);
  ASSERT_TRUE(packed);
  Trace back;
  ASSERT_TRUE(read_trace(*packed, back));
  EXPECT_EQ(back.gpu_samples.sm_active_frac, trace.gpu_samples.sm_active_frac);
  EXPECT_EQ(back.graph_nodes.library_call, trace.graph_nodes.library_call);
  EXPECT_EQ(back.launch_sites.correlation, trace.launch_sites.correlation);
}

TEST_F(CaptureTest, CorrelationsGoOnBehindTheirWrap) {
  Writer writer;
  open(writer, "spool/1-1.spool", "target");
  const Id stream = writer.define(spool::StreamDef{});
  const Id def = kernel(writer, "k", stream);
  const uint32_t correlations[] = {0xFFFFFFF0U, 0xFFFFFFFFU, 5, 0xFFFFFFFEU, 6, 0};
  int64_t time_ns = kStart;
  for (const uint32_t correlation : correlations)
    writer.add(spool::Kernel{def, time_ns += 10, time_ns + 5, correlation, 0, 0});
  writer.close();
  EXPECT_EQ(import().gpu_ops.correlation,
            (std::vector<uint64_t>{0xFFFFFFF0U, 0xFFFFFFFFU, 0x100000005U, 0xFFFFFFFEU, 0x100000006U, 0}));
}

TEST_F(CaptureTest, DefinitionsThatWereLost) {
  Writer writer;
  open(writer, "spool/1-1.spool", "target");
  const Id stream = writer.define(spool::StreamDef{0, 0, 1, 7});
  const Id thread = writer.define(spool::ThreadDef{0, 1, 0});
  const Id def = kernel(writer, "k", stream);
  writer.flush();
  writer.add(spool::Kernel{def, kStart + 10, kStart + 20, 3, 0, 0});
  writer.add(spool::ApiCall{77, thread, kStart + 1, kStart + 2, 3, 0});
  writer.add(spool::LaunchSite{kStart + 3, 88, 77, writer.text("libx.so!f"), 4});
  writer.add(spool::LaunchSite{kStart + 4, 88, 77, 99, 5});
  writer.add(spool::LaunchSite{kStart + 5, 88, 77, 0, 6, 3, {{5000, 1}, {0, 2}, {77, 3}}});
  writer.add(spool::Range{0, thread, 12, 0, kStart + 1, kStart + 2, spool::PayloadKind::kNone, 0, 0});
  writer.close();
  // The first block, with all the definitions, is damaged.
  const fs::path file = folder_ / "spool/1-1.spool";
  std::fstream io(file, std::ios::in | std::ios::out | std::ios::binary);
  io.seekp(64 + 40);
  io.put('\x55');
  io.close();
  const Trace trace = import();
  ASSERT_EQ(trace.gpu_ops.size(), 1U);
  EXPECT_EQ(trace.text(trace.gpu_ops.name[0]), "[name lost]");
  ASSERT_EQ(trace.api_calls.size(), 1U);
  EXPECT_EQ(trace.threads.thread_id[trace.api_calls.thread[0]], -1);
  EXPECT_EQ(trace.annotations.size(), 1U);
  ASSERT_EQ(trace.launch_sites.size(), 2U);  // not the one whose text was lost
  EXPECT_EQ(trace.text(trace.launch_sites.stack[1]), "[unknown]");
  EXPECT_EQ(trace.text(trace.launch_sites.name[0]), "[name lost]");
  EXPECT_EQ(trace.threads.thread_id[trace.launch_sites.thread[0]], -1);
  EXPECT_EQ(trace.diagnostics.count(DiagnosticId::kDamagedSpoolBlock), 1U);
}

TEST_F(CaptureTest, OneSpoolByItselfAndFoldersThatAreNoSession) {
  {
    Writer writer;
    open(writer, "spool/1-1.spool", "target");
    const Id stream = writer.define(spool::StreamDef{});
    writer.add(spool::Kernel{kernel(writer, "k", stream), kStart + 10, kStart + 20, 3, 0, 0});
  }
  const std::string spool = (folder_ / "spool/1-1.spool").string();
  const Result<Trace> one = import_files({spool});
  ASSERT_TRUE(one) << one.error().text();
  EXPECT_EQ(one->source.kind, "session");
  EXPECT_EQ(one->gpu_ops.size(), 1U);
  EXPECT_NE(one->base_unix_ns, 0);

  EXPECT_NE(import_files({(folder_ / "samples").string()}).error().text().find("found a directory"), std::string::npos);

  // A spool beside the good one that is none.
  write_text("spool/2-1.spool", "not a spool");
  write_text("spool/3-1.spool", "");
  EXPECT_EQ(import().gpu_ops.size(), 1U);
  EXPECT_EQ(import().diagnostics.count(DiagnosticId::kDamagedSpoolBlock), 2U);
  fs::remove(spool);
  const Result<Trace> none = import_files({folder_.string()});
  ASSERT_FALSE(none);
  EXPECT_NE(none.error().text().find("readable spool"), std::string::npos);
  fs::remove_all(folder_ / "spool");
  EXPECT_NE(import_files({folder_.string()}).error().text().find("nothing was recorded"), std::string::npos);

  write_text("later.spool", std::string("LLSPOOL\n") + "\x02" + std::string(80, '\0'));
  EXPECT_NE(import_files({(folder_ / "later.spool").string()}).error().text().find("another version"),
            std::string::npos);
}

TEST_F(CaptureTest, DamagedSessionFacts) {
  {
    Writer writer;
    open(writer, "spool/1-1.spool", "target");
    writer.add(spool::RecurringCall{0, 1, kStart});
  }
  for (const char* text : {"", "[1, 2]", "{\"command\": ", "{\"start_unix_ns\": -5, \"mode\": [[[[[[[[1]]]]]]]]}"}) {
    write_text("session.json", text);
    const Trace trace = import();
    EXPECT_EQ(trace.recurring_calls.size(), 1U);
    EXPECT_GT(trace.base_unix_ns, 0) << text;
  }
}

// Files that may not be read, made so that they hold for the superuser too.
class UnreadableCaptureTest : public CaptureTest {
 protected:
  void SetUp() override {
    CaptureTest::SetUp();
    add_spool("spool/1-1.spool");
  }
  void add_spool(const std::string& name) {
    Writer writer;
    open(writer, name, "target");
    writer.add(spool::RecurringCall{0, 1, kStart});
  }
  // What the report says, once; nothing else is wrong.
  std::string unreadable() const {
    const Trace trace = import();
    EXPECT_EQ(trace.recurring_calls.size(), 1U);
    EXPECT_EQ(trace.diagnostics.count(DiagnosticId::kUnreadableFile), 1U);
    EXPECT_EQ(trace.diagnostics.count(DiagnosticId::kBadMetadata), 0U);
    EXPECT_EQ(trace.diagnostics.count(DiagnosticId::kDamagedSpoolBlock), 0U);
    const std::vector<std::string>& places = trace.diagnostics.places(DiagnosticId::kUnreadableFile);
    return places.empty() ? "" : places.front();
  }
  void replace_by_link(const char* name, const char* target) const {
    fs::remove_all(folder_ / name);
    fs::create_symlink(target, folder_ / name);
  }
};

TEST_F(UnreadableCaptureTest, SessionFactsSayWhy) {
  replace_by_link("session.json", "nowhere.json");
  EXPECT_EQ(unreadable(),
            "session.json cannot be read: No such file or directory; it is a link that leads nowhere; copy the session "
            "folder once more, links as files: cp -rL");
  replace_by_link("session.json", "session.json");
  EXPECT_EQ(unreadable().substr(0, 65), "session.json cannot be read: Too many levels of symbolic links; i");
  fs::remove(folder_ / "session.json");
  EXPECT_EQ(import().diagnostics.count(DiagnosticId::kUnreadableFile), 0U) << "absent is not unreadable";
  fs::create_directory(folder_ / "session.json");
  EXPECT_EQ(unreadable(),
            "session.json cannot be read: Is a directory; something else has its name; copy the session folder once "
            "more");
}

TEST_F(UnreadableCaptureTest, SpoolsSayWhy) {
  replace_by_link("spool/2-1.spool", "../gone/2-1.spool");
  EXPECT_EQ(unreadable().substr(0, 64), "spool/2-1.spool cannot be read: No such file or directory; it is");
  replace_by_link("spool/2-1.spool", "1-1.spool");  // a link that leads somewhere is as good as a file
  EXPECT_EQ(import().recurring_calls.size(), 2U);
  fs::remove(folder_ / "spool/2-1.spool");
  replace_by_link("samples", "samples");
  EXPECT_EQ(unreadable().substr(0, 59), "samples cannot be read: Too many levels of symbolic links; ");

  // None that can be read.
  replace_by_link("spool/1-1.spool", "gone.spool");
  const Result<Trace> none = import_files({folder_.string()});
  ASSERT_FALSE(none);
  EXPECT_EQ(none.error().where, (folder_ / "spool/1-1.spool").string());
  EXPECT_NE(none.error().text().find("No such file or directory; it is a link"), std::string::npos)
      << none.error().text();
}

TEST_F(UnreadableCaptureTest, AFolderThatCannotBeListedIsAnError) {
  // With and without a session.json beside it that says that this is a session.
  replace_by_link("spool", "spool");
  for (int round = 0; round < 2; ++round) {
    const Result<Trace> trace = import_files({folder_.string()});
    ASSERT_FALSE(trace);
    EXPECT_EQ(trace.error().what, "cannot be read: Too many levels of symbolic links");
    EXPECT_EQ(trace.error().where, (folder_ / "spool").string());
    EXPECT_FALSE(trace.error().advice.empty());
    fs::remove(folder_ / "session.json");
  }
}

// The superuser may read everything: what comes in its life is done as somebody else, to whom the folder is given.
class AsAnybody {
 public:
  explicit AsAnybody(const fs::path& folder) : before_(geteuid()) {
    if (before_ != 0) return;
    constexpr uid_t kNobody = 65534;
    EXPECT_EQ(chown(folder.c_str(), kNobody, static_cast<gid_t>(-1)), 0);
    for (const fs::directory_entry& entry : fs::recursive_directory_iterator(folder))
      EXPECT_EQ(lchown(entry.path().c_str(), kNobody, static_cast<gid_t>(-1)), 0);
    EXPECT_EQ(seteuid(kNobody), 0);
  }
  ~AsAnybody() { EXPECT_EQ(seteuid(before_), 0); }
  AsAnybody(const AsAnybody&) = delete;
  AsAnybody& operator=(const AsAnybody&) = delete;

 private:
  uid_t before_;
};

TEST_F(UnreadableCaptureTest, WithoutPermission) {
  const AsAnybody anybody(folder_);
  const std::string advice =
      "cannot be read: Permission denied; analyze as the user who recorded, or make the session yours: sudo chown "
      "-R $(id -u) " +
      folder_.string();
  const auto forbidden = fs::perms::none;
  fs::permissions(folder_ / "session.json", forbidden);
  EXPECT_EQ(unreadable(), "session.json " + advice);
  fs::permissions(folder_ / "session.json", fs::perms::owner_all);
  add_spool("spool/2-1.spool");
  fs::permissions(folder_ / "spool/2-1.spool", forbidden);
  EXPECT_EQ(unreadable(), "spool/2-1.spool " + advice);
  for (const fs::path& folder : {folder_ / "spool", folder_}) {
    fs::permissions(folder, forbidden);
    const Result<Trace> trace = import_files({folder_.string()});
    fs::permissions(folder, fs::perms::owner_all);
    ASSERT_FALSE(trace);
    EXPECT_EQ(trace.error().what, "cannot be read: Permission denied");
    EXPECT_EQ(trace.error().where, (folder_ / "spool").string());
  }
}

TEST_F(CaptureTest, SessionFactsThatAreNoneSayWhatTheyAre) {
  {
    Writer writer;
    open(writer, "spool/1-1.spool", "target");
    writer.add(spool::RecurringCall{0, 1, kStart});
  }
  write_text("session.json", "");
  EXPECT_EQ(import().diagnostics.places(DiagnosticId::kBadMetadata),
            std::vector<std::string>{"session.json: the file is empty"});
}

TEST(CaptureNames, NumbersOfTheLibraries) {
  EXPECT_EQ(session_importer::dtype_of_cuda(29), DType::kFp8);
  EXPECT_EQ(session_importer::dtype_of_cuda(33), DType::kFp4);
  EXPECT_EQ(session_importer::dtype_of_cuda(-1), DType::kUnknown);
  EXPECT_EQ(session_importer::dtype_of_cuda(1000), DType::kUnknown);
  EXPECT_EQ(session_importer::operand_dtype(0, 68), DType::kFp32);
  EXPECT_EQ(session_importer::operand_dtype(2, 77), DType::kFp16);
  spool::Memcpy copy;
  copy.copy_kind = 8;
  copy.source_kind = copy.dest_kind = 3;
  EXPECT_EQ(session_importer::memcpy_name(copy), "Memcpy DtoD (Device -> Device)");
  copy.copy_kind = 99;
  copy.source_kind = 200;
  EXPECT_EQ(session_importer::memcpy_name(copy), "Memcpy Unknown (Unknown -> Device)");
  EXPECT_EQ(session_importer::sync_name(250), "Unknown");
  EXPECT_EQ(session_importer::demangled("_Znonsense"), "_Znonsense");
  EXPECT_EQ(session_importer::demangled("cutlass_80_kernel"), "cutlass_80_kernel");
}

}  // namespace
}  // namespace llmprof
