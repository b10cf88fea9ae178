// A module that uses cuBLAS, for private_client.cc.
extern "C" int cublasSgemm_v2(void*, int, int, int, int, int, const void*, const void*, int, const void*, int,
                              const void*, void*, int);

extern "C" __attribute__((visibility("default"))) int multiply(int m) {
  return cublasSgemm_v2(nullptr, 0, 0, m, 2, 3, nullptr, nullptr, 4, nullptr, 5, nullptr, nullptr, 6);
}
