// A libcublas.so that does nothing, for hook_cost.cc.
extern "C" __attribute__((visibility("default"))) int cublasGemmEx(void*, int, int, int, int, int, const void*,
                                                                   const void*, int, int, const void*, int, int,
                                                                   const void*, void*, int, int, int, int) {
  return 0;
}

extern "C" __attribute__((visibility("default"))) int cublasSgemm_v2(void*, int, int, int, int, int, const void*,
                                                                     const void*, int, const void*, int, const void*,
                                                                     void*, int) {
  return 0;
}

extern "C" __attribute__((visibility("default"))) int cublasGetMathMode(const void*, int* mode) {
  *mode = 0;
  return 0;
}
