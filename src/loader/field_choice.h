#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "shardwise/base/export.h"
#include "shardwise/data/sample.h"

namespace shardwise::detail {

/// The rule by which a column chooses one field of each sample: the first field of a list of names
/// that the sample has, or the sample's only image. Immutable.
class SHARDWISE_EXPORT FieldChoice {
 public:
  /// @param names  separated by semicolons: "jpg;png". Spaces around a name are ignored.
  /// Errors: InvalidArgument if there is no name.
  explicit FieldChoice(std::string_view names);

  /// Makes a choice for columns that parse a field. Refuses names of pickles, as unpickling can run
  /// code.
  /// Errors: those of the constructor; InvalidArgument for the name of a pickle.
  [[nodiscard]] static FieldChoice readable(std::string_view names);

  /// Chooses the field with this name, which may have semicolons and blanks.
  [[nodiscard]] static FieldChoice exactly(std::string name) {
    FieldChoice choice;
    choice.names_.push_back(std::move(name));
    return choice;
  }

  /// Chooses the sample's single field whose name is that of an image.
  [[nodiscard]] static FieldChoice only_image() { return FieldChoice(); }

  /// The names, in order; empty for only_image().
  [[nodiscard]] const std::vector<std::string>& names() const noexcept { return names_; }
  /// Returns e.g. "'jpg' 'png'", or "the only image".
  [[nodiscard]] std::string describe() const;
  /// Returns the number of the field in `sample`, for Sample::field().
  /// Errors: NotFound, with a list of the sample's fields; BadField if the sample has several
  /// images.
  [[nodiscard]] std::size_t in(const Sample& sample) const;

 private:
  FieldChoice() = default;

  std::vector<std::string> names_;
};

/// Returns the default name of a column, e.g. "jpg" for "jpg;png". Errors: those of FieldChoice().
[[nodiscard]] inline std::string first_name(std::string_view names) {
  return FieldChoice(names).names().front();
}

}  // namespace shardwise::detail
