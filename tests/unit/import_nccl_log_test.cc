// Forms, numbers and damage of NCCL's log.
#include <gtest/gtest.h>

#include <string>

#include "import/nccl_log.h"

namespace llmprof {
namespace {

Trace read_nccl(const std::string& text) {
  Trace trace;
  Result<InputFile> input = InputFile::from_memory(text, "nccl.log");
  EXPECT_TRUE(input && nccl_log::import(*input, trace));
  return trace;
}

// "communicator: from -> to side path xchannels", one a line.
std::string links_of(const Trace& trace) {
  const LoggedLinks& rows = trace.logged_links;
  std::string out;
  for (Row row = 0; row < rows.size(); ++row)
    out += std::string(trace.text(rows.communicator[row])) + ": " + std::to_string(rows.from_rank[row]) + " -> " +
           std::to_string(rows.to_rank[row]) + " " + std::string(trace.text(rows.side[row])) + " " +
           std::string(trace.text(rows.path[row])) + " x" + std::to_string(rows.channels[row]) + "\n";
  return out;
}

TEST(NcclLog, OldAndNewConnections) {
  const Trace trace = read_nccl(
      "h:1:2 [0] NCCL INFO Ring 00 : 0[0] -> 1[1] via P2P/direct pointer\n"
      "h:1:2 [0] NCCL INFO Channel 00/0 : 0[1b000] -> 1[1c000] via P2P/IPC/read\n"
      "h:1:2 [0] NCCL INFO Channel 01/0 : 0[1b000] -> 1[1c000] via P2P/IPC/read\n"
      "h:1:2 [0] NCCL INFO Channel 01/0 : 0[1b000] -> 1[1c000] via P2P/IPC/read\n"
      "h:1:2 [0] NCCL INFO Channel 00 : 0   1\n");
  EXPECT_EQ(links_of(trace),
            ": 0 -> 1 send P2P/IPC/read x2\n"
            ": 0 -> 1 send P2P/direct pointer x1\n");
  EXPECT_EQ(trace.diagnostics.total(), 0u);
}

TEST(NcclLog, ConnectionsOfSeveralCommunicatorsGoByRank) {
  const Trace trace = read_nccl(
      "h:1:2 [0] NCCL INFO comm 0xa rank 3 nranks 4 cudaDev 0 busId 1b000 commId 0xaa - Init COMPLETE\n"
      "h:1:2 [0] NCCL INFO comm 0xb rank 0 nranks 2 cudaDev 0 busId 1b000 commId 0xbb - Init COMPLETE\n"
      "h:1:2 [0] NCCL INFO Channel 00/0 : 3[0] -> 2[1] via P2P/CUMEM\n"
      "h:1:2 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via SHM/direct/direct\n"
      "h:1:2 [0] NCCL INFO Channel 00/0 : 1[1] -> 0[0] [receive] via NET/Socket/0\n"
      "h:1:2 [0] NCCL INFO Channel 00/0 : 7[1] -> 6[0] via P2P/CUMEM\n");
  EXPECT_EQ(links_of(trace),
            ": 7 -> 6 send P2P/CUMEM x1\n"
            "0xaa: 3 -> 2 send P2P/CUMEM x1\n"
            "0xbb: 0 -> 1 send SHM/direct/direct x1\n"
            "0xbb: 1 -> 0 receive NET/Socket/0 x1\n");
  EXPECT_EQ(trace.logged_ranks.size(), 2u);
}

TEST(NcclLog, DamageIsCounted) {
  const Trace trace = read_nccl(
      "NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM\n"                                       // of nobody
      "prefix NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM\n"                                // no host
      "h:1:2 [0] NCCL INFO Channel 00/0 : x -> 1[1] via P2P/CUMEM\n"                                // no rank
      "h:1:2 [0] NCCL INFO comm 0xa rank 4 nranks 4 cudaDev 0 busId 1b000 - Init COMPLETE\n"        // no such rank
      "h:1:2 [0] NCCL INFO AllReduce: opCount 0 sendbuff 0x1 recvbuff 0x1 count 9 datatype 7 op\n"  // incomplete
      "h:1:2 [0] NCCL INFO AllReduce: opCount 0 count 9 datatype 77 comm 0xa [nranks=2] stream 0x1\n"
      "h:1:2 [0] NCCL INFO AllReduce: opCount 0 count 9000000000000000000 datatype 4 comm 0xa [nranks=2]\n" +
      std::string(20000, 'x') + " NCCL INFO y\n" +
      "h:1:2 [0] NCCL INFO Send: opCount 0 count 9 datatype 7 op 0 root 1 comm 0xa [nranks=2] stream 0x1\n"
      "h:1:2 [0] NCCL INFO Recv: opCount 0 count 9 datatype 7 op 0 root 1 comm 0xa [nranks=2] str");
  ASSERT_EQ(trace.logged_collectives.size(), 1u);
  EXPECT_EQ(trace.text(trace.logged_collectives.operation[0]), "Send");
  EXPECT_EQ(trace.logged_collectives.bytes[0], 36);
  EXPECT_EQ(trace.logged_ranks.size() + trace.logged_links.size() + trace.logged_warnings.size(), 0u);
  EXPECT_EQ(trace.diagnostics.count(DiagnosticId::kCutRecord), 4u);
  EXPECT_EQ(trace.diagnostics.count(DiagnosticId::kUnknownCategory), 1u);
  EXPECT_EQ(trace.diagnostics.count(DiagnosticId::kBadNumber), 1u);
  EXPECT_EQ(trace.diagnostics.count(DiagnosticId::kTruncatedFile), 1u);
}

TEST(NcclLog, Sniff) {
  EXPECT_EQ(nccl_log::sniff("h:1:2 [0] NCCL INFO Bootstrap : Using eth0\n"), 60);
  EXPECT_EQ(nccl_log::sniff("loading\n[1,0]<stdout>:h:1:2 [0] NCCL INFO Bootstrap\n"), 60);
  EXPECT_EQ(nccl_log::sniff("the line NCCL INFO says\n"), 0);
  EXPECT_EQ(nccl_log::sniff(""), 0);
  Trace trace;
  Result<InputFile> input = InputFile::from_memory("h:1:2 [0] NCCL INFO Bootstrap\n", "nccl.log");
  ASSERT_TRUE(input);
  EXPECT_FALSE(nccl_log::import(*input, trace));
}

}  // namespace
}  // namespace llmprof
