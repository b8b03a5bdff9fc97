#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/text.h"
#include "field_names.h"
#include "loading.h"
#include "shardwise/base/error.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace shardwise::python {

namespace {

using Memory = std::shared_ptr<std::byte>;

nb::dlpack::dtype dlpack_type(DType dtype, bool has_bfloat16) {
  using Code = nb::dlpack::dtype_code;
  Code code = Code::UInt;
  switch (dtype) {
    case DType::kBool:
      code = Code::Bool;
      break;
    case DType::kUInt8:
    case DType::kUInt16:
    case DType::kUInt32:
    case DType::kUInt64:
      break;
    case DType::kInt8:
    case DType::kInt16:
    case DType::kInt32:
    case DType::kInt64:
      code = Code::Int;
      break;
    case DType::kBFloat16:
      if (has_bfloat16) code = Code::Bfloat;
      break;
    case DType::kFloat16:
    case DType::kFloat32:
    case DType::kFloat64:
      code = Code::Float;
      break;
    case DType::kComplex64:
    case DType::kComplex128:
      code = Code::Complex;
      break;
  }
  return {static_cast<std::uint8_t>(code), static_cast<std::uint8_t>(8 * size_of(dtype)), 1};
}

/// Makes an array of `Framework` (NumPy or torch) over a batch's memory. The array keeps the memory
/// alive.
template <class Framework>
nb::object over(const Batch::Array& array, const std::vector<std::int64_t>& shape) {
  constexpr bool kHasBfloat16 = std::is_same_v<Framework, nb::pytorch>;
  const nb::capsule owner(new Memory(array.memory()),
                          [](void* kept) noexcept { delete static_cast<Memory*>(kept); });
  const std::vector<std::size_t> sizes(shape.begin(), shape.end());
  return nb::ndarray<Framework>(array.memory().get(), sizes.size(), sizes.data(), owner, nullptr,
                                dlpack_type(array.dtype(), kHasBfloat16), nb::device::cpu::value)
      .cast();
}

/// Makes an array of integers that owns its memory.
template <class Framework>
nb::object numbers(std::vector<std::int64_t> values, const std::vector<std::size_t>& shape) {
  auto* const owned = new std::vector<std::int64_t>(std::move(values));
  const nb::capsule owner(
      owned, [](void* kept) noexcept { delete static_cast<std::vector<std::int64_t>*>(kept); });
  return nb::ndarray<Framework, std::int64_t>(owned->data(), shape.size(), shape.data(), owner)
      .cast();
}

template <class Framework>
nb::object numbers(std::span<const std::int64_t> values) {
  return numbers<Framework>({values.begin(), values.end()}, {values.size()});
}

template <class Framework>
nb::object ragged(const Batch::Array& array) {
  const auto num_values = static_cast<std::int64_t>(array.bytes().size() / size_of(array.dtype()));
  const std::size_t dimensions = array.size() == 0 ? 1 : array.row_shape(0).size();
  std::vector<std::int64_t> shapes;
  for (std::size_t row = 0; row < array.size(); ++row) {
    const auto shape = array.row_shape(row);
    shapes.insert(shapes.end(), shape.begin(), shape.end());
  }
  const nb::object type = nb::module_::import_("shardwise.ragged").attr("Ragged");
  return type(over<Framework>(array, {num_values}), numbers<Framework>(array.offsets()),
              numbers<Framework>(std::move(shapes), {array.size(), dimensions}));
}

template <class Framework>
nb::object column(const Batch::Array& array) {
  return array.is_ragged() ? ragged<Framework>(array) : over<Framework>(array, array.shape());
}

/// Returns a column as NumPy arrays or torch tensors, as the loader's option `arrays` says.
nb::object value_of(const BatchObject& self, const Batch::Array& array) {
  return self.gives_torch ? column<nb::pytorch>(array) : column<nb::numpy>(array);
}

const Batch::Array& array_of(const BatchObject& self, nb::str name) {
  const NameBytes bytes(name.ptr());
  if (!bytes.is_valid()) nb::raise_python_error();
  return self.batch[bytes.view()];
}

const Batch::Array& rows_of_bytes(const BatchObject& self, nb::str name) {
  const Batch::Array& array = array_of(self, name);
  if (!array.is_ragged() || array.dtype() != DType::kUInt8) {
    throw InvalidArgument(
        "the rows of this column are not bytes",
        in_quotes(array.name()) + " has values of " + std::string(to_string(array.dtype())),
        "use batch[name], which is an array");
  }
  return array;
}

template <class Make>
nb::list rows(const Batch::Array& array, const Make& make) {
  nb::list all;
  for (std::size_t row = 0; row < array.size(); ++row) {
    const std::string_view bytes = array.text(row);
    const nb::object made = nb::steal(make(bytes.data(), static_cast<Py_ssize_t>(bytes.size())));
    if (!made.is_valid()) nb::raise_python_error();
    all.append(made);
  }
  return all;
}

nb::list names(const BatchObject& self) {
  nb::list all;
  for (const Batch::Array& array : self.batch.arrays()) all.append(name_object(array.name()));
  return all;
}

nb::dict tensors(const BatchObject& self) {
  nb::dict all;
  for (const Batch::Array& array : self.batch.arrays()) {
    all[name_object(array.name())] = column<nb::pytorch>(array);
  }
  return all;
}

/// Returns a dict, for frameworks that rebuild a mapping by type(batch)(columns).
nb::object rebuilt(nb::handle columns) {
  return nb::module_::import_("builtins").attr("dict")(columns);
}

bool contains(const BatchObject& self, nb::handle name) {
  if (PyUnicode_Check(name.ptr()) == 0) return false;
  const NameBytes bytes(name.ptr());
  if (!bytes.is_valid()) nb::raise_python_error();
  return std::ranges::any_of(
      self.batch.arrays(), [&](const Batch::Array& array) { return array.name() == bytes.view(); });
}

nb::object value_or(const BatchObject& self, nb::str name, nb::object otherwise) {
  return contains(self, name) ? value_of(self, array_of(self, name)) : otherwise;
}

nb::object pinned(nb::handle_t<BatchObject> self) {
  return nb::module_::import_("shardwise.devices").attr("pinned")(self);
}

nb::object moved(nb::handle_t<BatchObject> self, nb::handle device, bool non_blocking) {
  return nb::module_::import_("shardwise.devices").attr("moved")(self, device, non_blocking);
}

nb::list items(const BatchObject& self) {
  nb::list all;
  for (const Batch::Array& array : self.batch.arrays()) {
    all.append(nb::make_tuple(name_object(array.name()), value_of(self, array)));
  }
  return all;
}

nb::list values(const BatchObject& self) {
  nb::list all;
  for (const Batch::Array& array : self.batch.arrays()) all.append(value_of(self, array));
  return all;
}

nb::list parsed(const BatchObject& self, nb::str name) {
  const nb::object parse = nb::module_::import_("shardwise.arguments").attr("parsed_json");
  return rows(rows_of_bytes(self, name), [&](const char* bytes, Py_ssize_t size) {
    return parse(nb::bytes(bytes, static_cast<std::size_t>(size))).release().ptr();
  });
}

std::string shown_in_python(const BatchObject& self) {
  std::string text = "<shardwise.Batch of " + std::to_string(self.batch.size()) + " rows:";
  for (const Batch::Array& array : self.batch.arrays()) {
    text += " " + in_quotes(array.name()) + " " + std::string(to_string(array.dtype())) + " [";
    bool first = true;
    for (const std::int64_t size : array.shape()) {
      text += (first ? "" : ", ") + std::to_string(size);
      first = false;
    }
    text += array.is_ragged() ? ", ragged]" : "]";
  }
  return text + ">";
}

}  // namespace

