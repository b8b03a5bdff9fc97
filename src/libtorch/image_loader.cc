#include "shardwise/libtorch/image_loader.h"

#include <torch/torch.h>

#include <algorithm>
#include <array>
#include <vector>

#include "base/text.h"
#include "data/loader.h"
#include "libtorch/decode_internal.h"
#include "libtorch/image_codec.h"
#include "shardwise/base/error.h"
#include "shardwise/data/fetch_plan.h"
#include "shardwise/data/shard_prefetcher.h"
#include "shardwise/order/epoch_audit.h"
#include "shardwise/order/sampler.h"

namespace shardwise::libtorch {
namespace {

/// The content of one batch: decided in order by the sampler, made by any thread.
struct BatchPlan {
  std::vector<std::uint64_t> samples;
  std::vector<std::uint64_t> positions;
};

/// A sample that was left out of its batch.
struct BadSample {
  std::uint64_t sample = 0;
  std::uint64_t position = 0;
  std::string reason;
};

/// The result of a plan.
struct Made {
  ImageBatch batch;
  std::vector<std::uint64_t> read;  ///< the samples in it, by the data set's numbers
  std::size_t planned = 0;
  std::vector<BadSample> bad;
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
  BatchMaker(MixedDataset data, const ImageLoaderOptions& options)
      : data_(std::move(data)), options_(options), field_(options.image_field) {
    image_options_.resize = options.resize;
    image_options_.max_pixels = options.max_pixels;
  }

  Made make(const BatchPlan& plan) const {
    const auto count = static_cast<std::int64_t>(plan.samples.size());
    Made made;
    made.planned = plan.samples.size();
    ImageBatch& batch = made.batch;
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
      const std::size_t part = data_.part_of(plan.samples[i]);
      const Sample sample = data_.part(part)[plan.samples[i] - data_.first_sample(part)];
      std::int64_t label = 0;
      try {
        detail::decode_rgb_field(sample, field_.in(sample), image_options_, scratch);
        label = sample.integer(options_.label_field);
      } catch (const Error& e) {
        if (options_.max_bad == 0 || !is_of_the_sample(e)) throw;
        made.bad.push_back({plan.samples[i], plan.positions[i], e.what()});
        continue;
      }
      const ImageSize stored{static_cast<std::int64_t>(scratch.height()),
                             static_cast<std::int64_t>(scratch.width())};
      if (planes == nullptr) {
        if (size.empty()) size = stored;
        batch.images = torch::empty({count, 3, size.height, size.width}, torch::kUInt8);
        planes = batch.images.data_ptr<std::uint8_t>();
      } else if (options_.resize.empty() && stored != size) {
        throw_other_size(sample, stored, size);
      }
      const auto height = static_cast<std::size_t>(size.height);
      const auto width = static_cast<std::size_t>(size.width);
      const std::size_t place = made.read.size();
      detail::write_planes(scratch, height, width, planes + place * 3 * height * width);
      labels[place] = label;
      samples[place] = static_cast<std::int64_t>(plan.samples[i]);
      positions[place] = static_cast<std::int64_t>(plan.positions[i]);
      made.read.push_back(data_.first_sample(part) + sample.index());
    }
    if (planes == nullptr) batch.images = empty_images();
    if (!made.bad.empty()) {
      const auto good = static_cast<std::int64_t>(made.read.size());
      for (torch::Tensor* part : {&batch.images, &batch.labels, &batch.samples, &batch.positions}) {
        *part = part->narrow(0, 0, good);
      }
    }
    return made;
  }

 private:
  /// True if `error` is about the contents of a sample, not about its shard, the disk or options.
  static bool is_of_the_sample(const Error& error) {
    return error.code() == ErrorCode::kBadField || error.code() == ErrorCode::kNotFound ||
           error.code() == ErrorCode::kUnsupported;
  }

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

  /// Without a size of its own an empty batch takes that of the data set's first good image.
  torch::Tensor empty_images() const {
    ImageSize size = options_.resize;
    for (std::uint64_t i = 0; size.empty() && i < data_.size(); ++i) {
      const Sample sample = data_[i];
      detail::RgbImage image;
      try {
        detail::decode_rgb_field(sample, field_.in(sample), image_options_, image);
      } catch (const Error& e) {
        if (options_.max_bad == 0 || !is_of_the_sample(e)) throw;
        continue;
      }
      size = {static_cast<std::int64_t>(image.height()), static_cast<std::int64_t>(image.width())};
    }
    return torch::empty({0, 3, size.height, size.width}, torch::kUInt8);
  }

