#include <algorithm>
#include <cstring>
#include <utility>

#include "base/error_types.h"
#include "base/of_thread.h"
#include "base/text.h"
#include "decode/decode_failure.h"
#include "decode/video/video_decoder.h"
#include "loader/agreed_options.h"
#include "loader/bad_field.h"
#include "loader/column_maker.h"
#include "loader/image_rows.h"
#include "loader/media/clip.h"
#include "loader/media/media_field.h"
#include "loader/transform.h"
#include "shardwise/loader/media_columns.h"

namespace shardwise::columns {
namespace {

using detail::ColumnMaker;
using detail::FieldChoice;
using detail::ImagePlan;
using detail::ImageTransformer;
using detail::RgbImage;
using detail::RowInput;
using detail::RowOutput;
using detail::Stage;
using detail::VideoDecoder;

/// A field with a video, and the rule that chooses its frames.
class ClipField {
 public:
  ClipField(const std::string& fields, const Column::VideoClip& clip)
      : fields_(FieldChoice::readable(fields)), clip_(clip) {
    detail::require_clip(clip);
  }

  [[nodiscard]] const Column::VideoClip& clip() const noexcept { return clip_; }
  [[nodiscard]] const FieldChoice& fields() const noexcept { return fields_; }
  [[nodiscard]] const std::string& name() const noexcept { return fields_.names().front(); }
  [[nodiscard]] std::string describe() const {
    return fields_.describe() + " " + detail::text_of(clip_);
  }

  /// Calls `work` with a decoder of the field. Errors: BadField if decoding fails.
  template <class Work>
  auto opened(const RowInput& input, const Work& work) const {
    const std::size_t place = fields_.in(input.sample);
    detail::MediaField field(input, place);
    input.enter(Stage::kDecoding);
    try {
      VideoDecoder decoder(field.view(), clip_.max_pixels, clip_.max_frames);
      return work(decoder);
    } catch (const detail::DecodeFailure& failure) {
      detail::throw_bad_field(input.sample, place, "a video", failure.what());
    }
  }

  [[nodiscard]] std::vector<std::int64_t> frames(const VideoDecoder& decoder,
                                                 const RowInput& input) const {
    return detail::clip_frames(decoder.times(), clip_, input.random());
  }

 private:
  const FieldChoice fields_;
  const Column::VideoClip clip_;
};

ImageTransform::Size size_of_frames(const VideoDecoder& decoder) {
  return {static_cast<std::size_t>(decoder.height()), static_cast<std::size_t>(decoder.width())};
}

class VideoColumn final : public ColumnMaker {
 public:
  /// @param given  the transform as the user gave it; its size may be by group.
  VideoColumn(ClipField field, const ImageTransform& given, const ImageTransformer& transformer)
      : ColumnMaker(detail::dtype_of(given.type),
                    transformer.fixed_size() ? Layout::kFixed : Layout::kLikeFirst),
        field_(std::move(field)),
        given_(given),
        transformer_(transformer) {}

  [[nodiscard]] std::string describe() const override {
    return "video " + field_.describe() + " " + detail::text_of(given_);
  }
  [[nodiscard]] bool takes_long() const override { return true; }
  [[nodiscard]] bool reads_whole_fields() const override { return false; }
  [[nodiscard]] const FieldChoice* fields() const override { return &field_.fields(); }
  [[nodiscard]] std::vector<std::int64_t> row_shape() const override {
    const auto size = transformer_.fixed_size().value_or(ImageTransform::Size{});
    return shape_of(size.height, size.width);
  }
  [[nodiscard]] std::vector<std::int64_t> row_shape_of(const RowInput& input) const override {
    return field_.opened(input, [&](const VideoDecoder& decoder) {
      const ImagePlan plan = plan_of(decoder, input);
      return shape_of(plan.height, plan.width);
    });
  }
  [[nodiscard]] bool has_size_by_group() const override {
    return detail::has_size_by_group(given_);
  }
  [[nodiscard]] std::shared_ptr<const ColumnMaker> of_size(
      const ImageTransform::Size& size) const override {
    const ImageTransform own = detail::with_size(given_, size);
    return std::make_shared<VideoColumn>(field_, own, ImageTransformer(own));
  }
  void make(const RowInput& input, RowOutput& output) const override {
    field_.opened(input, [&](VideoDecoder& decoder) { write(decoder, input, output); });
    input.enter(Stage::kReading);
  }

