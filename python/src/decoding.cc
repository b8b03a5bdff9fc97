#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <memory>

#include "base/text.h"
#include "buffer.h"
#include "decode/decode_failure.h"
#include "decode/image_codec.h"
#include "gil.h"
#include "objects.h"
#include "options.h"
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
                   std::to_string(buffer.bytes().size()) + " bytes", "");
  }
  detail::RgbImage& pixels = *image;
  const nb::capsule owner(image.release(),
                          [](void* kept) noexcept { delete static_cast<detail::RgbImage*>(kept); });
  return nb::ndarray<nb::numpy, std::uint8_t>(pixels.data(), {pixels.height(), pixels.width(), 3},
                                              owner)
      .cast();
}

}  // namespace

void add_decoding(nb::module_& module) {
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
