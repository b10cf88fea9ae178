// Our declarations of CUPTI's records and values against the official headers, where they are installed.
#include <gtest/gtest.h>

#if __has_include(<cupti.h>)
#include <cuda_runtime_api.h>
#include <cupti.h>

#include <cstddef>

#include "nvidia/cupti_abi.h"

namespace ours = llmprof::cupti;

#define SAME(own_type, own_field, official_type, official_field)                                  \
  static_assert(offsetof(ours::own_type, own_field) == offsetof(official_type, official_field) && \
                sizeof(ours::own_type::own_field) == sizeof(official_type::official_field))

SAME(KernelActivity, registers_per_thread, CUpti_ActivityKernel10, registersPerThread);
SAME(KernelActivity, start, CUpti_ActivityKernel10, start);
SAME(KernelActivity, end, CUpti_ActivityKernel10, end);
SAME(KernelActivity, device, CUpti_ActivityKernel10, deviceId);
SAME(KernelActivity, context, CUpti_ActivityKernel10, contextId);
SAME(KernelActivity, stream, CUpti_ActivityKernel10, streamId);
static_assert(offsetof(ours::KernelActivity, grid) == offsetof(CUpti_ActivityKernel10, gridX));
static_assert(offsetof(ours::KernelActivity, block) == offsetof(CUpti_ActivityKernel10, blockX));
static_assert(offsetof(ours::KernelActivity, cluster) == offsetof(CUpti_ActivityKernel10, clusterX));
SAME(KernelActivity, static_shared_bytes, CUpti_ActivityKernel10, staticSharedMemory);
SAME(KernelActivity, dynamic_shared_bytes, CUpti_ActivityKernel10, dynamicSharedMemory);
SAME(KernelActivity, correlation, CUpti_ActivityKernel10, correlationId);
SAME(KernelActivity, name, CUpti_ActivityKernel10, name);
SAME(KernelActivity, graph_node, CUpti_ActivityKernel10, graphNodeId);
SAME(KernelActivity, graph_id, CUpti_ActivityKernel10, graphId);
static_assert(sizeof(ours::KernelActivity) <= sizeof(CUpti_ActivityKernel8));

SAME(MemcpyActivity, copy_kind, CUpti_ActivityMemcpy6, copyKind);
SAME(MemcpyActivity, flags, CUpti_ActivityMemcpy6, flags);
SAME(MemcpyActivity, bytes, CUpti_ActivityMemcpy6, bytes);
SAME(MemcpyActivity, start, CUpti_ActivityMemcpy6, start);
SAME(MemcpyActivity, stream, CUpti_ActivityMemcpy6, streamId);
SAME(MemcpyActivity, correlation, CUpti_ActivityMemcpy6, correlationId);
SAME(MemcpyActivity, graph_node, CUpti_ActivityMemcpy6, graphNodeId);
SAME(PeerMemcpyActivity, bytes, CUpti_ActivityMemcpyPtoP4, bytes);
SAME(PeerMemcpyActivity, correlation, CUpti_ActivityMemcpyPtoP4, correlationId);
SAME(PeerMemcpyActivity, graph_node, CUpti_ActivityMemcpyPtoP4, graphNodeId);
SAME(MemsetActivity, bytes, CUpti_ActivityMemset4, bytes);
SAME(MemsetActivity, start, CUpti_ActivityMemset4, start);
SAME(MemsetActivity, correlation, CUpti_ActivityMemset4, correlationId);
SAME(MemsetActivity, graph_node, CUpti_ActivityMemset4, graphNodeId);
SAME(ApiActivity, cbid, CUpti_ActivityAPI, cbid);
SAME(ApiActivity, start, CUpti_ActivityAPI, start);
SAME(ApiActivity, thread, CUpti_ActivityAPI, threadId);
SAME(ApiActivity, correlation, CUpti_ActivityAPI, correlationId);
SAME(ApiActivity, result, CUpti_ActivityAPI, returnValue);
SAME(SynchronizationActivity, type, CUpti_ActivitySynchronization2, type);
SAME(SynchronizationActivity, start, CUpti_ActivitySynchronization2, start);
SAME(SynchronizationActivity, correlation, CUpti_ActivitySynchronization2, correlationId);
SAME(SynchronizationActivity, stream, CUpti_ActivitySynchronization2, streamId);
SAME(OverheadActivity, overhead_kind, CUpti_ActivityOverhead3, overheadKind);
SAME(OverheadActivity, object, CUpti_ActivityOverhead3, objectId);
SAME(OverheadActivity, start, CUpti_ActivityOverhead3, start);
SAME(MemoryActivity, operation, CUpti_ActivityMemory4, memoryOperationType);
SAME(MemoryActivity, address, CUpti_ActivityMemory4, address);
SAME(MemoryActivity, timestamp, CUpti_ActivityMemory4, timestamp);
SAME(MemoryActivity, device, CUpti_ActivityMemory4, deviceId);
SAME(GraphActivity, start, CUpti_ActivityGraphTrace2, start);
SAME(GraphActivity, graph_id, CUpti_ActivityGraphTrace2, graphId);
SAME(GraphActivity, stream, CUpti_ActivityGraphTrace2, streamId);
SAME(MarkerActivity, timestamp, CUpti_ActivityMarker2, timestamp);
SAME(MarkerActivity, id, CUpti_ActivityMarker2, id);
SAME(KernelActivity, completed, CUpti_ActivityKernel10, completed);
SAME(KernelActivity, queued, CUpti_ActivityKernel10, queued);
SAME(KernelActivity, submitted, CUpti_ActivityKernel10, submitted);
SAME(ResourceData, descriptor, CUpti_ResourceData, resourceDescriptor);
SAME(GraphData, node, CUpti_GraphData, node);
SAME(GraphData, original_node, CUpti_GraphData, originalNode);
SAME(GraphData, node_type, CUpti_GraphData, nodeType);
SAME(CallbackData, site, CUpti_CallbackData, callbackSite);
SAME(CallbackData, function, CUpti_CallbackData, functionName);
SAME(CallbackData, parameters, CUpti_CallbackData, functionParams);
SAME(CallbackData, context, CUpti_CallbackData, context);
SAME(CallbackData, result, CUpti_CallbackData, functionReturnValue);
SAME(CallbackData, symbol, CUpti_CallbackData, symbolName);
SAME(CallbackData, correlation, CUpti_CallbackData, correlationId);

