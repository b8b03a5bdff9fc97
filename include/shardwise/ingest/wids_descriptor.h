#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "shardwise/base/cancel.h"
#include "shardwise/base/export.h"
#include "shardwise/base/progress.h"
#include "shardwise/index/index.h"
#include "shardwise/ingest/remote_access.h"

namespace shardwise {

// A wids descriptor: the JSON file that lists the shards of one or several data sets for Python
// wids.
//
//     {
//       "wids_version": 1,                       required; no other version exists
//       "name": "train",                         optional, like all that follows
//       "base": "shards",                        where relative URLs begin
//       "weight": 1,                             of the file's own shards, relative to the others
//       "shardlist": [
//         {"url": "a.tar", "nsamples": 1000,     both required
//          "md5sum": "9e10...", "filesize": 10240}
//       ],
//       "datasets": [                            further data sets, after the file's own
//         {"name": "x", "weight": 2, "base": "...", "shardlist": [...]},
//         {"weight": 1, "source_url": "y.json"}
//       ]
//     }
//
// "shardlist" or "datasets" is required, with at least one shard. Other keys ("__kind__", "info",
// "keep", ...) are ignored.
//
// URLs are paths, `file:` URLs, or remote URLs. A relative URL is relative to the "base" of its
// data set, else to the "base" of the file, else to the descriptor's directory. A relative base or
// source_url is relative to the descriptor's directory. A file that a source_url names must have
// its own shardlist, no datasets, and no source_url. The entry with the source_url determines the
// file's weight and, if the entry has a name, the file's name.
//
// A descriptor is untrusted input. The reader refuses:
// - more than 256 MiB, including the files that it refers to;
// - nesting deeper than 64, more than 10 million shards, or more than 65,536 data sets;
// - repeated keys, and values of a wrong type;
// - counts that are negative, not whole, or add up to more than 2^63;
// - `pipe:` URLs;
// - paths on this machine, with or without `file:`, in a remote descriptor.
//
// A remote descriptor may name relative URLs, and absolute URLs of the same scheme. A descriptor
// read over http may name https URLs, too. A URL is never passed to a shell or expanded as a
// pattern: `$(x).tar` and `*.tar` are file names.
//
// Source: wids/wids_specs.py and wids/wids_index.py of webdataset 0.2.107, with two differences.
//   The loader of wids ignores a file's own "base", although the documentation and the index tool
//   of wids use it as here. In wids, relative URLs of an entry of "datasets" without a base are
//   relative to the current directory.

/// The content of a descriptor. Its data sets are the file's own shardlist, if any, followed by the
/// entries of "datasets".
///
/// Example: a mixture by the descriptor's weights, with exact passes over each data set:
///
///     std::vector<Dataset> data;
///     std::vector<double> weights;
///     for (const WidsDescriptor::Set& set : read_wids_descriptor("mix.json").datasets) {
///       build_index(set.name + ".idx", set.paths());
///       data.push_back(Dataset::open(set.name + ".idx"));
///       weights.push_back(set.weight);
///     }
///     const MixedDataset mixed(data);
///     auto order = make_sampler(mixed, {.seed = 17, .kind = mixed.mixture(weights)});
///     while (auto sample = order->next()) use(mixed[*sample]);
struct WidsDescriptor {
  /// A shard as a descriptor names it.
  struct Shard {
    std::string url;                      ///< URL in the descriptor, unchanged
    std::string path;                     ///< the resolved `url`
    std::uint64_t num_samples = 0;        ///< claimed, like md5 and size_bytes; see
                                          ///< check_against_descriptor()
    std::optional<std::string> md5 = {};  ///< of the whole file, 32 lower-case hexadecimal digits
    std::optional<std::uint64_t> size_bytes = {};
  };

  /// One data set.
  struct Set {
    std::string name;   ///< may be empty
    double weight = 1;  ///< finite and at least 0; only ratios matter
    std::vector<Shard> shards;

    /// The paths of the shards, in order, for build_index().
    [[nodiscard]] SHARDWISE_EXPORT std::vector<std::string> paths() const;
    /// The total number of samples that the descriptor claims.
    [[nodiscard]] SHARDWISE_EXPORT std::uint64_t num_samples() const noexcept;
  };

  /// Options of check_against_descriptor().
  struct CheckOptions {
    /// Check md5sums, too. This reads every byte of each shard with an md5sum.
    bool md5 = false;
    /// Called after each piece of a shard that is read for its md5sum.
    ProgressCallback progress = {};
    /// Makes the check throw Cancelled.
    CancelToken cancel = {};
    /// Access to remote shards for their md5sum. Null means that remote shards are an error.
    RemoteAccess remote = nullptr;
  };

  /// Options of write_wids_descriptor().
  struct ExportOptions {
    /// Name of the data set. Empty means that the descriptor has none.
    std::string name = {};
    /// Write md5sums. Reads every byte of every shard.
    bool md5 = false;
    /// Called after each piece that is read for an md5sum.
    ProgressCallback progress = {};
    /// Makes the export throw Cancelled; the old file is unchanged.
    CancelToken cancel = {};
  };

  std::string path;  ///< of the descriptor
  std::string name;  ///< may be empty
  std::vector<Set> datasets;
};

/// Reads the descriptor at a path or URL, and the files that it refers to. It accesses no shard.
/// @param remote  access to remote descriptors. Null means that remote descriptors are an error.
/// Errors: NotFound. kIo. VersionMismatch for another wids_version. Unsupported for remote files
///   without `remote`, and for pipe: URLs. InvalidArgument for any other violation of the rules
///   above, naming the file and the place, e.g. `datasets[1].shardlist[0].nsamples`.
SHARDWISE_EXPORT WidsDescriptor read_wids_descriptor(const std::string& path,
                                                     const RemoteAccess& remote = nullptr);

/// Parses a descriptor in memory. Relative URLs are resolved as if it were at `path`.
SHARDWISE_EXPORT WidsDescriptor parse_wids_descriptor(std::string_view json,
                                                      const std::string& path);

/// Checks the claims of `descriptor` against `index`, which may contain other shards, too. Each
/// shard must be in the index, have nsamples samples, and be filesize bytes long. If requested, its
/// md5sum must match.
///
/// A wrong nsamples means that wids and the index number samples differently. filesize is compared
/// with the size in the index. The md5sum is compared with that of the current file, which must be
/// unchanged since it was indexed.
/// Errors: Mismatch, naming the first shard that differs, both values, and the number of other
///   differences. NotFound, kIo, StaleIndex and Cancelled if shards are read.
/// Cost: O(shards); with md5 one pass over their bytes, on one thread.
SHARDWISE_EXPORT void check_against_descriptor(const Index& index, const WidsDescriptor& descriptor,
                                               const WidsDescriptor::CheckOptions& options = {});

/// Checks the filesizes of remote shards in `descriptor` against the sizes that their servers
/// state. It reads no shard.
/// Errors: Mismatch as in check_against_descriptor(). The errors of `remote`.
SHARDWISE_EXPORT void check_remote_sizes(const WidsDescriptor& descriptor,
                                         const RemoteAccess& remote);

}  // namespace shardwise
