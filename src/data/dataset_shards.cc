// Opens, keeps and closes the shards of a dataset.
#include <bit>

#include "base/cancel_scope.h"
#include "base/error_types.h"
#include "base/mapped_file.h"
#include "base/text.h"
#include "base/url.h"
#include "data/dataset_access.h"
#include "data/dataset_impl.h"
#include "index/claimed_index.h"
#include "shardwise/data/make_remote_access.h"

namespace shardwise {
namespace {

std::shared_ptr<const Fetchers> fetchers_of(const Dataset::Options& options) {
  if (options.fetchers || !options.cache) return options.fetchers;
  return options.cache->options().fetchers;
}

ShardPoolOptions pool_options(const Dataset::Options& options) {
  ShardPoolOptions pool{.max_shards = options.max_open_shards,
                        .max_bytes = options.max_mapped_bytes};
  if (options.cache) {
    // close_uncached() bounds the shards that are outside the budget.
    pool.max_cheap_bytes = options.cache->options().budget_bytes / 2;
  }
  return pool;
}

}  // namespace

Dataset::Impl::Impl(std::shared_ptr<const Index> opened, const Dataset::Options& options,
                    std::unique_ptr<detail::ClaimedShards> claims)
    : index(std::move(opened)),
      claimed(std::move(claims)),
      access(options.access),
      cache(options.cache),
      cancel(options.cancel),
      max_open_shards(options.max_open_shards),
      early(index, claimed || options.wait_for_whole_shards ? nullptr : options.cache,
            options.cancel),
      reader(index, options.max_open_shards),
      ranges(index, fetchers_of(options), options.cancel),
      pool(
          index->num_shards(),
          [this](std::uint64_t number) {
            return reader.with_descriptor([&] { return open(number); });
          },
          pool_options(options)) {}

IndexCacheOptions Dataset::Impl::index_cache_of(const Dataset::Options& options) {
  IndexCacheOptions how = options.index_cache;
  if (!how.build.cancel.can_be_cancelled()) how.build.cancel = options.cancel;
  if (!how.build.remote) {
    how.build.remote = make_remote_access(fetchers_of(options), /*keep=*/nullptr, how.build.cancel);
  }
  return how;
}

std::unique_ptr<const detail::OpenShard> Dataset::Impl::open(std::uint64_t number) {
  close_uncached(current_future().get());
  // If the process may map no more files, unmap an idle shard of this dataset to make room. If no
  // shard is idle, a local shard is read without a mapping.
  if (MappedFile::is_budget_spent() && pool.stats().open_bytes > 0) pool.evict();
  const detail::ShardOpening how{
      .access = access,
      .cache = cache,
      .next_use = cache ? next_use_of(number) : nullptr,
      .cancel = detail::CancelScope::joined(cancel),
      .was_followed = early.has_followed(number),
      .can_read_parts = [this](const Index::Shard& info) { return ranges.can_read_parts(info); },
      .require_first_block =
          [this](const Index::Shard& info) { ranges.require_first_block(info); }};
  auto shard = claimed ? claimed->open(number, how) : detail::open_shard(index, number, how);
  if (shard->is_costly()) {
    const Lock lock(mutex);
    uncached.insert(number);
  }
  if (shard->cached.is_pinned()) {
    {
      const Lock lock(mutex);
      cached[shard->cached.name()] = number;
    }
    if (!current_future() && !cache->is_read_only()) trim_to_share(shard->size_bytes());
  }
  return shard;
}

bool Dataset::Impl::is_ranged(std::uint64_t number) {
  auto shard = pool.find(number);
  if (shard) reopen_if_cached(number, shard);
  if (shard) return shard->data == nullptr && is_fetched_url(shard->path);
  if (access != Access::kRange || claimed) return false;
  const Index::Shard info = index->shard(number);
  return info.compression == Compression::kNone && is_fetched_url(info.path);
}

void Dataset::Impl::close_uncached(const detail::ShardFuture* known) {
  std::set<std::uint64_t> left;
  {
    const Lock lock(mutex);
    left.swap(uncached);
  }
  const std::uint64_t max =
      left.empty() ? 0 : cache->options().budget_bytes / 2 / num_cache_users(known);
  std::uint64_t bytes = 0;
  std::erase_if(left, [&](std::uint64_t number) {
    std::uint64_t size_bytes = 0;
    if (const auto shard = pool.find(number)) {
      if (!shard->is_costly()) return true;
      size_bytes = shard->size_bytes();
    } else {
      return true;
    }
    const bool is_needed = known && known->uses().in_use_until(number, known->now());
    const bool is_too_much = bytes > 0 && size_bytes > max - std::min(max, bytes);
    if ((!is_needed || is_too_much) && pool.close(number)) return true;
    bytes += size_bytes;
    return false;
  });
  const Lock lock(mutex);
  uncached.merge(left);
}

void Dataset::Impl::reopen_if_cached(std::uint64_t number,
                                     detail::ShardHandle<detail::OpenShard>& shard) {
  if (shard->uncached_name.empty() || !CacheAccess::is_there(*cache, shard->uncached_name)) return;
  shard = {};
  pool.close(number);
  shard = pool.find(number);  // open if another thread uses it, or has opened it again
}

void Dataset::Impl::trim_to_share(std::uint64_t size_bytes) {
  const std::uint64_t share = cache->options().budget_bytes / num_cache_users(nullptr);
  while (pool.stats().open_bytes + size_bytes > share && pool.evict()) {
  }
}

bool Dataset::Impl::release(const std::string& name) {
  const bool was_early = early.release(name);
  const auto number = find_mapped(name);
  return (number && pool.close(*number)) || was_early;
}

bool Dataset::Impl::is_in_use(const std::string& name) const {
  const auto number = find_mapped(name);
  return number && pool.is_pinned(*number);
}

std::optional<std::uint64_t> Dataset::Impl::find_mapped(const std::string& name) const {
  const Lock lock(mutex);
  const auto found = cached.find(name);
  return found == cached.end() ? std::nullopt : std::optional(found->second);
}

std::size_t Dataset::Impl::max_pinned_shards() const noexcept {
  constexpr std::size_t kMax = 1024;
  const std::size_t share = std::clamp<std::size_t>(max_open_shards / 4, 1, kMax);
  const std::uint64_t all = std::bit_ceil(std::max<std::uint64_t>(index->num_shards(), 1));
  return std::min<std::uint64_t>(std::bit_floor(share), all);
}

std::optional<CacheRequest> Dataset::Impl::cache_request(std::uint64_t number) const {
  return claimed ? claimed->request(number) : detail::cache_request(index, number);
}

std::shared_ptr<detail::CheckedSegments> Dataset::Impl::records() {
  IndexAccess::require_records(*index);
  const Lock lock(mutex);
  if (!segments) segments = std::make_shared<detail::CheckedSegments>(index);
  return segments;
}

Dataset::Access parse_access(std::string_view name) {
  if (name == "map") return Dataset::Access::kMap;
  if (name == "read") return Dataset::Access::kRead;
  if (name == "range") return Dataset::Access::kRange;
  throw InvalidArgument("unknown kind of access", in_quotes(name), "choose map, read or range");
}

}  // namespace shardwise
