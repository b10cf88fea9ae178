#include <gtest/gtest.h>

#include <cstdio>

#include "derive/derive.h"
#include "import/importer.h"
#include "replay/replay.h"
namespace llmprof {
TEST(Replay, Try) {
  const char* file = std::getenv("REPLAY_FILE");
  if (!file) return;
  Result<Trace> trace = import_files({file});
  ASSERT_TRUE(trace);
  ASSERT_TRUE(derive(*trace, {}));
  for (const replay::StepTime& s : replay::replay_steps(*trace)) {
    std::printf("%s %u %s %.1f us -> %.1f us  %.3f %%:", std::string(trace->text(trace->steps.stage[s.step])).c_str(),
                static_cast<Row>(s.step), s.learned ? "learn" : "judge", static_cast<double>(s.recorded_ns) / 1e3,
                static_cast<double>(s.replayed_ns) / 1e3, 100 * s.error_frac());
    int64_t sum = 0;
    for (int64_t ns : s.path_ns) {
      std::printf(" %.1f", static_cast<double>(ns) / 1e3);
      sum += ns;
    }
    std::printf(" %s\n", sum == s.replayed_ns ? "" : "BAD SUM");
  }
}
}  // namespace llmprof
