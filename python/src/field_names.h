#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <string>
#include <string_view>

namespace shardwise::python {

/// A str for bytes that are a name: of a field, key or path. Bytes that are not UTF-8 become
/// surrogates, as in Python's file names. A new reference; null with Python's error set.
PyObject* new_name(std::string_view name) noexcept;

/// The same as an object. Errors: Python's.
nanobind::object name_object(std::string_view name);

/// The interned str for the name of a field. A borrowed reference, which is never freed: a data set
/// has few names. Null with Python's error set.
/// @param name  where an index has it: by its address it is found again in a few ns.
PyObject* field_name(std::string_view name) noexcept;

/// The bytes of a str that is a name, the inverse of new_name().
class NameBytes {
 public:
  /// Python's error is set if it is no str: is_valid() is false then.
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

/// A name as an argument of a function: also one that is not UTF-8, as new_name() gives it.
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
