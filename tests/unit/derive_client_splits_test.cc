// Requests of a client beside steps of a GPU: which are split, and how far clocks may differ. Times in ns are small, so
// that every answer can be counted.
#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <vector>

#include "derive/client_clocks.h"
#include "derive/derive.h"
#include "trace/trace_builder.h"

namespace llmprof {
namespace {

constexpr int64_t kBase = 1'700'000'000'000'000'000;

struct PlantedStep {
  StageKind kind;
  int64_t start, gpu_start, gpu_end, end;
};
struct PlantedRequest {
  int64_t sent, first, end;
};

Trace beside(const std::vector<PlantedStep>& steps, const std::vector<PlantedRequest>& requests, StageSource source,
             int64_t from, int64_t to) {
  Trace trace;
  trace.base_unix_ns = kBase;
  TraceBuilder builder(trace);
  for (const PlantedStep& step : steps) {
    trace.steps.append({.kind = step.kind,
                        .source = source,
                        .device = 0,
                        .start_ns = step.start,
                        .end_ns = step.end,
                        .gpu_start_ns = step.gpu_start,
                        .gpu_end_ns = step.gpu_end});
    trace.busy_intervals.append({.device = 0, .start_ns = step.gpu_start, .end_ns = step.gpu_end});
  }
  const StringId file = builder.text("client.jsonl");
  for (const PlantedRequest& request : requests) {
    const ClientRequestId row = builder.add<ClientRequests>({.output_tokens = 2, .source = file});
    builder.add<ClientMoments>({.request = row,
                                .sent_unix_ns = kBase + request.sent,
                                .first_unix_ns = kBase + request.first,
                                .end_unix_ns = kBase + request.end});
  }
  trace.windows.push_back({0, from, to});
  return trace;
}

TEST(ClientClocks, BoundedByTheStepThatIsWaitedFor) {
  // A prompt on the GPU from 10 to 20; the request waited from 5 to 30: ahead by 10, its output comes when the step
  // ends, behind by 5, it is sent when the step begins.
  const std::vector<PlantedStep> steps = {{StageKind::kPrefill, 8, 10, 20, 22}};
  Trace named = beside(steps, {{5, 30, 40}}, StageSource::kAnnotation, 0, 100);
  const std::vector<ClientClock> clocks = client_clocks(named);
  ASSERT_EQ(clocks.size(), 1U);
  EXPECT_EQ(clocks[0].why, "");
  EXPECT_EQ(clocks[0].least_ns, std::optional<int64_t>(-5));
  // By 6 more the wait would begin before anything was recorded, so nothing is said of more.
  EXPECT_EQ(clocks[0].most_ns, std::nullopt);
  Trace longer = beside(steps, {{5, 30, 40}}, StageSource::kAnnotation, -1000, 100);
  EXPECT_EQ(client_clocks(longer)[0].most_ns, std::optional<int64_t>(10));
  // Of a detected step only the start counts.
  Trace detected = beside(steps, {{5, 30, 40}}, StageSource::kDetected, -1000, 100);
  EXPECT_EQ(client_clocks(detected)[0].most_ns, std::optional<int64_t>(20));
  EXPECT_EQ(client_clocks(detected)[0].least_ns, std::optional<int64_t>(-5));
}

TEST(ClientClocks, ApartByTheLeastThatFits) {
  Trace trace = beside({{StageKind::kPrefill, 108, 110, 120, 122}}, {{112, 140, 150}}, StageSource::kNvtx, 0, 1000);
  const std::vector<ClientClock> clocks = client_clocks(trace);
  EXPECT_EQ(clocks[0].apart_ns, 2);  // sent at 110
  EXPECT_NE(clocks[0].why, "");
  split_client_times(trace);
  EXPECT_TRUE(trace.client_splits.empty());
}

TEST(ClientClocks, DecodeStepsBoundNothingWherePromptsAreNamed) {
  const std::vector<PlantedStep> steps = {{StageKind::kPrefill, 0, 10, 20, 20}, {StageKind::kDecode, 20, 30, 40, 40}};
  EXPECT_NE(client_clocks(beside(steps, {{25, 60, 60}}, StageSource::kAnnotation, 0, 100))[0].apart_ns, 0);
  EXPECT_EQ(client_clocks(beside(steps, {{25, 60, 60}}, StageSource::kDetected, 0, 100))[0].apart_ns, 0);
}

TEST(ClientSplits, EveryPartOnce) {
  Trace trace = beside({{StageKind::kDecode, 0, 2, 10, 12},
                        {StageKind::kPrefill, 20, 23, 40, 41},
                        {StageKind::kDecode, 41, 44, 50, 52},
                        {StageKind::kMixed, 52, 53, 60, 63}},
                       {{5, 45, 70}, {5, 5, 5}, {90, 120, 130}}, StageSource::kDetected, 0, 100);
  split_client_times(trace);
  const ClientSplits& rows = trace.client_splits;
  ASSERT_EQ(rows.size(), 3U);
  EXPECT_EQ(rows.wait_queue_ns[0], 5);     // 5 to 10, of a step that began at 2
  EXPECT_EQ(rows.wait_prefill_ns[0], 17);  // 23 to 40
  EXPECT_EQ(rows.wait_decode_ns[0], 1);    // 44 to 45
  EXPECT_EQ(rows.wait_mixed_ns[0] + rows.wait_other_ns[0], 0);
  EXPECT_EQ(rows.wait_host_ns[0], 2 + 3 + 1 + 3);
  EXPECT_EQ(rows.wait_gap_ns[0], 8);  // 12 to 20
  EXPECT_EQ(rows.wait_ns[0], 40);
  EXPECT_EQ(rows.out_decode_ns[0], 5);
  EXPECT_EQ(rows.out_mixed_ns[0], 7);
  EXPECT_EQ(rows.out_host_ns[0], 2 + 1 + 3);
  EXPECT_EQ(rows.out_gap_ns[0], 7);
  EXPECT_EQ(rows.others[0], 1);
  EXPECT_EQ(trace.text(rows.why[2]), "outside");
  EXPECT_EQ(rows.wait_ns[2], -1);
  EXPECT_EQ(rows.out_ns[2], -1);
}

TEST(ClientSplits, NothingOverTimeThatWasNotRecorded) {
  Trace trace = beside({{StageKind::kPrefill, 10, 10, 20, 20}, {StageKind::kPrefill, 80, 80, 90, 90}},
                       {{5, 25, 28}, {5, 25, 60}, {25, 95, 96}}, StageSource::kDetected, 0, 100);
  trace.recorded.append({.start_ns = 0, .dur_ns = 30, .level = RecordingLevel::kDefault});
  trace.recorded.append({.start_ns = 30, .dur_ns = 40, .level = RecordingLevel::kLight});
  trace.recorded.append({.start_ns = 70, .dur_ns = 30, .level = RecordingLevel::kDefault});
  split_client_times(trace);
  const ClientSplits& rows = trace.client_splits;
  ASSERT_EQ(rows.size(), 3U);
  EXPECT_EQ(trace.text(rows.why[0]), "");
  EXPECT_EQ(rows.wait_ns[1], 20);
  EXPECT_EQ(rows.out_ns[1], -1);
  EXPECT_EQ(trace.text(rows.why[1]), "not-recorded");
  EXPECT_EQ(rows.wait_ns[2], -1);
  EXPECT_EQ(rows.out_ns[2], 1);
}

TEST(ClientSplits, OfOneGpuAndAKnownTimeAlone) {
  const std::vector<PlantedStep> steps = {{StageKind::kPrefill, 10, 10, 20, 20}};
  Trace none = beside(steps, {{5, 25, 28}}, StageSource::kDetected, 0, 100);
  none.base_unix_ns = 0;
  split_client_times(none);
  EXPECT_TRUE(none.client_splits.empty());
  EXPECT_NE(client_clocks(none)[0].why.find("when it was made"), std::string::npos);
  Trace two = beside(steps, {{5, 25, 28}}, StageSource::kDetected, 0, 100);
  two.steps.append(
      {.kind = StageKind::kPrefill, .device = 1, .start_ns = 10, .end_ns = 20, .gpu_start_ns = 10, .gpu_end_ns = 20});
  split_client_times(two);
  EXPECT_TRUE(two.client_splits.empty());
  EXPECT_NE(client_clocks(two)[0].why.find("several GPUs"), std::string::npos);
}

}  // namespace
}  // namespace llmprof
