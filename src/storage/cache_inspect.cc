#include <algorithm>
#include <map>
#include <string_view>

#include "base/errno_error.h"
#include "base/file.h"
#include "base/hasher.h"
#include "base/lock_holder.h"
#include "shardwise/base/error.h"
#include "shardwise/base/hash.h"
#include "storage/cache_futures.h"
#include "storage/cache_metrics.h"
#include "storage/cache_state.h"

namespace shardwise {

using detail::fetch_byte;
using detail::kCachePieceBytes;
using detail::use_byte;

Hash128 detail::hash_of_file(const File& file, const CancelToken& cancel,
                             const std::function<void(std::uint64_t)>& progress) {
  Hasher128 hasher;
  std::string piece(kCachePieceBytes, '\0');
  for (std::uint64_t at = 0;;) {
    cancel.throw_if_cancelled();
    const std::size_t n = file.read_at(at, piece.data(), piece.size());
    if (n == 0) return hasher.digest();
    hasher.update(std::string_view(piece).substr(0, n));
    at += n;
    if (progress) progress(n);
  }
}

std::uint64_t ShardCache::used_bytes() const {
  const auto contents = impl_->directory.scan();
  std::uint64_t used = 0;
  for (const auto& shard : contents.shards) used += shard.size_bytes;
  for (const auto& temporary : contents.temporaries) used += temporary.size_bytes;
  return used;
}

namespace {

/// The processes that use or will need the shards of a cache, as of construction.
class Company {
 public:
  explicit Company(const detail::CacheDirectory& directory)
      : locks_(detail::LockHolders::of_file(directory.locks_path())),
        users_(detail::FutureBoard(directory.futures_path()).users_by_process()) {
    try {
      file_ = File::open_read(directory.locks_path());
    } catch (const NoDescriptor&) {
      throw;
    } catch (const Error&) {  // no shard was ever used, or the locks file is not readable
    }
  }

  /// Fills an entry from the shard's record, and adds its users.
  void describe(const detail::CacheDirectory& directory, ShardCache::Entry& entry) const {
    if (const auto record = directory.read_record(entry.name).record) {
      entry.url = record->url;
      entry.validator = record->validator;
      entry.hash = record->hash;
    }
    entry.in_use = file_.fd() >= 0 && file_.is_byte_locked(use_byte(entry.name));
    entry.users = locks_.of_byte(use_byte(entry.name));
    const auto fetching = locks_.of_byte(fetch_byte(entry.name));
    if (!fetching.empty()) entry.fetcher = fetching.front();
    const Hash128 number = detail::number_of_name(entry.name);
    for (const auto& [pid, user] : users_) {
      const NextUse next = user.future->next_use(number, user.pace.now, user.pace.now);
      if (next.kind == NextUse::Kind::kAt || next.is_in_use()) entry.expected_by.push_back(pid);
    }
    std::sort(entry.expected_by.begin(), entry.expected_by.end());
    const auto last = std::unique(entry.expected_by.begin(), entry.expected_by.end());
    entry.expected_by.erase(last, entry.expected_by.end());
  }

 private:
  const detail::LockHolders locks_;
  const std::vector<std::pair<std::int64_t, detail::OtherUser>> users_;
  File file_;
};

}  // namespace

std::vector<ShardCache::Entry> ShardCache::entries() const {
  const Company company(impl_->directory);
  std::vector<ShardCache::Entry> entries;
  for (const auto& shard : impl_->directory.scan().shards) {
    ShardCache::Entry entry{.name = shard.name,
                            .url = {},
                            .validator = {},
                            .size_bytes = shard.size_bytes,
                            .last_use_ns = shard.last_use_ns};
    company.describe(impl_->directory, entry);
    entries.push_back(std::move(entry));
  }
  std::sort(
      entries.begin(), entries.end(), [](const ShardCache::Entry& a, const ShardCache::Entry& b) {
        return a.last_use_ns != b.last_use_ns ? a.last_use_ns < b.last_use_ns : a.name < b.name;
      });
  return entries;
}

std::vector<ShardCache::Entry> ShardCache::coming() const {
  const Company company(impl_->directory);
  std::map<std::string, ShardCache::Entry> by_name;
  for (const auto& temporary : impl_->directory.scan().temporaries) {
    // A compressed shard has two temporary files, counted as one entry.
    auto& entry = by_name[temporary.name];
    entry.name = temporary.name;
    entry.size_bytes += temporary.size_bytes;
    entry.last_use_ns = std::max(entry.last_use_ns, temporary.mtime_ns);
    if (entry.url.empty()) entry.url = detail::CacheDirectory::source_of(temporary.path);
  }
  std::vector<ShardCache::Entry> entries;
  for (auto& [name, entry] : by_name) {
    company.describe(impl_->directory, entry);
    entries.push_back(std::move(entry));
  }
  return entries;
}

std::string ShardCache::directory_metrics() const {
  return detail::directory_metrics(entries(), coming(), impl_->options.directory);
}

ShardCache::Check ShardCache::verify(const CancelToken& cancel,
                                     const ProgressCallback& progress) const {
  ShardCache::Check result;
  result.foreign = impl_->directory.scan().foreign;
  std::vector<ShardCache::Entry> all = entries();
  Progress at{.num_shards = all.size()};
  for (const ShardCache::Entry& entry : all) at.num_bytes += entry.size_bytes;
  const auto went_on = [&](std::uint64_t num_bytes) {
    at.bytes_done += num_bytes;
    if (progress) progress(at);
  };
  std::uint64_t end = 0;  // bytes up to the end of the current shard
  for (ShardCache::Entry& entry : all) {
    ++result.num_shards;
    end += entry.size_bytes;
    try {
      if (!entry.hash) {
        result.unknown.push_back(std::move(entry));
      } else {
        const File file = File::open_read(impl_->directory.shard_path(entry.name));
        if (detail::hash_of_file(file, cancel, went_on) != *entry.hash) {
          result.damaged.push_back(std::move(entry));
        }
      }
    } catch (const NotFound&) {
      --result.num_shards;  // evicted since the listing
    }
    ++at.shards_done;
    at.bytes_done = end;
    went_on(0);
  }
  return result;
}

ShardCache::Removal ShardCache::prune(std::uint64_t max_bytes) {
  impl_->require_writable("no shard can be removed");
  auto contents = impl_->directory.scan();
  impl_->room.remove_leftovers(contents);
  std::sort(contents.shards.begin(), contents.shards.end(),
            [](const auto& a, const auto& b) { return a.last_use_ns < b.last_use_ns; });
  std::uint64_t used = 0;
  for (const auto& shard : contents.shards) used += shard.size_bytes;
  ShardCache::Removal removal;
  for (const auto& shard : contents.shards) {
    if (used <= max_bytes) break;
    if (!impl_->room.evict_unused(shard.name)) {
      ++removal.num_in_use;
      continue;
    }
    used -= shard.size_bytes;
    ++removal.num_shards;
    removal.bytes += shard.size_bytes;
  }
  return removal;
}

bool ShardCache::remove(const std::string& name) {
  impl_->require_writable("no shard can be removed");
  return detail::find_size(impl_->directory.shard_path(name)) && impl_->room.evict_unused(name);
}

}  // namespace shardwise
