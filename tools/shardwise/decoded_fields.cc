#include "decoded_fields.h"

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string_view>
#include <vector>

#include "base/hasher.h"
#include "base/text.h"
#include "decode/decode_failure.h"
#include "decode/field_kind.h"
#include "decode/image_codec.h"
#include "decode/npy.h"
#include "loader/bad_field.h"
#include "loader/column_maker.h"
#include "loader/field_choice.h"
#include "loader/transform.h"
#include "shardwise/base/hash.h"

namespace shardwise::tools {
namespace {

using detail::ColumnMaker;
using detail::FieldKind;
using detail::RowInput;
using detail::RowOutput;
using detail::Stage;

class DecodedFields final : public ColumnMaker {
 public:
  DecodedFields(bool every_field, const std::optional<ImageTransform>& transform)
      : ColumnMaker(DType::kInt64, Layout::kFixed), every_field_(every_field) {
    if (transform) transformer_.emplace(*transform);
  }

  [[nodiscard]] bool takes_long() const override { return true; }
  void make(const RowInput& input, RowOutput& output) const override {
    std::int64_t images = 0;
    if (every_field_) {
      for (std::size_t i = 0; i < input.sample.num_fields(); ++i) {
        images += decode(input, i, detail::field_kind(input.sample.field(i).name)) ? 1 : 0;
      }
    } else {
      images += decode(input, only_image_.in(input.sample), FieldKind::kImage) ? 1 : 0;
    }
    std::memcpy(output.slot.data(), &images, sizeof images);
  }

 private:
  /// True if it was an image.
  bool decode(const RowInput& input, std::size_t place, FieldKind kind) const {
    const Sample::Field field = input.sample.field(place);
    input.add_bytes(field.bytes.size());
    detail::read_pages(field.bytes);
    input.enter(Stage::kDecoding);
    switch (kind) {
      case FieldKind::kImage:
        checked(input.sample, place, "an image", [&] { decode_image(input, field.bytes); });
        break;
      case FieldKind::kNpy:
        checked(input.sample, place, "an array", [&] { decode_array(field.bytes); });
        break;
      case FieldKind::kInteger:
        static_cast<void>(input.sample.integer(field.name));
        break;
      case FieldKind::kText:
      case FieldKind::kJson:
        if (!is_utf8(field.bytes)) {
          detail::throw_bad_field(input.sample, place, "text", "it is not UTF-8");
        }
        break;
      case FieldKind::kBytes:
        break;  // they were read
    }
    input.enter(Stage::kReading);
    return kind == FieldKind::kImage;
  }

  /// A DecodeFailure becomes a BadField.
  template <class Work>
  static void checked(const Sample& sample, std::size_t place, std::string_view type,
                      const Work& work) {
    try {
      work();
    } catch (const detail::DecodeFailure& failure) {
      detail::throw_bad_field(sample, place, type, failure.what());
    }
  }

  void decode_image(const RowInput& input, std::string_view bytes) const {
    thread_local detail::RgbImage pixels;
    thread_local std::vector<std::byte> result;
    detail::DecodeRequest request;
    if (!transformer_) {
      detail::decode_rgb(bytes, request, pixels);
      return;
    }
    const detail::ImageHeader header = detail::read_image_header(bytes);
    if (header.height == 0 || header.width == 0) {
      throw detail::DecodeFailure("the image has no pixels");
    }
    const detail::ImagePlan plan =
        transformer_->plan({header.height, header.width}, input.random());
    request.crop = plan.source;
    detail::decode_rgb(bytes, request, pixels);
    input.enter(Stage::kTransforming);
    result.resize(plan.height * plan.width * 3 * transformer_->value_bytes());
    transformer_->apply(plan, pixels.view(), result.data());
  }

  static void decode_array(std::string_view bytes) {
    thread_local std::vector<std::byte> items;
    const detail::NpyHeader header = detail::parse_npy_header(bytes);
    items.resize(header.num_items * header.item_bytes);
    detail::write_npy(header, bytes, items.data());
  }

  const bool every_field_;
  const detail::FieldChoice only_image_ = detail::FieldChoice::only_image();
  std::optional<detail::ImageTransformer> transformer_;
};

}  // namespace

Column decoded_fields(bool every_field, const std::optional<ImageTransform>& transform) {
  return {"images", std::make_shared<DecodedFields>(every_field, transform)};
}

}  // namespace shardwise::tools
