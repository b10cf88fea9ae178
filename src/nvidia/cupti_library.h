// The libcupti of this process, opened at run time. The process must not end up with two of them, so the copy that it
// has loaded, or that its own libraries will load, is the one taken. Compiled into the injection library, too: nothing
// here throws, and no other file of this program is needed.
#pragma once

#include <string>
#include <type_traits>

#include "nvidia/cupti_abi.h"

namespace llmprof::nvidia {

// Variable of the environment: path of the libcupti to use; searched for if unset.
constexpr const char* kEnvCupti = "LLMPROF_CUPTI";

struct CuptiLibrary {
#define LLMPROF_MEMBER(name, signature) std::add_pointer_t<signature> name = nullptr;
  LLMPROF_CUPTI_FUNCTIONS(LLMPROF_MEMBER)
  LLMPROF_CUPTI_OPTIONAL_FUNCTIONS(LLMPROF_MEMBER)
#undef LLMPROF_MEMBER
  uint32_t version = 0;
  char path[512] = {};

  // Looks for, in this order: a libcupti that is loaded already; LLMPROF_CUPTI; the one beside a loaded libcudart or
  // libcublas; beside the program's own libraries; the toolkit's folder; the dynamic linker's path. False with a reason
  // in `why` if none can be loaded or functions are missing.
  bool open(std::string& why);
  // Text of a result code.
  const char* text_of(cupti::Result result) const;
};

}  // namespace llmprof::nvidia
