#include "field_names.h"

#include <array>
#include <cstdint>
#include <memory>
#include <mutex>
#include <unordered_map>

namespace shardwise::python {

namespace {

/// Returns the name from a set of all requested names. The set is never destroyed: when static
/// objects are destroyed, Python has already ended.
PyObject* interned(std::string_view name) {
  static auto* const mutex = new std::mutex;
  static auto* const names = new std::unordered_map<std::string, PyObject*>;
  {
    const std::lock_guard lock(*mutex);
    if (const auto found = names->find(std::string(name)); found != names->end()) {
      return found->second;
    }
  }
  PyObject* made = new_name(name);
  if (made == nullptr) return nullptr;
  PyUnicode_InternInPlace(&made);
  const std::lock_guard lock(*mutex);
  return names->try_emplace(std::string(name), made).first->second;  // keeps `made` if it is new
}

/// A name that this thread looked up recently. A lookup compares the bytes too: another index may
/// now be at the same address.
struct Recent {
  std::string_view name;  // view into the str; valid as long as the str
  PyObject* str = nullptr;
};
using RecentNames = std::array<Recent, 64>;
// On the heap: a process has only about 2 KB for the thread-local data of all extensions.
thread_local RecentNames* recent_names = nullptr;

RecentNames& names_of_thread() {
  if (recent_names == nullptr) {
    thread_local std::unique_ptr<RecentNames> owned;
    owned = std::make_unique<RecentNames>();
    recent_names = owned.get();
  }
  return *recent_names;
}

}  // namespace

PyObject* new_name(std::string_view name) noexcept {
  return PyUnicode_DecodeUTF8(name.data(), static_cast<Py_ssize_t>(name.size()), "surrogateescape");
}

nanobind::object name_object(std::string_view name) {
  PyObject* str = new_name(name);
  if (str == nullptr) nanobind::raise_python_error();
  return nanobind::steal(str);
}

PyObject* field_name(std::string_view name) noexcept {
  const auto address = reinterpret_cast<std::uintptr_t>(name.data());
  RecentNames& names = names_of_thread();
  Recent& recent = names[((address >> 3) ^ (address >> 9)) % names.size()];
  if (recent.str != nullptr && recent.name == name) return recent.str;
  PyObject* str = interned(name);
  if (str == nullptr) return nullptr;
  Py_ssize_t size = 0;
  if (const char* bytes = PyUnicode_AsUTF8AndSize(str, &size)) {
    recent = {{bytes, static_cast<std::size_t>(size)}, str};
  } else {
    PyErr_Clear();  // the name has surrogates, so it has no UTF-8 form
  }
  return str;
}

NameBytes::NameBytes(PyObject* name) noexcept {
  if (PyUnicode_Check(name) == 0) {
    PyErr_Format(PyExc_TypeError, "names of keys and fields must be str, not %R", Py_TYPE(name));
    return;
  }
  Py_ssize_t size = 0;
  if (const char* bytes = PyUnicode_AsUTF8AndSize(name, &size)) {
    view_ = {bytes, static_cast<std::size_t>(size)};
    return;
  }
  if (PyErr_ExceptionMatches(PyExc_UnicodeError) == 0) return;
  PyErr_Clear();
  encoded_ = PyUnicode_AsEncodedString(name, "utf-8", "surrogateescape");
  char* encoded = nullptr;
  if (encoded_ != nullptr && PyBytes_AsStringAndSize(encoded_, &encoded, &size) == 0) {
    view_ = {encoded, static_cast<std::size_t>(size)};
  }
}

NameBytes::~NameBytes() { Py_XDECREF(encoded_); }

}  // namespace shardwise::python
