#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <iterator>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "shardwise/base/cancel.h"
#include "shardwise/base/export.h"
#include "shardwise/base/hash.h"
#include "shardwise/data/sample.h"
#include "shardwise/index/index.h"
#include "shardwise/index/query.h"
#include "shardwise/ingest/index_cache.h"
#include "shardwise/storage/fetcher.h"
#include "shardwise/storage/shard_cache.h"

namespace shardwise {

namespace detail {
struct DatasetAccess;
class SampleCursor;
class SampleRange;
}  // namespace detail

/// The samples of an index, by number and by key, read in place; all of them, or, as a view, some.
///
/// A view has the same methods over samples of its own numbering, 0 to size() - 1 in the order of
/// the index, and a fingerprint of its own: samplers, resume tokens and proofs work over it as over
/// the whole, and every one of its samples comes exactly once. No shard is rewritten. It costs 8
/// bytes a sample, and shares index and mapped shards with the dataset that it was made of.
///
/// A Dataset is a handle: copies share one index and one pool of mapped shards, and cost a
/// reference count. After fork() the child may go on using it, whatever the parent's other threads
/// were doing; fork() waits some us for those that are between two states (see base/fork.h).
///
/// Threads: safe concurrently; threads take the place of worker processes.
class SHARDWISE_EXPORT Dataset {
 public:
  /// How the bytes of shards are reached.
  enum class Access : std::uint8_t {
    /// Shards are mapped; samples are views into them, nothing is copied. For shards that nobody
    /// truncates: reading a view of a shard that was truncated in place ends the process with
    /// SIGBUS. A single shard that cannot be mapped (address space, vm.max_map_count) is read
    /// instead.
    kMap,
    /// Shards are read with pread(2); a sample holds a copy of all its fields, taken when it is
    /// asked for. For shards that may change under a run, or lie on storage whose errors must not
    /// end the process: a sample's bytes are from a file that was still the indexed one, by size
    /// and time, after they were read. Otherwise the Dataset throws.
    kRead,
    /// As kRead for local shards. Of remote shards, only the samples that are asked for are
    /// fetched, with one request each, or more if their fields lie far apart. Unless the index has
    /// hashes, a shard's first header is fetched once, too. For sparse views and single samples; an
    /// epoch is better served by a cache.
    kRange,
  };

  struct Options {
    /// Shards kept mapped at most. The kernel's own limit on mappings of a process is 65,530 by
    /// default. With Access::kRead, descriptors kept open, and at most a quarter of RLIMIT_NOFILE;
    /// more are closed where the process has none left.
    std::size_t max_open_shards = 4096;
    /// Bytes of shards kept mapped at most: address space, not memory. With a cache, at most half
    /// of its budget.
    std::uint64_t max_mapped_bytes = std::numeric_limits<std::uint64_t>::max();
    Access access = Access::kMap;
    /// The cache for shards that cannot be read where they lie: remote ones and compressed ones.
    /// Shards in it are mapped whatever `access` says, for nobody writes to them.
    std::shared_ptr<ShardCache> cache = nullptr;
    /// A remote shard that comes into the cache is waited for until it is whole and checked.
    /// Otherwise samples of a plain one of 8 MiB or more can be had while this process fetches it,
    /// each as soon as its bytes are there. Such a sample was held against the index alone: the
    /// headers of its members (names, sizes, places) and, where the index has them (--hash), the
    /// hashes of their bytes. They are of the version that the index names, as their server says.
    /// They never change, also if the shard turns out to be wrong at its end; who asks for a sample
    /// then sees the error. Where the index has no hashes, bytes within a member that were changed
    /// on the way are not noticed, now or later. A fetch that a reader began goes on beside it, and
    /// is dropped if the dataset ends before.
    bool wait_for_whole_shards = false;
    /// The fetchers for remote samples with Access::kRange; null: the cache's, or the standard
    /// ones.
    std::shared_ptr<const Fetchers> fetchers = nullptr;
    /// Ends fetching, waiting for shards that others fetch, and where(), with Cancelled.
    CancelToken cancel = {};
    /// See Index::Lookup: a folder below which all shards are looked for, and whether copies of
    /// shards, which have times of their own, are accepted.
    std::string root = {};
    bool accept_times = false;
    /// Take an index that is one part of several (see BuildOptions::Part), too: an epoch over it
    /// leaves out the samples of the other parts.
    bool allow_part = false;
    /// Where and how an index is built if Dataset::open() is given shards in place of one. If its
    /// `build` has no access to remote shards, or no cancel token, those above are used.
    IndexCacheOptions index_cache = {};
  };

