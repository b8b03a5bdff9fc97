#include "shardwise/index/index.h"

#include "index/segment_of.h"

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "base/assert.h"
#include "base/counted.h"
#include "base/error_types.h"
#include "base/hasher.h"
#include "base/normal_path.h"
#include "base/spelling.h"
#include "base/text.h"
#include "base/url.h"
#include "index/claimed_index.h"
#include "index/index_files.h"
#include "index/key_index.h"
#include "index/offset_table.h"
#include "index/origin.h"
#include "index/remedies.h"
#include "index/shard_places.h"
#include "index/side_tables.h"
#include "shardwise/base/hash.h"

namespace shardwise {
namespace {

/// Returns the absolute directory of the index at `path`. Shards are looked up in it later, when
/// the process may have another working directory.
std::string home_of(const std::string& path) {
  std::string directory = directory_of(path);
  if (directory[0] == '/') return directory;
  const std::filesystem::path here = working_directory();
  return directory == "." ? here.string() : (here / directory).string();
}

/// Returns the URL from which an index in the directory `home` was fetched; empty if it was not
/// fetched.
std::string origin_in(const std::string& home) {
  if (!is_fetched_folder(home)) return {};
  if (const auto origin = read_origin(home)) return origin->url;
  throw CorruptIndex("the URL of the fetched index is missing", in_quotes(home),
                     "open the index by its URL");
}

std::string iso_time(std::int64_t ns) {
  const std::int64_t seconds = ns / 1'000'000'000 - (ns % 1'000'000'000 < 0 ? 1 : 0);
  std::string text = utc_text(seconds);
  text.replace(text.find('T'), 1, " ");
  text.pop_back();
  std::string fraction = std::to_string(ns - seconds * 1'000'000'000);
  fraction.insert(0, 9 - fraction.size(), '0');
  return text + "." + fraction + " UTC";
}

}  // namespace

std::string to_string(const Index::Part& part) {
  return std::to_string(part.number) + "/" + std::to_string(part.count) + " of " +
         std::to_string(part.num_shards) + " shards";
}

/// An index with its two files, or made from claims (see claimed_index.h).
struct Index::Impl {
  Impl(const std::string& index_path, const Index::Lookup& how)
      : lookup(how),
        files(std::in_place, index_path),
        path(files->path()),
        origin(origin_in(home_of(path))) {
    places.emplace(files->catalogue(), origin.empty() ? home_of(path) : origin, how);
    const TableHeader& header = files->header();
    finder = {files->hints(), files->directory(), header.hint_shift};
    num_samples = header.num_samples;
    num_members = header.num_members;
    num_shards = header.num_shards;
    const Index::Summary& summary = files->catalogue().meta().summary;
    content = summary.content;
    fingerprint = summary.fingerprint;
    side = detail::SideTables(path, content.columns);
  }
  Impl(std::string descriptor, std::vector<detail::ClaimedShard> shards, const Hash128& numbering,
       const DefectPolicies& policies)
      : claims(std::in_place, std::move(shards)), path(std::move(descriptor)) {
    finder = {claims->hints().data(), claims->directory().data(), claims->hint_shift()};
    num_samples = claims->directory().back().first_sample;
    num_shards = claims->directory().size() - 1;
    content.policies = policies;
    fingerprint = numbering;
  }

  /// Errors: Unsupported if the index was made from claims.
  const IndexFiles& records() const {
    if (files) return *files;
    throw Unsupported("the data set has no index, because only a wids descriptor was opened",
                      in_quotes(path), index_descriptor_remedy());
  }

  void require_shard(std::uint64_t shard) const {
    if (shard < num_shards) return;
    throw OutOfRange("no such shard", "shard " + std::to_string(shard) + " of " + in_quotes(path),
                     "choose a shard in [0, " + std::to_string(num_shards) + ")");
  }

