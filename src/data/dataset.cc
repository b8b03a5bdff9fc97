#include "shardwise/data/dataset.h"

#include <algorithm>
#include <atomic>
#include <mutex>
#include <unordered_map>

#include "base/fork.h"
#include "base/hasher.h"
#include "base/text.h"
#include "data/open_shard.h"
#include "data/shard_future.h"
#include "data/shard_reader.h"
#include "index/offset_table.h"
#include "shardwise/base/error.h"
#include "shardwise/base/hash.h"
#include "shardwise/data/remote_access.h"
#include "shardwise/index/query.h"
#include "storage/cache_request.h"
#include "storage/shard_pool.h"

namespace shardwise {

Access parse_access(std::string_view name) {
  if (name == "map") return Access::kMap;
  if (name == "read") return Access::kRead;
  if (name == "range") return Access::kRange;
  throw InvalidArgument("no such access", in_quotes(name), "choose map, read or range");
}

struct Dataset::Impl {
  Impl(std::shared_ptr<const Index> opened, const DatasetOptions& options)
      : index(std::move(opened)),
        access(options.access),
        cache(options.cache),
        cancel(options.cancel),
        reader(index, options.max_open_shards, fetchers_of(options), options.cancel),
        pool(
            index->num_shards(),
            [this](std::uint64_t number) {
              return reader.with_descriptor([&] { return open(number); });
            },
            pool_options(options)) {}

  static std::shared_ptr<const Fetchers> fetchers_of(const DatasetOptions& options) {
    if (options.fetchers || !options.cache) return options.fetchers;
    return options.cache->options().fetchers;
  }

  static ShardPoolOptions pool_options(const DatasetOptions& options) {
    ShardPoolOptions pool{.max_shards = options.max_open_shards,
                          .max_bytes = options.max_mapped_bytes};
    if (options.cache) {
      pool.max_bytes = std::min(pool.max_bytes, options.cache->options().budget_bytes / 2);
    }
    return pool;
  }

  std::unique_ptr<const detail::OpenShard> open(std::uint64_t number) {
    detail::ShardOpening how{
        .access = access,
        .cache = cache,
        .next_use = nullptr,
        .cancel = cancel,
        .require_first_block = [this](const ShardInfo& info) { reader.require_first_block(info); }};
    if (cache) {
      if (const auto known = current_future()) {
        how.next_use = [known, number](const std::string& name) {
          return known->next_use_for(number, name);
        };
      }
    }
    auto shard = detail::open_shard(index, number, how);
    if (shard->cached.is_held()) {
      const std::lock_guard lock(mutex);
      cached[shard->cached.name()] = number;
    }
    return shard;
  }

  std::shared_ptr<const detail::ShardFuture> current_future() const {
    const std::lock_guard lock(mutex);
    return future;
  }

  /// Closes a shard for a cache that needs room.
  bool release(const std::string& name) {
    std::uint64_t number = 0;
    {
      const std::lock_guard lock(mutex);
      const auto found = cached.find(name);
      if (found == cached.end()) return false;
      number = found->second;
    }
    return pool.close(number);
  }

  const std::shared_ptr<const Index> index;
  const Access access;
  const std::shared_ptr<ShardCache> cache;
  const CancelToken cancel;
  detail::ShardReader reader;
  mutable Mutex mutex;
  // Shards that were mapped, by their names in the cache. Guarded by mutex.
  std::unordered_map<std::string, std::uint64_t> cached;
  std::shared_ptr<const detail::ShardFuture> future;  // guarded by mutex
  ShardPool<detail::OpenShard> pool;                  // last: its shards use all the others
};

/// The samples of a view: their numbers in the index, ascending.
struct Dataset::Selection {
  Selection(const Index& index, std::vector<std::uint64_t> samples) : numbers(std::move(samples)) {
    Hasher128 hasher;
    hasher.update_u64(index.fingerprint().high);
    hasher.update_u64(index.fingerprint().low);
    hasher.update(
        {reinterpret_cast<const char*>(numbers.data()), numbers.size() * sizeof(std::uint64_t)});
    fingerprint = hasher.digest();
  }

  /// The number in the view of a sample of the index, if it is in it.
  std::optional<std::uint64_t> find(std::uint64_t number) const noexcept {
    const auto at = std::lower_bound(numbers.begin(), numbers.end(), number);
    if (at == numbers.end() || *at != number) return std::nullopt;
    return static_cast<std::uint64_t>(at - numbers.begin());
  }

