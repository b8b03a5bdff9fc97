#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <functional>
#include <limits>
#include <new>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "blocking.h"
#include "data/sample_access.h"
#include "errors.h"
#include "field_names.h"
#include "gil.h"
#include "ingest/remote_shards.h"
#include "objects.h"
#include "sample_numbers.h"
#include "shardwise/base/error.h"
#include "shardwise/data/make_remote_access.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace shardwise::python {

namespace {

/// Delivers the samples of a list of shards as shardwise.wids does: as dicts of BytesIO, with the
/// extra entries of wids. To count misses, it simulates wids' cache, which has `capacity` shards.
struct WidsReader {
  /// One shard of the list. The list may state fewer or more samples than the shard has.
  struct Shard {
    std::uint64_t first_in_data;
    std::uint64_t num_in_data;
    nb::object url;
    nb::object dataset_name;
  };

  struct Name {
    std::string name;
    PyObject* dotted = nullptr;
  };

  nb::object dataset;  // a shardwise.Dataset
  nb::object sample_type;
  nb::object bytes_io;
  nb::object stream_type;           // class of the streams of large fields
  std::vector<std::uint64_t> ends;  ///< end of each shard, in sample numbers of the list
  std::vector<Shard> shards;

  nb::ft_mutex mutex;  // guards the members below
  std::array<Name, 64> recent_names;
  std::uint64_t capacity = 0;
  std::uint64_t accesses = 0;
  std::uint64_t misses = 0;
  std::uint64_t num_recent = 0;
  std::vector<std::uint64_t> last_use;  ///< per shard, the number of its last access; 0 if not
                                        ///< cached

