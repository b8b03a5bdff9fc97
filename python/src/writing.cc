#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/fork.h"
#include "blocking.h"
#include "buffer.h"
#include "field_names.h"
#include "gil.h"
#include "objects.h"
#include "shardwise/base/error.h"
#include "shardwise/tar/shard_writer.h"
#include "tar/pack_source.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace shardwise::python {

namespace {

/// The contents of a `shardwise._core.ShardWriter`.
/// Threads: any.
class WriterObject {
  template <class Action>
  auto read(Action action) {
    // A forked child has one thread.
    if (process_ != detail::process_generation()) return action();
    const GilReleased released;
    const detail::Lock lock(mutex_);
    return action();
  }
  template <class Action>
  void change(Action action) {
    if (process_ != detail::process_generation()) {
      throw Error(ErrorCode::kUnsupported, "a writer cannot be used in a forked child", "",
                  "make another writer in the child, with other names");
    }
    read(action);
  }

 public:
  WriterObject(const std::string& pattern, const ShardWriter::Options& options)
      : writer_(pattern, options) {}

  /// Writes a sample. Releases the GIL meanwhile. REQUIRES: the GIL. Errors: Unsupported in a
  /// forked child.
  void write(std::string_view key, std::span<const ShardWriter::Field> fields) {
    change([&] {
      const std::size_t finished = writer_.paths().size();
      const std::uint64_t before = writer_.totals().samples;
      writer_.write(key, fields);
      if (writer_.paths().size() != finished) num_in_shards_ = before;
    });
  }
  void close() {
    change([&] {
      writer_.close();
      num_in_shards_ = writer_.totals().samples;
    });
  }
  std::vector<std::string> paths() {
    return read([&] { return writer_.paths(); });
  }
  std::uint64_t num_samples() {
    return read([&] { return writer_.totals().samples; });
  }
  std::uint64_t num_unfinished() {
    return read([&] { return writer_.totals().samples - num_in_shards_; });
  }

 private:
  const std::uint64_t process_ = detail::process_generation();
  detail::LongMutex mutex_;
  ShardWriter writer_;
  std::uint64_t num_in_shards_ = 0;  ///< number of samples in finished shards
};

std::string text_of(nb::handle name) {
  const NameBytes bytes(name.ptr());
  if (!bytes.is_valid()) nb::raise_python_error();
  return std::string(bytes.view());
}

void write(WriterObject& self, nb::str key, const nb::dict& fields) {
  const std::string name = text_of(key);
  std::vector<std::unique_ptr<Buffer>> held;
  std::vector<ShardWriter::Field> written;
  for (const auto& [field, data] : fields) {
    held.push_back(std::make_unique<Buffer>(data));
    written.push_back({.name = text_of(field), .bytes = held.back()->bytes()});
  }
  self.write(name, written);
}

/// Returns the samples to pack as (key, [(field, path), ...], class or None), the names of the
/// classes, and the paths of files that belong to no sample.
nb::tuple list_to_pack(const std::string& directory, bool images) {
  const detail::PackList list = without_gil([&](const CancelToken& cancel) {
    return images ? detail::list_images(directory, cancel) : detail::list_files(directory, cancel);
  });
  nb::list samples;
  for (const detail::PackSample& sample : list.samples) {
    nb::list files;
    for (const detail::PackFile& file : sample.files) {
      files.append(nb::make_tuple(name_object(file.field), name_object(file.path)));
    }
    samples.append(nb::make_tuple(
        name_object(sample.key), files,
        sample.class_number ? nb::object(nb::int_(*sample.class_number)) : nb::none()));
  }
  nb::list classes;
  for (const std::string& found : list.classes) classes.append(name_object(found));
  nb::list left_out;
  for (const std::string& path : list.left_out) left_out.append(name_object(path));
  return nb::make_tuple(samples, classes, left_out);
}

nb::list shuffled(nb::list samples, std::uint64_t seed) {
  std::vector<detail::PackSample> places(nb::len(samples));
  for (std::size_t i = 0; i < places.size(); ++i) places[i].class_number = i;
  detail::shuffle_samples(places, seed);
  nb::list mixed;
  for (const detail::PackSample& place : places) mixed.append(samples[*place.class_number]);
  return mixed;
}

}  // namespace

void add_writing(nb::module_& module) {
  nb::class_<WriterObject>(module, "ShardWriter", nb::is_final(),
                           "Implements shardwise.ShardWriter.")
      .def(
          "__init__",
          [](WriterObject* self, const std::string& pattern, std::uint64_t max_samples,
             std::uint64_t max_bytes, bool replace, std::uint64_t first) {
            new (self) WriterObject(pattern, {.max_samples = max_samples,
                                              .max_bytes = max_bytes,
                                              .replace = replace,
                                              .first = first});
          },
          "pattern"_a, nb::kw_only(), "max_samples"_a, "max_bytes"_a, "replace"_a, "first"_a = 0)
      .def("write", &write, "key"_a, "fields"_a,
           nb::sig("def write(self, key: str, fields: dict[str, typing.Any]) -> None"),
           "Writes one sample of bytes by field.")
      .def("close", &WriterObject::close, "Finishes the last shard.")
      .def_prop_ro("paths", &WriterObject::paths, "Paths of the finished shards.")
      .def_prop_ro("num_samples", &WriterObject::num_samples, "Samples written so far.")
      .def_prop_ro("num_unfinished", &WriterObject::num_unfinished,
                   "Samples written to the unfinished shard.");
  module.def("list_to_pack", &list_to_pack, "directory"_a, "images"_a,
             nb::sig("def list_to_pack(directory: str, images: bool) -> "
                     "tuple[list[tuple[str, list[tuple[str, str]], int | None]], list[str], "
                     "list[str]]"),
             "The samples of shardwise.pack(): names, fields and files.");
  module.def("shuffled", &shuffled, "samples"_a, "seed"_a,
             nb::sig("def shuffled(samples: list[typing.Any], seed: int) -> list[typing.Any]"),
             "The samples in the order of `shardwise pack --shuffle`.");
}

}  // namespace shardwise::python
