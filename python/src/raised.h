#pragma once

#include <nanobind/nanobind.h>

#include <memory>

#include "gil.h"
#include "shardwise/base/error.h"

namespace shardwise::python {

/// An object of Python that may be let go by a thread without the GIL.
using Kept = std::shared_ptr<PyObject>;
/// REQUIRES: the GIL.
Kept keep(nanobind::object object);

/// What a function written in Python raised, on its way through the threads of a loader. Where it
/// arrives in Python the same exception is raised again. One of the module shardwise.errors has its
/// own code, so that a BadField or NotFound is a bad sample; others have kInvalidArgument.
class RaisedInPython : public Error {
 public:
  /// REQUIRES: the GIL.
  explicit RaisedInPython(const nanobind::python_error& error);

  /// Whether it may be about the value that the function was given: an Exception, but for those of
  /// memory, of the program itself (NameError, ImportError ...) and of Shardwise.
  [[nodiscard]] bool is_bad_value() const noexcept { return is_bad_value_; }
  /// A line that is shown below its traceback. REQUIRES: the GIL.
  void add_note(const std::string& note) const;
  /// Sets Python's error to it. REQUIRES: the GIL.
  void restore() const noexcept;

 private:
  Kept exception_;
  bool is_bad_value_;
};

/// The GIL, for a thread that Python may not know. Python knows it from then on until it ends, so
/// that its functions may keep things in threading.local(), and calls cost less than 1 us each.
/// Errors: Cancelled if the interpreter has ended: its GIL cannot be had any more. A thread that
/// waits for it when the interpreter ends waits for ever.
class [[nodiscard]] Gil {
 private:
  struct State {
    State();
  };
  State state_;
  GilAcquired acquired_;
};

/// Throws what Python's error is set to, as RaisedInPython: for what C++ calls on threads of its
/// own, where nothing may hold an object of Python's. REQUIRES: the GIL, and an error that is set.
[[noreturn]] void throw_raised();

/// Whether this is a thread of a loader, or otherwise not Python's own, that called Python.
bool is_foreign_thread() noexcept;

/// Calls `function` with the GIL. What Python raises is thrown as RaisedInPython.
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
