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
class HeldShards;
struct Joins;
class SampleCursor;
class SampleRange;
}  // namespace detail

/// The samples of an index, read in place by number and by key. A view contains only some of them.
///
/// A view numbers its samples from 0 to size() - 1, in the order of the index, and has its own
/// fingerprint. All methods, samplers, resume tokens and proofs work on views: an epoch delivers
/// each sample of the view exactly once. No shard is rewritten. A view takes 8 bytes per sample. It
/// shares the index and the mapped shards with its dataset.
///
/// A Dataset is a handle: copies share one index and one pool of mapped shards.
///
/// Threads: safe concurrently. Use threads instead of worker processes.
/// Processes: a forked child may continue to use it, even if other threads of the parent were using
///   it during the fork(). The fork() briefly waits for threads that are changing internal state.
/// Cost: copying costs a reference count.
class SHARDWISE_EXPORT Dataset {
 public:
  /// How the bytes of shards are accessed.
  enum class Access : std::uint8_t {
    /// Map shards: samples are views into the mappings, and nothing is copied. If a shard cannot be
    /// mapped (address space, vm.max_map_count), that shard is read instead.
    /// Caution: use it only if shards are never truncated in place. Reading a view of a truncated
    ///   shard ends the process with SIGBUS.
    kMap,
    /// Read shards with pread(2): a sample contains a copy of all its fields. Use it if shards may
    /// change during a run, or if I/O errors must not end the process. After each read, the file's
    /// size and time are compared with the index. If they differ, the Dataset throws StaleIndex.
    kRead,
    /// Read local shards like kRead. From remote shards, fetch only the requested samples. Each
    /// sample takes one request, or more if its fields are far apart. Functions that read many
    /// samples, e.g. samples(), gather() and loaders, fetch nearby samples with one request, and
    /// make up to 16 requests at once. If the index has no hashes, the first header of each shard
    /// is also fetched once. Use kRange for sparse views and single samples. For whole epochs a
    /// cache is faster.
    kRange,
  };

  struct Options {
    /// The largest number of mapped shards. The kernel's limit on mappings is 65,530 per process by
    /// default. With Access::kRead it is the largest number of open files instead, and at most a
    /// quarter of RLIMIT_NOFILE. If the process runs out of file descriptors, the dataset closes
    /// more files.
    std::size_t max_open_shards = 4096;
    /// The largest size of all mapped shards together, in bytes of address space, not memory. With
    /// a cache, the limit is at most half of its budget.
    std::uint64_t max_mapped_bytes = std::numeric_limits<std::uint64_t>::max();
    Access access = Access::kMap;
    /// The cache for remote and compressed shards, which cannot be read in place. Cached shards are
    /// mapped with every `access`, because they are never truncated.
    std::shared_ptr<ShardCache> cache = nullptr;
    /// Wait until a remote shard is completely fetched and checked. If false, samples of
    /// uncompressed shards of 8 MiB or more are available during the fetch, as soon as their bytes
    /// arrive.
    ///
    /// Samples delivered during the fetch are checked against the index: the headers of their
    /// members (names, sizes, offsets) and, if the index was built with hashes, their bytes. The
    /// shard's version, as the server states it (ETag or Last-Modified), must be the version that
    /// was indexed. Without hashes, a change in transit to the bytes of a member remains
    /// undetected.
    ///
    /// A delivered sample never changes. If the complete shard fails its check, later requests for
    /// its samples throw the error. A fetch that a reader began continues in the background, but
    /// ends if the dataset is destroyed.
    bool wait_for_whole_shards = false;
    /// The fetchers for remote samples with Access::kRange. Null means those of the cache, or a
    /// default Fetchers object if there is no cache.
    std::shared_ptr<const Fetchers> fetchers = nullptr;
    /// If cancelled, these throw Cancelled: fetches, where(), and waits for another process's
    /// fetch.
    CancelToken cancel = {};
    /// `root` is the folder below which all shards are found. `accept_times` accepts copies of
    /// shards, whose modification times differ. See Index::Lookup.
    std::string root = {};
    bool accept_times = false;
    /// Accept an index that is one of several parts (see BuildOptions::Part). An epoch over it
    /// lacks the samples of the other parts.
    bool allow_part = false;
    /// How Dataset::open() builds an index if its argument names shards. If `index_cache.build` has
    /// no remote access or cancel token, the dataset's fetchers and `cancel` are used.
    IndexCacheOptions index_cache = {};
  };

