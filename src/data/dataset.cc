#include "shardwise/data/dataset.h"

#include <algorithm>
#include <array>
#include <numeric>

#include "base/cancel_scope.h"
#include "base/counted.h"
#include "base/error_types.h"
#include "base/mapped_read.h"
#include "base/normal_path.h"
#include "base/spelling.h"
#include "base/text.h"
#include "base/url.h"
#include "data/checked_segments.h"
#include "data/dataset_access.h"
#include "data/dataset_impl.h"
#include "data/field_cursor.h"
#include "data/field_sizes.h"
#include "data/joins.h"
#include "data/sample_access.h"
#include "index/claimed_index.h"
#include "index/side_tables.h"

namespace shardwise {

namespace {

Index::Lookup lookup_of(const Dataset::Options& options) {
  return {.root = at_home(options.root), .accept_times = options.accept_times};
}

std::shared_ptr<const Index> usable(std::shared_ptr<const Index> index,
                                    const Dataset::Options& options) {
  const Index::Lookup asked = lookup_of(options), &found = index->lookup();
  if (asked != Index::Lookup() &&
      (asked.root != found.root || asked.accept_times != found.accept_times)) {
    throw InvalidArgument(
        "root or accept_times of the dataset differ from the opened index",
        in_quotes(index->path()),
        "give root and accept_times to Index::open (Index::Lookup), not to the dataset");
  }
  IndexAccess::require_records(*index);
  if (options.allow_part) return index;
  if (const auto part = index->summary().part) {
    throw InvalidArgument("the index is only part " + to_string(*part), in_quotes(index->path()),
                          "join all parts with " + spelled("`shardwise merge`") +
                              ", or accept this part alone (" +
                              spelled("Dataset::Options::allow_part") + ")");
  }
  return index;
}

/// Errors: NotFound; Unsupported without an index.
detail::MetadataColumn column_of(const Index& index, const std::string& name) {
  IndexAccess::require_records(index);
  if (const auto column = detail::find_metadata_column(index, name)) return *column;
  std::string names;
  for (const std::string& other : detail::metadata_columns(index)) {
    names += (names.empty() ? "" : ", ") + in_quotes(other);
  }
  throw NotFound("the index has no column " + in_quotes(name), in_quotes(index.path()),
                 names.empty() ? "build it with " + spelled("`shardwise index --column FIELD`") +
                                     ", or attach a table with " + spelled("`shardwise attach`")
                               : "its columns are " + names);
}

/// Returns the first joined dataset that has the metadata column. Returns null if the main dataset
/// has the column, or if no dataset has it.
const detail::JoinSide* side_of_column(const Dataset& data, const std::string& name) {
  if (detail::find_metadata_column(data.index(), name)) return nullptr;
  for (const auto& side : DatasetAccess::joins(data)) {
    const std::vector<std::string> names = detail::column_names(side->other);
    if (std::ranges::find(names, name) != names.end()) return side.get();
  }
  return nullptr;
}

/// The values of a metadata column. REQUIRES: `data` outlives this object.
/// Threads: one.
class ColumnValues {
 public:
  /// Errors: those of column_of().
  ColumnValues(const Dataset& data, const std::string& name)
      : data_(data), segments_(DatasetAccess::records(data)), side_(side_of_column(data, name)) {
    if (side_ != nullptr) {
      other_ = std::make_unique<ColumnValues>(side_->other, name);
    } else {
      column_ = column_of(data.index(), name);
      if (column_.table != nullptr) rows_.emplace(*column_.table);
    }
  }

  /// Errors: OutOfRange; CorruptIndex.
  [[nodiscard]] Query::Value of(std::uint64_t sample) {
    const std::uint64_t number = data_.number_in_index(sample);
    if (side_ != nullptr) {
      const auto match = side_->matches.of(number);
      return match ? other_->of(*match) : Query::Value();
    }
    const Index& index = data_.index();
    const std::uint64_t shard = index.shard_of(number);
    const auto in_shard = static_cast<std::uint32_t>(number - index.first_sample(shard));
    const SegmentView& segment = segments_->of(shard);
    return rows_ ? rows_->value(segment.key(in_shard), column_.place)
                 : segment.value(column_.place, in_shard);
  }

