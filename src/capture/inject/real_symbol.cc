#include "capture/inject/real_symbol.h"

#include <dlfcn.h>
#include <link.h>
#include <string.h>

#include "capture/inject/threads/reentry_guard.h"

namespace llmprof::inject {

namespace {

struct Search {
  const char* library;
  const char* name;
  void* address;
};

int look_in(dl_phdr_info* info, size_t, void* data) {
  Search& search = *static_cast<Search*>(data);
  if (info->dlpi_name == nullptr) return 0;
  const char* file = strrchr(info->dlpi_name, '/');
  file = file != nullptr ? file + 1 : info->dlpi_name;
  if (strncmp(file, search.library, strlen(search.library)) != 0) return 0;
  void* handle = dlopen(info->dlpi_name, RTLD_LAZY | RTLD_NOLOAD);
  if (handle == nullptr) return 0;
  search.address = dlsym(handle, search.name);
  // The reference taken by dlopen is kept where the function is used: the library must not go away.
  if (search.address == nullptr) dlclose(handle);
  return search.address != nullptr;
}

}  // namespace

bool stands_in_front(const char* name) {
  // The program's search, not ours (RTLD_DEFAULT): a library that was opened privately finds its own functions as well.
  void* const program = dlopen(nullptr, RTLD_LAZY | RTLD_NOLOAD);
  if (program == nullptr) return false;
  const void* const found = dlsym(program, name);
  if (found == nullptr) dlerror();
  dlclose(program);
  // Compared by library: the address of a function of this library is, in this library too, that of whichever
  // definition is found first.
  static const char own = 0;
  Dl_info where{}, here{};
  return found != nullptr && dladdr(found, &where) != 0 && dladdr(&own, &here) != 0 &&
         where.dli_fbase == here.dli_fbase;
}

void* RealSymbol::find() {
  ReentryGuard guard;
  void* address = dlsym(RTLD_NEXT, name_);
  if (address == nullptr) {
    dlerror();  // ours to clear: the program may ask for its own errors
    Search search{library_, name_, nullptr};
    dl_iterate_phdr(look_in, &search);
    address = search.address;
    if (address == nullptr) dlerror();
  }
  if (address == nullptr) {
    if (!guard.nested() && watched()) note("recorder-note", "A hooked library function was called but not found");
    return nullptr;
  }
  address_.store(address, std::memory_order_relaxed);
  return address;
}

}  // namespace llmprof::inject
