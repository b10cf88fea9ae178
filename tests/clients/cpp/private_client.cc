// Loads hook_plugin with RTLD_LOCAL, so that cuBLAS is not in the search order that dlsym(RTLD_NEXT) sees.
#include <dlfcn.h>
#include <stdio.h>

int main(int argc, char** argv) {
  void* plugin = dlopen(argc > 1 ? argv[1] : "", RTLD_NOW | RTLD_LOCAL);
  if (plugin == nullptr) return 2;
  auto* multiply = reinterpret_cast<int (*)(int)>(dlsym(plugin, "multiply"));
  if (multiply == nullptr) return 2;
  int taken = multiply(1);
  int refused = multiply(13);
  printf("%d %d\n", taken, refused);
  return 0;
}
