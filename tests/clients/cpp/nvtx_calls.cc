#include "nvtx_calls.h"

#include <errno.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <string>
#include <thread>
#include <vector>

#include "nvtx_loader.h"

namespace client {

namespace {

using Push = int(const char*);
using PushWide = int(const wchar_t*);
using Pop = int();
using DomainPush = int(const void*, const nvtx::EventAttributes*);
using DomainPop = int(const void*);

nvtx::EventAttributes event(int message_type, const void* message) {
  nvtx::EventAttributes attributes{};
  attributes.version = 3;
  attributes.size = sizeof(attributes);
  attributes.message_type = message_type;
  attributes.message.registered = message;
  return attributes;
}

void push_payloads(const NvtxLoader& loader, const void* domain, const void* text) {
  DomainPush* push = loader.core2<DomainPush>(nvtx::kDomainRangePushEx);
  DomainPop* pop = loader.core2<DomainPop>(nvtx::kDomainRangePop);
  auto* mark = loader.core2<void(const void*, const nvtx::EventAttributes*)>(nvtx::kDomainMarkEx);
  nvtx::EventAttributes attributes = event(nvtx::kMessageRegistered, text);
  attributes.payload_type = nvtx::kPayloadInt64;
  attributes.payload.i64 = -5;
  push(domain, &attributes);
  pop(domain);
  attributes.payload_type = nvtx::kPayloadFloat;
  attributes.payload.f32 = 2.5F;
  mark(domain, &attributes);

  // What NCCL does: a schema with a static id, a payload of it behind the event.
  struct AllReduce {
    uint64_t communicator;
    size_t bytes;
    int operation;
  };
  const nvtx::SchemaEntry entries[] = {
      {0, nvtx::kTypeUint64, "Communicator ID", nullptr, 0, 0, nullptr, nullptr},
      {0, nvtx::kTypeSize, "Message size [bytes]", nullptr, 0, offsetof(AllReduce, bytes), nullptr, nullptr},
      {0, nvtx::kTypeInt, "Operation", nullptr, 0, offsetof(AllReduce, operation), nullptr, nullptr}};
  nvtx::SchemaAttributes schema{};
  schema.fields =
      nvtx::kSchemaName | nvtx::kSchemaEntries | nvtx::kSchemaEntryCount | nvtx::kSchemaStaticSize | nvtx::kSchemaId;
  schema.name = "AllReduce";
  schema.entries = entries;
  schema.entry_count = 3;
  schema.static_size = sizeof(AllReduce);
  schema.schema = nvtx::kSchemaIdStatic + 3;
  auto* add = loader.payload<uint64_t(const void*, const nvtx::SchemaAttributes*)>(nvtx::kPayloadSchemaRegister);
  uint64_t id = add(domain, &schema);
  printf("schema %d\n", id == schema.schema ? 1 : 0);
  AllReduce call{0x1234567890ABCDEF, 1 << 20, 0};
  nvtx::PayloadData data{id, sizeof(call), &call};
  attributes.payload_type = nvtx::kPayloadExtended;
  attributes.payload_count = 1;
  attributes.payload.u64 = reinterpret_cast<uintptr_t>(&data);
  push(domain, &attributes);
  pop(domain);
  call.bytes = 4096;
  loader.payload<int(const void*, const nvtx::PayloadData*, size_t)>(nvtx::kRangePushPayload)(domain, &data, 1);
  pop(domain);
}

}  // namespace

int run_nvtx() {
  NvtxLoader again;
  printf("attached %d\n", again.attach() ? 1 : 0);
  NvtxLoader loader;
  printf("attached again %d\n", loader.attach() ? 1 : 0);
  printf("payloads %d\n", loader.attach_payloads() ? 1 : 0);
  Push* push = loader.core<Push>(nvtx::kRangePushA);
  Pop* pop = loader.core<Pop>(nvtx::kRangePop);
  if (push == nullptr || pop == nullptr) return 0;  // not watched: the header's calls end here too
  DomainPush* domain_push = loader.core2<DomainPush>(nvtx::kDomainRangePushEx);
  DomainPop* domain_pop = loader.core2<DomainPop>(nvtx::kDomainRangePop);
  loader.core<void(uint32_t, const char*)>(nvtx::kNameOsThreadA)(static_cast<uint32_t>(syscall(SYS_gettid)),
                                                                 "the client");
  const void* domain = loader.core2<const void*(const char*)>(nvtx::kDomainCreateA)("NCCL");
  const void* same = again.core2<const void*(const wchar_t*)>(nvtx::kDomainCreateW)(L"NCCL");
  const void* text =
      loader.core2<const void*(const void*, const char*)>(nvtx::kDomainRegisterStringA)(domain, "ncclAllReduce");
  printf("same domain %d\n", domain == same ? 1 : 0);

  // Two stacks that cross each other.
  nvtx::EventAttributes registered = event(nvtx::kMessageRegistered, text);
  int levels[7];
  errno = 5;
  levels[0] = push("outer");
  levels[1] = push("inner");
  levels[2] = domain_push(domain, &registered);
  levels[3] = pop();
  levels[4] = domain_pop(domain);
  levels[5] = pop();
  levels[6] = pop();  // one too many
  int seen = errno;
  for (int level : levels) printf("%d ", level);
  printf("errno %d\n", seen);

  loader.core<PushWide>(nvtx::kRangePushW)(L"\u00e4\u4e16\U0001F600");
  pop();
  push_payloads(loader, domain, text);
  loader.core<void(const char*)>(nvtx::kMarkA)("a mark");

  // Started here, ended by another thread.
  uint64_t id = loader.core<uint64_t(const char*)>(nvtx::kRangeStartA)("across");
  auto* end = loader.core<void(uint64_t)>(nvtx::kRangeEnd);
  std::thread([&] { end(id); }).join();
  end(id);  // a second end must do nothing
  // Open over several drains, one of them for good.
  push("left open");
  uint64_t longer = loader.core<uint64_t(const char*)>(nvtx::kRangeStartA)("long");
  push("long inside");
  usleep(1800000);
  pop();
  end(longer);
  return 0;
}

// Eight threads, each with ranges three deep, enough to fill its log many times; then threads that come and go.
int run_threads() {
  NvtxLoader loader;
  if (!loader.attach()) return 1;
  Push* push = loader.core<Push>(nvtx::kRangePushA);
  Pop* pop = loader.core<Pop>(nvtx::kRangePop);
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t) {
    threads.emplace_back([=] {
      std::string name = "thread " + std::to_string(t);
      for (int i = 0; i < 20000; ++i) {
        push(name.c_str());
        push("middle");
        push("inner");
        pop();
        pop();
        pop();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (int i = 0; i < 300; ++i) {
    std::thread([=] {
      push("short");
      pop();
    }).join();
  }
  return 0;
}

int run_fork(void (*in_child)()) {
  NvtxLoader loader;
  if (!loader.attach()) return 1;
  Push* push = loader.core<Push>(nvtx::kRangePushA);
  Pop* pop = loader.core<Pop>(nvtx::kRangePop);
  push("around the fork");
  pid_t child = fork();
  if (child == 0) {
    pop();
    push("in the child");
    in_child();
    pop();
    std::thread([=] {
      push("thread of the child");
      pop();
    }).join();
    _exit(3);
  }
  int status = 0;
  waitpid(child, &status, 0);
  printf("child %d\n", WIFEXITED(status) ? WEXITSTATUS(status) : -1);
  pop();
  push("after the fork");
  pop();
  return 0;
}

}  // namespace client