  [[nodiscard]] std::uint64_t size() const noexcept { return ends.empty() ? 0 : ends.back(); }
  void touch(std::size_t shard);
};

WidsReader& held_by(PyObject* self) { return held_in<WidsReader>(self); }

/// Evicts the least recently used shard from the simulated cache.
void evict_oldest(WidsReader& reader) {
  std::uint64_t* oldest = nullptr;
  for (std::uint64_t& use : reader.last_use) {
    if (use != 0 && (oldest == nullptr || use < *oldest)) oldest = &use;
  }
  if (oldest != nullptr) *oldest = 0;
  --reader.num_recent;
}

void WidsReader::touch(std::size_t shard) {
  const nb::ft_lock_guard lock(mutex);
  ++accesses;
  if (last_use[shard] == 0) {
    ++misses;
    if (capacity == 0) return;
    if (num_recent == capacity) evict_oldest(*this);
    ++num_recent;
  }
  last_use[shard] = accesses;
}

/// A sample's shard and its number there, by the list.
struct Place {
  std::uint64_t number;
  std::size_t shard;
  std::uint64_t in_shard;
};

Place place_of(const WidsReader& reader, PyObject* key) {
  const Py_ssize_t asked = index_of(key);
  const auto number = static_cast<std::uint64_t>(asked) + (asked < 0 ? reader.size() : 0);
  if (number >= reader.size()) {
    throw Error(ErrorCode::kOutOfRange, "no such sample", "sample " + std::to_string(asked),
                "the dataset has " + std::to_string(reader.size()) +
                    " samples, numbered from 0; give a "
                    "smaller number");
  }
  const auto end = std::upper_bound(reader.ends.begin(), reader.ends.end(), number);
  const auto shard = static_cast<std::size_t>(end - reader.ends.begin());
  return {number, shard, number - (shard == 0 ? 0 : reader.ends[shard - 1])};
}

/// Returns the sample's number in the dataset.
std::uint64_t number_in_data(const WidsReader& reader, const Place& place) {
  const WidsReader::Shard& shard = reader.shards[place.shard];
  if (place.in_shard >= shard.num_in_data) {
    throw Error(ErrorCode::kMismatch, "a shard has fewer samples than its nsamples",
                "sample " + std::to_string(place.in_shard) + " of " +
                    nb::cast<std::string>(nb::repr(shard.url)) + ", which has " +
                    std::to_string(shard.num_in_data),
                "correct nsamples in the descriptor, or restore the shard");
  }
  return shard.first_in_data + place.in_shard;
}

/// Returns a field's name with a leading dot, as an interned str that is never freed, since a data
/// set has few names. A borrowed reference; null with Python's error set.
PyObject* dotted_name(WidsReader& reader, std::string_view name) {
  const nb::ft_lock_guard lock(reader.mutex);
  const std::size_t hash = std::hash<std::string_view>()(name);
  WidsReader::Name& recent = reader.recent_names[hash % reader.recent_names.size()];
  if (recent.dotted != nullptr && recent.name == name) return recent.dotted;
  PyObject* made = new_name("." + std::string(name));
  if (made == nullptr) return nullptr;
  PyUnicode_InternInPlace(&made);
  recent = {std::string(name), made};
  return made;
}

/// The names of the extra entries of every sample, and of the attributes of large streams.
struct ExtraNames {
  PyObject* key = PyUnicode_InternFromString("__key__");
  PyObject* dataset = PyUnicode_InternFromString("__dataset__");
  PyObject* index = PyUnicode_InternFromString("__index__");
  PyObject* shard = PyUnicode_InternFromString("__shard__");
  PyObject* shard_index = PyUnicode_InternFromString("__shardindex__");
  PyObject* held_sample = PyUnicode_InternFromString("_sample");
  PyObject* held_place = PyUnicode_InternFromString("_place");
};

const ExtraNames& extra_names() {
  static const auto* const names = new ExtraNames;  // never freed: Python has ended before static
                                                    // objects are destroyed
  return *names;
}

nb::object checked(PyObject* made) {
  if (made == nullptr) nb::raise_python_error();
  return nb::steal(made);
}

void set(const nb::object& dict, PyObject* name, const nb::object& value) {
  if (PyDict_SetItem(dict.ptr(), name, value.ptr()) != 0) nb::raise_python_error();
}

/// Before a copy, prefetches each page's address translation and first bytes.
void prefetch_pages(std::string_view bytes) {
  constexpr std::size_t kPage = 4096;
  for (std::size_t at = 0; at < bytes.size(); at += kPage) __builtin_prefetch(bytes.data() + at);
}

/// Copies a field. If the file is truncated meanwhile, this throws and the process continues.
nb::object copied(const Sample& sample, std::size_t i) {
  const std::string_view bytes = sample.field(i).bytes;
  prefetch_pages(bytes);
  nb::object copy =
      checked(PyBytes_FromStringAndSize(nullptr, static_cast<Py_ssize_t>(bytes.size())));
  auto* to = reinterpret_cast<std::byte*>(PyBytes_AsString(copy.ptr()));
  constexpr std::size_t kLong = std::size_t{1} << 18;  // in bytes; more is copied without the GIL
  if (bytes.size() < kLong) {
    detail::SampleAccess::copy(sample, i, {to, bytes.size()});
  } else {
    const GilReleased released;
    detail::SampleAccess::copy(sample, i, {to, bytes.size()});
  }
  return copy;
}

/// Returns the bytes of a large stream.
nb::object copy_field(const SampleObject& held, std::uint64_t place) {
  if (place >= held.sample.num_fields()) {
    throw Error(ErrorCode::kOutOfRange, "the sample has no such field",
                "field " + std::to_string(place), held.sample.describe());
  }
  return copied(held.sample, static_cast<std::size_t>(place));
}

/// Fields from this size on are copied only when the program reads them. Making such a stream takes
/// as long as copying a few KB.
constexpr std::size_t kLargeBytes = std::size_t{1} << 14;

nb::object small_stream(const WidsReader& reader, const Sample& sample, std::size_t i) {
  const nb::object bytes = copied(sample, i);
  // No copy: BytesIO shares a bytes object that it gets as a whole.
  return checked(PyObject_CallFunctionObjArgs(reader.bytes_io.ptr(), bytes.ptr(), nullptr));
}

/// @param held  the sample as a Python object.
nb::object large_stream(const WidsReader& reader, std::size_t place, const nb::object& held) {
  nb::object stream = checked(PyObject_CallFunctionObjArgs(reader.stream_type.ptr(), nullptr));
  const nb::object number = checked(PyLong_FromSize_t(place));
  const ExtraNames& names = extra_names();
  if (PyObject_SetAttr(stream.ptr(), names.held_place, number.ptr()) != 0 ||
      PyObject_SetAttr(stream.ptr(), names.held_sample, held.ptr()) != 0) {
    nb::raise_python_error();
  }
  return stream;
}

void set_fields(WidsReader& reader, const Sample& sample, const nb::object& dict) {
  nb::object held;
  for (std::size_t i = 0; i < sample.num_fields(); ++i) {
    const Sample::Field field = sample.field(i);
    PyObject* name = dotted_name(reader, field.name);
    if (name == nullptr) nb::raise_python_error();
    if (field.bytes.size() < kLargeBytes) {
      set(dict, name, small_stream(reader, sample, i));
      continue;
    }
    if (!held.is_valid()) held = checked(new_sample(Sample(sample), reader.dataset.ptr()));
    set(dict, name, large_stream(reader, i, held));
  }
}

PyObject* get_item(PyObject* self, PyObject* key) noexcept {
  return guarded(
      [&]() -> PyObject* {
        WidsReader& reader = held_by(self);
        const Place place = place_of(reader, key);
        const Sample sample =
            sample_at(dataset_object_of(reader.dataset), number_in_data(reader, place));
        reader.touch(place.shard);
        const WidsReader::Shard& shard = reader.shards[place.shard];
        nb::object dict = checked(PyObject_CallFunctionObjArgs(reader.sample_type.ptr(), nullptr));
        set_fields(reader, sample, dict);
        const ExtraNames& names = extra_names();
        set(dict, names.key, checked(new_name(sample.key())));
        set(dict, names.dataset, shard.dataset_name);
        set(dict, names.index, checked(PyLong_FromUnsignedLongLong(place.number)));
        set(dict, names.shard, shard.url);
        set(dict, names.shard_index, checked(PyLong_FromUnsignedLongLong(place.in_shard)));
        return dict.release().ptr();
      },
      static_cast<PyObject*>(nullptr));
}

Py_ssize_t length(PyObject* self) noexcept {
  return guarded([&] { return static_cast<Py_ssize_t>(held_by(self).size()); }, Py_ssize_t{-1});
}

PyType_Slot slots[] = {
    {Py_mp_subscript, reinterpret_cast<void*>(get_item)},
    {Py_mp_length, reinterpret_cast<void*>(length)},
    {0, nullptr},
};

void make(WidsReader* self, nb::object dataset, nb::object sample_type, nb::object stream_type,
          const nb::list& shards, std::uint64_t capacity) {
  new (self) WidsReader;
  self->dataset = std::move(dataset);
  self->sample_type = std::move(sample_type);
  self->stream_type = std::move(stream_type);
  self->bytes_io = nb::module_::import_("io").attr("BytesIO");
  self->capacity = capacity;
  for (const nb::handle shard : shards) {
    const auto size = nb::cast<std::uint64_t>(shard[0]);
    if (size > std::numeric_limits<std::int64_t>::max() - self->size()) {
      throw InvalidArgument("the counts of samples add up to more than 2^63", "nsamples",
                            "correct nsamples in the descriptor");
    }
    self->ends.push_back(self->size() + size);
    self->shards.push_back(
        {nb::cast<std::uint64_t>(shard[1]), nb::cast<std::uint64_t>(shard[2]), shard[3], shard[4]});
  }
  self->last_use.resize(self->shards.size());
}

std::vector<std::uint64_t> recent(WidsReader& self) {
  const nb::ft_lock_guard lock(self.mutex);
  std::vector<std::uint64_t> held;
  for (std::size_t i = 0; i < self.last_use.size(); ++i) {
    if (self.last_use[i] != 0) held.push_back(i);
  }
  std::sort(held.begin(), held.end(),
            [&](auto a, auto b) { return self.last_use[a] < self.last_use[b]; });
  return held;
}

void clear(WidsReader& self) {
  const nb::ft_lock_guard lock(self.mutex);
  std::fill(self.last_use.begin(), self.last_use.end(), 0);
  self.num_recent = 0;
}

/// Reads a whole remote file, for descriptors.
nb::bytes read_remote(const std::string& url, std::uint64_t max_bytes) {
  const std::string bytes = without_gil([&](const CancelToken& cancel) {
    const auto remote = make_remote_access(nullptr, nullptr, cancel);
    std::string read;
    remote->read(url, remote->state(url), 0, std::nullopt, [&](std::string_view piece) {
      if (piece.size() > max_bytes - read.size()) {
        throw InvalidArgument("the file is larger than the limit for descriptors",
                              std::to_string(max_bytes) + " bytes",
                              "check that the URL names a wids descriptor");
      }
      read += piece;
    });
    return read;
  });
  return nb::bytes(bytes.data(), bytes.size());
}

}  // namespace

