#pragma once

#include <nanobind/nanobind.h>

#include <exception>
#include <string>

namespace shardwise::python {

/// Makes Errors of the C++ library raise the class of shardwise.errors that has their code. Their
/// texts then spell options as in Python.
void translate_errors();

/// Sets Python's error for the exception that is being handled. Slots of types need this, since
/// nanobind does not wrap them.
void set_error_of_exception() noexcept;

/// Raises TypeError: no __init__() of the object's class has run, so the object is empty.
[[noreturn]] void throw_not_made(nanobind::handle object);

/// Calls `function`; if it throws, sets Python's error and returns `failed`.
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