  /// Opens the index at `path`; a shard is mapped or opened, and checked against the index, when it
  /// is first touched.
  /// @param path  of an index; or one source, as read_sources() takes it: a directory,
  ///   "train-{00..99}.tar", a URL. Its index is then built at first use, and updated when shards
  ///   changed. See index_for() for how the two are told apart, how processes share it, and its
  ///   cost. URLs are fetched as they are given, whatever the index keeps of them.
  /// Errors: as Index::open and index_for; InvalidArgument if it is a part, unless `options` allow
  ///   it.
  [[nodiscard]] static Dataset open(const std::string& path, const Options& options);
  [[nodiscard]] static Dataset open(const std::string& path);
  /// The same of several sources, whose samples are numbered in this order. See index_for().
  [[nodiscard]] static Dataset open_sources(const std::vector<std::string>& sources,
                                            const Options& options);
  /// Opens the remote shards of a wids descriptor by its word alone, as Python wids does: samples
  /// are numbered by its `nsamples`, and a shard is fetched into the cache, scanned, and held
  /// against the descriptor when a sample of it is first asked for. Where its members lie is then
  /// kept beside it in the cache, and goes with it, so no process scans it again.
  ///
  /// If the index that open() would build of the descriptor is there and current, it is used. So is
  /// it built, as by open(), if the descriptor names a shard on this machine. Otherwise all works
  /// that needs numbers and samples: operator[], try_get(), samples(), gather(), which copies twice
  /// and learns the size last, subset() of numbers, shard_starts(), samplers, resume tokens,
  /// prefetchers and loaders. Unsupported is what needs the records of all shards: find(), get(),
  /// subset() of keys, where(), sizes(), values(), numbers(), sample_bytes(), Query, batches by
  /// length; `shardwise index -o INDEX DESCRIPTOR` makes them possible. fingerprint() is a hash of
  /// the shards' file names, nsamples, filesize and md5sum, and not the index's: a resume token of
  /// the one is refused by the other.
  ///
  /// A shard that is in the cache is used as it is; its source is not asked whether it changed. One
  /// that is fetched again, and is another than this dataset has read, is StaleIndex.
  /// @param descriptor  path or URL of a wids descriptor (x.json).
  /// @param options     `cache` is needed; `access` is not kRange. Of index_cache.build.content the
  ///   policies hold for scans, strict as for an index; there are no columns and hashes.
  /// Errors: those of read_wids_descriptor; InvalidArgument if it is no descriptor, or names one
  ///   shard twice; Unsupported if there is no cache, or the options want what needs an index. When
  ///   a shard is first touched: those of ShardCache::get; Mismatch if it has another number of
  ///   samples, or another size, than the descriptor says; CorruptShard; Unsupported (compressed).
  /// Cost: reads the descriptor; some hundred bytes a shard. If the index is there, one request a
  ///   shard, as open(). The first touch of a shard fetches it and reads its headers.
  [[nodiscard]] static Dataset open_lazily(const std::string& descriptor, const Options& options);
  /// Over an index that is open already. Errors: CorruptIndex; InvalidArgument as open(), and if
  /// `options` have a root or accept_times that the index was not opened with.
  Dataset(std::shared_ptr<const Index> index, const Options& options);
  explicit Dataset(std::shared_ptr<const Index> index);

  [[nodiscard]] std::uint64_t size() const noexcept;
  [[nodiscard]] bool empty() const noexcept { return size() == 0; }

  /// The sample at `index`.
  /// @param index  in [0, size()), in the order of the shard list.
  /// Cost: O(1), under 100 ns when the shard is mapped; the first touch of a shard maps it and
  ///   checks its records. With Access::kRead one pread(2) and fstat(2) more.
  /// Errors: OutOfRange; StaleIndex (the shard changed since it was indexed); NotFound (it is
  ///   gone; the text says how many are, and where they are looked for); CorruptIndex; kIo (it
  ///   cannot be read); Unsupported (remote or compressed, and there is no cache); those of
  ///   ShardCache::get. The dataset stays usable.
  /// Source: numbering as Python wids ShardListDataset.__getitem__.
  [[nodiscard]] Sample operator[](std::uint64_t index) const;
  /// The same if nothing has to be waited for: the sample's shard is mapped already. Otherwise
  /// nothing, and operator[] gives it, after it has opened, fetched or read what it needs; with
  /// Access::kRead always. For callers that hold a lock which others need meanwhile, as Python's.
  /// Errors: OutOfRange. Cost: as operator[] of a mapped shard.
  [[nodiscard]] std::optional<Sample> try_get(std::uint64_t index) const;

