#include <algorithm>
#include <cmath>
#include <span>
#include <string>
#include <utility>

#include "base/error_types.h"
#include "base/of_thread.h"
#include "decode/decode_failure.h"
#include "decode/image_codec.h"
#include "decode/image_formats.h"
#include "loader/agreed_options.h"
#include "loader/bad_field.h"
#include "loader/column_maker.h"
#include "loader/field_bytes.h"
#include "loader/image_rows.h"
#include "loader/transform.h"
#include "shardwise/loader/columns.h"

namespace shardwise::columns {
namespace {

using detail::ColumnMaker;
using detail::DecodeRequest;
using detail::FieldChoice;
using detail::ImageHeader;
using detail::ImagePlan;
using detail::ImageTransformer;
using detail::RgbImage;
using detail::RgbView;
using detail::RowInput;
using detail::RowOutput;
using detail::ScaleRule;
using detail::Stage;

/// Whether a viewer must turn the stored image by 90 degrees: Exif orientations from 5 on.
bool lies_on_its_side(const ImageHeader& header) { return header.orientation >= 5; }

constexpr unsigned kWholeScale = 8;

/// Returns the part of a scaled image in `box`. Rounds the box's edges to whole pixels.
RgbView part_of(const RgbView& image, const detail::RealBox& box) {
  const auto nearest = [](double at, std::size_t most) {
    return std::min(static_cast<std::size_t>(std::max(0.0, std::round(at))), most);
  };
  const std::size_t top = nearest(box.top, image.height - 1);
  const std::size_t left = nearest(box.left, image.width - 1);
  const std::size_t bottom = std::max(nearest(box.top + box.height, image.height), top + 1);
  const std::size_t right = std::max(nearest(box.left + box.width, image.width), left + 1);
  return image.cropped({top, left, bottom - top, right - left});
}

class ImageColumn final : public ColumnMaker {
  /// Calls `work` with the field's bytes. Throws BadField for a DecodeFailure.
  template <class Work>
  auto decoded(const RowInput& input, Work&& work) const {
    const std::size_t place = fields_.in(input.sample);
    const detail::FieldBytes bytes(input, place);
    try {
      return work(bytes.view());
    } catch (const detail::DecodeFailure& failure) {
      detail::throw_bad_field(input.sample, place, "an image", failure.what());
    }
  }

 public:
  /// @param given  the transform as the user gave it; its size may be by group.
  ImageColumn(FieldChoice fields, const ImageTransform& given, const ImageTransformer& transformer,
              const ImageDecoding& decoding)
      : ColumnMaker(detail::dtype_of(given.type),
                    transformer.fixed_size() ? Layout::kFixed : Layout::kLikeFirst),
        fields_(std::move(fields)),
        given_(given),
        transformer_(transformer),
        decoding_(decoding) {}

  [[nodiscard]] std::string describe() const override {
    return "image " + fields_.describe() + " " + detail::text_of(given_) + " " +
           detail::text_of(decoding_);
  }
  [[nodiscard]] bool takes_long() const override { return true; }
  [[nodiscard]] const FieldChoice* fields() const override { return &fields_; }
  [[nodiscard]] std::optional<ImageTransform::Layout> image_layout() const override {
    return transformer_.transform().layout;
  }
  [[nodiscard]] std::vector<std::int64_t> row_shape() const override {
    const auto size = transformer_.fixed_size().value_or(ImageTransform::Size{});
    return shape_of(size.height, size.width);
  }
  [[nodiscard]] std::vector<std::int64_t> row_shape_of(const RowInput& input) const override {
    return decoded(input, [&](std::string_view bytes) {
      const ImagePlan plan = plan_of(stored_size(bytes), input);
      return shape_of(plan.height, plan.width);
    });
  }
  [[nodiscard]] bool has_size_by_group() const override {
    return detail::has_size_by_group(given_);
  }
  [[nodiscard]] std::shared_ptr<const ColumnMaker> of_size(
      const ImageTransform::Size& size) const override {
    const ImageTransform own = detail::with_size(given_, size);
    return std::make_shared<ImageColumn>(fields_, own, ImageTransformer(own), decoding_);
  }
  void make(const RowInput& input, RowOutput& output) const override {
    decoded(input, [&](std::string_view bytes) { make_of(bytes, input, output); });
  }

