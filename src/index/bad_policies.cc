#include "shardwise/index/bad_policies.h"

#include <algorithm>
#include <array>

#include "base/text.h"
#include "shardwise/base/error.h"

namespace shardwise {
namespace {

struct Kind {
  std::string_view name;
  OnBad BadPolicies::*policy;
};

constexpr std::array<Kind, 4> kKinds = {{{"damage", &BadPolicies::damage},
                                         {"no-field", &BadPolicies::no_field},
                                         {"duplicate-field", &BadPolicies::duplicate_field},
                                         {"repeated-key", &BadPolicies::repeated_key}}};

constexpr std::string_view kLink = "link";

std::string_view name_of(OnLink policy) {
  switch (policy) {
    case OnLink::kError:
      return "error";
    case OnLink::kSkip:
      return "skip";
    case OnLink::kResolve:
      break;
  }
  return "resolve";
}

std::string_view name_of(OnBad policy) {
  switch (policy) {
    case OnBad::kError:
      return "error";
    case OnBad::kSkip:
      return "skip";
    case OnBad::kKeep:
      break;
  }
  return "keep";
}

}  // namespace

OnLink parse_on_link(std::string_view text) {
  for (const OnLink policy : {OnLink::kError, OnLink::kSkip, OnLink::kResolve}) {
    if (text == name_of(policy)) return policy;
  }
  throw InvalidArgument("unknown policy", in_quotes(text), "valid are error, skip and resolve");
}

OnBad parse_on_bad(std::string_view text) {
  for (const OnBad policy : {OnBad::kError, OnBad::kSkip, OnBad::kKeep}) {
    if (text == name_of(policy)) return policy;
  }
  throw InvalidArgument("unknown policy", in_quotes(text), "valid are error, skip and keep");
}

std::string to_string(const BadPolicies& policies) {
  if (policies.damage != OnBad::kKeep && policies == BadPolicies::all(policies.damage)) {
    return std::string(name_of(policies.damage));
  }
  std::string text;
  for (const Kind& kind : kKinds) {
    text += text.empty() ? "" : ",";
    text += kind.name;
    text += '=';
    text += name_of(policies.*kind.policy);
  }
  if (policies.link != OnLink::kError) {
    text.append(",").append(kLink).append("=").append(name_of(policies.link));
  }
  return text;
}

BadPolicies parse_bad_policies(std::string_view text) {
  if (text.find('=') == std::string_view::npos) return BadPolicies::all(parse_on_bad(text));
  BadPolicies policies;
  std::string_view rest = text;
  const auto take = [&](std::string_view name) {
    const std::string_view part = rest.substr(0, rest.find(','));
    const std::size_t equals = part.find('=');
    if (equals == std::string_view::npos || part.substr(0, equals) != name) {
      throw InvalidArgument("malformed policies", in_quotes(text), "");
    }
    rest.remove_prefix(std::min(rest.size(), part.size() + 1));
    return part.substr(equals + 1);
  };
  for (const Kind& kind : kKinds) policies.*kind.policy = parse_on_bad(take(kind.name));
  if (!rest.empty()) policies.link = parse_on_link(take(kLink));
  return policies;
}

}  // namespace shardwise