  /// Many samples, one after another, in the order of `numbers`:
  ///
  ///     for (const Sample& sample : data.samples(numbers)) sum += sample["bin"].size();
  ///
  /// To be gone through once, by one thread; threads make ranges of their own. Each Sample is valid
  /// until the next one comes; a copy of it is a Sample of its own, and its views live as long.
  /// Holds up to 1,024 of the shards that it met, and no more than a quarter of max_open_shards;
  /// of those in a cache, only the last.
  /// @param numbers  in [0, size()), in any order; outlive the range. One may come twice.
  /// Errors, when its turn comes: as operator[].
  /// Cost: less than operator[], by a fifth to a half where samples are tiny and in random order:
  ///   records and bytes of those that follow are on their way into the CPU's caches. Of mapped
  ///   shards nothing that threads share is written but once a shard, so they do not slow each
  ///   other down.
  [[nodiscard]] detail::SampleRange samples(std::span<const std::uint64_t> numbers) const;

  /// Copies one field of many samples into memory of the caller, one after another, in Arrow's
  /// layout: that of numbers[i] is bytes[offsets[i]] to bytes[offsets[i + 1]], without the last.
  /// @param numbers  in [0, size()), in any order. One may come twice.
  /// @param offsets  is given numbers.size() + 1 values; the last is the size of all bytes.
  /// @param bytes    is given that size.
  /// Errors: as operator[]; NotFound, naming the first sample that has no such field; StaleIndex
  ///   and kIo as Sample::copy. What offsets and bytes then hold is not specified.
  /// Cost: as samples(), some ns a sample more, the copy, and a stat for each shard that is mapped.
  ///   Shards are read one after another: numbers that are not in their order are sorted.
  void gather(std::span<const std::uint64_t> numbers, std::string_view field,
              std::vector<std::int64_t>& offsets, std::vector<std::byte>& bytes) const;
  /// The same for memory of any kind.
  /// @param offsets  of numbers.size() + 1 values.
  /// @param take_memory  is called once with the size of all bytes, which the index tells: before
  ///   a shard is read, but for a dataset that was opened lazily. Returns where they are written.
  /// Errors: InvalidArgument too, if there is another number of offsets.
  void gather(std::span<const std::uint64_t> numbers, std::string_view field,
              std::span<std::int64_t> offsets,
              const std::function<std::byte*(std::size_t size_bytes)>& take_memory) const;

  /// The bytes of one field of many samples, as the index has them: no shard is opened.
  /// @param numbers  in [0, size()), in any order. One may come twice.
  /// @param sizes    is given one for each; 0 for a sample that has no such field.
  /// Errors: OutOfRange; CorruptIndex; InvalidArgument if there is another number of sizes.
  /// Cost: about 20 ns a sample in order, 80 ns in random order.
  void sizes(std::span<const std::uint64_t> numbers, std::string_view field,
             std::span<std::uint64_t> sizes) const;

  /// The first sample with this key, or nothing. Errors: as operator[]. Cost: about a microsecond.
  [[nodiscard]] std::optional<Sample> find(std::string_view key) const;
  /// The sample with this key, see find(). Errors: NotFound.
  [[nodiscard]] Sample get(std::string_view key) const;

  /// A view of the samples of this dataset for which an SQL condition over the table `samples` of
  /// Query holds: `where("cls = 7 AND width >= 256")`, where cls and width are columns that the
  /// index was built with. The column `sample` is the number in the index.
  /// Errors: InvalidArgument, with SQLite's reason; CorruptIndex; Cancelled.
  /// Cost: about 0.3 us a sample.
  [[nodiscard]] Dataset where(std::string_view condition) const;
  /// The same of those in [first, last), by their numbers here: no others are looked at, so threads
  /// can share the work. Errors: OutOfRange too; InvalidArgument too if last < first.
  [[nodiscard]] Dataset where(std::string_view condition, std::uint64_t first,
                              std::uint64_t last) const;
  /// A view of these samples, by their numbers here, in any order.
  /// Errors: OutOfRange; InvalidArgument if one comes twice.
  [[nodiscard]] Dataset subset(std::vector<std::uint64_t> samples) const;
  /// A view of the samples with these keys; of several with one key the first.
  /// Errors: NotFound, naming the first key that there is not, and how many; InvalidArgument.
  [[nodiscard]] Dataset subset(const std::vector<std::string>& keys) const;
  /// The numbers in a metadata column, one for each sample: for Resampled::weights.
  /// Errors: NotFound (no such column; the text lists them); InvalidArgument naming the first
  /// sample whose value is no number. Cost: about 20 ns a sample.
  [[nodiscard]] std::vector<double> numbers(const std::string& column) const;
  /// The values in a metadata column of these samples, in their order. Texts and blobs lie in the
  /// index, and are valid while it is open.
  /// @param samples  in [0, size()), in any order. One may come twice.
  /// Errors: NotFound as numbers(); OutOfRange; CorruptIndex.
  /// Cost: about 30 ns a sample in order, 60 ns in random order.
  [[nodiscard]] std::vector<Query::Value> values(const std::string& column,
                                                 std::span<const std::uint64_t> samples) const;
  [[nodiscard]] bool is_view() const noexcept { return selection_ != nullptr; }

