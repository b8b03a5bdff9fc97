#pragma once

#include <nanobind/nanobind.h>

#include <exception>
#include <string>

namespace shardwise::python {

/// Registers a translation of the C++ library's Errors to the classes of shardwise.errors with the
/// same codes. Error texts then name options as in Python.
void translate_errors();

/// Sets Python's error from the C++ exception being handled. For slots of types, which nanobind
/// does not wrap.
void set_error_of_exception() noexcept;

/// Raises TypeError: the object is empty, since __init__() of its class has not run.
[[noreturn]] void throw_not_made(nanobind::handle object);

/// Checks that a constructor was called without unknown keywords.
/// Errors: TypeError, which names the first one, and the nearest keyword of the constructor.
void refuse_unknown(nanobind::handle type, const nanobind::dict& unknown);

/// Calls `function`. If it throws, sets Python's error and returns `failed`.
template <class Function, class Result>
Result guarded(const Function& function, Result failed) noexcept {
  try {
    return function();
  } catch (...) {
    set_error_of_exception();
    return failed;
  }
}

}  // namespace shardwise::python