 private:
  [[nodiscard]] std::vector<std::int64_t> shape_of(std::size_t height, std::size_t width) const {
    auto shape = detail::image_shape(transformer_.transform(), height, width);
    shape.insert(shape.begin(), field_.clip().frames);
    return shape;
  }

  /// Plans the transform, the same for all frames of the clip.
  [[nodiscard]] ImagePlan plan_of(const VideoDecoder& decoder, const RowInput& input) const {
    return detail::plan_within(transformer_, size_of_frames(decoder), input.random(),
                               field_.clip().max_pixels);
  }

  void write(VideoDecoder& decoder, const RowInput& input, RowOutput& output) const {
    const ImagePlan plan = plan_of(decoder, input);
    const std::vector<std::int64_t> numbers = field_.frames(decoder, input);
    require_shape(input.sample, plan, output);
    const std::size_t frame_bytes = plan.height * plan.width * 3 * transformer_.value_bytes();
    RgbImage& frame = detail::of_thread<RgbImage>([] {});
    frame.reshape(size_of_frames(decoder).height, size_of_frames(decoder).width);
    std::byte* to = output.slot.data();
    for (std::size_t i = 0; i < numbers.size(); ++i, to += frame_bytes) {
      if (i > 0 && numbers[i] == numbers[i - 1]) {
        std::memcpy(to, to - frame_bytes, frame_bytes);
        continue;
      }
      input.enter(Stage::kDecoding);
      decoder.read(std::span(&numbers[i], 1), frame.data());
      input.enter(Stage::kTransforming);
      transformer_.apply(plan, frame.view().cropped(plan.source), to);
    }
  }

  void require_shape(const Sample& sample, const ImagePlan& plan, const RowOutput& output) const {
    if (layout() == Layout::kFixed) return;
    if (std::ranges::equal(shape_of(plan.height, plan.width), output.shape)) return;
    const bool is_last = transformer_.transform().layout == ImageTransform::Layout::kChannelsLast;
    const std::size_t down = is_last ? 1 : 2;
    detail::throw_other_size(sample, "videos", {plan.height, plan.width},
                             {static_cast<std::size_t>(output.shape[down]),
                              static_cast<std::size_t>(output.shape[down + 1])});
  }

  const ClipField field_;
  const ImageTransform given_;
  const ImageTransformer transformer_;
};

class VideoTimesColumn final : public ColumnMaker {
 public:
  explicit VideoTimesColumn(ClipField field)
      : ColumnMaker(DType::kFloat64, Layout::kFixed), field_(std::move(field)) {}

  [[nodiscard]] std::string describe() const override { return "times of " + field_.describe(); }
  [[nodiscard]] bool takes_long() const override { return true; }
  [[nodiscard]] bool reads_whole_fields() const override { return false; }
  [[nodiscard]] const FieldChoice* fields() const override { return &field_.fields(); }
  [[nodiscard]] std::vector<std::int64_t> row_shape() const override {
    return {field_.clip().frames};
  }
  void make(const RowInput& input, RowOutput& output) const override {
    field_.opened(input, [&](const VideoDecoder& decoder) {
      std::byte* to = output.slot.data();
      for (const std::int64_t number : field_.frames(decoder, input)) {
        std::memcpy(to, &decoder.times()[static_cast<std::size_t>(number)], sizeof(double));
        to += sizeof(double);
      }
    });
    input.enter(Stage::kReading);
  }

 private:
  const ClipField field_;
};

}  // namespace

Column video(const std::string& fields, const Column::VideoClip& clip,
             const ImageTransform& transform) {
  if (transform.type == ImageTransform::Type::kUint16) {
    throw InvalidArgument("videos are decoded to 8 bits, but type is uint16", in_quotes(fields),
                          "choose another type");
  }
  ClipField field(fields, clip);
  std::string name = field.name();
  return {std::move(name),
          std::make_shared<VideoColumn>(std::move(field), transform,
                                        ImageTransformer(detail::with_size(transform, {1, 1})))};
}

Column video_times(const std::string& fields, const Column::VideoClip& clip) {
  ClipField field(fields, clip);
  std::string name = field.name() + "_times";
  return {std::move(name), std::make_shared<VideoTimesColumn>(std::move(field))};
}

}  // namespace shardwise::columns
