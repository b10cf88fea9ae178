#include "nvidia/cupti_library.h"

#include <dlfcn.h>
#include <link.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace llmprof::nvidia {
namespace {

struct Loaded {
  std::string cupti;             // path of a libcupti that is already in the process
  std::string beside_cudart[4];  // folders of CUDA libraries in the process
  size_t folders = 0;
};

int note_library(dl_phdr_info* info, size_t, void* user) {
  Loaded& found = *static_cast<Loaded*>(user);
  const char* name = info->dlpi_name;
  if (name == nullptr || *name == '\0') return 0;
  const char* slash = std::strrchr(name, '/');
  const char* base = slash == nullptr ? name : slash + 1;
  if (std::strncmp(base, "libcupti.so", 11) == 0) found.cupti = name;
  const bool cuda = std::strncmp(base, "libcudart.so", 12) == 0 || std::strncmp(base, "libcublas.so", 12) == 0 ||
                    std::strncmp(base, "libnvrtc.so", 11) == 0;
  if (cuda && slash != nullptr && found.folders < 4)
    found.beside_cudart[found.folders++].assign(name, static_cast<size_t>(slash - name));
  return 0;
}

void* load_from_folder(const std::string& folder) {
  for (const char* name : {"libcupti.so.13", "libcupti.so.12", "libcupti.so.11.8", "libcupti.so"}) {
    const std::string path = folder + "/" + name;
    if (void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL)) return library;
  }
  return nullptr;
}

void* load() {
  Loaded found;
  dl_iterate_phdr(note_library, &found);
  if (!found.cupti.empty())
    if (void* library = dlopen(found.cupti.c_str(), RTLD_NOW | RTLD_LOCAL)) return library;
  const char* given = std::getenv(kEnvCupti);
  if (given != nullptr && *given != '\0')
    if (void* library = dlopen(given, RTLD_NOW | RTLD_LOCAL)) return library;
  for (size_t i = 0; i < found.folders; ++i) {
    for (const char* sub : {"", "/../../cuda_cupti/lib", "/../extras/CUPTI/lib64"})
      if (void* library = load_from_folder(found.beside_cudart[i] + sub)) return library;
  }
  for (const char* folder : {"/usr/local/cuda/extras/CUPTI/lib64", "/usr/local/cuda/lib64"})
    if (void* library = load_from_folder(folder)) return library;
  for (const char* name : {"libcupti.so.13", "libcupti.so.12", "libcupti.so.11.8", "libcupti.so"})
    if (void* library = dlopen(name, RTLD_NOW | RTLD_LOCAL)) return library;
  return nullptr;
}

}  // namespace

bool CuptiLibrary::open(std::string& why) {
  void* library = load();
  if (library == nullptr) {
    const char* error = dlerror();
    why = std::string("no libcupti found (") + (error == nullptr ? "" : error) +
          "); set LLMPROF_CUPTI to the libcupti.so that belongs to the program's CUDA libraries";
    return false;
  }
#define LLMPROF_LOOK_UP(name, signature) name = reinterpret_cast<std::add_pointer_t<signature>>(dlsym(library, #name));
  LLMPROF_CUPTI_FUNCTIONS(LLMPROF_LOOK_UP)
  LLMPROF_CUPTI_OPTIONAL_FUNCTIONS(LLMPROF_LOOK_UP)
#undef LLMPROF_LOOK_UP
  const char* missing = nullptr;
#define LLMPROF_REQUIRE(name, signature) \
  if (name == nullptr) missing = #name;
  LLMPROF_CUPTI_FUNCTIONS(LLMPROF_REQUIRE)
#undef LLMPROF_REQUIRE
  Dl_info info{};
  if (cuptiGetVersion != nullptr && dladdr(reinterpret_cast<void*>(cuptiGetVersion), &info) != 0)
    std::snprintf(path, sizeof path, "%s", info.dli_fname);
  if (missing != nullptr) {
    why = std::string(path) + " lacks " + missing + ": expected CUPTI of CUDA 11.8 or later";
    return false;
  }
  if (cuptiGetVersion(&version) != cupti::kSuccess || version < cupti::kVersion11_8) {
    why = std::string(path) + " is version " + std::to_string(version) + ": expected CUPTI of CUDA 11.8 or later";
    return false;
  }
  return true;
}

const char* CuptiLibrary::text_of(cupti::Result result) const {
  const char* text = nullptr;
  if (cuptiGetResultString != nullptr && cuptiGetResultString(result, &text) == cupti::kSuccess && text != nullptr)
    return text;
  return "unknown error";
}

}  // namespace llmprof::nvidia
