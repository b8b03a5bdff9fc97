#include "shardwise/ingest/index_builder.h"

#include <unistd.h>

#include <algorithm>
#include <ctime>
#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <unordered_map>
#include <utility>

#include "index/catalogue.h"
#include "index/index_files.h"
#include "index/table_writer.h"
#include "ingest/build_journal.h"
#include "ingest/distinct_shards.h"
#include "ingest/shard_scan.h"
#include "shardwise/base/error.h"
#include "shardwise/base/fault_point.h"
#include "shardwise/base/file.h"
#include "shardwise/base/hash.h"
#include "shardwise/base/ordered_pipeline.h"
#include "shardwise/base/text.h"
#include "shardwise/base/url.h"
#include "shardwise/ingest/source_list.h"

namespace shardwise {
namespace {

std::string now_utc() {
  const std::time_t now = std::time(nullptr);
  std::tm utc{};
  ::gmtime_r(&now, &utc);
  char text[32];
  std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &utc);
  return text;
}

/// Of everything that decides what the scan of a shard gives.
std::uint64_t scan_options_hash(const IndexContent& content) {
  std::string text = std::to_string(kIndexVersion) + " " + to_string(content.policies) +
                     (content.hashes ? " hashes" : "");
  for (const Column& column : content.columns) text += "\n" + to_string(column);
  return hash64(text);
}

bool scans_alike(const IndexContent& a, const IndexContent& b) {
  return scan_options_hash(a) == scan_options_hash(b);
}

/// An index whose shards' records are taken over.
struct Donor {
  explicit Donor(const std::string& path) : files(path), home(directory_of(files.path())) {
    files.check_sections();
    for (SkippedMember& member : files.catalogue().skipped(UINT64_MAX)) {
      skipped[member.shard].push_back(std::move(member));
    }
  }
  const IndexSummary& summary() const noexcept { return files.catalogue().meta().summary; }
  const std::vector<std::string>& sources() const noexcept {
    return files.catalogue().meta().sources;
  }

  IndexFiles files;
  std::string home;
  std::map<std::uint64_t, std::vector<SkippedMember>> skipped;  // by shard
};

/// A shard to be put into the index: where it is, what it looks like now, and what has it already.
struct Source {
  ShardPlace place;
  std::string url;
  std::uint64_t size_bytes = 0;
  std::int64_t mtime_ns = 0;  ///< of a local file
  const Donor* donor = nullptr;
  std::uint64_t donor_shard = 0;
};

/// True if it can be said whether the shard is still the one that was scanned.
bool is_known(const Source& source) {
  return source.place.remote == nullptr ||
         (source.place.state.size_bytes && !source.place.state.validator.empty());
}

void add_if_there(const std::string& shard, DistinctShards& named) {
  if (is_fetched_url(shard)) return named.add_url(shard);
  std::error_code failed;
  if (std::filesystem::is_regular_file(shard, failed)) named.add_file(shard, file_identity(shard));
}

/// Looks at a shard without reading it. Errors: NotFound, kIo; Unsupported; InvalidArgument if it
/// is among `named`; those of `remote`.
Source look_at(const std::string& shard, const std::string& index_path,
               const std::shared_ptr<RemoteShards>& remote, DistinctShards& named) {
  Source source;
  source.place.path = shard;
  source.url = url_of_path(index_path, shard);
  if (!is_fetched_url(shard)) {
    const FileIdentity identity = file_identity(shard);
    named.add_file(shard, identity);
    source.size_bytes = identity.size_bytes;
    source.mtime_ns = identity.mtime_ns;
    return source;
  }
  if (!remote) {
    throw Unsupported("a remote shard, and nothing to bring it", in_quotes(redacted_url(shard)),
                      "give BuildOptions::remote");
  }
  named.add_url(shard);
  source.place.remote = remote.get();
  source.place.state = remote->state(shard);
  source.size_bytes = source.place.state.size_bytes.value_or(0);
  return source;
}

/// Opens the index that is at `path` already, to take over what did not change. Nothing if there is
/// none, or none that is whole and of this version: then all is scanned.
std::unique_ptr<Donor> open_old_index(const std::string& path) {
  if (::access(path.c_str(), F_OK) != 0) return nullptr;
  if (!Catalogue::looks_like_one(path)) {
    throw InvalidArgument("will not replace a file that is no Shardwise index", in_quotes(path),
                          "choose another name for the index, or remove the file");
  }
  try {
    return std::make_unique<Donor>(path);
  } catch (const CorruptIndex&) {
    return nullptr;
  } catch (const VersionMismatch&) {
    return nullptr;
  }
}

/// Puts shards' parts one behind the other into new index files.
class Assembly {
 public:
  Assembly(const std::string& path, const IndexContent& content,
           const std::optional<IndexPart>& part, std::vector<std::string> sources, bool is_secret)
      : table_(path), catalogue_(path), sources_(std::move(sources)) {
    if (is_secret) {
      table_.make_private();
      catalogue_.make_private();
    }
    summary_.content = content;
    summary_.part = part;
  }

