#include "loader/batch_mixer.h"

#include <algorithm>

#include "base/error_types.h"
#include "base/text.h"
#include "loader/batch_builder.h"
#include "loader/column_maker.h"
#include "loader/mix.h"
#include "loader/sample_random.h"

namespace shardwise::detail {
namespace {

void require_alpha(const char* name, double alpha) {
  if (alpha == 0 || (alpha >= 0.001 && alpha <= 1000)) return;
  throw InvalidArgument(std::string(name) + " is out of range", std::to_string(alpha),
                        "choose 0, or a number from 0.001 to 1000 (usual: 0.2 or 1)");
}

}  // namespace

BatchMixer::BatchMixer(const Loader::Mix& mix, std::span<const Column> columns, std::uint64_t seed)
    : mix_(mix), seed_(seed) {
  require_alpha("mix.mixup_alpha", mix.mixup_alpha);
  require_alpha("mix.cutmix_alpha", mix.cutmix_alpha);
  if (mix.mixup_alpha == 0 && mix.cutmix_alpha == 0) {
    throw InvalidArgument("mix does nothing", "mixup_alpha and cutmix_alpha are 0",
                          "set mixup_alpha or cutmix_alpha, or leave out mix");
  }
  if (!(mix.probability >= 0 && mix.probability <= 1)) {
    throw InvalidArgument("mix.probability is out of range", std::to_string(mix.probability),
                          "choose a number from 0 to 1");
  }
  const auto column = std::find_if(columns.begin(), columns.end(),
                                   [&](const Column& c) { return c.name() == mix.column; });
  const auto layout = column == columns.end() ? std::nullopt : column->maker()->image_layout();
  if (!layout) {
    throw InvalidArgument("the column to mix is not a column of images", in_quotes(mix.column),
                          "name one of the loader's image columns");
  }
  layout_ = *layout;
  const DType dtype = column->maker()->dtype();
  if (mix.mixup_alpha != 0 && dtype != DType::kUInt8 && dtype != DType::kFloat32) {
    throw InvalidArgument(
        "mixup needs uint8 or float32",
        "column " + in_quotes(mix.column) + " is " + std::string(to_string(dtype)),
        "choose another type, or cutmix");
  }
}

double BatchMixer::mix_pixels(const Batch::Array& images, const Hash128& key) const {
  SampleRandom random(key, Operation::kMixing);
  if (!random.chance(mix_.probability)) return 1;
  const bool cuts = mix_.mixup_alpha == 0 || (mix_.cutmix_alpha != 0 && random.chance(0.5));
  std::byte* const pixels = images.memory().get();
  const std::size_t n = images.size();
  if (cuts) {
    const std::span<const std::int64_t> row = images.row_shape(0);
    const std::size_t first = layout_ == ImageTransform::Layout::kChannelsFirst ? 1 : 0;
    const ImageTransform::Size size{.height = static_cast<std::size_t>(row[first]),
                                    .width = static_cast<std::size_t>(row[first + 1])};
    const CutmixPlan plan = plan_cutmix(mix_.cutmix_alpha, size, key);
    cutmix(pixels, n, size, layout_, size_of(images.dtype()), plan.box);
    return plan.lambda;
  }
  const double lambda = plan_mixup(mix_.mixup_alpha, key);
  const std::size_t values = images.bytes().size() / size_of(images.dtype()) / n;
  if (images.dtype() == DType::kFloat32) {
    mixup(reinterpret_cast<float*>(pixels), n, values, lambda);
  } else {
    mixup(reinterpret_cast<std::uint8_t*>(pixels), n, values, lambda);
  }
  return lambda;
}

void BatchMixer::mix(Batch& batch, std::uint64_t epoch, BufferPool& pool) const {
  const std::size_t n = batch.size();
  double lambda = 1;
  if (n > 0) {
    const auto position = static_cast<std::uint64_t>(batch.positions()[0]);
    lambda = mix_pixels(batch[mix_.column], batch_key(seed_, epoch, position));
  }
  const auto lambdas = pool.take(n * sizeof(float));
  const auto partners = pool.take(n * sizeof(std::int64_t));
  std::fill_n(reinterpret_cast<float*>(lambdas.get()), n, static_cast<float>(lambda));
  for (std::size_t i = 0; i < n; ++i) {
    reinterpret_cast<std::int64_t*>(partners.get())[i] =
        static_cast<std::int64_t>(mixed_with(i, n));
  }
  BatchBuilder::set_array(batch, mix_.column + "_lambda", DType::kFloat32, n, {}, lambdas);
  BatchBuilder::set_array(batch, mix_.column + "_partner", DType::kInt64, n, {}, partners);
}

}  // namespace shardwise::detail
