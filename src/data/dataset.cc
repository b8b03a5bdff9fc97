#include "shardwise/data/dataset.h"

#include "data/open_shard.h"
#include "shardwise/base/error.h"
#include "shardwise/base/hash.h"
#include "shardwise/base/text.h"

namespace shardwise {
namespace {

/// Maps a shard and checks it against the index.
std::unique_ptr<const detail::OpenShard> open_shard(const std::shared_ptr<const Index>& index,
                                                    std::uint64_t number) {
  const ShardInfo info = index->shard(number);
  if (info.compression != Compression::kNone) {
    throw Unsupported("the shard is compressed (" +
                          std::string(compression_name(info.compression)) +
                          "), and its samples cannot be read in place",
                      in_quotes(info.path), "expand it, and index the expanded file");
  }
  MappedFile file = MappedFile::open(info.path);
  require_unchanged(info, file.identity().size_bytes, file.identity().mtime_ns);
  if (hash64(file.bytes().substr(0, kTarBlockBytes)) != info.first_header_hash) {
    throw StaleIndex("the shard changed since it was indexed, though its size and time did not",
                     in_quotes(info.path) + ", offset 0",
                     "run `shardwise verify`, then build the index anew under another name");
  }
  const SegmentView segment = index->segment(number);
  if (!segment.fits_shard(file.bytes().size())) {
    throw CorruptIndex("the index is damaged",
                       in_quotes(index->path()) + " (shard " + std::to_string(number) +
                           ": a member lies outside it)",
                       "build the index again with `shardwise index`");
  }
  return std::make_unique<const detail::OpenShard>(
      detail::OpenShard{index, std::move(file), segment, info.first_sample, info.path});
}

}  // namespace

struct Dataset::Impl {
  Impl(std::shared_ptr<const Index> opened, const DatasetOptions& options)
      : index(std::move(opened)),
        pool(
            index->num_shards(),
            [i = index](std::uint64_t number) { return open_shard(i, number); }, options.pool) {}

  std::shared_ptr<const Index> index;
  ShardPool<detail::OpenShard> pool;
};

Dataset Dataset::open(const std::string& path, const DatasetOptions& options) {
  return Dataset(Index::open(path), options);
}

Dataset::Dataset(std::shared_ptr<const Index> index, const DatasetOptions& options)
    : impl_(std::make_shared<Impl>(std::move(index), options)) {}

std::uint64_t Dataset::size() const noexcept { return impl_->index->size(); }

Sample Dataset::operator[](std::uint64_t index) const {
  const Index& table = *impl_->index;
  if (index >= table.size()) {
    throw OutOfRange("no such sample",
                     "sample " + std::to_string(index) + " of " + in_quotes(table.path()),
                     "it has " + std::to_string(table.size()) + " samples, from 0");
  }
  return Sample(impl_->pool.get(table.shard_of(index)), index);
}

std::optional<Sample> Dataset::find(std::string_view key) const {
  const auto index = impl_->index->find(key);
  if (!index) return std::nullopt;
  return (*this)[*index];
}

Sample Dataset::get(std::string_view key) const {
  if (auto sample = find(key)) return *std::move(sample);
  throw NotFound("no sample has the key " + in_quotes(key), in_quotes(impl_->index->path()),
                 "`shardwise ls` shows the keys");
}

const Index& Dataset::index() const noexcept { return *impl_->index; }
const Hash128& Dataset::fingerprint() const noexcept { return impl_->index->fingerprint(); }
ShardPoolStats Dataset::pool_stats() const { return impl_->pool.stats(); }

}  // namespace shardwise
