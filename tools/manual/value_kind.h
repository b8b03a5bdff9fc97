#pragma once

#include "help_page.h"

namespace shardwise::tools {

/// What a shell can offer as the value of an option or as an argument.
enum class ValueKind : unsigned char {
  kNone,       ///< a flag
  kChoice,     ///< one of HelpOption::choices
  kFile,       ///< a path
  kDirectory,  ///< the path of a folder
  kOther,      ///< a number, a key, SQL: nothing to offer
};

/// Decided by the type of an option, or by the name of an argument.
ValueKind value_kind(const HelpOption& option);
ValueKind argument_kind(const HelpOption& argument);

}  // namespace shardwise::tools
