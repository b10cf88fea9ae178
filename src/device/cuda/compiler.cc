#include "device/cuda/compiler.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "base/embedded.h"

namespace llmprof {
std::span<const EmbeddedFile> cuda_kernel_sources();
}

namespace llmprof::device::cuda {
namespace {

std::string_view embedded(std::string_view name) {
  for (const EmbeddedFile& file : cuda_kernel_sources())
    if (file.name == name) return file.text;
  return {};
}

std::vector<std::string> options_of(const Architecture& architecture, const KernelSource& source) {
  std::vector<std::string> options = {"--gpu-architecture=" + architecture.option, "--std=c++17",
                                      "--device-as-default-execution-space", "--fmad=true"};
  for (const std::string& define : source.defines) options.push_back("--define-macro=" + define);
  return options;
}

// The first error of the compiler's log, or all of a short one.
std::string first_words(const std::string& log) {
  const size_t error = log.find("error");
  const size_t start = error == std::string::npos ? 0 : log.rfind('\n', error) + 1;
  return log.substr(start, 400);
}

class Compilation {
 public:
  explicit Compilation(const nvrtc_abi::Api& api) : api_(api) {}
  Compilation(const Compilation&) = delete;
  Compilation& operator=(const Compilation&) = delete;
  ~Compilation() {
    if (program_ != nullptr) api_.destroy(&program_);
  }
  nvrtc_abi::Program& program() { return program_; }
  std::string log() const {
    size_t bytes = 0;
    if (api_.log_size(program_, &bytes) != nvrtc_abi::kSuccess || bytes <= 1) return {};
    std::string text(bytes, '\0');
    if (api_.log(program_, text.data()) != nvrtc_abi::kSuccess) return {};
    text.resize(bytes - 1);
    return text;
  }

