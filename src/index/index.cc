#include "shardwise/index/index.h"

#include <algorithm>
#include <ctime>
#include <filesystem>

#include "index/index_files.h"
#include "index/key_index.h"
#include "shardwise/base/error.h"
#include "shardwise/base/hash.h"
#include "shardwise/base/text.h"

namespace shardwise {
namespace {

/// The directory of the index at `path`, absolute: shards are looked for in it long after the path
/// was given, when the process may work elsewhere.
std::string home_of(const std::string& path) {
  std::string directory = directory_of(path);
  if (directory[0] == '/') return directory;
  const std::filesystem::path here = std::filesystem::current_path();
  return directory == "." ? here.string() : (here / directory).string();
}

ShardInfo to_info(const std::string& home, std::uint64_t number, const ShardRow& row) {
  return {.number = number,
          .url = row.url,
          .path = resolve_url(home, row.url),
          .size_bytes = row.size_bytes,
          .mtime_ns = row.mtime_ns,
          .validator = row.validator,
          .first_sample = row.first_sample,
          .num_samples = row.num_samples,
          .num_members = row.num_members,
          .num_not_samples = row.num_not_samples,
          .compression = row.compression,
          .expanded_bytes = row.expanded_bytes,
          .content_hash = row.content_hash,
          .header_hash = row.header_hash,
          .first_header_hash = row.first_header_hash};
}

std::string iso_time(std::int64_t ns) {
  const std::time_t seconds = ns / 1'000'000'000 - (ns % 1'000'000'000 < 0 ? 1 : 0);
  std::tm utc{};
  ::gmtime_r(&seconds, &utc);
  char text[40];
  std::strftime(text, sizeof text, "%Y-%m-%d %H:%M:%S", &utc);
  std::string fraction = std::to_string(ns - std::int64_t{seconds} * 1'000'000'000);
  fraction.insert(0, 9 - fraction.size(), '0');
  return std::string(text) + "." + fraction + " UTC";
}

}  // namespace

struct Index::Impl {
  explicit Impl(const std::string& path) : files(path), home(home_of(path)) {}

  void require_shard(std::uint64_t shard) const {
    if (shard < files.header().num_shards) return;
    throw OutOfRange("no such shard",
                     "shard " + std::to_string(shard) + " of " + in_quotes(files.path()),
                     "it has " + std::to_string(files.header().num_shards) + " shards, from 0");
  }

