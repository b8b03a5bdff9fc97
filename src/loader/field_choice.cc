#include "loader/field_choice.h"

#include <algorithm>

#include "base/ascii.h"
#include "base/error_types.h"
#include "base/expanding_reader.h"
#include "base/spelling.h"
#include "base/text.h"
#include "data/sample_access.h"
#include "decode/field_kind.h"
#include "index/side_tables.h"

namespace shardwise::detail {

namespace {

std::string fields_of(const Sample& sample) {
  std::string names;
  for (std::size_t i = 0; i < sample.num_fields(); ++i) {
    names += (i == 0 ? "" : ", ") + escaped(sample.field(i).name);
  }
  return names;
}

std::size_t only_image_of(const Sample& sample) {
  std::vector<std::size_t> found;
  std::string images;
  for (std::size_t i = 0; i < sample.num_fields(); ++i) {
    const std::string_view name = without_compression_suffix(sample.field(i).name);
    if (field_kind(name) != FieldKind::kImage) continue;
    images += (found.empty() ? "" : ", ") + escaped(sample.field(i).name);
    found.push_back(i);
  }
  if (found.size() > 1) {
    throw BadField(
        "the sample has several images", sample.describe(),
        "name the image's field" + if_there(" (", "image_field", ")") + ", one of: " + images);
  }
  if (found.empty()) {
    throw NotFound("the sample has no field with the name of an image", sample.describe(),
                   "name the image's field" + if_there(" (", "image_field", ")") +
                       ", one of: " + fields_of(sample));
  }
  return found.front();
}

/// Returns a hint if `names` has a metadata column: users mistake columns for fields.
std::string column_hint(const Sample& sample, const std::vector<std::string>& names) {
  const Index* const index = SampleAccess::index_of(sample);
  if (index == nullptr) return {};
  for (const std::string& name : names) {
    if (!find_metadata_column(*index, name)) continue;
    return "; " + in_quotes(name) +
           " is a metadata column of the index; metadata() takes its values";
  }
  return {};
}

void refuse_pickles(const std::vector<std::string>& names) {
  for (const std::string& name : names) {
    const std::string_view file = without_compression_suffix(name);
    const std::string_view suffix = file.substr(file.rfind('.') + 1);
    if (suffix != "pt" && suffix != "pth" && suffix != "pkl" && suffix != "pickle") continue;
    throw InvalidArgument(
        "pickles are not read, because reading one can run code", "field " + in_quotes(name),
        "convert them to .npy" + if_there(", or use ", "columns::bytes", " to get their bytes"));
  }
}

}  // namespace

FieldChoice::FieldChoice(std::string_view names) {
  if (names.find(":$") != std::string_view::npos) {
    throw InvalidArgument("this column takes no JSON path", in_quotes(names),
                          "use a column of texts, JSON, integers, numbers, tokens or arrays");
  }
  for (std::size_t at = 0; at < names.size();) {
    const std::size_t end = std::min(names.find(';', at), names.size());
    const std::string_view name = trimmed(names.substr(at, end - at));
    if (!name.empty()) names_.emplace_back(name);
    at = end + 1;
  }
  if (names_.empty()) {
    throw InvalidArgument("a column needs the name of a field", in_quotes(names),
                          "name one field, or several with semicolons: \"jpg;png\"");
  }
}

FieldChoice FieldChoice::readable(std::string_view names) {
  FieldChoice choice(names);
  refuse_pickles(choice.names_);
  return choice;
}

std::size_t FieldChoice::in(const Sample& sample) const {
  if (names_.empty()) return only_image_of(sample);
  if (const auto place = SampleAccess::find(sample, names_)) return *place;
  std::string wanted;
  for (const std::string& name : names_) wanted += (wanted.empty() ? "" : ";") + name;
  throw NotFound("the sample has no field " + in_quotes(wanted), sample.describe(),
                 "its fields are " + fields_of(sample) + column_hint(sample, names_));
}

std::string FieldChoice::describe() const {
  std::string all;
  for (const std::string& name : names_) all += (all.empty() ? "'" : " '") + escaped(name) + "'";
  return all.empty() ? "the only image" : all;
}

}  // namespace shardwise::detail
