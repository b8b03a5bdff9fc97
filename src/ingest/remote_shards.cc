#include "ingest/remote_shards.h"

#include <map>
#include <utility>

#include "base/error_types.h"
#include "base/fork.h"
#include "base/ordered_pipeline.h"
#include "base/text.h"
#include "base/url.h"
#include "shardwise/base/error.h"

namespace shardwise::detail {
namespace {

/// Requests at once: many, since most of the time is spent waiting for the network.
constexpr unsigned kAskedAtOnce = 16;

class RememberedStates : public RemoteShards {
 public:
  explicit RememberedStates(RemoteAccess remote) : remote_(std::move(remote)) {}

  bool runs_commands() const override { return remote_->runs_commands(); }
  std::vector<std::string> list(const std::string& url) override { return remote_->list(url); }
  State state(const std::string& url) override {
    {
      const Lock lock(mutex_);
      if (const auto it = states_.find(url); it != states_.end()) return it->second;
    }
    State state = remote_->state(url);
    const Lock lock(mutex_);
    return states_.emplace(url, std::move(state)).first->second;
  }
  void read(const std::string& url, const State& state, std::uint64_t begin,
            std::optional<std::uint64_t> end,
            const std::function<void(std::string_view)>& take) override {
    remote_->read(url, state, begin, end, take);
  }
  std::optional<Copy> copy(const std::string& url, const State& state) override {
    return remote_->copy(url, state);
  }
  void keep_expanded(const std::string& url, const State& state, const std::string& path,
                     Compression compression, std::uint64_t expanded_bytes) override {
    remote_->keep_expanded(url, state, path, compression, expanded_bytes);
  }

 private:
  const RemoteAccess remote_;
  Mutex mutex_;
  std::map<std::string, State> states_ SHARDWISE_GUARDED_BY(mutex_);
};

}  // namespace

RemoteShards::~RemoteShards() = default;

std::vector<std::string> RemoteShards::list(const std::string& url) {
  throw Unsupported("what lies at a URL of this scheme cannot be listed",
                    in_quotes(redacted_url(url)), "name the shards one by one");
}

RemoteAccess remembering_states(RemoteAccess remote, const std::vector<std::string>& shards) {
  auto remembered = std::make_shared<RememberedStates>(std::move(remote));
  std::vector<const std::string*> asked;
  for (const std::string& shard : shards) {
    if (is_fetched_url(shard)) asked.push_back(&shard);
  }
  if (asked.empty()) return remembered;
  std::size_t next = 0;
  OrderedPipeline<const std::string*, bool> pipeline(
      [&]() -> std::optional<const std::string*> {
        if (next == asked.size()) return std::nullopt;
        return asked[next++];
      },
      [&](const std::string* const& url) {
        try {
          remembered->state(*url);
          return true;
        } catch (const Cancelled&) {
          throw;
        } catch (const Error&) {
          return false;  // state() will ask again, and report it
        }
      },
      {.threads = static_cast<unsigned>(std::min<std::size_t>(kAskedAtOnce, asked.size()))});
  while (const auto is_known = pipeline.next()) {
    if (!*is_known) break;  // do not ask a server that is down a thousand times
  }
  return remembered;
}

}  // namespace shardwise::detail
