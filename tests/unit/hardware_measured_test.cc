#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "hardware/measured.h"
#include "temporary_folder.h"

namespace llmprof {
namespace {

namespace fs = std::filesystem;

MeasuredCeilings some_ceilings() {
  MeasuredCeilings c;
  c.device_key = "GPU-5c0e";
  c.name = "NVIDIA \"H200\"";
  c.uuid = "GPU-5c0e";
  c.driver = "580.1";
  c.tool_version = "1.2.3";
  c.unix_s = 1'700'000'000;
  c.cache_bytes = 52'428'800;
  c.library_tflops["bf16"] = {788.25, "8192x8192x8192, cuBLASLt #3", 0.004, 1755, 690};
  c.unit_tflops["bf16"] = {950, "registers", 0.001, {}, {}};
  c.bandwidth_gbs["read"] = {4100.5, "4 GB", 0.002, {}, 500};
  c.bandwidth_gbs["copy"] = {4300, "4 GB", 0.002, {}, 500};
  c.bandwidth_gbs["cache_read"] = {9700, "32 MB", 0.01, {}, {}};
  c.latency_us["launch_eager"] = {2.5, "", 0.1, {}, {}};
  c.recorder_ns["launch_0k"] = {3300, 4200.5, 3700, -13, 120};
  return c;
}

class Measured : public testing::Test {
 protected:
  std::string file(const std::string& text) const {
    const std::string path = folder_ + "/file.json";
    std::ofstream(path) << text;
    return path;
  }
  std::string good_text() const {
    const std::string path = folder_ + "/good.json";
    EXPECT_TRUE(write_ceilings(path, some_ceilings()).has_value());
    std::stringstream text;
    text << std::ifstream(path).rdbuf();
    return text.str();
  }
  const TemporaryFolder temporary_;
  const std::string folder_ = temporary_.path();
};

// Files of versions that did not measure what recording costs are read; what is no cost is refused.
TEST_F(Measured, CostsOfTheRecorderMayBeMissing) {
  std::string text = good_text();
  const size_t from = text.find("\"recorder_ns\""), to = text.find('}', text.find('}', from) + 1);
  ASSERT_NE(to, std::string::npos);
  const size_t comma = text.rfind(',', from);
  std::string without = text;
  without.erase(comma, to + 1 - comma);
  const Result<MeasuredCeilings> read = read_ceilings(file(without));
  ASSERT_TRUE(read.has_value()) << read.error().text();
  EXPECT_TRUE(read->recorder_ns.empty());
  std::string negative = text;
  negative.replace(negative.find("3300"), 4, "-300");
  EXPECT_FALSE(read_ceilings(file(negative)).has_value());
  MeasuredCeilings now = some_ceilings();
  now.recorder_ns.clear();
  EXPECT_EQ(merge_ceilings(some_ceilings(), now).ceilings.recorder_ns.size(), 1U);
  MeasuredCeilings costs_alone;
  costs_alone.recorder_ns = some_ceilings().recorder_ns;
  EXPECT_FALSE(has_rates(costs_alone));
  EXPECT_TRUE(has_rates(some_ceilings()));
}

TEST_F(Measured, RoundTrip) {
  const std::string path = folder_ + "/new/folders/key.json";
  const MeasuredCeilings wrote = some_ceilings();
  ASSERT_TRUE(write_ceilings(path, wrote).has_value());
  const Result<MeasuredCeilings> read = read_ceilings(path);
  ASSERT_TRUE(read.has_value()) << read.error().text();
  EXPECT_EQ(read->device_key, wrote.device_key);
  ASSERT_EQ(read->recorder_ns.size(), 1U);
  EXPECT_EQ(read->recorder_ns.at("launch_0k").recorded_ns, 4200.5);
  EXPECT_EQ(read->recorder_ns.at("launch_0k").between_ns, -13);
  EXPECT_EQ(read->name, wrote.name);
  EXPECT_EQ(read->driver, wrote.driver);
  EXPECT_EQ(read->tool_version, wrote.tool_version);
  EXPECT_EQ(read->unix_s, wrote.unix_s);
  EXPECT_EQ(read->cache_bytes.value_or(0), wrote.cache_bytes.value_or(0));
  ASSERT_EQ(read->bandwidth_gbs.size(), 3U);
  ASSERT_EQ(read->library_tflops.count("bf16"), 1U);
  const MeasuredRate &a = read->library_tflops.at("bf16"), &b = wrote.library_tflops.at("bf16");
  EXPECT_EQ(a.value, b.value);
  EXPECT_EQ(a.how, b.how);
  EXPECT_EQ(a.iqr_frac, b.iqr_frac);
  EXPECT_EQ(a.clock_mhz, b.clock_mhz);
  EXPECT_EQ(a.power_w, b.power_w);
  EXPECT_FALSE(read->unit_tflops.at("bf16").clock_mhz.has_value()) << "unknown stays unknown";
  EXPECT_EQ(read->latency_us.at("launch_eager").value, 2.5);
}

TEST_F(Measured, WhatWasDisturbedIsKeptAndSaid) {
  MeasuredCeilings c = some_ceilings();
  EXPECT_FALSE(disturbed_remark(c).has_value());
  c.latency_us["launch_eager"].disturbed = true;
  EXPECT_FALSE(disturbed_remark(c).has_value()) << "nothing is held against it";
  c.library_tflops["bf16"].disturbed = c.unit_tflops["bf16"].disturbed = c.bandwidth_gbs["read"].disturbed = true;
  const Result<MeasuredCeilings> read = parse_ceilings(ceilings_text(c), "file.json");
  ASSERT_TRUE(read.has_value());
  EXPECT_EQ(*disturbed_remark(*read),
            "bf16, read: the measured ceilings may be too low (measured while disturbed: repeat `llmprof peaks`)");
}

TEST_F(Measured, UnknownIsNullInTheFile) {
  EXPECT_NE(good_text().find("\"clock_mhz\": null"), std::string::npos) << good_text();
}

TEST_F(Measured, WritesBesideAndRenames) {
  const std::string path = folder_ + "/key.json";
  ASSERT_TRUE(write_ceilings(path, some_ceilings()).has_value());
  MeasuredCeilings later = some_ceilings();
  later.unix_s = 5;
  ASSERT_TRUE(write_ceilings(path, later).has_value());
  EXPECT_EQ(read_ceilings(path)->unix_s, 5);
  size_t files = 0;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder_)) files += entry.is_regular_file();
  EXPECT_EQ(files, 1U) << "nothing is left beside it";
}

