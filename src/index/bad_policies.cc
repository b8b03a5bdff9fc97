#include "shardwise/index/bad_policies.h"

#include <array>

#include "shardwise/base/error.h"
#include "shardwise/base/text.h"

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

OnBad parse_on_bad(std::string_view text) {
  for (const OnBad policy : {OnBad::kError, OnBad::kSkip, OnBad::kKeep}) {
    if (text == name_of(policy)) return policy;
  }
  throw InvalidArgument("unknown policy", in_quotes(text), "there are error, skip and keep");
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
  return text;
}

BadPolicies parse_bad_policies(std::string_view text) {
  if (text.find('=') == std::string_view::npos) return BadPolicies::all(parse_on_bad(text));
  BadPolicies policies;
  for (const Kind& kind : kKinds) {
    const std::string_view part = text.substr(0, text.find(','));
    const std::size_t equals = part.find('=');
    if (equals == std::string_view::npos || part.substr(0, equals) != kind.name) {
      throw InvalidArgument("malformed policies", in_quotes(text), "");
    }
    policies.*kind.policy = parse_on_bad(part.substr(equals + 1));
    text.remove_prefix(std::min(text.size(), part.size() + 1));
  }
  return policies;
}

}  // namespace shardwise
