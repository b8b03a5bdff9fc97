#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "base/text.h"
#include "buffer.h"
#include "columns.h"
#include "decode/decode_failure.h"
#include "decode/image_codec.h"
#include "field_names.h"
#include "gil.h"
#include "loader/column_maker.h"
#include "loader/sample_groups.h"
#include "loading.h"
#include "objects.h"
#include "options.h"
#include "orders.h"
#include "shardwise/base/error.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace shardwise::python {
namespace {

nb::object decode_image(nb::handle data, nb::handle decoding) {
  detail::DecodeRequest request;
  if (!decoding.is_none()) {
    const ImageDecoding given = image_decoding(decoding);
    request.max_pixels = given.max_pixels;
    request.strict = given.strict;
    request.apply_orientation = given.apply_orientation;
  }
  const Buffer buffer(data);
  auto image = std::make_unique<detail::RgbImage>();
  try {
    const GilReleased released;
    detail::decode_rgb(buffer.bytes(), request, *image);
  } catch (const detail::DecodeFailure& failure) {
    throw BadField("cannot decode the bytes as an image (" + escaped(failure.what()) + ")",
                   std::to_string(buffer.bytes().size()) + " bytes",
                   "give the complete bytes of an image file");
  }
  detail::RgbImage& pixels = *image;
  const nb::capsule owner(image.release(),
                          [](void* kept) noexcept { delete static_cast<detail::RgbImage*>(kept); });
  return nb::ndarray<nb::numpy, std::uint8_t>(pixels.data(), {pixels.height(), pixels.width(), 3},
                                              owner)
      .cast();
}

/// Decodes samples of a dataset or mixture to rows of the given columns. Without columns, decodes
/// all fields of a sample by their kinds.
class RowDecoder {
 public:
  RowDecoder(nb::handle data, nb::handle columns) {
    const nb::tuple datasets = parts_of(data);
    parts_ = std::make_unique<Parts>(Parts{mixed_dataset(datasets), {}});
    for (const nb::handle part : datasets) parts_->datasets.push_back(part.ptr());
    if (columns.is_none()) return;
    columns_.emplace();
    for (const nb::handle column : columns) {
      const ColumnObject* own = nullptr;
      if (!nb::try_cast(column, own) || own == nullptr) {
        throw nb::type_error("columns: give columns, made by the functions of shardwise.columns");
      }
      columns_->push_back(column_over(*own, *parts_));
      columns_->back().maker()->require_data(parts_->data);
      detail::require_size(columns_->back());
    }
  }

  [[nodiscard]] nb::dict decode(const SampleObject& object, std::uint64_t seed,
                                std::uint64_t epoch) const {
    const Sample& sample = object.sample;
    const std::uint64_t number =
        parts_->data.num_parts() > 1 ? object.number.value_or(sample.index()) : sample.index();
    const detail::RowInput input{
        .sample = sample, .seed = seed, .epoch = epoch, .number = number, .position = {}};
    std::vector<Column> fields;
    Batch row;
    {
      const GilReleased released;
      if (!columns_) fields = columns::of_fields(sample);
      row = detail::make_row(input, columns_ ? *columns_ : fields);
    }
    const std::vector<Column>& columns = columns_ ? *columns_ : fields;
    nb::dict values;
    for (std::size_t i = 0; i < columns.size(); ++i) {
      values[name_object(columns[i].name())] =
          only_row(row.arrays()[i], columns[i].maker()->content());
    }
    return values;
  }

 private:
  std::unique_ptr<Parts> parts_;
  std::optional<std::vector<Column>> columns_;
};

nb::list decode_samples(nb::handle data, nb::handle columns, nb::handle samples, std::uint64_t seed,
                        std::uint64_t epoch) {
  const RowDecoder decoder(data, columns);
  nb::list rows;
  for (const nb::handle sample : samples) {
    rows.append(decoder.decode(held_in<SampleObject>(sample.ptr()), seed, epoch));
  }
  return rows;
}

}  // namespace

void add_decoding(nb::module_& module) {
  module.def("decode_samples", &decode_samples, "data"_a, "columns"_a.none(), "samples"_a, "seed"_a,
             "epoch"_a,
             nb::sig("def decode_samples(data: typing.Any, columns: list[Column] | None, samples: "
                     "list[Sample], seed: int, epoch: int) -> list[dict[str, typing.Any]]"),
             "The decoded rows of samples of a Dataset or mix().");
  module.def(
      "decode_image", &decode_image, "data"_a, "decoding"_a = nb::none(),
      nb::sig("def decode_image(data: bytes | memoryview | bytearray, decoding: "
              "shardwise.transforms.ImageDecoding | None = None) -> typing.Any"),
      "Decodes a JPEG, PNG, WebP or binary PNM to RGB.\n\n"
      "Returns a NumPy array of uint8, [height, width, 3].\n"
      "decoding: limits and orientation, as for columns.image(); the scaling does not apply.\n"
      "Threads: the GIL is released while it decodes.\n"
      "Errors: BadField if the bytes are not such an image, or are damaged.");
}

}  // namespace shardwise::python
