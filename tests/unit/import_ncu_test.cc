// Numbers, units, rows and damage of what `ncu --csv` prints.
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <string>

#include "import/ncu.h"
#include "import/ncu_lines.h"
#include "import/ncu_values.h"

namespace llmprof {
namespace {

constexpr const char* kLongHeader =
    "\"ID\",\"Process ID\",\"Process Name\",\"Host Name\",\"Kernel Name\",\"Context\",\"Stream\",\"Block Size\","
    "\"Grid Size\",\"Device\",\"CC\",\"Section Name\",\"Metric Name\",\"Metric Unit\",\"Metric Value\"\n";
constexpr const char* kWideHeader =
    "\"ID\",\"Process ID\",\"Process Name\",\"Host Name\",\"Kernel Name\",\"Context\",\"Stream\",\"Block Size\","
    "\"Grid Size\",\"Device\",\"CC\",";

std::string start_of(int id, const std::string& name) {
  return "\"" + std::to_string(id) + "\",\"7\",\"a.out\",\"host\",\"" + name +
         "\",\"1\",\"13\",\"(256, 1, 1)\",\"(64, 2, 1)\",\"0\",\"9.0\",";
}
std::string metric_row(int id, const std::string& name, const std::string& unit, const std::string& value) {
  return start_of(id, "k") + "\"S\",\"" + name + "\",\"" + unit + "\",\"" + value + "\"\n";
}

Trace read_ncu(const std::string& text) {
  Trace trace;
  Result<InputFile> input = InputFile::from_memory(text, "ncu.csv");
  EXPECT_TRUE(input && ncu::import(*input, trace));
  return trace;
}

std::string ncu_error(const std::string& text) {
  Trace trace;
  Result<InputFile> input = InputFile::from_memory(text, "ncu.csv");
  const Status status = ncu::import(*input, trace);
  return status ? "" : status.error().what;
}

TEST(NcuNumbers, AsLocalesWriteThem) {
  using ncu::parse_grouped;
  EXPECT_EQ(parse_grouped("4,963,609,951.19", '.', 0), 4963609951.19);
  EXPECT_EQ(parse_grouped("4.963.609.951,19", ',', 0), 4963609951.19);
  EXPECT_EQ(parse_grouped("4'963'609.5", '.', 0), 4963609.5);
  EXPECT_EQ(parse_grouped("4 963 609,5", ',', 0), 4963609.5);
  EXPECT_EQ(parse_grouped("4\xE2\x80\xAF"
                          "963,5",
                          ',', 0),
            4963.5);
  EXPECT_EQ(parse_grouped("12,34,567.8", '.', 0), 1234567.8);
  EXPECT_EQ(parse_grouped("1,234", '.', 0), 1234);
  EXPECT_EQ(parse_grouped("1,234", ',', 0), 1.234);
  EXPECT_EQ(parse_grouped("-0.5", '.', 0), -0.5);
  EXPECT_EQ(parse_grouped("1.5e+06", '.', 0), 1.5e6);
  EXPECT_EQ(parse_grouped("5.25 (5; 5.5)", '.', 0), 5.25);
  // Digits move, no product rounds: 0.1 us is 100 ns.
  EXPECT_EQ(parse_grouped("0.1", '.', 3), 100);
  EXPECT_EQ(parse_grouped("883.78378", '.', 9), 883783780000.0);
  for (const char* bad : {"", "n/a", "nan", "inf", "1,23", "12,3456", "1,2,3", ",5", "5.", "1.2.3", "1,234,", "0x10",
                          "(1; 2)", "1e999", "--1", "1,234.567,8"})
    EXPECT_FALSE(parse_grouped(bad, '.', 0)) << bad;
  EXPECT_FALSE(parse_grouped(std::string(1000, '9'), '.', 0));
}

TEST(NcuNumbers, Units) {
  const auto unit = [](std::string_view text) {
    const ncu::Unit plain = ncu::plain_unit(text);
    return plain.name + " " + std::to_string(plain.exponent);
  };
  EXPECT_EQ(unit("byte"), "byte 0");
  EXPECT_EQ(unit("Kbyte"), "byte 3");
  EXPECT_EQ(unit("Mbyte"), "byte 6");
  EXPECT_EQ(unit("Gbyte/second"), "byte/s 9");
  EXPECT_EQ(unit("Tbyte/s"), "byte/s 12");
  EXPECT_EQ(unit("byte/nsecond"), "byte/s 9");
  EXPECT_EQ(unit("usecond"), "ns 3");
  EXPECT_EQ(unit("nsecond"), "ns 0");
  EXPECT_EQ(unit("ns"), "ns 0");
  EXPECT_EQ(unit("ms"), "ns 6");
  EXPECT_EQ(unit("second"), "ns 9");
  EXPECT_EQ(unit("Ghz"), "hz 9");
  EXPECT_EQ(unit("cycle/nsecond"), "cycle/s 9");
  EXPECT_EQ(unit("%"), "% 0");
  EXPECT_EQ(unit(""), " 0");
  EXPECT_EQ(unit("K"), " 3");
  EXPECT_EQ(unit("inst/cycle"), "inst/cycle 0");
  EXPECT_EQ(unit("Kbyte/block"), "byte/block 3");
  EXPECT_EQ(unit("SM"), "SM 0");
  EXPECT_EQ(unit("register/thread"), "register/thread 0");
}

TEST(NcuNumbers, SizesAndRanges) {
  EXPECT_EQ(ncu::parse_size("(2, 66, 1)"), (std::array<int32_t, 3>{2, 66, 1}));
  EXPECT_EQ(ncu::parse_size("2,66,1"), (std::array<int32_t, 3>{2, 66, 1}));
  for (const char* bad : {"", "(1, 2)", "(1, 2, 3, 4)", "(1, 2, x)", "(1, 2, 99999999999)", "(-1, 2, 3)", "(1, 2, 3"})
    EXPECT_FALSE(ncu::parse_size(bad)) << bad;
  EXPECT_EQ(ncu::range_texts("552  \"<default domain>:decode:none:none:none:none:none:none\"  "
                             "\"lib:layer: 3:none:none:none:none:none:none\" "),
            "decode\nlayer: 3");
  EXPECT_EQ(ncu::range_texts("552 \"no colons\" \"open"), "");
}

TEST(Ncu, LongRowsBecomeKernels) {
  const Trace trace =
      read_ncu("==PROF== Connected to process 7\n0,1,2 of the program\n" + std::string(kLongHeader) +
               metric_row(0, "gpu__time_duration.sum", "usecond", "4.5") + "RESULT 17\n" +
               metric_row(0, "Registers Per Thread", "register/thread", "32") + metric_row(0, "Mode", "", "Spread") +
               metric_row(1, "Duration", "ns", "5,200") + "\"bye\", said the program\n");
  ASSERT_EQ(trace.profiled_kernels.size(), 2u);
  EXPECT_EQ(trace.profiled_kernels.dur_ns[0], 4500);
  EXPECT_EQ(trace.profiled_kernels.dur_ns[1], 5200);
  EXPECT_EQ(trace.profiled_kernels.number[1], 1);
  ASSERT_EQ(trace.kernel_counters.size(), 4u);
  EXPECT_EQ(trace.kernel_counters.value[0], 4500);
  EXPECT_EQ(trace.text(trace.kernel_counters.unit[0]), "ns");
  EXPECT_EQ(trace.text(trace.kernel_counters.section[0]), "S");
  EXPECT_TRUE(std::isnan(trace.kernel_counters.value[2]));
  EXPECT_EQ(trace.text(trace.kernel_counters.text[2]), "Spread");
  const LaunchConfigId config = trace.profiled_kernels.config[0];
  EXPECT_EQ(trace.launch_configs.grid_y[config], 2);
  EXPECT_EQ(trace.launch_configs.block_x[config], 256);
  EXPECT_EQ(trace.launch_configs.registers_per_thread[config], 32);
  EXPECT_EQ(trace.streams.stream[trace.profiled_kernels.stream[0]], 13);
  ASSERT_EQ(trace.devices.size(), 1u);
  EXPECT_EQ(trace.devices.compute_major[0], 9);
  EXPECT_EQ(trace.diagnostics.total(), 0u);
}

TEST(Ncu, WideRowsHaveUnitsOfTheirOwn) {
  const Trace trace = read_ncu(std::string(kWideHeader) +
                               "\"dram__bytes_read.sum\",\"device__attribute_display_name\",\"launch__sm_count\"\n"
                               "\"\",\"\",\"\",\"\",\"\",\"\",\"\",\"\",\"\",\"\",\"\",\"Mbyte\",\"\",\"SM\"\n" +
                               start_of(0, "a<x, y>(int, \"\"q\"\")") + "\"1.5\",\"NVIDIA H200\",\"132\"\n" +
                               "what the program printed\n" + start_of(1, "b") + "\"2\",\"NVIDIA H200\",\"\"\n");
  ASSERT_EQ(trace.profiled_kernels.size(), 2u);
  EXPECT_EQ(trace.text(trace.profiled_kernels.name[0]), "a<x, y>(int, \"q\")");
  ASSERT_EQ(trace.kernel_counters.size(), 5u);  // an empty cell is no value
  EXPECT_EQ(trace.kernel_counters.value[0], 1.5e6);
  EXPECT_EQ(trace.text(trace.kernel_counters.unit[0]), "byte");
  EXPECT_EQ(trace.text(trace.devices.name[0]), "NVIDIA H200");
  EXPECT_EQ(trace.devices.sm_count[0], 132);
  EXPECT_EQ(trace.diagnostics.total(), 0u);
}

TEST(Ncu, TheFileShowsItsNotation) {
  const std::string header = kLongHeader;
  const Trace comma = read_ncu(header + metric_row(0, "a", "", "1.234") + metric_row(0, "b", "%", "61,84") +
                               metric_row(0, "c", "byte", "1.234.567,5"));
  EXPECT_EQ(comma.kernel_counters.value[0], 1234);
  EXPECT_EQ(comma.kernel_counters.value[1], 61.84);
  EXPECT_EQ(comma.kernel_counters.value[2], 1234567.5);
  EXPECT_EQ(comma.kernel_counters.text[1], StringId::kEmpty);
  EXPECT_EQ(comma.diagnostics.total(), 0u);
  const Trace unclear = read_ncu(header + metric_row(0, "a", "", "1,234") + metric_row(0, "b", "", "17"));
  EXPECT_EQ(unclear.kernel_counters.value[0], 1234);
  EXPECT_EQ(unclear.diagnostics.count(DiagnosticId::kAmbiguousNumber), 1u);
  const Trace mixed =
      read_ncu(header + metric_row(0, "a", "", "0.5") + metric_row(0, "b", "", "0.25") + metric_row(0, "c", "", "7,5"));
  EXPECT_EQ(mixed.kernel_counters.value[1], 0.25);
  EXPECT_TRUE(std::isnan(mixed.kernel_counters.value[2]));
  EXPECT_EQ(mixed.text(mixed.kernel_counters.text[2]), "7,5");
  EXPECT_EQ(mixed.diagnostics.count(DiagnosticId::kBadNumber), 1u);
}

TEST(Ncu, RulesRaggedRowsAndLineFeeds) {
  std::string header = kLongHeader;
  header.insert(header.size() - 1, ",\"Rule Name\",\"Rule Type\",\"Rule Description\"");
  const std::string row = metric_row(0, "Duration", "ns", "5.5");
  const Trace trace = read_ncu(header + row.substr(0, row.size() - 1) + ",\n" + start_of(0, "k") +
                               "\"S\",\"\",\"\",\"\",\"R\",\"OPT\",\"first,\n\"\"second\"\"\nthird\"\n" +
                               metric_row(1, "Duration", "ns", "6.5"));
  EXPECT_EQ(trace.profiled_kernels.size(), 2u);
  EXPECT_EQ(trace.kernel_counters.size(), 2u);
  EXPECT_EQ(trace.diagnostics.total(), 0u);
}

TEST(Ncu, DamageCostsWhatItHits) {
  const std::string good = metric_row(3, "x", "", "0.5");
  const auto count = [&](const std::string& line, DiagnosticId id) {
    const Trace trace = read_ncu(kLongHeader + line + good);
    EXPECT_EQ(trace.kernel_counters.value.back(), 0.5) << line;
    EXPECT_EQ(trace.diagnostics.total(), trace.diagnostics.count(id)) << line;
    return trace.diagnostics.count(id);
  };
  EXPECT_EQ(count("\"0\",\"7\",\"cut\n", DiagnosticId::kTruncatedFile), 1u);
  EXPECT_EQ(count("\"0\",\"7\",\"too few\"\n", DiagnosticId::kMalformedEvent), 1u);
  EXPECT_EQ(count(good.substr(0, good.size() - 1) + ",1,2,3\n", DiagnosticId::kMalformedEvent), 1u);
  EXPECT_EQ(count(start_of(0, "") + "\"S\",\"m\",\"\",\"1\"\n", DiagnosticId::kMissingField), 1u);
  std::string device = good;
  device.replace(device.find("\"0\",\"9.0\""), 3, "\"x\"");
  EXPECT_EQ(count(device, DiagnosticId::kBadNumber), 1u);
  std::string grid = metric_row(0, "x", "", "1");
  grid.replace(grid.find("(64, 2, 1)"), 10, "(64, 2)");
  EXPECT_EQ(count(grid, DiagnosticId::kBadNumber), 1u);
  // The last line without its end keeps all cells but the last.
  const Trace cut = read_ncu(kLongHeader + good + "\"4\",\"7\",\"a.out\",\"host\",\"k");
  EXPECT_EQ(cut.profiled_kernels.size(), 1u);
  EXPECT_EQ(cut.diagnostics.count(DiagnosticId::kTruncatedFile), 1u);
}

TEST(Ncu, RemarksOfTheProfiler) {
  const Trace trace = read_ncu(
      "==WARNING== Note: Running with unmodified GPU clocks. If not controlled ...\n"
      "==WARNING== Unable to access the following 6 metrics: a, b.\n" +
      std::string(kLongHeader) + metric_row(0, "x", "", "0.5"));
  EXPECT_EQ(trace.metadata.at("ncu.clocks"), "unmodified");
  ASSERT_EQ(trace.diagnostics.count(DiagnosticId::kRecorderNote), 1u);
  EXPECT_NE(trace.diagnostics.places(DiagnosticId::kRecorderNote)[0].find("6 metrics"), std::string::npos);
}

TEST(Ncu, SniffAndErrors) {
  EXPECT_GT(ncu::sniff("some output\n" + std::string(kLongHeader)), 90);
  EXPECT_GT(ncu::sniff("==PROF== Connected to process 7\nmuch output"), 50);
  EXPECT_EQ(ncu::sniff("{\"traceEvents\": []}"), 0);
  EXPECT_EQ(ncu::sniff("name,value\n1,2\n"), 0);
  EXPECT_NE(ncu_error("==PROF== Connected to process 7\n").find("found none"), std::string::npos);
  EXPECT_NE(ncu_error(kLongHeader).find("no kernel below"), std::string::npos);
  EXPECT_NE(ncu_error("\"ID\",\"Process ID\",\"Kernel Name\",\"Invocations\",\"Metric Name\",\"Average\"\n"
                      "\"0\",\"1\",\"k\",\"2\",\"m\",\"3\"\n")
                .find("summary"),
            std::string::npos);
}

TEST(Ncu, TablesJoinARecording) {
  const std::string folder = ::testing::TempDir(), first = folder + "ncu_first.csv", second = folder + "ncu_second.csv";
  const std::string trace_path = std::string(LLMPROF_TEST_DATA) + "/golden/inputs/two_streams.json.gz";
  std::ofstream(first) << kLongHeader << metric_row(0, "x", "Kbyte", "0.5");
  std::ofstream(second) << kLongHeader << metric_row(1, "x", "byte", "2.5") << metric_row(2, "y", "", "n/a");
  Result<Trace> alone = import_files({trace_path});
  Result<Trace> joined = import_files({first, trace_path, second});
  ASSERT_TRUE(alone && joined);
  EXPECT_EQ(joined->source.kind, "kineto");
  EXPECT_EQ(joined->source.files.size(), 3u);
  EXPECT_EQ(joined->gpu_ops.size(), alone->gpu_ops.size());
  EXPECT_EQ(joined->devices.size(), alone->devices.size());
  ASSERT_EQ(joined->profiled_kernels.size(), 3u);
  ASSERT_EQ(joined->kernel_counters.size(), 3u);
  EXPECT_EQ(joined->kernel_counters.kernel[2], 2u);
  EXPECT_EQ(joined->kernel_counters.value[1], 2.5);
  EXPECT_EQ(joined->text(joined->kernel_counters.text[2]), "n/a");
  EXPECT_EQ(joined->text(joined->profiled_kernels.name[2]), "k");
  Result<Trace> tables = import_files({first, second});
  ASSERT_TRUE(tables);
  EXPECT_EQ(tables->source.kind, "ncu");
  EXPECT_EQ(tables->profiled_kernels.size(), 3u);
  EXPECT_FALSE(import_files({trace_path, first, trace_path}));
}

TEST(Ncu, LongLinesAndOpenQuotesAreBounded) {
  const std::string good = metric_row(3, "x", "", "0.5");
  const Trace trace = read_ncu(std::string(ncu::kRowBytesMax + 10, 'x') + "\n" + kLongHeader + "\"0\",\"" +
                               std::string(ncu::kRowBytesMax + 10, 'y') + "\"\n" + good);
  EXPECT_EQ(trace.profiled_kernels.size(), 1u);
  EXPECT_EQ(trace.diagnostics.count(DiagnosticId::kLimitReached), 1u);
  std::string open = kLongHeader + good + "\"0\",\"";
  for (int i = 0; i < 100'000; ++i) open += "a line of the program\n";
  EXPECT_EQ(read_ncu(open + good).profiled_kernels.size(), 1u);
}

}  // namespace
}  // namespace llmprof
