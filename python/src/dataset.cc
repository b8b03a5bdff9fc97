#include "shardwise/data/dataset.h"

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <numeric>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/error_types.h"
#include "base/text.h"
#include "blocking.h"
#include "data/dataset_access.h"
#include "errors.h"
#include "field_names.h"
#include "gaps.h"
#include "gil.h"
#include "index/side_tables.h"
#include "objects.h"
#include "sample_numbers.h"
#include "shardwise/base/error.h"
#include "shardwise/data/fetch_plan.h"
#include "shardwise/index/query.h"
#include "shardwise/order/sampler.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace shardwise::python {

bool may_wait_long(const Dataset& data) {
  return DatasetAccess::has_cache(data) || DatasetAccess::reads_ranges(data);
}

namespace {

DatasetObject& held_by(PyObject* self) { return held_in<DatasetObject>(self); }

nb::bytes bytes_of(const std::vector<std::uint64_t>& numbers) {
  return nb::bytes(numbers.data(), numbers.size() * sizeof(std::uint64_t));
}

nb::object select_numbers(const DatasetObject& self, std::vector<std::uint64_t> numbers) {
  std::sort(numbers.begin(), numbers.end());
  const nb::bytes kept = bytes_of(numbers);
  return dataset_after(self, self.data.subset(std::move(numbers)), nb::make_tuple("numbers", kept));
}

nb::object slice(const DatasetObject& self, PyObject* slice) {
  Py_ssize_t start = 0;
  Py_ssize_t stop = 0;
  Py_ssize_t step = 0;
  if (PySlice_Unpack(slice, &start, &stop, &step) != 0) nb::raise_python_error();
  const Py_ssize_t count =
      PySlice_AdjustIndices(static_cast<Py_ssize_t>(self.data.size()), &start, &stop, step);
  if (step < 0) {
    throw InvalidArgument("a view of a dataset keeps the order of the samples", "",
                          "for another order use [ds[i] for i in reversed(...)]");
  }
  std::vector<std::uint64_t> numbers(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    numbers[i] = static_cast<std::uint64_t>(start) + i * static_cast<std::uint64_t>(step);
  }
  return dataset_after(self, self.data.subset(std::move(numbers)),
                       nb::make_tuple("slice", start, stop, step));
}

nb::object numbered(const DatasetObject& self, nb::handle asked) {
  std::vector<std::uint64_t> numbers = sample_numbers(asked, self.data);
  if (!std::is_sorted(numbers.begin(), numbers.end())) {
    throw InvalidArgument(
        "a view of a dataset keeps the order of the samples", "these numbers are not ascending",
        "for another order use [ds[i] for i in numbers]; select() sorts the numbers");
  }
  return select_numbers(self, std::move(numbers));
}

PyObject* get_sample(PyObject* self, std::uint64_t number) {
  return new_sample(sample_at(held_by(self), number), self);
}

PyObject* get_item(PyObject* self, PyObject* key) noexcept {
  return guarded(
      [&]() -> PyObject* {
        const DatasetObject& object = held_by(self);
        if (PyLong_CheckExact(key) != 0) {
          return get_sample(self, sample_number(key, object.data));
        }
        if (PySlice_Check(key) != 0) return slice(object, key).release().ptr();
        if (is_number(key)) return get_sample(self, sample_number(key, object.data));
        if (PyUnicode_Check(key) != 0 || PyBytes_Check(key) != 0) {
          PyErr_SetString(PyExc_TypeError, "a dataset is indexed by numbers; use get() for a key");
          return nullptr;
        }
        if (PyFloat_Check(key) != 0 || key == Py_None) {
          PyErr_SetString(PyExc_TypeError,
                          "a dataset is indexed by whole numbers, slices and lists of numbers");
          return nullptr;
        }
        return numbered(object, key).release().ptr();
      },
      static_cast<PyObject*>(nullptr));
}

/// Called by Python to iterate over a dataset as a sequence.
PyObject* get_in_turn(PyObject* self, Py_ssize_t number) noexcept {
  return guarded(
      [&]() -> PyObject* {
        const Dataset& data = held_by(self).data;
        if (number < 0 || static_cast<std::uint64_t>(number) >= data.size()) {
          throw_out_of_range(number, data);
        }
        return get_sample(self, static_cast<std::uint64_t>(number));
      },
      static_cast<PyObject*>(nullptr));
}

Py_ssize_t length(PyObject* self) noexcept {
  return guarded([&] { return static_cast<Py_ssize_t>(held_by(self).data.size()); },
                 Py_ssize_t{-1});
}

std::optional<std::uint64_t> number_of(const DatasetObject& self, nb::str key) {
  const NameBytes name(key.ptr());
  if (!name.is_valid()) nb::raise_python_error();
  return detail::DatasetAccess::number_of(self.data, name.view());
}

int contains(PyObject* self, PyObject* key) noexcept {
  return guarded(
      [&] {
        if (PyUnicode_Check(key) == 0) return 0;
        return number_of(held_by(self), nb::borrow<nb::str>(key)) ? 1 : 0;
      },
      -1);
}

PyType_Slot slots[] = {
    {Py_mp_subscript, reinterpret_cast<void*>(get_item)},
    {Py_mp_length, reinterpret_cast<void*>(length)},
    {Py_sq_item, reinterpret_cast<void*>(get_in_turn)},
    {Py_sq_contains, reinterpret_cast<void*>(contains)},
    {Py_tp_iter, reinterpret_cast<void*>(PySeqIter_New)},
    {0, nullptr},
};

std::vector<std::uint64_t> numbers_or_all(const DatasetObject& self, nb::handle numbers) {
  if (!numbers.is_none()) return sample_numbers(numbers, self.data);
  std::vector<std::uint64_t> all(self.data.size());
  std::iota(all.begin(), all.end(), std::uint64_t{0});
  return all;
}

nb::list column(const DatasetObject& self, const std::string& name, nb::handle numbers) {
  const std::vector<std::uint64_t> wanted = numbers_or_all(self, numbers);
  nb::list values;
  for (const Query::Value& found : self.data.values(name, wanted))
    values.append(value_object(found));
  return values;
}

nb::list sample_keys(const DatasetObject& self, nb::handle numbers) {
  const std::vector<std::uint64_t> wanted = numbers_or_all(self, numbers);
  const auto records = DatasetAccess::records(self.data);
  const Index& index = records->index();
  nb::list keys;
  for (const std::uint64_t sample : wanted) {
    const std::uint64_t number = self.data.number_in_index(sample);
    const std::uint64_t shard = index.shard_of(number);
    const auto in_shard = static_cast<std::uint32_t>(number - index.first_sample(shard));
    keys.append(name_object(records->of(shard).key(in_shard)));
  }
  return keys;
}

/// Makes a NumPy array that owns the vector's data.
template <class T>
auto array_of(std::vector<T>&& values) {
  auto* const owned = new std::vector<T>(std::move(values));
  const nb::capsule owner(owned, [](void* p) noexcept { delete static_cast<std::vector<T>*>(p); });
  return nb::ndarray<nb::numpy, T, nb::ndim<1>>(owned->data(), {owned->size()}, owner).cast();
}

nb::object sizes(const DatasetObject& self, const NameArgument& field, nb::handle numbers) {
  const std::vector<std::uint64_t> wanted = numbers_or_all(self, numbers);
  std::vector<std::uint64_t> sizes(wanted.size());
  {
    const GilReleased released;
    self.data.sizes(wanted, field.bytes, sizes);
  }
  return array_of(std::vector<std::int64_t>(sizes.begin(), sizes.end()));
}

nb::tuple gather(const DatasetObject& self, nb::handle numbers, const NameArgument& field) {
  const std::vector<std::uint64_t> wanted = numbers_or_all(self, numbers);
  std::vector<std::int64_t> offsets;
  std::vector<std::byte> bytes;
  without_gil([&](const CancelToken&) { self.data.gather(wanted, field.bytes, offsets, bytes); });
  auto* const owned = new std::vector<std::byte>(std::move(bytes));
  const nb::capsule owner(owned,
                          [](void* p) noexcept { delete static_cast<std::vector<std::byte>*>(p); });
  return nb::make_tuple(array_of(std::move(offsets)),
                        nb::ndarray<nb::numpy, std::uint8_t, nb::ndim<1>>(
                            reinterpret_cast<std::uint8_t*>(owned->data()), {owned->size()}, owner)
                            .cast());
}

/// Makes a list of keys from an iterable, e.g. an array of texts.
nb::object listed(nb::handle which) {
  if (nb::isinstance<nb::tuple>(which) || PyAnySet_Check(which.ptr()) ||
      PyIter_Check(which.ptr())) {
    return nb::list(which);
  }
  if (nb::isinstance<nb::list>(which) || !nb::hasattr(which, "__array__")) return nb::borrow(which);
  const nb::object array = which.attr("__array__")();
  const auto kind = nb::cast<std::string>(array.attr("dtype").attr("kind"));
  return kind == "U" || kind == "O" ? array.attr("tolist")() : nb::borrow(which);
}

nb::object select(const DatasetObject& self, nb::handle given, const std::string& missing) {
  if (missing != "error" && missing != "skip") {
    throw InvalidArgument("an option is not valid", "missing=" + in_quotes(missing),
                          "choose one of: error, skip");
  }
  const nb::object which = listed(given);
  const nb::object first =
      nb::isinstance<nb::list>(which) && nb::len(which) > 0 ? nb::object(which[0]) : nb::none();
  if (!nb::isinstance<nb::str>(first)) {
    return select_numbers(self, sample_numbers(which, self.data));
  }
  std::vector<std::uint64_t> numbers;
  for (const nb::handle key : which) {
    const auto number = number_of(self, nb::cast<nb::str>(key));
    if (!number && missing == "skip") continue;
    if (!number) {
      const NameBytes name(key.ptr());
      if (!name.is_valid()) nb::raise_python_error();
      (void)self.data.get(name.view());  // the field does not exist: get() throws
    }
    numbers.push_back(*number);
  }
  return select_numbers(self, std::move(numbers));
}

nb::object where(const DatasetObject& self, const std::string& condition,
                 std::optional<std::uint64_t> first, std::optional<std::uint64_t> last) {
  const std::uint64_t begin = first.value_or(0);
  const std::uint64_t end = last.value_or(self.data.size());
  Dataset found =
      without_gil([&](const CancelToken&) { return self.data.where(condition, begin, end); });
  return dataset_after(self, std::move(found), nb::make_tuple("where", condition, begin, end));
}

/// Returns the view that gaps_of() encoded as `gaps`. Records `step`, by which the view is made
/// again after pickling.
nb::object at_gaps(const DatasetObject& self, nb::bytes gaps, nb::object step) {
  return dataset_after(self, self.data.subset(numbers_of_gaps({gaps.c_str(), gaps.size()})),
                       std::move(step));
}

nb::object find(nb::handle_t<DatasetObject> self, nb::str key) {
  const auto number = number_of(held_by(self.ptr()), key);
  if (!number) return nb::none();
  PyObject* sample = get_sample(self.ptr(), *number);
  if (sample == nullptr) nb::raise_python_error();
  return nb::steal(sample);
}

nb::object get(nb::handle_t<DatasetObject> self, nb::str key) {
  nb::object sample = find(self, key);
  if (sample.is_none()) {
    const NameBytes name(key.ptr());
    (void)held_by(self.ptr()).data.get(name.view());  // the field does not exist: get() throws
  }
  return sample;
}

nb::list shards(const DatasetObject& self) {
  const nb::object make = nb::module_::import_("shardwise.records").attr("Shard");
  nb::list all;
  const Index& index = self.data.index();
  for (std::uint64_t i = 0; i < index.num_shards(); ++i) {
    const Index::Shard shard = index.shard(i);
    all.append(make(shard.number, name_object(shard.path), shard.size_bytes, shard.first_sample,
                    shard.num_samples, shard.num_members,
                    std::string(compression_name(shard.compression))));
  }
  return all;
}

nb::object info(const DatasetObject& self) {
  const nb::module_ records = nb::module_::import_("shardwise.records");
  const Index& index = self.data.index();
  const Index::Summary summary = index.summary();
  nb::list fields;
  for (const Index::Summary::Field& field : summary.fields) {
    fields.append(records.attr("Field")(name_object(field.name), field.num_members, field.bytes));
  }
  return records.attr("Info")(name_object(index.path()), summary.num_shards, summary.num_samples,
                              summary.num_members, summary.shard_bytes, fields,
                              name_object(summary.url_base));
}

std::vector<std::string> column_names(const DatasetObject& self) {
  return detail::metadata_columns(self.data.index());
}

nb::bytes fingerprint_bytes(const Hash128& fingerprint) {
  const std::string text = to_string(fingerprint);
  return nb::bytes(text.data(), text.size());
}

/// Returns the arguments of open_again(), except the steps.
nb::tuple reference(const DatasetObject& self) {
  if (self.opening.is_none()) {
    throw Error(ErrorCode::kUnsupported, "this dataset cannot be pickled", "",
                "give shardwise.open() the cache's directory, because the cache or its fetchers "
                "are objects of this process");
  }
  return nb::make_tuple(self.opening, fingerprint_bytes(self.data.index().fingerprint()));
}

nb::tuple reduce(nb::handle_t<DatasetObject> dataset, int protocol) {
  const nb::module_ references = nb::module_::import_("shardwise.references");
  const DatasetObject& self = held_by(dataset.ptr());
  const nb::tuple base = reference(self);
  return nb::make_tuple(
      references.attr("open_again"),
      nb::make_tuple(base[0], base[1],
                     references.attr("packed_steps")(dataset, self.steps, protocol),
                     fingerprint_bytes(self.data.fingerprint())));
}

std::string shown_in_python(const DatasetObject& self) {
  std::string text = "<shardwise.Dataset: " + std::to_string(self.data.size()) + " samples" +
                     (self.data.is_view() ? " (a view)" : "") + " of " +
                     nb::cast<std::string>(nb::repr(name_object(self.data.index().path())));
  if (self.data.join_report()) text += ", joined";
  const char* before = ", fields ";
  for (const std::string& field : detail::field_names(self.data)) {
    text += before + nb::cast<std::string>(nb::repr(name_object(field)));
    before = ", ";
  }
  return text + ">";
}

}  // namespace

