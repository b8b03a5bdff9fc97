#include "row_values.h"

#include <string>
#include <string_view>

#include "sample_numbers.h"
#include "shardwise/base/error.h"

namespace nb = nanobind;

namespace shardwise::python {

namespace {

/// A view of an object's buffer. The destructor releases the view.
class Buffer {
 public:
  explicit Buffer(nb::handle object) {
    if (PyObject_GetBuffer(object.ptr(), &view_, PyBUF_FULL_RO) != 0) nb::raise_python_error();
  }
  ~Buffer() { PyBuffer_Release(&view_); }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;

  [[nodiscard]] std::size_t size_bytes() const noexcept {
    return static_cast<std::size_t>(view_.len);
  }
  [[nodiscard]] std::vector<std::int64_t> shape() const {
    return {view_.shape, view_.shape + view_.ndim};
  }
  /// Returns the buffer's format, e.g. "f4", without the byte order, which must be the machine's.
  [[nodiscard]] std::string_view format() const noexcept {
    std::string_view format = view_.format == nullptr ? "B" : view_.format;
    if (!format.empty() && std::string_view("@=<").find(format[0]) != std::string_view::npos) {
      format.remove_prefix(1);
    }
    return format;
  }
  [[nodiscard]] std::size_t item_bytes() const noexcept {
    return static_cast<std::size_t>(view_.itemsize);
  }
  void copy(std::span<std::byte> to) const {
    if (view_.len == 0) return;
    if (PyBuffer_ToContiguous(to.data(), &view_, view_.len, 'C') != 0) nb::raise_python_error();
  }

