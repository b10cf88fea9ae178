// Exports of Nsight Systems: databases are made here, from the documented tables, and read from memory or from a file.
#include <gtest/gtest.h>
#include <sqlite3.h>
#include <sys/stat.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "import/nsys.h"
#include "temporary_folder.h"

namespace llmprof {
namespace {

constexpr int64_t kPid = 4242;
constexpr int64_t kProcess = int64_t{1} << 48 | kPid << 24;
constexpr int64_t kThread = kProcess | 4243;

// The bytes of the file that the statements make.
std::string database(const std::string& statements) {
  sqlite3* db = nullptr;
  EXPECT_EQ(sqlite3_open(":memory:", &db), SQLITE_OK);
  char* error = nullptr;
  EXPECT_EQ(sqlite3_exec(db, statements.c_str(), nullptr, nullptr, &error), SQLITE_OK)
      << (error != nullptr ? error : "");
  sqlite3_free(error);
  sqlite3_int64 size = 0;
  unsigned char* bytes = sqlite3_serialize(db, "main", &size, 0);
  std::string out(reinterpret_cast<const char*>(bytes), static_cast<size_t>(size));
  sqlite3_free(bytes);
  sqlite3_close(db);
  return out;
}

Status read_into(const std::string& bytes, Trace& trace, int64_t part_rows = nsys::kPartRows) {
  Result<InputFile> input = InputFile::from_memory(bytes, "no/such/file.sqlite");
  if (!input) return tl::unexpected<Error>(input.error());
  return nsys::import_in_parts(*input, trace, part_rows);
}

Trace read_nsys(const std::string& statements, int64_t part_rows = nsys::kPartRows) {
  Trace trace;
  const Status status = read_into(database(statements), trace, part_rows);
  EXPECT_TRUE(status) << status.error().text();
  finish_import(trace);
  return trace;
}

std::string error_of(const std::string& bytes) {
  Trace trace;
  const Status status = read_into(bytes, trace);
  return status ? "" : status.error().text();
}

const std::string kTexts =
    "CREATE TABLE StringIds (id INTEGER PRIMARY KEY, value TEXT);"
    "INSERT INTO StringIds VALUES (1, 'cudaLaunchKernel_v7000'), (2, 'void gemm<float>(int)'), (3, 'gemm'), "
    "(4, 'cudaMemcpyAsync_v3020'), (5, 'cuMemAlloc_v2'), (6, 'decode'), (7, 'worker');";
const std::string kCalls =
    "CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (start INTEGER, \"end\" INTEGER, eventClass INTEGER, globalTid INTEGER, "
    "correlationId INTEGER, nameId INTEGER, returnValue INTEGER);";
const std::string kKernels =
    "CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INTEGER, \"end\" INTEGER, deviceId INTEGER, contextId INTEGER, "
    "streamId INTEGER, correlationId INTEGER, globalPid INTEGER, demangledName INTEGER, shortName INTEGER, "
    "registersPerThread INTEGER, gridX INTEGER, gridY INTEGER, gridZ INTEGER, blockX INTEGER, blockY INTEGER, blockZ "
    "INTEGER, staticSharedMemory INTEGER, dynamicSharedMemory INTEGER, graphNodeId INTEGER);";

std::string call(int64_t start, int64_t correlation, int64_t thread = kThread, int name = 1, int driver = 0) {
  return "INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (" + std::to_string(start) + "," + std::to_string(start + 5) +
         "," + std::to_string(driver) + "," + std::to_string(thread) + "," + std::to_string(correlation) + "," +
         std::to_string(name) + ", 0);";
}
std::string kernel(int64_t start, int64_t correlation, int64_t process = kProcess, int64_t device = 0,
                   const char* node = "NULL") {
  return "INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (" + std::to_string(start) + "," + std::to_string(start + 100) +
         "," + std::to_string(device) + ", 1, 7," + std::to_string(correlation) + "," + std::to_string(process) +
         ", 2, 3, 32, 8, 2, 1, 128, 1, 1, 100, 24," + node + ");";
}

TEST(Nsys, KernelsKeepWhatTheirTableHas) {
  const Trace trace = read_nsys(kTexts + kCalls + kKernels + call(10, 99) + kernel(20, 99, kProcess, 0, "21474836483"));
  ASSERT_EQ(trace.gpu_ops.size(), 1u);
  EXPECT_EQ(trace.gpu_ops.start_ns[0], 20);
  EXPECT_EQ(trace.gpu_ops.dur_ns[0], 100);
  EXPECT_EQ(trace.text(trace.gpu_ops.name[0]), "void gemm<float>(int)");
  EXPECT_EQ(trace.gpu_ops.correlation[0], 99u);
  EXPECT_EQ(trace.gpu_ops.graph_node[0], 21474836483u);
  const LaunchConfigs::Values config = trace.launch_configs.row(trace.gpu_ops.config[0]);
  EXPECT_EQ(config.grid_x, 8);
  EXPECT_EQ(config.grid_y, 2);
  EXPECT_EQ(config.block_x, 128);
  EXPECT_EQ(config.registers_per_thread, 32);
  EXPECT_EQ(config.shared_bytes, 124);
  EXPECT_TRUE(std::isnan(config.occupancy_frac));
  EXPECT_EQ(trace.streams.context[trace.gpu_ops.stream[0]], 1);
  EXPECT_EQ(trace.streams.stream[trace.gpu_ops.stream[0]], 7);
  ASSERT_EQ(trace.api_calls.size(), 1u);
  EXPECT_EQ(trace.text(trace.api_calls.name[0]), "cudaLaunchKernel");
  EXPECT_EQ(trace.threads.process_id[trace.api_calls.thread[0]], kPid);
  EXPECT_EQ(trace.threads.thread_id[trace.api_calls.thread[0]], 4243);
  EXPECT_EQ(trace.diagnostics.total(), 0u);
}

// However many runs in order the table consists of; of equal times the row that comes first.
TEST(Nsys, KernelsOutOfOrderAreSorted) {
  for (const int64_t run_rows : {1, 2, 5, 30, 60}) {
    constexpr int64_t kRows = 60;
    std::string statements = kTexts + kKernels;
    std::vector<std::pair<int64_t, uint64_t>> expected;  // start, correlation
    for (int64_t row = 0; row < kRows; ++row) {
      // Later runs begin earlier, and every second one repeats times of the one before.
      const int64_t run = row / run_rows, start = 10'000 + (row % run_rows) * 200 - run / 2 * 50;
      statements += kernel(start, row + 1);
      expected.emplace_back(start, static_cast<uint64_t>(row + 1));
    }
    std::sort(expected.begin(), expected.end());
    const Trace trace = read_nsys(statements, 7);
    ASSERT_EQ(trace.gpu_ops.size(), expected.size());
    for (size_t i = 0; i < expected.size(); ++i) {
      EXPECT_EQ(trace.gpu_ops.start_ns[i], expected[i].first) << run_rows;
      EXPECT_EQ(trace.gpu_ops.correlation[i], expected[i].second) << run_rows;
    }
    EXPECT_EQ(trace.diagnostics.count(DiagnosticId::kUnsortedEvents), 0u);
  }
}

TEST(Nsys, ColumnsAreFoundByNameAndMayLack) {
  const Trace trace = read_nsys(
      kTexts +
      "CREATE TABLE cupti_activity_kind_kernel (shortName INTEGER, \"End\" INTEGER, START INTEGER, unheard_of TEXT);"
      "INSERT INTO cupti_activity_kind_kernel VALUES (3, 9, 4, 'x');");
  ASSERT_EQ(trace.gpu_ops.size(), 1u);
  EXPECT_EQ(trace.gpu_ops.dur_ns[0], 5);
  EXPECT_EQ(trace.text(trace.gpu_ops.name[0]), "gemm");
  EXPECT_EQ(trace.launch_configs.grid_x[trace.gpu_ops.config[0]], -1);
  EXPECT_EQ(trace.launch_configs.shared_bytes[trace.gpu_ops.config[0]], -1);
  EXPECT_EQ(trace.gpu_ops.correlation[0], 0u);
}

TEST(Nsys, KernelsWithoutAProcessBelongToTheOnlyOne) {
  const Trace trace = read_nsys(kTexts + kCalls + call(10, 5) +
                                "CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INTEGER, \"end\" INTEGER, "
                                "correlationId INTEGER, mangledName INTEGER);"
                                "INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (20, 30, 5, 3);"
                                "CREATE TABLE PROCESSES (globalPid INTEGER, pid INTEGER, name TEXT);"
                                "INSERT INTO PROCESSES VALUES (0, 4242, 'python3'), (0, 1, 'init');");
  ASSERT_EQ(trace.gpu_ops.size(), 1u);
  EXPECT_EQ(trace.text(trace.gpu_ops.name[0]), "gemm");
  EXPECT_EQ(trace.gpu_ops.correlation[0], trace.api_calls.correlation[0]);
  EXPECT_EQ(trace.metadata.at("processes"), "1");
  EXPECT_EQ(trace.metadata.at("process.4242.name"), "python3");
  EXPECT_EQ(trace.metadata.count("process.1.name"), 0u);
}

// A "_v2" is part of a name, a version of CUDA is not.
TEST(Nsys, NamesOfCallsLoseTheVersion) {
  const Trace trace =
      read_nsys(kTexts + kCalls + kKernels + kernel(0, 1) + call(1, 1, kThread, 5, 1) + call(10, 2, kThread, 4));
  ASSERT_EQ(trace.api_calls.size(), 2u);
  EXPECT_EQ(trace.text(trace.api_calls.name[0]), "cuMemAlloc_v2");
  EXPECT_EQ(trace.api_calls.layer[0], ApiLayer::kDriver);
  EXPECT_EQ(trace.text(trace.api_calls.name[1]), "cudaMemcpyAsync");
  EXPECT_EQ(trace.api_calls.layer[1], ApiLayer::kRuntime);
}

// Both processes call the same things the same: correlation 5, device 0, context 1, stream 7, node 3.
TEST(Nsys, ProcessesAreKeptApart) {
  constexpr int64_t kOther = int64_t{1} << 48 | (kPid + 1) << 24;
  const Trace trace = read_nsys(
      kTexts + kCalls + kKernels +
      "CREATE TABLE TARGET_INFO_CUDA_DEVICE (gpuId INTEGER, cudaId INTEGER, pid INTEGER);"
      "INSERT INTO TARGET_INFO_CUDA_DEVICE VALUES (4, 0, 4242), (6, 0, 4243);"
      "CREATE TABLE TARGET_INFO_GPU (id INTEGER, name TEXT, uuid TEXT, maxWarpsPerSm INTEGER, threadsPerWarp INTEGER);"
      "INSERT INTO TARGET_INFO_GPU VALUES (4, 'A', 'aa', 64, 32), (5, 'unused', '', 64, 32), (6, 'B', 'GPU-bb', 64, "
      "32);" +
      call(1, 5) + call(2, 5, kOther | 7) + kernel(10, 5, kProcess, 0, "3") + kernel(11, 5, kOther, 0, "3"));
  ASSERT_EQ(trace.gpu_ops.size(), 2u);
  EXPECT_EQ(trace.gpu_ops.correlation[0], trace.api_calls.correlation[0]);
  EXPECT_EQ(trace.gpu_ops.correlation[1], trace.api_calls.correlation[1]);
  EXPECT_EQ(trace.gpu_ops.correlation[0], 5u);
  EXPECT_NE(trace.gpu_ops.correlation[1], 5u);
  EXPECT_NE(trace.gpu_ops.graph_node[0], trace.gpu_ops.graph_node[1]);
  EXPECT_NE(trace.gpu_ops.stream[0], trace.gpu_ops.stream[1]);
  EXPECT_EQ(trace.streams.context[trace.gpu_ops.stream[1]], 1);
  EXPECT_EQ(trace.device_of(GpuOpId(Row{0})), 0);
  EXPECT_EQ(trace.device_of(GpuOpId(Row{1})), 1);
  ASSERT_EQ(trace.devices.size(), 2u);
  EXPECT_EQ(trace.text(trace.devices.name[0]), "A");
  EXPECT_EQ(trace.text(trace.devices.uuid[0]), "GPU-aa");
  EXPECT_EQ(trace.text(trace.devices.uuid[1]), "GPU-bb");
  EXPECT_EQ(trace.devices.device[1], 1);
  EXPECT_EQ(trace.devices.threads_per_sm_max[1], 2048);
}

TEST(Nsys, CopiesSayWhatTheyCross) {
  const Trace trace = read_nsys(kTexts + kKernels +
                                "CREATE TABLE CUPTI_ACTIVITY_KIND_MEMCPY (start INTEGER, \"end\" INTEGER, deviceId "
                                "INTEGER, contextId INTEGER, streamId "
                                "INTEGER, correlationId INTEGER, globalPid INTEGER, bytes INTEGER, copyKind INTEGER, "
                                "srcKind INTEGER, dstKind INTEGER);"
                                "INSERT INTO CUPTI_ACTIVITY_KIND_MEMCPY VALUES (1, 2, 0, 1, 7, 1, 0, 64, 1, 0, 2), (3, "
                                "4, 0, 1, 7, 1, 0, 65, 2, 2, 1), "
                                "(5, 6, 0, 1, 7, 1, 0, 66, 10, 2, 2), (7, 8, 0, 1, 7, 1, 0, 67, 11, 4, 2), (9, 10, 0, "
                                "1, 7, 1, 0, 68, 99, NULL, -3);");
  ASSERT_EQ(trace.gpu_ops.size(), 5u);
  EXPECT_EQ(trace.text(trace.gpu_ops.name[0]), "Memcpy HtoD (Pageable -> Device)");
  EXPECT_EQ(trace.gpu_ops.path[0], CopyPath::kHostToDevice);
  EXPECT_EQ(trace.gpu_ops.host_memory[0], HostMemory::kPageable);
  EXPECT_EQ(trace.gpu_ops.path[1], CopyPath::kDeviceToHost);
  EXPECT_EQ(trace.gpu_ops.host_memory[1], HostMemory::kPinned);
  EXPECT_EQ(trace.gpu_ops.path[2], CopyPath::kPeer);
  EXPECT_EQ(trace.text(trace.gpu_ops.name[3]), "Memcpy HtoD (Managed -> Device)");
  EXPECT_EQ(trace.gpu_ops.path[4], CopyPath::kUnknown);
  EXPECT_EQ(trace.gpu_ops.bytes[4], 68);
}

const std::string kRanges =
    "CREATE TABLE NVTX_EVENTS (start INTEGER, \"end\" INTEGER, eventType INTEGER, text TEXT, textId INTEGER, globalTid "
    "INTEGER, "
    "domainId INTEGER, uint64Value INTEGER, int64Value INTEGER, doubleValue REAL);";

std::string range(const std::string& values) { return "INSERT INTO NVTX_EVENTS VALUES (" + values + ");"; }

TEST(Nsys, RangesOfEveryKind) {
  const std::string thread = std::to_string(kThread);
  const Trace trace = read_nsys(
      kTexts + kKernels + kernel(0, 1) + kRanges +
      range("-5, 4, 59, 'prefill', NULL, " + thread + ", 0, 12, NULL, NULL") +
      range("10, 20, 60, NULL, 6, " + thread + ", 3, NULL, NULL, 2.5") +
      range("30, NULL, 34, 'mark', NULL, " + thread + ", NULL, NULL, -3, NULL") +
      range("40, NULL, 60, 'open', NULL, " + thread + ", 9, NULL, NULL, NULL") +
      range("41, 43, 59, 'aten::mm, seq = 8, op_id = 2, sizes = [[2, 3], [3, 4]], input_op_ids = [(1,0)]', NULL, " +
            thread + ", 0, NULL, NULL, NULL") +
      range("50, NULL, 75, 'NCCL', NULL, " + thread + ", 3, NULL, NULL, NULL") +
      range("51, NULL, 33, 'category', NULL, " + thread + ", 3, NULL, NULL, NULL") +
      "CREATE TABLE ThreadNames (nameId INTEGER, priority INTEGER, globalTid INTEGER);"
      "INSERT INTO ThreadNames VALUES (7, 20, " +
      thread + "), (7, 20, 99);");
  const Annotations& notes = trace.annotations;
  ASSERT_EQ(notes.size(), 4u);
  EXPECT_EQ(notes.start_ns[0], -5);
  EXPECT_EQ(trace.text(notes.name[0]), "prefill");
  EXPECT_EQ(notes.payload[0], 12);
  EXPECT_EQ(notes.domain[0], StringId::kEmpty);
  EXPECT_EQ(trace.text(notes.name[1]), "decode");
  EXPECT_EQ(trace.text(notes.domain[1]), "NCCL");  // named behind its use
  EXPECT_EQ(notes.payload[1], 2.5);
  EXPECT_EQ(notes.dur_ns[2], 0);
  EXPECT_EQ(notes.payload[2], -3);
  EXPECT_EQ(notes.dur_ns[3], 100 - 40);  // to the end of the kernel
  EXPECT_EQ(trace.text(notes.domain[3]), "domain 9");
  EXPECT_EQ(trace.diagnostics.count(DiagnosticId::kUnfinishedRange), 1u);
  EXPECT_EQ(trace.diagnostics.count(DiagnosticId::kUnknownCategory), 1u);
  ASSERT_EQ(trace.ops.size(), 1u);
  EXPECT_EQ(trace.text(trace.ops.name[0]), "aten::mm");
  EXPECT_EQ(trace.ops.sequence[0], 8);
  EXPECT_EQ(trace.text(trace.signatures.dims[trace.ops.signature[0]]), "[[2, 3], [3, 4]]");
  EXPECT_EQ(trace.signatures.input_count[trace.ops.signature[0]], 2);
  ASSERT_EQ(trace.threads.size(), 1u);
  EXPECT_EQ(trace.text(trace.threads.name[0]), "worker");
}

TEST(Nsys, WaitsFindTheEventThatTheyWaitFor) {
  const std::string pid = std::to_string(kProcess);
  const Trace trace = read_nsys(
      kTexts + "INSERT INTO StringIds VALUES (8, 'cudaEventRecord_v3020'), (9, 'cudaStreamWaitEvent_v3020');" + kCalls +
      kKernels + kernel(0, 1) + call(10, 20, kThread, 8) + call(30, 21, kThread, 8) + call(50, 22, kThread, 9) +
      "CREATE TABLE CUPTI_ACTIVITY_KIND_CUDA_EVENT (deviceId INTEGER, contextId INTEGER, streamId INTEGER, "
      "correlationId "
      "INTEGER, globalPid INTEGER, eventId INTEGER);"
      "INSERT INTO CUPTI_ACTIVITY_KIND_CUDA_EVENT VALUES (0, 1, 7, 20, " +
      pid + ", 5), (0, 1, 13, 21, " + pid +
      ", 5);"
      "CREATE TABLE CUPTI_ACTIVITY_KIND_SYNCHRONIZATION (start INTEGER, \"end\" INTEGER, deviceId INTEGER, contextId "
      "INTEGER, "
      "streamId INTEGER, correlationId INTEGER, globalPid INTEGER, syncType INTEGER, eventId INTEGER);"
      "INSERT INTO CUPTI_ACTIVITY_KIND_SYNCHRONIZATION VALUES (51, 54, 0, 1, 7, 22, " +
      pid + ", 2, 5), (60, 70, 0, 1, 7, 23, " + pid + ", 2, 4294967295);");
  const SyncEvents& syncs = trace.sync_events;
  ASSERT_EQ(syncs.size(), 4u);
  EXPECT_EQ(trace.text(syncs.name[0]), "Stream Wait Event");
  EXPECT_EQ(syncs.event_stream[0], 13);  // of the later of the two records
  EXPECT_EQ(syncs.event_call[0], 21u);
  EXPECT_EQ(trace.text(syncs.name[1]), "Stream Sync");  // without an event it is no wait for one
  EXPECT_EQ(trace.text(syncs.name[2]), "Event Record");
  EXPECT_EQ(syncs.start_ns[2], 10);
  ASSERT_EQ(trace.api_calls.size(), 3u);
  EXPECT_EQ(trace.api_calls.event[1], 21u);
  EXPECT_EQ(trace.api_calls.event[2], 21u);
  EXPECT_EQ(trace.streams.stream[trace.api_calls.stream[2]], 7);
}

TEST(Nsys, AllocationsBelongToTheThreadOfTheirCall) {
  const std::string pid = std::to_string(kProcess);
  const Trace trace = read_nsys(kTexts + kCalls + kKernels + kernel(0, 1) + call(10, 20, kThread, 5) +
                                "CREATE TABLE CUDA_GPU_MEMORY_USAGE_EVENTS (start INTEGER, globalPid INTEGER, deviceId "
                                "INTEGER, address INTEGER, bytes "
                                "INTEGER, memKind INTEGER, memoryOperationType INTEGER, correlationId INTEGER);"
                                "INSERT INTO CUDA_GPU_MEMORY_USAGE_EVENTS VALUES (12, " +
                                pid + ", 0, 4096, 1000, 2, 0, 20), (13, " + pid + ", 0, 8192, 50, 1, 0, 21), (14, " +
                                pid + ", 0, 4096, 1000, 2, 1, NULL);");
  const MemoryEvents& events = trace.memory_events;
  ASSERT_EQ(events.size(), 3u);
  EXPECT_EQ(events.bytes[0], 1000);
  EXPECT_EQ(events.device[0], 0);
  EXPECT_EQ(trace.threads.thread_id[events.thread[0]], 4243);
  EXPECT_EQ(events.device[1], -1);  // pinned memory of the host
  EXPECT_EQ(trace.threads.thread_id[events.thread[1]], -1);
  EXPECT_EQ(events.bytes[2], -1000);
}

TEST(Nsys, MetricsOfOneTimeAreOneSample) {
  const Trace trace = read_nsys(
      kTexts + kKernels + kernel(0, 1) +
      "CREATE TABLE TARGET_INFO_GPU_METRICS (typeId INTEGER, metricId INTEGER, metricName TEXT);"
      "INSERT INTO TARGET_INFO_GPU_METRICS VALUES (72057594037927936, 0, 'GPC Clock Frequency [MHz]'), "
      "(72057594037927936, 1, 'SMs Active [Throughput %]'), (72057594037927936, 2, 'NVLink RX [Throughput %]');"
      "CREATE TABLE GPU_METRICS (timestamp INTEGER, typeId INTEGER, metricId INTEGER, value INTEGER);"
      "INSERT INTO GPU_METRICS VALUES (1000, 72057594037927936, 0, -1939967296), (1000, 72057594037927936, 2, 9), "
      "(1000, 72057594037927936, 1, 41), (1100, 72057594037927936, 1, 42), (1200, 72057594037927936, 1, 43), "
      "(9000, 72057594037927936, 1, 44);");
  const GpuSamples& samples = trace.gpu_samples;
  ASSERT_EQ(samples.size(), 4u);
  EXPECT_EQ(samples.start_ns[0], 900);
  EXPECT_EQ(samples.dur_ns[0], 100);
  EXPECT_EQ(samples.device[0], 0);
  EXPECT_FLOAT_EQ(samples.sm_clock_hz[0], 2'355'000'000.0F);  // above 2^31 Hz
  EXPECT_FLOAT_EQ(samples.sm_active_frac[0], 0.41F);
  EXPECT_TRUE(std::isnan(samples.sm_clock_hz[1]));
  EXPECT_EQ(samples.start_ns[2], 1100);
  EXPECT_EQ(samples.start_ns[3], 8900);  // behind a pause: not of all that time
  EXPECT_EQ(trace.diagnostics.count(DiagnosticId::kUnknownCategory), 1u);
}

TEST(Nsys, GraphsAsAWholeAndTheClock) {
  const std::string pid = std::to_string(kProcess);
  const auto exported = [&](const std::string& start, const std::string& settings) {
    return read_nsys(
        kTexts +
        "CREATE TABLE CUPTI_ACTIVITY_KIND_GRAPH_TRACE (start INTEGER, \"end\" INTEGER, deviceId INTEGER, contextId "
        "INTEGER, streamId INTEGER, correlationId INTEGER, globalPid INTEGER, graphId INTEGER, graphExecId INTEGER);"
        "INSERT INTO CUPTI_ACTIVITY_KIND_GRAPH_TRACE VALUES (" +
        start + ", " + start + " + 7, 0, 1, 7, 3, " + pid +
        ", 2, 9);"
        "CREATE TABLE TARGET_INFO_SESSION_START_TIME (utcEpochNs INTEGER);"
        "INSERT INTO TARGET_INFO_SESSION_START_TIME VALUES (1795511584000000123);"
        "CREATE TABLE META_DATA_EXPORT (name TEXT, value TEXT);" +
        settings);
  };
  const Trace plain = exported("50", "");
  ASSERT_EQ(plain.graph_launches.size(), 1u);
  EXPECT_EQ(plain.graph_launches.start_ns[0], 50);
  EXPECT_EQ(plain.graph_launches.dur_ns[0], 7);
  EXPECT_EQ(plain.graph_launches.graph[0], 9u);
  EXPECT_EQ(plain.graph_launches.correlation[0], 3u);
  EXPECT_EQ(plain.base_unix_ns, 1795511584000000123);
  EXPECT_TRUE(plain.recorded.empty());
  const Trace utc =
      exported("1795511584000000173", "INSERT INTO META_DATA_EXPORT VALUES ('EXPORT_PARAM_TIME_NORMALIZE', 'true');");
  EXPECT_EQ(utc.graph_launches.start_ns[0], 50);
  const Trace shifted = exported("1050", "INSERT INTO META_DATA_EXPORT VALUES ('EXPORT_PARAM_TIME_SHIFT', '1000');");
  EXPECT_EQ(shifted.graph_launches.start_ns[0], 50);
}

TEST(Nsys, WhatHasNoTableIsCounted) {
  const Trace trace = read_nsys(kTexts + kKernels + kernel(0, 1) +
                                "CREATE TABLE OSRT_API (start INTEGER); INSERT INTO OSRT_API VALUES (1), (2), (3);"
                                "CREATE TABLE CUBLAS_EVENTS (start INTEGER);"
                                "CREATE TABLE ENUM_X (id INTEGER); INSERT INTO ENUM_X VALUES (1);");
  EXPECT_EQ(trace.diagnostics.count(DiagnosticId::kUnknownTable), 3u);
  EXPECT_EQ(trace.diagnostics.places(DiagnosticId::kUnknownTable)[0], "OSRT_API (3 rows)");
  const Trace sparse =
      read_nsys(kTexts + kKernels + kernel(0, 1) +
                "CREATE TABLE OSRT_API (start INTEGER); INSERT INTO OSRT_API (rowid) VALUES (1), (9000000000);");
  EXPECT_EQ(sparse.diagnostics.places(DiagnosticId::kUnknownTable)[0], "OSRT_API (rows not counted)");
  EXPECT_EQ(sparse.diagnostics.count(DiagnosticId::kUnknownTable), 1u);
}

// Views, generated columns and virtual tables are programs of whoever made the file.
TEST(Nsys, NothingOfTheSchemaIsRun) {
  const Trace trace = read_nsys(kTexts +
                                "CREATE VIEW CUPTI_ACTIVITY_KIND_KERNEL AS WITH RECURSIVE n(start) AS (SELECT 1 UNION "
                                "ALL SELECT start + 1 FROM n) "
                                "SELECT start, start + 1 AS \"end\" FROM n;"
                                "CREATE TABLE NVTX_EVENTS (start INTEGER, \"end\" INTEGER GENERATED ALWAYS AS (start + "
                                "5), eventType INTEGER, text TEXT);"
                                "INSERT INTO NVTX_EVENTS VALUES (3, 59, 'decode'), (9, 59, 'decode');");
  EXPECT_TRUE(trace.gpu_ops.empty());
  ASSERT_EQ(trace.annotations.size(), 2u);
  EXPECT_EQ(trace.annotations.dur_ns[0], 6);  // open: its end is generated
  EXPECT_EQ(trace.diagnostics.places(DiagnosticId::kUnknownTable)[0], "CUPTI_ACTIVITY_KIND_KERNEL (no plain table)");
}

TEST(Nsys, BadValuesCostTheirRow) {
  const Trace trace =
      read_nsys(kTexts + kKernels + kernel(5, 1) + kernel(2305843009213693953, 2) +
                "INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL (start, \"end\", demangledName) VALUES ('x', 4, 2), "
                "(NULL, 4, 2), (9, 4, 2), (4, 9, NULL), (14, 19, 777);");
  EXPECT_EQ(trace.gpu_ops.size(), 3u);
  EXPECT_EQ(trace.diagnostics.count(DiagnosticId::kBadNumber), 1u);
  EXPECT_EQ(trace.diagnostics.count(DiagnosticId::kNegativeDuration), 1u);
  EXPECT_EQ(trace.diagnostics.count(DiagnosticId::kMissingField), 4u);  // two times, two names
}

std::string many_kernels() {
  std::string statements = kTexts + kCalls + kKernels + kRanges + "BEGIN;";
  for (int i = 0; i < 300; ++i) {
    statements += call(i * 1000, i + 1) + kernel(i * 1000 + 50, i + 1, kProcess, i % 2);
    if (i % 10 == 0)
      statements += range(std::to_string(i * 1000) + ", " + std::to_string(i * 1000 + 9000) + ", 59, 'decode', NULL, " +
                          std::to_string(kThread) + ", " + std::to_string(i % 3) + ", NULL, NULL, NULL");
  }
  return statements + "COMMIT;";
}

TEST(Nsys, PartsDoNotShow) {
  const std::string bytes = database(many_kernels());
  Trace whole;
  ASSERT_TRUE(read_into(bytes, whole));
  finish_import(whole);
  ASSERT_EQ(whole.gpu_ops.size(), 300u);
  for (const int64_t rows : {1, 7, 64}) {
    Trace trace;
    ASSERT_TRUE(read_into(bytes, trace, rows));
    finish_import(trace);
    ASSERT_EQ(trace.gpu_ops.size(), whole.gpu_ops.size());
    EXPECT_EQ(trace.gpu_ops.start_ns, whole.gpu_ops.start_ns);
    EXPECT_EQ(trace.gpu_ops.correlation, whole.gpu_ops.correlation);
    EXPECT_EQ(trace.gpu_ops.stream, whole.gpu_ops.stream);
    EXPECT_EQ(trace.annotations.start_ns, whole.annotations.start_ns);
    for (Row row = 0; row < trace.annotations.size(); ++row)
      EXPECT_EQ(trace.text(trace.annotations.domain[row]), whole.text(whole.annotations.domain[row]));
    EXPECT_EQ(trace.diagnostics.total(), whole.diagnostics.total());
  }
}

// Rows that were deleted leave gaps between the numbers of the rest.
TEST(Nsys, GapsBetweenRowNumbers) {
  const Trace trace = read_nsys(kTexts + kKernels + kernel(5, 1) +
                                "INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL (rowid, start, \"end\", demangledName) VALUES "
                                "(9000000000000000000, 7, 9, 2), (-9000000000000000000, 8, 9, 2);");
  EXPECT_EQ(trace.gpu_ops.size(), 3u);
}

TEST(Nsys, ACutFileKeepsWhatItHas) {
  std::string bytes = database(many_kernels());
  bytes.resize(bytes.size() * 2 / 3 / 4096 * 4096);
  Trace trace;
  const Status status = read_into(bytes, trace);
  if (!status) return;  // what was cut off may be what describes the tables
  EXPECT_EQ(trace.diagnostics.count(DiagnosticId::kTruncatedFile), 1u);
  EXPECT_GT(trace.diagnostics.count(DiagnosticId::kDamagedTable), 0u);
  EXPECT_LT(trace.gpu_ops.size() + trace.api_calls.size(), 600u);
}

TEST(Nsys, OtherDatabasesAreNamed) {
  EXPECT_NE(error_of(database("CREATE TABLE runs (a); CREATE TABLE \"odd\"\"; name\" (b);")).find("runs, odd"),
            std::string::npos);
  EXPECT_NE(error_of(database("CREATE TABLE gpu_ops (a); CREATE TABLE columns (b);")).find("llmprof itself exported"),
            std::string::npos);
  EXPECT_NE(
      error_of(database("CREATE TABLE StringTable (a); CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (b);")).find("nvprof"),
      std::string::npos);
  EXPECT_NE(error_of(database("CREATE VIEW v AS SELECT 1;")).find("views and no tables"), std::string::npos);
  EXPECT_NE(error_of(std::string("SQLite format 3\0", 16) + std::string(2000, 'x')).find("cannot be read"),
            std::string::npos);
  EXPECT_EQ(nsys::sniff("{\"traceEvents\""), 0);
  EXPECT_GT(nsys::sniff(database(kTexts)), 0);
}

TEST(Nsys, AFileIsReadInPlace) {
  const TemporaryFolder folder;
  const std::string path = folder.path() + "/a b?%#.sqlite";
  std::ofstream(path, std::ios::binary) << database(many_kernels());
  const Result<Trace> trace = import_files({path});
  ASSERT_TRUE(trace) << trace.error().text();
  EXPECT_EQ(trace->gpu_ops.size(), 300u);
  EXPECT_EQ(trace->source.kind, "nsys");
}

// A stand-in for nsys, first on PATH.
class WithNsys {
 public:
  explicit WithNsys(const std::string& folder, const std::string& script) : before_(getenv("PATH")) {
    if (!script.empty()) {
      std::ofstream(folder + "/nsys") << "#!/bin/sh\n" << script;
      chmod((folder + "/nsys").c_str(), 0755);
    }
    setenv("PATH", (script.empty() ? folder : folder + ":" + before_).c_str(), 1);
  }
  ~WithNsys() { setenv("PATH", before_.c_str(), 1); }
  WithNsys(const WithNsys&) = delete;
  WithNsys& operator=(const WithNsys&) = delete;

 private:
  std::string before_;
};

TEST(Nsys, ReportsAreExportedByNsys) {
  const TemporaryFolder folder;
  const std::string report = folder.path() + "/it's here.nsys-rep";
  std::ofstream(report) << "not public";
  std::ofstream(folder.path() + "/made.sqlite", std::ios::binary) << database(many_kernels());
  {
    const WithNsys none(folder.path(), "");
    const Result<Trace> trace = import_files({report});
    ASSERT_FALSE(trace);
    EXPECT_NE(trace.error().what.find("nsys is not on PATH"), std::string::npos) << trace.error().text();
    EXPECT_NE(
        trace.error().advice.find("nsys export --type sqlite --output '" + folder.path() + "/it'\\''s here.sqlite'"),
        std::string::npos)
        << trace.error().text();
  }
  {
    // export --type sqlite --output TARGET REPORT
    const WithNsys nsys(folder.path(),
                        "[ \"$1$2$3$4\" = export--typesqlite--output ] || exit 9\n[ -f \"$6\" ] || exit 8\n"
                        "cp '" +
                            folder.path() + "/made.sqlite' \"$5\"\n");
    const Result<Trace> trace = import_files({report});
    ASSERT_TRUE(trace) << trace.error().text();
    EXPECT_EQ(trace->gpu_ops.size(), 300u);
    EXPECT_EQ(trace->source.kind, "nsys");
    EXPECT_EQ(trace->source.files.front(), report);
  }
  {
    const WithNsys broken(folder.path(), "echo 'ERROR: the report is too new' >&2\nexit 3\n");
    const Result<Trace> trace = import_files({report});
    ASSERT_FALSE(trace);
    EXPECT_NE(trace.error().what.find("(exit code 3): ERROR: the report is too new"), std::string::npos);
  }
}

}  // namespace
}  // namespace llmprof