 private:
  const nvrtc_abi::Api& api_;
  nvrtc_abi::Program program_ = nullptr;
};

std::string cache_file(const nvidia::NvrtcLibrary& nvrtc, const Architecture& architecture,
                       const KernelSource& source) {
  const std::string folder = kernel_cache_folder();
  if (folder.empty()) return {};
  std::string key = fmt::format("{}.{}\n", nvrtc.major, nvrtc.minor);
  for (const std::string& option : options_of(architecture, source)) key += option + "\n";
  key += kernel_text(source.name);
  const XXH128_hash_t hash = XXH3_128bits(key.data(), key.size());
  return fmt::format("{}/{:016x}{:016x}.{}", folder, hash.high64, hash.low64, architecture.cubin ? "cubin" : "ptx");
}

// A cubin is an ELF file; what was cut off by a full disk is not taken.
bool looks_whole(const std::string& code, bool cubin) {
  return code.size() > 64 && (cubin ? code.compare(0, 4, "\177ELF") == 0 : code.back() == '\0');
}

void write_cache(const std::string& file, const std::string& code) {
  std::error_code ignored;
  std::filesystem::create_directories(std::filesystem::path(file).parent_path(), ignored);
  const std::string temporary = fmt::format("{}.{}", file, getpid());
  std::ofstream out(temporary, std::ios::binary);
  out.write(code.data(), static_cast<std::streamsize>(code.size()));
  out.close();
  if (!out || std::rename(temporary.c_str(), file.c_str()) != 0) std::remove(temporary.c_str());
}

}  // namespace

Result<Architecture> architecture_for(const nvidia::NvrtcLibrary& nvrtc, int cc_major, int cc_minor) {
  const int chip = 10 * cc_major + cc_minor;
  if (chip < 80)
    return fail(fmt::format("own kernels need compute capability 8.0, this GPU has {}.{}", cc_major, cc_minor), {},
                "operations of NVIDIA's libraries still run");
  const bool known =
      nvrtc.archs.empty() || std::find(nvrtc.archs.begin(), nvrtc.archs.end(), chip) != nvrtc.archs.end();
  if (known) return Architecture{fmt::format("sm_{}{}", chip, chip >= 90 ? "a" : ""), true};
  const auto above = std::upper_bound(nvrtc.archs.begin(), nvrtc.archs.end(), chip);
  if (above == nvrtc.archs.begin())
    return fail(fmt::format("NVRTC {}.{} compiles for {}.{} and later, this GPU has {}.{}", nvrtc.major, nvrtc.minor,
                            nvrtc.archs.front() / 10, nvrtc.archs.front() % 10, cc_major, cc_minor),
                nvrtc.about.path, fmt::format("name an older copy in {}", nvidia::kEnvNvrtc));
  return Architecture{fmt::format("compute_{}", *std::prev(above)), false};
}

std::vector<std::string> kernel_source_names() {
  std::vector<std::string> names;
  for (const EmbeddedFile& file : cuda_kernel_sources())
    if (file.name.size() > 3 && file.name.substr(file.name.size() - 3) == ".cu") names.emplace_back(file.name);
  return names;
}

std::string kernel_text(std::string_view name) {
  const std::string_view text = embedded(name);
  if (text.empty()) return {};
  std::string whole;
  for (const std::string_view part : {embedded("prelude.cuh"), embedded("common.cuh"), text}) {
    whole += part;
    whole += "\n";
  }
  return whole;
}

Result<std::string> compile_kernel(const nvidia::NvrtcLibrary& nvrtc, const Architecture& architecture,
                                   const KernelSource& source) {
  const std::string text = kernel_text(source.name);
  if (text.empty()) return fail("there is no kernel source " + source.name);
  const nvrtc_abi::Api& api = nvrtc.api;
  Compilation compilation(api);
  nvrtc_abi::Result result = api.create(&compilation.program(), text.c_str(), source.name.c_str(), 0, nullptr, nullptr);
  if (result != nvrtc_abi::kSuccess)
    return fail(fmt::format("NVRTC did not take {}: error {}", source.name, static_cast<int>(result)),
                nvrtc.about.path);
  const std::vector<std::string> options = options_of(architecture, source);
  std::vector<const char*> pointers;
  for (const std::string& option : options) pointers.push_back(option.c_str());
  result = api.compile(compilation.program(), static_cast<int>(pointers.size()), pointers.data());
  if (result != nvrtc_abi::kSuccess)
    return fail(fmt::format("NVRTC {}.{} did not compile {} for {} (error {}): {}", nvrtc.major, nvrtc.minor,
                            source.name, architecture.option, static_cast<int>(result), first_words(compilation.log())),
                nvrtc.about.path, fmt::format("{} may name another copy", nvidia::kEnvNvrtc));
  size_t bytes = 0;
  std::string code;
  result =
      architecture.cubin ? api.cubin_size(compilation.program(), &bytes) : api.ptx_size(compilation.program(), &bytes);
  if (result == nvrtc_abi::kSuccess) {
    code.resize(bytes);
    result = architecture.cubin ? api.cubin(compilation.program(), code.data())
                                : api.ptx(compilation.program(), code.data());
  }
  if (result != nvrtc_abi::kSuccess || code.empty())
    return fail(fmt::format("NVRTC compiled {} but gave no code: error {}", source.name, static_cast<int>(result)),
                nvrtc.about.path);
  return code;
}

std::string kernel_cache_folder() {
  const char* cache = std::getenv("XDG_CACHE_HOME");
  if (cache != nullptr && *cache == '/') return std::string(cache) + "/llmprof/kernels";
  const char* home = std::getenv("HOME");
  return home != nullptr && *home == '/' ? std::string(home) + "/.cache/llmprof/kernels" : std::string();
}

Result<std::string> compile_kernel_cached(const nvidia::NvrtcLibrary& nvrtc, const Architecture& architecture,
                                          const KernelSource& source) {
  const std::string file = cache_file(nvrtc, architecture, source);
  if (!file.empty()) {
    std::ifstream in(file, std::ios::binary);
    std::string code((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
    if (looks_whole(code, architecture.cubin)) return code;
  }
  LLMPROF_ASSIGN(std::string code, compile_kernel(nvrtc, architecture, source));
  if (!file.empty() && looks_whole(code, architecture.cubin)) write_cache(file, code);
  return code;
}

}  // namespace llmprof::device::cuda
