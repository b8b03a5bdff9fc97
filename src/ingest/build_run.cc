#include "ingest/build_run.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <utility>
#include <variant>

#include "base/cores.h"
#include "base/fault_point.h"
#include "base/file.h"
#include "base/fork.h"
#include "base/ordered_pipeline.h"
#include "base/url.h"
#include "index/index_files.h"
#include "index/offset_table.h"
#include "index/side_tables.h"
#include "ingest/assembly.h"
#include "ingest/build_journal.h"
#include "ingest/remote_shards.h"
#include "ingest/rewrite_catalogue.h"
#include "ingest/shard_scan.h"
#include "shardwise/index/query.h"

namespace shardwise {
namespace {

// The steps of a build, and the state of the disk if the build is killed after each step:
//
//   step                             on the disk             the next build of the same index
//   scan and append, in shard order  old index, journal,     removes the temporary files, uses the
//                                    temporary files         shards in the journal, and scans the
//                                                            rest
//   Assembly::finish()               the same                the same
//   TableWriter::commit()            old index, journal,     the same, and removes the new table,
//                                    new table               which no catalogue names
//   CatalogueWriter::commit()        new index, old table,   finds the index complete, and removes
//                                    journal                 the leftovers
//   remove(), sweep_tables()         new index
//
// The new index takes effect when its catalogue is renamed. A catalogue never names a missing
// table, so readers find either the old index or the new one. Readers that have opened the old
// index can still read its files after they are unlinked.
//
// Threads: several pipeline threads run make_part(), which calls BuildJournal::find() and updates
//   the progress. Only the calling thread runs append(), in shard order, and uses Assembly,
//   BuildJournal::add() and report_. Calls of options_.progress are never concurrent, because
//   progress_mutex_ is held during each of them.

/// The work that building and merging share: turns sources into an index.
class BuildRun {
 public:
  BuildRun(const std::string& path, const BuildInputs& inputs, const Index::Content& content,
           const BuildOptions& options)
      : path_(path), inputs_(inputs), content_(content), options_(options) {
    report_.without_value.resize(content_.columns.size());
    report_.dropped = inputs_.missing;
    report_.gone = inputs_.gone;
    progress_.num_shards = inputs_.sources.size();
    for (const Source& source : inputs_.sources) progress_.num_bytes += size_of(source);
  }

  BuildReport run() {
    sweep_temporaries(path_);
    BuildJournal journal(path_, scan_options_hash(content_),
                         {options_.journal_bytes, options_.journal_age});
    const bool keeps_table = is_table_current();
    report_.shards_moved = count_moved();
    if (keeps_table && report_.shards_moved == 0 &&
        inputs_.old->sources() == inputs_.stored_sources) {
      // Sync the directory, because the build that wrote the index may have been killed before it
      // did so.
      sync_directory_of(path_);
      report_unchanged();
    } else if (keeps_table && rewrite_catalogue(path_, inputs_, holds_secrets())) {
      report_unchanged();
    } else {
      assemble(journal);
    }
    // Remove the journal only now, because until the catalogue is renamed the next build may have
    // to resume from it. Remove the old table last, when no catalogue names it.
    journal.remove();
    const ReusableIndex* const old = inputs_.old.get();
    sweep_tables(path_, old == nullptr ? std::string() : old->files.catalogue().meta().table_file);
    return std::move(report_);
  }

 private:
  /// True if a stored URL may contain a secret, because it has a query or is a command. Known kinds
  /// of secrets, e.g. signatures, were removed before.
  bool holds_secrets() const {
    const auto is_secret = [](const std::string& url) { return without_secrets(url) != url; };
    return std::any_of(inputs_.stored_sources.begin(), inputs_.stored_sources.end(), is_secret) ||
           std::any_of(inputs_.sources.begin(), inputs_.sources.end(),
                       [&](const Source& source) { return is_secret(url_of(source)); });
  }

