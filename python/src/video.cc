#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>

#include <string>
#include <utility>

#include "columns.h"
#include "options.h"
#include "shardwise/loader/media_columns.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace shardwise::python {
namespace {

ColumnObject plain(Column column) { return {std::move(column), nb::none()}; }

}  // namespace
}  // namespace shardwise::python

// The columns of videos and sounds. They are a separate extension, since loading FFmpeg's libraries
// takes noticeable time. Before this extension, shardwise._core must be loaded, which defines the
// types.
NB_MODULE(_video, module) {
  using namespace shardwise;
  using namespace shardwise::python;
  module.def(
      "video_column",
      [](const std::string& fields, nb::handle clip, nb::handle transform) {
        return plain(columns::video(fields, video_clip(clip), image_transform(transform)));
      },
      "fields"_a, "clip"_a, "transform"_a,
      nb::sig("def video_column(fields: str, clip: typing.Any, transform: typing.Any) -> "
              "shardwise._core.Column"));
  module.def(
      "video_times_column",
      [](const std::string& fields, nb::handle clip) {
        return plain(columns::video_times(fields, video_clip(clip)));
      },
      "fields"_a, "clip"_a,
      nb::sig("def video_times_column(fields: str, clip: typing.Any) -> shardwise._core.Column"));
  module.def(
      "audio_column",
      [](const std::string& fields, nb::handle clip) {
        return plain(columns::audio(fields, audio_clip(clip)));
      },
      "fields"_a, "clip"_a,
      nb::sig("def audio_column(fields: str, clip: typing.Any) -> shardwise._core.Column"));
}
