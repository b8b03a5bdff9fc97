#pragma once

#include <string>
#include <vector>

#include "shardwise/base/export.h"

namespace shardwise {

/// Expands what a user names into shard paths, keeping the order given.
///
/// A source is a file; a directory (all `*.tar` below it, bytewise sorted); a glob (`*`, `?`,
/// `[...]`, bytewise sorted); a brace pattern, `train-{000000..000146}.tar` or `{a,b}/x.tar`, whose
/// numbers keep their zero padding; `@list.txt`, a file with one source a line (blank lines and
/// lines that start with # left out, relative to the current directory); or `-`, the same from
/// standard input.
///
/// Errors: NotFound if a source names nothing; InvalidArgument for a malformed pattern, for a list
/// that includes itself, and for a path that comes twice.
SHARDWISE_EXPORT std::vector<std::string> expand_sources(const std::vector<std::string>& sources);

}  // namespace shardwise
