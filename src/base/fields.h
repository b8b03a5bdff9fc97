#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>

#include "base/error_types.h"
#include "base/spelling.h"

namespace shardwise::detail {

// An overload of fields() in a struct's namespace describes the struct. It lists all members:
//
//     constexpr auto fields(std::type_identity<Sharded>) {
//       return std::tuple{field("window", &Sharded::window, {.words = "number of shards ..."})};
//     }
//
// Code that shows, reads, writes or compares such structs iterates over the list with
// visit_fields(). Examples are the texts of tokens, the command line, Python's keywords, JSON, and
// the check that ranks have equal options. A member that is missing in the list is a compile error.
// Default values are those of the struct's members.

/// A field's names and descriptions.
struct FieldText {
  std::string_view words{};   ///< a description in one line, for the help of the command line
  std::string_view option{};  ///< the command line's option; empty if it has no option
  std::string_view key{};     ///< the name in JSON and in comparisons, if it differs
  std::string_view value{};   ///< for a text, its placeholder in help; for a record, its Python
                              ///< class
  std::string_view unit{};    ///< the unit of a number, for error texts
  std::uint64_t least = 0;    ///< the smallest valid number
  std::uint64_t most = 0;     ///< the largest valid number; 0 means no limit
  std::string_view advice{};  ///< a remedy for a number that is not valid
  bool is_rare = false;       ///< true if it is rarely needed; help shows it in a separate section
  bool may_differ = false;    ///< true if ranks of a run may differ in it
  bool adds_up = true;        ///< true if values of two parts of a run are added in reports
};

template <class OwnerType, class ValueType>
struct Field {
  using Owner = OwnerType;
  using Value = ValueType;

  std::string_view name;  ///< the member's name, which is also the Python keyword
  Value Owner::*member;
  FieldText text;

  [[nodiscard]] constexpr std::string_view key() const noexcept {
    return text.key.empty() ? name : text.key;
  }
};

template <class Owner, class Value>
constexpr Field<Owner, Value> field(std::string_view name, Value Owner::*member,
                                    FieldText text = {}) {
  return {name, member, text};
}

/// Returns the names of the field for error texts. If the option is `--no-...`, it means the
/// opposite of the field, so the member's name is used instead of it.
template <class Owner, class Value>
constexpr Spelling spelling_of(const Field<Owner, Value>& field) {
  const std::string_view option = field.text.option;
  return {field.name, option.starts_with("--no-") ? std::string_view() : option, field.name};
}

/// Converts to the type of any member, in order to count the members.
struct AnyMember {
  template <class Member>
  operator Member() const noexcept;  // NOLINT(google-explicit-constructor)
};

template <class Owner, class... Members>
consteval std::size_t num_members() {
  if constexpr (requires { Owner{Members{}..., AnyMember{}}; }) {
    return num_members<Owner, Members..., AnyMember>();
  } else {
    return sizeof...(Members);
  }
}

template <class Owner>
concept HasFields = requires {
  fields(std::type_identity<Owner>{});
};

/// Calls visit(field) for each member of Owner, in the order of its list.
template <HasFields Owner, class Visit>
constexpr void visit_fields(Visit&& visit) {
  constexpr auto all = fields(std::type_identity<Owner>{});
  static_assert(std::tuple_size_v<decltype(all)> == num_members<Owner>(),
                "fields() lists each member once");
  std::apply([&](const auto&... one) { (visit(one), ...); }, all);
}

/// Returns the names of the field `name` for error texts. An unknown name does not compile.
template <HasFields Owner>
consteval Spelling spelling_of(std::string_view name) {
  Spelling found{};
  visit_fields<Owner>([&](const auto& field) {
    if (field.name == name) found = spelling_of(field);
  });
  if (found.library.empty()) throw "the struct has no such field";
  return found;
}

/// Errors: InvalidOption if a number is smaller or larger than its field may be.
template <HasFields Owner>
void check_numbers(const Owner& owner) {
  visit_fields<Owner>([&]<class Value>(const Field<Owner, Value>& field) {
    if constexpr (std::is_integral_v<Value> && !std::is_same_v<Value, bool>) {
      const FieldText& text = field.text;
      const auto refuse = [&](std::uint64_t value, std::string_view bound, std::uint64_t limit) {
        throw InvalidOption(spelled(spelling_of(field)) + " is " + std::to_string(value) +
                                (text.unit.empty() ? "" : " ") + std::string(text.unit),
                            {},
                            "choose at " + std::string(bound) + " " + std::to_string(limit) +
                                (text.advice.empty() ? "" : "; ") + std::string(text.advice));
      };
      const auto value = static_cast<std::uint64_t>(owner.*field.member);
      if (value < text.least) refuse(value, "least", text.least);
      if (text.most != 0 && value > text.most) refuse(value, "most", text.most);
    }
  });
}

// An overload of choices() describes an enum whose enumerators are 0, 1, 2, ... It returns their
// names as an array.

template <class Enum>
concept Choice = std::is_enum_v<Enum> && requires {
  choices(std::type_identity<Enum>{});
};

template <Choice Enum>
constexpr std::string_view choice_name(Enum value) noexcept {
  constexpr auto names = choices(std::type_identity<Enum>{});
  const auto number = static_cast<std::size_t>(value);
  return number < names.size() ? names[number] : "?";
}

template <Choice Enum>
constexpr std::optional<Enum> find_choice(std::string_view name) noexcept {
  constexpr auto names = choices(std::type_identity<Enum>{});
  const auto* const found = std::find(names.begin(), names.end(), name);
  if (found == names.end()) return std::nullopt;
  return static_cast<Enum>(found - names.begin());
}

/// Returns e.g. "exact, drop or pad".
/// @param last  separator before the last name.
template <Choice Enum>
std::string list_of_choices(std::string_view last = " or ") {
  constexpr auto names = choices(std::type_identity<Enum>{});
  std::string list;
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (i > 0) list += i + 1 == names.size() ? last : ", ";
    list += names[i];
  }
  return list;
}

}  // namespace shardwise::detail
