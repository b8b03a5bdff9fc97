#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "shardwise/base/export.h"
#include "shardwise/order/sampler.h"

namespace shardwise {

/// One data set of a mixture. Aggregate, so that it can be written in place.
struct MixturePart {
  SampleCount num_samples;
  double weight = 1;  ///< any number >= 0; only the ratios count. 0: never drawn
  SamplerKind sampler = SamplerKind::kChunked;  ///< chunked, sharded or sequential
  std::uint64_t chunk_size = kDefaultChunkSize;
  std::uint64_t window = 1;
  bool shuffle = true;
  ShardOffsets offsets{};  ///< for sharded
};

/// A sample of a mixture.
struct MixtureSample {
  std::uint64_t dataset = 0;
  std::uint64_t sample = 0;  ///< in that data set

  friend bool operator==(const MixtureSample&, const MixtureSample&) = default;
};

/// Several data sets mixed by weight, each of them in exact epochs of its own: the draws from data
/// set d, over all ranks and in the order of slots, are its epoch 0, then its epoch 1, and so on,
/// each sample once in each, however long the mixture's own epochs are. The mixture's epochs have
/// `options.epoch_size` slots, by default as many as all data sets together have samples; what an
/// epoch begins of a data set, the next one goes on with.
///
/// The numbers it gives are those of the data sets one after another: sample s of data set d is
/// first_sample(d) + s, as in a data set made of all of them; split() takes them apart.
///
/// Everything is a function of (seed, slot), so it seeks, resumes and changes its number of ranks
/// as the exact samplers do, with the same token. `streams` is 1 and `tail` exact, since anything
/// else would break the data sets' epochs. To prove those, keep one EpochAudit for each data set.
///
/// Version 1. Weights become shares q_d that add up to 2^32 (floors of weight / total * 2^32; what
/// is missing goes to the largest fractions, at equal ones to the first). Slots are counted over
/// all epochs: position p of epoch e is slot x = e * epoch_size + p. Slots form blocks of 256.
///
///   Draws from each data set before block b: a binary tree over the data sets splits 256 * b. The
///   node of data sets [lo, hi), hi - lo > 1, with mid = (lo + hi) / 2 and Q(lo, hi) the sum of
///   their shares, gives floor((x * Q(lo, mid) + f) / Q(lo, hi)) of its x to [lo, mid), where f =
///   (derive_key(seed, lo, KeyPurpose::kMixturePhase, hi).low * Q(lo, hi)) >> 64. So counts are
///   never off from the weights by more than the depth of the tree. In block b: its draws, listed
///   by data set, are permuted by Permutation(256, derive_key(seed, 0, kMixtureBlock, b)): slot o
///   of the block draws from the data set of list entry P(o). Draw i of data set d is position i
///   mod n of its epoch i / n, in the order of its sampler with the seed derive_key(seed, 0,
///   kMixtureDataset, d).low.
///
/// Threads: one thread. Memory: 6 KB, and each data set's order. Cost: about 60 ns a sample on one
/// rank; on W ranks about 25 * W ns, up to 5 us, since every rank mixes for all.
class SHARDWISE_EXPORT MixtureSampler final : public SlotSampler {
 public:
  /// Of the options, seed, epoch, rank, world_size and epoch_size mean something here.
  /// Errors: InvalidArgument: no data set, a weight that is negative or not finite, all weights 0,
  /// a data set without samples but with a weight, options that mean nothing.
  explicit MixtureSampler(std::vector<MixturePart> parts, const OrderOptions& options = {});

  std::size_t num_datasets() const noexcept { return parts_.size(); }
  /// Where the numbers of `dataset` begin. REQUIRES: dataset < num_datasets().
  std::uint64_t first_sample(std::size_t dataset) const { return first_[dataset]; }
  /// Errors: OutOfRange.
  MixtureSample split(std::uint64_t number) const;
  /// The next sample of this rank, taken apart.
  std::optional<MixtureSample> next_split();

  /// Draws from `dataset` in all slots before `slot`, counted over all epochs.
  /// Errors: OutOfRange if there is no such data set.
  std::uint64_t draws_before(std::size_t dataset, std::uint64_t slot) const;

  std::unique_ptr<Sampler> clone() const override;

 private:
  static constexpr std::size_t kBlock = 256;
  struct Block {
    std::uint64_t number = ~std::uint64_t{0};
    bool has_samples = false;
    std::array<std::uint32_t, kBlock> dataset{};
    std::array<std::uint64_t, kBlock> draw{};
    std::array<std::uint64_t, kBlock> sample{};  ///< numbers in the whole mixture
  };
  struct CachedOrder {
    std::uint64_t epoch;
    EpochOrder order;
  };

  void prepare() override;
  void fill(std::uint64_t first, std::uint64_t stride, std::span<std::uint64_t> out) const override;
  std::vector<std::uint64_t> slots_of(std::uint64_t sample) const override;
  void expect_epoch(AuditExpectation& expectation) const override;

  std::vector<std::uint64_t> draws_before_block(std::uint64_t block) const;
  void split_draws(std::size_t lo, std::size_t hi, std::uint64_t draws,
                   std::vector<std::uint64_t>& counts) const;
  const Block& block(std::uint64_t number, bool with_samples) const;
  const EpochOrder& order(std::size_t dataset, std::uint64_t epoch) const;
  void draw(std::size_t dataset, std::uint64_t first, std::span<std::uint64_t> out) const;
  std::uint64_t epoch_begin() const noexcept { return epoch() * spec().epoch_size; }

  std::vector<MixturePart> parts_;
  std::vector<std::uint64_t> first_;   ///< of each data set, then the number of samples
  std::vector<std::uint64_t> shares_;  ///< before each data set; the last one 2^32
  mutable std::vector<std::optional<CachedOrder>> orders_;
  mutable Block block_;
};

}  // namespace shardwise
