// Whether the session still wants samples: its control page, SIGTERM and the life of the parent, in one place.
#pragma once

#include <sys/types.h>

#include <string>

#include "capture/session/control.h"

namespace llmprof::samplers {

class SessionWatch {
 public:
  // Maps the control page of the folder if there is one (an unknown version counts as none) and asks the kernel for
  // SIGTERM when the parent dies.
  explicit SessionWatch(const std::string& folder);
  ~SessionWatch();
  SessionWatch(const SessionWatch&) = delete;
  SessionWatch& operator=(const SessionWatch&) = delete;

  bool finished() const;
  bool wanted() const;  // false while the session is armed but records nothing
  // False while counters are not to be sampled although recording goes on.
  bool counters_wanted() const;
  // Tells the session that counters are sampled from now on, are not, or that this changes.
  enum class Counting : uint8_t { kChanging, kOn, kOff };
  void tell(Counting counting) const;
  // What the shortest usual step of a watched process takes; 0 not known.
  int64_t step_ns() const;
  // Whether a watched process records kernels now.
  bool kernels_recorded() const;

 private:
  session::Control* control_ = nullptr;
  pid_t parent_ = 0;
};

}  // namespace llmprof::samplers
