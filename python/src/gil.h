#pragma once

#include <nanobind/nanobind.h>

namespace shardwise::python {

// A thread that wants the GIL when the interpreter has ended is ended by Python with
// pthread_exit(), before Python 3.14. This unwinds its stack, and ends the process at a frame that
// is noexcept, as those of slots and of nanobind are; or a destructor on the way lets go of an
// object that is no more. Here such a thread waits for ever instead, as it does from Python 3.14.

[[noreturn]] void wait_for_end_of_process() noexcept;

/// The calling thread without the GIL, while this lives.
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

/// The GIL, while this lives, for a thread that may have it already, or that Python does not know.
/// REQUIRES: what runs Python code meanwhile does so by call_python(), unless the thread ends
/// before the interpreter does, as those of loaders do.
class GilAcquired {
 public:
  GilAcquired() noexcept;
  ~GilAcquired();
  GilAcquired(const GilAcquired&) = delete;
  GilAcquired& operator=(const GilAcquired&) = delete;

 private:
  PyGILState_STATE state_{};
};

/// Waits for ever if it goes by unwinding. A handler cannot do that: where an exception is being
/// handled, none may begin for the unwinding of pthread_exit().
struct WaitUnlessDone {
  bool is_done = false;
  ~WaitUnlessDone() {
    if (!is_done) wait_for_end_of_process();
  }
};

/// Calls `function`, in which Python code may run, and let other threads have the GIL.
/// REQUIRES: `function` throws nothing, and holds no object of Python by one with a destructor.
template <class Function>
void call_python(const Function& function) {
  WaitUnlessDone guard;
  function();
  guard.is_done = true;
}

}  // namespace shardwise::python
