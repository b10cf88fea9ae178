// Python code at which the host waits for the GPU, copies, allocates or keeps the GPU waiting, per stage
// (Trace::host_places).
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "analyze/code_places.h"
#include "analyze/groups.h"
#include "trace/trace.h"

namespace llmprof {

// What one piece of code did in the recorded steps of a stage.
struct PlaceSums {
  CodePlace place;
  PlaceKind kind = PlaceKind::kWait;
  int64_t count = 0;
  int64_t host_ns = 0;
};

// Those of each stage (rows of Groups::stages), most host time first; host code by where the thread was
// (code_places.h); without launches, of which only some are recorded (launch_places.h).
std::vector<std::vector<PlaceSums>> places_of_stages(const Trace& trace, const Groups& groups);

// What the interpreter calls for each line or function, at the end of a stack as the recorder writes it: "sys.settrace
// Audit.line (/app/audit.py:7)"; empty where there is none. And the stack without it.
std::string_view hooks_of(std::string_view stack);
std::string_view without_hooks(std::string_view stack);

// The two innermost functions of a stack, with the names of their files: "pick (serve.py:40) < decode (serve.py:88)".
std::string python_place(std::string_view stack);
// The innermost function of a stack with the name of its file, whatever its line: "pick (serve.py".
std::string python_function(std::string_view stack);

// Sums by place: stacks that differ in who called the two functions alone are one.
struct PlaceAmounts {
  std::string place;
  double ns = 0, times = 0;
};
void add_to_place(std::string_view stack, double ns, double times, std::vector<PlaceAmounts>& places);

std::string_view name_of(PlaceKind kind);

}  // namespace llmprof
