#pragma once

#include <nanobind/nanobind.h>

namespace shardwise::python {

// Before Python 3.14, if a thread requests the GIL after the interpreter has ended, Python ends the
// thread with pthread_exit(), which unwinds its stack. If the stack has a noexcept frame, as slots
// and nanobind have, the process is terminated. A destructor on the stack may release an object
// that no longer exists. With the classes below such a thread waits until the process ends, which
// is Python's own behaviour from 3.14 on.

[[noreturn]] void wait_for_end_of_process() noexcept;

/// While it lives, the calling thread has released the GIL.
/// REQUIRES: the GIL.
class GilReleased {
 public:
  GilReleased() noexcept : state_(PyEval_SaveThread()) {}
  ~GilReleased();
  GilReleased(const GilReleased&) = delete;
  GilReleased& operator=(const GilReleased&) = delete;

 private:
  PyThreadState* const state_;
};

/// While it lives, the calling thread holds the GIL. It may have held it before, or be unknown to
/// Python.
/// REQUIRES: Python code runs only inside call_python(), except in threads that end before the
/// interpreter does, e.g. those of a loader.
class GilAcquired {
 public:
  GilAcquired() noexcept;
  ~GilAcquired();
  GilAcquired(const GilAcquired&) = delete;
  GilAcquired& operator=(const GilAcquired&) = delete;

 private:
  PyGILState_STATE state_{};
};

/// Its destructor waits until the process ends if the stack is being unwound. A catch handler
/// cannot wait, as pthread_exit() must not start unwinding while an exception is handled.
struct WaitUnlessDone {
  bool is_done = false;
  ~WaitUnlessDone() {
    if (!is_done) wait_for_end_of_process();
  }
};

/// Calls `function`, in which Python code may run and release the GIL.
/// REQUIRES: `function` does not throw, and has no local objects whose destructors release Python
/// objects.
template <class Function>
void call_python(const Function& function) {
  WaitUnlessDone guard;
  function();
  guard.is_done = true;
}

}  // namespace shardwise::python
