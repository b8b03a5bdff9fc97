#include "raised.h"

#include <nanobind/stl/string.h>

#include <string>

namespace nb = nanobind;

namespace shardwise::python {

namespace {

ErrorCode code_of(nb::handle exception) {
  const nb::object base = nb::module_::import_("shardwise.errors").attr("Error");
  if (!nb::isinstance(exception, base)) return ErrorCode::kInvalidArgument;
  const auto name = nb::cast<std::string>(exception.attr("code"));
  for (int code = 0; code <= static_cast<int>(ErrorCode::kFetch); ++code) {
    if (error_code_name(static_cast<ErrorCode>(code)) == name) return static_cast<ErrorCode>(code);
  }
  return ErrorCode::kInvalidArgument;
}

/// Returns e.g. "ValueError: the text", always in UTF-8.
std::string text_of(nb::handle exception) {
  const nb::str type = nb::str(nb::type_name(exception.type()));
  const nb::object bytes = nb::str(exception).attr("encode")("utf-8", "backslashreplace");
  const auto text = nb::cast<nb::bytes>(bytes);
  const nb::object base = nb::module_::import_("shardwise.errors").attr("Error");
  const std::string own(text.c_str(), text.size());
  if (nb::isinstance(exception, base)) return own;
  return std::string(type.c_str()) + (own.empty() ? "" : ": " + own);
}

ErrorCode code_or_any(nb::handle exception) noexcept {
  try {
    return code_of(exception);
  } catch (...) {
    return ErrorCode::kInvalidArgument;
  }
}

bool may_be_bad_value(const nb::python_error& error) noexcept {
  if (!error.matches(PyExc_Exception) || error.matches(PyExc_MemoryError)) return false;
  // The program causes these exceptions, whatever the value is.
  for (PyObject* const kind : {PyExc_NameError, PyExc_ImportError, PyExc_SyntaxError,
                               PyExc_SystemError, PyExc_ReferenceError}) {
    if (error.matches(kind)) return false;
  }
  try {
    return !nb::isinstance(error.value(), nb::module_::import_("shardwise.errors").attr("Error"));
  } catch (...) {
    return true;
  }
}

std::string text_or_none(nb::handle exception) noexcept {
  try {
    return text_of(exception);
  } catch (...) {  // the exception's own __str__ raised
    return "a Python exception without text";
  }
}

/// Returns the exception. Replaces a StopIteration, which would silently end a loop over batches,
/// by a RuntimeError, as Python does for generators.
nb::object passable(const nb::python_error& error) {
  nb::object exception = nb::borrow(error.value());
  if (!error.matches(PyExc_StopIteration)) return exception;
  nb::object other = nb::handle(PyExc_RuntimeError)("a function raised StopIteration");
  other.attr("__cause__") = exception;
  return other;
}

thread_local bool is_foreign = false;

/// Keeps the Python thread state of a foreign thread while the thread does not use the GIL.
class ThreadState {
 public:
  ThreadState() {
    if (PyGILState_GetThisThreadState() != nullptr) return;  // Python knows this thread already
    call_python([&] { state_ = PyGILState_Ensure(); });
    PyEval_SaveThread();
    is_kept_ = true;
    is_foreign = true;
  }
  ~ThreadState() {
    if (!is_kept_ || Py_IsInitialized() == 0) return;
    call_python([&] {
      PyEval_RestoreThread(PyGILState_GetThisThreadState());
      PyGILState_Release(state_);
    });
  }
  ThreadState(const ThreadState&) = delete;
  ThreadState& operator=(const ThreadState&) = delete;

 private:
  PyGILState_STATE state_{};
  bool is_kept_ = false;
};

}  // namespace

Kept keep(nb::object object) {
  return {object.release().ptr(), [](PyObject* kept) {
            if (Py_IsInitialized() == 0) return;  // the interpreter has ended: leak the object
            const GilAcquired acquired;
            call_python([&] { Py_DECREF(kept); });
          }};
}

RaisedInPython::RaisedInPython(const nb::python_error& error)
    : Error(code_or_any(error.value()), text_or_none(error.value())),
      exception_(keep(passable(error))),
      is_bad_value_(may_be_bad_value(error)) {}

void RaisedInPython::add_note(const std::string& note) const {
  nb::handle(exception_.get()).attr("add_note")(note);
}

void RaisedInPython::restore() const noexcept {
  PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(exception_.get())), exception_.get());
}

Gil::State::State() {
  if (Py_IsInitialized() == 0) throw Cancelled("the Python interpreter has ended");
  thread_local const ThreadState kept;
}

void throw_raised() {
  try {
    nb::raise_python_error();
  } catch (const nb::python_error& error) {
    throw RaisedInPython(error);
  }
}

bool is_foreign_thread() noexcept { return is_foreign; }

}  // namespace shardwise::python
