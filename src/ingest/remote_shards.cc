#include "ingest/remote_shards.h"

#include <exception>
#include <map>
#include <span>
#include <utility>

#include "base/error_types.h"
#include "base/fork.h"
#include "base/ordered_pipeline.h"
#include "base/text.h"
#include "base/url.h"
#include "shardwise/base/error.h"

namespace shardwise::detail {
namespace {

class RememberedStates : public RemoteShards {
 public:
  explicit RememberedStates(RemoteAccess remote) : remote_(std::move(remote)) {}

  bool runs_commands() const override { return remote_->runs_commands(); }
  std::vector<std::string> list(const std::string& url) override { return remote_->list(url); }
  bool makes_copies() const override { return remote_->makes_copies(); }
  State state(const std::string& url) override {
    Answer answer;
    if (const auto known = find(url)) {
      answer = *known;
    } else {
      try {
        answer.state = remote_->state(url);
      } catch (const Cancelled&) {
        throw;
      } catch (const Error&) {
        answer.failure = std::current_exception();
      }
      const Lock lock(mutex_);
      answers_.emplace(url, answer);
    }
    if (answer.failure) std::rethrow_exception(answer.failure);
    return answer.state;
  }
  std::optional<State> state_if_reached(const std::string& url, std::string& why) override {
    if (find(url)) return state(url);
    return remote_->state_if_reached(url, why);
  }
  /// Requests the states that are not yet known, several at a time.
  void ask_for(std::span<const std::string> shards);
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
  struct Answer {
    State state;
    std::exception_ptr failure;
  };
  std::optional<Answer> find(const std::string& url) {
    const Lock lock(mutex_);
    const auto known = answers_.find(url);
    return known == answers_.end() ? std::nullopt : std::optional(known->second);
  }

  const RemoteAccess remote_;
  Mutex mutex_;
  std::map<std::string, Answer> answers_ SHARDWISE_GUARDED_BY(mutex_);
};

void RememberedStates::ask_for(std::span<const std::string> shards) {
  std::vector<const std::string*> asked;
  for (const std::string& shard : shards) {
    if (is_fetched_url(shard) && !find(shard)) asked.push_back(&shard);
  }
  if (asked.empty()) return;
  std::size_t next = 0;
  OrderedPipeline<const std::string*, bool> pipeline(
      [&]() -> std::optional<const std::string*> {
        if (next == asked.size()) return std::nullopt;
        return asked[next++];
      },
      [&](const std::string* const& url) {
        try {
          state(*url);
        } catch (const Cancelled&) {
          throw;
        } catch (const NotFound&) {  // the shard is missing, but the server responds
        } catch (const Error&) {
          return false;
        }
        return true;
      },
      {.threads = static_cast<unsigned>(std::min<std::size_t>(kAskedAtOnce, asked.size()))});
  while (const auto is_known = pipeline.next()) {
    if (!*is_known) break;  // stop if a server is down
  }
}

}  // namespace

RemoteShards::~RemoteShards() = default;

std::optional<RemoteShards::State> RemoteShards::state_if_reached(const std::string& url,
                                                                  std::string& /*why*/) {
  return state(url);
}

std::vector<std::string> RemoteShards::list(const std::string& url) {
  throw Unsupported("URLs of this scheme cannot be listed", in_quotes(redacted_url(url)),
                    "name the shards one by one");
}

RemoteAccess remembering_states(RemoteAccess remote, std::span<const std::string> shards) {
  auto remembered = std::dynamic_pointer_cast<RememberedStates>(remote);
  if (!remembered) remembered = std::make_shared<RememberedStates>(std::move(remote));
  remembered->ask_for(shards);
  return remembered;
}

}  // namespace shardwise::detail
