// Stubs for image formats whose library was excluded when the build was configured.

#include "decode/decode_failure.h"
#include "decode/image_formats.h"

namespace shardwise::detail {

#ifndef SHARDWISE_WITH_JPEG
RealBox decode_jpeg(std::string_view, const DecodeRequest&, RgbImage&, DecodeWarnings&) {
  throw DecodeFailure("JPEG: this Shardwise was built without libjpeg");
}
#endif

#ifndef SHARDWISE_WITH_PNG
RealBox decode_png(std::string_view, const DecodeRequest&, RgbImage&, DecodeWarnings&) {
  throw DecodeFailure("PNG: this Shardwise was built without libpng");
}
#endif

#ifndef SHARDWISE_WITH_WEBP
RealBox decode_webp(std::string_view, const DecodeRequest&, RgbImage&, DecodeWarnings&) {
  throw DecodeFailure("WebP: this Shardwise was built without libwebp");
}
#endif

}  // namespace shardwise::detail
