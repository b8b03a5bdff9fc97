#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "base/error_types.h"
#include "base/hasher.h"
#include "base/text.h"
#include "blocking.h"
#include "data/dataset_access.h"
#include "data/joins.h"
#include "field_names.h"
#include "objects.h"
#include "shardwise/data/dataset.h"
#include "shardwise/index/index.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace shardwise::python {
namespace {

nb::object join(const DatasetObject& self, nb::handle_t<DatasetObject> other, const std::string& on,
                const std::string& how, const std::string& suffix) {
  if (on != "key") {
    throw InvalidArgument("an option is not valid", "on=" + in_quotes(on),
                          "datasets are joined by key: choose \"key\"; to add columns of a table, "
                          "use shardwise.attach()");
  }
  const Dataset::JoinOptions options{.how = parse_join(how), .suffix = suffix};
  const Dataset& right = dataset_of(other);
  Dataset joined = without_gil([&](const CancelToken&) { return self.data.join(right, options); });
  return dataset_after(self, std::move(joined), nb::make_tuple("join", other, how, suffix));
}

nb::object join_report(const DatasetObject& self) {
  const std::optional<Dataset::JoinReport> report = self.data.join_report();
  if (!report) return nb::none();
  const auto key = [](std::uint64_t count, const std::string& name) -> nb::object {
    return count == 0 ? nb::none() : nb::object(name_object(name));
  };
  return nb::module_::import_("shardwise.records")
      .attr("JoinReport")(
          report->num_samples, report->num_samples_without_match, report->num_other_samples,
          report->num_other_samples_without_match,
          key(report->num_samples_without_match, report->first_sample_without_match),
          key(report->num_other_samples_without_match, report->first_other_sample_without_match));
}

nb::list fields(const DatasetObject& self) {
  nb::list names;
  for (const std::string& field : detail::field_names(self.data)) names.append(name_object(field));
  return names;
}

/// Each text is followed by its length, so that different lists of texts give different bytes.
void add_version(const Dataset& data, detail::Hasher128& hash) {
  const Index& index = data.index();
  const auto add_text = [&](std::string_view text) {
    hash.update(text);
    hash.update_u64(text.size());
  };
  for (const Index::Column& column : index.content().columns) add_text(to_string(column));
  for (std::uint64_t i = 0; i < index.num_shards(); ++i) {
    const Index::Shard shard = index.shard(i);
    hash.update_u64(shard.size_bytes);
    hash.update_u64(shard.any_time ? 0 : static_cast<std::uint64_t>(shard.mtime_ns));
    add_text(shard.validator);
    add_text(shard.content_hash ? to_string(*shard.content_hash) : "");
    hash.update_u64(shard.segment_checksum);
  }
  for (const SideTable& table : index.side_tables()) hash.update_u64(table.checksum);
  for (const auto& side : detail::DatasetAccess::joins(data)) {
    add_text("join");
    add_version(side->other, hash);
  }
}

std::string version(const DatasetObject& self) {
  detail::Hasher128 hash;
  add_version(self.data, hash);
  return to_string(hash.digest());
}

}  // namespace

void add_joins(nb::class_<DatasetObject>& type) {
  type.def("join", &join, "other"_a, nb::kw_only(), "on"_a = "key", "how"_a = "inner",
           "suffix"_a = "",
           nb::sig("def join(self, other: Dataset, *, on: str = 'key', how: str = 'inner', "
                   "suffix: str = '') -> Dataset"),
           "A dataset whose samples have the fields of this dataset and those of the sample of "
           "``other`` with the same key, e.g. captions in other shards. A join copies no bytes. It "
           "has the numbering, shards and cache of this dataset; ``other`` keeps its own cache. "
           "where() knows the columns of this dataset. To select by columns of ``other``, join a "
           "view of it.\n\n"
           "how: \"inner\" drops samples without a match. \"left\" keeps them; they lack the "
           "fields of ``other``. suffix: renames fields of ``other`` that this dataset also has: "
           "with \"mask\", png becomes mask.png. Without it, such a field is an error. on: only "
           "\"key\".\n\n"
           "Keys may repeat in this dataset, but not in ``other``. The fingerprint depends on both "
           "datasets. Pickled, the join is computed again where it arrives, once per process.\n\n"
           "Cost: O(samples of both), and 4 bytes per sample of this dataset.\n"
           "Errors: InvalidArgument for a repeated key or field; Unsupported without an index.\n\n"
           ">>> again = shardwise.open(\"other.idx\")\n"
           ">>> ds.join(again, suffix=\"b\")[42].keys()\n"
           "['jpg', 'cls', 'txt', 'b.jpg', 'b.cls', 'b.txt']")
      .def_prop_ro("join_report", &join_report,
                   nb::sig("def join_report(self) -> shardwise.records.JoinReport | None"),
                   "The numbers of samples that the last join() matched; None if it is not a join.")
      .def_prop_ro("fields", &fields, nb::sig("def fields(self) -> list[str]"),
                   "Names of the fields that samples may have; in a join, of all its datasets.")
      .def_prop_ro(
          "version", &version,
          "Identifies the exact content of the index: 32 hexadecimal digits over each "
          "shard's size, time (unless accept_times) or server version, samples and "
          "metadata, and over its side tables. In a join, it covers all datasets. An edited "
          "shard that is indexed again gives another version, possibly with the same "
          "fingerprint.");
}

}  // namespace shardwise::python
