#include "loader/image_rows.h"

#include <string>

#include "base/spelling.h"
#include "base/text.h"
#include "decode/decode_failure.h"
#include "shardwise/base/error.h"

namespace shardwise::detail {

DType dtype_of(ImageTransform::Type type) noexcept {
  switch (type) {
    case ImageTransform::Type::kFloat32:
      return DType::kFloat32;
    case ImageTransform::Type::kFloat16:
      return DType::kFloat16;
    case ImageTransform::Type::kBfloat16:
      return DType::kBFloat16;
    case ImageTransform::Type::kUint16:
      return DType::kUInt16;
    case ImageTransform::Type::kUint8:
      break;
  }
  return DType::kUInt8;
}

std::vector<std::int64_t> image_shape(const ImageTransform& transform, std::size_t height,
                                      std::size_t width) {
  const auto h = static_cast<std::int64_t>(height);
  const auto w = static_cast<std::int64_t>(width);
  if (transform.layout == ImageTransform::Layout::kChannelsLast) return {h, w, 3};
  return {3, h, w};
}

bool has_size_by_group(const ImageTransform& transform) noexcept {
  constexpr auto kByGroup = ImageTransform::Size::by_group();
  return transform.resize == kByGroup || transform.centre_crop == kByGroup ||
         transform.random_crop == kByGroup ||
         (transform.random_resized_crop && transform.random_resized_crop->size == kByGroup);
}

ImageTransform with_size(ImageTransform transform, const ImageTransform::Size& size) {
  constexpr auto kByGroup = ImageTransform::Size::by_group();
  for (ImageTransform::Size* const own :
       {&transform.resize, &transform.centre_crop, &transform.random_crop}) {
    if (*own == kByGroup) *own = size;
  }
  auto& crop = transform.random_resized_crop;
  if (!crop || crop->size != kByGroup) return transform;
  const double ratio = static_cast<double>(size.width) / static_cast<double>(size.height);
  crop->size = size;
  crop->ratio = {.least = crop->ratio.least * ratio, .most = crop->ratio.most * ratio};
  return transform;
}

ImagePlan plan_within(const ImageTransformer& transformer, const ImageTransform::Size& stored,
                      const Hash128& key, std::uint64_t max_pixels) {
  ImagePlan plan = transformer.plan(stored, key);
  if (!transformer.fixed_size() && plan.height > 0 && plan.width > max_pixels / plan.height) {
    throw DecodeFailure("the transform enlarges " + size_text(stored.height, stored.width) +
                        " to " + size_text(plan.height, plan.width) + ", more than the limit of " +
                        human_count(max_pixels) + " pixels (max_pixels)");
  }
  require_resizable(plan.source.height, plan.part.window, max_pixels);
  return plan;
}

void throw_other_size(const Sample& sample, std::string_view images,
                      const ImageTransform::Size& size, const ImageTransform::Size& first) {
  throw InvalidArgument("the " + std::string(images) + " of one batch differ in size",
                        sample.describe() + " is " + size_text(size.height, size.width) +
                            ", the batch's first " + size_text(first.height, first.width),
                        "set " + spelled("resize") + ", or a crop");
}

}  // namespace shardwise::detail
