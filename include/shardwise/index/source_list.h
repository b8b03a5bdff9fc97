#pragma once

#include <string>
#include <vector>

#include "shardwise/base/export.h"
#include "shardwise/index/wids_descriptor.h"

namespace shardwise {

/// What the sources of an index stand for.
struct SourceList {
  std::vector<std::string> shards;          ///< paths and URLs, in order
  std::vector<WidsDescriptor> descriptors;  ///< those among the sources, whose shards are there too
};

/// Expands what a user names into shard paths, keeping the order given.
///
/// A source is a file; a URL (http, https, s3, or what `remote` brings), of which braces are
/// expanded and nothing else; a directory (all `*.tar` below it, bytewise sorted); a glob (`*`,
/// `?`,
/// `[...]`, bytewise sorted); a brace pattern, `train-{000000..000146}.tar` or `{a,b}/x.tar`, whose
/// numbers keep their zero padding; a wids descriptor, `x.json`, which stands for the shards of all
/// its data sets in turn; `@list.txt`, a file with one source a line (blank lines and lines that
/// start with # left out, relative to the current directory); or `-`, the same from standard input.
///
/// @param remote  brings remote descriptors; shards are not looked at.
///
/// What a descriptor claims of its shards is for check_against_descriptor to hold against the
/// index.
///
/// Errors: NotFound if a source names nothing; InvalidArgument for a malformed pattern, for a list
/// that includes itself, and for a path that comes twice; those of
/// read_wids_descriptor.
SHARDWISE_EXPORT SourceList read_sources(const std::vector<std::string>& sources,
                                         RemoteShards* remote = nullptr);

/// The shards alone.
SHARDWISE_EXPORT std::vector<std::string> expand_sources(const std::vector<std::string>& sources,
                                                         RemoteShards* remote = nullptr);

}  // namespace shardwise
