#include "shardwise/libtorch/image_loader.h"

#include <torch/torch.h>

#include <algorithm>
#include <array>
#include <vector>

#include "libtorch/decode_internal.h"
#include "libtorch/image_codec.h"
#include "shardwise/base/error.h"
#include "shardwise/base/text.h"
#include "shardwise/data/loader.h"
#include "shardwise/data/shard_prefetcher.h"
#include "shardwise/order/epoch_audit.h"
#include "shardwise/order/make_sampler.h"
#include "shardwise/order/sampler.h"

namespace shardwise::libtorch {
namespace {

/// What goes into one batch: decided in order by the sampler, made by any thread.
struct BatchPlan {
  std::vector<std::uint64_t> samples;
  std::uint64_t first_index = 0;  ///< this rank's index of samples[0]
};

/// Finds the image in a sample.
class ImageField {
 public:
  explicit ImageField(const std::string& names) : names_(names) {
    for (std::size_t at = 0; at < names.size();) {
      const std::size_t end = std::min(names.find(';', at), names.size());
      if (end > at) alternatives_.push_back(names.substr(at, end - at));
      at = end + 1;
    }
  }

  std::string_view in(const Sample& sample) const {
    if (alternatives_.empty()) return only_image(sample);
    for (const std::string& name : alternatives_) {
      if (sample.contains(name)) return name;
    }
    throw NotFound("the sample has no field " + in_quotes(names_), sample.describe(),
                   "set image_field to one of: " + fields_of(sample));
  }

 private:
  static std::string_view only_image(const Sample& sample) {
    std::string_view found;
    for (std::size_t i = 0; i < sample.num_fields(); ++i) {
      const std::string_view name = sample.field(i).name;
      if (field_kind(name) != FieldKind::kImage) continue;
      if (!found.empty()) {
        throw InvalidArgument("the sample has several images", sample.describe(),
                              "set image_field to one of: " + fields_of(sample));
      }
      found = name;
    }
    if (found.empty()) {
      throw NotFound("the sample has no field that is an image by its name", sample.describe(),
                     "set image_field to one of: " + fields_of(sample));
    }
    return found;
  }

  static std::string fields_of(const Sample& sample) {
    std::string names;
    for (std::size_t i = 0; i < sample.num_fields(); ++i) {
      names += (i == 0 ? "" : ", ") + escaped(sample.field(i).name);
    }
    return names;
  }

  std::string names_;
  std::vector<std::string> alternatives_;
};

/// Makes batches. Shared by the loader's threads; immutable.
class BatchMaker {
 public:
  BatchMaker(Dataset data, const ImageLoaderOptions& options)
      : data_(std::move(data)), options_(options), field_(options.image_field) {
    image_options_.resize = options.resize;
    image_options_.max_pixels = options.max_pixels;
  }

  ImageBatch make(const BatchPlan& plan, const Partition& partition) const {
    const auto count = static_cast<std::int64_t>(plan.samples.size());
    ImageBatch batch;
    batch.labels = torch::empty({count}, torch::kInt64);
    batch.samples = torch::empty({count}, torch::kInt64);
    batch.positions = torch::empty({count}, torch::kInt64);
    auto* labels = batch.labels.data_ptr<std::int64_t>();
    auto* samples = batch.samples.data_ptr<std::int64_t>();
    auto* positions = batch.positions.data_ptr<std::int64_t>();
    thread_local detail::RgbImage scratch;
    ImageSize size = options_.resize;
    std::uint8_t* planes = nullptr;
    for (std::size_t i = 0; i < plan.samples.size(); ++i) {
      const Sample sample = data_[plan.samples[i]];
      detail::decode_rgb_field(sample, field_.in(sample), image_options_, scratch);
      const ImageSize stored{static_cast<std::int64_t>(scratch.height()),
                             static_cast<std::int64_t>(scratch.width())};
      if (i == 0) {
        if (size.empty()) size = stored;
        batch.images = torch::empty({count, 3, size.height, size.width}, torch::kUInt8);
        planes = batch.images.data_ptr<std::uint8_t>();
      } else if (options_.resize.empty() && stored != size) {
        throw_other_size(sample, stored, size);
      }
      const auto height = static_cast<std::size_t>(size.height);
      const auto width = static_cast<std::size_t>(size.width);
      detail::write_planes(scratch, height, width, planes + i * 3 * height * width);
      labels[i] = sample.integer(options_.label_field);
      samples[i] = static_cast<std::int64_t>(plan.samples[i]);
      positions[i] = static_cast<std::int64_t>(partition.slot(plan.first_index + i));
    }
    if (count == 0) batch.images = empty_images();
    return batch;
  }

 private:
  [[noreturn]] static void throw_other_size(const Sample& sample, const ImageSize& size,
                                            const ImageSize& first) {
    const auto text = [](const ImageSize& s) {
      return std::to_string(s.width) + " x " + std::to_string(s.height);
    };
    throw InvalidArgument(
        "the images of one batch differ in size",
        sample.describe() + " is " + text(size) + ", the batch's first " + text(first),
        "set resize");
  }