  /// The number in the index of a sample of this dataset. Errors: OutOfRange.
  [[nodiscard]] std::uint64_t number_in_index(std::uint64_t sample) const;
  /// Offsets of all shards in this dataset's numbering, as sharded orders want them:
  /// [0, ..., size()]. In a view shards may be empty.
  [[nodiscard]] std::vector<std::uint64_t> shard_starts() const;
  /// Returns a function that gives the bytes of a sample's fields together, as the index has them:
  /// for balance_bytes.
  /// Threads: safe concurrently.
  /// Cost: some ns; the first of a shard checks its records.
  std::function<std::uint64_t(std::uint64_t sample)> sample_bytes() const;

  /// The index of all samples, also where this is a view.
  [[nodiscard]] const Index& index() const noexcept;
  [[nodiscard]] const std::shared_ptr<const Index>& shared_index() const noexcept;
  [[nodiscard]] const Hash128& fingerprint() const noexcept;
  /// Shards that are mapped, or opened with Access::kRead.
  struct PoolStats {
    std::uint64_t opened = 0;  ///< shards opened, each time counted
    std::uint64_t evicted = 0;
    std::size_t open_shards = 0;
    std::uint64_t open_bytes = 0;
  };
  [[nodiscard]] PoolStats pool_stats() const;
  /// The shard cache; a null pointer if there is none.
  [[nodiscard]] const std::shared_ptr<ShardCache>& cache() const noexcept;

 private:
  friend struct detail::DatasetAccess;
  friend class detail::SampleCursor;
  friend class detail::SampleRange;
  struct Impl;
  struct Selection;
  [[noreturn]] void throw_out_of_range(std::uint64_t sample) const;
  explicit Dataset(std::shared_ptr<Impl> impl);
  void gather_as_read(std::span<const std::uint64_t> numbers, const std::string& field,
                      std::span<std::int64_t> offsets,
                      const std::function<std::byte*(std::size_t)>& take_memory) const;
  [[nodiscard]] std::optional<Sample> early_sample(std::uint64_t number) const;
  inline Sample sample_at(std::uint64_t number) const;  // in the source file, for its own calls
  [[nodiscard]] std::optional<std::uint64_t> number_of(std::string_view key) const;
  [[nodiscard]] Dataset view_of(std::vector<std::uint64_t> numbers) const;
  /// The place of a metadata column in the index.
  [[nodiscard]] std::uint32_t place_of(const std::string& column) const;

  std::shared_ptr<Impl> impl_;
  std::shared_ptr<const Selection> selection_;  // none: all samples
};

namespace detail {

/// What Dataset::samples() returns: an input range of const Sample&.
class SHARDWISE_EXPORT SampleRange {
 public:
  class Iterator {
   public:
    using iterator_concept = std::input_iterator_tag;
    using difference_type = std::ptrdiff_t;
    using value_type = Sample;

    const Sample& operator*() const noexcept { return *sample_; }
    const Sample* operator->() const noexcept { return sample_; }
    Iterator& operator++() {
      sample_ = range_->next();
      return *this;
    }
    void operator++(int) { ++*this; }
    friend bool operator==(const Iterator& at, std::default_sentinel_t) noexcept {
      return at.sample_ == nullptr;
    }

   private:
    friend class SampleRange;
    explicit Iterator(SampleRange& range) : range_(&range), sample_(range.next()) {}

    SampleRange* range_;
    const Sample* sample_;  // none: the end
  };

  SampleRange(Dataset data, std::span<const std::uint64_t> numbers);
  ~SampleRange();
  SampleRange(const SampleRange&) = delete;
  SampleRange& operator=(const SampleRange&) = delete;

  /// Goes on where the last iterator was; the first time, at the first sample.
  [[nodiscard]] Iterator begin() { return Iterator(*this); }
  [[nodiscard]] std::default_sentinel_t end() const noexcept { return {}; }
  /// Whether the next step waits for nothing, as it does where a shard has to be opened.
  [[nodiscard]] bool has_next_at_hand() const noexcept { return left_ > 0; }

 private:
  /// The next sample, valid until the next call; none after the last.
  const Sample* next() {
    if (left_ == 0) return next_run();
    --left_;
    return ++sample_;
  }
  const Sample* next_run();

  const Dataset data_;
  const std::unique_ptr<SampleCursor> cursor_;
  // The present one of those that the cursor gave together, and how many are behind it.
  const Sample* sample_ = nullptr;
  std::size_t left_ = 0;
};

}  // namespace detail

/// "map", "read" or "range", as command lines say it. Errors: InvalidArgument; the text lists them.
SHARDWISE_EXPORT Dataset::Access parse_access(std::string_view name);

}  // namespace shardwise