  const MixedDataset data_;
  const ImageLoaderOptions options_;
  const ImageField field_;
  ImageOptions image_options_;
};

/// Errors: InvalidArgument.
std::unique_ptr<shardwise::Sampler> sampler_for(const MixedDataset& data,
                                                const ImageLoaderOptions& options, int rank,
                                                int world_size) {
  if (options.batch_size < 1 || options.batch_size > (1 << 24)) {
    throw InvalidArgument("a batch size out of range", std::to_string(options.batch_size),
                          "choose 1 to 16,777,216");
  }
  if (options.global_batch_size < 0) {
    throw InvalidArgument("a batch size out of range", std::to_string(options.global_batch_size),
                          "choose 1 or more, or 0 for batch_size on each rank");
  }
  if (options.max_bad > 0 && std::holds_alternative<Wids>(options.order.kind)) {
    throw InvalidArgument("max_bad with the order of wids", {},
                          "it cannot leave samples out; choose another order, or max_bad 0");
  }
  detail::require_size(options.resize);
  return make_sampler(data, options.order,
                      {.rank = static_cast<std::uint64_t>(rank),
                       .world_size = static_cast<std::uint64_t>(world_size),
                       .batch_size = static_cast<std::uint64_t>(options.batch_size),
                       .global_batch_size = static_cast<std::uint64_t>(options.global_batch_size),
                       .replicas = options.replicas});
}

torch::Tensor words_tensor(std::vector<std::int64_t>& words) {
  return torch::from_blob(words.data(), {static_cast<std::int64_t>(words.size())}, torch::kInt64);
}

/// Returns on every rank the bytes of all ranks, by rank.
std::string gathered(const std::string& bytes, const ProcessGroup& group) {
  std::vector<std::int64_t> sizes(static_cast<std::size_t>(group.world_size()));
  sizes[static_cast<std::size_t>(group.rank())] = static_cast<std::int64_t>(bytes.size());
  group.all_reduce(words_tensor(sizes));
  std::int64_t total = 0;
  std::int64_t begin = 0;
  for (std::size_t rank = 0; rank < sizes.size(); ++rank) {
    if (static_cast<int>(rank) == group.rank()) begin = total;
    total += sizes[rank];
  }
  const auto all = torch::zeros({total}, torch::kUInt8);
  std::copy(bytes.begin(), bytes.end(), all.data_ptr<std::uint8_t>() + begin);
  group.all_reduce(all);  // every other rank has zeros where one has its bytes
  return {reinterpret_cast<const char*>(all.data_ptr()), static_cast<std::size_t>(total)};
}

}  // namespace

struct ImageLoader::Impl {
  Impl(MixedDataset dataset, ProcessGroup process_group, ImageLoaderOptions loader_options)
      : data(std::move(dataset)),
        group(std::move(process_group)),
        options(std::move(loader_options)),
        maker(std::make_shared<const BatchMaker>(data, options)),
        sampler(sampler_for(data, options, group.rank(), group.world_size())),
        audit(data.fingerprint()) {
    begin_steps();
  }

  void begin_steps() {
    steps = sampler->steps();
    steps_taken = 0;
    ended = false;
    bad_here.clear();
  }

  void stop() {
    if (pipeline) waited_before += pipeline->wait_seconds();
    pipeline.reset();
  }

  /// Starts the threads. They have a sampler of their own, which runs ahead of what is delivered.
  void start() {
    auto ahead = std::shared_ptr<shardwise::Sampler>(sampler->clone());
    auto planned = std::make_shared<std::uint64_t>(steps_taken);
    const auto plan = [ahead, planned, num_steps = steps]() -> std::optional<BatchPlan> {
      if (*planned == num_steps) return std::nullopt;
      BatchPlan next;
      const std::uint64_t first = ahead->first_of_step(*planned);
      ++*planned;
      next.samples.resize(ahead->first_of_step(*planned) - first);
      next.samples.resize(ahead->next_batch(next.samples));
      for (std::size_t i = 0; i < next.samples.size(); ++i) {
        next.positions.push_back(ahead->position_in_epoch(first + i));
      }
      return next;
    };
    const auto make = [maker = maker](const BatchPlan& batch) { return maker->make(batch); };
    follow();
    LoaderOptions loader_options;
    loader_options.num_threads = options.threads;
    loader_options.prefetch = options.prefetch;
    pipeline = std::make_unique<Loader<BatchPlan, Made>>(plan, make, loader_options);
  }

  /// Tells the cache, if there is one, what this node's ranks will read.
  void follow() {
    // The shards that several data sets need from one cache are not known in advance.
    if (data.num_parts() > 1 || !data.part(0).cache()) return;
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
    if (group.local_rank() == 0) {
      if (const auto warning = small_cache_warning(data.part(0), *sampler, ahead.node))
        TORCH_WARN(*warning);
    }
    prefetcher = std::make_unique<ShardPrefetcher>(data.part(0), *sampler, ahead);
  }

