#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "shardwise/base/cancel.h"
#include "shardwise/base/export.h"
#include "shardwise/index/index.h"
#include "shardwise/ingest/wids_descriptor.h"

namespace shardwise {

// Exports of an index to the formats of other readers. An export first checks that the size and
// time of each shard are as indexed. It replaces an existing file only if that is an export of the
// same format, and otherwise throws InvalidArgument.

/// Writes the wids descriptor (see wids_descriptor.h) of all shards of `index`, in order, to
/// `path`. Each entry has url, nsamples, filesize and, if requested, md5sum.
///
/// The url of a shard below the descriptor's directory is relative, so both can be moved together.
/// Other paths are absolute. URLs of remote shards have no user, password or signature. Name the
/// file `*.json`, so that read_sources() recognises it. An index that is built from the descriptor
/// has the fingerprint of `index`.
///
/// Effects: `path` appears complete or not at all. Temporary files of killed exports are removed.
///   If URLs may contain secrets (other values in a query), the file's mode is 0600.
/// Errors: Unsupported if a path or the name is not UTF-8, as JSON requires. Unsupported also if
///   wids' tar reader would read a shard differently. This is the case for compressed shards,
///   concatenated archives, and shards with bad members that were left out. It is also the case for
///   names above 100 bytes or not UTF-8, names repeated in a shard, hard links used as members, and
///   members of 8 GiB or more.
/// Errors: InvalidArgument if the index is a part (see BuildOptions::Part), or `path` exists and is
///   not a wids descriptor. StaleIndex. NotFound. CorruptIndex. kIo. kNoSpace. Cancelled.
/// Cost: O(members).
/// Source: wids/wids_index.py of webdataset 0.2.107.
SHARDWISE_EXPORT void write_wids_descriptor(const Index& index, const std::string& path,
                                            const WidsDescriptor::ExportOptions& options = {});

/// Writes an index file of NVIDIA DALI's fn.readers.webdataset for each shard of `index` into
/// `directory`. For train-0.tar it writes train-0.idx. A missing directory is created.
///
///     v1.2 <samples>
///     <field> <data offset> <size> <key>.<field> <field> <data offset> ...   one line per sample
///
/// Offsets and sizes are in bytes. Fields are in lower case, as in the index. DALI compares fields
/// with its `ext`, including case.
///
/// Effects: each file appears complete or not at all. Everything is checked before the first file
///   is written.
/// @return  paths of the files in the order of shards, for DALI's index_paths.
/// Errors: Unsupported if a key or field contains white space, which is the separator. Unsupported
///   if a shard is empty or compressed, which DALI cannot read. InvalidArgument if two shards need
///   a file of the same name, or such a file exists and is not a DALI index. StaleIndex. NotFound.
///   CorruptIndex. kIo. kNoSpace. Cancelled.
/// Source: tools/wds2idx.py (version v1.2), and its parser
///   dali/operators/reader/loader/webdataset_loader.cc, in DALI at 0aa2ef5f and 010a519f. Unlike
///   wds2idx, this leaves out members that WebDataset's rule assigns to no sample (links, names
///   without a field).
SHARDWISE_EXPORT std::vector<std::string> write_dali_index(const Index& index,
                                                           const std::string& directory,
                                                           const CancelToken& cancel = {});

}  // namespace shardwise