TEST_F(Measured, TheCeilingIsTheHighestOfMemoryAndNotOfTheCache) {
  MeasuredCeilings c = some_ceilings();
  EXPECT_EQ(memory_ceiling(c)->value, 4300);
  EXPECT_NEAR(*measured_ridge(c, "bf16"), 788.25e12 / 4300e9, 1e-9);
  EXPECT_FALSE(measured_ridge(c, "fp8").has_value());
  c.bandwidth_gbs.erase("read");
  c.bandwidth_gbs.erase("copy");
  EXPECT_FALSE(memory_ceiling(c).has_value());
  EXPECT_FALSE(measured_ridge(c, "bf16").has_value());
}

TEST_F(Measured, AMixOfReadsAndWritesHasACeilingOfItsOwn) {
  MeasuredCeilings c;
  EXPECT_FALSE(memory_ceiling_for(c.bandwidth_gbs, 0.5).has_value());
  c.bandwidth_gbs["read"] = {4584, "", 0, 0, 0};
  EXPECT_EQ(*memory_ceiling_for(c.bandwidth_gbs, 0.5), 4584) << "all there is";
  c.bandwidth_gbs["copy"] = {4204, "", 0, 0, 0};
  EXPECT_EQ(*memory_ceiling_for(c.bandwidth_gbs, 0), 4584);
  EXPECT_NEAR(*memory_ceiling_for(c.bandwidth_gbs, 0.25), (4584 + 4204) / 2.0, 1e-9);
  EXPECT_EQ(*memory_ceiling_for(c.bandwidth_gbs, 0.8), 4204) << "the nearest, beyond what was measured";
  c.bandwidth_gbs["triad"] = {4359, "", 0, 0, 0};
  c.bandwidth_gbs["write"] = {4683, "", 0, 0, 0};
  EXPECT_EQ(*memory_ceiling_for(c.bandwidth_gbs, 0.5), 4204);
  EXPECT_NEAR(*memory_ceiling_for(c.bandwidth_gbs, 1.0 / 3), 4359, 1e-6);
  EXPECT_NEAR(*memory_ceiling_for(c.bandwidth_gbs, 0.75), (4204 + 4683) / 2.0, 1e-9);
  EXPECT_EQ(*memory_ceiling_for(c.bandwidth_gbs, 1), 4683);
  EXPECT_EQ(memory_ceiling(c)->value, 4683) << "the ridge stays on the highest";
  c.bandwidth_gbs["read"] = {2000, "", 0, 0, 0, false, true};
  EXPECT_EQ(*memory_ceiling_for(c.bandwidth_gbs, 0), 4683) << "a disturbed one is no ceiling";
  EXPECT_EQ(*memory_ceiling_for(c.bandwidth_gbs, 0.5), 4204);
}

