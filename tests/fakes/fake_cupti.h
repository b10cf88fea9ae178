// A stand-in for libcupti's activity API, and the side of it that the real one keeps to itself: the CUDA driver's. A
// test program "launches kernels" by the fake_ functions, and whoever registered for activities gets their records.
#pragma once

#include <cstdint>

extern "C" {

// One API call and, if kernels are switched on, one kernel. `graph_node` 0 for an ordinary launch. Returns the
// correlation id.
uint32_t fake_launch(const char* kernel, uint64_t start_ns, uint64_t duration_ns, uint32_t stream, uint64_t graph_node);

// A copy of `bytes` from host to device, by the runtime (which calls the driver) or by the driver.
uint32_t fake_copy(uint64_t bytes, uint64_t start_ns, uint64_t duration_ns, bool pageable);
uint32_t fake_driver_copy(uint64_t bytes, uint64_t start_ns, uint64_t duration_ns);

// For a driver that runs its work itself (fake_cuda.cc): a call of it, by the name that CUPTI has for it; what ran on
// its GPU, in the time of CUPTI's clock, launched by that call.
uint64_t fake_now();
uint32_t fake_call_begins(const char* name);
void fake_call_ends(const char* name, uint32_t correlation);
void fake_kernel_ran(const char* kernel, uint64_t start_ns, uint64_t end_ns, uint32_t correlation, uint64_t graph_node);
void fake_copy_ran(uint64_t bytes, bool to_device, uint64_t start_ns, uint64_t end_ns, uint32_t correlation,
                   uint64_t graph_node);

// Streams by handles, which are used again; the default ones are 0, CU_STREAM_LEGACY (1) and CU_STREAM_PER_THREAD (2).
void* fake_stream();
void fake_stream_ends(void* handle);
uint32_t fake_stream_questions();  // how often CUPTI was asked for the id of a stream
// Calls of the runtime, and of the driver in them, by programs with either default stream.
void fake_event_record(void* event, void* stream, bool per_thread);
void fake_stream_waits(void* stream, void* event, bool per_thread);
void fake_synchronize_stream(void* stream, bool per_thread);
void fake_synchronize_event(void* event);

// A node is captured (original 0) or copied from another one; calls the subscriber's resource callback.
void fake_graph_node(uint64_t node, uint64_t original, uint32_t type = 0);

// What cuGraphLaunch of a graph, named by a number, returns: it fails where CUPTI left in a way that it does not
// survive.
int fake_graph_launches(uint64_t graph);
// cuGraphUpload of it.
void fake_graph_uploaded(uint64_t graph);
// The call with its nodes, which run one after the other; what it returns.
int fake_launch_graph(uint32_t graph, uint64_t first_node, uint32_t nodes, uint64_t node_ns);

// cudaGraphInstantiate, which copies these nodes. The graph is one of the driver's (fake_graphs.h).
struct FakeCopy {
  uint64_t original, copy;
  uint32_t type;
};
void fake_instantiate(void* graph, const FakeCopy* copies, uint32_t count);

// cudaStreamBeginCapture or cudaStreamEndCapture as CUPTI sees it.
void fake_capture(bool begins);

// While a kernel runs, a flush leaves the buffer that it is in where it is, unless it is forced.
void fake_running(bool runs);

// How often CUPTI was taken out of the process.
uint32_t fake_finalized();

}  // extern "C"
