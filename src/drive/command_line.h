// Command lines of Nsight Compute and Nsight Systems, each a pure function of what is wanted. Options and their meaning
// are those of the tools' manuals (Nsight Compute CLI 2020.1 to 2025.3, Nsight Systems 2021.3 to 2025.3).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace llmprof::drive {

struct NcuLine {
  std::string tool = "ncu";
  std::string log;                     // the CSV that it writes
  std::vector<std::string> metrics;    // hardware/ncu_metrics.h
  std::vector<std::string> functions;  // kernels by their functions' names; none: every kernel
  int64_t launch_skip = 0;             // of these kernels, before the first that is profiled
  int64_t launch_count = 0;            // 0: all
  std::string range;                   // inside NVTX push/pop ranges of this text only; empty: everywhere
  std::vector<std::string> command;
};
std::vector<std::string> ncu_words(const NcuLine& line);

// What a version of nsys has, by what `nsys profile --help` prints.
struct NsysAbilities {
  std::vector<std::string> traces = {"cuda", "nvtx", "cublas", "osrt"};  // of these four
  bool graph_nodes = true;                                               // --cuda-graph-trace
  bool switches = true;                                                  // --cpuctxsw
  bool kill = true;                                                      // --kill
  bool read = false;                                                     // the help was there to be read
};
// A text that is no help of nsys leaves everything as it is assumed.
NsysAbilities nsys_abilities(std::string_view help);

struct NsysLine {
  std::string tool = "nsys";
  std::string output;                  // without ending: nsys writes OUTPUT.nsys-rep and OUTPUT.sqlite
  double delay_s = 0, duration_s = 0;  // 0: from the start, to the end
  NsysAbilities abilities;
  std::vector<std::string> command;
};
std::vector<std::string> nsys_words(const NsysLine& line);

// A regular expression that matches the text and nothing else.
std::string escape_regex(std::string_view text);
// Of an NVTX push/pop range, as --nvtx-include takes it: its own delimiters are escaped.
std::string nvtx_filter(std::string_view range);

}  // namespace llmprof::drive