TEST_F(Measured, AQuickLookDoesNotReplaceAFullMeasurement) {
  const MeasuredCeilings full = some_ceilings();
  MeasuredCeilings quick = full;
  quick.library_tflops["bf16"] = {700, "8192x8192x8192", 0.1, 0, 0, true};
  quick.library_tflops["fp8"] = {1300, "8192x8192x8192", 0.1, 0, 0, true};
  quick.bandwidth_gbs.erase("copy");
  const MergedCeilings merged = merge_ceilings(full, quick);
  EXPECT_EQ(merged.ceilings.library_tflops.at("bf16").value, 788.25);
  EXPECT_EQ(merged.ceilings.library_tflops.at("fp8").value, 1300);
  EXPECT_EQ(merged.ceilings.bandwidth_gbs.at("copy").value, 4300) << "not measured this time";
  EXPECT_EQ(merged.fuller, 1);
  EXPECT_EQ(merge_ceilings(quick, full).ceilings.library_tflops.at("bf16").value, 788.25);
  EXPECT_EQ(merge_ceilings(quick, full).fuller, 0);
  quick.driver = "590.1";
  EXPECT_EQ(merge_ceilings(full, quick).ceilings.library_tflops.at("bf16").value, 700) << "another driver";
  EXPECT_EQ(merge_ceilings(full, quick).ceilings.bandwidth_gbs.count("copy"), 0U);
  // And the file knows which is which.
  const std::string path = folder_ + "/quick.json";
  ASSERT_TRUE(write_ceilings(path, quick).has_value());
  EXPECT_TRUE(read_ceilings(path)->library_tflops.at("fp8").quick);
  EXPECT_FALSE(read_ceilings(path)->bandwidth_gbs.at("read").quick);
}

TEST_F(Measured, DamagedAndForeignFilesSayWhatIsWrong) {
  const std::string good = good_text();
  const auto error_of = [this](const std::string& text) {
    const Result<MeasuredCeilings> read = read_ceilings(file(text));
    EXPECT_FALSE(read.has_value()) << text;
    return read ? std::string() : read.error().text();
  };
  const auto replaced = [&good](const std::string& from, const std::string& to) {
    std::string text = good;
    const size_t at = text.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    return text.replace(at, from.size(), to);
  };
  EXPECT_NE(error_of("").find("an empty file"), std::string::npos);
  EXPECT_NE(error_of("hello").find("no JSON"), std::string::npos);
  EXPECT_NE(error_of("[1, 2]").find("without a schema"), std::string::npos);
  EXPECT_NE(error_of("{}").find("without a schema"), std::string::npos);
  EXPECT_NE(error_of(replaced("ceilings/1", "ceilings/9")).find("schema \"llmprof.ceilings/9\""), std::string::npos);
  EXPECT_NE(error_of(replaced("\"uuid\"", "\"uid\"")).find("no text \"uuid\""), std::string::npos);
  EXPECT_NE(error_of(replaced("1700000000", "\"then\"")).find("unix_s"), std::string::npos);
  EXPECT_NE(error_of(replaced("\"bandwidth_gbs\"", "\"bandwidth\"")).find("no object \"bandwidth_gbs\""),
            std::string::npos);
  for (const char* bad : {"-4300", "0", "\"fast\"", "null", "{}"})
    EXPECT_NE(error_of(replaced("4300", bad)).find("\"copy\" without a value above 0"), std::string::npos) << bad;
}

TEST_F(Measured, AFileCutAnywhereIsAnErrorAndNamesTheFile) {
  const std::string good = good_text();
  for (size_t length = 0; length + 2 < good.size(); length += 7) {
    const Result<MeasuredCeilings> read = read_ceilings(file(good.substr(0, length)));
    ASSERT_FALSE(read.has_value()) << length;
    EXPECT_NE(read.error().text().find("file.json"), std::string::npos);
    EXPECT_NE(read.error().text().find("llmprof peaks"), std::string::npos);
  }
}

TEST_F(Measured, FilesThatAreTooLargeOrMissing) {
  const Result<MeasuredCeilings> large = read_ceilings(file(std::string(2 << 20, ' ')));
  ASSERT_FALSE(large.has_value());
  EXPECT_NE(large.error().what.find("over 1 MiB"), std::string::npos);
  const Result<MeasuredCeilings> missing = read_ceilings(folder_ + "/none.json");
  ASSERT_FALSE(missing.has_value());
  EXPECT_NE(missing.error().what.find("No such file"), std::string::npos);
  EXPECT_FALSE(read_ceilings(folder_).has_value()) << "a folder";
}