  /// True if the new index can use the old table, because it has the same shards in the same order.
  /// Their names may differ.
  bool is_table_current() const {
    const ReusableIndex* const old = inputs_.old.get();
    if (old == nullptr || old->summary().num_shards != inputs_.sources.size() ||
        old->summary().content != content_ || old->summary().part != inputs_.part) {
      return false;
    }
    std::uint64_t number = 0;
    return std::all_of(inputs_.sources.begin(), inputs_.sources.end(), [&](const Source& source) {
      const auto* const reuse = std::get_if<Reuse>(&source);
      return reuse != nullptr && reuse->donor == old && reuse->row.number == number++;
    });
  }

  /// Counts the shards whose name, time or validator differs from the old index's.
  std::uint64_t count_moved() const {
    const auto num =
        std::count_if(inputs_.sources.begin(), inputs_.sources.end(), [](const Source& source) {
          const auto* const reuse = std::get_if<Reuse>(&source);
          return reuse != nullptr && reuse->is_moved;
        });
    return static_cast<std::uint64_t>(num);
  }

  /// Returns for each shard of the old index whether the new index has it. Returns an empty list if
  /// the old records cannot be kept without reading them. That is so if the new index has a shard
  /// of another index, or has an old shard twice.
  std::vector<bool> find_kept() const {
    const ReusableIndex* const old = inputs_.old.get();
    if (old == nullptr) return {};
    std::vector<bool> kept(old->summary().num_shards);
    bool has_any = false;
    for (const Source& source : inputs_.sources) {
      const auto* const reuse = std::get_if<Reuse>(&source);
      if (reuse == nullptr) continue;
      if (reuse->donor != old || kept[reuse->row.number]) return {};
      has_any = kept[reuse->row.number] = true;
    }
    return has_any ? kept : std::vector<bool>();
  }

  /// Prepares `assembly` to copy records of the old index.
  /// Errors: CorruptIndex.
  void keep_old(const std::vector<bool>& kept, Assembly& assembly) const {
    const IndexFiles& old = inputs_.old->files;
    old.require_intact_keys();
    assembly.keep_from(old);
    for (std::uint64_t shard = 0; shard < kept.size(); ++shard) {
      options_.cancel.throw_if_cancelled();
      if (kept[shard]) continue;
      assembly.drop(old.segment(shard, old.catalogue().shard(shard).segment_checksum));
    }
  }

  void report_unchanged() {
    const ReusableIndex& old = *inputs_.old;
    report_.summary = old.summary();
    report_.summary.fields = old.files.catalogue().fields();
    for (const Source& source : inputs_.sources) {
      options_.cancel.throw_if_cancelled();
      const Index::Shard& row = std::get<Reuse>(source).row;
      note(row);
      if (content_.columns.empty()) continue;
      count_nulls(old.files.segment(row.number, row.segment_checksum));
    }
    report_.shards_reused = inputs_.sources.size();
    const Lock lock(progress_mutex_);
    progress_.shards_done = inputs_.sources.size();
    progress_.samples = old.summary().num_samples;
    progress_.bytes_done = progress_.num_bytes;
    if (options_.progress) options_.progress(progress_);
  }

  /// Returns one thread per core, or more if threads mostly wait for servers.
  unsigned num_threads() const {
    const bool waits = options_.remote && !options_.remote->makes_copies() && !content_.hashes &&
                       std::ranges::any_of(inputs_.sources, [](const Source& source) {
                         const auto* const rescan = std::get_if<Rescan>(&source);
                         return rescan != nullptr && rescan->place.remote != nullptr;
                       });
    return std::max(usable_cores(), waits ? detail::kAskedAtOnce : 1U);
  }

