#pragma once

#include <nanobind/nanobind.h>

#include <memory>

#include "gil.h"
#include "shardwise/base/error.h"

namespace shardwise::python {

/// A Python object that any thread may release, with or without the GIL.
using Kept = std::shared_ptr<PyObject>;
/// REQUIRES: the GIL.
Kept keep(nanobind::object object);

/// An exception raised by a Python function, on its way through a loader's threads to the caller.
/// Python then raises the same exception again. Exceptions of shardwise.errors keep their code, so
/// a BadField or NotFound marks a bad sample. Others have the code kInvalidArgument.
class RaisedInPython : public Error {
 public:
  /// REQUIRES: the GIL.
  explicit RaisedInPython(const nanobind::python_error& error);

  /// Whether the function's argument may be the cause. True for subclasses of Exception, except
  /// those about memory or the program itself (NameError, ImportError ...) and those of Shardwise.
  [[nodiscard]] bool is_bad_value() const noexcept { return is_bad_value_; }
  /// Adds a line that Python shows below the traceback. REQUIRES: the GIL.
  void add_note(const std::string& note) const;
  /// Sets the exception as Python's error. REQUIRES: the GIL.
  void restore() const noexcept;

 private:
  Kept exception_;
  bool is_bad_value_;
};

/// While it lives, the calling thread holds the GIL. Python knows the thread from then on until the
/// thread ends, so functions may use threading.local(), and further uses are cheap.
/// Errors: Cancelled if the interpreter has ended. If the interpreter ends while this waits for the
/// GIL, the thread waits until the process ends.
class [[nodiscard]] Gil {
 private:
  struct State {
    State();
  };
  State state_;
  GilAcquired acquired_;
};

/// Throws Python's error as RaisedInPython. For C++ threads, which must not hold Python objects.
/// REQUIRES: the GIL, and a Python error.
[[noreturn]] void throw_raised();

/// True in a thread that Python did not start, e.g. a loader's, once it has called Python.
bool is_foreign_thread() noexcept;

/// Calls `function` with the GIL. Throws Python's exceptions as RaisedInPython.
template <class Function>
auto in_python(const Function& function) {
  const Gil gil;
  try {
    return function();
  } catch (const nanobind::python_error& error) {
    throw RaisedInPython(error);
  }
}

}  // namespace shardwise::python
