#include "shardwise/data/dataset.h"

#include "data/open_shard.h"
#include "data/shard_reader.h"
#include "shardwise/base/error.h"
#include "shardwise/base/text.h"

namespace shardwise {
Access parse_access(std::string_view name) {
  if (name == "map") return Access::kMap;
  if (name == "read") return Access::kRead;
  throw InvalidArgument("no such access", in_quotes(name), "choose map or read");
}

struct Dataset::Impl {
  Impl(std::shared_ptr<const Index> opened, const DatasetOptions& options)
      : index(std::move(opened)),
        reader(index, options.pool.max_shards),
        pool(
            index->num_shards(),
            [this, access = options.access](std::uint64_t number) {
              return reader.with_descriptor(
                  [&] { return detail::open_shard(index, number, access); });
            },
            options.pool) {}

  const std::shared_ptr<const Index> index;
  detail::ShardReader reader;
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
  const std::uint64_t number = table.shard_of(index);
  auto shard = impl_->pool.get(number);
  const bool is_mapped = shard->data != nullptr;
  Sample sample(std::move(shard), index);
  if (!is_mapped) [[unlikely]] {
    sample.own_ = impl_->reader.read(sample, number, sample.members_);
  }
  return sample;
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
