// Stacks of an interpreter that this program makes up, in the layout of CPython 3.11: read through GuardedMemory as the
// recorder reads those of a thread that runs on meanwhile, with whatever such memory may hold.
// (tests/run/python_stack_test.py reads those of the real interpreter.)
#include "capture/inject/python/python_stack.h"

#include <gtest/gtest.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <iterator>
#include <random>
#include <string>
#include <thread>
#include <vector>

// What the reader looks for in its process. These are not to be found in any other test.
extern "C" {
__attribute__((visibility("default"))) char PyCode_Type[8], PyUnicode_Type[8], PyBytes_Type[8];
__attribute__((visibility("default"))) char PyType_Type[8], PyFunction_Type[32], PyMethod_Type[32];
__attribute__((visibility("default"))) const char* Py_GetVersion() { return "3.11.2 (made up)"; }
__attribute__((visibility("default"))) void* PyGILState_GetThisThreadState();
}

namespace llmprof::inject {
namespace {

void* own_thread = nullptr;

// Objects one behind the other in pages that can be made unreadable.
class MadeUp {
 public:
  static constexpr size_t kBytes = 1 << 16;
  MadeUp() {
    memory_ = static_cast<char*>(mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  }
  ~MadeUp() { munmap(memory_, kBytes); }
  MadeUp(const MadeUp&) = delete;
  MadeUp& operator=(const MadeUp&) = delete;

  char* object(size_t bytes, const void* type) {
    used_ = (used_ + 15) / 16 * 16;
    char* const out = memory_ + used_;
    used_ += bytes;
    if (type != nullptr) put(out, 8, type);
    return out;
  }
  template <class T>
  static void put(char* object, size_t offset, const T& value) {
    std::memcpy(object + offset, &value, sizeof value);
  }
  char* text(const std::string& content) {
    char* const out = object(48 + content.size() + 1, PyUnicode_Type);
    put(out, 16, static_cast<int64_t>(content.size()));
    put(out, 32, uint32_t{1 << 2 | 0x20 | 0x40});  // a byte a character, compact, ASCII
    std::memcpy(out + 48, content.data(), content.size());
    return out;
  }
  // One instruction a line.
  char* code(const std::string& name, const std::string& file, int32_t first_line, int64_t instructions) {
    std::string lines;
    for (int64_t i = 0; i < instructions; ++i) {
      lines += static_cast<char>(0x80 | 13 << 3);  // without columns, one instruction
      lines += static_cast<char>(i == 0 ? 0 : 2);  // the next line
    }
    char* const table = object(32 + lines.size() + 1, PyBytes_Type);
    put(table, 16, static_cast<int64_t>(lines.size()));
    std::memcpy(table + 32, lines.data(), lines.size());
    char* const out = object(184 + 2 * static_cast<size_t>(instructions), PyCode_Type);
    put(out, 16, instructions);
    put(out, 72, first_line);
    put(out, 112, text(file));
    put(out, 128, text(name));
    put(out, 136, table);
    return out;
  }
  char* frame(const char* code, int64_t instruction, const char* caller) {
    char* const out = object(80, nullptr);
    put(out, 32, code);
    put(out, 48, caller);
    put(out, 56, code + 184 + 2 * instruction);
    return out;
  }
  char* thread(const char* frame) {
    char* const holder = object(16, nullptr);
    put(holder, 8, frame);
    char* const out = object(96, nullptr);
    put(out, 56, holder);
    return out;
  }
  // An instance of a type of C.
  char* instance(const std::string& type_name) {
    char* const name = object(type_name.size() + 1, nullptr);
    std::memcpy(name, type_name.data(), type_name.size());
    char* const type = object(32, PyType_Type);
    put(type, 24, name);
    return object(16, type);
  }
  char* function(const char* code) {
    put(PyFunction_Type, 8, static_cast<const void*>(PyType_Type));
    char* const out = object(56, PyFunction_Type);
    put(out, 48, code);
    return out;
  }
  char* method(const char* function) {
    put(PyMethod_Type, 8, static_cast<const void*>(PyType_Type));
    char* const out = object(24, PyMethod_Type);
    put(out, 16, function);
    return out;
  }
  // As sys.settrace and sys.setprofile leave them.
  void hook(char* thread, bool profile, const char* object) {
    put(thread, profile ? 64 : 72, object == nullptr ? nullptr : memory_);
    put(thread, profile ? 80 : 88, object);
  }
  char* begin() { return memory_; }
  size_t used() const { return used_; }

 private:
  char* memory_ = nullptr;
  size_t used_ = 0;
};

GuardedMemory guarded;

std::string read_text(const void* thread) {
  guarded.begin();
  PythonStack stack;
  if (!read_python_stack_of(thread, guarded, stack)) return "";
  char text[kPythonTextMost];
  return {text, python_stack_text_of(stack, guarded, FramesOf::kProgram, text, sizeof text)};
}

struct Three : MadeUp {
  char *outer_code, *inner_code, *outer, *middle, *inner, *python;
  Three() {
    outer_code = code("main", "/app/serve.py", 10, 20);
    inner_code = code("slow", "/app/text.py", 40, 20);
    outer = frame(outer_code, 5, nullptr);
    middle = frame(code("deepcopy", "/usr/lib/python3.11/copy.py", 128, 9), 3, outer);
    inner = frame(inner_code, 2, middle);
    python = thread(inner);
    own_thread = python;
  }
  ~Three() { own_thread = nullptr; }
};
constexpr const char* kText = "slow (/app/text.py:42) < main (/app/serve.py:15)";

class PythonStackTest : public testing::Test {
 protected:
  void SetUp() override {
    Three of;
    PythonStack stack;
    ASSERT_TRUE(read_python_stack(stack)) << "the reader takes this program for an interpreter";
  }
};

TEST_F(PythonStackTest, BothWaysOfReadingAgree) {
  Three of;
  PythonStack stack;
  ASSERT_TRUE(read_python_stack(stack));
  EXPECT_EQ(stack.thread, of.python);
  char text[kPythonTextMost];
  EXPECT_EQ(std::string(text, python_stack_text(stack, FramesOf::kProgram, text, sizeof text)), kText);
  EXPECT_EQ(read_text(of.python), kText);
}

TEST_F(PythonStackTest, WhatIsCalledForEachLineOrFunctionStandsLast) {
  Three of;
  PythonStack plain, traced;
  ASSERT_TRUE(read_python_stack(plain));
  of.hook(of.python, false, of.method(of.function(of.code("Audit.line", "/app/audit.py", 7, 3))));
  const std::string with_tracer = std::string(kText) + " < [sys.settrace Audit.line (/app/audit.py:7)]";
  EXPECT_EQ(read_text(of.python), with_tracer);
  ASSERT_TRUE(read_python_stack(traced));
  EXPECT_NE(traced.hash, plain.hash);
  of.hook(of.python, true, of.instance("_lsprof.Profiler"));
  EXPECT_EQ(read_text(of.python), with_tracer + " < [sys.setprofile _lsprof.Profiler]");
  of.hook(of.python, false, nullptr);
  EXPECT_EQ(read_text(of.python), std::string(kText) + " < [sys.setprofile _lsprof.Profiler]");
  // What the recorder itself adds is none of the program's; and no object of Python, none.
  of.hook(of.python, true, of.function(of.code("event", "/x/llmprof_frames.py", 7, 3)));
  EXPECT_EQ(read_text(of.python), kText);
  of.hook(of.python, true, of.begin());
  EXPECT_EQ(read_text(of.python), kText);
}

TEST_F(PythonStackTest, OtherCodeAtAnAddressHasAnotherKey) {
  Three of;
  PythonStack before, behind;
  guarded.begin();
  ASSERT_TRUE(read_python_stack_of(of.python, guarded, before));
  MadeUp::put(of.inner_code, 128, of.text("other"));
  guarded.begin();
  ASSERT_TRUE(read_python_stack_of(of.python, guarded, behind));
  EXPECT_NE(before.hash, behind.hash);
  EXPECT_EQ(read_text(of.python), "other (/app/text.py:42) < main (/app/serve.py:15)");
}

TEST_F(PythonStackTest, WhatDoesNotFitGivesNone) {
  const auto none_with = [](auto&& change) {
    Three of;
    change(of);
    return read_text(of.python).empty();
  };
  const char* const nowhere = reinterpret_cast<const char*>(uintptr_t{0x7ffffffff000});
  EXPECT_TRUE(none_with([](Three& of) { MadeUp::put(of.inner, 32, of.text("no code")); }));
  EXPECT_TRUE(none_with([](Three& of) { MadeUp::put(of.outer, 32, static_cast<const char*>(nullptr)); }));
  EXPECT_TRUE(none_with([&](Three& of) { MadeUp::put(of.middle, 48, nowhere); }));
  EXPECT_TRUE(none_with([](Three& of) { MadeUp::put(of.inner, 56, of.inner_code + 184 + 2 * 20); }))
      << "behind its end";
  EXPECT_TRUE(none_with([](Three& of) { MadeUp::put(of.inner, 56, of.inner_code + 184 - 4); }));
  EXPECT_TRUE(none_with([](Three& of) { MadeUp::put(of.inner_code, 112, of.inner_code); })) << "a path that is no text";
  EXPECT_TRUE(none_with([](Three& of) {
    char* const name = of.text("x");
    MadeUp::put(name, 16, int64_t{-5});
    MadeUp::put(of.inner_code, 128, name);
  }));
  EXPECT_TRUE(none_with([](Three& of) {
    char* const lines = of.object(48, PyBytes_Type);
    MadeUp::put(lines, 16, int64_t{1} << 40);
    MadeUp::put(of.inner_code, 136, lines);
  }));
  EXPECT_TRUE(none_with([&](Three& of) { MadeUp::put(of.python, 56, nowhere); }));
}

TEST_F(PythonStackTest, ACircleOfFramesEnds) {
  Three of;
  MadeUp::put(of.outer, 48, of.inner);
  EXPECT_EQ(read_text(of.python).substr(0, 22), std::string(kText).substr(0, 22));
  MadeUp::put(of.outer, 69, uint8_t{3});  // frames of the interpreter alone
  MadeUp::put(of.middle, 69, uint8_t{3});
  MadeUp::put(of.inner, 69, uint8_t{3});
  EXPECT_EQ(read_text(of.python), "");
}

TEST_F(PythonStackTest, PointersToAnythingDoNotEndTheProgram) {
  std::mt19937_64 random(7);
  for (int bits = 0; bits < 64; ++bits)
    for (int i = 0; i < 50; ++i) EXPECT_EQ(read_text(reinterpret_cast<const void*>(random() >> bits)), "");
  for (const uintptr_t end : {uintptr_t{1} << 47, uintptr_t{0} - 8, uintptr_t{0} - 64})
    for (const uintptr_t before : {0, 8, 56, 64}) EXPECT_EQ(read_text(reinterpret_cast<const void*>(end - before)), "");
  const std::vector<uint64_t> noise = [&] {
    std::vector<uint64_t> out(4096);
    for (uint64_t& word : out) word = random();
    return out;
  }();
  for (size_t i = 0; i < 2000; ++i) EXPECT_EQ(read_text(&noise[i]), "");
}

// Bytes and pointers of a true stack replaced by others, and pages taken away: a stack or none, and nothing else.
TEST_F(PythonStackTest, DamagedMemoryDoesNotEndTheProgram) {
  std::mt19937_64 random(3);
  int read = 0;
  for (int round = 0; round < 20000; ++round) {
    Three of;
    for (uint64_t changes = 1 + random() % 4; changes > 0; --changes) {
      const size_t word = 8 * (random() % (of.used() / 8));
      switch (random() % 5) {
        case 0:
          of.begin()[random() % of.used()] ^= static_cast<char>(1 << random() % 8);
          break;
        case 1:
          MadeUp::put(of.begin(), word, random());
          break;
        case 2:
          MadeUp::put(of.begin(), word, of.begin() + random() % of.used());
          break;
        case 3:
          MadeUp::put(of.begin(), word, of.begin() + 8 * (random() % (of.used() / 8)));
          break;
        default:
          MadeUp::put(of.begin(), word, of.begin() + MadeUp::kBytes - random() % 64);
      }
    }
    if (round % 4 == 0) mprotect(of.begin(), 4096 * (random() % 2), PROT_NONE);
    read += read_text(of.python).empty() ? 0 : 1;
  }
  EXPECT_GT(read, 1000) << "most damage is beside the stack";
  EXPECT_LT(read, 20000);
}

// Of a process that may not call process_vm_readv, as in some containers.
void forbid_the_call() {
  sock_filter program[] = {BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
                           BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_process_vm_readv, 0, 1),
                           BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
                           BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
  const sock_fprog filter{static_cast<unsigned short>(std::size(program)), program};
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) != 0)
    _exit(77);
}

TEST_F(PythonStackTest, WhereTheCallIsForbiddenTheFileIsRead) {
  const Three of;
  const pid_t child = fork();
  if (child == 0) {
    forbid_the_call();
    const bool whole = read_text(of.python) == kText && guarded.works();
    const bool none = read_text(reinterpret_cast<const void*>(uintptr_t{8} << 20)).empty();
    _exit(whole && none ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status));
  if (WEXITSTATUS(status) == 77) GTEST_SKIP() << "no filters of calls here";
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

TEST_F(PythonStackTest, MemoryThatGoesAwayMeanwhileDoesNotEndTheProgram) {
  std::atomic<const void*> python{nullptr};
  std::atomic<bool> stop{false};
  std::thread owner([&] {
    while (!stop) {
      Three of;
      python = of.python;
      usleep(20);
    }
  });
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  int whole = 0, none = 0;
  while ((whole < 1000 || none < 1000) && std::chrono::steady_clock::now() < end) {
    const void* const thread = python;
    if (thread == nullptr) continue;
    const std::string text = read_text(thread);
    whole += text == kText ? 1 : 0;
    none += text.empty() ? 1 : 0;
  }
  stop = true;
  owner.join();
  EXPECT_GE(whole, 1000);
  EXPECT_GE(none, 1000);
}

}  // namespace
}  // namespace llmprof::inject

void* PyGILState_GetThisThreadState() { return llmprof::inject::own_thread; }