 private:
  mutable Py_buffer view_{};
};

bool is_one_of(std::string_view format, std::string_view kinds) {
  return format.size() == 1 && kinds.find(format[0]) != std::string_view::npos;
}

bool is_of_type(const Buffer& buffer, DType dtype) {
  if (buffer.item_bytes() != size_of(dtype)) return false;
  const std::string_view format = buffer.format();
  switch (dtype) {
    case DType::kBool:
      return format == "?";
    case DType::kUInt8:
    case DType::kUInt16:
    case DType::kUInt32:
    case DType::kUInt64:
    case DType::kBFloat16:  // bfloat16 as its bits, since NumPy lacks the type
      return is_one_of(format, "BHILQN");
    case DType::kInt8:
    case DType::kInt16:
    case DType::kInt32:
    case DType::kInt64:
      return is_one_of(format, "bhilqn");
    case DType::kFloat16:
    case DType::kFloat32:
    case DType::kFloat64:
      return is_one_of(format, "efd");
    case DType::kComplex64:
    case DType::kComplex128:
      return format == "Zf" || format == "Zd" || is_one_of(format, "FD");
  }
  return false;
}

std::string text_of(const std::vector<std::int64_t>& shape) {
  std::string text = "[";
  for (const std::int64_t size : shape) {
    text += (text.size() == 1 ? "" : ", ") + std::to_string(size);
  }
  return text + "]";
}

[[noreturn]] void throw_other_shape(const std::vector<std::int64_t>& shape, const RowType& type) {
  throw BadField("a row has another shape than its column",
                 text_of(shape) + " instead of " + text_of(*type.shape),
                 "declare the column without a shape if rows differ");
}

/// Writes a row from bytes that are the raw memory of its values.
void write_bytes(const Buffer& buffer, const RowType& type, columns::Row& row) {
  const std::size_t value_bytes = size_of(type.dtype);
  if (!type.shape && buffer.size_bytes() % value_bytes == 0) {
    buffer.copy(row.resize(static_cast<std::int64_t>(buffer.size_bytes() / value_bytes)));
    return;
  }
  if (!type.shape || buffer.size_bytes() != row.bytes().size()) {
    throw BadField("the size of a row differs from the size of the column's rows",
                   std::to_string(buffer.size_bytes()) + " bytes of " +
                       std::string(to_string(type.dtype)) +
                       (type.shape ? " instead of " + std::to_string(row.bytes().size()) : ""),
                   "give the bytes of whole values");
  }
  buffer.copy(row.bytes());
}

[[noreturn]] void throw_masked(nb::handle object) {
  throw InvalidArgument("a row has a mask or nulls, which would be lost",
                        nb::cast<std::string>(nb::type_name(object.type())),
                        "fill the values, and return the mask as another column");
}

void write_array(nb::handle array, const RowType& type, columns::Row& row) {
  if (is_masked_array(array)) throw_masked(array);
  const Buffer buffer(array);
  if (!is_of_type(buffer, type.dtype)) {
    throw InvalidArgument("the values of a row do not have the column's type",
                          "format '" + std::string(buffer.format()) + "' of " +
                              std::to_string(buffer.item_bytes()) + " bytes instead of " +
                              std::string(to_string(type.dtype)),
                          "convert the values, or declare the column with the type of the values");
  }
  const std::vector<std::int64_t> shape = buffer.shape();
  if (!type.shape) {
    buffer.copy(row.resize(shape));
  } else if (shape != *type.shape) {
    throw_other_shape(shape, type);
  } else {
    buffer.copy(row.bytes());
  }
}

bool is_bytes(nb::handle object) {
  return PyBytes_Check(object.ptr()) != 0 || PyByteArray_Check(object.ptr()) != 0 ||
         PyMemoryView_Check(object.ptr()) != 0;
}

bool is_whole(DType dtype) {
  switch (dtype) {
    case DType::kUInt8:
    case DType::kUInt16:
    case DType::kUInt32:
    case DType::kUInt64:
    case DType::kInt8:
    case DType::kInt16:
    case DType::kInt32:
    case DType::kInt64:
      return true;
    default:
      return false;
  }
}

/// Makes a NumPy array from an object without a buffer. Keeps the type of tensors and other arrays;
/// converts numbers and lists to the column's type.
nb::object as_array(nb::handle object, DType dtype) {
  const nb::module_ numpy = nb::module_::import_("numpy");
  if (nb::hasattr(object, "__array__")) {
    const nb::object has_mask = nb::module_::import_("shardwise.encoding").attr("has_mask");
    if (nb::cast<bool>(has_mask(object))) throw_masked(object);
    return numpy.attr("asarray")(object);
  }
  const std::string given = nb::cast<std::string>(nb::type_name(object.type()));
  if (object.is_none()) {
    throw InvalidArgument("a function of a column did not return an array", given,
                          "return an array, bytes, or numbers");
  }
  if (dtype == DType::kBFloat16) {
    throw InvalidArgument(
        "a function of a column did not return bfloat16", given,
        "return a torch tensor, the bits as uint16, or bytes, because NumPy lacks bfloat16");
  }
  const nb::object own = numpy.attr("asarray")(object);
  const bool is_empty =
      nb::cast<std::size_t>(own.attr("size")) == 0;  // an empty list has NumPy's type float
  if (is_whole(dtype) && !is_empty &&
      nb::cast<std::string>(own.attr("dtype").attr("kind")) == "f") {
    throw InvalidArgument("the values of a row do not have the column's type",
                          "floats instead of " + std::string(to_string(dtype)),
                          "convert the values, or declare the column with the type of the values");
  }
  const std::string_view name = to_string(dtype);
  return numpy.attr("asarray")(object, nb::str(name.data(), name.size()));
}

/// Writes a float or an int to a column of single numbers, the most common case, without NumPy.
bool write_number(nb::handle result, const RowType& type, columns::Row& row) {
  if (!type.shape || !type.shape->empty()) return false;
  if (PyFloat_CheckExact(result.ptr()) && type.dtype == DType::kFloat64) {
    row.values<double>()[0] = PyFloat_AsDouble(result.ptr());
  } else if (PyFloat_CheckExact(result.ptr()) && type.dtype == DType::kFloat32) {
    row.values<float>()[0] = static_cast<float>(PyFloat_AsDouble(result.ptr()));
  } else if (PyLong_CheckExact(result.ptr()) && type.dtype == DType::kInt64) {
    row.values<std::int64_t>()[0] = PyLong_AsLongLong(result.ptr());
    if (PyErr_Occurred() != nullptr) nb::raise_python_error();
  } else {
    return false;
  }
  return true;
}

}  // namespace

void write_row(nb::handle result, const RowType& type, columns::Row& row) {
  if (write_number(result, type, row)) return;
  if (is_bytes(result)) {
    write_bytes(Buffer(result), type, row);
  } else if (PyObject_CheckBuffer(result.ptr()) != 0) {
    write_array(result, type, row);
  } else {
    write_array(as_array(result, type.dtype), type, row);
  }
}

}  // namespace shardwise::python
