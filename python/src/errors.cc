#include "errors.h"

#include <string>
#include <string_view>
#include <typeinfo>

#include "raised.h"
#include "shardwise/base/error.h"

namespace nb = nanobind;

namespace shardwise::python {

namespace {

constexpr const char* kOtherType = "an argument is of another type than is taken: see help()";

/// Sets the error of the class that is named as the code. Python itself imports and keeps the
/// module.
void set_error(const Error& error) noexcept {
  try {
    const nb::module_ errors = nb::module_::import_("shardwise.errors");
    const std::string_view code = error_code_name(error.code());
    const nb::object type = errors.attr("of_code")(nb::str(code.data(), code.size()));
    const std::string_view text = error.what();
    // Names in a text are escaped, so it is ASCII but for what a system's message may hold.
    const nb::object message = nb::steal(
        PyUnicode_DecodeUTF8(text.data(), static_cast<Py_ssize_t>(text.size()), "replace"));
    PyErr_SetObject(type.ptr(), message.ptr());
  } catch (nb::python_error& failed) {
    failed.restore();
  }
}

}  // namespace

void translate_errors() {
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
