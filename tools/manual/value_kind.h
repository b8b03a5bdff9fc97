#pragma once

#include "help_page.h"

namespace shardwise::tools {

/// The kinds of values that a shell can complete, for options and arguments.
enum class ValueKind : unsigned char {
  kNone,       ///< a flag
  kChoice,     ///< one of HelpOption::choices
  kFile,       ///< a path
  kDirectory,  ///< the path of a folder
  kOther,      ///< a number, a key, SQL: no completion
};

/// Derived from an option's type, or an argument's name.
ValueKind value_kind(const HelpOption& option);
ValueKind argument_kind(const HelpOption& argument);

}  // namespace shardwise::tools
