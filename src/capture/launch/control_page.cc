#include "capture/launch/control_page.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <new>
#include <utility>

namespace llmprof::launch {
namespace {

using session::Control;

std::string control_path(const std::string& folder) { return folder + "/control"; }

}  // namespace

Result<ControlPage> ControlPage::create(const std::string& folder, spool::Level planned, spool::Level wanted) {
  const std::string path = control_path(folder);
  ControlPage page;
  page.fd_ = ::open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
  if (page.fd_ < 0)
    return fail(std::string("cannot create the session's control page: ") + std::strerror(errno), path,
                "choose another folder with -o");
  int error = posix_fallocate(page.fd_, 0, sizeof(Control));
  if (error == EOPNOTSUPP || error == EINVAL) error = ftruncate(page.fd_, sizeof(Control)) == 0 ? 0 : errno;
  if (error != 0)
    return fail(std::string("cannot reserve the session's control page: ") + std::strerror(error), path,
                "make room on that disk, or choose a folder on another one with -o");
  flock(page.fd_, LOCK_EX | LOCK_NB);  // a file system without locks only makes `ctl` unable to find the session
  void* const memory = mmap(nullptr, sizeof(Control), PROT_READ | PROT_WRITE, MAP_SHARED, page.fd_, 0);
  if (memory == MAP_FAILED)
    return fail(std::string("cannot map the session's control page: ") + std::strerror(errno), path,
                "choose a folder on a local disk with -o");
  Control* const control = page.page_ = new (memory) Control{};
  control->version = session::kControlVersion;
  control->planned_level = static_cast<uint32_t>(planned);
  control->wanted_level = static_cast<uint32_t>(wanted);
  std::atomic_thread_fence(std::memory_order_release);
  control->magic = session::kControlMagic;
  return page;
}

Result<ControlPage> ControlPage::open(const std::string& folder) {
  const std::string path = control_path(folder);
  ControlPage page;
  page.fd_ = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (page.fd_ < 0)
    return fail(std::string("expected the folder of a session: ") + std::strerror(errno), path,
                "name a folder that `llmprof run` made");
  page.page_ = session::map_control(page.fd_, true);
  if (page.page_ == nullptr)
    return fail(
        "expected a control page of version " + std::to_string(session::kControlVersion) + ", found something else",
        path, "use the llmprof that made the session");
  return page;
}

ControlPage::ControlPage(ControlPage&& other) noexcept
    : page_(std::exchange(other.page_, nullptr)), fd_(std::exchange(other.fd_, -1)) {}

ControlPage& ControlPage::operator=(ControlPage&& other) noexcept {
  std::swap(page_, other.page_);
  std::swap(fd_, other.fd_);
  return *this;
}

ControlPage::~ControlPage() {
  if (page_ != nullptr) munmap(page_, sizeof(Control));
  if (fd_ >= 0) close(fd_);
}

void ControlPage::set_level(spool::Level level, int64_t until_ns) const {
  page_->record_until_ns = until_ns;
  page_->wanted_level = static_cast<uint32_t>(level);
  page_->command.fetch_add(1);
}

void ControlPage::set_counters(session::Counters counters) const { page_->counters = static_cast<uint32_t>(counters); }

spool::Level ControlPage::wanted() const { return static_cast<spool::Level>(page_->wanted_level.load()); }

bool session_is_running(const std::string& folder) {
  const int fd = ::open(control_path(folder).c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return false;
  const bool held = flock(fd, LOCK_SH | LOCK_NB) != 0 && errno == EWOULDBLOCK;
  close(fd);
  return held;
}

Progress progress_of(const session::Control& control) {
  Progress sum;
  for (const session::Slot& slot : control.slots) {
    if (slot.process_id.load(std::memory_order_relaxed) == 0) continue;
    ++sum.processes;
    if (slot.state.load() != static_cast<uint32_t>(session::SlotState::kEnded)) ++sum.alive;
    sum.kernels += slot.kernels.load(std::memory_order_relaxed);
    sum.bytes += slot.bytes.load(std::memory_order_relaxed);
  }
  return sum;
}

}  // namespace llmprof::launch