  /// Opens the index at `path`. A shard is mapped or opened, and checked against the index, at its
  /// first use.
  /// @param path  an index, or one source as for read_sources(): a directory, "train-{00..99}.tar",
  ///   a URL. The index of a source is built at first use, and updated when shards change.
  ///   index_for() describes who shares this index, and the cost. URLs are fetched exactly as
  ///   given, but the index stores them without secrets.
  /// Errors: see Index::open and index_for. InvalidArgument if the index is one part of several,
  ///   unless Options::allow_part is set.
  [[nodiscard]] static Dataset open(const std::string& path, const Options& options);
  [[nodiscard]] static Dataset open(const std::string& path);
  /// Opens several sources as one dataset. Samples are numbered in the order of the sources. See
  /// index_for().
  [[nodiscard]] static Dataset open_sources(const std::vector<std::string>& sources,
                                            const Options& options);
  /// Opens the remote shards of a wids descriptor without scanning them first, like Python wids.
  /// Samples are numbered by the descriptor's `nsamples`. When a sample of a shard is first read,
  /// the shard is fetched into the cache, scanned, and checked against the descriptor. The cache
  /// then stores the offsets of the shard's members next to the shard, so no process scans it again
  /// while it is cached.
  ///
  /// If the index that open() would build already exists and is current, it is used. If the
  /// descriptor names a local shard, the index is built like in open(). Otherwise the dataset has
  /// no index, and:
  /// - Available: operator[], try_get(), samples(), gather(), subset() of numbers, shard_starts(),
  ///   samplers, resume tokens, prefetchers and loaders. gather() copies twice, because the sizes
  ///   are known only after reading.
  /// - Unsupported: find(), get(), subset() of keys, where(), sizes(), values(), numbers(),
  ///   sample_bytes(), Query, and batches by length. For these build an index: `shardwise index -o
  ///   INDEX DESCRIPTOR`.
  /// - fingerprint() is a hash of the shards' file names, nsamples, filesize and md5sum. It differs
  ///   from the fingerprint of an index of the same shards, so a resume token of one does not fit
  ///   the other.
  ///
  /// A cached shard is used without asking its source for changes. If a shard is fetched again and
  /// differs from what this dataset has read, the error is StaleIndex.
  /// @param descriptor  path or URL of a wids descriptor (x.json).
  /// @param options     `cache` is required, and `access` must not be kRange. The policies of
  ///   index_cache.build.content apply to scans. A root, columns, hashes and unique keys are not
  ///   possible.
  /// Errors: see read_wids_descriptor(). InvalidArgument if it is not a descriptor, or names a
  ///   shard twice. Unsupported if there is no cache, or the options require an index.
  /// Errors: the first use of a shard throws the errors of a cache miss, see ShardCache. Mismatch
  ///   if the shard's size or number of samples differs from the descriptor. CorruptShard if the
  ///   scan finds a defect. Unsupported if the shard is compressed.
  /// Cost: reads the descriptor, and takes some hundred bytes per shard. If the index exists, one
  ///   request per shard, like open(). The first use of a shard fetches it and reads its headers.
  [[nodiscard]] static Dataset open_lazily(const std::string& descriptor, const Options& options);
  /// Uses an open index.
  /// Errors: CorruptIndex. InvalidArgument as in open(), or if `options` has a root or accept_times
  ///   that differs from the index's Lookup.
  Dataset(std::shared_ptr<const Index> index, const Options& options);
  explicit Dataset(std::shared_ptr<const Index> index);

  [[nodiscard]] std::uint64_t size() const noexcept;
  [[nodiscard]] bool empty() const noexcept { return size() == 0; }

