// libcublasLt.so.13 as far as the hook tests call it: descriptors that keep their attributes, and the product.
#include <stdint.h>
#include <string.h>

#include "fake_log.h"

namespace {

// Eight bytes for each attribute number, as far as they were set.
struct Descriptor {
  bool set[40];
  uint64_t size[40];
  uint64_t value[40];
};

int set_attribute(Descriptor* descriptor, int attribute, const void* value, size_t size) {
  if (attribute < 0 || attribute >= 40 || size > 8) return 7;
  descriptor->set[attribute] = true;
  descriptor->size[attribute] = size;
  memcpy(&descriptor->value[attribute], value, size);
  return 0;
}

int get_attribute(const Descriptor* descriptor, int attribute, void* value, size_t size, size_t* written) {
  if (attribute < 0 || attribute >= 40 || !descriptor->set[attribute]) return 7;
  if (size < descriptor->size[attribute]) return 7;
  memcpy(value, &descriptor->value[attribute], descriptor->size[attribute]);
  *written = descriptor->size[attribute];
  return 0;
}

}  // namespace

FAKE_EXPORT int cublasLtMatrixLayoutCreate(void** layout, int type, uint64_t rows, uint64_t cols, int64_t ld) {
  Descriptor* descriptor = static_cast<Descriptor*>(calloc(1, sizeof(Descriptor)));
  int32_t order = 0, batch = 1;
  set_attribute(descriptor, 0, &type, 4);
  set_attribute(descriptor, 1, &order, 4);
  set_attribute(descriptor, 2, &rows, 8);
  set_attribute(descriptor, 3, &cols, 8);
  set_attribute(descriptor, 4, &ld, 8);
  set_attribute(descriptor, 5, &batch, 4);
  *layout = descriptor;
  return 0;
}

FAKE_EXPORT int cublasLtMatmulDescCreate(void** compute, int compute_type, int) {
  Descriptor* descriptor = static_cast<Descriptor*>(calloc(1, sizeof(Descriptor)));
  int32_t none = 0, epilogue = 1;
  set_attribute(descriptor, 0, &compute_type, 4);
  set_attribute(descriptor, 3, &none, 4);
  set_attribute(descriptor, 4, &none, 4);
  set_attribute(descriptor, 7, &epilogue, 4);
  *compute = descriptor;
  return 0;
}

FAKE_EXPORT int cublasLtMatrixLayoutSetAttribute(void* layout, int attribute, const void* value, size_t size) {
  return set_attribute(static_cast<Descriptor*>(layout), attribute, value, size);
}
FAKE_EXPORT int cublasLtMatrixLayoutGetAttribute(const void* layout, int attribute, void* value, size_t size,
                                                 size_t* written) {
  return get_attribute(static_cast<const Descriptor*>(layout), attribute, value, size, written);
}
FAKE_EXPORT int cublasLtMatmulDescSetAttribute(void* compute, int attribute, const void* value, size_t size) {
  return set_attribute(static_cast<Descriptor*>(compute), attribute, value, size);
}
FAKE_EXPORT int cublasLtMatmulDescGetAttribute(const void* compute, int attribute, void* value, size_t size,
                                               size_t* written) {
  return get_attribute(static_cast<const Descriptor*>(compute), attribute, value, size, written);
}

FAKE_EXPORT int cublasLtMatmul(void*, void*, const void* alpha, const void*, void*, const void*, void*,
                               const void* beta, const void*, void*, void*, void*, const void*, void*,
                               size_t workspace_bytes, void* stream) {
  fake_log("cublasLtMatmul %x %x %zu %x", static_cast<unsigned>(reinterpret_cast<uintptr_t>(alpha)),
           static_cast<unsigned>(reinterpret_cast<uintptr_t>(beta)), workspace_bytes,
           static_cast<unsigned>(reinterpret_cast<uintptr_t>(stream)));
  return 0;
}

FAKE_EXPORT int cublasLtTSTMatmul(int) {
  return cublasLtMatmul(nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr,
                        nullptr, nullptr, nullptr, nullptr, 0, nullptr);
}
