#include "storage/cache_futures.h"

#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <ctime>
#include <exception>
#include <filesystem>
#include <utility>

#include "base/hasher.h"
#include "base/lock_holder.h"
#include "base/own_directory.h"
#include "base/text.h"
#include "shardwise/base/error.h"

namespace shardwise::detail {
namespace {

constexpr char kFutureMagic[8] = {'S', 'H', 'A', 'R', 'D', 'W', 'X', '\n'};
constexpr std::uint64_t kFutureVersion = 1;
/// Offset of the slot that the user has reached; only this word changes.
constexpr std::uint64_t kReachedAt = 64;
constexpr std::uint64_t kUsesAt = 128;
constexpr std::uint64_t kMaxUses = 10'000'000;
constexpr std::string_view kFutureSuffix = ".future";
constexpr std::size_t kNameDigits = 16;

struct FutureHeader {
  char magic[8];
  std::uint64_t version;
  std::uint64_t num_uses;
  std::uint64_t slots_before;  // slots that the user completed before slot 0 of this file
  std::int64_t began_ns;
  std::uint64_t bytes_per_slot;
  std::uint64_t uses_hash;
  std::uint64_t checksum;  // hash64 of the preceding members
};
static_assert(sizeof(FutureHeader) == kReachedAt);
static_assert(sizeof(PostedUse) == 32);

std::uint64_t checksum_of(const FutureHeader& header) noexcept {
  return hash64({reinterpret_cast<const char*>(&header), offsetof(FutureHeader, checksum)});
}

std::string_view bytes_of(const std::vector<PostedUse>& uses) noexcept {
  return {reinterpret_cast<const char*>(uses.data()), uses.size() * sizeof(PostedUse)};
}

std::vector<PostedUse> sorted(std::vector<PostedUse> uses) {
  std::sort(uses.begin(), uses.end());
  return uses;
}

std::optional<FutureHeader> read_header(const File& file) {
  FutureHeader header;
  if (file.read_at(0, reinterpret_cast<char*>(&header), sizeof header) < sizeof header ||
      std::memcmp(header.magic, kFutureMagic, sizeof kFutureMagic) != 0 ||
      header.version != kFutureVersion || header.checksum != checksum_of(header) ||
      header.num_uses > kMaxUses) {
    return std::nullopt;
  }
  return header;
}

std::shared_ptr<const UserFuture> read_uses(const File& file, const FutureHeader& header) {
  const std::size_t size = header.num_uses * sizeof(PostedUse);
  const std::uint64_t file_bytes = file_identity(file.fd(), file.path()).size_bytes;
  if (size > 0 && (file_bytes < kUsesAt || file_bytes - kUsesAt < size)) return nullptr;
  std::vector<PostedUse> uses(header.num_uses);
  if (file.read_at(kUsesAt, reinterpret_cast<char*>(uses.data()), size) < size) return nullptr;
  if (hash64(bytes_of(uses)) != header.uses_hash) return nullptr;
  return std::make_shared<const UserFuture>(std::move(uses));
}

/// Returns the user's speed in slots per nanosecond; nullopt while it is unknown.
std::optional<double> speed_of(const UserPace& pace, std::int64_t now_ns) noexcept {
  if (pace.slots_done == 0 || now_ns <= pace.began_ns) return std::nullopt;
  return static_cast<double>(pace.slots_done) / static_cast<double>(now_ns - pace.began_ns);
}

/// Returns how many slots of `mine` pass during one slot of `other`. While either speed is unknown,
/// both users are assumed to read the same number of bytes per second.
double slots_for_one(const UserPace& mine, const UserPace& other, std::int64_t now_ns) noexcept {
  const auto my_speed = speed_of(mine, now_ns);
  const auto its_speed = speed_of(other, now_ns);
  if (my_speed && its_speed) return *my_speed / *its_speed;
  const auto bytes = [](const UserPace& pace) {
    return static_cast<double>(std::max<std::uint64_t>(pace.bytes_per_slot, 1));
  };
  return bytes(other) / bytes(mine);
}

std::uint64_t to_slot(double slot) noexcept {
  constexpr double kMax = 9.0e18;
  return static_cast<std::uint64_t>(std::clamp(slot, 0.0, kMax));
}

/// Models ranks that read the same order: at the end of an epoch each rank waits for the slowest.
class WaitingRanks {
 public:
  WaitingRanks(const UserPace& pace, std::uint64_t hash, const std::vector<OtherUser>& others)
      : waits_at_(pace.waits_at), slowest_(pace.now) {
    for (const OtherUser& other : others) {
      if (other.future->hash() == hash) slowest_ = std::min(slowest_, other.pace.now);
    }
  }
  /// Corrects the estimate `slot` of a rank's position at the time when another rank is at slot
  /// `at`. Once the other rank has passed the end of the epoch, this rank has reached that end,
  /// because the other rank waited for it.
  std::uint64_t from(std::uint64_t slot, std::uint64_t at) const noexcept {
    return at >= waits_at_ ? std::max(slot, waits_at_) : slot;
  }
  /// Returns by how many slots a use is delayed, because the rank waits at the end of the epoch.
  std::uint64_t wait(const NextUse& next, std::uint64_t from, std::uint64_t now) const noexcept {
    const bool waits =
        next.kind == NextUse::Kind::kAt && from < waits_at_ && next.position >= waits_at_;
    return waits ? now - slowest_ : 0;
  }