  /// The part's row has its url.
  void append(ShardPart& part) {
    ShardInfo& row = part.row;
    row.first_sample = summary_.num_samples;
    table_.append(part.segment, part.key_hashes);
    catalogue_.add_shard(row);
    for (SkippedMember& member : part.skipped) {
      member.shard = urls_.size();
      catalogue_.add_skipped(member);
    }
    for (const FieldInfo& field : part.fields) {
      FieldInfo& total = fields_[field.name];
      total.name = field.name;
      total.num_members += field.num_members;
      total.bytes += field.bytes;
      summary_.content_bytes += field.bytes;
    }
    fingerprint_.update_u64(row.expanded_bytes);
    fingerprint_.update_u64(row.header_hash.high);
    fingerprint_.update_u64(row.header_hash.low);
    fingerprint_.update_u64(row.num_samples);
    fingerprint_.update_u64(row.num_members);
    summary_.num_samples += row.num_samples;
    summary_.num_members += row.num_members;
    summary_.shard_bytes += row.size_bytes;
    summary_.num_skipped += part.skipped.size();
    urls_.push_back(row.url);
  }

  std::uint64_t num_samples() const noexcept { return summary_.num_samples; }

  /// The moment at which the new index exists.
  void commit() {
    table_.commit(summary_.content.unique_keys,
                  [&](std::uint64_t shard) { return without_secrets(urls_[shard]); });
    for (const auto& [name, field] : fields_) catalogue_.add_field(field);
    summary_.fingerprint = fingerprint_.digest();
    summary_.built_with = "shardwise " SHARDWISE_VERSION;
    summary_.built_at = now_utc();
    summary_.num_shards = table_.header().num_shards;
    catalogue_.commit({.table_file = table_.path().substr(table_.path().rfind('/') + 1),
                       .table_checksum = table_.header().header_checksum,
                       .num_fields = fields_.size(),
                       .sources = sources_,
                       .summary = summary_});
    SHARDWISE_FAULT_POINT("build.committed");
  }

 private:
  TableWriter table_;
  CatalogueWriter catalogue_;
  std::vector<std::string> urls_;
  std::map<std::string, FieldInfo> fields_;
  const std::vector<std::string> sources_;
  IndexSummary summary_;
  Hasher128 fingerprint_;
};

/// What building and merging have in common: sources in, index out.
class Build {
 public:
  /// @param words  what the shards were named by, as the index keeps it.
  Build(const std::string& path, const BuildOptions& options, IndexContent content,
        const std::optional<IndexPart>& part, std::vector<std::string> words)
      : path_(path),
        options_(options),
        content_(std::move(content)),
        part_(part),
        words_(std::move(words)) {
    sweep_temporaries(path_);
    report_.without_value.resize(content_.columns.size());
  }

  void add(Source source) {
    throw_if_cancelled(options_.cancel);
    progress_.num_bytes += source.size_bytes;
    sources_.push_back(std::move(source));
  }

