#pragma once

#include "help_page.h"

namespace shardwise::tools {

/// The kind of completion for the value of an option or an argument.
enum class ValueKind : unsigned char {
  kNone,       ///< a flag
  kChoice,     ///< one of HelpOption::choices
  kFile,       ///< a path
  kDirectory,  ///< the path of a folder
  kOther,      ///< a number, a key, SQL: no completion
};

/// Returns the kind, from the option's type or the argument's name.
ValueKind value_kind(const HelpOption& option);
ValueKind argument_kind(const HelpOption& argument);

}  // namespace shardwise::tools
