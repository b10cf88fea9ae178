// A packed timeline, read back by a decoder of its own, against the recording.
#include <gtest/gtest.h>
#include <simdjson.h>

#include <algorithm>
#include <limits>
#include <map>
#include <numeric>
#include <string>
#include <tuple>
#include <vector>

#include "analyze/timeline_choice.h"
#include "derive_trace_builder.h"
#include "import/importer.h"
#include "report/timeline_data.h"

namespace llmprof {
namespace {

struct ReadSlice {
  int64_t start_ns = 0, dur_ns = 0;
  std::string name, detail, tint;
  uint64_t depth = 0;
  int64_t flow = -1;
};
struct ReadTrack {
  std::string name, group, kind;
  size_t first = 0, count = 0;
};

// By docs/formats/page-timeline.md alone.
class ReadTimeline {
 public:
  explicit ReadTimeline(const std::string& bytes) {
    EXPECT_EQ(bytes.substr(0, 8), "LPTIME1\n");
    size_t length = 0;
    for (size_t i = 0; i < 4; ++i) length |= size_t{static_cast<unsigned char>(bytes[8 + i])} << (8 * i);
    json_ = bytes.substr(12, length);
    header = parser_.parse(json_).value();
    body_ = bytes.substr(12 + length);
    for (const auto group : header["groups"]) groups_.emplace_back(group.get_string().value());
    texts_.emplace_back();
    for (const auto text : header["texts"]) texts_.emplace_back(text.get_string().value());
    read_slices();
  }

  // Slices of the first track of that kind and name.
  std::vector<ReadSlice> of(const std::string& kind, const std::string& name = {}) const {
    for (const ReadTrack& track : tracks)
      if (track.kind == kind && (name.empty() || track.name == name))
        return {slices.begin() + static_cast<ptrdiff_t>(track.first),
                slices.begin() + static_cast<ptrdiff_t>(track.first + track.count)};
    return {};
  }
  std::vector<uint64_t> column(std::string_view name) const {
    for (const auto one : header["columns"]) {
      if (one["name"].get_string().value() != name) continue;
      const size_t width = one["width"].get_uint64().value(), count = one["bytes"].get_uint64().value() / width;
      std::vector<uint64_t> out(count, 0);
      const size_t offset = one["offset"].get_uint64().value();
      for (size_t plane = 0; plane < width; ++plane)
        for (size_t i = 0; i < count; ++i)
          out[i] |= uint64_t{static_cast<unsigned char>(body_[offset + plane * count + i])} << (8 * plane);
      return out;
    }
    ADD_FAILURE() << "no column " << name;
    return {};
  }

  simdjson::dom::element header;
  std::vector<ReadTrack> tracks;
  std::vector<ReadSlice> slices;

 private:
  void read_slices() {
    const std::vector<uint64_t> start = column("start"), dur = column("dur"), name = column("name"),
                                detail = column("detail"), depth = column("depth"), tint = column("tint"),
                                flow = column("flow");
    std::vector<std::string> tints;
    for (const auto one : header["tints"]) tints.emplace_back(one.get_string().value());
    for (const auto track : header["tracks"]) {
      ReadTrack& out = tracks.emplace_back();
      out.name = track["name"].get_string().value();
      out.group = groups_.at(track["group"].get_uint64().value());
      out.kind = track["kind"].get_string().value();
      out.first = track["first"].get_uint64().value();
      out.count = track["count"].get_uint64().value();
      int64_t time = 0, target = 0;
      for (size_t i = out.first; i < out.first + out.count; ++i) {
        ReadSlice& slice = slices.emplace_back();
        time += static_cast<int64_t>(start[i]);
        slice.start_ns = time;
        slice.dur_ns = static_cast<int64_t>(dur[i]);
        slice.name = texts_.at(name[i]);
        slice.detail = texts_.at(detail[i]);
        slice.tint = tints.at(tint[i]);
        slice.depth = depth[i];
        if (flow[i] == 0) continue;
        const uint64_t code = flow[i] - 1;
        target += static_cast<int64_t>(code >> 1) ^ -static_cast<int64_t>(code & 1);
        slice.flow = target;
      }
    }
    EXPECT_EQ(slices.size(), header["slices"].get_uint64().value());
  }