  /// Notes a shard that is not there and shall be left out.
  void drop(const std::string& path) { report_.dropped.push_back(path); }
  void set_gone(std::vector<std::string> paths) { report_.gone = std::move(paths); }

  BuildReport run(const Donor* old) {
    progress_.num_shards = sources_.size();
    BuildJournal journal(path_, scan_options_hash(content_),
                         {options_.journal_bytes, options_.journal_age, holds_secrets()});
    if (nothing_changed(old)) {
      sync_directory_of(path_);  // the build that made it may have been killed before it did
      report_unchanged(*old);
    } else {
      assemble(journal);
    }
    journal.remove();
    sweep_tables(path_, old == nullptr ? std::string() : old->files.catalogue().meta().table_file);
    report_.summary = Index::open(path_)->summary();
    return std::move(report_);
  }

 private:
  bool holds_secrets() const {
    const auto is_secret = [](const std::string& url) { return without_secrets(url) != url; };
    return std::any_of(words_.begin(), words_.end(), is_secret) ||
           std::any_of(sources_.begin(), sources_.end(),
                       [&](const Source& source) { return is_secret(source.url); });
  }

  bool nothing_changed(const Donor* old) const {
    if (old == nullptr || old->summary().num_shards != sources_.size() ||
        old->summary().content != content_ || old->summary().part != part_ ||
        old->sources() != words_) {
      return false;
    }
    for (std::uint64_t i = 0; i < sources_.size(); ++i) {
      if (sources_[i].donor != old || sources_[i].donor_shard != i) return false;
    }
    return true;
  }

  void report_unchanged(const Donor& old) {
    progress_.shards_done = sources_.size();
    progress_.samples = old.summary().num_samples;
    progress_.bytes_done = progress_.num_bytes;
    for (std::uint64_t i = 0; i < sources_.size(); ++i) {
      const ShardInfo row = old.files.catalogue().shard(i);
      note(i, row);
      if (!content_.columns.empty()) count_nulls(old.files.segment(i, row.segment_checksum));
    }
    report_.shards_reused = sources_.size();
    if (options_.progress) options_.progress(progress_);
  }

  /// Scans on all threads, and appends the parts in shard order.
  void assemble(BuildJournal& journal) {
    Assembly assembly(path_, content_, part_, words_, holds_secrets());
    const unsigned wanted = options_.num_threads != 0
                                ? options_.num_threads
                                : std::max(1U, std::thread::hardware_concurrency());
    const auto threads = static_cast<unsigned>(std::clamp<std::size_t>(sources_.size(), 1, wanted));
    std::size_t next = 0;
    OrderedPipeline<const Source*, ShardPart> pipeline(
        [&]() -> std::optional<const Source*> {
          if (next == sources_.size()) return std::nullopt;
          return &sources_[next++];
        },
        [&](const Source* const& source) { return make_part(*source, journal); },
        {.num_threads = threads, .prefetch = std::size_t{2} * threads});
    while (auto part = pipeline.next()) {
      throw_if_cancelled(options_.cancel);
      if (!part->reused || part->resumed) journal.add(*part);
      append(*std::move(part), assembly);
    }
    throw_if_cancelled(options_.cancel);
    assembly.commit();
  }

  /// Counts all of the shard's bytes, as they are gone through. On any thread.
  ShardPart make_part(const Source& source, const BuildJournal& journal) {
    SHARDWISE_FAULT_POINT("build.scan_shard");
    throw_if_cancelled(options_.cancel);
    std::uint64_t counted = 0;
    ShardPart part = make_part(source, journal, [&](std::uint64_t stored_bytes) {
      const std::uint64_t at = std::min(stored_bytes, source.size_bytes);
      if (at > counted) advance(at - std::exchange(counted, at));
    });
    const std::lock_guard lock(progress_mutex_);
    progress_.bytes_done += part.row.size_bytes - counted;
    return part;
  }

  void advance(std::uint64_t num_bytes) {
    const std::lock_guard lock(progress_mutex_);
    progress_.bytes_done += num_bytes;
    if (options_.progress) options_.progress(progress_);
  }