  /// Which of the ranks that get the same batches this one is.
  std::uint64_t replica() const { return sampler->rank() % sampler->replicas(); }

  /// Adds up what the ranks delivered in this epoch, by replica; afterwards every rank knows all
  /// bad samples, too. Collective.
  std::vector<AuditSum> agree() {
    constexpr std::size_t kWords = AuditSum::kNumWords;
    std::vector<std::int64_t> words(kWords * sampler->replicas() + 1);
    const auto own = audit.sum().to_words();
    std::copy(own.begin(), own.end(),
              words.begin() + static_cast<std::ptrdiff_t>(kWords * replica()));
    const bool speaks = replica() == 0;  // the other replicas found the same
    words.back() = speaks ? static_cast<std::int64_t>(bad_here.size()) : 0;
    group.all_reduce(words_tensor(words));
    std::vector<AuditSum> sums;
    for (std::uint64_t r = 0; r < sampler->replicas(); ++r) {
      sums.push_back(AuditSum::from_words(std::span(words).subspan(kWords * r).first<kWords>()));
    }
    if (words.back() == 0) {
      bad_everywhere.clear();
      return sums;
    }
    // As a token, which holds lists already; a sample that was bad twice counts twice.
    ResumeToken carrier;
    std::string text;
    for (const BadSample& found : bad_here) {
      if (!speaks) break;
      carrier.skip = {};
      carrier.skip.add_sample(found.sample, found.reason, {sampler->epoch(), found.position});
      text += carrier.to_text() + "\n";
    }
    text = gathered(text, group);
    bad_everywhere.clear();
    for (std::size_t begin = 0; begin < text.size();) {
      const std::size_t end = text.find('\n', begin);
      const auto one = ResumeToken::from_text(std::string_view(text).substr(begin, end - begin));
      bad_everywhere.push_back(one.skip.samples().begin()->first);
      bad.merge(one.skip);
      begin = end + 1;
    }
    require_few_bad(bad.samples().size());
    return sums;
  }

  void require_few_bad(std::size_t found) const {
    if (found <= options.max_bad) return;
    const auto& [sample, entry] = *bad.samples().begin();
    throw BadField(std::to_string(found) + " bad samples, more than the " +
                       std::to_string(options.max_bad) + " that max_bad allows",
                   "the first of them is sample " + std::to_string(sample) + ": " + entry.reason,
                   "mend them, leave them out, or raise max_bad");
  }

  /// Collective. Errors: NotExact.
  std::string prove() {
    const std::vector<AuditSum> sums = agree();
    const Hash128 fingerprint = data.fingerprint();
    if (sampler->is_exact() && !expected_all) {
      expected_all = AuditSum::of_range(0, sampler->num_samples(), fingerprint);
    }
    AuditExpectation expectation = sampler->expectation(expected_all.value_or(AuditSum{}));
    expectation.leave_out(bad_everywhere);
    std::string text;
    for (std::size_t r = sums.size(); r-- > 0;) {
      EpochAudit whole(fingerprint);
      whole.set_sum(sums[r]);
      const AuditVerdict verdict = whole.verdict(expectation);
      text = verdict.text(sampler->epoch());
      if (verdict.proven) continue;
      if (sums.size() > 1) text = "replica " + std::to_string(r) + ", " + text;
      throw NotExact(text);
    }
    return text;
  }

  /// The token of all ranks after `num_steps` steps of this epoch, without an audit.
  ResumeToken token_after(std::uint64_t num_steps) const {
    ResumeToken token = sampler->token_after(num_steps);
    token.skip.merge(bad);
    return token;
  }

  const MixedDataset data;
  const ProcessGroup group;
  const ImageLoaderOptions options;
  const std::shared_ptr<const BatchMaker> maker;
  std::unique_ptr<shardwise::Sampler>
      sampler;                           ///< stands where this epoch, or the resumed rest, began
  EpochAudit audit;                      ///< of what this rank handed out
  std::optional<AuditSum> expected_all;  ///< of every sample once: the same in every epoch
  std::uint64_t steps = 0;               ///< from there to the end
  std::uint64_t steps_taken = 0;
  bool ended = false;                         ///< next() has said so
  std::vector<BadSample> bad_here;            ///< of this rank, in this epoch or its rest
  std::vector<std::uint64_t> bad_everywhere;  ///< of all ranks, as agreed last
  SkipList bad;                               ///< of all ranks in all epochs, as agreed last
  double waited_before = 0;
  std::uint64_t delivered = 0;  ///< of this rank's epoch
  std::unique_ptr<ShardPrefetcher> prefetcher;
  std::unique_ptr<Loader<BatchPlan, Made>> pipeline;  ///< nullptr: not started
};