  simdjson::dom::parser parser_;
  std::string json_, body_;
  std::vector<std::string> groups_, texts_;
};

ReadTimeline packed(const Trace& trace, size_t most = 1'500'000) {
  TimelineChoice choice = choose_timeline(trace);
  choice.slices_most = most;
  return ReadTimeline(pack_timeline(trace, choice));
}

TestTrace small_steps(int count) {
  TestTrace b;
  for (int s = 0; s < count; ++s) {
    const int64_t at = 1'000'000 + s * 200'000;
    b.annotation("decode", at, 100'000 + s * 1'000);
    const uint64_t op = b.op("aten::mm", at + 1'000, 20'000);
    b.op("aten::resize_", at + 2'000, 1'000);
    b.launch("gemm", at + 5'000, at + 10'000, 30'000, op);
    b.gpu("Memcpy DtoH (Device -> Pageable)", at + 41'000, 2'000, b.api("cudaMemcpyAsync", at + 30'000, 14'000));
    b.api("cudaStreamSynchronize", at + 50'000, 10'000);
  }
  return b;
}

TEST(TimelineData, TimesNestingAndFlowsComeBack) {
  TestTrace b = small_steps(3);
  const Trace& trace = b.derive_all();
  const ReadTimeline read = packed(trace);
  const int64_t origin = 1'000'000;
  const std::vector<ReadSlice> kernels = read.of("stream"), calls = read.of("calls"), ops = read.of("operators");
  ASSERT_EQ(kernels.size(), trace.gpu_ops.size());
  for (Row op = 0; op < trace.gpu_ops.size(); ++op) {
    EXPECT_EQ(kernels[op].start_ns + origin, trace.gpu_ops.start_ns[op]);
    EXPECT_EQ(kernels[op].dur_ns, trace.gpu_ops.dur_ns[op]);
    EXPECT_EQ(kernels[op].name, trace.text(trace.gpu_ops.name[op]));
    EXPECT_EQ(kernels[op].tint, category_name(trace.gpu_links.category[op]));
    ASSERT_GE(kernels[op].flow, 0);
    const ReadSlice& call = read.slices[static_cast<size_t>(kernels[op].flow)];
    EXPECT_EQ(call.start_ns + origin, trace.api_calls.start_ns[trace.gpu_links.api[op]]);
    EXPECT_EQ(call.name, op % 2 == 0 ? "cudaLaunchKernel" : "cudaMemcpyAsync");
  }
  ASSERT_EQ(calls.size(), 9U);
  EXPECT_EQ(calls[0].tint, "launch");
  EXPECT_EQ(calls[1].tint, "copy-call");
  EXPECT_EQ(calls[2].tint, "wait");
  ASSERT_EQ(ops.size(), 6U);
  EXPECT_EQ(ops[0].name, "aten::mm");
  EXPECT_EQ(ops[0].depth, 0U);
  EXPECT_EQ(ops[1].name, "aten::resize_");
  EXPECT_EQ(ops[1].depth, 1U);
  EXPECT_EQ(ops[2].depth, 0U);
  EXPECT_EQ(read.of("ranges").size(), 3U);
}

TEST(TimelineData, StagesNameTheirMedianAndSlowestStep) {
  TestTrace b = small_steps(5);
  const Trace& trace = b.derive_all();
  const ReadTimeline read = packed(trace);
  const std::vector<ReadSlice> steps = read.of("stages");
  ASSERT_EQ(steps.size(), trace.steps.size());
  ASSERT_EQ(read.header["stages"].get_array().size(), 1U);
  const simdjson::dom::element stage = read.header["stages"].at(0);
  std::vector<int64_t> lengths;
  for (const ReadSlice& step : steps) lengths.push_back(step.dur_ns);
  std::sort(lengths.begin(), lengths.end());
  const auto length = [&](const char* which) {
    return stage[which]["end_ns"].get_int64().value() - stage[which]["start_ns"].get_int64().value();
  };
  EXPECT_EQ(length("median"), lengths[2]);
  EXPECT_EQ(length("slowest"), lengths[4]);
  // The path of both fills their windows, piece by piece, and leads to what it lies on.
  const std::vector<ReadSlice> path = read.of("path");
  int64_t in_median = 0;
  for (const ReadSlice& piece : path) {
    const int64_t from = stage["median"]["start_ns"].get_int64().value();
    if (piece.start_ns >= from && piece.start_ns < from + length("median")) in_median += piece.dur_ns;
    if (piece.name == "GPU work") {
      const ReadSlice& kernel = read.slices.at(static_cast<size_t>(piece.flow));
      EXPECT_EQ(std::tie(kernel.start_ns, kernel.dur_ns), std::tie(piece.start_ns, piece.dur_ns));
    }
  }
  EXPECT_EQ(in_median, length("median"));
}

TEST(TimelineData, WaitsLeadToTheLastActivityThatTheyWaitedFor) {
  TestTrace b;
  const StreamId side = b.stream(0, 13);
  // Two kernels on stream 7, of which the second ends last, and one on stream 13 that ends behind all.
  b.gpu("first", 5'000, 20'000, b.api("cudaLaunchKernel", 1'000, 100));
  b.gpu("second", 26'000, 10'000, b.api("cudaLaunchKernel", 2'000, 100));
  b.gpu("beside", 6'000, 60'000, b.api("cudaLaunchKernel", 3'000, 100), side);
  // A stream that is made to wait for an event behind "second", which a wait of the host ends on, too.
  b.api("cudaEventRecord", 4'000, 100);
  b.names(0, 77);
  const uint64_t stream_wait = b.api("cudaStreamWaitEvent", 4'500, 100);
  b.names(side, 77);
  b.api("cudaEventSynchronize", 8'000, 30'000);
  b.names(StreamId(kNoRow), 77);
  // Of stream 7 everything has ended.
  b.api("cudaStreamSynchronize", 40'000, 1'000);
  b.names(0);
  b.api("cudaStreamSynchronize", 42'000, 26'000);
  b.names(side);
  TraceBuilder(b.trace).add<SyncEvents>({.start_ns = 26'000,
                                         .dur_ns = 10'000,
                                         .device = 0,
                                         .stream = 13,
                                         .name = b.trace.strings.intern("Stream Wait Event"),
                                         .correlation = stream_wait});
  const ReadTimeline read = packed(b.derive_all());
  const auto waited_for = [&](const ReadSlice& wait) {
    return wait.flow < 0 ? std::string("nothing") : read.slices.at(static_cast<size_t>(wait.flow)).name;
  };
  const std::vector<ReadSlice> calls = read.of("calls"), waits = read.of("waits");
  ASSERT_EQ(calls.size(), 8U);
  for (size_t launch = 0; launch < 4; ++launch) EXPECT_EQ(waited_for(calls[launch]), "nothing") << launch;
  EXPECT_EQ(waited_for(calls[4]), "second");  // cudaStreamWaitEvent
  EXPECT_EQ(waited_for(calls[5]), "second");  // cudaEventSynchronize
  EXPECT_EQ(waited_for(calls[6]), "second");  // had ended before
  EXPECT_EQ(waited_for(calls[7]), "beside");
  ASSERT_EQ(waits.size(), 1U);
  EXPECT_EQ(waited_for(waits[0]), "second");
}

TEST(TimelineData, AWaitThatReturnsBeforeTheActivityEndsDidNotWaitForIt) {
  TestTrace b;
  b.launch("early", 1'000, 5'000, 2'000);
  b.launch("late", 3'000, 10'000, 50'000);
  b.api("cudaStreamSynchronize", 6'000, 3'000);  // of which stream is not recorded
  const ReadTimeline read = packed(b.derive_all());
  const std::vector<ReadSlice> calls = read.of("calls");
  ASSERT_EQ(calls.size(), 3U);
  EXPECT_EQ(calls[2].flow, -1);
}

TEST(TimelineData, ActivitiesThatOverlapOnAStreamLieInLanes) {
  TestTrace b;
  b.gpu("gemm", 0, 100);
  b.gpu("attn", 50, 100);
  b.gpu("softmax", 120, 10);
  b.gpu("gemm", 150, 10);
  const std::vector<ReadSlice> kernels = packed(b.derive_all()).of("stream");
  ASSERT_EQ(kernels.size(), 4U);
  EXPECT_EQ(kernels[0].depth, 0U);
  EXPECT_EQ(kernels[1].depth, 1U);
  EXPECT_EQ(kernels[2].depth, 0U);
  EXPECT_EQ(kernels[3].depth, 0U);
}

TEST(TimelineData, NamesOfAnyKindStayNames) {
  TestTrace b;
  const std::string hostile[] = {"</script><script>alert(1)</script>", "a\"b\\c\n\t", "\xff\xfe",
                                 std::string("nul\0x", 5), "\u202egnp.exe"};
  for (size_t i = 0; i < std::size(hostile); ++i) b.gpu(hostile[i], static_cast<int64_t>(i) * 100, 50);
  const std::vector<ReadSlice> kernels = packed(b.derive_all()).of("stream");
  ASSERT_EQ(kernels.size(), std::size(hostile));
  for (const size_t i : {0, 1, 3, 4}) EXPECT_EQ(kernels[i].name, hostile[i]);
  EXPECT_EQ(kernels[2].name, "\uFFFD\uFFFD");
}

TEST(TimelineData, CountersKeepTheirValuesToOneIn65534) {
  TestTrace b = small_steps(2);
  TraceBuilder rows(b.trace);
  for (int i = 0; i < 50; ++i) {
    const int64_t gap = i >= 25 ? 1'000'000 : 0;  // nothing is known in between
    rows.add<GpuSamples>({.start_ns = 1'000'000 + gap + i * 1'000,
                          .dur_ns = 1'000,
                          .device = 0,
                          .source = CounterSource::kPmSampling,
                          .dram_active_frac = static_cast<float>(i) / 100});
  }
  const ReadTimeline read = packed(b.derive_all());
  ASSERT_EQ(read.header["counters"].get_array().size(), 1U);
  const simdjson::dom::element counter = read.header["counters"].at(0);
  EXPECT_EQ(counter["name"].get_string().value(), "DRAM traffic");
  EXPECT_EQ(counter["high"].get_double().value(), 100);
  const std::vector<uint64_t> times = read.column("counter_time"), values = read.column("counter_value");
  ASSERT_EQ(values.size(), 52U);
  int64_t time = 0;
  size_t sample = 0;
  for (size_t i = 0; i < values.size(); ++i) {
    time += static_cast<int64_t>(times[i]);
    if (i == 25 || i == 51) {
      EXPECT_EQ(values[i], 65535U) << i;
      continue;
    }
    EXPECT_NEAR(static_cast<double>(values[i]) / 65534 * 100, static_cast<double>(sample), 0.01);
    EXPECT_EQ(time, static_cast<int64_t>(sample * 1'000 + (sample >= 25 ? 1'000'000 : 0)));
    ++sample;
  }
}

// GPM's long intervals lie beside those of PM sampling for as long as the program runs.
TEST(TimelineData, ACounterOfTwoSourcesIsThatOfTheShorterIntervals) {
  TestTrace b = small_steps(2);
  TraceBuilder rows(b.trace);
  constexpr float kNone = std::numeric_limits<float>::quiet_NaN();
  for (int i = 0; i < 2; ++i)
    rows.add<GpuSamples>({.start_ns = i * 100'000,
                          .dur_ns = 100'000,
                          .device = 0,
                          .source = CounterSource::kGpm,
                          .sm_active_frac = 0.9F,
                          .nvlink_rx_bytes_per_s = 5e9F});
  for (int i = 0; i < 50; ++i)
    rows.add<GpuSamples>({.start_ns = 20'000 + i * 1'000,
                          .dur_ns = 1'000,
                          .device = 0,
                          .source = CounterSource::kPmSampling,
                          .sm_active_frac = 0.1F,
                          .nvlink_rx_bytes_per_s = kNone});
  const ReadTimeline read = packed(b.derive_all());
  std::map<std::string, uint64_t> samples;
  for (const simdjson::dom::element counter : read.header["counters"].get_array())
    samples[std::string(counter["name"].get_string().value())] = counter["count"].get_uint64().value();
  EXPECT_EQ(samples["SMs active"], 51U) << "and the end of the last";
  EXPECT_EQ(samples["NVLink received"], 3U) << "GPM alone has it";
}

TEST(TimelineData, ShortSlicesAreMergedWhereThereAreTooMany) {
  TestTrace b = small_steps(400);
  const Trace& trace = b.derive_all();
  const ReadTimeline whole = packed(trace), merged = packed(trace, 600);
  EXPECT_TRUE(whole.header["merged"].is_null());
  EXPECT_LE(merged.slices.size(), 600U);
  const uint64_t count = merged.header["merged"]["slices"].get_uint64().value();
  uint64_t named = 0, summaries = 0;
  for (const ReadSlice& slice : merged.slices) {
    if (slice.tint != "merged") continue;
    ++summaries;
    named += std::stoull(slice.name.substr(1));
  }
  EXPECT_EQ(named, count);
  EXPECT_EQ(merged.slices.size() - summaries + count, whole.slices.size());
  // What is shown first is as it was.
  const simdjson::dom::element step = whole.header["stages"].at(0)["median"];
  const int64_t from = step["start_ns"].get_int64().value(), to = step["end_ns"].get_int64().value();
  const auto within = [&](const ReadTimeline& timeline) {
    std::vector<std::tuple<int64_t, int64_t, std::string>> out;
    for (const ReadSlice& slice : timeline.slices)
      if (slice.start_ns >= from && slice.start_ns < to) out.emplace_back(slice.start_ns, slice.dur_ns, slice.name);
    return out;
  };
  EXPECT_EQ(within(whole), within(merged));
  // No slice reaches over the next of its depth, and flows end at slices.
  for (const ReadTrack& track : merged.tracks) {
    std::map<uint64_t, int64_t> until;
    for (size_t i = track.first; i < track.first + track.count; ++i) {
      const ReadSlice& slice = merged.slices[i];
      EXPECT_LT(slice.flow, static_cast<int64_t>(merged.slices.size()));
      const auto before = until.find(slice.depth);
      EXPECT_TRUE(before == until.end() || before->second <= slice.start_ns) << track.name;
      until[slice.depth] = slice.start_ns + slice.dur_ns;
    }
  }
}

TEST(TimelineData, NothingToShowIsNoTimeline) {
  TestTrace b;
  EXPECT_EQ(pack_timeline(b.derive_all(), {}), "");
}

TEST(TimelineData, ReadingsAloneAreATimeline) {
  TestTrace b;
  for (int i = 0; i < 10; ++i)
    TraceBuilder(b.trace).add<NvmlSamples>(
        {.time_ns = i * 1'000'000'000LL, .device = 0, .power_w = 100.0F + static_cast<float>(i)});
  const ReadTimeline read = packed(b.derive_all());
  EXPECT_EQ(read.slices.size(), 0U);
  EXPECT_EQ(read.header["duration_ns"].get_int64().value(), 9'000'000'000);
  EXPECT_EQ(read.header["counters"].at(0)["name"].get_string().value(), "Power");
}

TEST(TimelineData, ARealRecordingComesBackWhole) {
  Result<Trace> trace =
      import_files({std::string(LLMPROF_TEST_DATA) + "/golden/inputs/kineto_qwen2.5-0.5b_memory_stack.json.gz"});
  ASSERT_TRUE(trace) << trace.error().text();
  ASSERT_TRUE(derive(*trace));
  const ReadTimeline read = packed(*trace);
  std::map<std::string, size_t> counts;
  std::map<std::string, int64_t> sums;
  for (const ReadTrack& track : read.tracks) {
    for (size_t i = track.first; i < track.first + track.count; ++i) {
      ++counts[track.kind];
      sums[track.kind] += read.slices[i].dur_ns;
    }
  }
  const auto sum = [](const auto& values) { return std::accumulate(values.begin(), values.end(), int64_t{0}); };
  EXPECT_EQ(counts["stream"], trace->gpu_ops.size());
  EXPECT_EQ(sums["stream"], sum(trace->gpu_ops.dur_ns));
  EXPECT_EQ(counts["operators"], trace->ops.size());
  EXPECT_EQ(sums["operators"], sum(trace->ops.dur_ns));
  EXPECT_EQ(counts["python"], trace->python_calls.size());
  EXPECT_GT(counts["python"], 0U);
  EXPECT_EQ(counts["calls"], trace->api_calls.size());
  EXPECT_EQ(counts["ranges"], trace->annotations.size());
  EXPECT_EQ(counts["idle"], trace->gaps.size());
  EXPECT_GT(counts["path"], 0U);
}

}  // namespace
}  // namespace llmprof