  ShardPart make_part(const Source& source, const BuildJournal& journal,
                      const std::function<void(std::uint64_t)>& progress) const {
    if (source.donor != nullptr) return part_of(*source.donor, source.donor_shard, source.url);
    if (is_known(source)) {
      if (auto part = journal.find(source.url,
                                   {.size_bytes = source.size_bytes, .mtime_ns = source.mtime_ns},
                                   source.place.state.validator)) {
        return *std::move(part);
      }
    }
    ShardPart part = scan_shard(source.place, {.policies = content_.policies,
                                               .columns = content_.columns,
                                               .hash = content_.hashes,
                                               .temporary = path_,
                                               .cancel = options_.cancel,
                                               .progress = progress});
    part.row.url = source.url;
    return part;
  }

  static ShardPart part_of(const Donor& donor, std::uint64_t shard, const std::string& url) {
    ShardPart part;
    part.row = donor.files.catalogue().shard(shard);
    part.row.url = url;
    const SegmentView view = donor.files.segment(shard, part.row.segment_checksum);
    part.segment = donor.files.segment_bytes(shard);
    part.key_hashes = hash_keys(view);
    part.fields = count_fields(view);
    if (const auto it = donor.skipped.find(shard); it != donor.skipped.end()) {
      part.skipped = it->second;
    }
    part.reused = true;
    return part;
  }

  void append(ShardPart part, Assembly& assembly) {
    assembly.append(part);
    std::string ignored;
    if (!content_.columns.empty()) count_nulls(*SegmentView::check(part.segment, &ignored));
    const std::lock_guard lock(progress_mutex_);
    note(progress_.shards_done, part.row);
    ++(part.reused ? report_.shards_reused : report_.shards_scanned);
    if (part.resumed) ++report_.shards_resumed;
    ++progress_.shards_done;
    progress_.samples = assembly.num_samples();
    if (options_.progress) options_.progress(progress_);
  }

  void count_nulls(const SegmentView& segment) {
    for (std::uint32_t column = 0; column < content_.columns.size(); ++column) {
      for (std::uint32_t i = 0; i < segment.num_samples(); ++i) {
        if (segment.value(column, i).type == ValueType::kNull) ++report_.without_value[column];
      }
    }
  }

  void note(std::uint64_t number, const ShardInfo& row) {
    report_.num_not_samples += row.num_not_samples;
    if (!row.end_marker) report_.without_end_marker.push_back(number);
    if (row.num_archives > 1) report_.concatenated.push_back(number);
    if (row.trailing_bytes > 0) report_.with_trailing_bytes.push_back(number);
    if (row.unchecked) report_.without_checksum.push_back(number);
  }

