#include "shardwise/index/defect_policies.h"

#include <algorithm>
#include <array>
#include <type_traits>

#include "base/fields.h"
#include "base/text.h"
#include "shardwise/base/error.h"

namespace shardwise {
namespace {

struct Kind {
  std::string_view name;
  DefectPolicies::OnDefect DefectPolicies::*policy;
};

constexpr std::array<Kind, 4> kKinds = {{{"damage", &DefectPolicies::damage},
                                         {"no-field", &DefectPolicies::no_field},
                                         {"duplicate-field", &DefectPolicies::duplicate_field},
                                         {"repeated-key", &DefectPolicies::repeated_key}}};

constexpr std::string_view kLink = "link";

}  // namespace

constexpr std::array<std::string_view, 3> choices(std::type_identity<DefectPolicies::OnDefect>) {
  return {"error", "skip", "keep"};
}
constexpr std::array<std::string_view, 3> choices(std::type_identity<DefectPolicies::OnLink>) {
  return {"error", "skip", "resolve"};
}

namespace {

template <class Policy>
Policy parse_policy(std::string_view text) {
  if (const auto policy = detail::find_choice<Policy>(text)) return *policy;
  throw InvalidArgument("unknown policy", in_quotes(text),
                        "choose " + detail::list_of_choices<Policy>());
}

}  // namespace

DefectPolicies::OnLink parse_on_link(std::string_view text) {
  return parse_policy<DefectPolicies::OnLink>(text);
}

DefectPolicies::OnDefect parse_on_defect(std::string_view text) {
  return parse_policy<DefectPolicies::OnDefect>(text);
}

std::string to_string(const DefectPolicies& policies) {
  if (policies.damage != DefectPolicies::OnDefect::kKeep &&
      policies == DefectPolicies::all(policies.damage)) {
    return std::string(detail::choice_name(policies.damage));
  }
  std::string text;
  for (const Kind& kind : kKinds) {
    text += text.empty() ? "" : ",";
    text += kind.name;
    text += '=';
    text += detail::choice_name(policies.*kind.policy);
  }
  if (policies.link != DefectPolicies::OnLink::kError) {
    text.append(",").append(kLink).append("=").append(detail::choice_name(policies.link));
  }
  return text;
}

DefectPolicies parse_defect_policies(std::string_view text) {
  if (text.find('=') == std::string_view::npos) return DefectPolicies::all(parse_on_defect(text));
  DefectPolicies policies;
  std::string_view rest = text;
  const auto take = [&](std::string_view name) {
    const std::string_view part = rest.substr(0, rest.find(','));
    const std::size_t equals = part.find('=');
    if (equals == std::string_view::npos || part.substr(0, equals) != name) {
      throw InvalidArgument("the policies are malformed", in_quotes(text), "");
    }
    rest.remove_prefix(std::min(rest.size(), part.size() + 1));
    return part.substr(equals + 1);
  };
  for (const Kind& kind : kKinds) policies.*kind.policy = parse_on_defect(take(kind.name));
  if (!rest.empty()) policies.link = parse_on_link(take(kLink));
  return policies;
}

}  // namespace shardwise