// Arguments of calls, of both layers and with either default stream.
#define SAME_ARGUMENTS(own, first, second, official, official_first, official_second) \
  SAME(own, first, official, official_first);                                         \
  SAME(own, second, official, official_second)
#define SAME_EVENT_RECORD(official, event_field, stream_field) \
  SAME_ARGUMENTS(EventRecordArguments, event, stream, official, event_field, stream_field)
SAME_EVENT_RECORD(cudaEventRecord_v3020_params, event, stream);
SAME_EVENT_RECORD(cudaEventRecord_ptsz_v7000_params, event, stream);
SAME_EVENT_RECORD(cudaEventRecordWithFlags_v11010_params, event, stream);
SAME_EVENT_RECORD(cudaEventRecordWithFlags_ptsz_v11010_params, event, stream);
SAME_EVENT_RECORD(cuEventRecord_params, hEvent, hStream);
SAME_EVENT_RECORD(cuEventRecord_ptsz_params, hEvent, hStream);
SAME_EVENT_RECORD(cuEventRecordWithFlags_params, hEvent, hStream);
SAME_EVENT_RECORD(cuEventRecordWithFlags_ptsz_params, hEvent, hStream);
#define SAME_STREAM_WAIT(official, stream_field, event_field) \
  SAME_ARGUMENTS(StreamWaitEventArguments, stream, event, official, stream_field, event_field)
