// Does what the NVTX header does in a program: looks for NVTX_INJECTION64_PATH, loads it, and lets it fill in a table
// of functions. Each NvtxLoader is one library's copy of that state.
#pragma once

#include <dlfcn.h>
#include <stdlib.h>

#include "nvidia/nvtx_abi.h"

namespace client {

namespace nvtx = llmprof::nvtx;

class NvtxLoader {
 public:
  // True if an injection library took the table.
  bool attach() {
    current() = this;
    for (int i = 1; i < 16; ++i) {
      core_pointers_[i] = &core_[i];
      core2_pointers_[i] = &core2_[i];
    }
    const char* path = getenv("NVTX_INJECTION64_PATH");
    void* library = path != nullptr ? dlopen(path, RTLD_LAZY) : nullptr;
    if (library == nullptr) return false;
    using Initialize = int(nvtx::GetExportTable);
    Initialize* initialize = reinterpret_cast<Initialize*>(dlsym(library, "InitializeInjectionNvtx2"));
    return initialize != nullptr && initialize(&export_table) != 0;
  }

  bool attach_payloads() {
    const char* path = getenv("NVTX_INJECTION64_PATH");
    void* library = path != nullptr ? dlopen(path, RTLD_LAZY) : nullptr;
    if (library == nullptr) return false;
    using Initialize = int(nvtx::ExtensionModule*);
    Initialize* initialize = reinterpret_cast<Initialize*>(dlsym(library, "InitializeInjectionNvtxExtension"));
    nvtx::ExtensionSegment segment{0, 63, payload_};
    nvtx::ExtensionModule module{
        3, sizeof(nvtx::ExtensionModule), nvtx::kPayloadModule, 0x0104, 1, &segment, nullptr, nullptr};
    return initialize != nullptr && initialize(&module) != 0;
  }

  template <typename F>
  F* core(nvtx::CoreCallback id) const {
    return reinterpret_cast<F*>(core_[id]);
  }
  template <typename F>
  F* core2(nvtx::Core2Callback id) const {
    return reinterpret_cast<F*>(core2_[id]);
  }
  template <typename F>
  F* payload(nvtx::PayloadCallback id) const {
    return reinterpret_cast<F*>(payload_[id]);
  }

 private:
  static NvtxLoader*& current() {
    static NvtxLoader* loader = nullptr;
    return loader;
  }

  static int module_table(nvtx::Module module, nvtx::FunctionTable* table, unsigned int* size) {
    if (module == nvtx::kModuleCore) *table = current()->core_pointers_;
    if (module == nvtx::kModuleCore2) *table = current()->core2_pointers_;
    *size = 16;
    return module == nvtx::kModuleCore || module == nvtx::kModuleCore2;
  }
  static void set_version(uint32_t) {}

  static const void* export_table(uint32_t id) {
    static const nvtx::ExportCallbacks callbacks{sizeof(nvtx::ExportCallbacks), &module_table};
    static const nvtx::ExportVersionInfo version{sizeof(nvtx::ExportVersionInfo), 3, 0, &set_version};
    if (id == nvtx::kExportCallbacks) return &callbacks;
    return id == nvtx::kExportVersionInfo ? static_cast<const void*>(&version) : nullptr;
  }

  nvtx::Function core_[16] = {};
  nvtx::Function core2_[16] = {};
  nvtx::Function* core_pointers_[16] = {};
  nvtx::Function* core2_pointers_[16] = {};
  intptr_t payload_[63] = {};
};

}  // namespace client
