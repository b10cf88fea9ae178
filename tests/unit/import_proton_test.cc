// Forms, numbers and damage of what Triton's Proton writes.
#include <gtest/gtest.h>

#include <string>
#include <string_view>

#include "import/proton.h"

namespace llmprof {
namespace {

struct ReadProton {
  Trace trace{};
  bool fine = false;
  std::string problem{};
};

ReadProton read_proton(std::string_view text) {
  ReadProton out;
  Result<InputFile> input = InputFile::from_memory(text, "dir/x.hatchet");
  EXPECT_TRUE(input);
  const Status status = proton::import(*input, out.trace);
  out.fine = static_cast<bool>(status);
  if (!status) out.problem = status.error().text();
  return out;
}

std::string leaf(const std::string& name, const std::string& metrics) {
  return R"j({"children":[],"frame":{"name":")j" + name + R"j(","type":"function"},"metrics":{)j" + metrics + "}}";
}

TEST(Proton, SniffsTrees) {
  EXPECT_GT(proton::sniff("\n[\n    {\n        \"children\": [],\n \"frame\": {\n \"name\": \"ROOT\""), 90);
  EXPECT_GT(proton::sniff("[{\"frame\": {\"name\": \"ROOT\"}, \"metrics\""), 90);
  EXPECT_GT(proton::sniff("[{\"children\": [ {\"children\": [ {"), 0);
  for (const char* other : {"", "[", "[{", "[{}]", "{\"children\": [{\"children\"", "[{\"ph\": \"X\"}]",
                            "[{\"children\": 3}]", "[{\"name\": \"frame\"}]", "[{\"children\": [{\"name\": 3}]}]"})
    EXPECT_EQ(proton::sniff(other), 0) << other;
}

TEST(Proton, ReadsNodesInTheOrderOfTheTree) {
  const ReadProton got = read_proton(
      R"j([{"children":[{"children":[)j" +
      leaf("k", R"j("count":10,"time (ns)":204800,"device_id":"1","device_type":"CUDA","flops8":1e11,"bytes":7)j") +
      R"j(],"frame":{"name":"scope"},"metrics":{"flops":2}},)j" + leaf("m", R"j("count":1,"time (ns)":3)j") +
      R"j(],"frame":{"name":"ROOT"},"metrics":{"count":0,"time (ns)":0,"bytes":0}},)j"
      R"j({"CUDA":{"1":{"arch":"90","bus_width":6144,"clock_rate":1980000,"memory_clock_rate":0,"num_sms":132}}}])j");
  ASSERT_TRUE(got.fine);
  const ProtonNodes& nodes = got.trace.proton_nodes;
  ASSERT_EQ(nodes.size(), 4U);
  EXPECT_EQ(got.trace.text(nodes.source[0]), "x.hatchet");
  const char* const names[] = {"ROOT", "scope", "k", "m"};
  for (Row row = 0; row < 4; ++row) EXPECT_EQ(got.trace.text(nodes.name[row]), names[row]);
  EXPECT_TRUE(nodes.parent[0] == kNoRow);
  EXPECT_EQ(Row{nodes.parent[1]}, 0U);
  EXPECT_EQ(Row{nodes.parent[2]}, 1U);
  EXPECT_EQ(Row{nodes.parent[3]}, 0U);
  EXPECT_EQ(nodes.own_ns, (std::vector<int64_t>{-1, -1, 204'800, 3}));
  EXPECT_EQ(nodes.launches, (std::vector<int64_t>{-1, -1, 10, 1}));
  EXPECT_EQ(got.trace.text(nodes.gpu[2]), "CUDA 1");
  EXPECT_EQ(got.trace.text(nodes.gpu[3]), "");
  EXPECT_EQ(got.trace.proton_metrics.value, (std::vector<double>{2, 1e11, 7}));  // not the root's 0
  const ProtonGpus& gpus = got.trace.proton_gpus;
  ASSERT_EQ(gpus.size(), 1U);
  EXPECT_EQ(gpus.sms[0], 132);
  EXPECT_EQ(gpus.memory_clock_khz[0], -1);  // 0: not known
  EXPECT_EQ(got.trace.diagnostics.total(), 0U);
}

TEST(Proton, ReadsKernelNamesAsInTheSource) {
  std::string many = "_Z1fI";
  for (int i = 0; i < 13; ++i) many += "S_";
  const ReadProton got =
      read_proton("[{\"children\":[" + leaf("_ZN1a1bIfEEvT_", R"j("count":1,"time (ns)":3)j") + "," +
                  leaf(many, R"j("count":1,"time (ns)":3)j") + "],\"frame\":{\"name\":\"ROOT\"},\"metrics\":{}}]");
  ASSERT_TRUE(got.fine);
  EXPECT_EQ(got.trace.text(got.trace.proton_nodes.name[1]), "void a::b<float>(float)");
  EXPECT_EQ(got.trace.text(got.trace.proton_nodes.name[2]), many);
}

TEST(Proton, KeepsWhatIsBeforeTheDamage) {
  const ReadProton cut = read_proton("[{\"children\":[" + leaf("k", R"j("count":1,"time (ns)":3)j") + ",{\"chil");
  ASSERT_TRUE(cut.fine);
  EXPECT_EQ(cut.trace.proton_nodes.size(), 3U);
  EXPECT_EQ(cut.trace.diagnostics.count(DiagnosticId::kTruncatedFile), 1U);
  // Work without its time, or launches without either, would make rates that no kernel has.
  const ReadProton metrics =
      read_proton("[{\"children\":[" + leaf("k", R"j("count":1,"time (ns)":3)j") +
                  R"j(,{"children":[],"frame":{"name":"m"},"metrics":{"bytes":5,"count":7,"time (ns)":9,"flops)j");
  ASSERT_TRUE(metrics.fine);
  EXPECT_EQ(metrics.trace.proton_nodes.own_ns, (std::vector<int64_t>{-1, 3, -1}));
  EXPECT_TRUE(metrics.trace.proton_metrics.empty());
  std::string deep = "[";
  for (int level = 0; level < 3000; ++level) deep += "{\"children\":[";
  const ReadProton deeper = read_proton(deep);
  EXPECT_FALSE(deeper.fine);
  EXPECT_EQ(deeper.trace.diagnostics.count(DiagnosticId::kLimitReached), 1U);
  for (const char* nothing :
       {"{}", "[]", "[{}]", "[{\"children\":[],\"frame\":{\"name\":\"ROOT\"},\"metrics\":{}},{}]"}) {
    const ReadProton got = read_proton(nothing);
    EXPECT_FALSE(got.fine) << nothing;
    EXPECT_NE(got.problem.find("x.hatchet"), std::string::npos);
  }
}

using namespace std::string_literals;

// A short text of MessagePack.
std::string word(std::string_view text) {
  return std::string(1, static_cast<char>(0xa0 | text.size())) + std::string(text);
}

const std::string kNoChildren = word("children") + "\x90";

std::string packed_kernel() {
  return "\x83" + word("frame") + "\x82" + word("name") + "\xd9\x22" + "kernel_of_a_name_longer_than_31___" +
         word("type") + word("function") + word("metrics") + "\x85" + word("count") + "\x0a" + word("time (ns)") +
         "\xce\x00\x03\x20\x00"s + word("device_id") + word("1") + word("device_type") + word("CUDA") + word("flops8") +
         "\xcb\x42\x37\x48\x76\xe8\x00\x00\x00"s + kNoChildren;
}

// As Proton writes it: a root with a kernel, whose name is longer than a short text, and a scope; behind it the GPU.
std::string packed_tree() {
  return "\x92\x83" + word("frame") + "\x81" + word("name") + word("ROOT") + word("metrics") + "\x81" + word("count") +
         "\x00"s + word("children") + "\x92" + packed_kernel() + "\x83" + word("frame") + "\x81" + word("name") +
         word("scope") + word("metrics") + "\x80" + kNoChildren + "\x81" + word("CUDA") + "\x81" + word("1") + "\x82" +
         word("arch") + word("90") + word("num_sms") + "\xcc\x84";
}

TEST(Proton, ReadsMessagePack) {
  const std::string tree = packed_tree();
  EXPECT_GT(proton::sniff(tree), 90);
  const ReadProton got = read_proton(tree);
  ASSERT_TRUE(got.fine) << got.problem;
  const ProtonNodes& nodes = got.trace.proton_nodes;
  ASSERT_EQ(nodes.size(), 3U);
  EXPECT_EQ(got.trace.text(nodes.name[0]), "ROOT");
  EXPECT_EQ(got.trace.text(nodes.name[1]), "kernel_of_a_name_longer_than_31___");
  EXPECT_EQ(got.trace.text(nodes.name[2]), "scope");
  EXPECT_EQ(nodes.own_ns, (std::vector<int64_t>{-1, 204'800, -1}));
  EXPECT_EQ(nodes.launches, (std::vector<int64_t>{-1, 10, -1}));
  EXPECT_EQ(Row{nodes.parent[1]}, 0U);
  EXPECT_EQ(Row{nodes.parent[2]}, 0U);
  EXPECT_EQ(got.trace.text(nodes.gpu[1]), "CUDA 1");
  EXPECT_EQ(got.trace.proton_metrics.value, (std::vector<double>{1e11}));
  ASSERT_EQ(got.trace.proton_gpus.size(), 1U);
  EXPECT_EQ(got.trace.proton_gpus.sms[0], 132);
  EXPECT_EQ(got.trace.diagnostics.total(), 0U);
}

TEST(Proton, ReadsMessagePackThatIsCutAnywhere) {
  const std::string tree = packed_tree();
  const size_t kernel_end = tree.find(packed_kernel()) + packed_kernel().size();
  for (size_t bytes = 1; bytes < tree.size(); ++bytes) {
    const ReadProton got = read_proton(std::string_view(tree).substr(0, bytes));
    EXPECT_EQ(got.trace.diagnostics.count(DiagnosticId::kTruncatedFile), 1U) << bytes;
    EXPECT_EQ(got.trace.diagnostics.total(), 1U) << bytes;
    // A kernel whose metrics are not whole has no time.
    const bool whole = bytes >= kernel_end - kNoChildren.size();
    EXPECT_EQ(got.fine, whole) << bytes;
    if (whole) {
      EXPECT_EQ(got.trace.proton_nodes.own_ns[1], 204'800) << bytes;
    } else {
      EXPECT_NE(got.problem.find("reading ends at byte "), std::string::npos) << got.problem;
    }
  }
}

TEST(Proton, SniffsMessagePack) {
  const std::string frame = word("frame"), name = word("name"), children = word("children");
  EXPECT_GT(proton::sniff("\x91\x81" + children + "\x91\x82" + children + "\x90" + frame + "\x81" + name), 90);
  for (const std::string& other :
       {"\x92"s, "\x92\x83"s, "\x92\x05"s, "\x92\x83" + frame, "\x92\x83" + frame + name, "\x91\x81" + name + word("a"),
        "\x92\x83" + frame + "\x81" + word("type") + name, "\x91\x91\x81" + frame + "\x81" + name + word("a"),
        "\x90\xc1"s, "\xdd\xff\xff\xff\xff"s})
    EXPECT_EQ(proton::sniff(other), 0) << other.size();
}

TEST(Proton, LeavesOutWhatIsNoAmount) {
  const ReadProton got = read_proton(
      "[{\"children\":[" +
      leaf("k", R"j("count":1,"time (ns)":3,"bytes":-5,"flops16":Infinity,"mine":-5,"text":"a","list":[1])j") +
      "],\"frame\":{\"name\":\"ROOT\"},\"metrics\":{}}]");
  ASSERT_TRUE(got.fine);
  EXPECT_EQ(got.trace.proton_metrics.value, (std::vector<double>{-5}));
  EXPECT_EQ(got.trace.diagnostics.count(DiagnosticId::kBadNumber), 2U);
}

}  // namespace
}  // namespace llmprof
