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

/// @param columns  nullopt for all fields of the sample, by their kinds.
nb::dict row_of(const detail::RowInput& input, const std::optional<std::vector<Column>>& columns) {
  std::vector<Column> fields;
  const std::vector<Column>& made = columns ? *columns : fields;
  Batch row;
  {
    const GilReleased released;
    if (!columns) fields = columns::of_fields(input.sample);
    row = detail::make_row(input, made);
  }
  nb::dict values;
  for (std::size_t i = 0; i < made.size(); ++i) {
    values[name_object(made[i].name())] = only_row(row.arrays()[i], made[i].maker()->content());
  }
  return values;
}

nb::list decode_samples(nb::handle data, nb::handle columns, nb::handle samples, std::uint64_t seed,
                        std::uint64_t epoch) {
  const Parts parts = parts_over(parts_of(data));
  std::optional<std::vector<Column>> given;
  if (!columns.is_none()) {
    given = columns_over(columns, parts);
    for (const Column& column : *given) {
      column.maker()->require_data(parts.data);
      detail::require_size(column);
    }
  }
  nb::list rows;
  for (const nb::handle one : samples) {
    const auto& object = held_in<SampleObject>(one.ptr());
    const std::uint64_t own = object.sample.index();
    const std::uint64_t number = parts.data.num_parts() > 1 ? object.number.value_or(own) : own;
    rows.append(row_of(
        {.sample = object.sample, .seed = seed, .epoch = epoch, .number = number, .position = {}},
        given));
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