  /// The sample at `index`.
  /// @param index  in [0, size()), in the order of the shard list.
  /// Cost: O(1) when the shard is mapped. The first use of a shard maps it and checks its records.
  ///   With Access::kRead each call also does one pread(2) and one fstat(2).
  /// Errors: OutOfRange. StaleIndex if the shard changed since it was indexed. NotFound if it is
  ///   missing; the text counts the missing shards and says where they are expected. CorruptIndex.
  ///   kIo if it cannot be read. Unsupported if it is remote or compressed and there is no cache.
  ///   The errors of a cache miss, see ShardCache. The dataset stays usable.
  /// Source: numbering as in Python wids, ShardListDataset.__getitem__.
  [[nodiscard]] Sample operator[](std::uint64_t index) const;
  /// Returns the sample if its shard is already mapped, so that the call does not wait. Otherwise
  /// returns nothing; the caller then uses operator[]. With Access::kRead it always returns
  /// nothing. It is meant for callers that hold a lock which other threads need, e.g. Python's GIL.
  /// Errors: OutOfRange. Cost: see operator[] for a mapped shard.
  [[nodiscard]] std::optional<Sample> try_get(std::uint64_t index) const;

  /// Returns a range of many samples, in the order of `numbers`:
  ///
  ///     for (const Sample& sample : data.samples(numbers)) sum += sample["bin"].size();
  ///
  /// The range can be iterated once. Each Sample is valid until the next step of the iterator. A
  /// copy of the Sample stays valid. The range keeps up to 1,024 of the shards that it visited
  /// mapped, and at most a quarter of max_open_shards. It keeps only one shard of a cache mapped,
  /// the last one.
  /// @param numbers  in [0, size()), in any order, with repetitions. They must outlive the range.
  /// Threads: one thread per range. Concurrent ranges over mapped shards do not slow each other
  ///   down: per sample, they write no memory that another range uses.
  /// Errors: those of operator[], thrown when the iterator reaches the sample.
  /// Cost: less than operator[] for tiny samples in random order, because upcoming records and
  ///   bytes are prefetched into the CPU's caches.
  [[nodiscard]] detail::SampleRange samples(std::span<const std::uint64_t> numbers) const;

  /// Copies one field of many samples into the caller's memory in Arrow's layout: the value of
  /// numbers[i] is bytes[offsets[i]] up to, but excluding, bytes[offsets[i + 1]].
  /// @param numbers  in [0, size()), in any order, with repetitions.
  /// @param offsets  is resized to numbers.size() + 1. Its last value is the total size.
  /// @param bytes    is resized to the total size.
  /// Errors: those of operator[]. NotFound, naming the first sample without the field. StaleIndex
  ///   and kIo as in Sample::copy. After an error `offsets` and `bytes` are unspecified.
  /// Cost: that of samples(), the copy, and a stat(2) per mapped shard. If a shard is not open, the
  ///   samples are read in the order of shards, so each shard is opened once.
  void gather(std::span<const std::uint64_t> numbers, std::string_view field,
              std::vector<std::int64_t>& offsets, std::vector<std::byte>& bytes) const;
  /// Copies one field of many samples into memory that `take_memory` provides.
  /// @param offsets  numbers.size() + 1 values.
  /// @param take_memory  is called once with the total size, and returns the memory to write to. It
  ///   is called before any shard is read, because the index has the sizes. For a dataset that was
  ///   opened lazily, it is called after reading.
  /// Errors: also InvalidArgument if `offsets` has another size.
  void gather(std::span<const std::uint64_t> numbers, std::string_view field,
              std::span<std::int64_t> offsets,
              const std::function<std::byte*(std::size_t size_bytes)>& take_memory) const;

  /// Returns the size in bytes of one field for many samples. They come from the index; no shard is
  /// opened.
  /// @param numbers  in [0, size()), in any order, with repetitions.
  /// @param sizes    one for each number; 0 for a sample without the field.
  /// Errors: OutOfRange. CorruptIndex. InvalidArgument if `sizes` has another size than `numbers`.
  /// Cost: O(1) per sample; less if they are in order.
  void sizes(std::span<const std::uint64_t> numbers, std::string_view field,
             std::span<std::uint64_t> sizes) const;

  /// The first sample with this key, or nothing. Errors: those of operator[]. Cost: O(1).
  [[nodiscard]] std::optional<Sample> find(std::string_view key) const;
  /// The first sample with this key. Errors: NotFound; those of find().
  [[nodiscard]] Sample get(std::string_view key) const;

