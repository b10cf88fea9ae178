// What the stand-in for the driver tells the stand-in for CUPTI (fake_cupti.cc), so that a program on a GPU that is not
// there can be recorded. Only where FAKE_CUDA_CUPTI names that library; else nothing here does anything.
#pragma once

#include <cstddef>
#include <cstdint>

namespace fake_records {

// As the driver does inside cuInit: loads what CUDA_INJECTION64_PATH names. Once.
void start();

// A call of the driver while it lives; what is enqueued meanwhile was launched by it.
class Call {
 public:
  explicit Call(const char* name);
  ~Call();
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;

 private:
  const char* name_;
  uint32_t before_;
};

struct Activity {
  enum class Kind : uint8_t { kNone, kKernel, kCopyToDevice, kCopyToHost };
  Kind kind = Kind::kNone;
  const char* name = "";  // of a kernel
  size_t bytes = 0;       // of a copy
  uint32_t call = 0;
  uint64_t node = 0;  // of a graph
};

void launched_now(Activity& activity);             // by the call that lives
void captured(Activity& activity);                 // becomes a node
Activity copied_node(const Activity& of_capture);  // of the graph that can be run
void graph_uploaded(uint64_t graph);
int graph_launches(uint64_t graph);  // what launching this one returns

uint64_t now_ns();
void ran(const Activity& activity, uint64_t start_ns);  // until now

}  // namespace fake_records
