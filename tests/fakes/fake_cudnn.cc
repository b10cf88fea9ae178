// libcudnn_cnn.so.9 as far as the hook tests call it, and the backend API of libcudnn_graph.so.9. A legacy descriptor
// is the address of a FakeConvolution.
#include "fake_cudnn.h"

#include <stdint.h>

#include <atomic>
#include <string>

#include "fake_log.h"

FAKE_EXPORT int cudnnGetTensorNdDescriptor(const void* tensor, int requested, int* type, int* count, int* dims,
                                           int* strides) {
  const FakeTensor& fake = *static_cast<const FakeTensor*>(tensor);
  *type = fake.type;
  *count = fake.count;
  for (int i = 0; i < requested && i < fake.count; ++i) dims[i] = fake.dims[i], strides[i] = 1;
  return 0;
}

FAKE_EXPORT int cudnnGetFilterNdDescriptor(const void* filter, int requested, int* type, int* format, int* count,
                                           int* dims) {
  const FakeTensor& fake = *static_cast<const FakeTensor*>(filter);
  *type = fake.type;
  *format = 0;
  *count = fake.count;
  for (int i = 0; i < requested && i < fake.count; ++i) dims[i] = fake.dims[i];
  return 0;
}

FAKE_EXPORT int cudnnGetConvolutionNdDescriptor(const void* convolution, int requested, int* count, int* padding,
                                                int* strides, int* dilation, int* mode, int* compute_type) {
  const FakeConvolution& fake = *static_cast<const FakeConvolution*>(convolution);
  *count = 2;
  for (int i = 0; i < requested && i < 2; ++i) padding[i] = fake.padding, strides[i] = fake.stride, dilation[i] = 1;
  *mode = 1;
  *compute_type = 0;
  return 0;
}

FAKE_EXPORT int cudnnGetConvolutionGroupCount(const void* convolution, int* groups) {
  *groups = static_cast<const FakeConvolution*>(convolution)->groups;
  return 0;
}

FAKE_EXPORT int cudnnConvolutionForward(void*, const void*, const void*, const void*, const void*, const void*,
                                        const void*, int algorithm, void*, size_t workspace_bytes, const void*,
                                        const void*, void* y) {
  fake_log("cudnnConvolutionForward %d %zu %x", algorithm, workspace_bytes,
           static_cast<unsigned>(reinterpret_cast<uintptr_t>(y)));
  return 0;
}

// ---- operation graphs: descriptors are numbered in the order of their creation ------------------------------------

namespace {

constexpr int kBadParameter = 2000, kNotFinalized = 2004, kExecutionFailed = 5000;

struct FakeDescriptor {
  int type;
  int number;
  bool finalized;
};
std::atomic<int> created{0};

int number_of(const void* descriptor) {
  return descriptor == nullptr ? 0 : static_cast<const FakeDescriptor*>(descriptor)->number;
}

// The values, as wide as their type; descriptors by number.
std::string values(int type, int64_t count, const void* elements) {
  std::string text;
  for (int64_t i = 0; i < count; ++i) {
    text += ' ';
    if (type == 15) text += '#' + std::to_string(number_of(static_cast<const void* const*>(elements)[i]));
    if (type == 3) text += std::to_string(static_cast<const int64_t*>(elements)[i]);
    if (type == 2) text += static_cast<const bool*>(elements)[i] ? "yes" : "no";
    if (type != 15 && type != 3 && type != 2) text += std::to_string(static_cast<const int32_t*>(elements)[i]);
  }
  return text;
}

}  // namespace

FAKE_EXPORT int cudnnBackendCreateDescriptor(int type, void** descriptor) {
  FakeDescriptor* made = new FakeDescriptor{type, ++created, false};
  *descriptor = made;
  fake_log("create %d #%d", type, made->number);
  return 0;
}

FAKE_EXPORT int cudnnBackendDestroyDescriptor(void* descriptor) {
  fake_log("destroy #%d", number_of(descriptor));
  delete static_cast<FakeDescriptor*>(descriptor);
  return 0;
}

FAKE_EXPORT int cudnnBackendSetAttribute(void* descriptor, int attribute, int type, int64_t count,
                                         const void* elements) {
  fake_log("set #%d %d type %d:%s", number_of(descriptor), attribute, type, values(type, count, elements).c_str());
  return static_cast<FakeDescriptor*>(descriptor)->finalized ? kBadParameter : 0;
}

FAKE_EXPORT int cudnnBackendGetAttribute(const void* descriptor, int attribute, int type, int64_t requested,
                                         int64_t* count, void* elements) {
  *count = 1;
  fake_log("get #%d %d type %d:%s", number_of(descriptor), attribute, type,
           values(type, requested < 1 ? requested : 1, elements).c_str());
  return 0;
}

FAKE_EXPORT int cudnnBackendFinalize(void* descriptor) {
  fake_log("finalize #%d", number_of(descriptor));
  static_cast<FakeDescriptor*>(descriptor)->finalized = true;
  return 0;
}

// Handle 0xBAD refuses.
FAKE_EXPORT int cudnnBackendExecute(void* handle, void* plan, void* pack) {
  fake_log("execute %x #%d #%d", static_cast<unsigned>(reinterpret_cast<uintptr_t>(handle)), number_of(plan),
           number_of(pack));
  if (reinterpret_cast<uintptr_t>(handle) == 0xBAD) return kExecutionFailed;
  return static_cast<FakeDescriptor*>(plan)->finalized ? 0 : kNotFinalized;
}

FAKE_EXPORT int cudnnBackendPopulateCudaGraph(void* handle, void* plan, void* pack, void* graph) {
  fake_log("populate %x #%d #%d %x", static_cast<unsigned>(reinterpret_cast<uintptr_t>(handle)), number_of(plan),
           number_of(pack), static_cast<unsigned>(reinterpret_cast<uintptr_t>(graph)));
  return 0;
}