  /// Scans shards on all threads, and appends their records in shard order.
  void assemble(BuildJournal& journal) {
    const std::vector<Source>& sources = inputs_.sources;
    Assembly assembly(path_, content_, inputs_.part, url_base_of(sources), inputs_.stored_sources,
                      holds_secrets());
    const std::vector<bool> kept = find_kept();
    keeps_old_ = !kept.empty();
    if (keeps_old_) keep_old(kept, assembly);
    const unsigned wanted = options_.threads.value_or(num_threads());
    const auto threads = static_cast<unsigned>(std::min<std::size_t>(sources.size(), wanted));
    std::size_t next = 0;
    OrderedPipeline<const Source*, ShardPart> pipeline(
        [&]() -> std::optional<const Source*> {
          if (next == sources.size()) return std::nullopt;
          return &sources[next++];
        },
        [&](const Source* const& source) { return make_part(*source, journal); },
        {.threads = threads});
    while (auto part = pipeline.next()) {
      options_.cancel.throw_if_cancelled();
      append(*std::move(part), assembly, journal);
    }
    options_.cancel.throw_if_cancelled();
    assembly.finish(options_.cancel);
    // Throws if a table with a column of the same name was attached meanwhile.
    static_cast<void>(detail::SideTables(path_, content_.columns));
    assembly.commit();
    report_.summary = assembly.summary();
  }

  /// Returns a shard's records: from the old index, from the journal, or from a scan.
  /// Threads: any.
  ShardPart make_part(const Source& source, const BuildJournal& journal) {
    SHARDWISE_FAULT_POINT("build.scan_shard");
    options_.cancel.throw_if_cancelled();
    const auto* const rescan = std::get_if<Rescan>(&source);
    std::optional<ShardPart> part;
    if (rescan == nullptr) {
      const auto& reuse = std::get<Reuse>(source);
      part = keeps_old_ ? reuse.donor->keep(reuse.row) : reuse.donor->take_over(reuse.row);
    } else {
      part = journal.find(*rescan);
      if (!part) return scan(*rescan);
    }
    count_bytes(part->row.size_bytes);
    return *std::move(part);
  }

  /// Scans a shard, and reports its bytes as progress.
  ShardPart scan(const Rescan& source) {
    std::uint64_t counted = 0;
    const auto went_through = [&](std::uint64_t stored_bytes) {
      const std::uint64_t at = std::min(stored_bytes, source.size_bytes);
      if (at <= counted) return;
      count_bytes(at - std::exchange(counted, at), true);
    };
    ShardPart part = scan_shard(source.place, {.policies = content_.policies,
                                               .columns = content_.columns,
                                               .hash = content_.hashes,
                                               .temporary = path_,
                                               .cancel = options_.cancel,
                                               .progress = went_through});
    part.row.url = source.url;
    count_bytes(part.row.size_bytes - counted);
    return part;
  }

  void count_bytes(std::uint64_t num_bytes, bool report = false) {
    const Lock lock(progress_mutex_);
    progress_.bytes_done += num_bytes;
    if (report && options_.progress) options_.progress(progress_);
  }

  void append(ShardPart part, Assembly& assembly, BuildJournal& journal) {
    assembly.append(part);
    if (!part.reused) journal.add(part);
    std::string ignored;
    if (!content_.columns.empty()) {
      count_nulls(part.kept ? inputs_.old->files.table().segment(*part.kept)
                            : *SegmentView::check(part.segment, &ignored));
    }
    const Lock lock(progress_mutex_);
    note(part.row);
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

  std::string path_of(const Index::Shard& row) const {
    return resolve_url(directory_of(path_), row.url);
  }

  void note(const Index::Shard& row) {
    report_.num_not_samples += row.num_not_samples;
    if (!row.end_marker) report_.without_end_marker.push_back(path_of(row));
    if (row.num_archives > 1) report_.concatenated.push_back(path_of(row));
    if (row.trailing_bytes > 0) report_.with_trailing_bytes.push_back(path_of(row));
    if (row.unchecked) report_.without_checksum.push_back(path_of(row));
  }

  const std::string& path_;
  const BuildInputs& inputs_;
  const Index::Content& content_;
  const BuildOptions& options_;
  bool keeps_old_ = false;    // all reused shards come from the old index, and each is used once
  LongMutex progress_mutex_;  // held while the user's progress function runs
  Progress progress_ SHARDWISE_GUARDED_BY(progress_mutex_);
  BuildReport report_;
};

}  // namespace

BuildReport run_build(const std::string& path, const BuildInputs& inputs,
                      const Index::Content& content, const BuildOptions& options) {
  return BuildRun(path, inputs, content, options).run();
}

}  // namespace shardwise
