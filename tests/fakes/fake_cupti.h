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

// A node is captured (original 0) or copied from another one; calls the subscriber's resource callback.
void fake_graph_node(uint64_t node, uint64_t original);

// cudaStreamBeginCapture or cudaStreamEndCapture as CUPTI sees it.
void fake_capture(bool begins);

// While a kernel runs, a flush leaves the buffer that it is in where it is, unless it is forced.
void fake_running(bool runs);

// How often CUPTI was taken out of the process.
uint32_t fake_finalized();

}  // extern "C"