  const Index::Lookup lookup;
  std::optional<const IndexFiles> files;
  std::optional<const ShardPlaces> places;
  std::optional<const detail::ClaimedNumbering> claims;
  const std::string path;
  const std::string origin;
  detail::ShardFinder finder{};
  std::uint64_t num_samples = 0;
  std::uint64_t num_members = 0;
  std::uint64_t num_shards = 0;
  Index::Content content;
  Hash128 fingerprint;
  detail::SideTables side;
};

Index::Index(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Index::~Index() = default;

std::shared_ptr<const Index> Index::open(const std::string& path) { return open(path, {}); }

std::shared_ptr<const Index> Index::open(const std::string& path, const Index::Lookup& lookup) {
  Lookup how = lookup;
  how.root = at_home(std::move(how.root));
  how.urls = at_home(std::move(how.urls));
  return std::shared_ptr<const Index>(new Index(std::make_unique<Impl>(path, how)));
}

const std::string& Index::path() const noexcept { return impl_->path; }
const std::string& Index::origin() const noexcept { return impl_->origin; }
const Index::Lookup& Index::lookup() const noexcept { return impl_->lookup; }
std::uint64_t Index::size() const noexcept { return impl_->num_samples; }
std::uint64_t Index::num_members() const noexcept { return impl_->num_members; }
std::uint64_t Index::num_shards() const noexcept { return impl_->num_shards; }
const Hash128& Index::fingerprint() const noexcept { return impl_->fingerprint; }

std::shared_ptr<const Index> detail::IndexAccess::make_claimed(std::string path,
                                                               std::vector<ClaimedShard> shards,
                                                               const Hash128& fingerprint,
                                                               const DefectPolicies& policies) {
  return std::shared_ptr<const Index>(new Index(
      std::make_unique<Index::Impl>(std::move(path), std::move(shards), fingerprint, policies)));
}

bool detail::IndexAccess::has_records(const Index& index) noexcept {
  return index.impl_->files.has_value();
}

void detail::IndexAccess::require_records(const Index& index) {
  static_cast<void>(index.impl_->records());
}

std::optional<std::pair<std::uint64_t, std::uint64_t>> detail::IndexAccess::find_repeated_key(
    const Index& index, const std::function<bool(std::uint64_t)>& counts) {
  const TableView& table = index.impl_->records().table();
  std::optional<std::pair<std::uint64_t, std::uint64_t>> repeated;
  std::vector<std::uint64_t> samples;
  const auto compare = [&](std::span<const std::uint64_t> entries) {
    if (repeated) return;
    samples.clear();
    for (const std::uint64_t entry : entries) {
      const std::uint64_t sample = entry & KeyIndex::kSampleMask;
      if (sample >= index.size()) table.damaged("a key entry is wrong");
      if (!counts || counts(sample)) samples.push_back(sample);
    }
    // The keys are sorted instead of compared in pairs, because an attacker may choose many keys
    // with the same hash.
    const auto key = [&](std::uint64_t sample) { return table.unchecked_key(sample); };
    std::ranges::stable_sort(samples, {}, key);
    const auto twice = std::ranges::adjacent_find(samples, {}, key);
    if (twice != samples.end()) repeated.emplace(*twice, *std::next(twice));
  };
  if (!table.keys().for_each_shared(compare)) table.damaged("the key section is wrong");
  return repeated;
}

std::uint64_t Index::shard_of(std::uint64_t sample) const noexcept {
  SHARDWISE_ASSERT_HOT(sample < size());
  return detail::shard_finder_of(*this).shard_of(sample);
}

detail::ShardFinder detail::shard_finder_of(const Index& index) noexcept {
  return index.impl_->finder;
}

std::uint64_t Index::first_sample(std::uint64_t shard) const noexcept {
  SHARDWISE_ASSERT_HOT(shard <= num_shards());
  return impl_->finder.directory[shard].first_sample;
}

std::vector<std::uint64_t> Index::shard_starts() const {
  std::vector<std::uint64_t> starts(num_shards() + 1);
  for (std::uint64_t i = 0; i < starts.size(); ++i) starts[i] = first_sample(i);
  return starts;
}

Index::Shard Index::shard(std::uint64_t shard) const {
  impl_->require_shard(shard);
  if (impl_->claims) return impl_->claims->shard(shard);
  const IndexFiles& files = impl_->records();
  Index::Shard info = files.catalogue().shard(shard);
  if (info.first_sample != first_sample(shard) ||
      info.num_samples != first_sample(shard + 1) - first_sample(shard)) {
    files.damaged("catalogue and table disagree on shard " + std::to_string(shard));
  }
  info.path = impl_->places->path_of(info.url);
  info.any_time = impl_->lookup.accept_times;
  return info;
}

std::string_view detail::key_of_sample(const Index& index, std::uint64_t sample) {
  return index.impl_->records().table().unchecked_key(sample);
}

const detail::SideTables& detail::side_tables_of(const Index& index) noexcept {
  return index.impl_->side;
}

std::vector<SideTable> Index::side_tables() const {
  std::vector<SideTable> tables;
  for (const auto& table : impl_->side.all()) tables.push_back(table->info());
  return tables;
}

SegmentView detail::segment_of(const Index& index, std::uint64_t shard) {
  const Index::Impl& impl = *index.impl_;
  impl.require_shard(shard);
  const IndexFiles& files = impl.records();
  return files.segment(shard, files.catalogue().shard(shard).segment_checksum);
}

std::optional<std::uint64_t> Index::find(std::string_view key) const {
  std::optional<std::uint64_t> first;
  impl_->records().table().for_each_with_key(key, [&](std::uint64_t sample) {
    first = sample;
    return false;
  });
  return first;
}

std::vector<std::uint64_t> Index::find_all(std::string_view key) const {
  std::vector<std::uint64_t> samples;
  impl_->records().table().for_each_with_key(key, [&](std::uint64_t sample) {
    samples.push_back(sample);
    return true;
  });
  std::sort(samples.begin(), samples.end());
  return samples;
}

Index::Summary Index::summary() const {
  const Catalogue& catalogue = impl_->records().catalogue();
  Index::Summary summary = catalogue.meta().summary;
  summary.fields = catalogue.fields();
  return summary;
}

const Index::Content& Index::content() const noexcept { return impl_->content; }

std::vector<Index::SkippedMember> Index::skipped(std::uint64_t limit) const {
  return impl_->records().catalogue().skipped(limit);
}

void Index::validate(const CancelToken& cancel,
                     const std::function<void(std::uint64_t samples_done)>& progress) const {
  const IndexFiles& files = impl_->records();
  files.check_sections(cancel, [&](std::uint64_t shard, const SegmentView& view) {
    for (std::uint32_t i = 0; i < view.num_samples(); ++i) {
      if (!files.keys().has(hash64(view.key(i)), first_sample(shard) + i)) {
        files.damaged("shard " + std::to_string(shard) + ": a key is not found");
      }
    }
    if (progress) progress(first_sample(shard + 1));
  });
  for (const auto& table : impl_->side.all()) table->validate();
}

void require_unchanged(const Index::Shard& shard, std::uint64_t size_bytes, std::int64_t mtime_ns) {
  const std::string remedy = "run " + spelled("`shardwise index` again") +
                             " (only changed shards are read), or restore the old shard";
  if (size_bytes != shard.size_bytes) {
    throw StaleIndex("the shard changed since it was indexed",
                     in_quotes(without_secrets(shard.path)) + " (" + counted(size_bytes, "byte") +
                         " now, " + human_count(shard.size_bytes) + " when indexed)",
                     remedy);
  }
  if (mtime_ns != shard.mtime_ns && !shard.any_time) {
    throw StaleIndex("the shard changed since it was indexed",
                     in_quotes(shard.path) + " (modified " + iso_time(mtime_ns) + ", " +
                         iso_time(shard.mtime_ns) + " when indexed)",
                     remedy + "; if the shard was only copied, accept the new time with " +
                         spelled("Dataset::Options::accept_times"));
  }
}

}  // namespace shardwise
