#include "device/cuda/context.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/parallel.h"

namespace llmprof::device::cuda {
namespace {

// What PyTorch gives cuBLASLt on Hopper is 32 MiB; twice that keeps every algorithm of the heuristic.
constexpr size_t kWorkspaceBytes = size_t{64} << 20;

std::string key_of(const KernelSource& source) {
  std::string key = source.name;
  for (const std::string& define : source.defines) key += " " + define;
  return key;
}

}  // namespace

Result<std::unique_ptr<Context>> Context::open(int ordinal) {
  std::unique_ptr<Context> context(new Context);
  LLMPROF_ASSIGN(context->driver_, nvidia::open_driver());
  const cuda_abi::Api& api = context->api();
  int count = 0;
  LLMPROF_CHECK(context->check(api.device_count(&count), "counting the GPUs"));
  if (count == 0)
    return fail("expected a GPU, the CUDA driver lists none", {},
                "nvidia-smi must list a GPU, and CUDA_VISIBLE_DEVICES must not hide it; without one, use --device cpu");
  if (ordinal < 0 || ordinal >= count)
    return fail(
        fmt::format("expected a GPU number from 0 to {}, found {}", count - 1, ordinal), "--device",
        fmt::format("CUDA sees {} GPU{} here (CUDA_VISIBLE_DEVICES hides others)", count, count == 1 ? "" : "s"));
  context->ordinal_ = ordinal;
  LLMPROF_CHECK(context->check(api.device_get(&context->device_, ordinal), "opening the GPU"));
  context->cc_major_ = context->attribute(cuda_abi::kCapabilityMajor);
  context->cc_minor_ = context->attribute(cuda_abi::kCapabilityMinor);
  context->sms_ = context->attribute(cuda_abi::kMultiprocessorCount);
  LLMPROF_CHECK(context->check(api.context_retain(&context->context_, context->device_), "starting CUDA on the GPU"));
  LLMPROF_CHECK(context->check(api.context_set_current(context->context_), "starting CUDA on the GPU"));
  LLMPROF_CHECK(context->check(api.stream_create(&context->stream_, cuda_abi::kStreamNonBlocking), "making a stream"));
  return context;
}

Context::~Context() {
  if (cudnn_ && *cudnn_) (*cudnn_)->library.api.destroy((*cudnn_)->handle);
  if (cublas_ && *cublas_) (*cublas_)->library.api.destroy((*cublas_)->handle);
  if (cublaslt_ && *cublaslt_) {
    (*cublaslt_)->library.api.destroy((*cublaslt_)->handle);
    api().memory_free((*cublaslt_)->workspace);
  }
  for (const auto& [key, module] : modules_) api().module_unload(module);
  if (stream_ != nullptr) api().stream_destroy(stream_);
  if (context_ != nullptr) api().context_release(device_);
}

int Context::attribute(cuda_abi::DeviceAttribute attribute) const {
  int value = 0;
  return api().device_attribute(&value, attribute, device_) == cuda_abi::kSuccess ? value : 0;
}

Status Context::check(cuda_abi::Result result, std::string_view doing) {
  if (lost_) return tl::unexpected<Error>(*lost_);
  if (result == cuda_abi::kSuccess) return {};
  std::string what = fmt::format("{}: {}", doing, nvidia::result_text(api(), result));
  if (!nvidia::loses_context(result)) return fail(std::move(what));
  lost_ = Error{std::move(what), fmt::format("cuda:{}", ordinal_),
                "nothing more can run on this GPU in this process; what was measured before is kept, start again to go "
                "on behind this case",
                ExitCode::kFailed};
  return tl::unexpected<Error>(*lost_);
}

Status Context::synchronize() { return check(api().stream_synchronize(stream_), "waiting for the GPU"); }

Result<const nvidia::NvrtcLibrary*> Context::nvrtc() {
  if (!nvrtc_) nvrtc_ = nvidia::open_nvrtc(driver_.version);
  if (!*nvrtc_) return tl::unexpected<Error>(nvrtc_->error());
  return &**nvrtc_;
}

void Context::compile_ahead(const std::vector<KernelSource>& sources) {
  std::map<std::string, const KernelSource*> missing;
  for (const KernelSource& source : sources) {
    const std::string key = key_of(source);
    if (!modules_.count(key) && !compiled_.count(key) && !broken_.count(key)) missing.emplace(key, &source);
  }
  if (missing.size() < 2) return;
  const Result<const nvidia::NvrtcLibrary*> compiler = nvrtc();
  if (!compiler) return;
  const Result<Architecture> architecture = architecture_for(**compiler, cc_major_, cc_minor_);
  if (!architecture) return;
  const std::vector<std::pair<std::string, const KernelSource*>> jobs(missing.begin(), missing.end());
  std::vector<Result<std::string>> codes(jobs.size());
  parallel_for(jobs.size(),
               [&](size_t i) { codes[i] = compile_kernel_cached(**compiler, *architecture, *jobs[i].second); });
  for (size_t i = 0; i < jobs.size(); ++i) {
    if (codes[i])
      compiled_.emplace(jobs[i].first, *std::move(codes[i]));
    else
      broken_.emplace(jobs[i].first, std::move(codes[i].error()));
  }
}

Result<Kernel> Context::kernel(const KernelSource& source, const char* function) {
  const std::string key = key_of(source);
  const auto broken = broken_.find(key);
  if (broken != broken_.end()) return tl::unexpected<Error>(broken->second);
  if (modules_.find(key) == modules_.end()) {
    auto code = compiled_.find(key);
    if (code == compiled_.end()) {
      LLMPROF_ASSIGN(const nvidia::NvrtcLibrary* compiler, nvrtc());
      LLMPROF_ASSIGN(const Architecture architecture, architecture_for(*compiler, cc_major_, cc_minor_));
      Result<std::string> made = compile_kernel_cached(*compiler, architecture, source);
      if (!made) return tl::unexpected<Error>(broken_.emplace(key, std::move(made.error())).first->second);
      code = compiled_.emplace(key, *std::move(made)).first;
    }
    cuda_abi::Module module = nullptr;
    LLMPROF_CHECK(check(api().module_load(&module, code->second.data()), "loading the kernels of " + source.name));
    modules_.emplace(key, module);
    compiled_.erase(code);
  }
  Kernel kernel;
  kernel.name = function;
  LLMPROF_CHECK(check(api().module_function(&kernel.function, modules_[key], function),
                      fmt::format("looking for the kernel {} of {}", function, source.name)));
  return kernel;
}

int Context::blocks_per_sm(const Kernel& kernel, unsigned threads, size_t shared_bytes) {
  int blocks = 0;
  const cuda_abi::Result result = api().occupancy(&blocks, kernel.function, static_cast<int>(threads), shared_bytes);
  return result == cuda_abi::kSuccess ? std::max(blocks, 1) : 1;
}

bool Context::fits(const Kernel& kernel, unsigned threads) {
  int blocks = 0;
  return api().occupancy(&blocks, kernel.function, static_cast<int>(threads), 0) != cuda_abi::kSuccess || blocks > 0;
}

Status Context::launch_list(const Kernel& kernel, unsigned grid_x, unsigned grid_y, unsigned threads,
                            unsigned shared_bytes, void** parameters) {
  const cuda_abi::Result result =
      api().launch(kernel.function, grid_x, grid_y, 1, threads, 1, 1, shared_bytes, stream_, parameters, nullptr);
  if (result == cuda_abi::kSuccess && !lost_) return {};  // no text is made for the usual case
  return check(result, fmt::format("launching {}", kernel.name));
}

Result<const CublasLt*> Context::cublaslt() {
  if (!cublaslt_) {
    Result<nvidia::CublasLtLibrary> library = nvidia::open_cublaslt(driver_.version);
    if (!library) {
      cublaslt_ = Result<CublasLt>(tl::unexpected<Error>(std::move(library.error())));
    } else {
      CublasLt lt;
      lt.library = std::move(*library);
      const cublaslt::Status status = lt.library.api.create(&lt.handle);
      if (status != cublas::kSuccess)
        return fail("cuBLASLt did not start: " + nvidia::cublaslt_status_text(status), lt.library.about.path);
      if (api().memory_alloc(&lt.workspace, kWorkspaceBytes) == cuda_abi::kSuccess)
        lt.workspace_bytes = kWorkspaceBytes;
      cublaslt_ = Result<CublasLt>(std::move(lt));
    }
  }
  if (!*cublaslt_) return tl::unexpected<Error>(cublaslt_->error());
  return &**cublaslt_;
}

Result<const Cublas*> Context::cublas() {
  if (!cublas_) {
    LLMPROF_ASSIGN(const CublasLt* lt, cublaslt());
    Result<nvidia::CublasLibrary> library = nvidia::open_cublas();
    if (!library) {
      cublas_ = Result<Cublas>(tl::unexpected<Error>(std::move(library.error())));
    } else {
      Cublas cublas;
      cublas.library = std::move(*library);
      const cublas::Api& functions = cublas.library.api;
      int version = 0, status = functions.create(&cublas.handle);
      if (status == cublas::kSuccess)
        status = functions.set_stream(cublas.handle, reinterpret_cast<cublas::Stream>(stream_));
      if (status == cublas::kSuccess)
        status = functions.set_workspace(cublas.handle, reinterpret_cast<void*>(lt->workspace), lt->workspace_bytes);
      if (status == cublas::kSuccess) status = functions.version(cublas.handle, &version);
      if (status != cublas::kSuccess)
        return fail(fmt::format("cuBLAS did not start: status {}", status), cublas.library.about.path);
      cublas.library.about.version = fmt::format("{}.{}.{}", version / 10000, version / 100 % 100, version % 100);
      cublas_ = Result<Cublas>(std::move(cublas));
    }
  }
  if (!*cublas_) return tl::unexpected<Error>(cublas_->error());
  return &**cublas_;
}

Result<const Cudnn*> Context::cudnn() {
  if (!cudnn_) {
    // Where they are missing cuDNN may still find its own.
    static_cast<void>(nvrtc());
    static_cast<void>(cublaslt());
    Result<nvidia::CudnnLibrary> library = nvidia::open_cudnn(driver_.version);
    if (!library) {
      cudnn_ = Result<Cudnn>(tl::unexpected<Error>(std::move(library.error())));
    } else {
      Cudnn cudnn;
      cudnn.library = std::move(*library);
      const cudnn::Api& functions = cudnn.library.api;
      int status = functions.create(&cudnn.handle);
      if (status == cudnn::kSuccess)
        status = functions.set_stream(cudnn.handle, reinterpret_cast<cudnn::Stream>(stream_));
      if (status != cudnn::kSuccess)
        return fail(fmt::format("cuDNN did not start: {} ({})", functions.status_name(status), status),
                    cudnn.library.about.path);
      cudnn_ = Result<Cudnn>(std::move(cudnn));
    }
  }
  if (!*cudnn_) return tl::unexpected<Error>(cudnn_->error());
  return &**cudnn_;
}

}  // namespace llmprof::device::cuda
