#include "libtorch/rendezvous_store.h"

#ifdef SHARDWISE_HAVE_GLOO

#include "shardwise/base/error.h"

namespace shardwise::libtorch::detail {
namespace {

[[noreturn]] void throw_not_here(const std::string& what) {
  throw Error(ErrorCode::kDistributed, "the store for connecting the ranks cannot " + what, "",
              "create another c10d store");
}

}  // namespace

/// Makes the rendezvous accessible during one call.
class RendezvousStore::Use {
 public:
  explicit Use(RendezvousStore& store) : store_(store) {
    const Lock lock(store_.mutex_);
    if (store_.meeting_ == nullptr) throw_not_here("be used after the ranks are connected");
    meeting_ = store_.meeting_;
    store_.in_use_ = true;
  }
  ~Use() {
    const Lock lock(store_.mutex_);
    store_.in_use_ = false;
  }
  Use(const Use&) = delete;
  Use& operator=(const Use&) = delete;
  shardwise::detail::Rendezvous* operator->() const noexcept { return meeting_; }

 private:
  RendezvousStore& store_;
  shardwise::detail::Rendezvous* meeting_ = nullptr;
};

void RendezvousStore::look() {
  const Lock lock(mutex_);
  if (in_use_ || meeting_ == nullptr) return;
  try {
    meeting_->look();
  } catch (...) {
    meeting_ = nullptr;
    throw;
  }
}

void RendezvousStore::close() noexcept {
  const Lock lock(mutex_);
  meeting_ = nullptr;
}

void RendezvousStore::set(const std::string& key, const std::vector<std::uint8_t>& value) {
  Use(*this)->set(key, std::string(value.begin(), value.end()));
}

std::vector<std::uint8_t> RendezvousStore::get(const std::string& key) {
  const std::string value = Use(*this)->get(key);
  return {value.begin(), value.end()};
}

bool RendezvousStore::check(const std::vector<std::string>& keys) {
  const Use meeting(*this);
  for (const std::string& key : keys) {
    if (!meeting->has(key)) return false;
  }
  return true;
}

void RendezvousStore::wait(const std::vector<std::string>& keys) {
  const Use meeting(*this);
  for (const std::string& key : keys) static_cast<void>(meeting->get(key));
}

/// The timeout is ignored, because the rendezvous has an earlier deadline, or the same.
void RendezvousStore::wait(const std::vector<std::string>& keys, const std::chrono::milliseconds&) {
  wait(keys);
}

std::int64_t RendezvousStore::add(const std::string&, std::int64_t) { throw_not_here("add"); }
bool RendezvousStore::deleteKey(const std::string&) { throw_not_here("delete"); }
std::int64_t RendezvousStore::getNumKeys() { throw_not_here("count its keys"); }
c10::intrusive_ptr<c10d::Store> RendezvousStore::clone() { throw_not_here("be cloned"); }

}  // namespace shardwise::libtorch::detail

#endif
