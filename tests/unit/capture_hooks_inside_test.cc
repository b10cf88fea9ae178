// What only the inside of the injection library shows: the call that a graph node is captured under, also while nothing
// is recorded. The recorder works once in a process, so each test runs it in a child of its own.
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "capture/inject/inject.h"
#include "capture/inject/libraries/library_calls.h"
#include "capture/inject/threads/thread_log.h"
#include "capture_client.h"

namespace llmprof::test {
namespace {

// Runs `body` watched, in a child, and gives back its spool. The body's result is the exit code.
ClientRun run_inside(int (*body)()) {
  namespace fs = std::filesystem;
  std::string folder = (fs::temp_directory_path() / "llmprof_inside_XXXXXX").string();
  ClientRun run;
  if (mkdtemp(folder.data()) == nullptr) return run;
  fs::create_directory(folder + "/spool");
  pid_t child = fork();
  if (child == 0) {
    setenv("LLMPROF_SESSION", folder.c_str(), 1);
    setenv("LLMPROF_LEVEL", "light", 1);
    int code = inject::start() ? body() : 99;
    {
      inject::SpoolAccess access;
      if (access.writer() != nullptr) {
        inject::drain_thread_logs(*access.writer());
        access.writer()->flush();
      }
    }
    _exit(code);
  }
  int status = 0;
  waitpid(child, &status, 0);
  run.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder + "/spool")) {
    const std::string bytes = read_file(entry.path());
    ClientSpool& found = run.spools.emplace_back();
    found.summary = spool::read(bytes, found);
  }
  fs::remove_all(folder);
  return run;
}

inject::CallShape shape_of(int64_t m) {
  inject::CallShape shape;
  shape.function = "cublasGemmEx";
  shape.m = m;
  shape.n = 1;
  shape.k = 64;
  return shape;
}

uint64_t call(int64_t m, bool captured, bool succeeded) {
  inject::CallScope scope{shape_of(m)};
  uint64_t id = captured ? inject::current_library_call() : 0;
  scope.end(succeeded);
  return id;
}

void linear(int64_t rows, int64_t features) {
  inject::CallShape shape = shape_of(features);
  shape.n = rows;
  inject::CallScope scope{shape};
  scope.end(true);
}

TEST(GraphCapture, CallsThatWereCapturedAreKeptWhileNothingIsRecorded) {
  ClientRun run = run_inside([] {
    if (inject::current_library_call() != 0) return 1;
    inject::switches.level.store(spool::Level::kOff);
    call(10, false, true);
    uint64_t captured = call(20, true, true);
    if (captured == 0 || inject::current_library_call() != 0) return 2;
    inject::switches.level.store(spool::Level::kLight);
    call(30, false, true);
    call(40, false, false);  // refused
    return call(50, true, true) == captured ? 3 : 0;
  });
  ASSERT_EQ(run.exit_code, 0);
  ASSERT_EQ(run.spools.size(), 1u);
  const ClientSpool& spool = run.spools[0];
  std::vector<int64_t> rows;
  for (const spool::LibraryCall& found : spool.calls) {
    rows.push_back(spool.defs.at(found.def).m);
    EXPECT_GT(found.start_ns, 1'500'000'000'000'000'000);
    EXPECT_GE(found.end_ns, found.start_ns);
  }
  EXPECT_EQ(rows, (std::vector<int64_t>{20, 30, 50}));
}

TEST(GraphCapture, RecurringCallsGoOnWhileNothingIsRecorded) {
  ClientRun run = run_inside([] {
    inject::switches.level.store(spool::Level::kOff);
    for (int i = 0; i < 3; ++i) {
      call(1000, false, true);
      call(5, false, true);  // narrower: no call
    }
    return 0;
  });
  ASSERT_EQ(run.exit_code, 0);
  ASSERT_EQ(run.spools.size(), 1u);
  ASSERT_EQ(run.spools[0].recurring_calls.size(), 3u);
  EXPECT_EQ(run.spools[0].recurring_calls[0].key, run.spools[0].recurring_calls[2].key);
  EXPECT_LE(run.spools[0].recurring_calls[0].time_ns, run.spools[0].recurring_calls[2].time_ns);
  EXPECT_TRUE(run.spools[0].calls.empty());
}

// One to each call that ends a pass of the model, with the rows that tell a prompt from a token.
TEST(GraphCapture, ProductRowsOfPassesGoOnWhileNothingIsRecorded) {
  ClientRun run = run_inside([] {
    inject::switches.level.store(spool::Level::kOff);
    for (const int64_t rows : {30, 7, 7}) {
      call(3, false, false);  // refused
      linear(rows, 64);
      linear(rows, 128);
      linear(rows + 1, 4096);  // the widest
    }
    return 0;
  });
  ASSERT_EQ(run.exit_code, 0);
  ASSERT_EQ(run.spools.size(), 1u);
  const ClientSpool& spool = run.spools[0];
  std::vector<int64_t> rows;
  for (const spool::ProductRows& product : spool.product_rows) {
    rows.push_back(product.rows);
    EXPECT_GT(product.time_ns, 1'500'000'000'000'000'000);
  }
  // In the first pass each product is the widest so far; then one for the first product and one for other rows.
  EXPECT_EQ(rows, (std::vector<int64_t>{30, 30, 31, 7, 8, 7, 8}));
  ASSERT_EQ(spool.recurring_calls.size(), 5u);
  EXPECT_LE(spool.product_rows[3].time_ns, spool.recurring_calls[3].time_ns);
  EXPECT_LE(spool.recurring_calls[3].time_ns, spool.product_rows[5].time_ns);
}

// Where each expert has rows of its own the first few of a pass stand for all.
TEST(GraphCapture, ProductsOfManyRowsAreRecordedAFewTimesAPass) {
  ClientRun run = run_inside([] {
    inject::switches.level.store(spool::Level::kOff);
    for (int pass = 0; pass < 3; ++pass) {
      linear(1000, 4096);
      for (int expert = 0; expert < 40; ++expert) linear(100 + expert, 64);
    }
    return 0;
  });
  ASSERT_EQ(run.exit_code, 0);
  ASSERT_EQ(run.spools.size(), 1u);
  // The widest ends a pass: behind it eight of the next one, of which its own rows are none in the first.
  EXPECT_EQ(run.spools[0].recurring_calls.size(), 3u);
  EXPECT_EQ(run.spools[0].product_rows.size(), 1u + 3u * inject::kRowsMost);
  EXPECT_EQ(run.spools[0].product_rows[1].rows, 100);
}

TEST(CallDetail, IsCutToItsSpace) {
  inject::CallShape shape = shape_of(1);
  shape.groups = 12;
  shape.gemv = 1;
  char text[8];
  size_t length = inject::call_detail(shape, text, sizeof(text));
  EXPECT_EQ(length, 7u);
  EXPECT_EQ(std::string(text, length), "gemv, 1");
}

}  // namespace
}  // namespace llmprof::test