void CacheWatch::missed(const Dataset& data) {
  constexpr std::uint64_t kFirst = 16;  // with fewer misses a warning would be premature
  constexpr std::uint64_t kFew = 4;     // with an order by shards, there are at least this many
                                        // requests per miss
  ++missed_;
  const bool is_scattered = asked_ < kFew * missed_;
  if (is_silent_ || !data.cache() || (missed_ > 1 && (missed_ < kFirst || !is_scattered))) return;
  const ShardCache::Stats stats = data.cache()->stats();
  const std::uint64_t gone = stats.evicted + stats.bypassed;
  if (missed_ == 1) gone_before_ = gone;
  if (gone - gone_before_ < kFirst / 2) return;
  is_silent_ = true;
  const auto warning = small_cache_warning(data, *make_sampler(data, {.kind = Resampled{}}), {});
  if (!warning) return;  // this data fits: the evicted shards belong to other data
  const std::string text = std::to_string(asked_) + " samples were read by number, and " +
                           std::to_string(missed_) + " of them had to open a shard; " + *warning +
                           "; use the orders of shardwise.Loader or of the " +
                           "samplers of shardwise.torch";
  if (PyErr_WarnEx(PyExc_UserWarning, text.c_str(), 1) != 0) nb::raise_python_error();
}

