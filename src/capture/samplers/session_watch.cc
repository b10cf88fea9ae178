#include "capture/samplers/session_watch.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <iterator>

#include "base/clock.h"
#include "capture/spool/records.h"

namespace llmprof::samplers {
namespace {

volatile std::sig_atomic_t terminated = 0;
void on_terminate(int) { terminated = 1; }

session::Control* open_control(const std::string& path) {
  const int fd = open(path.c_str(), O_RDWR | O_CLOEXEC);
  session::Control* const control = session::map_control(fd, true);
  if (fd >= 0) close(fd);
  return control;
}

}  // namespace

SessionWatch::SessionWatch(const std::string& folder)
    : control_(open_control(folder + "/control")), parent_(getppid()) {
  terminated = 0;
  struct sigaction action {};
  action.sa_handler = on_terminate;
  sigaction(SIGTERM, &action, nullptr);
  // Ctrl-C reaches the whole foreground group; what it means is the target's to say.
  action.sa_handler = SIG_IGN;
  sigaction(SIGINT, &action, nullptr);
  prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (getppid() != parent_) terminated = 1;  // it died before the request
}

SessionWatch::~SessionWatch() {
  if (control_ != nullptr) munmap(control_, sizeof(session::Control));
}

bool SessionWatch::finished() const {
  if (terminated != 0 || getppid() != parent_) return true;
  return control_ != nullptr && control_->finished.load(std::memory_order_acquire) != 0;
}

bool SessionWatch::wanted() const {
  if (control_ == nullptr) return true;
  const int64_t until_ns = control_->record_until_ns.load(std::memory_order_relaxed);
  if (until_ns != 0 && realtime_ns() > until_ns) return false;
  return control_->wanted_level.load(std::memory_order_acquire) != 0;
}

bool SessionWatch::counters_wanted() const {
  return control_ == nullptr || session::sampled(static_cast<session::Counters>(control_->counters.load()));
}

void SessionWatch::tell(Counting counting) const {
  if (control_ == nullptr) return;
  const int64_t now_ns = realtime_ns();
  control_->counters_since_ns = counting == Counting::kChanging ? 0 : counting == Counting::kOn ? now_ns : -now_ns;
}

int64_t SessionWatch::step_ns() const {
  int64_t shortest_ns = 0;
  if (control_ == nullptr) return 0;
  for (const session::Slot& slot : control_->slots) {
    const int64_t step_ns = slot.step_ns.load(std::memory_order_relaxed);
    if (slot.process_id.load(std::memory_order_relaxed) != 0 && step_ns > 0 &&
        (shortest_ns == 0 || step_ns < shortest_ns))
      shortest_ns = step_ns;
  }
  return shortest_ns;
}

bool SessionWatch::kernels_recorded() const {
  if (control_ == nullptr) return false;
  return std::any_of(std::begin(control_->slots), std::end(control_->slots), [](const session::Slot& slot) {
    return session::is_live(slot) &&
           slot.level.load(std::memory_order_relaxed) >= static_cast<uint32_t>(spool::Level::kDefault);
  });
}

}  // namespace llmprof::samplers