  IndexFiles files;
  const std::string home;
};

Index::Index(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Index::~Index() = default;

std::shared_ptr<const Index> Index::open(const std::string& path) {
  return std::shared_ptr<const Index>(new Index(std::make_unique<Impl>(path)));
}

const std::string& Index::path() const noexcept { return impl_->files.path(); }
std::uint64_t Index::size() const noexcept { return impl_->files.header().num_samples; }
std::uint64_t Index::num_members() const noexcept { return impl_->files.header().num_members; }
std::uint64_t Index::num_shards() const noexcept { return impl_->files.header().num_shards; }
const Hash128& Index::fingerprint() const noexcept {
  return impl_->files.catalogue().meta().fingerprint;
}

std::uint64_t Index::shard_of(std::uint64_t sample) const noexcept {
  const IndexFiles& files = impl_->files;
  const ShardEntry* directory = files.directory();
  std::uint64_t shard = files.hints()[sample >> files.header().hint_shift];
  while (directory[shard + 1].first_sample <= sample) ++shard;
  return shard;
}

std::uint64_t Index::first_sample(std::uint64_t shard) const noexcept {
  return impl_->files.directory()[shard].first_sample;
}

std::vector<std::uint64_t> Index::shard_starts() const {
  std::vector<std::uint64_t> starts(num_shards() + 1);
  for (std::uint64_t i = 0; i < starts.size(); ++i) starts[i] = first_sample(i);
  return starts;
}

ShardInfo Index::shard(std::uint64_t shard) const {
  impl_->require_shard(shard);
  const ShardRow row = impl_->files.catalogue().shard(shard);
  if (row.first_sample != first_sample(shard) ||
      row.num_samples != first_sample(shard + 1) - first_sample(shard)) {
    impl_->files.damaged("catalogue and table disagree on shard " + std::to_string(shard));
  }
  return to_info(impl_->home, shard, row);
}

SegmentView Index::segment(std::uint64_t shard) const {
  impl_->require_shard(shard);
  return impl_->files.segment(shard, impl_->files.catalogue().shard(shard).segment_checksum);
}

/// Calls `found` with the samples that have this key, ascending, until it returns false.
template <class Found>
void Index::for_each_with_key(std::string_view key, const Found& found) const {
  const IndexFiles& files = impl_->files;
  const TableHeader& header = files.header();
  const std::uint64_t hash = hash64(key);
  const std::uint64_t bucket = KeyHash::bucket(hash, header.key_bucket_bits);
  const std::uint64_t begin = files.key_buckets()[bucket];
  const std::uint64_t end = files.key_buckets()[bucket + 1];
  if (begin > end || end > header.num_samples) files.damaged("a key bucket is wrong");
  const std::uint64_t* first = files.key_entries() + begin;
  const std::uint64_t* last = files.key_entries() + end;
  const std::uint64_t tag = KeyHash::tag(hash, header.key_bucket_bits) << KeyHash::kSampleBits;
  constexpr std::uint64_t kSampleMask = (std::uint64_t{1} << KeyHash::kSampleBits) - 1;
  for (const std::uint64_t* entry = std::lower_bound(first, last, tag);
       entry != last && (*entry & ~kSampleMask) == tag; ++entry) {
    const std::uint64_t sample = *entry & kSampleMask;
    if (sample >= header.num_samples) files.damaged("a key entry is wrong");
    const std::uint64_t shard = shard_of(sample);
    if (unchecked_key(shard, sample - first_sample(shard)) == key && !found(sample)) return;
  }
}

std::optional<std::uint64_t> Index::find(std::string_view key) const {
  std::optional<std::uint64_t> first;
  for_each_with_key(key, [&](std::uint64_t sample) {
    first = sample;
    return false;
  });
  return first;
}

std::vector<std::uint64_t> Index::find_all(std::string_view key) const {
  std::vector<std::uint64_t> samples;
  for_each_with_key(key, [&](std::uint64_t sample) {
    samples.push_back(sample);
    return true;
  });
  std::sort(samples.begin(), samples.end());
  return samples;
}

std::string_view Index::catalogue_bytes() const noexcept {
  return impl_->files.catalogue().bytes();
}

std::string_view Index::unchecked_key(std::uint64_t shard, std::uint64_t local) const {
  const IndexFiles& files = impl_->files;
  const auto key = SegmentView::find_key(files.segment_bytes(shard), local);
  if (!key) files.damaged("shard " + std::to_string(shard) + ": a key lies outside its segment");
  return *key;
}

IndexSummary Index::summary() const {
  const Catalogue& catalogue = impl_->files.catalogue();
  const CatalogueMeta& meta = catalogue.meta();
  return {.num_shards = meta.num_shards,
          .num_samples = meta.num_samples,
          .num_members = meta.num_members,
          .shard_bytes = meta.shard_bytes,
          .content_bytes = meta.content_bytes,
          .fingerprint = meta.fingerprint,
          .built_with = meta.built_with,
          .built_at = meta.built_at,
          .policies = meta.policies,
          .columns = meta.columns,
          .has_hashes = meta.has_hashes,
          .keys_are_unique = meta.keys_are_unique,
          .part = meta.part,
          .fields = catalogue.fields(),
          .num_skipped = meta.num_skipped};
}

const std::vector<Column>& Index::columns() const noexcept {
  return impl_->files.catalogue().meta().columns;
}

const BadPolicies& Index::policies() const noexcept {
  return impl_->files.catalogue().meta().policies;
}

bool Index::has_hashes() const noexcept { return impl_->files.catalogue().meta().has_hashes; }

std::vector<SkippedMember> Index::skipped(std::uint64_t limit) const {
  return impl_->files.catalogue().skipped(limit);
}

void Index::check() const {
  const IndexFiles& files = impl_->files;
  files.check_sections();
  for (std::uint64_t shard = 0; shard < num_shards(); ++shard) {
    const SegmentView view = segment(shard);
    for (std::uint32_t i = 0; i < view.num_samples(); ++i) {
      const auto found = find(view.key(i));
      if (!found || *found > first_sample(shard) + i) {
        files.damaged("shard " + std::to_string(shard) + ": a key is not found");
      }
    }
  }
}

void require_unchanged(const ShardInfo& shard, std::uint64_t size_bytes, std::int64_t mtime_ns) {
  constexpr std::string_view kRemedy =
      "run `shardwise index` again (it reads only what changed), or bring the old shard back";
  if (size_bytes != shard.size_bytes) {
    throw StaleIndex("the shard changed since it was indexed",
                     in_quotes(shard.path) + " (" + std::to_string(size_bytes) + " bytes now, " +
                         std::to_string(shard.size_bytes) + " then)",
                     kRemedy);
  }
  if (mtime_ns != shard.mtime_ns) {
    throw StaleIndex("the shard changed since it was indexed",
                     in_quotes(shard.path) + " (modified " + iso_time(mtime_ns) +
                         ", indexed as of " + iso_time(shard.mtime_ns) + ")",
                     kRemedy);
  }
}

}  // namespace shardwise
