#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "shardwise/base/cancel.h"
#include "shardwise/base/export.h"

namespace shardwise::detail {

/// A file that becomes a member.
struct PackFile {
  std::string field;
  std::string path;
};

/// A sample to be packed.
struct PackSample {
  std::string key;
  std::vector<PackFile> files;                ///< by field
  std::optional<std::uint64_t> class_number;  ///< becomes the field "cls"
};

/// What is to be packed, in its order.
struct PackList {
  std::vector<PackSample> samples;
  std::vector<std::string> classes;   ///< names by number; empty if there are none
  std::vector<std::string> left_out;  ///< paths of files that make no sample
};

/// Images in one folder per class. Folders are sorted bytewise, and a folder's place is its class;
/// images may lie in folders below. A sample is one image: its key is its path below `directory`
/// without the extension, with dots in the file's own name replaced by `_` (a key ends at the first
/// dot); its field is the extension in lower case. Hidden files are passed over; what is no image
/// by its extension is left out.
/// Errors: NotFound (no such folder, no class, no image); InvalidArgument (two files of one key);
/// Cancelled.
SHARDWISE_EXPORT PackList list_images(const std::string& directory, const CancelToken& cancel = {});

/// Files grouped as WebDataset does: a name is cut at its first dot into the sample's key and the
/// field. Samples are sorted bytewise by key, files by field. Hidden files are passed over; names
/// without a key or a field are left out.
/// Errors: NotFound (no such folder, no sample); InvalidArgument (two files of one key and field);
/// Cancelled.
SHARDWISE_EXPORT PackList list_files(const std::string& directory, const CancelToken& cancel = {});

/// Puts the samples into an order that depends on `seed` and their number alone.
SHARDWISE_EXPORT void shuffle_samples(std::vector<PackSample>& samples, std::uint64_t seed);

}  // namespace shardwise::detail
