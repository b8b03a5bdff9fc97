#pragma once

#include <nanobind/nanobind.h>

namespace shardwise::python {

// Before Python 3.14, a thread that requests the GIL after the interpreter ended is ended with
// pthread_exit(), which unwinds its stack. A noexcept frame on the way, as in slots and in
// nanobind, ends the process. A destructor on the way may release an object that no longer exists.
// Here such a thread waits until the process ends, as it does from Python 3.14 on.

[[noreturn]] void wait_for_end_of_process() noexcept;

/// Releases the GIL of the calling thread while it lives.
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

/// Holds the GIL while it lives. The thread may hold it already, or be unknown to Python.
/// REQUIRES: Python code runs only inside call_python(), unless the thread ends before the
///   interpreter does, as a loader's threads do.
class GilAcquired {
 public:
  GilAcquired() noexcept;
  ~GilAcquired();
  GilAcquired(const GilAcquired&) = delete;
  GilAcquired& operator=(const GilAcquired&) = delete;

 private:
  PyGILState_STATE state_{};
};

/// Waits until the process ends if its scope is left by unwinding. A catch handler cannot do that,
/// because pthread_exit() must not start unwinding while an exception is handled.
struct WaitUnlessDone {
  bool is_done = false;
  ~WaitUnlessDone() {
    if (!is_done) wait_for_end_of_process();
  }
};

/// Calls `function`, in which Python code may run and release the GIL.
/// REQUIRES: `function` does not throw, and holds no Python object in an object with a destructor.
template <class Function>
void call_python(const Function& function) {
  WaitUnlessDone guard;
  function();
  guard.is_done = true;
}

}  // namespace shardwise::python
