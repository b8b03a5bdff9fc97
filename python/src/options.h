#pragma once

#include <nanobind/nanobind.h>

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "shardwise/loader/batch.h"
#include "shardwise/loader/columns.h"
#include "shardwise/loader/loader.h"
#include "shardwise/loader/media_columns.h"

namespace shardwise::python {

// The records of shardwise.transforms and shardwise.loader, as the C++ library has them.
// Errors: InvalidArgument, naming the option, if a value is of another kind.

ImageTransform image_transform(nanobind::handle record);
ImageDecoding image_decoding(nanobind::handle record);
Column::VideoClip video_clip(nanobind::handle record);
Column::AudioClip audio_clip(nanobind::handle record);
Loader::ByLength by_length(nanobind::handle record);
Loader::Mix image_mix(nanobind::handle record);

/// The value's repr(), shortened: for texts of errors.
std::string shown(nanobind::handle value);

/// "float32" as NumPy names it. Errors: InvalidArgument, which lists what there is.
DType parse_dtype(std::string_view name);

}  // namespace shardwise::python
