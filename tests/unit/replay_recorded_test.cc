// From what the recorder writes to a replay: streams, events and the edges of a graph, through the importer and derive.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>

#include "base/clock.h"
#include "capture/spool/writer.h"
#include "derive/derive.h"
#include "import/importer.h"
#include "replay_steps.h"
#include "temporary_folder.h"

namespace llmprof::replay {
namespace {

using spool::Id;
using spool::Writer;

constexpr uint64_t kMadeEvent = 0x7f0000001000;

// A program that launches, in each step, a graph 1 -> {2, 3} -> 4 on its stream, whose node 3 runs on another, and then
// a kernel on a side stream that waits for the graph by an event; and that waits for the side stream.
class Program {
 public:
  explicit Program(Writer& writer) : writer_(writer), start_ns_(realtime_ns()) {
    spool::DeviceDef device;
    device.name = writer.text("NVIDIA H200");
    device.sm_count = 132;
    device.compute_major = 9;
    device.compute_minor = 0;
    device.uuid = writer.text("GPU-00000000-0000-0000-0000-000000000000");
    writer.add(device);
    main_ = writer.define(spool::StreamDef{0, 0, 1, 7});
    branch_ = writer.define(spool::StreamDef{0, 0, 1, 15});
    side_ = writer.define(spool::StreamDef{0, 0, 1, 13});
    thread_ = writer.define(spool::ThreadDef{0, 4242, writer.text("python")});
    writer.add(spool::LevelChange{start_ns_, spool::Level::kDefault, writer.text("start")});
    for (const auto& [node, after] :
         std::initializer_list<std::pair<uint64_t, uint64_t>>{{101, 0}, {102, 101}, {103, 101}, {104, 102}, {104, 103}})
      writer.add(spool::GraphEdge{node, after});
  }

  // Returns when the step has ended.
  int64_t step(int64_t host, int64_t longer_ns) {
    const int64_t begin = host, graph = host + 5'000, left = graph + 101'000 + longer_ns;
    const uint32_t launch = call("cuGraphLaunch", host, 6'000, main_, 0);
    kernel("root_gemm", main_, graph, 20'000, launch, 101);
    kernel("left_gemm", main_, graph + 21'000, 80'000 + longer_ns, launch, 102);
    kernel("right_gemm", branch_, graph + 21'500, 30'000, launch, 103);
    kernel("join_gemm", main_, left + 1'000, 10'000, launch, 104);
    call("cuEventRecord", host + 8'000, 500, main_, kMadeEvent);
    call("cuStreamWaitEvent", host + 10'000, 500, side_, kMadeEvent);
    const int64_t beside = left + 11'000 + 2'000;
    kernel("side_gemm", side_, beside, 40'000, call("cuLaunchKernel", host + 12'000, 4'000, 0, 0), 0);
    const int64_t returned = beside + 40'000 + 4'000;
    call("cudaStreamSynchronize", host + 20'000, returned - host - 20'000, side_, 0);
    spool::Range range;
    range.thread = thread_;
    range.name = writer_.text("decode");
    range.start_ns = start_ns_ + begin;
    range.end_ns = start_ns_ + returned;
    writer_.add(range);
    return returned;
  }

 private:
  uint32_t call(std::string_view name, int64_t start, int64_t dur, Id stream, uint64_t event) {
    const Id def = writer_.define(spool::ApiDef{0, name.starts_with("cuda") ? uint8_t{0} : uint8_t{1},
                                                static_cast<uint32_t>(name.size()), writer_.text(name)});
    writer_.add(spool::ApiCall{def, thread_, start_ns_ + start, start_ns_ + start + dur, ++correlation_, 0});
    if (stream != 0 || event != 0) writer_.add(spool::CallTarget{correlation_, stream, event});
    return correlation_;
  }
  void kernel(std::string_view name, Id stream, int64_t start, int64_t dur, uint32_t correlation, uint64_t node) {
    spool::KernelDef def;
    def.name = writer_.text(name);
    def.stream = stream;
    for (int i = 0; i < 3; ++i) def.grid[i] = def.block[i] = 1;
    writer_.add(spool::Kernel{writer_.define(def), start_ns_ + start, start_ns_ + start + dur, correlation, node, 0});
  }

  Writer& writer_;
  const int64_t start_ns_;  // behind that of the file, which is the epoch of the recording
  Id main_ = 0, branch_ = 0, side_ = 0, thread_ = 0;
  uint32_t correlation_ = 0;
};

// Written to LLMPROF_KEEP_SPOOL as well if that is set: so tests/golden/inputs/streams.spool was made.
TEST(Recorded, StepsOfStreamsEventsAndAGraphComeBack) {
  const TemporaryFolder folder;
  const std::string path = folder.path() + "/1-1.spool";
  constexpr int kSteps = 12;
  {
    Writer writer;
    ASSERT_TRUE(writer.open(path.c_str(), "target"));
    Program program(writer);
    int64_t host = 1'000'000;
    for (int s = 0; s < kSteps; ++s) host = program.step(host, 3'000 * (s % 5)) + 15'000;
    writer.close();
  }
  if (const char* keep = std::getenv("LLMPROF_KEEP_SPOOL"))
    std::filesystem::copy_file(path, keep, std::filesystem::copy_options::overwrite_existing);
  Result<Trace> trace = import_files({path});
  ASSERT_TRUE(trace) << trace.error().text();
  ASSERT_TRUE(derive(*trace));
  EXPECT_EQ(lacking(*trace), "");
  const std::vector<StepTime> steps = replay_steps(*trace);
  ASSERT_EQ(steps.size(), static_cast<size_t>(kSteps));
  for (size_t i = 0; i < steps.size(); ++i) {
    const int64_t longer_ns = 3'000 * static_cast<int64_t>(i % 5);
    EXPECT_EQ(steps[i].replayed_ns, steps[i].recorded_ns) << i;
    EXPECT_EQ(steps[i].path_ns[static_cast<size_t>(PathPart::kGpuWork)], 20'000 + 80'000 + longer_ns + 10'000 + 40'000);
    EXPECT_EQ(steps[i].path_ns[static_cast<size_t>(PathPart::kUnexplained)], 0);
  }
}

}  // namespace
}  // namespace llmprof::replay
