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

// A wids descriptor: the JSON file by which Python wids names the shards of one or several data
// sets.
//
//     {
//       "wids_version": 1,                       required; no other version exists
//       "name": "train",                         optional, as all that follows
//       "base": "shards",                        where relative URLs begin
//       "weight": 1,                             of this file's own shards among the data sets
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
// There must be a shardlist or datasets, and a shard in all. Other keys ("__kind__", "info",
// "keep", ...) are left unread.
//
// URLs are paths, `file:` URLs, or URLs of what is remote. A relative one begins at the nearest
// "base": that of its data set, else that of the file; without any, at the descriptor's directory,
// where a relative base and a relative source_url begin too. A file that a source_url names must
// hold a shardlist of its own, no datasets, and no source_url; its weight is that of the reference,
// its name that of the reference if it has one.
//
// A descriptor is a text from outside, and is read as one. Refused are: more than 256 MiB (with all
// files that it refers to), nesting deeper than 64, more than 10 million shards or 65,536 data
// sets, a key that comes twice, values of a wrong type, counts that are negative, not whole, or add
// up to more than 2^63, and `pipe:` URLs. A descriptor that is itself remote may name what lies
// beside it and absolute URLs of its own scheme (https for http, too), but no path on this machine,
// `file:` or not. A URL is never given to a shell or a pattern: `$(x).tar` and `*.tar` are names of
// files.
//
// Source: wids/wids_specs.py and wids/wids_index.py of webdataset 0.2.107. Two things differ. There
// the loader overlooks a file's own "base", which its documentation and its index tool mean as
// here; and an entry of "datasets" without a base begins in the current directory.

/// The content of a descriptor. Its data sets are the file's own shardlist, if it has one, and then
/// the entries of "datasets".
///
/// A mixture by the descriptor's weights, each data set exact:
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
    std::string url;                ///< as written
    std::string path;               ///< where it lies: `url` resolved
    std::uint64_t num_samples = 0;  ///< a claim, as the next two; see check_against_descriptor
    std::optional<std::string> md5 = {};  ///< of the whole file, 32 lower-case hexadecimal digits
    std::optional<std::uint64_t> size_bytes = {};
  };

  /// One data set.
  struct Set {
    std::string name;   ///< empty if it has none
    double weight = 1;  ///< finite and >= 0; only the ratios count
    std::vector<Shard> shards;

    /// The shards' paths, in order: what build_index takes.
    [[nodiscard]] SHARDWISE_EXPORT std::vector<std::string> paths() const;
    /// The number of samples that the shards claim together.
    [[nodiscard]] SHARDWISE_EXPORT std::uint64_t num_samples() const noexcept;
  };

  /// For check_against_descriptor().
  struct CheckOptions {
    /// Reads every byte of each shard that has an md5sum. Off, because it costs what indexing
    /// saves.
    bool md5 = false;
    /// Called after each piece of a shard that is read for its md5sum.
    ProgressCallback progress = {};
    /// Stops the check with Cancelled.
    CancelToken cancel = {};
    /// Brings remote shards for their md5sum; none: that is an error.
    RemoteAccess remote = nullptr;
  };

  /// For write_wids_descriptor().
  struct ExportOptions {
    /// Name of the data set; empty: the descriptor has none.
    std::string name = {};
    /// Reads every byte of every shard, for its md5sum.
    bool md5 = false;
    /// Called after each piece that is read for md5.
    ProgressCallback progress = {};
    /// Stops the export with Cancelled; the old file, if any, stays.
    CancelToken cancel = {};
  };

  std::string path;  ///< of the descriptor
  std::string name;  ///< empty if it has none
  std::vector<Set> datasets;
};

/// Reads the descriptor at `path`, or URL, and those that it refers to. No shard is touched.
/// @param remote  access to remote descriptors; none: they are an error.
/// Errors: NotFound, kIo; VersionMismatch (another wids_version); Unsupported (remote and pipe:
///   URLs); InvalidArgument for everything else above, naming the file and the place in it, as
///   `datasets[1].shardlist[0].nsamples`.
SHARDWISE_EXPORT WidsDescriptor read_wids_descriptor(const std::string& path,
                                                     const RemoteAccess& remote = nullptr);

/// As read_wids_descriptor(), of a text in memory; `path` says where it would lie.
SHARDWISE_EXPORT WidsDescriptor parse_wids_descriptor(std::string_view json,
                                                      const std::string& path);

/// Holds the claims of `descriptor` against `index`, which may hold other shards too: each shard is
/// there, has nsamples samples, is filesize bytes long, and, if asked for, has this md5sum.
///
/// nsamples is how wids numbers samples, so a wrong one means that the two number them differently.
/// filesize is compared with the size when the shard was indexed; md5sum with the file as it is
/// now, which must be the one that was indexed.
/// Errors: Mismatch, naming the first shard that differs, both values, and how many others differ;
///   NotFound, kIo, StaleIndex and Cancelled when shards are read.
/// Cost: O(shards); with md5 a pass over their bytes, on one thread.
SHARDWISE_EXPORT void check_against_descriptor(const Index& index, const WidsDescriptor& descriptor,
                                               const WidsDescriptor::CheckOptions& options = {});

/// Holds the file sizes that `descriptor` claims of remote shards against what their servers say,
/// before anything is read. Errors: Mismatch as check_against_descriptor; those of `remote`.
SHARDWISE_EXPORT void check_remote_sizes(const WidsDescriptor& descriptor,
                                         const RemoteAccess& remote);

}  // namespace shardwise