nb::object only_row(const Batch::Array& array, detail::ColumnMaker::Content content) {
  using Content = detail::ColumnMaker::Content;
  if (content == Content::kText) return name_object(array.text(0));
  if (content != Content::kValues) {
    const std::string_view text = array.text(0);
    const nb::bytes bytes(text.data(), text.size());
    if (content == Content::kBytes) return bytes;
    return nb::module_::import_("json").attr("loads")(bytes);
  }
  const auto shape = array.row_shape(0);
  if (shape.empty() && !array.is_ragged()) {
    if (array.dtype() == DType::kInt64) return nb::int_(array.values<std::int64_t>()[0]);
    if (array.dtype() == DType::kFloat64) return nb::float_(array.values<double>()[0]);
    return over<nb::numpy>(array, {}).attr("item")();
  }
  return over<nb::numpy>(array, {shape.begin(), shape.end()});
}

void add_batches(nb::module_& module) {
  nb::class_<BatchObject>(
      module, "Batch", nb::is_weak_referenceable(), nb::is_final(),
      "The rows of one step of one rank, as named arrays.\n\n"
      "``batch[\"jpg\"]`` is a NumPy array over the batch's memory, without a copy. It may be "
      "written to, and may outlive the batch and the loader. ``len(batch)`` is the number of rows: "
      "0 in the last steps of a rank whose samples ended before those of others. All arrays have "
      "the same rows, except packed ones (see ByLength). ``dict(batch)`` has all arrays.\n\n"
      "Memory: another batch reuses it when this batch and all its arrays are gone. End every read "
      "that Python does not see before that, e.g. a copy to a GPU with non_blocking=True.\n\n"
      "It is a collections.abc.Mapping of names to columns. Only len() differs: it counts rows, as "
      "of a table. ``len(batch.keys())`` is the number of columns. Code that rebuilds a mapping by "
      "its type, ``type(batch)({...})``, gets that dict.")
      .def(nb::new_(&rebuilt), "columns"_a)
      .def("__len__", [](const BatchObject& self) { return self.batch.size(); })
      .def(
          "__getitem__",
          [](const BatchObject& self, nb::str name) {
            return value_of(self, array_of(self, name));
          },
          "name"_a, nb::sig("def __getitem__(self, name: str) -> typing.Any"),
          "A column: a NumPy array [N, ...], or a Ragged if its rows differ in shape. bfloat16, "
          "which NumPy lacks, is returned as uint16. Raises NotFound, which names the columns.")
      .def("__contains__", &contains, "name"_a,
           nb::sig("def __contains__(self, name: object) -> bool"))
      .def("keys", &names, nb::sig("def keys(self) -> list[str]"), "Names of the columns.")
      .def(
          "__iter__", [](const BatchObject& self) { return nb::iter(names(self)); },
          nb::sig("def __iter__(self) -> collections.abc.Iterator[str]"))
      .def("values", &values, nb::sig("def values(self) -> list[typing.Any]"), "Its columns.")
      .def("items", &items, nb::sig("def items(self) -> list[tuple[str, typing.Any]]"),
           "Names and columns.")
      .def("get", &value_or, "name"_a, "default"_a = nb::none(),
           nb::sig("def get(self, name: str, default: typing.Any = None) -> typing.Any"),
           "A column; ``default`` if it has none of that name.")
      .def("_ipython_key_completions_", &names,
           nb::sig("def _ipython_key_completions_(self) -> list[str]"))
      .def(
          "text",
          [](const BatchObject& self, nb::str name) {
            return rows(rows_of_bytes(self, name), [](const char* bytes, Py_ssize_t size) {
              return PyUnicode_DecodeUTF8(bytes, size, "surrogateescape");
            });
          },
          "name"_a, nb::sig("def text(self, name: str) -> list[str]"),
          "The rows of a column of text, JSON, keys or bytes as str. Bytes that are not UTF-8 "
          "become surrogates (surrogateescape).")
      .def(
          "bytes",
          [](const BatchObject& self, nb::str name) {
            return rows(rows_of_bytes(self, name), &PyBytes_FromStringAndSize);
          },
          "name"_a, nb::sig("def bytes(self, name: str) -> list[builtins.bytes]"),
          "The rows of a column of text, JSON, keys or bytes, copied.")
      .def("json", &parsed, "name"_a, nb::sig("def json(self, name: str) -> list[typing.Any]"),
           "The rows of such a column, each parsed as Sample.json() does. Raises "
           "json.JSONDecodeError.")
      .def(
          "torch",
          [](const BatchObject& self, nb::str name) {
            return column<nb::pytorch>(array_of(self, name));
          },
          "name"_a, nb::sig("def torch(self, name: str) -> typing.Any"),
          "A column as a torch tensor over the batch's memory, or a Ragged of tensors. No copy.")
      .def("tensors", &tensors, nb::sig("def tensors(self) -> dict[str, typing.Any]"),
           "All columns, as torch() has them.")
      .def("to", &moved, "device"_a, nb::kw_only(), "non_blocking"_a = false,
           nb::sig("def to(self, device: typing.Any, *, non_blocking: bool = False) -> "
                   "shardwise.devices.DeviceBatch"),
           "The same batch with its columns as torch tensors on a device, ragged ones as a Ragged "
           "of "
           "them. On the CPU they share the batch's memory. With non_blocking=True the batch is "
           "kept "
           "until its copies are done.")
      .def("pin_memory", &pinned, nb::sig("def pin_memory(self) -> shardwise.devices.DeviceBatch"),
           "The same batch with copies of its columns in page-locked memory. "
           "Loader(memory=torch_memory(pinned=True)) "
           "makes batches there without a copy.")
      .def_prop_ro(
          "samples",
          [](const BatchObject& self) { return numbers<nb::numpy>(self.batch.samples()); },
          nb::sig("def samples(self) -> numpy.typing.NDArray[numpy.int64]"),
          "The sample number of each row in the data set.")
      .def_prop_ro(
          "positions",
          [](const BatchObject& self) { return numbers<nb::numpy>(self.batch.positions()); },
          nb::sig("def positions(self) -> numpy.typing.NDArray[numpy.int64]"),
          "The position of each row in the epoch, over all ranks, with left-out samples counted.")
      .def_prop_ro(
          "group", [](const BatchObject& self) { return name_object(self.batch.group()); },
          nb::sig("def group(self) -> str"),
          "The key of the batch's group; \"\" without ByGroup, and if the batch has no rows.")
      .def("__repr__", &shown_in_python);
  nb::module_::import_("collections.abc").attr("Mapping").attr("register")(module.attr("Batch"));
}

}  // namespace shardwise::python
