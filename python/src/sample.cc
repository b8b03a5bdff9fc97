#include "shardwise/data/sample.h"

#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>

#include <new>
#include <optional>
#include <string_view>

#include "base/json.h"
#include "base/text.h"
#include "blocking.h"
#include "data/dataset_access.h"
#include "data/sample_access.h"
#include "decode/field_kind.h"
#include "errors.h"
#include "field_names.h"
#include "gil.h"
#include "objects.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace shardwise::python {

namespace {

// Set when the module is made. Valid as long as the module.
nb::handle sample_type;

SampleObject& held_by(PyObject* self) { return held_in<SampleObject>(self); }

/// The field for which a memoryview is being made. Otherwise a Sample exposes no buffer, since it
/// has several fields.
thread_local std::optional<std::string_view> shown;

int get_buffer(PyObject* self, Py_buffer* view, int flags) {
  if (!shown) {
    view->obj = nullptr;
    PyErr_SetString(PyExc_BufferError,
                    "a Sample has no buffer; use one of a field, e.g. sample[\"jpg\"]");
    return -1;
  }
  // PyBuffer_FillInfo takes a non-const pointer, but makes a read-only view.
  return PyBuffer_FillInfo(view, self, const_cast<char*>(shown->data()),
                           static_cast<Py_ssize_t>(shown->size()), /*readonly=*/1, flags);
}

/// Makes a read-only memoryview of the bytes that keeps the sample alive. Returns a new reference.
PyObject* new_view(PyObject* self, std::string_view bytes) noexcept {
  shown = bytes;
  PyObject* view = PyMemoryView_FromObject(self);
  shown.reset();
  return view;
}

/// Returns the number of a field. Throws as Sample does if the sample lacks it.
std::size_t place_of(const Sample& sample, std::string_view field) {
  for (std::size_t i = 0; i < sample.num_fields(); ++i) {
    if (sample.field(i).name == field) return i;
  }
  (void)sample[field];  // the field does not exist: this throws
  return 0;
}

PyObject* get_field(PyObject* self, PyObject* name) noexcept {
  return guarded(
      [&]() -> PyObject* {
        const NameBytes field(name);
        if (!field.is_valid()) return nullptr;
        return new_view(self, held_by(self).sample[field.view()]);
      },
      static_cast<PyObject*>(nullptr));
}

Py_ssize_t num_fields(PyObject* self) noexcept {
  return guarded([&] { return static_cast<Py_ssize_t>(held_by(self).sample.num_fields()); },
                 Py_ssize_t{-1});
}

int has_field(PyObject* self, PyObject* name) noexcept {
  return guarded(
      [&] {
        const Sample& sample = held_by(self).sample;
        if (PyUnicode_Check(name) == 0) return 0;
        const NameBytes field(name);
        if (!field.is_valid()) return -1;
        return sample.contains(field.view()) ? 1 : 0;
      },
      -1);
}

nb::object name_of_field(const Sample& sample, std::size_t i) {
  PyObject* name = field_name(sample.field(i).name);
  if (name == nullptr) nb::raise_python_error();
  return nb::borrow(name);
}

nb::list field_names(const SampleObject& self) {
  nb::list names;
  for (std::size_t i = 0; i < self.sample.num_fields(); ++i) {
    names.append(name_of_field(self.sample, i));
  }
  return names;
}

/// Copies the bytes of field `i`. If the shard is truncated meanwhile, this throws and the process
/// continues.
nb::object copied(const Sample& sample, std::size_t i) {
  const std::string_view bytes = sample.field(i).bytes;
  nb::object copy =
      nb::steal(PyBytes_FromStringAndSize(nullptr, static_cast<Py_ssize_t>(bytes.size())));
  if (!copy.is_valid()) nb::raise_python_error();
  auto* to = reinterpret_cast<std::byte*>(PyBytes_AsString(copy.ptr()));
  constexpr std::size_t kLong = std::size_t{1}
                                << 18;  // in bytes; larger fields are copied without the GIL
  if (bytes.size() < kLong) {
    detail::SampleAccess::copy_unchanged(sample, i, {to, bytes.size()});
  } else {
    const GilReleased released;
    detail::SampleAccess::copy_unchanged(sample, i, {to, bytes.size()});
  }
  return copy;
}

nb::object copied_field(const Sample& sample, nb::handle name) {
  const NameBytes field(name.ptr());
  if (!field.is_valid()) nb::raise_python_error();
  return copied(sample, place_of(sample, field.view()));
}

/// Raises json.JSONDecodeError with the position of the first invalid character.
[[noreturn]] void raise_not_json(nb::handle bytes, const JsonFault& fault) {
  const nb::object text = bytes.attr("decode")("utf-8", "replace");
  const nb::bytes front(PyBytes_AsString(bytes.ptr()), fault.offset);
  const nb::object before = front.attr("decode")("utf-8", "replace");
  const nb::object error = nb::module_::import_("json").attr("JSONDecodeError");
  PyErr_SetObject(error.ptr(), error(escaped(fault.what), text, nb::len(before)).ptr());
  nb::raise_python_error();
}

/// Raises json.JSONDecodeError if the text is not JSON by the library's rules.
void require_json(const nb::bytes& text) {
  const std::string_view bytes(PyBytes_AsString(text.ptr()), nb::len(text));
  if (const auto fault = json_fault(bytes)) raise_not_json(text, *fault);
}

/// Parses a field with Python's json. Requires JSON by the library's rules.
nb::object json_of(const Sample& sample, nb::handle name) {
  const auto field = nb::borrow<nb::bytes>(copied_field(sample, name));
  require_json(field);
  return nb::module_::import_("json").attr("loads")(field);
}

nb::object view_of(nb::handle self, std::size_t i) {
  PyObject* view = new_view(self.ptr(), held_by(self.ptr()).sample.field(i).bytes);
  if (view == nullptr) nb::raise_python_error();
  return nb::steal(view);
}

nb::dict views(nb::handle_t<SampleObject> self) {
  const Sample& sample = held_by(self.ptr()).sample;
  nb::dict fields;
  for (std::size_t i = 0; i < sample.num_fields(); ++i) {
    PyObject* name = field_name(sample.field(i).name);
    if (name == nullptr) nb::raise_python_error();
    const nb::object view = view_of(self, i);
    if (PyDict_SetItem(fields.ptr(), name, view.ptr()) != 0) nb::raise_python_error();
  }
  return fields;
}

nb::dict copies(const SampleObject& self) {
  nb::dict fields;
  for (std::size_t i = 0; i < self.sample.num_fields(); ++i) {
    fields[name_of_field(self.sample, i)] = copied(self.sample, i);
  }
  return fields;
}

nb::object array_over(nb::handle_t<SampleObject> self, nb::handle name) {
  const nb::object view = nb::steal(get_field(self.ptr(), name.ptr()));
  if (!view.is_valid()) nb::raise_python_error();
  const nb::module_ numpy = nb::module_::import_("numpy");
  return numpy.attr("frombuffer")(view, numpy.attr("uint8"));
}

nb::object tensor_of(const SampleObject& self, nb::handle name) {
  const nb::module_ torch = nb::module_::import_("torch");
  const NameBytes field(name.ptr());
  if (!field.is_valid()) nb::raise_python_error();
  const std::size_t place = place_of(self.sample, field.view());
  const std::size_t size = self.sample.field(place).bytes.size();
  nb::object tensor = torch.attr("empty")(size, "dtype"_a = torch.attr("uint8"));
  auto* to = reinterpret_cast<std::byte*>(nb::cast<std::uintptr_t>(tensor.attr("data_ptr")()));
  const GilReleased released;
  detail::SampleAccess::copy_unchanged(self.sample, place, {to, size});
  return tensor;
}

bool same_sample(const SampleObject& a, const SampleObject& b) {
  const Dataset& left = dataset_of(a.dataset);
  const Dataset& right = dataset_of(b.dataset);
  return a.sample.number_in_index() == b.sample.number_in_index() &&
         detail::DatasetAccess::whole_fingerprint(left) ==
             detail::DatasetAccess::whole_fingerprint(right);
}

std::string shown_in_python(const SampleObject& self) {
  std::string text = "<shardwise.Sample: " + self.sample.describe() + ", fields ";
  for (std::size_t i = 0; i < self.sample.num_fields(); ++i) {
    const Sample::Field field = self.sample.field(i);
    text += (i == 0 ? "" : ", ") + nb::cast<std::string>(nb::repr(name_object(field.name))) + " (" +
            std::to_string(field.bytes.size()) + " bytes)";
  }
  return text + ">";
}

PyObject* sample_iter(PyObject* self) noexcept {
  return guarded([&]() -> PyObject* { return PyObject_GetIter(field_names(held_by(self)).ptr()); },
                 static_cast<PyObject*>(nullptr));
}

PyType_Slot slots[] = {
    {Py_mp_subscript, reinterpret_cast<void*>(get_field)},
    {Py_mp_length, reinterpret_cast<void*>(num_fields)},
    {Py_sq_contains, reinterpret_cast<void*>(has_field)},
    {Py_tp_iter, reinterpret_cast<void*>(sample_iter)},
    {Py_bf_getbuffer, reinterpret_cast<void*>(get_buffer)},
    {0, nullptr},
};

const char* kind_of(const NameArgument& field) {
  switch (detail::field_kind(field.bytes)) {
    case detail::FieldKind::kImage:
      return "image";
    case detail::FieldKind::kInteger:
      return "integer";
    case detail::FieldKind::kText:
      return "text";
    case detail::FieldKind::kJson:
      return "json";
    case detail::FieldKind::kNpy:
      return "npy";
    case detail::FieldKind::kBytes:
      break;
  }
  return "bytes";
}

}  // namespace

