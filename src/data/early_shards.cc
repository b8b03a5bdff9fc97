#include "data/early_shards.h"

#include <chrono>
#include <string_view>
#include <utility>
#include <vector>

#include "base/cancel_scope.h"
#include "base/error_types.h"
#include "base/url.h"
#include "ingest/sample_check.h"
#include "shardwise/index/defect_policies.h"
#include "storage/opening_time.h"

// A shard is in followed_ from the start of its fetch until it is opened as a whole, or the cache
// needs its room. Samples share the shard's handle. The handle keeps the mapping and the lock on
// the cache's use byte while samples exist.
//
//   follow()     in followed_, coming    returns the handle
//                in followed_, over      returns no handle; open the whole shard, then forget()
//                not in followed_        CacheAccess::follow(), one thread per shard (beginning_)
//   bytes_of()   waits for the sample's part of the shard, then checks that it contains the sample
//
// No thread waits while it holds mutex_, whether for bytes, for the cache, or for another thread.

namespace shardwise::detail {
namespace {

/// Adds the time from construction to destruction to this thread's opening time, and to the time
/// that the cache counts as waiting.
class Waiting {
 public:
  explicit Waiting(ShardCache& cache) : cache_(cache) {}
  ~Waiting() { CacheAccess::add_wait(cache_, std::chrono::steady_clock::now() - begin_); }
  Waiting(const Waiting&) = delete;
  Waiting& operator=(const Waiting&) = delete;