  /// Returns a view of the samples that satisfy an SQL condition over the table `samples` of Query.
  /// E.g. in `where("cls = 7 AND width >= 256")`, cls and width are metadata columns of the index.
  /// The column `sample` is always the number in the index, even if this dataset is a view.
  /// Errors: InvalidArgument, with SQLite's reason. CorruptIndex. Cancelled.
  /// Cost: O(samples).
  [[nodiscard]] Dataset where(std::string_view condition) const;
  /// Considers only the samples [first, last), in this dataset's numbering, so that several threads
  /// can share the work. Errors: also OutOfRange, and InvalidArgument if last < first.
  [[nodiscard]] Dataset where(std::string_view condition, std::uint64_t first,
                              std::uint64_t last) const;
  /// Returns a view of these samples. `samples` are numbers in this dataset, in any order.
  /// Errors: OutOfRange. InvalidArgument if a number occurs twice.
  [[nodiscard]] Dataset subset(std::vector<std::uint64_t> samples) const;
  /// Returns a view of the samples with these keys. If several samples share a key, the first is
  /// used.
  /// Errors: NotFound; the text names the first missing key and the number of missing keys.
  ///   InvalidArgument if a key occurs twice.
  [[nodiscard]] Dataset subset(const std::vector<std::string>& keys) const;
  /// The values of a numeric metadata column, one per sample, e.g. for Resampled::weights.
  /// Errors: NotFound if there is no such column; the text lists the columns. InvalidArgument,
  ///   naming the first sample whose value is not a number. Cost: O(samples).
  [[nodiscard]] std::vector<double> numbers(const std::string& column) const;
  /// The values of a metadata column for these samples, in the same order.
  /// @param samples  in [0, size()), in any order, with repetitions.
  /// Lifetime: texts and blobs are views into the index, valid while it is open.
  /// Errors: NotFound as in numbers(). OutOfRange. CorruptIndex.
  /// Cost: O(1) per sample; less if they are in order.
  [[nodiscard]] std::vector<Query::Value> values(const std::string& column,
                                                 std::span<const std::uint64_t> samples) const;
  [[nodiscard]] bool is_view() const noexcept { return selection_ != nullptr; }

  struct JoinOptions {
    enum class How : std::uint8_t {
      kInner,  ///< only the samples that have a match
      kLeft,   ///< all samples of this dataset; those without a match have no fields of `other`
    };
    How how = How::kInner;
    /// Renames fields of `other` whose names this dataset also has. The suffix is inserted before a
    /// name's last ending, so that the field keeps its type: with "mask", "png" becomes "mask.png",
    /// and "left.png" becomes "left.mask.png". Empty means that a name in both datasets is an
    /// error.
    std::string suffix = {};
  };
  /// The numbers of samples that a join matched.
  struct JoinReport {
    std::uint64_t num_samples = 0;  ///< of the first dataset
    std::uint64_t num_samples_without_match = 0;
    std::uint64_t num_other_samples = 0;
    std::uint64_t num_other_samples_without_match = 0;
    std::string first_sample_without_match = {};        ///< key; empty if all samples match
    std::string first_other_sample_without_match = {};  ///< key; empty if all samples match

    friend bool operator==(const JoinReport&, const JoinReport&) = default;
  };
  /// Returns a dataset whose samples have the fields of this dataset and those of the sample of
  /// `other` with the same key. This copies no bytes and opens no shard.
  ///
  ///     Dataset data = images.join(captions);  // data[i] has "jpg" of images, "txt" of captions
  ///
  /// The result has the numbers, shards, index and cache of this dataset, so an order reads
  /// this dataset's shards one after another. `other` keeps its own cache and access. where(),
  /// Query and shard_starts() refer to this dataset. To select by a column of `other`, join a view
  /// of it: `images.join(captions.where("..."))`. A key may be repeated in this dataset, e.g. in
  /// several shards: each of its samples gets the sample of `other`. Either dataset may itself be a
  /// view or a join.
  ///
  /// The fingerprint depends on both datasets. A resume token of one join is therefore refused by a
  /// join with another version of `other`.
  /// Errors: InvalidArgument if a key is repeated in `other`. InvalidArgument if both datasets have
  ///   a field of the same name and there is no suffix, or if the suffix is not valid. Unsupported
  ///   if a dataset was opened lazily. CorruptIndex. Cancelled.
  /// Cost: O(samples of both). If both have the same order of keys, about the time to read the
  ///   keys; otherwise a lookup per sample. The result takes 4 bytes per sample of this dataset (8
  ///   if `other` has 2^32 samples or more), and during the call 1 bit per sample of `other`.
  [[nodiscard]] Dataset join(const Dataset& other, const JoinOptions& options) const;
  [[nodiscard]] Dataset join(const Dataset& other) const;
  /// Returns what the last join() matched; nullopt if this dataset is not a join. A view of a join
  /// has the report of the join.
  [[nodiscard]] std::optional<JoinReport> join_report() const;