  /// Without a size of its own an empty batch takes that of the data set's first image.
  torch::Tensor empty_images() const {
    ImageSize size = options_.resize;
    if (size.empty() && !data_.empty()) {
      const Sample sample = data_[0];
      detail::RgbImage image;
      detail::decode_rgb_field(sample, field_.in(sample), image_options_, image);
      size = {static_cast<std::int64_t>(image.height()), static_cast<std::int64_t>(image.width())};
    }
    return torch::empty({0, 3, size.height, size.width}, torch::kUInt8);
  }

  const Dataset data_;
  const ImageLoaderOptions options_;
  const ImageField field_;
  ImageOptions image_options_;
};

OrderOptions order_options(const ImageLoaderOptions& options, int rank, int world_size) {
  OrderOptions order;
  order.sampler = options.sampler;
  order.rank = static_cast<std::uint64_t>(rank);
  order.world_size = static_cast<std::uint64_t>(world_size);
  order.seed = options.seed;
  order.chunk_size = options.chunk_size;
  order.window = options.window;
  order.streams = options.streams;
  order.tail = options.tail;
  order.shuffle = options.shuffle;
  order.shufflefirst = options.shufflefirst;
  order.balance_bytes = options.balance_bytes;
  order.resample = options.resample;
  order.epoch_size = options.epoch_size;
  order.skip = options.skip;
  return order;
}

/// Errors: InvalidArgument.
std::unique_ptr<shardwise::Sampler> sampler_for(const Dataset& data,
                                                const ImageLoaderOptions& options, int rank,
                                                int world_size) {
  if (options.batch_size < 1 || options.batch_size > (1 << 24)) {
    throw InvalidArgument("a batch size out of range", std::to_string(options.batch_size),
                          "choose 1 to 16,777,216");
  }
  detail::require_size(options.resize);
  const OrderOptions order = order_options(options, rank, world_size);
  return make_sampler(data, order,
                      std::make_shared<const std::vector<std::uint64_t>>(data.shard_starts()),
                      data.sample_bytes());
}

AuditSum reduced(const AuditSum& sum, const ProcessGroup& group) {
  std::array<std::int64_t, AuditSum::kNumWords> words = sum.to_words();
  group.all_reduce(
      torch::from_blob(words.data(), {static_cast<std::int64_t>(words.size())}, torch::kInt64));
  return AuditSum::from_words(words);
}

}  // namespace

struct ImageLoader::Impl {
  Impl(Dataset dataset, ProcessGroup process_group, ImageLoaderOptions loader_options)
      : data(std::move(dataset)),
        group(std::move(process_group)),
        options(std::move(loader_options)),
        batch_size(static_cast<std::uint64_t>(options.batch_size)),
        maker(std::make_shared<const BatchMaker>(data, options)),
        sampler(sampler_for(data, options, group.rank(), group.world_size())),
        audit(data.fingerprint()) {
    count_steps();
  }

  void count_steps() {
    steps = sampler->steps(batch_size, first_slot);
    steps_taken = 0;
  }

  void stop() {
    if (pipeline) waited_before += pipeline->wait_seconds();
    pipeline.reset();
  }

  /// Starts the threads. They have a sampler of their own, which runs ahead of what is delivered.
  void start() {
    auto ahead = std::shared_ptr<shardwise::Sampler>(sampler->clone());
    auto planned = std::make_shared<std::uint64_t>(steps_taken);
    const auto plan = [ahead, planned, num_steps = steps,
                       size = batch_size]() -> std::optional<BatchPlan> {
      if (*planned == num_steps) return std::nullopt;
      ++*planned;
      BatchPlan next;
      next.first_index = ahead->position();
      next.samples.resize(size);
      next.samples.resize(ahead->next_batch(next.samples));
      return next;
    };
    const auto make = [maker = maker, partition = sampler->partition()](const BatchPlan& batch) {
      return Made{batch.samples, maker->make(batch, partition)};
    };
    follow();
    LoaderOptions loader_options;
    loader_options.num_threads = options.threads;
    loader_options.prefetch = options.prefetch;
    pipeline = std::make_unique<Loader<BatchPlan, Made>>(plan, make, loader_options);
  }

  /// Tells the cache, if there is one, what this node's ranks will read.
  void follow() {
    if (!data.cache()) return;
    delivered = sampler->position();
    if (prefetcher) {
      prefetcher->begin_epoch(*sampler);
      return;
    }
    const int first = group.rank() - group.local_rank();
    PrefetchOptions ahead;
    ahead.num_threads = options.fetch_threads;
    ahead.node = {.first = static_cast<std::uint64_t>(first),
                  .count = static_cast<std::uint64_t>(group.local_world_size())};
    prefetcher = std::make_unique<ShardPrefetcher>(data, *sampler, ahead);
  }

  struct Made {
    std::vector<std::uint64_t> samples;
    ImageBatch batch;
  };

