#include "decoded_fields.h"

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string_view>
#include <vector>

#include "base/expanding_reader.h"
#include "base/json.h"
#include "base/text.h"
#include "decode/decode_failure.h"
#include "decode/field_kind.h"
#include "decode/image_codec.h"
#include "decode/image_formats.h"
#include "decode/npy.h"
#include "loaded_epoch.h"
#include "loader/bad_field.h"
#include "loader/column_maker.h"
#include "loader/field_bytes.h"
#include "loader/field_choice.h"
#include "loader/image_rows.h"
#include "loader/transform.h"
#include "shardwise/base/hash.h"

namespace shardwise::tools {
namespace {

using detail::ColumnMaker;
using detail::FieldChoice;
using detail::FieldKind;
using detail::RowInput;
using detail::RowOutput;
using detail::RowSlots;
using detail::Stage;

class DecodedFields final : public ColumnMaker {
 public:
  DecodedFields(bool every_field, const std::string& image_field,
                const std::optional<ImageTransform>& transform)
      : ColumnMaker(DType::kInt64, Layout::kFixed),
        every_field_(every_field),
        image_(image_field.empty() ? FieldChoice::only_image()
                                   : FieldChoice::readable(image_field)) {
    if (transform) transformer_.emplace(*transform);
  }

  [[nodiscard]] std::string describe() const override { return "fields that are decoded"; }
  [[nodiscard]] bool takes_long() const override { return true; }
  void make(const RowInput& input, RowOutput& output) const override {
    std::int64_t images = 0;
    if (every_field_) {
      for (std::size_t i = 0; i < input.sample.num_fields(); ++i) {
        const std::string_view name = without_compression_suffix(input.sample.field(i).name);
        images += decode(input, i, detail::field_kind(name)) ? 1 : 0;
      }
    } else {
      images += decode(input, image_.in(input.sample), FieldKind::kImage) ? 1 : 0;
    }
    std::memcpy(output.slot.data(), &images, sizeof images);
  }

 private:
  /// Decodes a field. Returns true for an image.
  bool decode(const RowInput& input, std::size_t place, FieldKind kind) const {
    detail::read_pages(input.sample.field(place).bytes);
    switch (kind) {
      case FieldKind::kInteger:
        static_cast<void>(detail::integer_of(input, place));
        break;
      case FieldKind::kBytes:
        input.add_bytes(input.sample.field(place).bytes.size());  // counts the bytes as read
        break;
      default:
        decode_content(input, place, kind);
        break;
    }
    input.enter(Stage::kReading);
    return kind == FieldKind::kImage;
  }

  void decode_content(const RowInput& input, std::size_t place, FieldKind kind) const {
    const detail::FieldBytes bytes(input, place);
    input.enter(Stage::kDecoding);
    if (kind == FieldKind::kImage) {
      checked(input.sample, place, "an image", [&] { decode_image(input, bytes.view()); });
    } else if (kind == FieldKind::kNpy) {
      checked(input.sample, place, "an array", [&] { decode_array(bytes.view()); });
    } else if (kind == FieldKind::kJson) {
      const auto fault = json_fault(bytes.view());
      if (fault) detail::throw_bad_field(input.sample, place, "JSON", fault->text());
    } else if (!is_utf8(bytes.view())) {
      detail::throw_bad_field(input.sample, place, "text", "it is not UTF-8");
    }
  }

  /// Runs `work`. Throws BadField for a DecodeFailure.
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
      input.forgive(detail::decode_rgb(bytes, request, pixels).warnings);
      return;
    }
    const detail::ImageHeader header = detail::read_image_header(bytes);
    detail::require_pixels(header.height, header.width, request.max_pixels);
    const detail::ImagePlan plan = detail::plan_within(*transformer_, {header.height, header.width},
                                                       input.random(), request.max_pixels);
    request.crop = plan.source;
    input.forgive(detail::decode_rgb(bytes, request, pixels).warnings);
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
  const FieldChoice image_;
  std::optional<detail::ImageTransformer> transformer_;
};

class ReadFields final : public ColumnMaker {
 public:
  ReadFields() : ColumnMaker(DType::kInt64, Layout::kFixed) {}

  [[nodiscard]] std::string describe() const override { return "the bytes of all fields"; }
  void make(const RowInput& input, RowOutput& output) const override {
    std::size_t bytes = 0;
    write(input.sample, output.slot, bytes);
    input.add_bytes(bytes);
  }
  [[nodiscard]] bool makes_rows() const override { return true; }
  [[nodiscard]] bool make_rows(std::span<const Sample> samples, const RowSlots& slots,
                               std::size_t& bytes) const override {
    for (std::size_t i = 0; i < samples.size(); ++i) write(samples[i], slots[i], bytes);
    return true;
  }

 private:
  static void write(const Sample& sample, std::span<std::byte> slot, std::size_t& bytes) noexcept {
    const std::uint64_t checksum = checksum_of(sample, bytes);
    std::memcpy(slot.data(), &checksum, sizeof checksum);
  }
};

}  // namespace

Column read_fields() { return {"checksums", std::make_shared<ReadFields>()}; }

Column decoded_fields(bool every_field, const std::string& image_field,
                      const std::optional<ImageTransform>& transform) {
  return {"images", std::make_shared<DecodedFields>(every_field, image_field, transform)};
}

}  // namespace shardwise::tools