  /// Returns the number in the index of this dataset's `sample`. Errors: OutOfRange.
  [[nodiscard]] std::uint64_t number_in_index(std::uint64_t sample) const;
  /// Returns the first sample of each shard in this dataset's numbering, then size(). Sharded
  /// orders use it. In a view, shards may be empty.
  [[nodiscard]] std::vector<std::uint64_t> shard_starts() const;
  /// Returns a function that gives the size in bytes of all fields of a sample, taken from the
  /// index. Order::balance_bytes uses it.
  /// Threads: safe concurrently.
  /// Cost: O(1) per call; the first call for a shard checks its records.
  std::function<std::uint64_t(std::uint64_t sample)> sample_bytes() const;

  /// The index. A view returns the index of its whole dataset.
  [[nodiscard]] const Index& index() const noexcept;
  [[nodiscard]] const std::shared_ptr<const Index>& shared_index() const noexcept;
  [[nodiscard]] const Hash128& fingerprint() const noexcept;
  /// Counts of the shards that this dataset maps or, with Access::kRead, opens.
  struct PoolStats {
    std::uint64_t opened = 0;  ///< shards opened, counting each time
    std::uint64_t evicted = 0;
    std::size_t open_shards = 0;
    std::uint64_t open_bytes = 0;
  };
  [[nodiscard]] PoolStats pool_stats() const;
  /// The shard cache, or null.
  [[nodiscard]] const std::shared_ptr<ShardCache>& cache() const noexcept;

 private:
  friend struct detail::DatasetAccess;
  friend class detail::HeldShards;
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
  // These two are inline for the only source file that calls them.
  inline Sample get(std::uint64_t index, std::span<const std::string> in_parts) const;
  inline Sample sample_at(std::uint64_t number, std::span<const std::string> in_parts) const;
  [[nodiscard]] Sample sample_without_joins(std::uint64_t number,
                                            std::span<const std::string> in_parts) const;
  [[nodiscard]] std::optional<std::uint64_t> number_of(std::string_view key) const;
  [[nodiscard]] Dataset view_of(std::vector<std::uint64_t> numbers) const;
  /// The fingerprint of the dataset without the selection of a view.
  [[nodiscard]] const Hash128& whole_fingerprint() const noexcept;

  std::shared_ptr<Impl> impl_;
  std::shared_ptr<const Selection> selection_;  // null means all samples
  std::shared_ptr<const detail::Joins> joins_;  // null means that no dataset is joined
};

namespace detail {

/// The result of Dataset::samples(): an input range of const Sample&.
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
    const Sample* sample_;  // null at the end
  };

  SampleRange(Dataset data, std::span<const std::uint64_t> numbers);
  ~SampleRange();
  SampleRange(const SampleRange&) = delete;
  SampleRange& operator=(const SampleRange&) = delete;

  /// Returns an iterator at the first sample of the range that no iterator has reached yet.
  [[nodiscard]] Iterator begin() { return Iterator(*this); }
  [[nodiscard]] std::default_sentinel_t end() const noexcept { return {}; }
  /// True if the iterator's next step does not wait, e.g. to open a shard.
  [[nodiscard]] bool has_next_at_hand() const noexcept { return left_ > 0; }

 private:
  /// Returns the next sample, valid until the next call; null after the last.
  const Sample* next() {
    if (left_ == 0) return next_run();
    --left_;
    return ++sample_;
  }
  const Sample* next_run();

  const Dataset data_;
  const std::unique_ptr<SampleCursor> cursor_;
  // The cursor returns several consecutive samples at once. These are the current one of them, and
  // the number of samples after it.
  const Sample* sample_ = nullptr;
  std::size_t left_ = 0;
};

}  // namespace detail

/// Parses "map", "read" or "range". Errors: InvalidArgument; the text lists the valid names.
SHARDWISE_EXPORT Dataset::Access parse_access(std::string_view name);
/// Parses "inner" or "left". Errors: InvalidArgument; the text lists the valid names.
SHARDWISE_EXPORT Dataset::JoinOptions::How parse_join(std::string_view name);

}  // namespace shardwise
