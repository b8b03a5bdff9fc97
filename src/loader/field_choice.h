#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "shardwise/base/export.h"
#include "shardwise/data/sample.h"

namespace shardwise::detail {

/// The fields that a column may be made of: the first one that a sample has, or the sample's only
/// image. Immutable.
class SHARDWISE_EXPORT FieldChoice {
 public:
  /// @param names  separated by semicolons: "jpg;png". Blanks around a name are ignored.
  /// Errors: InvalidArgument if there is no name.
  explicit FieldChoice(std::string_view names);

  /// For columns that parse a field. Pickles are refused by name, as reading one can run its code.
  /// Errors: those of the constructor; InvalidArgument if a name is that of a pickle.
  [[nodiscard]] static FieldChoice readable(std::string_view names);

  /// Chooses the one field that is an image by its name.
  [[nodiscard]] static FieldChoice only_image() { return FieldChoice(); }

  /// The names, in order; empty for only_image().
  [[nodiscard]] const std::vector<std::string>& names() const noexcept { return names_; }
  /// "'jpg' 'png'"; "the only image".
  [[nodiscard]] std::string describe() const;
  /// Returns the place of the field in `sample`, for Sample::field().
  /// Errors: NotFound, which lists the sample's fields; BadField if it has several images.
  [[nodiscard]] std::size_t in(const Sample& sample) const;

 private:
  FieldChoice() = default;

  std::vector<std::string> names_;
};

/// Returns the default name of a column: "jpg" for "jpg;png". Errors: those of FieldChoice.
[[nodiscard]] inline std::string first_name(std::string_view names) {
  return FieldChoice(names).names().front();
}

}  // namespace shardwise::detail
