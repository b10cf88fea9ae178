// Call stacks as text, and names from the symbol tables of files.
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <link.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <random>

#include "capture/spool/build_id.h"
#include "import/session_stacks.h"
#include "temporary_folder.h"

namespace llmprof::session_importer {
namespace {

// The C library, as the loader has it.
struct Library {
  std::string path, build_id;
  uint64_t version = 0;  // offset of a function that no sanitizer replaces
};

Library c_library() {
  Library found;
  Dl_info info{};
  EXPECT_NE(dladdr(dlsym(RTLD_DEFAULT, "gnu_get_libc_version"), &info), 0);
  EXPECT_STREQ(info.dli_sname, "gnu_get_libc_version");
  found.path = std::filesystem::canonical(info.dli_fname);
  found.version = static_cast<uint64_t>(static_cast<char*>(info.dli_saddr) - static_cast<char*>(info.dli_fbase));
  const auto* const head = static_cast<const ElfW(Ehdr)*>(info.dli_fbase);
  const char* const base = static_cast<const char*>(info.dli_fbase);
  for (int i = 0; i < head->e_phnum; ++i) {
    const ElfW(Phdr)& segment = reinterpret_cast<const ElfW(Phdr)*>(base + head->e_phoff)[i];
    if (segment.p_type != PT_NOTE) continue;
    for (const char byte : spool::build_id_among({base + segment.p_vaddr, segment.p_memsz}, segment.p_align)) {
      char digits[3];
      std::snprintf(digits, sizeof digits, "%02x", static_cast<uint8_t>(byte));
      found.build_id += digits;
    }
  }
  EXPECT_EQ(found.build_id.size(), 40U);
  return found;
}

TEST(CaptureStacks, AreShortened) {
  EXPECT_EQ(short_function("main"), "main");
  EXPECT_EQ(short_function("_ZN2at4_ops2mm4callERKNS_6TensorES4_"), "at::_ops::mm::call");
  EXPECT_EQ(short_function("_ZN2at6native11silu_kernelIiEET_PFS2_vES2_"), "at::native::silu_kernel");
  EXPECT_EQ(short_function("_ZNK3c104SizecvT_IiEEv").substr(0, 19), "c10::Size::operator");
  EXPECT_EQ(short_function("_ZN12_GLOBAL__N_13runEi"), "(anonymous namespace)::run");
  EXPECT_EQ(short_function("_ZZN1a1fEiENKUliE_clEi"), "a::f::{lambda#1}::operator()");
  EXPECT_EQ(short_function("_ZN1alsERSoRKNS_1bE"), "a::operator<<");
  EXPECT_EQ(short_function("_Znwm"), "operator new");
  EXPECT_EQ(short_function("_ZNSt6vectorIiSaIiEE9push_backERKi"), "std::vector::push_back");
  EXPECT_EQ(short_function("_Znonsense"), "_Znonsense");
  // A comparison among the template arguments: void f<(4ul)>(2)>() and what the demangler makes of it.
  EXPECT_EQ(short_function("_Z1fILi3EEvN9enable_ifIXgtT_Li2EEiE4typeE"), "f");
}

TEST(CaptureStacks, TooLongForTheDemanglerGiveThePath) {
  std::string name = "_ZN2at6native12_GLOBAL__N_14loopI";
  for (int i = 0; i < 400; ++i) name += "St4pairIiiE";
  name += "EEvv";
  EXPECT_EQ(short_function(name), "at::native::(anonymous namespace)::loop");
  const std::string odd = "_ZN99999999999999999999999abc" + std::string(2000, 'x');
  EXPECT_LE(frame_line("lib.so", odd, 0).size(), 256U);
}

TEST(CaptureStacks, FramesOfModules) {
  EXPECT_EQ(frame_line("/opt/lib/libtorch_cpu.so", "_ZN2at4_ops2mm4callERKNS_6TensorES4_", 0),
            "libtorch_cpu.so!at::_ops::mm::call");
  EXPECT_EQ(frame_line("/usr/lib/libcublasLt.so.12", "", 0x1f20), "libcublasLt.so.12!0x1f20");
  EXPECT_EQ(frame_line("/usr/bin/python3.11", "_PyEval_EvalFrameDefault", 0), "[python]");
  EXPECT_EQ(frame_line("/usr/bin/python", "", 3), "[python]");
  EXPECT_EQ(frame_line("/usr/bin/python3.13t", "", 3), "[python]");
  EXPECT_EQ(frame_line("/usr/lib/libpython3.11.so.1.0", "", 3), "[python]");
  EXPECT_EQ(frame_line("/usr/bin/python-app", "run", 0), "python-app!run");
  EXPECT_EQ(frame_line("", "", 3), "[unknown]");
}

TEST(CaptureStacks, StacksAreCutAndFolded) {
  StackText text;
  for (const char* frame :
       {"libllmprof_inject.so!0x10", "libcupti.so.12!0x20", "libcuda.so.1!0x30", "libcudart.so.12!cudaLaunchKernel",
        "libtorch_cuda.so!at::native::silu_kernel", "libcudart.so.12!kept", "[python]", "[python]", "[python]",
        "libtorch_python.so!torch::run", "[python]", "[python]", "libc.so.6!f", "libc.so.6!f"})
    text.add(frame);
  EXPECT_EQ(text.text(),
            "libtorch_cuda.so!at::native::silu_kernel\nlibcudart.so.12!kept\n[python]\nlibtorch_python.so!torch::run\n"
            "[python]\nlibc.so.6!f\nlibc.so.6!f");
  StackText deep;
  for (int i = 0; i < 60; ++i) deep.add("lib!f");
  EXPECT_EQ(deep.text().size(), 48 * 6 - 1U);
}

TEST(CaptureStacks, NamesAreThoseOfTheFileWithThatBuildId) {
  const Library library = c_library();
  const auto name = [&](const std::string& path, std::string_view build_id) {
    return std::string(ModuleSymbols(path, build_id).function_at(library.version + 1));
  };
  EXPECT_EQ(name(library.path, library.build_id), "gnu_get_libc_version");
  std::string other = library.build_id;
  other[5] = other[5] == '0' ? '1' : '0';
  EXPECT_EQ(name(library.path, other), "");
  EXPECT_EQ(name(library.path, ""), "") << "nothing says that it is the same file";
  EXPECT_EQ(name(std::filesystem::relative(library.path), library.build_id), "") << "relative to what?";
  EXPECT_EQ(name("/nowhere/libc.so.6", library.build_id), "");
  EXPECT_EQ(name("/dev/zero", library.build_id), "");
  EXPECT_EQ(name("/", library.build_id), "");

  Modules modules;
  const size_t right = modules.add(library.path, library.build_id), wrong = modules.add("/x/lib.so", other);
  EXPECT_TRUE(modules.line(right, library.version + 1).ends_with("!gnu_get_libc_version"));
  EXPECT_EQ(modules.line(wrong, 0x1f20), "lib.so!0x1f20");
  EXPECT_EQ(modules.line(wrong + 1, 0x1f20), "[unknown]");
}

TEST(CaptureStacks, AFileMayHoldAnything) {
  const Library library = c_library();
  std::ifstream in(library.path, std::ios::binary);
  const std::string bytes{std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
  const TemporaryFolder folder;
  const std::string path = std::filesystem::path(folder.path()) / "libc.so.6";
  ElfW(Ehdr) head;
  std::memcpy(&head, bytes.data(), sizeof head);
  std::mt19937 random(1);
  size_t named = 0;
  for (int round = 0; round < 200; ++round) {
    // Some bytes of the head or of the table of sections are others, or the file is cut.
    std::string changed = bytes;
    const bool in_head = round % 4 == 0;
    for (int i = 0; i < (in_head ? 1 : 8); ++i) {
      const size_t at = in_head ? random() % sizeof head : head.e_shoff + random() % (head.e_shnum * head.e_shentsize);
      changed[at] = static_cast<char>(random());
    }
    if (round % 10 == 9) changed.resize(random() % changed.size());
    std::ofstream(path, std::ios::binary | std::ios::trunc) << changed;
    const ModuleSymbols symbols(path, library.build_id);
    named += symbols.function_at(library.version) == "gnu_get_libc_version" ? 1 : 0;
    for (int i = 0; i < 100; ++i) EXPECT_LT(symbols.function_at(random() % bytes.size()).size(), bytes.size());
  }
  EXPECT_GT(named, 0U);
  EXPECT_LT(named, 200U);
}

}  // namespace
}  // namespace llmprof::session_importer
