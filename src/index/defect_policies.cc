#include "shardwise/index/defect_policies.h"

#include <algorithm>
#include <array>

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

std::string_view name_of(DefectPolicies::OnLink policy) {
  switch (policy) {
    case DefectPolicies::OnLink::kError:
      return "error";
    case DefectPolicies::OnLink::kSkip:
      return "skip";
    case DefectPolicies::OnLink::kResolve:
      break;
  }
  return "resolve";
}

std::string_view name_of(DefectPolicies::OnDefect policy) {
  switch (policy) {
    case DefectPolicies::OnDefect::kError:
      return "error";
    case DefectPolicies::OnDefect::kSkip:
      return "skip";
    case DefectPolicies::OnDefect::kKeep:
      break;
  }
  return "keep";
}

}  // namespace

DefectPolicies::OnLink parse_on_link(std::string_view text) {
  for (const DefectPolicies::OnLink policy :
       {DefectPolicies::OnLink::kError, DefectPolicies::OnLink::kSkip,
        DefectPolicies::OnLink::kResolve}) {
    if (text == name_of(policy)) return policy;
  }
  throw InvalidArgument("unknown policy", in_quotes(text), "choose error, skip or resolve");
}

DefectPolicies::OnDefect parse_on_defect(std::string_view text) {
  for (const DefectPolicies::OnDefect policy :
       {DefectPolicies::OnDefect::kError, DefectPolicies::OnDefect::kSkip,
        DefectPolicies::OnDefect::kKeep}) {
    if (text == name_of(policy)) return policy;
  }
  throw InvalidArgument("unknown policy", in_quotes(text), "choose error, skip or keep");
}

std::string to_string(const DefectPolicies& policies) {
  if (policies.damage != DefectPolicies::OnDefect::kKeep &&
      policies == DefectPolicies::all(policies.damage)) {
    return std::string(name_of(policies.damage));
  }
  std::string text;
  for (const Kind& kind : kKinds) {
    text += text.empty() ? "" : ",";
    text += kind.name;
    text += '=';
    text += name_of(policies.*kind.policy);
  }
  if (policies.link != DefectPolicies::OnLink::kError) {
    text.append(",").append(kLink).append("=").append(name_of(policies.link));
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