 private:
  [[nodiscard]] std::vector<std::int64_t> shape_of(std::size_t height, std::size_t width) const {
    return detail::image_shape(transformer_.transform(), height, width);
  }

  [[nodiscard]] ImageTransform::Size stored_size(std::string_view bytes) const {
    const ImageHeader header = detail::read_image_header(bytes);
    detail::require_pixels(header.height, header.width, decoding_.max_pixels);
    if (decoding_.apply_orientation && lies_on_its_side(header)) {
      return {header.width, header.height};
    }
    return {header.height, header.width};
  }

  [[nodiscard]] ImagePlan plan_of(const ImageTransform::Size& stored, const RowInput& input) const {
    return detail::plan_within(transformer_, stored, input.random(), decoding_.max_pixels);
  }

  void make_of(std::string_view bytes, const RowInput& input, RowOutput& output) const {
    if (input.times != nullptr) detail::read_pages(bytes);
    input.enter(Stage::kDecoding);
    const ImageTransform::Size stored = stored_size(bytes);
    const ImagePlan plan = plan_of(stored, input);
    DecodeRequest request;
    request.max_pixels = decoding_.max_pixels;
    request.strict = decoding_.strict;
    request.apply_orientation = decoding_.apply_orientation;
    request.keep_16_bits = transformer_.transform().type == ImageTransform::Type::kUint16;
    const detail::Box whole{.height = stored.height, .width = stored.width};
    if (plan.source != whole) request.crop = plan.source;
    if (decoding_.scaling != ImageDecoding::Scaling::kExact) {
      request.scale = detail::choose_scale(
          plan.source.height, plan.source.width, plan.part.height, plan.part.width,
          decoding_.scaling == ImageDecoding::Scaling::kFast ? ScaleRule::kThreeQuarters
                                                             : ScaleRule::kNotSmaller);
    }
    RgbImage& scratch = detail::of_thread<RgbImage>([] {});
    auto* const slot = reinterpret_cast<std::uint8_t*>(output.slot.data());
    const bool is_whole = request.scale == kWholeScale;
    // Decode straight into the row if the transform would not change a pixel.
    RgbImage row(std::span(slot, output.slot.size()));
    RgbImage& image = is_whole && transformer_.keeps_pixels(plan) ? row : scratch;
    const detail::DecodeReport report = detail::decode_rgb(bytes, request, image);
    input.forgive(report.warnings);
    input.enter(Stage::kTransforming);
    const RgbView source = is_whole ? image.view() : part_of(image.view(), report.box);
    // A header may state a false size. Check the shape after decoding, which fails for such images.
    require_shape(input.sample, plan, output);
    if (image.data() != slot) transformer_.apply(plan, source, slot);
    input.enter(Stage::kReading);
  }

  void require_shape(const Sample& sample, const ImagePlan& plan, const RowOutput& output) const {
    if (layout() == Layout::kFixed) return;
    if (std::ranges::equal(shape_of(plan.height, plan.width), output.shape)) return;
    const std::size_t down =
        transformer_.transform().layout == ImageTransform::Layout::kChannelsLast ? 0 : 1;
    detail::throw_other_size(sample, "images", {plan.height, plan.width},
                             {static_cast<std::size_t>(output.shape[down]),
                              static_cast<std::size_t>(output.shape[down + 1])});
  }

  const FieldChoice fields_;
  const ImageTransform given_;
  const ImageTransformer transformer_;
  const ImageDecoding decoding_;
};

}  // namespace

Column image(const std::string& fields, const ImageTransform& transform,
             const ImageDecoding& decoding) {
  FieldChoice choice = fields.empty() ? FieldChoice::only_image() : FieldChoice::readable(fields);
  std::string name = fields.empty() ? "image" : choice.names().front();
  return {std::move(name), std::make_shared<ImageColumn>(
                               std::move(choice), transform,
                               ImageTransformer(detail::with_size(transform, {1, 1})), decoding)};
}

}  // namespace shardwise::columns