Sample sample_at(DatasetObject& object, std::uint64_t number) {
  const Dataset& data = object.data;
  object.watch.asked();
  if (auto sample = data.try_get(number)) return *std::move(sample);
  if (may_wait_long(data)) {
    Sample sample = without_gil([&](const CancelToken&) { return data[number]; });
    object.watch.missed(data);
    return sample;
  }
  const GilReleased released;
  return data[number];
}

nb::object value_object(const Query::Value& value) {
  using Type = Query::Value::Type;
  switch (value.type) {
    case Type::kNull:
      break;
    case Type::kInteger:
      return nb::int_(value.integer);
    case Type::kReal:
      return nb::float_(value.real);
    case Type::kText:
      return name_object(value.bytes);
    case Type::kBlob:
      return nb::bytes(value.bytes.data(), value.bytes.size());
  }
  return nb::none();
}

nb::object dataset_after(const DatasetObject& of, Dataset&& data, nb::object step) {
  const nb::object steps = of.steps + nb::make_tuple(std::move(step));
  return nb::cast(DatasetObject{std::move(data), of.opening, nb::cast<nb::tuple>(steps)});
}

DatasetObject& dataset_object_of(nb::handle dataset) { return nb::cast<DatasetObject&>(dataset); }

const Dataset& dataset_of(nb::handle dataset) { return dataset_object_of(dataset).data; }

