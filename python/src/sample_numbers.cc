#include "sample_numbers.h"

#include <nanobind/ndarray.h>

#include <string>
#include <utility>

#include "base/error_types.h"
#include "base/text.h"
#include "shardwise/base/error.h"

namespace nb = nanobind;

namespace shardwise::python {

namespace {

/// Finds bools and masked arrays among numbers. The dtypes of NumPy, pandas, torch and other
/// libraries show whether an array or its elements are bools.
class MaskFinder {
 public:
  /// Throws TypeError if the object is a bool, an array of bools, or a masked array of NumPy.
  void refuse(nb::handle object) {
    if (PyBool_Check(object.ptr()) != 0) throw_is_bool();
    const nb::object dtype = nb::getattr(object, "dtype", nb::none());
    if (dtype.is_none() || (dtype.is(of_numbers_) && object.type().is(plain_))) return;
    if (is_of_bools(dtype)) throw_is_bool();
    if (is_masked_array(object)) throw_is_masked();
    of_numbers_ = dtype;
    plain_ = nb::borrow(object.type());
  }

 private:
  [[noreturn]] static void throw_is_bool() {
    PyErr_SetString(
        PyExc_TypeError,
        "sample numbers must be integers, not bools; for a mask give numpy.flatnonzero(mask)");
    nb::raise_python_error();
  }

  [[noreturn]] static void throw_is_masked() {
    PyErr_SetString(PyExc_TypeError,
                    "sample numbers must not be a masked array, whose mask would be lost; give "
                    "the result of its compressed()");
    nb::raise_python_error();
  }

  /// dtypes of NumPy and pandas have the kind "b". Others have no kind, but a name such as
  /// "torch.bool" or "Boolean".
  static bool is_of_bools(nb::handle dtype) {
    const nb::object kind = nb::getattr(dtype, "kind", nb::none());
    if (nb::isinstance<nb::str>(kind)) return nb::cast<std::string>(kind) == "b";
    const auto name = nb::cast<std::string>(nb::str(dtype));
    return name.find("bool") != std::string::npos || name.find("Bool") != std::string::npos;
  }

  nb::object of_numbers_;  // a dtype known to be of numbers
  nb::object plain_;       // the type of the object with that dtype
};

Py_ssize_t index_of(nb::handle number, MaskFinder& masks) {
  if (PyLong_CheckExact(number.ptr()) == 0) masks.refuse(number);
  const Py_ssize_t value = PyNumber_AsSsize_t(number.ptr(), PyExc_IndexError);
  if (value == -1 && PyErr_Occurred() != nullptr) nb::raise_python_error();
  return value;
}

/// Resolves a negative number, which counts from the end as in a list. Does not check the range.
std::uint64_t counted_from_end(Py_ssize_t number, std::uint64_t size) noexcept {
  return number < 0 ? static_cast<std::uint64_t>(number) + size
                    : static_cast<std::uint64_t>(number);
}

std::uint64_t checked(Py_ssize_t number, const Dataset& data) {
  const std::uint64_t size = data.size();
  const std::uint64_t counted = counted_from_end(number, size);
  if (counted >= size) throw_out_of_range(number, data);
  return counted;
}

/// Raises Python's error for an int that is too large.
[[noreturn]] void throw_too_large(std::uint64_t number) {
  PyErr_Format(PyExc_IndexError, "no such sample: sample %llu",
               static_cast<unsigned long long>(number));
  nb::raise_python_error();
}

template <class Integer>
bool take_buffer(nb::handle numbers, const Dataset& data, std::vector<std::uint64_t>& taken) {
  nb::ndarray<const Integer, nb::ndim<1>, nb::device::cpu> array;
  if (!nb::try_cast(numbers, array, /*convert=*/false)) return false;
  taken.resize(array.shape(0));
  for (std::size_t i = 0; i < taken.size(); ++i) {
    const Integer number = array.view()(i);
    if (!std::in_range<Py_ssize_t>(number)) throw_too_large(static_cast<std::uint64_t>(number));
    taken[i] = checked(static_cast<Py_ssize_t>(number), data);
  }
  return true;
}

}  // namespace

bool is_masked_array(nb::handle object) {
  static PyObject* plain = nullptr;  // last type found to be unmasked; never freed
  if (object.type().is(plain)) return false;
  const nb::object name = nb::str("numpy.ma");
  const auto module = nb::steal(PyImport_GetModule(name.ptr()));
  if (!module.is_valid()) {  // no object can be of a module that is not imported
    PyErr_Clear();
    return false;
  }
  const int is_one = PyObject_IsInstance(object.ptr(), module.attr("MaskedArray").ptr());
  if (is_one < 0) nb::raise_python_error();
  if (is_one == 1) return true;
  Py_XDECREF(std::exchange(plain, nb::borrow(object.type()).release().ptr()));
  return false;
}

bool is_number(nb::handle object) {
  if (PyIndex_Check(object.ptr()) == 0) return false;
  const nb::object dimensions = nb::getattr(object, "ndim", nb::none());
  return dimensions.is_none() || nb::cast<std::int64_t>(dimensions) == 0;
}

Py_ssize_t index_of(nb::handle number) {
  MaskFinder masks;
  return index_of(number, masks);
}

void throw_out_of_range(Py_ssize_t number, const Dataset& data) {
  throw OutOfRange("no such sample",
                   "sample " + std::to_string(number) + " of " +
                       (data.is_view() ? "a view of " : "") + in_quotes(data.index().path()),
                   "the data set has " + std::to_string(data.size()) +
                       " samples, numbered from 0; give a "
                       "smaller number");
}

std::uint64_t sample_number(nb::handle number, const Dataset& data) {
  return checked(index_of(number), data);
}

std::vector<std::uint64_t> sample_numbers(nb::handle numbers, const Dataset& data) {
  MaskFinder masks;
  masks.refuse(numbers);
  std::vector<std::uint64_t> taken;
  if (PyObject_CheckBuffer(numbers.ptr()) != 0 &&
      (take_buffer<std::int64_t>(numbers, data, taken) ||
       take_buffer<std::uint64_t>(numbers, data, taken) ||
       take_buffer<std::int32_t>(numbers, data, taken))) {
    return taken;
  }
  for (const nb::handle number : numbers) taken.push_back(checked(index_of(number, masks), data));
  return taken;
}

std::vector<std::uint64_t> plain_numbers(nb::handle numbers) {
  MaskFinder masks;
  masks.refuse(numbers);
  std::vector<std::uint64_t> taken;
  for (const nb::handle number : numbers) {
    const Py_ssize_t value = index_of(number, masks);
    if (value < 0) {
      throw Error(ErrorCode::kOutOfRange, "no such sample", "sample " + std::to_string(value),
                  "give a number of 0 or more");
    }
    taken.push_back(static_cast<std::uint64_t>(value));
  }
  return taken;
}

}  // namespace shardwise::python
