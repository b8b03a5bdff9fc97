#include "options.h"

#include <nanobind/stl/array.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "base/text.h"
#include "loader/fields.h"
#include "shardwise/base/error.h"

namespace nb = nanobind;

namespace shardwise::python {

namespace {

[[noreturn]] void refuse(std::string_view option, nb::handle value, const std::string& advice) {
  throw InvalidArgument("an option is not valid", std::string(option) + "=" + shown(value), advice);
}

template <class T>
void take(std::string_view option, nb::handle value, T& to) {
  if (!nb::try_cast(value, to))
    refuse(option, value,
           "see help(shardwise.transforms) and "
           "help(shardwise.Loader)");
}

template <detail::Choice Enum>
void take(std::string_view option, nb::handle value, Enum& to) {
  std::string name;
  const auto choice = nb::try_cast(value, name) ? detail::find_choice<Enum>(name) : std::nullopt;
  if (!choice) refuse(option, value, "choose one of: " + detail::list_of_choices<Enum>(", "));
  to = *choice;
}

/// Reads (height, width), or one number for a square. Keeps `to` if the value is None.
void take(std::string_view option, nb::handle value, ImageTransform::Size& to) {
  if (value.is_none()) return;
  std::pair<std::size_t, std::size_t> sides;
  std::string name;
  if (nb::try_cast(value, name) && name == "group") {
    to = ImageTransform::Size::by_group();
    return;
  }
  if (nb::try_cast(value, sides.first)) {
    to = {sides.first, sides.first};
  } else if (nb::try_cast(value, sides)) {
    to = {sides.first, sides.second};
  } else {
    refuse(option, value, "give the side of a square in pixels, or (height, width); or \"group\"");
  }
}

void take(std::string_view option, nb::handle value, ImageTransform::Range& to) {
  std::pair<double, double> range;
  if (!nb::try_cast(value, range)) refuse(option, value, "give two numbers: (minimum, maximum)");
  to = {range.first, range.second};
}

/// Reads three values, or one value for all three.
template <class T>
void take(std::string_view option, nb::handle value, std::array<T, 3>& to) {
  T one{};
  if (nb::try_cast(value, one)) {
    to = {one, one, one};
  } else if (!nb::try_cast(value, to)) {
    refuse(option, value, "give a number for each of the three channels");
  }
}

/// Reads a dict of keys and (batch size, size); the size may be missing.
void take(std::string_view option, nb::handle value, std::vector<Loader::ByGroup::Group>& to) {
  constexpr const char* kAdvice =
      "give a dict of keys and (batch_size, (height, width)), e.g. {\"wide\": (64, (192, 320))}";
  const nb::object mapping = nb::module_::import_("collections.abc").attr("Mapping");
  if (!nb::isinstance(value, mapping)) refuse(option, value, kAdvice);
  const nb::object all = nb::module_::import_("builtins").attr("dict")(value);
  for (const auto& [key, one] : nb::cast<nb::dict>(all)) {
    Loader::ByGroup::Group& group = to.emplace_back();
    const nb::object number =  // in SQL, a condition is 1 or 0
        nb::isinstance<nb::bool_>(key) ? nb::int_(key) : nb::borrow(key);
    group.key = nb::cast<std::string>(nb::str(number));
    nb::object parts = nb::borrow(one);
    if (!nb::isinstance<nb::tuple>(parts)) parts = nb::make_tuple(parts);
    const std::size_t size = nb::len(parts);
    if (size < 1 || size > 2) refuse(option, value, kAdvice);
    take(option, parts[0], group.batch_size);
    if (size == 2) take(option, parts[1], group.size);
    if (group.size == ImageTransform::Size::by_group()) refuse(option, value, kAdvice);
  }
}

/// Reads a Python record with an attribute for each field.
template <detail::HasFields Owner>
void take(std::string_view option, nb::handle record, Owner& to);
template <class Owner>
void take(std::string_view option, nb::handle record, std::optional<Owner>& to) {
  Owner made;  // not emplace(): for clang 14, the class is incomplete here
  take(option, record, made);
  to = made;
}

template <detail::HasFields Owner>
Owner from_record(nb::handle record) {
  Owner made;
  detail::visit_fields<Owner>([&]<class Value>(const detail::Field<Owner, Value>& field) {
    const nb::object value = record.attr(std::string(field.name).c_str());
    if (!field.text.value.empty()) {  // this field is a record; None keeps its default
      if (value.is_none()) return;
      const std::string type(field.text.value);
      const nb::module_ transforms = nb::module_::import_("shardwise.transforms");
      if (!nb::isinstance(value, transforms.attr(type.c_str()))) {
        refuse(field.name, value, "give a shardwise.transforms." + type);
      }
    }
    take(field.name, value, made.*field.member);
  });
  return made;
}
template <detail::HasFields Owner>
void take(std::string_view /*option*/, nb::handle record, Owner& to) {
  to = from_record<Owner>(record);
}

}  // namespace

ImageTransform image_transform(nb::handle record) { return from_record<ImageTransform>(record); }
ImageDecoding image_decoding(nb::handle record) { return from_record<ImageDecoding>(record); }
Column::VideoClip video_clip(nb::handle record) { return from_record<Column::VideoClip>(record); }
Column::AudioClip audio_clip(nb::handle record) { return from_record<Column::AudioClip>(record); }
Loader::ByLength by_length(nb::handle record) { return from_record<Loader::ByLength>(record); }
Loader::ByGroup by_group(nb::handle record) { return from_record<Loader::ByGroup>(record); }
Loader::Mix image_mix(nb::handle record) { return from_record<Loader::Mix>(record); }

std::string shown(nb::handle value) {
  return nb::cast<std::string>(nb::module_::import_("reprlib").attr("repr")(value));
}

DType parse_dtype(std::string_view name) {
  std::string choices;
  for (int i = 0; i <= static_cast<int>(DType::kComplex128); ++i) {
    const auto dtype = static_cast<DType>(i);
    if (to_string(dtype) == name) return dtype;
    choices += (i == 0 ? "" : ", ") + std::string(to_string(dtype));
  }
  throw InvalidArgument("a column cannot have values of this type", in_quotes(std::string(name)),
                        "choose one of: " + choices);
}

}  // namespace shardwise::python
