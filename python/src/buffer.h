#pragma once

#include <nanobind/nanobind.h>

#include <cstddef>
#include <string_view>

namespace shardwise::python {

/// The bytes of an object, e.g. a bytes or a memoryview. The object stays alive with this view.
/// Threads: constructor and destructor need the GIL.
/// Errors: Python's TypeError if the object has no bytes.
class Buffer {
 public:
  explicit Buffer(nanobind::handle object) {
    if (PyObject_GetBuffer(object.ptr(), &view_, PyBUF_SIMPLE) != 0) nanobind::raise_python_error();
  }
  ~Buffer() { PyBuffer_Release(&view_); }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;

  [[nodiscard]] std::string_view bytes() const noexcept {
    return {static_cast<const char*>(view_.buf), static_cast<std::size_t>(view_.len)};
  }

 private:
  Py_buffer view_{};
};

}  // namespace shardwise::python
