#include "tar/pack_source.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <map>
#include <string_view>
#include <utility>

#include "base/ascii.h"
#include "base/bytes.h"
#include "base/errno_error.h"
#include "base/hasher.h"
#include "base/normal_path.h"
#include "base/spelling.h"
#include "base/text.h"
#include "shardwise/base/error.h"
#include "tar/sample_name.h"

namespace shardwise::detail {
namespace {
namespace fs = std::filesystem;

constexpr std::array<std::string_view, 9> kImageExtensions = {"bmp", "gif", "jpeg", "jpg", "png",
                                                              "ppm", "tif", "tiff", "webp"};

/// Calls `visit` for each entry of a folder that is not hidden. It does not enter subfolders that
/// are symbolic links, in order to avoid loops.
template <class Iterator, class Visit>
void for_each_entry(const std::string& directory, const CancelToken& cancel, Visit visit) {
  try {
    Iterator entries(directory);
    for (const Iterator end; entries != end; ++entries) {
      cancel.throw_if_cancelled();
      if (!is_hidden_name(entries->path().native())) {
        visit(*entries);
      } else if constexpr (std::is_same_v<Iterator, fs::recursive_directory_iterator>) {
        entries.disable_recursion_pending();
      }
    }
  } catch (const fs::filesystem_error& e) {
    const fs::path& culprit = e.path1();
    throw_errno(e.code().value(), "cannot list the folder",
                culprit.empty() ? directory : culprit.string());
  }
}

/// Returns the paths of all files below `directory`, relative to it, sorted bytewise.
std::vector<std::string> files_below(const std::string& directory, const CancelToken& cancel) {
  std::vector<std::string> files;
  for_each_entry<fs::recursive_directory_iterator>(
      directory, cancel, [&](const fs::directory_entry& entry) {
        if (entry.is_regular_file()) {
          files.push_back(entry.path().lexically_relative(directory).native());
        }
      });
  std::sort(files.begin(), files.end());
  return files;
}

std::vector<std::string> folders_in(const std::string& directory, const CancelToken& cancel) {
  std::vector<std::string> folders;
  for_each_entry<fs::directory_iterator>(directory, cancel, [&](const fs::directory_entry& entry) {
    if (entry.is_directory()) folders.push_back(entry.path().filename().native());
  });
  std::sort(folders.begin(), folders.end());
  return folders;
}

/// Returns key and field of an image, or nothing if the name does not have the extension of an
/// image format.
std::optional<std::pair<std::string, std::string>> image_name(const std::string& relative) {
  const std::size_t name_start = relative.rfind('/') + 1;
  const std::size_t dot = relative.rfind('.');
  if (dot == std::string::npos || dot <= name_start) return std::nullopt;
  std::string field = to_lower(std::string_view(relative).substr(dot + 1));
  if (std::ranges::find(kImageExtensions, field) == kImageExtensions.end()) return std::nullopt;
  std::string key = relative.substr(0, dot);
  std::replace(key.begin() + static_cast<std::ptrdiff_t>(name_start), key.end(), '.', '_');
  return std::pair(std::move(key), std::move(field));
}

}  // namespace

PackList list_images(const std::string& named, const CancelToken& cancel) {
  const std::string directory = at_home(named);
  PackList list;
  list.classes = folders_in(directory, cancel);
  if (list.classes.empty()) {
    throw NotFound("found no class folders", in_quotes(directory),
                   "put the images of each class into a folder, or pack them as files (" +
                       spelled("list_files") + ")");
  }
  for (std::uint64_t number = 0; number < list.classes.size(); ++number) {
    const std::string& name = list.classes[number];
    std::map<std::string, std::string> path_of_key;
    for (const std::string& file : files_below(directory + "/" + name, cancel)) {
      const std::string path = directory + "/" + name + "/" + file;
      auto parts = image_name(file);
      if (!parts) {
        list.left_out.push_back(path);
        continue;
      }
      auto& [key, field] = *parts;
      key.insert(0, name + "/");
      const auto [other, is_new] = path_of_key.emplace(key, path);
      if (!is_new) {
        throw InvalidArgument("two images have the same key, " + in_quotes(key),
                              in_quotes(other->second) + " and " + in_quotes(path),
                              "rename one of the two");
      }
      list.samples.push_back({std::move(key), {{std::move(field), path}}, number});
    }
  }
  if (list.samples.empty()) {
    throw NotFound("found no image", in_quotes(directory),
                   "give a folder of images with the extension bmp, gif, jpeg, jpg, png, ppm, tif, "
                   "tiff or webp");
  }
  return list;
}

PackList list_files(const std::string& named, const CancelToken& cancel) {
  const std::string directory = at_home(named);
  PackList list;
  std::map<std::string, PackSample> samples;
  for (const std::string& file : files_below(directory, cancel)) {
    const std::string path = directory + "/" + file;
    const std::optional<SampleName> name = split_sample_name(file);
    if (!name) {
      list.left_out.push_back(path);
      continue;
    }
    PackSample& sample = samples[std::string(name->key)];
    sample.key = name->key;
    const std::string field = to_lower(name->field);
    const auto other = std::ranges::find(sample.files, field, &PackFile::field);
    if (other != sample.files.end()) {
      throw InvalidArgument("two files have the same key and field",
                            in_quotes(other->path) + " and " + in_quotes(path),
                            "rename one of the two");
    }
    sample.files.push_back({field, path});
  }
  for (auto& [key, sample] : samples) {
    std::ranges::sort(sample.files, {}, &PackFile::field);
    list.samples.push_back(std::move(sample));
  }
  if (list.samples.empty()) {
    throw NotFound("found no sample", in_quotes(directory),
                   "name each file KEY.FIELD, e.g. 000001.jpg");
  }
  return list;
}

void shuffle_samples(std::vector<PackSample>& samples, std::uint64_t seed) {
  for (std::uint64_t i = samples.size(); i > 1; --i) {
    std::array<char, 8> bytes{};
    store_le64(bytes.data(), i);
    const std::uint64_t j = hash64({bytes.data(), bytes.size()}, seed) % i;
    std::swap(samples[i - 1], samples[j]);
  }
}

}  // namespace shardwise::detail