void add_wids_samples(nb::module_& module) {
  nb::class_<WidsReader>(
      module, "WidsReader", nb::type_slots(slots), nb::is_final(),
      "Implements ShardListDataset of shardwise.wids: ``reader[i]`` is sample i of a list of "
      "shards, as a dict of BytesIO with the extras of wids. Threads: any.")
      .def("__init__", &make, "dataset"_a, "sample_type"_a, "stream_type"_a, "shards"_a,
           "capacity"_a,
           nb::sig("def __init__(self, dataset: Dataset, sample_type: type[dict[str, typing.Any]], "
                   "stream_type: type[typing.Any], shards: list[tuple[int, int, int, str, str | "
                   "None]], capacity: int) -> None"),
           "stream_type: the type of large fields, whose objects get the attributes _sample and "
           "_place. shards: for each shard, its samples in the list, its first sample and its "
           "samples in the dataset, its URL, and the name of its data set.")
      .def("recent", &recent,
           "Numbers of the shards used last, the latest at the end; at most ``capacity``.")
      .def_ro("accesses", &WidsReader::accesses)
      .def_ro("misses", &WidsReader::misses)
      .def_ro("capacity", &WidsReader::capacity)
      .def("clear", &clear, "Forgets which shards were used.");
  module.def("copy_field", &copy_field, "sample"_a, "place"_a,
             nb::sig("def copy_field(sample: Sample, place: int) -> bytes"),
             "A copy of the field at this place of a sample. Raises StaleIndex or OSError if its "
             "shard was truncated.");
  module.def("read_remote", &read_remote, "url"_a, "max_bytes"_a,
             nb::sig("def read_remote(url: str, max_bytes: int) -> bytes"),
             "The whole of a remote file. Raises InvalidArgument if it is larger; NotFound, "
             "FetchError.");
}

}  // namespace shardwise::python
