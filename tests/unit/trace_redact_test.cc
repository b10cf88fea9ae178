// What --redact takes out of texts, and what it leaves.
#include <gtest/gtest.h>

#include "trace/redact.h"
#include "trace/trace_builder.h"

namespace llmprof {
namespace {

TEST(Redact, PathsKeepTheirLastName) {
  EXPECT_EQ(redacted("/home/ann/secret project/serve.py"), "secret project/serve.py") << "a blank ends a path";
  EXPECT_EQ(redacted("step (/home/ann/x/serve.py:12) < main (/home/ann/x/serve.py:40)"),
            "step (serve.py:12) < main (serve.py:40)");
  EXPECT_EQ(redacted("file \"/home/ann/a b/serve.py\" is open"), "file \"serve.py\" is open");
  EXPECT_EQ(redacted("--model=/models/llama/"), "--model=llama");
  EXPECT_EQ(redacted("~ann/x.json, ~/y.json"), "x.json, y.json");
  EXPECT_EQ(redacted("C:\\Users\\ann\\serve.py"), "serve.py");
  EXPECT_EQ(redacted("/opt/venv/lib/python3.12/site-packages/triton/compiler/compiler.py(1): compile"),
            "triton/compiler/compiler.py(1): compile");
  EXPECT_EQ(redacted("/"), "/");
}

TEST(Redact, WhatIsNoPathStays) {
  for (const char* text :
       {"torch/nn/modules/module.py(1501): _call_impl", "void at::native::(anonymous namespace)::kernel<float, 4>(int)",
        "1/2 of it", "tokens/s", "nvjet_sm90_tst_192x192_64x4_2x1_v_bz_coopB_TNN", "a / b", "12.8.1", "580.159.04",
        "GPU-0", "", "\xc3\xa9t\xc3\xa9/\xe6\x97\xa5"})
    EXPECT_EQ(redacted(text), text);
}

TEST(Redact, HostsAddressesAndUuids) {
  const std::vector<std::string> hosts = {"node17.example.org", "node17"};
  EXPECT_EQ(redacted("node17.example.org and node17, not node170 or xnode17", hosts),
            "[host] and [host], not node170 or xnode17");
  EXPECT_EQ(redacted("tcp 10.0.12.7:29500"), "tcp [address]:29500");
  EXPECT_EQ(redacted("1.2.3.4.5 is no address, 1234.1.1.1 neither"), "1.2.3.4.5 is no address, 1234.1.1.1 neither");
  EXPECT_EQ(redacted("GPU-d0833277-9272-9c1d-ac31-12b6bdb06dae"), "GPU-[uuid]");
  EXPECT_EQ(redacted("/mnt/node17/node17.json", hosts), "[host].json");
}

TEST(Redact, ATraceKeepsItsHandles) {
  Trace trace;
  TraceBuilder rows(trace);
  const StringId a = trace.strings.intern("f (/a/serve.py:1)"), b = trace.strings.intern("f (/b/serve.py:1)"),
                 kernel = trace.strings.intern("gemm");
  trace.diagnostics.add(DiagnosticId::kUnreadableFile, "/home/ann/spool/7");
  trace.metadata = {{"command_line", "python serve.py --key 123"}, {"host_name", "node17"}, {"cuda", "12.8"}};
  trace.source.files = {"runs/ann/recording", "/data/x.json"};
  redact(trace, std::vector<std::string>{"node17"});
  EXPECT_EQ(trace.text(a), "f (serve.py:1)");
  EXPECT_EQ(trace.text(b), "f (serve.py:1)");
  EXPECT_EQ(trace.text(kernel), "gemm");
  EXPECT_EQ(trace.strings.find("gemm"), kernel);
  EXPECT_EQ(trace.strings.find("f (/a/serve.py:1)"), StringId::kEmpty);
  EXPECT_EQ(trace.diagnostics.places(DiagnosticId::kUnreadableFile).front(), "7");
  EXPECT_EQ(trace.metadata["command_line"], "[arguments]");
  EXPECT_EQ(trace.metadata["host_name"], "[host]");
  EXPECT_EQ(trace.metadata["cuda"], "12.8");
  EXPECT_EQ(trace.source.files[0], "recording");
  EXPECT_EQ(trace.source.files[1], "x.json");
}

// Whichever table names them; and in every other text too.
TEST(Redact, HostsOfLogsAreHosts) {
  Trace trace;
  TraceBuilder rows(trace);
  rows.add<LoggedRanks>({.communicator = rows.text("0xaa"), .host = rows.text("node17")});
  rows.add<LoggedWarnings>({.host = rows.text("node18"), .text = rows.text("no route to node17, node18.local")});
  rows.add<InspectedOperations>({.host = rows.text("node19")});
  rows.add<InspectedOperations>({.host = rows.text("node19.example")});
  redact(trace, {});
  EXPECT_EQ(trace.text(trace.logged_ranks.host[0]), "[host]");
  EXPECT_EQ(trace.text(trace.logged_warnings.host[0]), "[host]");
  EXPECT_EQ(trace.text(trace.logged_warnings.text[0]), "no route to [host], [host].local");
  EXPECT_EQ(trace.text(trace.inspected_operations.host[0]), "[host]");
  EXPECT_EQ(trace.text(trace.inspected_operations.host[1]), "[host]");
  EXPECT_EQ(trace.text(trace.logged_ranks.communicator[0]), "0xaa");
}

}  // namespace
}  // namespace llmprof
