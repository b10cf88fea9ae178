// Shapes of products where the injection library was not preloaded: they come from the log callbacks of look-alikes of
// cuBLAS and cuBLASLt, which print and format as the real ones do.
#include <gtest/gtest.h>

#include <set>

#include "capture_client.h"

namespace llmprof::test {
namespace {

namespace fs = std::filesystem;

struct Recorded : ClientSpool {
  using ClientSpool::operator();
  std::map<spool::Id, spool::KernelDef> kernel_defs;
  std::map<uint32_t, std::string> kernels;  // names by correlation id
  std::vector<spool::ApiCall> launches;
  std::vector<spool::GraphNode> nodes;
  void operator()(const spool::KernelDef& def) { kernel_defs[def.id] = def; }
  void operator()(const spool::Kernel& kernel) {
    kernels[kernel.correlation] = texts.at(kernel_defs.at(kernel.def).name);
  }
  void operator()(const spool::ApiCall& call) { launches.push_back(call); }
  void operator()(const spool::GraphNode& node) { nodes.push_back(node); }

  // What the report ties to a call: kernels whose launch began between its start and its end on its thread.
  std::vector<std::string> kernels_of(const spool::LibraryCall& call) const {
    std::vector<std::string> found;
    for (const spool::ApiCall& launch : launches) {
      if (launch.thread != call.thread || launch.start_ns < call.start_ns || launch.start_ns >= call.end_ns) continue;
      const auto kernel = kernels.find(launch.correlation);  // not every call launches one
      if (kernel != kernels.end()) found.push_back(kernel->second);
    }
    return found;
  }
  std::string function_of(const spool::LibraryCall& call) const { return texts.at(defs.at(call.def).function); }
  // How many notes say `part`.
  int noted(const std::string& part) const {
    int count = 0;
    for (const spool::Note& note : notes)
      count += texts.at(note.key) == "recorder-note" && texts.at(note.text).find(part) != std::string::npos;
    return count;
  }
};

struct LogRun {
  int exit_code = -1;
  std::string output;  // of stdout and stderr
  std::vector<Recorded> spools;
  const Recorded& only() const { return spools.at(0); }
};

// Runs cuda_client, which opens the injection library as the CUDA driver does.
LogRun run_logged(const std::string& actions, const std::string& environment = "") {
  std::string folder = (fs::temp_directory_path() / "llmprof_logs_XXXXXX").string();
  LogRun run;
  if (mkdtemp(folder.data()) == nullptr) return run;
  fs::create_directory(folder + "/spool");
  const std::string fakes = (build_folder() / "fakes").string();
  const std::string library = (build_folder() / "lib/libllmprof_inject.so").string();
  const std::string line = "env -u LD_PRELOAD LLMPROF_SESSION=" + folder + " LLMPROF_CUPTI=" + fakes +
                           "/hooks/libcupti.so.13 CUDA_INJECTION64_PATH=" + library + " " + environment + " " + fakes +
                           "/cuda_client " + actions + " 2>&1";
  if (FILE* pipe = popen(line.c_str(), "r")) {
    char buffer[4096];
    while (size_t size = fread(buffer, 1, sizeof(buffer), pipe)) run.output.append(buffer, size);
    const int status = pclose(pipe);
    run.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }
  for (const fs::directory_entry& entry : fs::directory_iterator(folder + "/spool")) {
    const std::string bytes = read_file(entry.path());
    Recorded& found = run.spools.emplace_back();
    found.summary = spool::read(bytes, found);
  }
  fs::remove_all(folder);
  return run;
}

TEST(LibraryLogs, AProductOfCublasIsOneCallWithItsKernels) {
  const LogRun run = run_logged("cublas gemm=50");
  EXPECT_EQ(run.exit_code, 0);
  EXPECT_EQ(run.output, "") << "nothing that the libraries log may be printed";
  ASSERT_EQ(run.spools.size(), 1U);
  const Recorded& spool = run.only();
  ASSERT_EQ(spool.kernels.size(), 150U);
  ASSERT_EQ(spool.calls.size(), 50U) << "one of cuBLAS and one of cuBLASLt are one";
  std::set<uint64_t> ids;
  for (const spool::LibraryCall& call : spool.calls) {
    ids.insert(call.call);
    EXPECT_EQ(spool.kernels_of(call), (std::vector<std::string>{"nvjet_sm90_tst_64x8_64x16_4x1_v_bz_splitK_TNT",
                                                                "_ZN8cublasLt19splitKreduce_kernelILi32E"}));
  }
  EXPECT_EQ(ids.size(), 50U);
  const spool::LibraryDef& def = spool.defs.at(spool.calls[0].def);
  EXPECT_EQ(spool.texts.at(def.function), "cublasGemmEx");
  EXPECT_EQ(def.m, 4096);
  EXPECT_EQ(def.n, 7);
  EXPECT_EQ(def.k, 2048);
  EXPECT_EQ(def.batch, 1);
  EXPECT_EQ(def.type_a, 14);
  EXPECT_EQ(def.type_d, 14);
  EXPECT_EQ(def.compute_type, 68);
  EXPECT_EQ(def.transpose_a, 1);
  EXPECT_EQ(def.transpose_b, 0);
  EXPECT_EQ(spool.noted("libcublas.so.13, because the recorder was not preloaded"), 1);
  EXPECT_EQ(spool.noted("libcublasLt.so.13, because the recorder was not preloaded"), 1);
}

TEST(LibraryLogs, ProductsOfCublasLtAndThoseOnlyCublasTells) {
  const LogRun run = run_logged("cublas matmul=5 sgemv=4 matmul=3");
  EXPECT_EQ(run.output, "");
  const Recorded& spool = run.only();
  ASSERT_EQ(spool.calls.size(), 12U);
  for (size_t i = 0; i < 12; ++i) {
    const bool lt = i < 5 || i >= 9;
    EXPECT_EQ(spool.function_of(spool.calls[i]), lt ? "cublasLtMatmul" : "cublasSgemm");
    EXPECT_EQ(spool.kernels_of(spool.calls[i]).size(), 1U);
  }
  const spool::LibraryDef& lt = spool.defs.at(spool.calls[0].def);
  EXPECT_EQ(lt.m, 4096);
  EXPECT_EQ(lt.n, 16);
  EXPECT_EQ(lt.k, 1024);
  EXPECT_EQ(spool.texts.at(lt.epilogue), "GELU_BIAS");
  EXPECT_EQ(spool.texts.at(lt.detail), "A scale VEC128_32F, B scale VEC128_32F");
  EXPECT_EQ(spool.defs.at(spool.calls[6].def).compute_type, 77) << "TF32 by the mode of the handle";
}

TEST(LibraryLogs, LibrariesThatAreLoadedLaterAreFound) {
  const LogRun run = run_logged("launch=5 cublas sleep=700 gemm=5");
  EXPECT_EQ(run.exit_code, 0);
  EXPECT_EQ(run.only().calls.size(), 5U);
}

TEST(LibraryLogs, ThreadsThatEndWithAProduct) {
  const LogRun run = run_logged("cublas threads=20");
  EXPECT_EQ(run.only().calls.size(), 20U);
  for (const spool::LibraryCall& call : run.only().calls) EXPECT_EQ(run.only().kernels_of(call).size(), 1U);
}

TEST(LibraryLogs, NodesOfAGraphBelongToTheProductTheyWereCapturedUnder) {
  const LogRun run = run_logged("cublas shaped_graph");
  const Recorded& spool = run.only();
  ASSERT_EQ(spool.calls.size(), 1U) << "captured, not launched, and still wanted";
  EXPECT_EQ(spool.defs.at(spool.calls[0].def).m, 512);
  int captured = 0;
  for (const spool::GraphNode& node : spool.nodes) {
    if (node.original != 0) continue;
    ++captured;
    EXPECT_EQ(node.node, 1U) << "the node behind the next call of cuBLAS is not the product's";
    EXPECT_EQ(node.call, spool.calls[0].call);
  }
  EXPECT_EQ(captured, 1);
}

TEST(LibraryLogs, CublasIsGivenUpWhereCublasLtTellsAll) {
  const LogRun run = run_logged("cublas gemm=2500 sleep=500 gemm=5");
  const Recorded& spool = run.only();
  EXPECT_EQ(spool.noted("switched off after some time"), 1);
  ASSERT_EQ(spool.calls.size(), 2505U);
  EXPECT_EQ(spool.function_of(spool.calls.front()), "cublasGemmEx");
  EXPECT_EQ(spool.function_of(spool.calls.back()), "cublasLtTSTMatmul");
  EXPECT_EQ(spool.defs.at(spool.calls.back().def).k, 2048);
  EXPECT_EQ(spool.kernels_of(spool.calls.back()).size(), 2U);
}

TEST(LibraryLogs, NotInFrontOfWorkingHooks) {
  const std::string library = (build_folder() / "lib/libllmprof_inject.so").string();
  const LogRun run = run_logged("cublas gemm=5", "LD_PRELOAD=" + library);
  EXPECT_EQ(run.exit_code, 0);
  EXPECT_EQ(run.only().noted("not preloaded"), 0);
}

TEST(LibraryLogs, OnlyWhereKernelsAreRecorded) {
  const LogRun run = run_logged("cublas gemm=5", "LLMPROF_LEVEL=light");
  EXPECT_EQ(run.only().noted("not preloaded"), 0);
  EXPECT_TRUE(run.only().calls.empty());
}

TEST(LibraryLogs, CapturesAreWantedWhileNothingIsRecorded) {
  const LogRun run = run_logged("cublas gemm=5 shaped_graph gemm=5", "LLMPROF_CAPTURE_RANGE=never");
  const Recorded& spool = run.only();
  EXPECT_TRUE(spool.kernels.empty());
  ASSERT_EQ(spool.calls.size(), 1U);
  EXPECT_EQ(spool.defs.at(spool.calls[0].def).m, 512);
}

// Graphs begin unseen there, and one that was captured under CUPTI does not survive its leaving.
TEST(LibraryLogs, CuptiStaysWhereCapturesAreNotHooked) {
  const LogRun run = run_logged("launch=100 sleep=2200 launch=400 detached", "LLMPROF_UNRECORDED=auto");
  EXPECT_EQ(run.output, "detached 0\n");
}

TEST(LibraryLogs, ProductsInUnrecordedWindowsAreLeftOut) {
  const LogRun run = run_logged("cublas gemm=40 sleep=2500 gemm=5", "LLMPROF_UNRECORDED=auto");
  EXPECT_EQ(run.only().calls.size(), 40U) << "enough of them before the window";
}

TEST(LibraryLogs, TheUsersOwnLogStays) {
  const LogRun by_environment = run_logged("cublas gemm=5", "CUBLASLT_LOG_LEVEL=2 CUBLAS_LOGINFO_DBG=1");
  EXPECT_EQ(by_environment.only().noted("CUBLASLT_LOG_LEVEL is set"), 1);
  EXPECT_EQ(by_environment.only().noted("CUBLAS_LOGINFO_DBG is set"), 1);
  EXPECT_TRUE(by_environment.only().calls.empty());

  const LogRun by_call = run_logged("launch=1 cublas own sleep=700 sgemv=1");
  EXPECT_NE(by_call.output.find("the program's own log"), std::string::npos);
  EXPECT_EQ(by_call.only().noted("has a log callback of its own"), 1);
}

}  // namespace
}  // namespace llmprof::test