SAME_STREAM_WAIT(cudaStreamWaitEvent_v3020_params, stream, event);
SAME_STREAM_WAIT(cudaStreamWaitEvent_ptsz_v7000_params, stream, event);
SAME_STREAM_WAIT(cuStreamWaitEvent_params, hStream, hEvent);
SAME_STREAM_WAIT(cuStreamWaitEvent_ptsz_params, hStream, hEvent);
SAME(StreamSynchronizeArguments, stream, cudaStreamSynchronize_v3020_params, stream);
SAME(StreamSynchronizeArguments, stream, cudaStreamSynchronize_ptsz_v7000_params, stream);
SAME(StreamSynchronizeArguments, stream, cuStreamSynchronize_params, hStream);
SAME(StreamSynchronizeArguments, stream, cuStreamSynchronize_ptsz_params, hStream);
SAME(EventSynchronizeArguments, event, cudaEventSynchronize_v3020_params, event);
SAME(EventSynchronizeArguments, event, cuEventSynchronize_params, hEvent);
SAME(GraphLaunchArguments, stream, cuGraphLaunch_params, hStream);
SAME(GraphLaunchArguments, stream, cuGraphLaunch_ptsz_params, hStream);
#define SAME_INSTANTIATE(official, graph_field) SAME(GraphInstantiateArguments, graph, official, graph_field)
SAME_INSTANTIATE(cuGraphInstantiate_v2_params, hGraph);
SAME_INSTANTIATE(cuGraphInstantiateWithFlags_params, hGraph);
SAME_INSTANTIATE(cuGraphInstantiateWithParams_params, hGraph);
SAME_INSTANTIATE(cuGraphInstantiateWithParams_ptsz_params, hGraph);
SAME_INSTANTIATE(cudaGraphInstantiate_v12000_params, graph);
SAME_INSTANTIATE(cudaGraphInstantiateWithFlags_v11040_params, graph);
SAME_INSTANTIATE(cudaGraphInstantiateWithParams_v12000_params, graph);
SAME_INSTANTIATE(cudaGraphInstantiateWithParams_ptsz_v12000_params, graph);

#define EQUAL(own, official) static_assert(static_cast<long>(ours::own) == static_cast<long>(official))
EQUAL(kMemcpy, CUPTI_ACTIVITY_KIND_MEMCPY);
EQUAL(kMemset, CUPTI_ACTIVITY_KIND_MEMSET);
EQUAL(kSerialKernel, CUPTI_ACTIVITY_KIND_KERNEL);
EQUAL(kDriver, CUPTI_ACTIVITY_KIND_DRIVER);
EQUAL(kRuntime, CUPTI_ACTIVITY_KIND_RUNTIME);
EQUAL(kConcurrentKernel, CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL);
EQUAL(kOverhead, CUPTI_ACTIVITY_KIND_OVERHEAD);
EQUAL(kMemcpy2, CUPTI_ACTIVITY_KIND_MEMCPY2);
EQUAL(kSynchronization, CUPTI_ACTIVITY_KIND_SYNCHRONIZATION);
EQUAL(kMemory2, CUPTI_ACTIVITY_KIND_MEMORY2);
EQUAL(kGraphTrace, CUPTI_ACTIVITY_KIND_GRAPH_TRACE);
EQUAL(kAttributeZeroedOutBuffer, CUPTI_ACTIVITY_ATTR_ZEROED_OUT_ACTIVITY_BUFFER);
EQUAL(kDomainDriver, CUPTI_CB_DOMAIN_DRIVER_API);
EQUAL(kDomainRuntime, CUPTI_CB_DOMAIN_RUNTIME_API);
EQUAL(kDomainResource, CUPTI_CB_DOMAIN_RESOURCE);
EQUAL(kContextDestroyStarting, CUPTI_CBID_RESOURCE_CONTEXT_DESTROY_STARTING);
EQUAL(kStreamDestroyStarting, CUPTI_CBID_RESOURCE_STREAM_DESTROY_STARTING);
EQUAL(kGraphNodeCreated, CUPTI_CBID_RESOURCE_GRAPHNODE_CREATED);
EQUAL(kGraphNodeCloned, CUPTI_CBID_RESOURCE_GRAPHNODE_CLONED);
EQUAL(kOverheadLazyFunctionLoading, CUPTI_ACTIVITY_OVERHEAD_LAZY_FUNCTION_LOADING);
EQUAL(kOverheadBufferRequest, CUPTI_ACTIVITY_OVERHEAD_ACTIVITY_BUFFER_REQUEST);
EQUAL(kApiEnter, CUPTI_API_ENTER);
EQUAL(kApiExit, CUPTI_API_EXIT);
EQUAL(kObjectThread, CUPTI_ACTIVITY_OBJECT_THREAD);
EQUAL(kErrorMaxLimitReached, CUPTI_ERROR_MAX_LIMIT_REACHED);
EQUAL(kErrorInsufficientPrivileges, CUPTI_ERROR_INSUFFICIENT_PRIVILEGES);
EQUAL(kErrorMultipleSubscribers, CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED);

TEST(CuptiAbi, AgreesWithTheOfficialHeaders) { EXPECT_GE(CUPTI_API_VERSION, 18); }
#else
TEST(CuptiAbi, AgreesWithTheOfficialHeaders) { GTEST_SKIP() << "no CUDA toolkit here"; }
#endif
