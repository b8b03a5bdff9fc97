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

// Conversions of the records of shardwise.transforms and shardwise.loader to those of the C++
// library.
// Errors: InvalidArgument, with the option's name, if a value has the wrong type.

ImageTransform image_transform(nanobind::handle record);
ImageDecoding image_decoding(nanobind::handle record);
Column::VideoClip video_clip(nanobind::handle record);
Column::AudioClip audio_clip(nanobind::handle record);
Loader::ByLength by_length(nanobind::handle record);
Loader::ByGroup by_group(nanobind::handle record);
Loader::Mix image_mix(nanobind::handle record);

/// Returns the value's repr(), shortened, for error texts.
std::string shown(nanobind::handle value);

/// Returns the dtype with this NumPy name, e.g. "float32". Errors: InvalidArgument, which lists all
/// names.
DType parse_dtype(std::string_view name);

}  // namespace shardwise::python
