#pragma once

#include <string>
#include <vector>

#include "shardwise/base/export.h"
#include "shardwise/ingest/remote_access.h"
#include "shardwise/ingest/wids_descriptor.h"

namespace shardwise {

/// The shards to which the sources of an index expand.
struct SourceList {
  std::vector<std::string> shards;  ///< paths and URLs, in order
  /// Descriptors among the sources. Their shards are in `shards`.
  std::vector<WidsDescriptor> descriptors;
  /// Paths of files in the directories that are not named like shards. Symbolic links to folders
  /// that were already visited are not among them.
  std::vector<std::string> left_out;
  /// The value for BuildOptions::sources: the sources, with each list replaced by its lines. Empty
  /// if all sources are shards or brace patterns, because these always expand to the same shards.
  std::vector<std::string> sources;
};

/// Expands the sources that a user names into shards, in the order given.
///
/// A source is one of:
///
///    a file           itself
///    a URL            http, https, s3, gs, az, hf, or another scheme of `remote`; braces are
///                     expanded. A URL that ends with a slash, or is a glob, is listed like a
///                     directory or glob, if the store can list (s3, gs, az, hf)
///    a directory      all `*.tar`, `*.tgz` and `*.tar.<codec>` (gz, zst, xz, bz2, lz4) below it,
///                     ignoring case, sorted bytewise. Links to folders are followed, each folder
///                     once. Names that begin with a dot are ignored, also of folders below it
///    a glob           `*`, `?`, `[...]`: all matches, sorted bytewise
///    a brace pattern  `train-{000000..000146}.tar` or `{a,b}/x.tar`; numbers keep leading zeros
///    `x.json`         a wids descriptor: the shards of all its data sets in turn
///    `@list.txt`      a file with one source per line, relative to the current directory; blank
///                     lines and lines that start with # are ignored
///    `-`              the same from standard input
///
/// This function does not check the claims of a descriptor about its shards.
/// check_against_descriptor() checks them against the index.
///
/// @param remote  access to remote descriptors and lists. Shards are not accessed.
/// Errors: NotFound if a source matches nothing. Unsupported if a URL must be listed and its store
///   cannot list. InvalidArgument for a malformed pattern, a list that includes itself, or a
///   repeated path. build_index() detects two spellings of one path. The errors of
///   read_wids_descriptor().
SHARDWISE_EXPORT SourceList read_sources(const std::vector<std::string>& sources,
                                         const RemoteAccess& remote = nullptr);

/// Returns only the shards of read_sources().
SHARDWISE_EXPORT std::vector<std::string> expand_sources(const std::vector<std::string>& sources,
                                                         const RemoteAccess& remote = nullptr);

}  // namespace shardwise
