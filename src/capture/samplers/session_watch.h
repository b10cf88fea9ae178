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

 private:
  session::Control* control_ = nullptr;
  pid_t parent_ = 0;
};

}  // namespace llmprof::samplers
