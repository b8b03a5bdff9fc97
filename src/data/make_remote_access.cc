#include "shardwise/data/make_remote_access.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/error_types.h"
#include "base/file.h"
#include "base/hasher.h"
#include "base/text.h"
#include "base/url.h"
#include "index/offset_table.h"
#include "ingest/remote_shards.h"
#include "storage/cache_request.h"
#include "storage/fetch_failure.h"
#include "tar/tar_scanner.h"

namespace shardwise {
namespace {

/// Forwards arriving bytes. After a restart it compares the repeated bytes with those that were
/// forwarded, and drops them.
class PassOn : public Fetcher::Sink {
 public:
  PassOn(const std::string& url, const std::function<void(std::string_view)>& take)
      : url_(url), take_(take) {}

  void write(std::string_view bytes) override {
    const auto old = static_cast<std::size_t>(std::min<std::uint64_t>(bytes.size(), left_));
    if (old > 0) {
      repeated_.update(bytes.substr(0, old));
      left_ -= old;
      if (left_ == 0 && repeated_.digest() != forwarded_.digest()) throw_changed();
      bytes.remove_prefix(old);
    }
    if (bytes.empty()) return;
    forwarded_.update(bytes);
    num_forwarded_ += bytes.size();
    take_(bytes);
  }
  bool restart() override {
    repeated_ = {};
    left_ = num_forwarded_;
    return true;
  }
  /// Call it after the last byte. Errors: StaleIndex.
  void finish() const {
    if (left_ > 0) throw_changed();
  }

 private:
  [[noreturn]] void throw_changed() const {
    throw StaleIndex("the shard changed while it was fetched", in_quotes(redacted_url(url_)),
                     "wait until it is complete, then run again");
  }

  const std::string& url_;
  const std::function<void(std::string_view)>& take_;
  detail::Hasher128 forwarded_;
  detail::Hasher128 repeated_;
  std::uint64_t num_forwarded_ = 0;
  std::uint64_t left_ = 0;  // after a restart: number of repeated bytes that have not arrived yet
};

class FetchedShards : public RemoteShards {
 public:
  FetchedShards(std::shared_ptr<const Fetchers> fetchers, std::shared_ptr<ShardCache> keep,
                const CancelToken& cancel)
      : fetchers_(std::move(fetchers)), keep_(std::move(keep)), cancel_(cancel) {}

  bool runs_commands() const override { return fetchers_->brings("pipe"); }

  std::vector<std::string> list(const std::string& url) override {
    return fetchers_->list({.url = url, .cancel = cancel_});
  }

  State state(const std::string& url) override {
    const Fetcher::Stat file = fetchers_->stat({.url = url, .cancel = cancel_});
    return {file.size_bytes, file.validator, file.has_ranges};
  }

  std::optional<State> state_if_reached(const std::string& url, std::string& why) override try {
    constexpr std::chrono::seconds kSoon{5};
    const Fetcher::Stat file = fetchers_->stat({.url = url, .cancel = cancel_, .retry_for = kSoon});
    return State{file.size_bytes, file.validator, file.has_ranges};
  } catch (const NotReached& e) {
    why = e.what();
    return std::nullopt;
  }

  void read(const std::string& url, const State& state, std::uint64_t begin,
            std::optional<std::uint64_t> end,
            const std::function<void(std::string_view)>& take) override {
    PassOn sink(url, take);
    fetchers_->fetch(
        {.url = url, .range = {begin, end}, .validator = state.validator, .cancel = cancel_}, sink);
    sink.finish();
  }

  bool makes_copies() const override { return keep_ != nullptr; }
  std::optional<Copy> copy(const std::string& url, const State& state) override {
    if (!keep_) return std::nullopt;
    auto kept = std::make_shared<KeptShard>(
        keep_,
        CacheAccess::get(
            *keep_,
            {.source = {.url = url, .validator = state.validator, .source_bytes = state.size_bytes},
             .admission = {.fetch_again = is_unknown(state)},
             .cancel = cancel_}));
    return Copy{kept->shard.path(), kept};
  }

  void keep_expanded(const std::string& url, const State& state, const std::string& path,
                     Compression compression, std::uint64_t expanded_bytes) override {
    if (!keep_) return;
    CacheAccess::get(*keep_, {.source = {.url = url,
                                         .local_copy = path,
                                         .validator = state.validator,
                                         .compression = compression,
                                         .size_bytes = expanded_bytes},
                              .admission = {.fetch_again = is_unknown(state)},
                              .cancel = cancel_});
  }

 private:
  /// True if the cached shard may be of another version, because the validator is unknown.
  static bool is_unknown(const State& state) { return state.validator.empty(); }

  /// A cached shard in its stored form. A compressed one is removed from the cache when this object
  /// is destroyed, because later requests are for the expanded shard.
  struct KeptShard {
    KeptShard(std::shared_ptr<ShardCache> in, CachedShard held)
        : cache(std::move(in)), shard(std::move(held)) {}
    ~KeptShard() {
      try {
        char first[kTarBlockBytes];
        const std::size_t got = File::open_read(shard.path()).read_at(0, first, sizeof first);
        if (shard_compression({first, got}) == Compression::kNone) return;
        const std::string name = shard.name();
        shard = CachedShard();
        cache->remove(name);
      } catch (const std::exception&) {
        // The shard stays in the cache until it is evicted.
      }
    }
    KeptShard(const KeptShard&) = delete;
    KeptShard& operator=(const KeptShard&) = delete;

    const std::shared_ptr<ShardCache> cache;
    CachedShard shard;
  };

  const std::shared_ptr<const Fetchers> fetchers_;
  const std::shared_ptr<ShardCache> keep_;
  const CancelToken cancel_;
};

}  // namespace

RemoteAccess make_remote_access(std::shared_ptr<const Fetchers> fetchers,
                                std::shared_ptr<ShardCache> keep, const CancelToken& cancel) {
  if (!fetchers && keep) fetchers = keep->options().fetchers;
  if (!fetchers) fetchers = std::make_shared<const Fetchers>();
  return std::make_shared<FetchedShards>(std::move(fetchers), std::move(keep), cancel);
}

}  // namespace shardwise
