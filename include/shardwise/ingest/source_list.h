#pragma once

#include <string>
#include <vector>

#include "shardwise/base/export.h"
#include "shardwise/ingest/remote_access.h"
#include "shardwise/ingest/wids_descriptor.h"

namespace shardwise {

/// The shards that the sources of an index stand for.
struct SourceList {
  std::vector<std::string> shards;          ///< paths and URLs, in order
  std::vector<WidsDescriptor> descriptors;  ///< those among the sources, whose shards are there too
  /// Paths of files in the directories that are not named like shards. Links to folders that were
  /// gone into already are not counted.
  std::vector<std::string> left_out;
  /// For BuildOptions::sources: the sources as they were given, with the lines of lists in place of
  /// the lists; empty if each is a shard or a pattern in braces, which always name the same shards.
  std::vector<std::string> sources;
};

/// Expands what a user names into shard paths, keeping the order given.
///
/// A source is one of
///
///     a file           itself
///     a URL            http, https, s3, gs, az, hf, or what `remote` brings; of it braces are
///                      expanded. With a slash at its end, or as a glob, where the store can list
///                      (s3, gs, az, hf): what lies there, as of a directory or a glob
///     a directory      all `*.tar`, `*.tgz` and `*.tar.<codec>` (gz, zst, xz, bz2, lz4) below it,
///                      in upper or lower case, bytewise sorted; below symbolic links to folders,
///                      too, each folder once; none whose name, or a folder's on the way, begins
///                      with a dot
///     a glob           `*`, `?`, `[...]`: what it matches, bytewise sorted
///     a brace pattern  `train-{000000..000146}.tar` or `{a,b}/x.tar`; numbers keep their zero
///                      padding
///     `x.json`         a wids descriptor: the shards of all its data sets in turn
///     `@list.txt`      a file with one source a line, relative to the current directory; blank
///                      lines and lines that start with # are left out
///     `-`              the same from standard input
///
/// Claims of a descriptor about its shards are not checked here; check_against_descriptor()
/// compares them with the index.
///
/// @param remote  access to remote descriptors and lists; shards are not looked at.
/// Errors: NotFound if a source names nothing; Unsupported if it would have to be listed and cannot
///   be; InvalidArgument for a malformed pattern, for a list
///   that includes itself, and for a path that comes twice (build_index looks for one that comes by
///   two spellings); those of read_wids_descriptor.
SHARDWISE_EXPORT SourceList read_sources(const std::vector<std::string>& sources,
                                         const RemoteAccess& remote = nullptr);

/// The shards alone.
SHARDWISE_EXPORT std::vector<std::string> expand_sources(const std::vector<std::string>& sources,
                                                         const RemoteAccess& remote = nullptr);

}  // namespace shardwise