  const std::vector<std::uint64_t> numbers;
  Hash128 fingerprint;
};

namespace {

ShardLookup lookup_of(const DatasetOptions& options) {
  return {.root = options.root, .accept_times = options.accept_times};
}

std::shared_ptr<const Index> usable(std::shared_ptr<const Index> index,
                                    const DatasetOptions& options) {
  if (const ShardLookup asked = lookup_of(options);
      asked != ShardLookup() && asked != index->lookup()) {
    throw InvalidArgument("the index was opened with another place for its shards",
                          in_quotes(index->path()),
                          "give root and accept_times to Index::open (ShardLookup)");
  }
  if (options.allow_part) return index;
  if (const auto part = index->summary().part) {
    throw InvalidArgument("the index is only part " + to_string(*part), in_quotes(index->path()),
                          "join all parts with `shardwise merge`, or say that this one is meant "
                          "(DatasetOptions::allow_part, --allow-part)");
  }
  return index;
}

}  // namespace

Dataset Dataset::open(const std::string& path, const DatasetOptions& options) {
  IndexCacheOptions how = options.index_cache;
  if (!how.build.cancel.can_be_cancelled()) how.build.cancel = options.cancel;
  if (!how.build.remote && !names_an_index(path)) {
    how.build.remote =
        make_remote_shards(Impl::fetchers_of(options), /*keep=*/nullptr, how.build.cancel);
  }
  return Dataset(Index::open(index_for(path, how), lookup_of(options)), options);
}

Dataset::Dataset(std::shared_ptr<const Index> index, const DatasetOptions& options)
    : impl_(std::make_shared<Impl>(usable(std::move(index), options), options)) {
  if (!impl_->cache) return;
  impl_->cache->add_releaser(
      impl_, [impl = impl_.get()](const std::string& name) { return impl->release(name); });
}

std::uint64_t Dataset::size() const noexcept {
  return selection_ ? selection_->numbers.size() : impl_->index->size();
}

void Dataset::throw_out_of_range(std::uint64_t sample) const {
  throw OutOfRange("no such sample",
                   "sample " + std::to_string(sample) + " of " + (selection_ ? "a view of " : "") +
                       in_quotes(impl_->index->path()),
                   "it has " + std::to_string(size()) + " samples, from 0");
}

Sample Dataset::operator[](std::uint64_t index) const {
  if (index >= size()) throw_out_of_range(index);
  if (!selection_) [[likely]]
    return sample_at(index);
  Sample sample = sample_at(selection_->numbers[index]);
  sample.index_ = index;
  return sample;
}

inline Sample Dataset::sample_at(std::uint64_t number) const {
  const std::uint64_t shard_number = impl_->index->shard_of(number);
  auto shard = impl_->pool.get(shard_number);
  const bool is_mapped = shard->data != nullptr;
  Sample sample(std::move(shard), number);
  if (!is_mapped) [[unlikely]] {
    sample.own_ =
        impl_->reader.read(sample, shard_number, sample.shard_->stored_bytes,
                           sample.shard_->segment, {sample.members_, sample.num_members_});
  }
  return sample;
}

std::optional<Sample> Dataset::find(std::string_view key) const {
  const auto sample = number_of(key);
  if (!sample) return std::nullopt;
  return (*this)[*sample];
}

Sample Dataset::get(std::string_view key) const {
  if (auto sample = find(key)) return *std::move(sample);
  throw NotFound("no sample has the key " + in_quotes(key), in_quotes(impl_->index->path()),
                 "`shardwise ls` shows the keys");
}

Dataset Dataset::view_of(std::vector<std::uint64_t> numbers) const {
  Dataset view = *this;
  view.selection_ = std::make_shared<const Selection>(*impl_->index, std::move(numbers));
  return view;
}

Dataset Dataset::where(std::string_view condition) const {
  std::vector<std::uint64_t> numbers = select_samples(impl_->index, condition);
  if (selection_) {
    std::erase_if(numbers, [&](std::uint64_t number) { return !selection_->find(number); });
  }
  return view_of(std::move(numbers));
}

Dataset Dataset::select(std::vector<std::uint64_t> samples) const {
  std::sort(samples.begin(), samples.end());
  if (!samples.empty() && samples.back() >= size()) throw_out_of_range(samples.back());
  if (const auto twice = std::adjacent_find(samples.begin(), samples.end());
      twice != samples.end()) {
    throw InvalidArgument("a sample is named twice", "sample " + std::to_string(*twice),
                          "in a view each sample comes once");
  }
  if (selection_) {
    for (std::uint64_t& sample : samples) sample = selection_->numbers[sample];
  }
  return view_of(std::move(samples));
}

Dataset Dataset::select(const std::vector<std::string>& keys) const {
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
                            : ", nor " + std::to_string(num_missing - 1) + " more of those named"),
                   in_quotes(impl_->index->path()), "`shardwise ls` shows the keys");
  }
  return select(std::move(samples));
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
  const Index& index = *impl_->index;
  const std::vector<Column>& columns = index.content().columns;
  const auto found = std::find_if(columns.begin(), columns.end(),
                                  [&](const Column& c) { return c.name == column; });
  if (found == columns.end()) {
    std::string names;
    for (const Column& c : columns) names += (names.empty() ? "" : ", ") + in_quotes(c.name);
    throw NotFound("the index has no column " + in_quotes(column), in_quotes(index.path()),
                   names.empty() ? "build it with columns" : "it has " + names);
  }
  const auto place = static_cast<std::uint32_t>(found - columns.begin());
  std::vector<double> values(size());
  SegmentView segment;
  std::uint64_t shard = ~std::uint64_t{0};
  for (std::uint64_t sample = 0; sample < values.size(); ++sample) {
    const std::uint64_t number = number_in_index(sample);
    if (const std::uint64_t next = index.shard_of(number); next != shard) {
      shard = next;
      segment = index.segment(shard);
    }
    const MetadataValue value =
        segment.value(place, static_cast<std::uint32_t>(number - index.first_sample(shard)));
    if (value.type == ValueType::kInteger) {
      values[sample] = static_cast<double>(value.integer);
    } else if (value.type == ValueType::kReal) {
      values[sample] = value.real;
    } else {
      throw InvalidArgument("a value that is not a number",
                            "column " + in_quotes(column) + ", sample " + std::to_string(sample),
                            "mend it, or take another column");
    }
  }
  return values;
}