PyObject* new_sample(Sample&& sample, PyObject* dataset,
                     std::optional<std::uint64_t> number) noexcept {
  PyObject* made = nb::inst_alloc(sample_type).release().ptr();
  if (made == nullptr) return nullptr;
  new (nb::inst_ptr<SampleObject>(made))
      SampleObject{std::move(sample), nb::borrow(dataset), number};
  nb::inst_mark_ready(made);
  return made;
}

void add_samples(nb::module_& module) {
  auto type =
      nb::class_<SampleObject>(
          module, "Sample", nb::type_slots(slots), nb::is_final(),
          "One sample of a Dataset, read in place: a read-only mapping from names of fields to "
          "bytes.\n\n"
          "``sample[\"jpg\"]`` is a read-only memoryview into the mapped shard, without a copy. "
          "The view and objects made from it keep the shard mapped, even after eviction or after "
          "the Dataset is gone. With access=\"read\", the sample holds the bytes instead.\n\n"
          "Errors: reading a view of a shard that another program truncates ends the process with "
          "SIGBUS. bytes(), copy() and access=\"read\" raise StaleIndex or OSError instead.\n"
          "Threads: any thread may use it.\n"
          "Pickling: a reference: the path of the index, the number in it, and ``number``.\n"
          "Type: not a collections.abc.Mapping, because torch would split those up to the bytes of "
          "each field.\n\n"
          ">>> sample = shardwise.open(\"train.idx\")[42]\n"
          ">>> sample.keys()\n"
          "['jpg', 'cls', 'txt']\n"
          ">>> bytes(sample[\"txt\"])\n"
          "b'no. 42'\n"
          ">>> sample[\"txt\"].readonly\n"
          "True")
          .def_prop_ro(
              "key", [](const SampleObject& self) { return name_object(self.sample.key()); },
              nb::sig("def key(self) -> str"),
              "Key: the path of its members up to the first dot of the file name. Bytes that are "
              "not UTF-8 become surrogates (surrogateescape).")
          .def_prop_ro(
              "index", [](const SampleObject& self) { return self.sample.index(); },
              "Its number in its dataset.")
          .def_prop_ro(
              "number",
              [](const SampleObject& self) { return self.number.value_or(self.sample.index()); },
              "The number by which it was read, as samplers and proofs count it: for a mix() the "
              "number in the mixture, else its index.")
          .def(
              "_numbered",
              [](const SampleObject& self, std::uint64_t number) {
                nb::object made =
                    nb::steal(new_sample(Sample(self.sample), self.dataset.ptr(), number));
                if (!made.is_valid()) nb::raise_python_error();
                return made;
              },
              "number"_a, nb::sig("def _numbered(self, number: int) -> Sample"),
              "This sample with another ``number``.")
          .def_prop_ro(
              "number_in_index",
              [](const SampleObject& self) { return self.sample.number_in_index(); },
              "Its number in the index; differs from ``index`` only in a view.")
          .def_prop_ro(
              "dataset", [](const SampleObject& self) { return self.dataset; },
              nb::sig("def dataset(self) -> Dataset"), "The Dataset of this sample.")
          .def_prop_ro(
              "shard_path",
              [](const SampleObject& self) { return name_object(self.sample.shard_path()); },
              nb::sig("def shard_path(self) -> str"), "Path or URL of its shard.")
          .def("keys", &field_names, nb::sig("def keys(self) -> list[str]"),
               "Names of its fields, in the order of the shard.")
          .def(
              "values",
              [](nb::handle_t<SampleObject> self) {
                nb::list all;
                for (std::size_t i = 0; i < held_by(self.ptr()).sample.num_fields(); ++i) {
                  all.append(view_of(self, i));
                }
                return all;
              },
              nb::sig("def values(self) -> list[memoryview]"), "The bytes of its fields.")
          .def(
              "items",
              [](nb::handle_t<SampleObject> self) {
                nb::list all;
                const Sample& sample = held_by(self.ptr()).sample;
                for (std::size_t i = 0; i < sample.num_fields(); ++i) {
                  all.append(nb::make_tuple(name_of_field(sample, i), view_of(self, i)));
                }
                return all;
              },
              nb::sig("def items(self) -> list[tuple[str, memoryview]]"),
              "Names and bytes of its fields.")
          .def(
              "get",
              [](nb::handle_t<SampleObject> self, nb::str field, nb::object otherwise) {
                const NameBytes wanted(field.ptr());
                if (!wanted.is_valid()) nb::raise_python_error();
                const auto bytes = held_by(self.ptr()).sample.find(wanted.view());
                if (!bytes) return otherwise;
                PyObject* view = new_view(self.ptr(), *bytes);
                if (view == nullptr) nb::raise_python_error();
                return nb::object(nb::steal(view));
              },
              "field"_a, "default"_a = nb::none(),
              nb::sig("def get(self, field: str, default: typing.Any = None) -> typing.Any"),
              "The bytes of a field, or ``default`` if the sample lacks it.")
          .def("views", &views, nb::sig("def views(self) -> dict[str, memoryview]"),
               "All fields as a dict of views; faster than ``dict(sample)``.")
          .def(
              "bytes",
              [](const SampleObject& self, nb::str field) {
                return copied_field(self.sample, field);
              },
              "field"_a, nb::sig("def bytes(self, field: str) -> bytes"),
              "A copy of a field. Raises NotFound; StaleIndex or OSError if the shard was changed "
              "or cannot be read, but never SIGBUS.\n\n"
              ">>> sample.bytes(\"txt\")\n"
              "b'no. 42'")
          .def("copy", &copies, nb::sig("def copy(self) -> dict[str, bytes]"),
               "Copies of all fields as a dict, which does not keep the shard open. Raises like "
               "bytes().")
          .def(
              "text",
              [](const SampleObject& self, nb::str field) {
                return copied_field(self.sample, field).attr("decode")("utf-8");
              },
              "field"_a, nb::sig("def text(self, field: str) -> str"),
              "A UTF-8 field as a str. Raises like bytes(), and UnicodeDecodeError.")
          .def(
              "integer",
              [](const SampleObject& self, nb::str field) {
                const NameBytes wanted(field.ptr());
                if (!wanted.is_valid()) nb::raise_python_error();
                return self.sample.integer(wanted.view());
              },
              "field"_a, nb::sig("def integer(self, field: str) -> int"),
              "A field with a decimal number, e.g. WebDataset's cls. Raises like bytes(), and "
              "BadField.\n\n"
              ">>> sample.integer(\"cls\")\n"
              "2")
          .def(
              "json",
              [](const SampleObject& self, nb::str field) { return json_of(self.sample, field); },
              "field"_a, nb::sig("def json(self, field: str) -> typing.Any"),
              "A JSON field in UTF-8. Refused, as by columns: NaN, numbers beyond the range of a "
              "float, unpaired surrogates, and more than 500 levels. Raises like bytes(), and "
              "json.JSONDecodeError.")
          .def(
              "decode",
              [](nb::handle_t<SampleObject> self, nb::handle columns, std::uint64_t seed,
                 std::uint64_t epoch) {
                return nb::module_::import_("shardwise.decoded")
                    .attr("decode")(self, columns, seed, epoch);
              },
              "columns"_a = nb::none(), nb::kw_only(), "seed"_a = 0, "epoch"_a = 0,
              nb::sig("def decode(self, columns: collections.abc.Iterable[Column] | None = None, "
                      "*, seed: int = 0, epoch: int = 0) -> dict[str, typing.Any]"),
              "The sample decoded by these columns, as a dict of their names. Without columns, all "
              "fields by the kinds that their names state, as columns.image(), integer(), text(), "
              "json() and array() decode them; others as bytes.\n\n"
              "A row is a NumPy array, an int or float, a str, bytes, or a parsed JSON value. "
              "Random "
              "steps draw as a Loader's do with this seed and epoch. Raises NotFound, BadField.\n\n"
              ">>> sample.decode()[\"txt\"]\n"
              "'no. 42'")
          .def("numpy", &array_over, "field"_a,
               nb::sig("def numpy(self, field: str) -> numpy.typing.NDArray[numpy.uint8]"),
               "The bytes of a field as a read-only uint8 array [size] over the mapped shard. "
               "DLPack is not supported: torch ignores that the array is read-only, and a write "
               "would end the process. Use tensor(), which copies.\n\n"
               ">>> sample.numpy(\"txt\")[:3]\n"
               "array([110, 111,  46], dtype=uint8)")
          .def("tensor", &tensor_of, "field"_a,
               nb::sig("def tensor(self, field: str) -> torch.Tensor"),
               "A copy of a field as a torch uint8 tensor [size]. Raises like bytes().")
          .def(
              "__eq__",
              [](const SampleObject& self, nb::handle other) -> nb::object {
                if (!nb::isinstance<SampleObject>(other)) return nb::borrow(Py_NotImplemented);
                return nb::bool_(same_sample(self, held_by(other.ptr())));
              },
              nb::arg("other").none(), nb::sig("def __eq__(self, other: object, /) -> bool"),
              "True for the same sample of the same index.")
          .def("__hash__",
               [](const SampleObject& self) {
                 return static_cast<Py_ssize_t>(self.sample.number_in_index());
               })
          .def("__repr__", &shown_in_python)
          .def(
              "_repr_html_",
              [](nb::handle_t<SampleObject> self) {
                return nb::module_::import_("shardwise.notebooks").attr("html_of_sample")(self);
              },
              nb::sig("def _repr_html_(self) -> str"))
          .def("_ipython_key_completions_", &field_names,
               nb::sig("def _ipython_key_completions_(self) -> list[str]"))
          .def(
              "__reduce__",
              [](const SampleObject& self) {
                const std::uint64_t in_index = self.sample.number_in_index();
                std::optional<std::uint64_t> taken_by = self.number;
                if (self.sample.index() != in_index)
                  taken_by = taken_by.value_or(self.sample.index());
                const nb::module_ references = nb::module_::import_("shardwise.references");
                if (dataset_of(self.dataset).join_report()) {
                  return nb::make_tuple(
                      references.attr("joined_sample_again"),
                      nb::make_tuple(self.dataset, self.sample.index(), self.number));
                }
                return nb::make_tuple(
                    references.attr("sample_again"),
                    self.dataset.attr("_reference") + nb::make_tuple(in_index, taken_by));
              },
              nb::sig("def __reduce__(self) -> tuple[typing.Any, ...]"));
  sample_type = type;
  module.def("field_kind", &kind_of, "field"_a, nb::sig("def field_kind(field: str) -> str"),
             "The type of a field by the last part of its name: \"image\", \"integer\", \"text\", "
             "\"json\", \"npy\" or \"bytes\".");
  module.def("require_json", &require_json, "text"_a,
             nb::sig("def require_json(text: bytes) -> None"),
             "Raises json.JSONDecodeError if Sample.json() would refuse this text.");
}

}  // namespace shardwise::python
