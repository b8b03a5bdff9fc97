#include "data/claimed_shards.h"

#include <cstring>
#include <utility>

#include "base/error_types.h"
#include "base/fault_point.h"
#include "base/file.h"
#include "base/hasher.h"
#include "base/mapped_file.h"
#include "base/text.h"
#include "base/url.h"
#include "index/remedies.h"
#include "index/segment_of.h"
#include "ingest/shard_scan.h"
#include "ingest/wids_claims.h"
#include "shardwise/index/defect_policies.h"
#include "tar/tar_scanner.h"

namespace shardwise::detail {
namespace {

/// The start of a note's text. The segment follows it.
struct NoteStart {
  std::uint64_t header_hash_high;
  std::uint64_t header_hash_low;
  std::uint64_t made_by;
  std::uint64_t shard_bytes;
};
static_assert(sizeof(NoteStart) == 32);

/// Keeps a shard's records alive. They are in a note, or in a scan's result if the note could not
/// be stored.
struct OwnRecords {
  std::optional<Note> note;
  std::string text;
};

std::uint64_t hash_of_making(const DefectPolicies& policies) {
  return hash64("segment " + std::to_string(kIndexVersion) + " " + to_string(policies));
}

/// True for an error that may occur because the cached shard belongs to an older descriptor.
bool may_be_outdated(ErrorCode code) noexcept {
  return code == ErrorCode::kMismatch || code == ErrorCode::kCorruptShard ||
         code == ErrorCode::kUnsupported;
}

void require_plain(const std::string& path, const std::string& url) {
  char first[kTarBlockBytes];
  const std::size_t size = File::open_read(path).read_at(0, first, sizeof first);
  const Compression compression = shard_compression({first, size});
  if (compression == Compression::kNone) return;
  throw Unsupported("the shard is compressed (" + std::string(compression_name(compression)) +
                        "), and reading it needs an index",
                    in_quotes(redacted_url(url)), index_descriptor_remedy());
}

}  // namespace

ClaimedShards::ClaimedShards(std::shared_ptr<const Index> index, std::string descriptor,
                             std::vector<WidsDescriptor::Shard> shards)
    : index_(std::move(index)),
      descriptor_(std::move(descriptor)),
      shards_(std::move(shards)),
      made_by_(hash_of_making(index_->content().policies)) {}

CacheRequest ClaimedShards::request(std::uint64_t shard) const {
  return request(shard, std::make_shared<std::string>(), {});
}

/// @param scanned  receives the note's text if the shard is fetched by this request.
CacheRequest ClaimedShards::request(std::uint64_t shard, std::shared_ptr<std::string> scanned,
                                    const CancelToken& cancel) const {
  CacheRequest request{.source = {.url = shards_[shard].path}, .cancel = cancel};
  request.admission.check = [this, shard, scanned, cancel](const std::string& path) {
    *scanned = scan(shard, path, cancel);
  };
  request.admission.make_note = [scanned] { return *scanned; };
  return request;
}

/// Scans the copy of the shard at `path`, and checks it against the descriptor's claims. Returns
/// the text of the shard's note.
std::string ClaimedShards::scan(std::uint64_t shard, const std::string& path,
                                const CancelToken& cancel) const {
  const WidsDescriptor::Shard& claimed = shards_[shard];
  const std::uint64_t size_bytes = file_identity(path).size_bytes;
  // Check the size first, because a wrong size makes the other results meaningless.
  require_claimed(descriptor_, claimed, size_bytes, claimed.num_samples);
  require_plain(path, claimed.path);
  SHARDWISE_FAULT_POINT("claimed_shards.scan");
  const ShardPart part = scan_shard({.path = claimed.path, .copy = path},
                                    {.policies = index_->content().policies, .cancel = cancel});
  require_claimed(descriptor_, claimed, size_bytes, part.row.num_samples);
  const NoteStart start{.header_hash_high = part.row.header_hash.high,
                        .header_hash_low = part.row.header_hash.low,
                        .made_by = made_by_,
                        .shard_bytes = size_bytes};
  return std::string(reinterpret_cast<const char*>(&start), sizeof start) + part.segment;
}

/// Returns the records in a note's text after checking them completely; nullopt if the note belongs
/// to a shard of another size, or was made by other rules.
std::optional<ClaimedShards::Records> ClaimedShards::read(std::string_view text,
                                                          std::uint64_t shard_bytes) const {
  NoteStart start;
  if (text.size() < sizeof start) return std::nullopt;
  std::memcpy(&start, text.data(), sizeof start);
  if (start.made_by != made_by_ || start.shard_bytes != shard_bytes) return std::nullopt;
  std::string why;
  const auto segment = SegmentView::check(text.substr(sizeof start), &why);
  if (!segment || segment->num_columns() != 0 || segment->has_member_hashes() ||
      !segment->fits_shard(shard_bytes)) {
    return std::nullopt;
  }
  return Records{*segment, {start.header_hash_high, start.header_hash_low}};
}

/// @param scanned  the note's text if the shard was just fetched; otherwise empty.
void ClaimedShards::add_records(OpenShard& to, std::uint64_t shard, std::string scanned,
                                const CancelToken& cancel) {
  auto own = std::make_shared<OwnRecords>();
  std::optional<Records> records;
  const auto probe = [&] {
    own->note = CacheAccess::note_of(to.cached);
    if (own->note) records = read(own->note->bytes, to.size_bytes());
  };
  probe();
  if (!records) {
    own->text = scanned.empty() ? scan(shard, to.cached.path(), cancel) : std::move(scanned);
    CacheAccess::write_note(to.cached, own->text);
    // Prefer the stored note: all processes share its mapping, so it costs this process no memory.
    probe();
  }
  if (!records) records = read(own->text, to.size_bytes());
  if (!records) {
    throw StaleIndex("the shard changed while it was read", in_quotes(redacted_url(to.path)),
                     "try again");
  }
  require_claimed(descriptor_, shards_[shard], to.size_bytes(), records->segment.num_samples());
  require_same(shard, {records->header_hash,
                       own->note ? std::optional(own->note->shard_hash) : std::nullopt});
  to.segment = records->segment;
  to.own_records = std::move(own);
}

void ClaimedShards::require_same(std::uint64_t shard, const Seen& now) {
  {
    const Lock lock(mutex_);
    Seen& seen = seen_.try_emplace(shard, now).first->second;
    const bool is_known = seen.shard_hash && now.shard_hash;
    if (seen.header_hash == now.header_hash && (!is_known || seen.shard_hash == now.shard_hash)) {
      if (!seen.shard_hash) seen.shard_hash = now.shard_hash;
      return;
    }
  }
  throw StaleIndex("the shard changed since this dataset first read it",
                   in_quotes(redacted_url(shards_[shard].path)),
                   "open the dataset again, or restore the old shard");
}

std::unique_ptr<const OpenShard> ClaimedShards::open(std::uint64_t number,
                                                     const ShardOpening& how) {
  for (bool again = false;; again = true) {
    auto shard = std::make_unique<OpenShard>();
    shard->index = index_;
    shard->first_sample = index_->first_sample(number);
    shard->path = shards_[number].path;
    const auto scanned = std::make_shared<std::string>();
    CacheRequest asked = request(number, scanned, how.cancel);
    asked.admission.fetch_again = again;
    shard->cached = CacheAccess::get(*how.cache, asked, how.next_use);
    const bool was_fetched = !scanned->empty();
    try {
      shard->map = shard->cached.map();
      add_records(*shard, number, std::move(*scanned), how.cancel);
    } catch (const Error& e) {
      if (again || was_fetched || !may_be_outdated(e.code())) throw;
      continue;
    }
    shard->cached.share_with_children();
    shard->data = shard->map->bytes().data();
    shard->stored_bytes = shard->size_bytes();
    return shard;
  }
}

}  // namespace shardwise::detail
