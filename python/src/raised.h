#pragma once

#include <nanobind/nanobind.h>

#include <memory>

#include "gil.h"
#include "shardwise/base/error.h"

namespace shardwise::python {

/// A Python object that may be released by a thread without the GIL.
using Kept = std::shared_ptr<PyObject>;
/// REQUIRES: the GIL.
Kept keep(nanobind::object object);

/// An exception that a Python function raised, on its way through a loader's threads. When it
/// arrives in Python, the same exception is raised again. Exceptions of shardwise.errors keep their
/// code, so a BadField or NotFound marks a bad sample. All others have kInvalidArgument.
class RaisedInPython : public Error {
 public:
  /// REQUIRES: the GIL.
  explicit RaisedInPython(const nanobind::python_error& error);

  /// True if the function's argument may have caused it. This holds for an Exception, except those
  /// of memory, of the program itself (NameError, ImportError ...) and of Shardwise.
  [[nodiscard]] bool is_bad_value() const noexcept { return is_bad_value_; }
  /// Adds a line that is shown below its traceback. REQUIRES: the GIL.
  void add_note(const std::string& note) const;
  /// Sets Python's error to the exception. REQUIRES: the GIL.
  void restore() const noexcept;

 private:
  Kept exception_;
  bool is_bad_value_;
};

/// Holds the GIL in a thread that Python may not know. Python then knows the thread until it ends,
/// so functions may use threading.local(), and further calls are cheap.
/// Errors: Cancelled if the interpreter has ended. If it ends during the wait for the GIL, the
///   thread waits until the process ends.
class [[nodiscard]] Gil {
 private:
  struct State {
    State();
  };
  State state_;
  GilAcquired acquired_;
};

/// Throws Python's current error as RaisedInPython. C++ threads need this, since they must not hold
/// Python objects.
/// REQUIRES: the GIL, and a Python error.
[[noreturn]] void throw_raised();

/// True in a thread that Python did not start, e.g. a loader's, if it has called Python.
bool is_foreign_thread() noexcept;

/// Calls `function` with the GIL, and throws Python's exceptions as RaisedInPython.
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