  const std::string path_;
  const BuildOptions& options_;
  const IndexContent content_;
  const std::optional<IndexPart> part_;
  const std::vector<std::string> words_;
  std::vector<Source> sources_;
  std::mutex progress_mutex_;
  BuildProgress progress_;  // guarded by progress_mutex_ while shards are scanned
  BuildReport report_;
};

void require_valid(const std::string& path, const std::vector<std::string>& shards,
                   const BuildOptions& options) {
  if (shards.empty()) {
    throw InvalidArgument("no shards to index", in_quotes(path), "name at least one shard");
  }
  for (std::size_t i = 0; i < options.content.columns.size(); ++i) {
    for (std::size_t j = 0; j < i; ++j) {
      if (options.content.columns[i].name != options.content.columns[j].name) continue;
      throw InvalidArgument("two metadata columns have one name",
                            in_quotes(options.content.columns[i].name),
                            "name one of them otherwise: NAME=FIELD:JSONPATH");
    }
  }
  const BadPolicies& policies = options.content.policies;
  if (policies.damage == OnBad::kKeep || policies.no_field == OnBad::kKeep ||
      policies.duplicate_field == OnBad::kKeep) {
    throw InvalidArgument("the policy `keep` is for repeated keys only", in_quotes(path),
                          "take `error` or `skip`");
  }
  if (options.part && (options.part->number < 1 || options.part->number > options.part->count)) {
    throw InvalidArgument("no part " + std::to_string(options.part->number) + " of " +
                              std::to_string(options.part->count),
                          in_quotes(path), "parts are numbered from 1: 1/4, 2/4, 3/4, 4/4");
  }
}

/// The part's place in the index of all `shards`, and what tells that one from others: every
/// shard's url, in order.
IndexPart part_of(const BuildPart& part, const std::string& path,
                  const std::vector<std::string>& shards) {
  Hasher128 hasher;
  for (const std::string& shard : shards) {
    const std::string url = url_of_path(path, shard);
    hasher.update_u64(url.size());
    hasher.update(url);
  }
  return {part.number, part.count, shards.size(), hasher.digest()};
}

const IndexPart& require_part(const Donor& donor) {
  if (donor.summary().part) return *donor.summary().part;
  throw Mismatch("an index that is no part of one", in_quotes(donor.files.path()),
                 "merge what `shardwise index --part I/N` built");
}

/// The parts in order. Errors: Mismatch unless they are all parts of one index.
void sort_parts(std::vector<std::unique_ptr<Donor>>& parts) {
  std::sort(parts.begin(), parts.end(), [](const auto& a, const auto& b) {
    return require_part(*a).number < require_part(*b).number;
  });
  const IndexPart first = require_part(*parts[0]);
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const IndexPart& part = require_part(*parts[i]);
    const std::string where = in_quotes(parts[i]->files.path());
    if (part.count != first.count || part.num_shards != first.num_shards) {
      throw Mismatch("a part of another index: " + to_string(part), where,
                     "the others are like " + to_string(first) + ", which is " +
                         in_quotes(parts[0]->files.path()));
    }
    if (part.list_hash != first.list_hash) {
      throw Mismatch("a part of another index: its list of shards is not that of " +
                         in_quotes(parts[0]->files.path()),
                     where,
                     "build all parts of the same shards, named in the same order, each index in "
                     "the same place relative to them");
    }
    if (parts[i]->summary().content != parts[0]->summary().content) {
      throw Mismatch("a part that was built with other options", where,
                     "build all parts with the same policies, columns and hashes");
    }
    if (part.number < i + 1) {
      throw Mismatch("part " + std::to_string(part.number) + " is named twice", where,
                     "name each part once");
    }
    if (part.number > i + 1) {
      throw Mismatch(
          "part " + std::to_string(i + 1) + " of " + std::to_string(first.count) + " is missing",
          where, "name all parts");
    }
  }
  if (parts.size() < first.count) {
    throw Mismatch("part " + std::to_string(parts.size() + 1) + " of " +
                       std::to_string(first.count) + " is missing",
                   in_quotes(parts.back()->files.path()), "name all parts");
  }
}

std::vector<std::string> resolved_sources(const std::string& home, const CatalogueMeta& meta) {
  std::vector<std::string> words;
  for (const std::string& word : meta.sources) words.push_back(resolve_url(home, word));
  return words;
}

/// How a word of SourceList::sources is kept: as url_of_path, where what comes before the first
/// character of a pattern is a path.
std::string kept_word(const std::string& index_path, const std::string& word) {
  if (is_fetched_url(word)) return word;
  const std::size_t slash = word.rfind('/', word.find_first_of("*?[{"));
  const bool is_pattern = word.find_first_of("*?[{") != std::string::npos;
  if (!is_pattern) return url_of_path(index_path, word);
  // The pattern itself stays as it is: "*/.." is not the folder before it.
  const std::string folder = slash == std::string::npos ? "." : word.substr(0, slash + 1);
  const std::string pattern = slash == std::string::npos ? word : word.substr(slash + 1);
  const std::string kept = url_of_path(index_path, folder);
  return kept == "." ? "./" + pattern : kept + (kept.ends_with('/') ? "" : "/") + pattern;
}