ImageLoader::ImageLoader(MixedDataset data, ProcessGroup group, ImageLoaderOptions options)
    : impl_(std::make_unique<Impl>(std::move(data), std::move(group), std::move(options))) {}

void ImageLoader::check(const MixedDataset& data, const ImageLoaderOptions& options,
                        int world_size) {
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
  ResumeToken token = impl.token_after(0);  // with the samples that are known to be bad
  token.epoch = epoch;
  token.position = 0;
  impl.sampler->resume(token);
  impl.stop();
  impl.audit.reset();
  impl.begin_steps();
}

std::optional<ImageBatch> ImageLoader::next() {
  Impl& impl = *impl_;
  if (impl.steps_taken == impl.steps) {
    impl.ended = true;
    return std::nullopt;
  }
  if (!impl.pipeline) impl.start();
  ++impl.steps_taken;  // also of a batch that could not be made: its samples are then missing
  auto made = impl.pipeline->next();
  if (!made) throw Error(ErrorCode::kCancelled, "the loader was stopped");
  impl.audit.add(made->read);
  impl.delivered += made->planned;
  if (impl.prefetcher) impl.prefetcher->reached(impl.delivered);
  if (!made->bad.empty()) {
    SkipList known = impl.bad;
    for (BadSample& bad : made->bad) impl.bad_here.push_back(std::move(bad));
    for (const BadSample& bad : impl.bad_here) known.add_sample(bad.sample);
    if (known.samples().size() > impl.options.max_bad) {
      throw BadField(std::to_string(known.samples().size()) + " bad samples, more than the " +
                         std::to_string(impl.options.max_bad) + " that max_bad allows",
                     "the last of them: " + impl.bad_here.back().reason,
                     "mend them, leave them out, or raise max_bad");
    }
  }
  return std::move(made->batch);
}

ResumeToken ImageLoader::state() {
  Impl& impl = *impl_;
  if (impl.steps_taken == impl.steps) {
    impl.prove();
    return impl.token_after(impl.steps_taken);
  }
  const std::vector<AuditSum> sums = impl.agree();
  ResumeToken token = impl.token_after(impl.steps_taken);
  token.audit = sums.front();
  return token;
}

void ImageLoader::restore(const ResumeToken& token, Changes changes) {
  Impl& impl = *impl_;
  const auto resumed = impl.sampler->clone();
  resumed->resume(token, changes);
  const std::string where =
      "epoch " + std::to_string(token.epoch) + ", position " + std::to_string(token.position);
  bool is_done = false;
  if (token.position > 0) {
    if (!token.audit) {
      throw Mismatch("the resume token stands within an epoch and does not say what was delivered",
                     where, "take tokens from ImageLoader::state()");
    }
    const std::uint64_t due = resumed->deliveries_before(token.position);
    if (token.audit->count != due) {
      throw Mismatch("the resume token says that " + std::to_string(token.audit->count) +
                         " samples were delivered, and " + std::to_string(due) + " were due",
                     where, "take tokens from ImageLoader::state()");
    }
    is_done = resumed->steps() == 0;
    if (is_done) {
      EpochAudit audit(impl.data.fingerprint());
      audit.merge(*token.audit);
      audit.prove(resumed->expectation(), token.epoch);
      resumed->set_epoch(token.epoch + 1);
    }
  }
  impl.stop();
  impl.sampler = resumed->clone();
  impl.audit.reset();
  if (token.position > 0 && !is_done && impl.group.rank() < static_cast<int>(resumed->replicas())) {
    impl.audit.merge(*token.audit);  // one rank of each replica
  }
  impl.begin_steps();
}

const SkipList& ImageLoader::bad_samples() const noexcept { return impl_->bad; }

std::uint64_t ImageLoader::steps_left() const noexcept { return impl_->steps - impl_->steps_taken; }

double ImageLoader::wait_seconds() const noexcept {
  return impl_->waited_before + (impl_->pipeline ? impl_->pipeline->wait_seconds() : 0.0);
}

ImageEpoch::Iterator ImageEpoch::begin() const {
  const auto& impl = *loader_->impl_;
  if (impl.ended && impl.sampler->epoch() == number_) {
    throw InvalidArgument("the end of the epoch was reached", "epoch " + std::to_string(number_),
                          "call set_epoch(" + std::to_string(number_ + 1) +
                              ") on the loader to go on, or walk through its epochs()");
  }
  return Iterator(*loader_);
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
  return impl.prove();
}

}  // namespace shardwise::libtorch
