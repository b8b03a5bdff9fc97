#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <string>
#include <string_view>

namespace shardwise::python {

/// Makes a str from the bytes of a field's name, a key or a path. Bytes that are not UTF-8 become
/// surrogates, as in Python's file names.
/// Lifetime: returns a new reference; null with Python's error set.
PyObject* new_name(std::string_view name) noexcept;

/// Returns new_name() as an object. Errors: exceptions from Python.
nanobind::object name_object(std::string_view name);

/// Returns the interned str of a field's name.
/// Lifetime: returns a borrowed reference; null with Python's error set. The str is never freed,
/// since a data set has few names.
/// @param name  a name in an index; its address is the key of a fast lookup.
PyObject* field_name(std::string_view name) noexcept;

/// The bytes of a name given as a str; the inverse of new_name().
class NameBytes {
 public:
  /// If `name` is not a str, sets Python's error, and is_valid() returns false.
  explicit NameBytes(PyObject* name) noexcept;
  ~NameBytes();
  NameBytes(const NameBytes&) = delete;
  NameBytes& operator=(const NameBytes&) = delete;

  [[nodiscard]] bool is_valid() const noexcept { return view_.data() != nullptr; }
  [[nodiscard]] std::string_view view() const noexcept { return view_; }

 private:
  PyObject* encoded_ = nullptr;
  std::string_view view_;
};

/// A function's argument that is a name. Like new_name(), it accepts names that are not UTF-8.
struct NameArgument {
  std::string bytes;
};

}  // namespace shardwise::python

namespace nanobind::detail {

template <>
struct type_caster<shardwise::python::NameArgument> {
  NB_TYPE_CASTER(shardwise::python::NameArgument, const_name("str"))

  bool from_python(handle source, std::uint8_t, cleanup_list*) noexcept {
    const shardwise::python::NameBytes name(source.ptr());
    if (!name.is_valid()) {
      PyErr_Clear();
      return false;
    }
    value.bytes = std::string(name.view());
    return true;
  }
};

}  // namespace nanobind::detail
