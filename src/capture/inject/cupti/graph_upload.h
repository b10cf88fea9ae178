// Brings an executable graph to the GPU before its first launch.
#pragma once

namespace llmprof::inject {

// Uploads it on a stream of its own and waits for that; the calling thread's context is current. Allowed while another
// thread captures. False where the driver refuses.
bool upload_graph(void* executable);

}  // namespace llmprof::inject