  const Dataset data;
  const ProcessGroup group;
  const ImageLoaderOptions options;
  const std::uint64_t batch_size;
  const std::shared_ptr<const BatchMaker> maker;
  std::unique_ptr<shardwise::Sampler>
      sampler;                           ///< stands where this epoch, or the resumed rest, began
  EpochAudit audit;                      ///< of what this rank handed out
  std::optional<AuditSum> expected_all;  ///< of every sample once: the same in every epoch
  std::uint64_t first_slot = 0;          ///< of the epoch, consumed before this run
  std::uint64_t steps = 0;               ///< from first_slot to the end
  std::uint64_t steps_taken = 0;
  double waited_before = 0;
  std::uint64_t delivered = 0;  ///< of this rank's epoch
  std::unique_ptr<ShardPrefetcher> prefetcher;
  std::unique_ptr<Loader<BatchPlan, Made>> pipeline;  ///< nullptr: not started
};

ImageLoader::ImageLoader(Dataset data, ProcessGroup group, ImageLoaderOptions options)
    : impl_(std::make_unique<Impl>(std::move(data), std::move(group), std::move(options))) {}

void ImageLoader::check(const Dataset& data, const ImageLoaderOptions& options, int world_size) {
  sampler_for(data, options, 0, world_size);
}

ImageLoader::~ImageLoader() = default;

ImageLoader::Epochs ImageLoader::epochs(std::uint64_t end) { return {*this, end}; }

ImageLoader::Epochs::Iterator ImageLoader::Epochs::begin() const {
  Iterator it(*loader_, loader_->impl_->sampler->epoch());
  it.end_ = end_;
  return it;
}

ImageEpoch ImageLoader::epoch() { return {*this, impl_->sampler->epoch()}; }

void ImageLoader::set_epoch(std::uint64_t epoch) {
  Impl& impl = *impl_;
  impl.stop();
  impl.sampler->set_epoch(epoch);
  impl.first_slot = 0;
  impl.audit.reset();
  impl.count_steps();
}

std::optional<ImageBatch> ImageLoader::next() {
  Impl& impl = *impl_;
  if (impl.steps_taken == impl.steps) return std::nullopt;
  if (!impl.pipeline) impl.start();
  ++impl.steps_taken;  // also of a batch that could not be made: its samples are then missing
  auto made = impl.pipeline->next();
  if (!made) throw Error(ErrorCode::kCancelled, "the loader was stopped");
  impl.audit.add(made->samples);
  impl.delivered += made->samples.size();
  if (impl.prefetcher) impl.prefetcher->reached(impl.delivered);
  return std::move(made->batch);
}

ResumeToken ImageLoader::state() {
  Impl& impl = *impl_;
  auto token = impl.sampler->token(
      impl.data.fingerprint(),
      impl.sampler->slots_after(impl.steps_taken, impl.batch_size, impl.first_slot));
  token.audit = reduced(impl.audit.sum(), impl.group);
  return token;
}

void ImageLoader::restore(const ResumeToken& token) {
  Impl& impl = *impl_;
  const auto resumed = impl.sampler->clone();
  resumed->resume(token, impl.data.fingerprint());
  const bool at_end = resumed->steps(1, token.slots) == 0;
  if (!at_end && token.slots > 0 && !token.audit) {
    throw Mismatch("the resume token stands within an epoch and does not say what was delivered",
                   "epoch " + std::to_string(token.epoch), "take tokens from ImageLoader::state()");
  }
  impl.stop();
  impl.sampler->resume(token, impl.data.fingerprint());
  impl.audit.reset();
  if (at_end) {
    impl.sampler->set_epoch(token.epoch + 1);
    impl.first_slot = 0;
  } else {
    impl.first_slot = token.slots;
    if (token.audit && impl.group.is_first()) impl.audit.merge(*token.audit);
  }
  impl.count_steps();
}

std::uint64_t ImageLoader::steps_left() const noexcept { return impl_->steps - impl_->steps_taken; }

double ImageLoader::wait_seconds() const noexcept {
  return impl_->waited_before + (impl_->pipeline ? impl_->pipeline->wait_seconds() : 0.0);
}

ImageEpoch::Iterator& ImageEpoch::Iterator::operator++() {
  auto next = loader_->next();
  batch_ = next ? std::make_shared<ImageBatch>(std::move(*next)) : nullptr;
  return *this;
}

std::uint64_t ImageEpoch::steps() const noexcept { return loader_->impl_->steps; }

std::string ImageEpoch::prove() const {
  auto& impl = *loader_->impl_;
  if (impl.sampler->epoch() != number_) {
    throw NotExact("the loader has moved on", "epoch " + std::to_string(number_),
                   "prove an epoch before the next one begins");
  }
  const Hash128 fingerprint = impl.data.fingerprint();
  if (!impl.expected_all) {
    impl.expected_all = AuditSum::of_range(0, impl.sampler->spec().num_samples, fingerprint);
  }
  EpochAudit whole(fingerprint);
  whole.set_sum(reduced(impl.audit.sum(), impl.group));
  const auto verdict = whole.verdict(impl.sampler->expectation(fingerprint, *impl.expected_all));
  if (!verdict.proven) throw NotExact(verdict.text(number_));
  return verdict.text(number_);
}

}  // namespace shardwise::libtorch