/// The words that all parts were named by, as the index at `path` keeps them; none if they differ.
std::vector<std::string> common_words(const std::string& path,
                                      const std::vector<std::unique_ptr<Donor>>& parts) {
  std::vector<std::string> common;
  for (const auto& part : parts) {
    std::vector<std::string> words = resolved_sources(part->home, part->files.catalogue().meta());
    for (std::string& word : words) word = kept_word(path, word);
    if (part == parts.front()) common = words;
    if (words != common) return {};
  }
  return common;
}

/// A wrong path, or a disk that is not there, must not make an empty index of a good one.
void require_any(const std::vector<Source>& found, const std::vector<std::string>& missing) {
  if (!found.empty() || missing.empty()) return;
  const std::size_t num_others = missing.size() - 1;
  throw NotFound("none of the shards exists",
                 in_quotes(without_secrets(missing.front())) +
                     (num_others == 0 ? "" : " and " + std::to_string(num_others) + " more"),
                 "check the paths");
}

/// What a build has to go by: the index that is there, and the shards as they look now.
struct Inputs {
  std::unique_ptr<Donor> old;
  std::optional<IndexPart> part;
  std::vector<std::string> words;  ///< what the shards were named by, as the index keeps it
  std::vector<Source> sources;
  std::vector<std::string> missing;
  std::vector<std::string> gone;
};

/// Looks at all shards, and finds those that did not change. Errors: as build_index.
Inputs look_at_all(const std::string& path, const std::vector<std::string>& shards,
                   const BuildOptions& options) {
  require_valid(path, shards, options);
  Inputs inputs;
  std::size_t begin = 0;
  std::size_t end = shards.size();
  if (options.part) {
    begin = shards.size() * (options.part->number - 1) / options.part->count;
    end = shards.size() * options.part->number / options.part->count;
    inputs.part = part_of(*options.part, path, shards);
  }
  inputs.old = open_old_index(path);
  const Donor* const old = inputs.old.get();
  std::unordered_map<std::string, std::uint64_t> old_numbers;
  for (std::uint64_t i = 0; old != nullptr && i < old->summary().num_shards; ++i) {
    old_numbers.emplace(old->files.catalogue().shard(i).url, i);
  }
  const bool can_reuse = old != nullptr && scans_alike(old->summary().content, options.content);
  for (const std::string& word : options.sources) inputs.words.push_back(kept_word(path, word));
  DistinctShards named;
  for (std::size_t i = 0; i < shards.size(); ++i) {
    if (begin <= i && i < end) continue;
    // In another part; that it may be a shard of this one by another name is all that matters here.
    throw_if_cancelled(options.cancel);
    add_if_there(shards[i], named);
  }
  for (std::size_t i = begin; i < end; ++i) {
    throw_if_cancelled(options.cancel);
    Source source;
    try {
      source = look_at(shards[i], path, options.remote, named);
    } catch (const NotFound&) {
      if (!options.drop_missing) throw;
      inputs.missing.push_back(shards[i]);
      old_numbers.erase(url_of_path(path, shards[i]));
      continue;
    }
    if (const auto it = old_numbers.find(source.url); it != old_numbers.end()) {
      const ShardInfo row = old->files.catalogue().shard(it->second);
      if (can_reuse && is_known(source) && row.size_bytes == source.size_bytes &&
          row.mtime_ns == source.mtime_ns && row.validator == source.place.state.validator) {
        source.donor = old;
        source.donor_shard = it->second;
      }
      old_numbers.erase(it);
    }
    inputs.sources.push_back(std::move(source));
  }
  if (!inputs.part) require_any(inputs.sources, inputs.missing);
  std::map<std::uint64_t, std::string> gone;  // in the old order
  for (const auto& [url, number] : old_numbers) gone.emplace(number, url);
  for (const auto& [number, url] : gone) inputs.gone.push_back(resolve_url(old->home, url));
  return inputs;
}

/// The shards and options that the index at `path` was built with.
struct Rebuild {
  std::vector<std::string> shards;
  BuildOptions options;
};

void require_whole(const std::string& path, const CatalogueMeta& meta) {
  if (!meta.summary.part) return;
  throw InvalidArgument("the index is part " + to_string(*meta.summary.part), in_quotes(path),
                        "name the shards and the part again");
}