 private:
  ShardCache& cache_;
  const std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
  const OpeningTimer timer_;
};

}  // namespace

EarlyShards::EarlyShards(std::shared_ptr<const Index> index, std::shared_ptr<ShardCache> cache,
                         const CancelToken& cancel)
    : index_(std::move(index)), cache_(std::move(cache)), cancel_(cancel) {}

EarlyShards::~EarlyShards() { stop_ = true; }

bool EarlyShards::may_come_early(const Index::Shard& info) const {
  const Index::Content& content = index_->content();
  return info.compression == Compression::kNone && is_fetched_url(info.path) &&
         info.size_bytes >= kMinBytes && (!info.content_hash || content.hashes) &&
         content.policies.link != DefectPolicies::OnLink::kResolve;
}

EarlyShards::Handle EarlyShards::follow(std::uint64_t number,
                                        const std::function<NextUseOf()>& next_use_of) {
  if (!cache_) return {};
  const Index::Shard info = index_->shard(number);
  if (!may_come_early(info)) return {};
  struct Turn {
    EarlyShards& of;
    const std::uint64_t number;
    bool is_mine = false;
    ~Turn() {
      if (!is_mine) return;
      const Lock lock(of.mutex_);
      of.beginning_.get().erase(number);
      of.changed_.notify_all();
    }
  } turn{*this, number};
  {
    const Lock lock(mutex_);
    while (beginning_.get().contains(number)) {
      changed_.wait(mutex_, CancelScope::joined(cancel_));
    }
    const auto found = followed_.find(number);
    if (found != followed_.end()) {
      return found->second->coming->is_over() ? Handle() : found->second;
    }
    turn.is_mine = beginning_.get().insert(number).second;
  }
  return begin(number, info, next_use_of);
}

EarlyShards::Handle EarlyShards::begin(std::uint64_t number, const Index::Shard& info,
                                       const std::function<NextUseOf()>& next_use_of) {
  bool may_fetch = false;
  std::vector<std::unique_ptr<Fetch>> over;  // destroyed after the mutex is released
  {
    const Lock lock(mutex_);
    for (auto at = fetches_.begin(); at != fetches_.end();) {
      if ((*at)->is_over || !(*at)->threads.are_here()) over.push_back(std::move(*at));
      at = *at ? std::next(at) : fetches_.erase(at);
    }
    may_fetch = fetches_.size() < kMaxThreads;
  }
  CacheRequest request = *cache_request(index_, number);
  {
    // Other threads may wait for the same shard, so cancelling this thread's work must not stop the
    // fetch.
    const CancelScope scope(stop_);
    request.cancel = CancelScope::joined(cancel_);
  }
  const NextUseOf next_use = next_use_of();
  Followed followed = CacheAccess::follow(*cache_, request, next_use, may_fetch);
  if (!followed.coming) return {};
  if (followed.fetch && !start(number, *std::move(followed.fetch))) return {};
  auto shard = open_coming(index_, info, std::move(followed.held), std::move(followed.coming),
                           CancelScope::joined(cancel_));
  if (!shard) return {};
  Handle handle = Handle::of_one(std::move(shard));
  const Lock lock(mutex_);
  followed_.insert_or_assign(number, handle);
  return handle;
}

/// Starts a thread that runs the fetch. Returns false if no thread could be started.
bool EarlyShards::start(std::uint64_t number, ShardFetch&& fetch) {
  Fetch* of = nullptr;
  {
    const Lock lock(mutex_);
    of = fetches_.emplace_back(std::make_unique<Fetch>(number)).get();
  }
  auto run = std::make_shared<ShardFetch>(std::move(fetch));
  const auto end = [this, of](std::exception_ptr failure) {
    {
      const Lock lock(mutex_);
      of->failure = std::move(failure);
      of->is_over = true;
    }
    changed_.notify_all();
  };
  try {
    of->threads.start(
        [run = std::move(run), end]() mutable {
          std::exception_ptr failure;
          try {
            static_cast<void>(run->run());
          } catch (...) {
            failure = std::current_exception();
          }
          run.reset();  // release everything before end() wakes the waiting threads
          end(failure);
        },
        "sw-early");
  } catch (const Error&) {
    end(nullptr);
    return false;
  }
  return true;
}

EarlyShards::Fetch* EarlyShards::find_fetch(std::uint64_t number) {
  for (const auto& fetch : fetches_) {
    if (fetch->number == number && fetch->threads.are_here()) return fetch.get();
  }
  return nullptr;
}

void EarlyShards::await(std::uint64_t number) {
  const CancelToken cancel = CancelScope::joined(cancel_);
  const Lock lock(mutex_);
  for (;;) {
    const Fetch* const fetch = find_fetch(number);
    if (fetch == nullptr) return;
    if (fetch->is_over) {
      if (fetch->failure) std::rethrow_exception(fetch->failure);
      return;
    }
    changed_.wait(mutex_, cancel);
  }
}

std::shared_ptr<const OwnBytes> EarlyShards::bytes_of(std::uint64_t number, const OpenShard& shard,
                                                      std::uint32_t local) {
  const auto part = part_of_sample(shard.segment, local);
  const std::string_view bytes = shard.map->bytes();
  if (part && part->second <= bytes.size()) {
    bool has_come = false;
    {
      const Waiting waiting(*cache_);
      has_come = shard.coming->wait_for(part->first, part->second, CancelScope::joined(cancel_));
    }
    const bool lenient = index_->content().policies.damage == DefectPolicies::OnDefect::kSkip;
    if (has_come &&
        holds_sample(shard.segment, local, bytes.substr(part->first, part->second - part->first),
                     part->first, lenient)) {
      auto own = std::make_shared<OwnBytes>();
      own->at = bytes.data();
      for (const MemberRecord& member : shard.segment.members(local)) {
        own->starts.push_back(member.data_offset());
      }
      return own;
    }
  }
  const Waiting waiting(*cache_);
  await(number);
  return nullptr;
}

bool EarlyShards::has_followed(std::uint64_t number) const {
  const Lock lock(mutex_);
  return followed_.contains(number);
}

void EarlyShards::forget(std::uint64_t number) noexcept {
  Handle gone;  // unmapped after the mutex is released
  const Lock lock(mutex_);
  const auto found = followed_.find(number);
  if (found == followed_.end() || !found->second->coming->is_over()) return;
  gone = std::move(found->second);
  followed_.erase(found);
}

bool EarlyShards::release(const std::string& name) noexcept {
  Handle gone;  // unmapped after the mutex is released
  const Lock lock(mutex_);
  for (auto at = followed_.begin(); at != followed_.end(); ++at) {
    const OpenShard& shard = *at->second;
    if (shard.cached.name() != name || !shard.coming->is_over()) continue;
    gone = std::move(at->second);
    followed_.erase(at);
    return true;
  }
  return false;
}

}  // namespace shardwise::detail