std::function<std::uint64_t(std::uint64_t)> Dataset::sample_bytes() const {
  struct Segments {
    explicit Segments(std::shared_ptr<const Index> opened)
        : index(std::move(opened)), checked(index->num_shards()), views(index->num_shards()) {}
    const SegmentView& of(std::uint64_t shard) {
      if (!checked[shard].load(std::memory_order_acquire)) {
        const SegmentView view = index->segment(shard);
        const std::lock_guard lock(mutex);
        if (!checked[shard].load(std::memory_order_relaxed)) views[shard] = view;
        checked[shard].store(true, std::memory_order_release);
      }
      return views[shard];
    }
    const std::shared_ptr<const Index> index;
    Mutex mutex;
    std::vector<std::atomic<bool>> checked;
    std::vector<SegmentView> views;
  };
  return [segments = std::make_shared<Segments>(impl_->index),
          view = *this](std::uint64_t sample) -> std::uint64_t {
    const std::uint64_t number = view.number_in_index(sample);
    const Index& index = *segments->index;
    const std::uint64_t shard = index.shard_of(number);
    std::uint64_t bytes = 0;
    for (const MemberRecord& member : segments->of(shard).members(
             static_cast<std::uint32_t>(number - index.first_sample(shard)))) {
      bytes += member.size_bytes;
    }
    return bytes;
  };
}

const Index& Dataset::index() const noexcept { return *impl_->index; }
const std::shared_ptr<const Index>& Dataset::shared_index() const noexcept { return impl_->index; }
const Hash128& Dataset::fingerprint() const noexcept {
  return selection_ ? selection_->fingerprint : impl_->index->fingerprint();
}
Dataset::PoolStats Dataset::pool_stats() const {
  const ShardPoolStats stats = impl_->pool.stats();
  return {stats.opened, stats.evicted, stats.open_shards, stats.open_bytes};
}
const std::shared_ptr<ShardCache>& Dataset::cache() const noexcept { return impl_->cache; }
std::optional<CacheRequest> Dataset::cache_request(std::uint64_t shard) const {
  return detail::cache_request(impl_->index, shard);
}
bool Dataset::close_shard(std::uint64_t shard) const {
  if (shard >= impl_->index->num_shards()) {
    throw OutOfRange("no such shard",
                     "shard " + std::to_string(shard) + " of " + in_quotes(impl_->index->path()),
                     "it has " + std::to_string(impl_->index->num_shards()) + ", from 0");
  }
  return impl_->pool.close(shard);
}
void Dataset::follow(std::shared_ptr<const detail::ShardFuture> future) const {
  const std::lock_guard lock(impl_->mutex);
  impl_->future = std::move(future);
}

}  // namespace shardwise