TEST_F(Measured, WhereNothingCanBeWrittenSaysWhatToDo) {
  std::ofstream(folder_ + "/plain") << "a file";
  const Status status = write_ceilings(folder_ + "/plain/ceilings/key.json", some_ceilings());
  ASSERT_FALSE(status.has_value());
  EXPECT_NE(status.error().text().find("LLMPROF_HOME"), std::string::npos) << status.error().text();
  fs::create_directory(folder_ + "/key.json");
  fs::create_directory(folder_ + "/key.json/inside");
  const Status folder = write_ceilings(folder_ + "/key.json", some_ceilings());
  ASSERT_FALSE(folder.has_value());
  EXPECT_NE(folder.error().text().find("--no-store"), std::string::npos);
  size_t files = 0;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder_)) files += entry.is_regular_file();
  EXPECT_EQ(files, 1U) << "the attempt is removed";
  if (geteuid() == 0) return;  // nothing is read-only for root
  fs::permissions(folder_, fs::perms::owner_read | fs::perms::owner_exec);
  EXPECT_FALSE(write_ceilings(folder_ + "/new.json", some_ceilings()).has_value());
}

TEST_F(Measured, PathsFollowTheEnvironmentAndKeysStayInTheFolder) {
  const auto set = [](const char* name, const char* value) {
    if (value != nullptr) {
      setenv(name, value, 1);
    } else {
      unsetenv(name);
    }
  };
  set("LLMPROF_HOME", "/h");
  EXPECT_EQ(ceilings_path("GPU-1"), "/h/ceilings/GPU-1.json");
  EXPECT_EQ(ceilings_path("../../etc/x y"), "/h/ceilings/______etc_x_y.json");
  EXPECT_LT(ceilings_path(std::string(5000, 'a')).size(), 255U);
  set("LLMPROF_HOME", nullptr);
  set("XDG_STATE_HOME", "/s");
  EXPECT_EQ(ceilings_path("k"), "/s/llmprof/ceilings/k.json");
  set("XDG_STATE_HOME", nullptr);
  set("HOME", "/home/u");
  EXPECT_EQ(ceilings_path("k"), "/home/u/.local/state/llmprof/ceilings/k.json");
}

// A ceiling is the most that can be reached: other programs can keep a CPU from it, and never bring it above.
TEST_F(Measured, ABadFirstRunOnABusyCpuDoesNotStay) {
  MeasuredCeilings bad, good;
  bad.device_key = good.device_key = "amd-epyc-2-threads";
  bad.library_tflops["fp32"] = {0.2, "4096", 0.4, 0, 0, false, true};
  bad.bandwidth_gbs["read"] = {9, "", 0.4, 0, 0, false, true};
  bad.latency_us["fork_join"] = {4, "", 0.4, 0, 0, false, true};
  good.library_tflops["fp32"] = {0.5, "4096", 0.1, 0, 0, true, false};  // by a quick look
  good.bandwidth_gbs["read"] = {19, "", 0.1, 0, 0, true, true};
  good.latency_us["fork_join"] = {1, "", 0.1, 0, 0, true, true};
  for (const auto& [before, now] : {std::pair(&bad, &good), std::pair(&good, &bad)}) {
    const MergedCeilings merged = merge_ceilings(*before, *now);
    EXPECT_EQ(merged.ceilings.library_tflops.at("fp32").value, 0.5);
    EXPECT_EQ(merged.ceilings.bandwidth_gbs.at("read").value, 19);
    EXPECT_EQ(merged.ceilings.latency_us.at("fork_join").value, 1);
    EXPECT_EQ(merged.better, now == &bad ? 3 : 0);
    EXPECT_EQ(merged.fuller, 0);
  }
  // What is worse on a machine that nobody else used is how the machine is now.
  MeasuredCeilings quiet = good;
  quiet.library_tflops["fp32"] = {0.4, "4096", 0.1, 0, 0, false, false};
  EXPECT_EQ(merge_ceilings(good, quiet).ceilings.library_tflops.at("fp32").value, 0.4);
  // Of a GPU the newer full measurement counts, as before.
  MeasuredCeilings gpu = bad;
  gpu.uuid = "GPU-1";
  EXPECT_EQ(merge_ceilings(good, gpu).ceilings.library_tflops.at("fp32").value, 0.2);
  const std::string path = folder_ + "/busy.json";
  ASSERT_TRUE(write_ceilings(path, bad).has_value());
  EXPECT_TRUE(read_ceilings(path)->library_tflops.at("fp32").disturbed);
}

}  // namespace
}  // namespace llmprof
