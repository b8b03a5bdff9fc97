#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "shardwise/base/export.h"
#include "shardwise/data/sample.h"

namespace shardwise::detail {

/// The fields that a column may be made of: the first of them that a sample has, or the sample's
/// one image. Immutable.
class SHARDWISE_EXPORT FieldChoice {
 public:
  /// @param names  with semicolons between them: "jpg;png". Blanks around a name do not count.
  /// Errors: InvalidArgument if there is none.
  explicit FieldChoice(std::string_view names);

  /// For columns that look into a field: files that are pickles by their names are not read, for
  /// reading one can run code that lies in it.
  /// Errors: likewise; InvalidArgument if a name is that of a pickle.
  [[nodiscard]] static FieldChoice readable(std::string_view names);

  /// The one field that is an image by its name.
  [[nodiscard]] static FieldChoice only_image() { return FieldChoice(); }

  /// None for only_image().
  [[nodiscard]] const std::vector<std::string>& names() const noexcept { return names_; }
  /// "'jpg' 'png'"; "the only image".
  [[nodiscard]] std::string describe() const;
  /// The place of the field in `sample`, for Sample::field().
  /// Errors: NotFound, naming the fields that there are; BadField if it has several images.
  [[nodiscard]] std::size_t in(const Sample& sample) const;

 private:
  FieldChoice() = default;

  std::vector<std::string> names_;
};

/// "jpg" of "jpg;png": what a column is called. Errors: those of FieldChoice.
[[nodiscard]] inline std::string first_name(std::string_view names) {
  return FieldChoice(names).names().front();
}

}  // namespace shardwise::detail
