#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "shardwise/base/cancel.h"
#include "shardwise/base/export.h"

namespace shardwise::detail {

/// A file to pack as a member.
struct PackFile {
  std::string field;
  std::string path;
};

/// A sample to pack.
struct PackSample {
  std::string key;
  std::vector<PackFile> files;                ///< ordered by field
  std::optional<std::uint64_t> class_number;  ///< written as the field "cls"
};

/// Samples to pack, in order.
struct PackList {
  std::vector<PackSample> samples;
  std::vector<std::string> classes;   ///< names of classes, indexed by class number; empty without
                                      ///< classes
  std::vector<std::string> left_out;  ///< paths of files that belong to no sample
};

/// Lists images that are stored in one folder per class. The number of a class is the index of its
/// folder in bytewise order. The folder may have subfolders. Each image is a sample. Its key is the
/// path below `directory` without the extension, with dots in the file name replaced by `_` (a key
/// ends at the first dot). Its field is the extension in lower case. Hidden files are ignored.
/// Files without the extension of an image format are listed in `left_out`.
/// Errors: NotFound (no such folder, no class, no image); InvalidArgument (two files with the same
///   key); Cancelled.
SHARDWISE_EXPORT PackList list_images(const std::string& directory, const CancelToken& cancel = {});

/// Lists files, and groups them into samples like WebDataset: the first dot of a name separates the
/// sample's key from the field. Samples are sorted bytewise by key, files by field. Hidden files
/// are ignored. Names without a key or a field are listed in `left_out`.
/// Errors: NotFound (no such folder, no sample); InvalidArgument (two files with the same key and
///   field); Cancelled.
SHARDWISE_EXPORT PackList list_files(const std::string& directory, const CancelToken& cancel = {});

/// Shuffles the samples. The order depends only on `seed` and the number of samples.
SHARDWISE_EXPORT void shuffle_samples(std::vector<PackSample>& samples, std::uint64_t seed);

}  // namespace shardwise::detail