 private:
  const Dataset& data_;
  const std::shared_ptr<detail::CheckedSegments> segments_;
  const detail::JoinSide* const side_;  // null if the first dataset has the column
  std::unique_ptr<ColumnValues> other_;
  detail::MetadataColumn column_;
  std::optional<detail::SideRows> rows_;
};

}  // namespace

Dataset Dataset::open(const std::string& path) { return open(path, {}); }

Dataset Dataset::open(const std::string& path, const Options& options) {
  return open_sources({path}, options);
}

Dataset Dataset::open_sources(const std::vector<std::string>& sources, const Options& options) {
  Index::Lookup lookup = lookup_of(options);
  IndexCacheOptions how;
  const auto is_local_index = [](const std::string& source) {
    return !is_remote_url(source) && names_an_index(source);
  };
  if (!std::ranges::all_of(sources, is_local_index)) how = Impl::index_cache_of(options);
  how.on_sources = [&, before = std::move(how.on_sources)](const SourceList& list) {
    if (before) before(list);
    lookup.urls = list.shards;
  };
  const std::string index = index_for(sources, how);
  return Dataset(Index::open(index, lookup), options);
}

Dataset::Dataset(std::shared_ptr<const Index> index) : Dataset(std::move(index), Options{}) {}

Dataset::Dataset(std::shared_ptr<const Index> index, const Options& options)
    : Dataset(std::make_shared<Impl>(usable(std::move(index), options), options)) {}

Dataset::Dataset(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {
  if (!impl_->cache) return;
  Impl* const own = impl_.get();
  detail::CacheAccess::add_releaser(
      *own->cache, impl_,
      {.release = [own](const std::string& name) { return own->release(name); },
       .is_in_use = [own](const std::string& name) { return own->is_in_use(name); }});
}

std::uint64_t Dataset::size() const noexcept {
  return selection_ ? selection_->numbers.size() : impl_->index->size();
}

void Dataset::throw_out_of_range(std::uint64_t sample) const {
  throw OutOfRange("no such sample",
                   "sample " + std::to_string(sample) + " of " + (selection_ ? "a view of " : "") +
                       in_quotes(impl_->index->path()),
                   "choose a sample in [0, " + std::to_string(size()) + ")");
}

Sample Dataset::operator[](std::uint64_t index) const { return get(index, {}); }

inline Sample Dataset::get(std::uint64_t index, std::span<const std::string> in_parts) const {
  if (index >= size()) throw_out_of_range(index);
  if (!selection_ && !joins_) [[likely]]
    return sample_at(index, in_parts);
  const std::uint64_t number = selection_ ? selection_->numbers[index] : index;
  Sample sample = sample_at(number, in_parts);
  sample.index_ = index;
  if (joins_) joins_->add_to(sample, number);
  return sample;
}

std::optional<Sample> Dataset::try_get(std::uint64_t index) const {
  const std::uint64_t number = number_in_index(index);
  auto shard = impl_->pool.find(impl_->index->shard_of(number));
  if (!shard || shard->data == nullptr) return std::nullopt;
  std::optional<Sample> sample(Sample(std::move(shard), number));
  sample->index_ = index;
  if (joins_ && !joins_->try_add_to(*sample, number)) return std::nullopt;
  return sample;
}

/// Returns a sample of a shard that is being fetched and is not open yet; nullopt if the shard must
/// be opened as a whole.
std::optional<Sample> Dataset::early_sample(std::uint64_t number) const {
  const std::uint64_t shard_number = impl_->index->shard_of(number);
  auto shard = impl_->early.follow(shard_number, [&] { return impl_->next_use_of(shard_number); });
  if (!shard) return std::nullopt;
  std::optional<Sample> sample(Sample(std::move(shard), number));
  sample->own_ = impl_->early.bytes_of(shard_number, *sample->shard_, sample->local_);
  if (!sample->own_) return std::nullopt;
  return sample;
}

inline Sample Dataset::sample_at(std::uint64_t number,
                                 std::span<const std::string> in_parts) const {
  const std::uint64_t shard_number = impl_->index->shard_of(number);
  auto shard = impl_->pool.find(shard_number);
  if (shard && shard->data == nullptr) [[unlikely]] {
    impl_->reopen_if_cached(shard_number, shard);
  }
  if (!shard) [[unlikely]] {
    if (auto early = early_sample(number)) return *std::move(early);
    shard = impl_->pool.get(shard_number);
    impl_->early.forget(shard_number);
  }
  const bool is_mapped = shard->data != nullptr;
  Sample sample(std::move(shard), number);
  if (!is_mapped) [[unlikely]] {
    sample.own_ = is_fetched_url(sample.shard_->path)
                      ? impl_->ranges.read(sample, shard_number, in_parts)
                      : impl_->reader.read(sample, shard_number, in_parts);
  }
  return sample;
}

Sample Dataset::sample_without_joins(std::uint64_t number,
                                     std::span<const std::string> in_parts) const {
  return sample_at(number, in_parts);
}

Sample DatasetAccess::get(const Dataset& data, std::uint64_t sample,
                          std::span<const std::string> in_parts) {
  return data.get(sample, in_parts);
}

namespace {

/// Sorts sample numbers by shard. Each shard is then needed only once, and is checked for changes
/// once, after all copies from it.
class ByShard {
 public:
  ByShard(const Dataset& data, std::span<const std::uint64_t> given) : numbers_(given) {
    shards_.reserve(given.size());
    for (const std::uint64_t number : given) {
      shards_.push_back(data.index().shard_of(data.number_in_index(number)));
    }
    if (std::ranges::is_sorted(shards_)) return;
    places_.resize(given.size());
    std::iota(places_.begin(), places_.end(), std::size_t{0});
    std::ranges::stable_sort(places_, {}, [&](std::size_t place) { return shards_[place]; });
    for (const std::size_t place : places_) sorted_.push_back(given[place]);
    numbers_ = sorted_;
  }
  ByShard(const ByShard&) = delete;
  ByShard& operator=(const ByShard&) = delete;

  std::span<const std::uint64_t> numbers() const noexcept { return numbers_; }
  /// Returns the original position of the number that comes at this turn.
  std::size_t place(std::size_t turn) const noexcept {
    return places_.empty() ? turn : places_[turn];
  }
  bool is_last_of_shard(std::size_t turn) const noexcept {
    return turn + 1 == shards_.size() || shards_[place(turn)] != shards_[place(turn + 1)];
  }

 private:
  std::span<const std::uint64_t> numbers_;
  std::vector<std::uint64_t> shards_;  // shard of each number
  std::vector<std::size_t> places_;    // empty if the numbers are already grouped
  std::vector<std::uint64_t> sorted_;
};

/// Copies fields to `to`. Returns false if one cannot be copied, e.g. because its shard is not
/// open, or if a file was modified.
bool copy_open(const Dataset& data, std::span<const detail::FieldPlace> places,
               std::span<const std::int64_t> offsets, std::byte* to) {
  using detail::FieldCursor;
  FieldCursor cursor(data, {places}, FieldCursor::Opening::kOpenOnly);
  std::array<MappedCopy, FieldCursor::kMaxRun> copies;
  std::size_t row = 0;
  while (const std::size_t count = cursor.next_run()) {
    for (std::size_t i = 0; i < count; ++i) {
      const std::string_view field = cursor.fields(0)[i];
      copies[i] = {to + offsets[row + i], field.data(), field.size()};
    }
    if (!copy_mapped(std::span(copies.data(), count), Look::kOnceATick)) return false;
    row += count;
  }
  return row == places.size() && cursor.are_unchanged();
}

}  // namespace

detail::SampleRange Dataset::samples(std::span<const std::uint64_t> numbers) const {
  return {*this, numbers};
}

void Dataset::gather(std::span<const std::uint64_t> numbers, std::string_view field,
                     std::vector<std::int64_t>& offsets, std::vector<std::byte>& bytes) const {
  offsets.resize(numbers.size() + 1);
  gather(numbers, field, offsets, [&](std::size_t size_bytes) {
    bytes.resize(size_bytes);
    return bytes.data();
  });
}

void Dataset::gather(std::span<const std::uint64_t> numbers, std::string_view field,
                     std::span<std::int64_t> offsets,
                     const std::function<std::byte*(std::size_t)>& take_memory) const {
  if (offsets.size() != numbers.size() + 1) {
    throw InvalidArgument(
        "the number of offsets is wrong",
        counted(offsets.size(), "offset") + " for " + counted(numbers.size(), "sample"),
        "give one offset more than samples");
  }
  if (const detail::JoinSide* side = joins_ ? joins_->find_side(field) : nullptr) {
    const detail::JoinSide::Matched matched = side->matched(*this, numbers);
    for (std::size_t i = 0; i < numbers.size(); ++i) {
      if (i < matched.places.size() && matched.places[i] == i) continue;
      (*this)[numbers[i]].throw_missing(field);
    }
    return side->other.gather(matched.numbers, *side->original(field), offsets, take_memory);
  }
  const std::string name(field);
  if (!IndexAccess::has_records(*impl_->index)) {
    return gather_as_read(numbers, name, offsets, take_memory);
  }
  std::vector<detail::FieldPlace> places(numbers.size());
  detail::FieldSizes(*this).find(numbers, std::span(&name, 1), places);
  offsets[0] = 0;
  for (std::size_t i = 0; i < places.size(); ++i) {
    offsets[i + 1] = offsets[i] + static_cast<std::int64_t>(places[i].size_or_zero());
  }
  std::byte* const to = take_memory(static_cast<std::size_t>(offsets.back()));
  if (copy_open(*this, places, offsets, to)) return;
  const ByShard turns(*this, numbers);
  std::size_t first_missing = numbers.size();
  for (std::size_t turn = 0; const Sample& sample : samples(turns.numbers())) {
    const std::size_t i = turns.place(turn);
    const auto place = detail::SampleAccess::find(sample, std::span(&name, 1));
    if (!place) {
      first_missing = std::min(first_missing, i);
    } else if (first_missing == numbers.size()) {
      detail::SampleAccess::copy(sample, *place, {to + offsets[i], places[i].size_bytes});
      if (turns.is_last_of_shard(turn)) {
        detail::SampleAccess::require_unchanged(sample, *place);
      }
    }
    ++turn;
  }
  if (first_missing < numbers.size()) (*this)[numbers[first_missing]].throw_missing(field);
}

/// Used if sizes are unknown until the shards are read. Opens each shard once.
void Dataset::gather_as_read(std::span<const std::uint64_t> numbers, const std::string& field,
                             std::span<std::int64_t> offsets,
                             const std::function<std::byte*(std::size_t)>& take_memory) const {
  std::vector<std::byte> bytes;
  offsets[0] = 0;
  for (std::size_t i = 0; const Sample& sample : samples(numbers)) {
    const auto place = detail::SampleAccess::find(sample, std::span(&field, 1));
    if (!place) sample.throw_missing(field);
    const std::size_t size = sample.field(*place).bytes.size();
    bytes.resize(bytes.size() + size);
    detail::SampleAccess::copy_unchanged(sample, *place, std::span(bytes).last(size));
    offsets[++i] = static_cast<std::int64_t>(bytes.size());
  }
  std::byte* const to = take_memory(bytes.size());
  std::ranges::copy(bytes, to);
}

void Dataset::sizes(std::span<const std::uint64_t> numbers, std::string_view field,
                    std::span<std::uint64_t> sizes) const {
  if (sizes.size() != numbers.size()) {
    throw InvalidArgument(
        "the number of sizes is wrong",
        counted(sizes.size(), "size") + " for " + counted(numbers.size(), "sample"),
        "give one size per sample");
  }
  IndexAccess::require_records(*impl_->index);
  const std::string name(field);
  detail::FieldSizes(*this).of(numbers, std::span(&name, 1), sizes);
}

std::optional<Sample> Dataset::find(std::string_view key) const {
  const auto sample = number_of(key);
  if (!sample) return std::nullopt;
  return (*this)[*sample];
}

Sample Dataset::get(std::string_view key) const {
  if (auto sample = find(key)) return *std::move(sample);
  throw NotFound("no sample has the key " + in_quotes(key), in_quotes(impl_->index->path()),
                 spelled("`shardwise ls`") + " shows the keys");
}

Dataset Dataset::view_of(std::vector<std::uint64_t> numbers) const {
  Dataset view = *this;
  view.selection_ = std::make_shared<const Selection>(whole_fingerprint(), std::move(numbers));
  return view;
}

Dataset Dataset::where(std::string_view condition) const { return where(condition, 0, size()); }

Dataset Dataset::where(std::string_view condition, std::uint64_t first, std::uint64_t last) const {
  if (last > size()) throw_out_of_range(last - 1);
  if (first > last) {
    throw InvalidArgument("a range of samples ends before it begins",
                          std::to_string(first) + " to " + std::to_string(last),
                          "give the first sample, and one past the last");
  }
  if (selection_) {  // Convert to numbers of the index, from the range's first to its last sample.
    last = last > first ? selection_->numbers[last - 1] + 1 : 0;
    first = last > 0 ? selection_->numbers[first] : 0;
  }
  std::vector<std::uint64_t> numbers = select_samples(impl_->index, condition, first, last,
                                                      detail::CancelScope::joined(impl_->cancel));
  if (selection_) {
    std::erase_if(numbers, [&](std::uint64_t number) { return !selection_->find(number); });
  }
  return view_of(std::move(numbers));
}

Dataset Dataset::subset(std::vector<std::uint64_t> samples) const {
  std::sort(samples.begin(), samples.end());
  if (!samples.empty() && samples.back() >= size()) throw_out_of_range(samples.back());
  if (const auto twice = std::adjacent_find(samples.begin(), samples.end());
      twice != samples.end()) {
    throw InvalidArgument("a sample is named twice", "sample " + std::to_string(*twice),
                          "name each sample once");
  }
  if (selection_) {
    for (std::uint64_t& sample : samples) sample = selection_->numbers[sample];
  }
  return view_of(std::move(samples));
}

Dataset Dataset::subset(const std::vector<std::string>& keys) const {
  std::vector<std::uint64_t> samples;
  const std::string* missing = nullptr;
  std::size_t num_missing = 0;
  for (const std::string& key : keys) {
    if (const auto sample = number_of(key)) {
      samples.push_back(*sample);
    } else {
      if (num_missing++ == 0) missing = &key;
    }
  }
  if (num_missing > 0) {
    throw NotFound("no sample has the key " + in_quotes(*missing) +
                       (num_missing == 1
                            ? ""
                            : " (" + human_count(num_missing) + " of the given keys are missing)"),
                   in_quotes(impl_->index->path()), spelled("`shardwise ls`") + " shows the keys");
  }
  return subset(std::move(samples));
}

std::optional<std::uint64_t> Dataset::number_of(std::string_view key) const {
  if (!selection_) return impl_->index->find(key);
  for (const std::uint64_t number : impl_->index->find_all(key)) {
    if (const auto index = selection_->find(number)) return index;
  }
  return std::nullopt;
}

std::uint64_t Dataset::number_in_index(std::uint64_t sample) const {
  if (sample >= size()) throw_out_of_range(sample);
  return selection_ ? selection_->numbers[sample] : sample;
}

std::vector<std::uint64_t> Dataset::shard_starts() const {
  std::vector<std::uint64_t> starts = impl_->index->shard_starts();
  if (!selection_) return starts;
  const std::vector<std::uint64_t>& numbers = selection_->numbers;
  for (std::uint64_t& start : starts) {
    start = static_cast<std::uint64_t>(std::lower_bound(numbers.begin(), numbers.end(), start) -
                                       numbers.begin());
  }
  return starts;
}

std::vector<double> Dataset::numbers(const std::string& column) const {
  ColumnValues values(*this, column);
  std::vector<double> numbers(size());
  for (std::uint64_t sample = 0; sample < numbers.size(); ++sample) {
    const Query::Value value = values.of(sample);
    if (value.type == Query::Value::Type::kInteger) {
      numbers[sample] = static_cast<double>(value.integer);
    } else if (value.type == Query::Value::Type::kReal) {
      numbers[sample] = value.real;
    } else {
      throw InvalidArgument("a value of the column is not a number",
                            "column " + in_quotes(column) + ", sample " + std::to_string(sample) +
                                (value.type == Query::Value::Type::kNull ? " (NULL)" : ""),
                            "correct the value, leave the sample out by a condition, or choose "
                            "another column");
    }
  }
  return numbers;
}

std::vector<Query::Value> Dataset::values(const std::string& column,
                                          std::span<const std::uint64_t> samples) const {
  ColumnValues values(*this, column);
  std::vector<Query::Value> found;
  found.reserve(samples.size());
  for (const std::uint64_t sample : samples) found.push_back(values.of(sample));
  return found;
}

std::function<std::uint64_t(std::uint64_t)> Dataset::sample_bytes() const {
  std::vector<std::function<std::uint64_t(std::uint64_t)>> others;
  for (const auto& side : DatasetAccess::joins(*this)) {
    others.emplace_back([side, bytes = side->other.sample_bytes()](std::uint64_t number) {
      const auto match = side->matches.of(number);
      return match ? bytes(*match) : 0;
    });
  }
  return [segments = impl_->records(), others = std::move(others),
          view = *this](std::uint64_t sample) -> std::uint64_t {
    const std::uint64_t number = view.number_in_index(sample);
    const Index& index = segments->index();
    const std::uint64_t shard = index.shard_of(number);
    std::uint64_t bytes = 0;
    for (const MemberRecord& member : segments->of(shard).members(
             static_cast<std::uint32_t>(number - index.first_sample(shard)))) {
      bytes += member.size_bytes;
    }
    for (const auto& other : others) bytes += other(number);
    return bytes;
  };
}

const Index& Dataset::index() const noexcept { return *impl_->index; }
const std::shared_ptr<const Index>& Dataset::shared_index() const noexcept { return impl_->index; }
const Hash128& Dataset::fingerprint() const noexcept {
  return selection_ ? selection_->fingerprint : whole_fingerprint();
}
const Hash128& Dataset::whole_fingerprint() const noexcept {
  return joins_ ? joins_->fingerprint : impl_->index->fingerprint();
}
Dataset::PoolStats Dataset::pool_stats() const {
  const ShardPoolStats stats = impl_->pool.stats();
  return {stats.opened, stats.evicted, stats.open_shards, stats.open_bytes};
}
const std::shared_ptr<ShardCache>& Dataset::cache() const noexcept { return impl_->cache; }

std::span<const std::shared_ptr<const detail::JoinSide>> detail::DatasetAccess::joins(
    const Dataset& data) noexcept {
  if (!data.joins_) return {};
  return data.joins_->sides;
}

const Hash128& detail::DatasetAccess::whole_fingerprint(const Dataset& data) noexcept {
  return data.whole_fingerprint();
}

bool detail::DatasetAccess::has(const Dataset& data, std::uint64_t number_in_index) noexcept {
  return !data.selection_ || data.selection_->find(number_in_index);
}

bool detail::DatasetAccess::has_cache(const Dataset& data) noexcept {
  if (data.cache()) return true;
  return std::ranges::any_of(joins(data), [](const auto& side) { return has_cache(side->other); });
}

std::optional<std::uint64_t> detail::DatasetAccess::number_of(const Dataset& data,
                                                              std::string_view key) {
  return data.number_of(key);
}

std::shared_ptr<detail::CheckedSegments> detail::DatasetAccess::records(const Dataset& data) {
  return data.impl_->records();
}

std::optional<CacheRequest> detail::DatasetAccess::cache_request(const Dataset& data,
                                                                 std::uint64_t shard) {
  return data.impl_->cache_request(shard);
}

bool detail::DatasetAccess::reads_ranges(const Dataset& data) {
  if (data.impl_->access == Dataset::Access::kRange && data.index().num_shards() > 0 &&
      data.impl_->is_ranged(0)) {
    return true;
  }
  return std::ranges::any_of(joins(data),
                             [](const auto& side) { return reads_ranges(side->other); });
}

bool detail::DatasetAccess::close_shard(const Dataset& data, std::uint64_t shard) {
  const Index& index = data.index();
  if (shard >= index.num_shards()) {
    throw OutOfRange("no such shard",
                     "shard " + std::to_string(shard) + " of " + in_quotes(index.path()),
                     "choose a shard in [0, " + std::to_string(index.num_shards()) + ")");
  }
  return data.impl_->pool.close(shard);
}

}  // namespace shardwise
