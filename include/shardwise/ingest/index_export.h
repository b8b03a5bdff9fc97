#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "shardwise/base/cancel.h"
#include "shardwise/base/export.h"
#include "shardwise/index/index.h"
#include "shardwise/ingest/wids_descriptor.h"

namespace shardwise {

// Exports of an index to the formats of other readers. Both check first that each shard is the one
// that was indexed (size and time), so that what they write is true of the files as they are. They
// replace only files of their own kind: any other file of that name is an InvalidArgument.

/// Writes the wids descriptor (see wids_descriptor.h) of all shards of `index`, in order, to
/// `path`: url, nsamples, filesize and, if asked for, md5sum. A url is relative if the shard lies
/// below the descriptor's directory, so that the two can be moved together; absolute otherwise; of
/// a remote one, as the index has it, without user, password and signature.
/// Name it `*.json`, by which expand_sources knows it; an index of it has the same fingerprint.
///
/// Effects: `path` appears whole or not at all; what a killed export of it left is removed. If it
///   names URLs that may hold secrets (other values in a query) only its owner can read it.
/// Errors: Unsupported if a shard's path or the name is not UTF-8, which JSON is, or for what wids'
///   own tar reader takes otherwise than the index: bad members that were left out, compressed
///   shards, archives one after another, names above 100 bytes or not UTF-8, a name that comes
///   twice in a shard, hard links that stand for members, members of 8 GiB and more;
///   InvalidArgument if the index is a part (see BuildOptions::Part), or if there is a file at
///   `path` that is no wids descriptor; StaleIndex, NotFound,
///   CorruptIndex, kIo, kNoSpace; Cancelled.
/// Cost: O(members).
/// Source: wids/wids_index.py of webdataset 0.2.107.
SHARDWISE_EXPORT void write_wids_descriptor(const Index& index, const std::string& path,
                                            const WidsDescriptor::ExportOptions& options = {});

/// Writes an index file of NVIDIA DALI's fn.readers.webdataset for each shard of `index` into
/// `directory`, which is made if it is missing: train-0.tar gives train-0.idx.
///
///     v1.2 <samples>
///     <field> <data offset> <size> <key>.<field> <field> <data offset> ...      a line a sample
///
/// Offsets and sizes are bytes. Fields are in lower case, as everywhere in an index; DALI compares
/// them with its `ext` as they are.
///
/// Effects: each file appears whole or not at all; all is checked before the first is written.
/// @return  the files' paths, in the order of the shards: what DALI takes as index_paths.
/// Errors: Unsupported if a key or field holds white space, which separates them, if a shard has no
///   samples, which DALI refuses, or is compressed, which it cannot read; InvalidArgument if two
///   shards' files would have one name, or a file of such a name is no DALI index; StaleIndex,
///   NotFound, CorruptIndex, kIo, kNoSpace; Cancelled.
/// Source: tools/wds2idx.py (version v1.2) and dali/operators/reader/loader/webdataset_loader.cc,
///   which parses it, in DALI at 0aa2ef5f and 010a519f. Unlike wds2idx, members that are in no
///   sample by WebDataset's rule (links, names without a field) are left out.
SHARDWISE_EXPORT std::vector<std::string> write_dali_index(const Index& index,
                                                           const std::string& directory,
                                                           const CancelToken& cancel = {});

}  // namespace shardwise
