#include "shardwise/libtorch/image_loader.h"

#include <ATen/record_function.h>
#include <torch/torch.h>

#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "base/agreement.h"
#include "base/hasher.h"
#include "libtorch/decode_internal.h"
#include "loader/agreed_options.h"
#include "shardwise/base/error.h"
#include "shardwise/libtorch/tensors.h"
#include "shardwise/loader/loader.h"

namespace shardwise::libtorch {
namespace {

using shardwise::detail::agreed_options;

constexpr const char* kImages = "images";
constexpr const char* kLabels = "labels";

std::uint64_t required_size(const std::string& option, std::int64_t size) {
  if (size >= 0) return static_cast<std::uint64_t>(size);
  throw InvalidArgument("the batch size is out of range", option + " = " + std::to_string(size),
                        "choose 1 or more");
}

Loader::Options loader_options(const ImageLoader::Options& options) {
  detail::require_size(options.resize);
  if (options.transform.type == ImageTransform::Type::kUint16) {
    throw InvalidArgument("LibTorch has no tensors of uint16", "transform.type",
                          "choose uint8, or a floating-point type");
  }
  Loader::Options made;
  ImageTransform transform = options.transform;
  if (!options.resize.empty()) {
    transform.resize = {static_cast<std::size_t>(options.resize.height),
                        static_cast<std::size_t>(options.resize.width)};
  }
  made.columns = {columns::image(options.image_field, transform, options.decoding).named(kImages),
                  columns::integer(options.label_field).named(kLabels)};
  made.order = options.order;
  made.batch_size = required_size("batch_size", options.batch_size);
  made.global_batch_size = required_size("global_batch_size", options.global_batch_size);
  made.replicas = options.replicas;
  made.threads = options.threads;
  made.max_bad = options.max_bad;
  made.prefetch = options.prefetch;
  made.fetch_threads = options.fetch_threads;
  return made;
}

torch::Tensor copied(std::span<const std::int64_t> numbers) {
  return torch::tensor(torch::ArrayRef<std::int64_t>(numbers.data(), numbers.size()),
                       torch::kInt64);
}

/// Returns the order as text for people, with a hash of all its settings.
std::string order_text(const MixedDataset& data, const Order& order) {
  const std::string token = make_sampler(data, order, {})->token_after(0).to_text();
  std::ostringstream text;
  text << name_of(order.kind) << ", seed " << order.seed << ", " << std::hex << hash64(token);
  return text.str();
}

/// Returns the settings that must be equal on all ranks.
Record record_of(const MixedDataset& data, const ImageLoader::Options& options,
                 std::uint64_t steps) {
  Record record = agreed_options(loader_options(options));
  record.insert(record.begin(), {{"data set", std::to_string(data.size()) + " samples, " +
                                                  to_string(data.fingerprint())},
                                 {"order", order_text(data, options.order)}});
  record.emplace_back("number of steps", std::to_string(steps));
  return record;
}

}  // namespace

struct ImageLoader::Impl {
  Impl(const MixedDataset& data, const ProcessGroup& group, const ImageLoader::Options& options)
      : is_first_here(group.local_rank() == 0),
        loader(data, loader_options(options), make_reducer(group)) {
    if (group.world_size() > 1) group.require_same(record_of(data, options, loader.steps()));
  }

  /// Warns once, on one rank of each node.
  void warn() {
    if (!std::exchange(is_first_here, false)) return;
    if (const auto warning = loader.cache_warning()) TORCH_WARN(*warning);
  }

  bool is_first_here;
  Loader loader;
};

ImageLoader::ImageLoader(MixedDataset data, ProcessGroup group)
    : ImageLoader(std::move(data), std::move(group), Options{}) {}

ImageLoader::ImageLoader(MixedDataset data, ProcessGroup group, Options options)
    : impl_(std::make_unique<Impl>(data, group, options)) {}

ImageLoader::~ImageLoader() = default;

void ImageLoader::validate(const MixedDataset& data, const ImageLoader::Options& options,
                           int world_size) {
  Loader::validate(data, loader_options(options), static_cast<std::uint64_t>(world_size));
}

std::optional<ImageLoader::Batch> ImageLoader::next() {
  // Shown by PyTorch's profiler.
  RECORD_USER_SCOPE("shardwise::ImageLoader::next");
  impl_->warn();
  const std::optional<shardwise::Batch> batch = impl_->loader.next();
  if (!batch) return std::nullopt;
  return Batch{.images = to_tensor((*batch)[kImages]),
               .labels = to_tensor((*batch)[kLabels]),
               .samples = copied(batch->samples()),
               .positions = copied(batch->positions())};
}

Loader& ImageLoader::loader() noexcept { return impl_->loader; }
const Loader& ImageLoader::loader() const noexcept { return impl_->loader; }

}  // namespace shardwise::libtorch