void add_datasets(nb::module_& module) {
  nb::class_<DatasetObject> type(
      module, "Dataset", nb::type_slots(slots), nb::is_weak_referenceable(), nb::is_final(),
      "The samples of an index, by number and by key, read in place; made by shardwise.open().\n\n"
      "``ds[i]`` is the sample with this number (``ds[-1]`` the last one), ``len(ds)`` the number "
      "of samples. ``key in ds`` tells whether a sample has this key. ``ds[a:b]``, "
      "``ds[numbers]``, where() and select() are views: datasets of some of the samples, numbered "
      "from 0 in the order of the index.\n\n"
      "Threads: any thread may use it. While one waits for a shard, other threads run. After "
      "fork() the child may continue to use it.\n"
      "Memory: 8 bytes per sample of a view.\n"
      "Pickling: a reference to the index: its absolute path and fingerprint, the options, and the "
      "view. Unpickling raises Mismatch if the index at that path is another.\n\n"
      ">>> ds = shardwise.open(\"train.idx\")\n"
      ">>> len(ds), ds[42].key, \"000042\" in ds\n"
      "(400, '000042', True)\n"
      ">>> [sample.key for sample in ds[2:4]]\n"
      "['000002', '000003']");
  type.def_prop_ro(
          "fingerprint",
          [](const DatasetObject& self) { return to_string(self.data.fingerprint()); },
          "Identifies the samples and their order: 32 hexadecimal digits.")
      .def_prop_ro(
          "path", [](const DatasetObject& self) { return name_object(self.data.index().path()); },
          nb::sig("def path(self) -> str"), "Path of the index.")
      .def(
          "decoded",
          [](nb::handle self, nb::handle columns, std::uint64_t seed) {
            return nb::module_::import_("shardwise.decoded")
                .attr("DecodedDataset")(self, columns, "seed"_a = seed);
          },
          "columns"_a = nb::none(), nb::kw_only(), "seed"_a = 0,
          nb::sig("def decoded(self, columns: collections.abc.Iterable[Column] | None = None, *, "
                  "seed: int = 0) -> shardwise.decoded.DecodedDataset"),
          "These samples decoded, for torch's DataLoader: item i is a dict with a value for each "
          "column, or for each field by its kind. See Sample.decode().")
      .def_prop_ro(
          "origin",
          [](const DatasetObject& self) { return name_object(self.data.index().origin()); },
          nb::sig("def origin(self) -> str"),
          "URL from which the index was fetched; \"\" if it was opened by its path.")
      .def_prop_ro(
          "is_view", [](const DatasetObject& self) { return self.data.is_view(); },
          "True if it is a view of some samples.")
      .def_prop_ro("columns", &column_names,
                   "Names of the metadata columns of the index and its side tables.")
      .def("sample_keys", &sample_keys, "numbers"_a = nb::none(),
           nb::sig("def sample_keys(self, numbers: typing.Any = None) -> list[str]"),
           "Keys of these samples, by default of all. Opens no shard. Raises OutOfRange.\n\n"
           ">>> ds.sample_keys([42, 7])\n"
           "['000042', '000007']")
      .def("column", &column, "name"_a, "numbers"_a = nb::none(),
           nb::sig("def column(self, name: str, numbers: typing.Any = None) -> "
                   "list[int | float | str | bytes | None]"),
           "Values of these samples in a metadata column, by default of all. Opens no shard. "
           "Raises NotFound, OutOfRange.\n\n"
           ">>> ds.column(\"cls\", [7, 18])\n"
           "[7, 8]")
      .def(
          "numbers",
          [](const DatasetObject& self, const std::string& column) {
            return array_of(self.data.numbers(column));
          },
          "column"_a,
          nb::sig("def numbers(self, column: str) -> numpy.typing.NDArray[numpy.float64]"),
          "A metadata column of numbers, one per sample. Raises NotFound; InvalidArgument if a "
          "value is not a number. Needs NumPy.\n\n"
          ">>> ds.numbers(\"cls\")[:3].tolist()\n"
          "[0.0, 1.0, 2.0]")
      .def("sizes", &sizes, "field"_a, "numbers"_a = nb::none(),
           nb::sig("def sizes(self, field: str, numbers: typing.Any = None) -> "
                   "numpy.typing.NDArray[numpy.int64]"),
           "Sizes of a field in these samples, by default in all; 0 if a sample lacks the field. "
           "Opens no shard. Needs NumPy.\n\n"
           ">>> ds.sizes(\"txt\", [5, 42]).tolist()\n"
           "[5, 6]")
      .def(
          "samples",
          [](nb::handle_t<DatasetObject> self, nb::handle numbers) {
            return samples_of(self, numbers);
          },
          "numbers"_a,
          nb::sig("def samples(self, numbers: typing.Any) -> collections.abc.Iterator[Sample]"),
          "Iterates over the samples with these numbers, in this order; numbers may repeat: ``for "
          "sample in ds.samples(numbers)``. Each sample is like that of ``ds[i]``.\n\n"
          "Cost: faster than ``ds[i]`` for small samples in random order, because it prefetches "
          "the next samples into the CPU's caches, and keeps up to 1,024 shards open.\n"
          "Threads: one thread uses the iterator, once.\n"
          "Errors: OutOfRange at once; the errors of ``ds[i]`` at the sample, after which the "
          "iteration may continue.")
      .def(
          "__getitems__",
          [](nb::handle_t<DatasetObject> self, nb::handle numbers) {
            const nb::dict modules = nb::module_::import_("sys").attr("modules");
            if (modules.contains("torch.utils.data")) {
              nb::module_::import_("shardwise.references").attr("teach_torch")();
            }
            return nb::list(samples_of(self, numbers));
          },
          "numbers"_a, nb::sig("def __getitems__(self, numbers: typing.Any) -> list[Sample]"),
          "The samples of a batch, as a list; called by torch's DataLoader.")
      .def("gather", &gather, "numbers"_a, "field"_a,
           nb::sig("def gather(self, numbers: typing.Any, field: str) -> "
                   "tuple[numpy.typing.NDArray[numpy.int64], numpy.typing.NDArray[numpy.uint8]]"),
           "Copies one field of many samples into one array. Returns ``(offsets, data)``: the "
           "field of ``numbers[i]`` is ``data[offsets[i]:offsets[i + 1]]``. Raises NotFound if a "
           "sample lacks the field; StaleIndex, OSError. Needs NumPy.\n\n"
           ">>> offsets, data = ds.gather([42, 5], \"txt\")\n"
           ">>> offsets.tolist(), bytes(data)\n"
           "([0, 6, 11], b'no. 42no. 5')")
      .def("find_number", &number_of, "key"_a,
           nb::sig("def find_number(self, key: str) -> int | None"),
           "Number of the first sample with this key, or None. Opens no shard.")
      .def("find", &find, "key"_a, nb::sig("def find(self, key: str) -> Sample | None"),
           "The first sample with this key, or None.")
      .def("get", &get, "key"_a, nb::sig("def get(self, key: str) -> Sample"),
           "The first sample with this key. Raises NotFound.\n\n"
           ">>> ds.get(\"000042\").text(\"txt\")\n"
           "'no. 42'")
      .def(
          "_gaps",
          [](const DatasetObject& self) {
            const std::string bytes = gaps_of(self.data);
            return nb::bytes(bytes.data(), bytes.size());
          },
          nb::sig("def _gaps(self) -> bytes"))
      .def("_at_gaps", &at_gaps, "gaps"_a, "step"_a,
           nb::sig("def _at_gaps(self, gaps: bytes, step: tuple[str, bytes]) -> Dataset"))
      .def("where", &where, "condition"_a, "first"_a = nb::none(), "last"_a = nb::none(),
           nb::sig("def where(self, condition: str, first: int | None = None, "
                   "last: int | None = None) -> Dataset"),
           "A view of the samples for which an SQL condition on the table samples is true, e.g. "
           "``ds.where(\"cls = 7 AND width >= 256\")``. first, last: only samples in [first, "
           "last). Raises InvalidArgument with SQLite's reason. Cost: about 0.3 us per sample.\n\n"
           ">>> sevens = ds.where(\"cls = 7\")\n"
           ">>> len(sevens), sevens[1].key\n"
           "(40, '000017')")
      .def("select", &select, "which"_a, "missing"_a = "error",
           nb::sig("def select(self, which: typing.Any, missing: str = 'error') -> Dataset"),
           "A view of the samples with these numbers or keys (any iterable), which are sorted in "
           "the order of the index. missing: \"error\", or \"skip\" to leave out unknown keys. "
           "Raises OutOfRange, NotFound; InvalidArgument if a sample is named twice.\n\n"
           ">>> [sample.key for sample in ds.select([9, 3])]\n"
           "['000003', '000009']")
      .def(
          "number_in_index",
          [](const DatasetObject& self, nb::handle number) {
            return self.data.number_in_index(sample_number(number, self.data));
          },
          "number"_a, nb::sig("def number_in_index(self, number: int) -> int"),
          "Number in the index of a sample of this dataset. Raises OutOfRange.")
      .def_prop_ro("shards", &shards, nb::sig("def shards(self) -> list[shardwise.records.Shard]"),
                   "The shards of the index, all of them even for a view.")
      .def_prop_ro(
          "shard_starts", [](const DatasetObject& self) { return self.data.shard_starts(); },
          "First sample number of each shard in this dataset, followed by the number of samples.")
      .def_prop_ro("info", &info, nb::sig("def info(self) -> shardwise.records.Info"),
                   "A summary of the index.")
      .def_prop_ro(
          "open_shards",
          [](const DatasetObject& self) { return self.data.pool_stats().open_shards; },
          "Number of shards that are open: mapped, or with access=\"read\" open files.")
      .def("__repr__", &shown_in_python)
      .def("__reduce_ex__", &reduce,
           nb::sig("def __reduce_ex__(self, protocol: typing.SupportsIndex, /) -> "
                   "tuple[typing.Any, ...]"))
      .def_prop_ro("_reference", &reference,
                   nb::sig("def _reference(self) -> tuple[typing.Any, ...]"))
      .def_prop_ro("_steps", [](const DatasetObject& self) { return self.steps; });
  add_joins(type);

  module.def("index_of", &index_of, "number"_a,
             nb::sig("def index_of(number: typing.SupportsIndex) -> int"),
             "The sample number as an int. Raises TypeError, even for a bool.");
}

}  // namespace shardwise::python