Rebuild as_built(const std::string& path, const BuildOptions& options) {
  Rebuild same{{}, options};
  const IndexFiles files(path);
  const CatalogueMeta& meta = files.catalogue().meta();
  require_whole(path, meta);
  same.options.content = meta.summary.content;
  same.options.part.reset();
  same.options.sources = resolved_sources(directory_of(files.path()), meta);
  if (!same.options.sources.empty()) {
    same.shards = expand_sources(same.options.sources, options.remote.get());
    return same;
  }
  for (std::uint64_t i = 0; i < meta.summary.num_shards; ++i) {
    same.shards.push_back(resolve_url(directory_of(files.path()), files.catalogue().shard(i).url));
  }
  return same;
}

}  // namespace

std::vector<std::string> index_sources(const std::string& path) {
  const IndexFiles files(path);
  require_whole(path, files.catalogue().meta());
  return resolved_sources(directory_of(files.path()), files.catalogue().meta());
}

BuildReport build_index(const std::string& index_path, const std::vector<std::string>& shards,
                        const BuildOptions& options) {
  const std::string path = behind_links(index_path);
  Inputs inputs = look_at_all(path, shards, options);
  Build build(path, options, options.content, inputs.part, std::move(inputs.words));
  for (const std::string& shard : inputs.missing) build.drop(shard);
  build.set_gone(std::move(inputs.gone));
  for (Source& source : inputs.sources) build.add(std::move(source));
  return build.run(inputs.old.get());
}

BuildPlan plan_index(const std::string& index_path, const std::vector<std::string>& shards,
                     const BuildOptions& options) {
  const std::string path = behind_links(index_path);
  const Inputs inputs = look_at_all(path, shards, options);
  const BuildJournal journal(path, scan_options_hash(options.content), {});
  BuildPlan plan;
  plan.missing = inputs.missing;
  plan.gone = inputs.gone;
  for (const Source& source : inputs.sources) {
    if (source.donor != nullptr) {
      plan.unchanged.push_back(source.place.path);
    } else if (is_known(source) &&
               journal.find(source.url,
                            {.size_bytes = source.size_bytes, .mtime_ns = source.mtime_ns},
                            source.place.state.validator)) {
      plan.resumed.push_back(source.place.path);
    } else {
      plan.read.push_back(source.place.path);
      plan.bytes_to_read += source.size_bytes;
    }
  }
  return plan;
}

BuildReport update_index(const std::string& path, const BuildOptions& options) {
  const Rebuild same = as_built(path, options);
  return build_index(path, same.shards, same.options);
}

BuildPlan plan_update(const std::string& path, const BuildOptions& options) {
  const Rebuild same = as_built(path, options);
  return plan_index(path, same.shards, same.options);
}

BuildReport merge_indexes(const std::string& index_path, const std::vector<std::string>& parts,
                          const BuildOptions& options) {
  const std::string path = behind_links(index_path);
  if (parts.empty()) {
    throw InvalidArgument("no parts to merge", in_quotes(path), "name all parts");
  }
  open_old_index(path);  // what is there and is no index is not replaced
  std::vector<std::unique_ptr<Donor>> donors;
  for (const std::string& part : parts) {
    throw_if_cancelled(options.cancel);
    donors.push_back(std::make_unique<Donor>(part));
  }
  sort_parts(donors);
  Build build(path, options, donors[0]->summary().content, std::nullopt,
              common_words(path, donors));
  for (const auto& donor : donors) {
    for (std::uint64_t i = 0; i < donor->summary().num_shards; ++i) {
      const ShardInfo row = donor->files.catalogue().shard(i);
      const std::string shard = resolve_url(donor->home, row.url);
      Source source;
      source.place.path = shard;
      source.url = url_of_path(path, shard);
      source.size_bytes = row.size_bytes;
      source.mtime_ns = row.mtime_ns;
      source.donor = donor.get();
      source.donor_shard = i;
      build.add(std::move(source));
    }
  }
  return build.run(nullptr);
}

}  // namespace shardwise
