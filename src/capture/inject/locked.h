// A mutex of the library held for the life of a scope. pthread's own, which a child of fork can set anew.
#pragma once

#include <pthread.h>

namespace llmprof::inject {

class Locked {
 public:
  explicit Locked(pthread_mutex_t& mutex) : mutex_(mutex) { pthread_mutex_lock(&mutex_); }
  ~Locked() { pthread_mutex_unlock(&mutex_); }
  Locked(const Locked&) = delete;
  Locked& operator=(const Locked&) = delete;

 private:
  pthread_mutex_t& mutex_;
};

}  // namespace llmprof::inject
