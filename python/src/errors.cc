#include "errors.h"

#include <new>
#include <string>
#include <string_view>
#include <typeinfo>

#include "base/spelling.h"
#include "gil.h"
#include "raised.h"
#include "shardwise/base/error.h"

namespace nb = nanobind;

namespace shardwise::python {

namespace {

constexpr const char* kOtherType = "an argument has a wrong type; see help()";

/// Returns a new reference to the class of shardwise.errors with this code. Returns null with
/// Python's error set. Python's module cache keeps the module.
PyObject* class_of(std::string_view code) {
  PyObject* const errors = PyImport_ImportModule("shardwise.errors");
  if (errors == nullptr) return nullptr;
  // The data is NUL-terminated: codes' names are string literals.
  PyObject* const type = PyObject_CallMethod(errors, "of_code", "s", code.data());
  Py_DECREF(errors);
  return type;
}

void set_error(const Error& error) noexcept {
  const std::string_view text = error.what();
  call_python([&] {
    PyObject* const type = class_of(error_code_name(error.code()));
    if (type == nullptr) return;
    // Texts escape all names, so only messages of the operating system can contain other characters
    // than ASCII.
    PyObject* const message =
        PyUnicode_DecodeUTF8(text.data(), static_cast<Py_ssize_t>(text.size()), "replace");
    if (message != nullptr) PyErr_SetObject(type, message);
    Py_XDECREF(message);
    Py_DECREF(type);
  });
}

}  // namespace

void translate_errors() {
  detail::spell_for(detail::Face::kPython);
  nb::register_exception_translator([](const std::exception_ptr& thrown, void*) {
    try {
      std::rethrow_exception(thrown);
    } catch (const RaisedInPython& error) {
      error.restore();
    } catch (const Error& error) {
      set_error(error);
    } catch (const std::bad_cast&) {
      PyErr_SetString(PyExc_TypeError, kOtherType);
    }
  });
}

void refuse_unknown(nb::handle type, const nb::dict& unknown) {
  if (unknown.size() == 0) return;
  const nb::object name = unknown.keys()[0];
  nb::module_::import_("shardwise.arguments").attr("refuse_unknown")(type, name);
}

void throw_not_made(nb::handle object) {
  const auto type = nb::cast<std::string>(object.type().attr("__name__"));
  PyErr_SetString(PyExc_TypeError,
                  ("this " + type +
                   " is not initialised; call super().__init__() in __init__() of the "
                   "subclass")
                      .c_str());
  nb::raise_python_error();
}

void set_error_of_exception() noexcept {
  try {
    throw;
  } catch (nb::python_error& error) {
    error.restore();
  } catch (const RaisedInPython& error) {
    error.restore();
  } catch (const Error& error) {
    set_error(error);
  } catch (const std::bad_alloc&) {
    PyErr_NoMemory();
  } catch (const std::bad_cast&) {
    PyErr_SetString(PyExc_TypeError, kOtherType);
  } catch (const std::exception& error) {
    PyErr_SetString(PyExc_RuntimeError, error.what());
  } catch (...) {
    PyErr_SetString(PyExc_RuntimeError, "an unknown C++ exception");
  }
}

}  // namespace shardwise::python