 private:
  const std::uint64_t waits_at_;
  std::uint64_t slowest_;
};

/// How long a view of the other users may be reused.
constexpr std::int64_t kLookAgainNs = 1'000'000;

/// True for the final or temporary name of a PostedFuture's file.
bool is_of_a_user(std::string_view file) {
  constexpr std::size_t kDigits = 2 * kNameDigits;
  return file.size() > kDigits && is_hex(file.substr(0, kDigits)) &&
         file.substr(kDigits).starts_with(kFutureSuffix);
}

}  // namespace

std::string futures_folder(const std::string& cache_directory) {
  return cache_directory + "/futures";
}

UserFuture::UserFuture(std::vector<PostedUse> uses)
    : uses_(sorted(std::move(uses))), hash_(hash64(bytes_of(uses_))) {}

NextUse UserFuture::next_use(const Hash128& name, std::uint64_t slot,
                             std::uint64_t now) const noexcept {
  const auto first = std::lower_bound(uses_.begin(), uses_.end(), PostedUse{name, 0, 0});
  const auto is_named = [&](auto use) { return use != uses_.end() && use->name == name; };
  if (!is_named(first)) return {};
  const auto next_from = [&](std::uint64_t from) {
    auto use = first;
    while (is_named(use) && use->end <= from) ++use;
    return use;
  };
  const auto next = next_from(slot);
  const auto soonest = next_from(now);
  const bool may_go_now = !is_named(soonest) || soonest->begin >= slot;
  if (!is_named(next)) return {.kind = NextUse::Kind::kNever, .may_go_now = may_go_now};
  if (next->begin <= slot) return {.kind = NextUse::Kind::kInUse, .may_go_now = false};
  return {.kind = NextUse::Kind::kAt, .position = next->begin, .may_go_now = may_go_now};
}

NextUse joint_next_use(NextUse mine, const Hash128& name, std::uint64_t at, const UserPace& pace,
                       std::uint64_t hash, const std::vector<OtherUser>& others,
                       std::int64_t now_ns) {
  const double ahead = at > pace.now ? static_cast<double>(at - pace.now) : 0.0;
  const WaitingRanks ranks(pace, hash, others);
  mine.position += ranks.wait(mine, at, pace.now);
  for (const OtherUser& other : others) {
    if (mine.is_in_use()) break;
    const bool is_rank = other.future->hash() == hash;
    const double factor = is_rank ? 1.0 : slots_for_one(pace, other.pace, now_ns);
    std::uint64_t from =
        to_slot(static_cast<double>(other.pace.now) + ahead / std::max(factor, 1e-9));
    if (is_rank) from = ranks.from(from, at);
    const NextUse its = other.future->next_use(name, from, other.pace.now);
    if (!its.is_known()) continue;
    NextUse seen = its;
    seen.shard = mine.shard;
    if (its.is_in_use()) seen = {.kind = NextUse::Kind::kAt, .position = at, .shard = mine.shard};
    if (its.kind == NextUse::Kind::kAt) {
      seen.position =
          to_slot(static_cast<double>(at) + static_cast<double>(its.position - from) * factor);
      if (is_rank) seen.position += ranks.wait(its, from, other.pace.now);
    }
    seen.may_go_now = its.may_go_now && mine.may_go_now;
    const bool is_sooner = !mine.is_known() || mine.kind == NextUse::Kind::kNever ||
                           (seen.kind == NextUse::Kind::kAt && seen.position < mine.position);
    if (is_sooner) {
      mine = seen;
    } else {
      mine.may_go_now = seen.may_go_now;
    }
  }
  return mine;
}

std::int64_t monotonic_ns() noexcept {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * std::int64_t{1'000'000'000} + now.tv_nsec;
}

Hash128 number_of_name(std::string_view name) noexcept {
  const auto half = [&](std::size_t from) {
    std::uint64_t number = 0;
    for (const char c : name.substr(std::min(from, name.size()), kNameDigits)) {
      number = number << 4 | static_cast<std::uint64_t>(c <= '9' ? c - '0' : c - 'a' + 10);
    }
    return number;
  };
  return {half(0), half(kNameDigits)};
}

PostedFuture::PostedFuture(const std::string& folder, const UserFuture& future,
                           const UserPace& pace)
    : name_(random_name(2 * kNameDigits) + std::string(kFutureSuffix)),
      path_(folder + "/" + name_),
      file_(path_, 0600) {
  share_as_folder(file_.file());
  FutureHeader header{};
  std::memcpy(header.magic, kFutureMagic, sizeof kFutureMagic);
  header.version = kFutureVersion;
  header.num_uses = future.uses().size();
  header.slots_before = pace.slots_done - pace.now;  // may wrap; the reader's addition wraps back
  header.began_ns = pace.began_ns;
  header.bytes_per_slot = pace.bytes_per_slot;
  header.uses_hash = future.hash();
  header.checksum = checksum_of(header);
  file_.file().write_at(kUsesAt, bytes_of(future.uses()));
  file_.file().write_at(0, {reinterpret_cast<const char*>(&header), sizeof header});
  reach(pace.now);
  file_.keep_as(path_);
}

PostedFuture::~PostedFuture() {
  if (file_.file().fd() >= 0) ::unlink(path_.c_str());
}

void PostedFuture::reach(std::uint64_t slot) noexcept {
  if (file_.file().fd() < 0) return;
  try {
    file_.file().write_at(kReachedAt, {reinterpret_cast<const char*>(&slot), sizeof slot});
  } catch (const std::exception&) {  // the other users underestimate this user's speed
  }
}

std::optional<OtherUser> FutureBoard::read(const std::string& path, const std::string& name) {
  const File file = File::open_read(path);
  const auto header = read_header(file);
  if (!header) return std::nullopt;
  std::shared_ptr<const UserFuture> future;
  {
    const Lock lock(mutex_);
    if (const auto known = known_.find(name); known != known_.end()) future = known->second;
  }
  if (!future) future = read_uses(file, *header);
  if (!future) return std::nullopt;
  std::uint64_t reached = 0;
  file.read_at(kReachedAt, reinterpret_cast<char*>(&reached), sizeof reached);
  return OtherUser{future,
                   {.now = reached,
                    .slots_done = header->slots_before + reached,
                    .began_ns = header->began_ns,
                    .bytes_per_slot = header->bytes_per_slot}};
}

std::vector<OtherUser> FutureBoard::others(const std::string& own_file) noexcept {
  std::vector<OtherUser> found;
  try {
    std::unordered_map<std::string, std::shared_ptr<const UserFuture>> known;
    // A member of the group may have replaced the folder with a link to a folder of this user.
    // Do not remove files there.
    if (std::filesystem::is_symlink(folder_)) return found;
    for (const auto& entry : std::filesystem::directory_iterator(folder_)) {
      const std::string path = entry.path();
      const std::string name = entry.path().filename();
      if (name == own_file || !is_of_a_user(name) || sweep_temporary(path) ||
          !name.ends_with(kFutureSuffix)) {
        continue;
      }
      try {
        if (auto other = read(path, name)) {
          known.emplace(name, other->future);
          found.push_back(*std::move(other));
        }
      } catch (const Error&) {  // the file's user has ended, or no descriptor is free
      }
    }
    const Lock lock(mutex_);
    known_ = std::move(known);
  } catch (const std::exception&) {  // return the users found so far
  }
  return found;
}

std::vector<std::pair<std::int64_t, OtherUser>> FutureBoard::users_by_process() noexcept {
  std::vector<std::pair<std::int64_t, OtherUser>> found;
  try {
    for (const auto& [name, pid] : processes_with_files_in(folder_)) {
      if (!name.ends_with(kFutureSuffix)) continue;
      try {
        if (auto user = read(folder_ + "/" + name, name)) found.emplace_back(pid, *std::move(user));
      } catch (const Error&) {  // the file's user has ended
      }
    }
  } catch (const std::exception&) {  // return the users found so far
  }
  return found;
}

CacheUser::CacheUser(const std::string& cache_directory, std::vector<PostedUse> uses,
                     const UserPace& pace)
    : future_(std::move(uses)),
      begun_(pace),
      now_(pace.now),
      board_(futures_folder(cache_directory)) {
  try {
    make_directory(futures_folder(cache_directory));
    posted_ = std::make_unique<PostedFuture>(futures_folder(cache_directory), future_, pace);
  } catch (const Error&) {  // the other users do not learn this user's future
  }
}

void CacheUser::reach(std::uint64_t slot) noexcept {
  now_.store(slot, std::memory_order_relaxed);
  if (posted_) posted_->reach(slot);
}

UserPace CacheUser::pace() const noexcept {
  UserPace pace = begun_;
  pace.now = now_.load(std::memory_order_relaxed);
  pace.slots_done += pace.now - begun_.now;
  return pace;
}

CacheUser::Others CacheUser::others() const {
  const std::int64_t now_ns = monotonic_ns();
  {
    const Lock lock(mutex_);
    if (others_ && now_ns - looked_ns_ < kLookAgainNs) return others_;
  }
  auto seen = std::make_shared<const std::vector<OtherUser>>(
      board_.others(posted_ ? posted_->file_name() : std::string()));
  const Lock lock(mutex_);
  looked_ns_ = now_ns;
  others_ = seen;
  return seen;
}

NextUse CacheUser::joint(const NextUse& mine, const std::string& name, std::uint64_t at) const {
  const Others known = others();
  if (known->empty()) return mine;
  return joint_next_use(mine, number_of_name(name), at, pace(), future_.hash(), *known,
                        monotonic_ns());
}

}  // namespace shardwise::detail
