#pragma once

#include <fcntl.h>
#include <sys/stat.h>

#include <cstdint>
#include <cstdio>
#include <stdexcept>
#include <string>
#include <vector>

#include "shardwise/data/dataset.h"
#include "shardwise/ingest/index_builder.h"
#include "support/support.h"

namespace shardwise::test {

inline std::string key_of(std::uint64_t sample) {
  char key[32];
  std::snprintf(key, sizeof key, "dir/%06llu", static_cast<unsigned long long>(sample));
  return key;
}

/// Returns bytes that identify the sample. Their length also differs between samples.
inline std::string content_of(std::uint64_t sample) {
  std::string bytes = "content of sample " + std::to_string(sample) + ":";
  for (std::uint64_t i = 0; i < sample % 700; ++i) bytes += static_cast<char>(sample + i);
  return bytes;
}

/// Sets a file's time to a second in the past, so that later changes also change the time.
inline void set_old_time(const std::string& path, std::int64_t seconds = 1'000'000'000) {
  const timespec times[2] = {{seconds, 0}, {seconds, 0}};
  if (::utimensat(AT_FDCWD, path.c_str(), times, 0) != 0) throw std::runtime_error("utimensat");
}

/// Returns a shard of samples [first, first + num), with fields "bin" and "cls".
inline std::string shard_bytes(std::uint64_t first, std::uint64_t num) {
  TarBuilder tar;
  for (std::uint64_t i = first; i < first + num; ++i) {
    tar.file(key_of(i) + ".bin", content_of(i))
        .file(key_of(i) + ".cls", std::to_string(i % 10) + "\n");
  }
  return tar.end().bytes();
}

/// A new directory with `num_shards` shards of `per_shard` samples, and their index.
class Shards {
 public:
  Shards(std::uint64_t num_shards, std::uint64_t per_shard) : per_shard_(per_shard) {
    for (std::uint64_t i = 0; i < num_shards; ++i) {
      write_file(path(i), shard_bytes(i * per_shard, per_shard));
      set_old_time(path(i));
      paths_.push_back(path(i));
    }
    build_index(index_path(), paths_, {.threads = 1});
  }

  const TempDir& dir() const { return dir_; }
  std::uint64_t size() const { return paths_.size() * per_shard_; }
  const std::vector<std::string>& paths() const { return paths_; }
  std::string name(std::uint64_t shard) const { return "train-" + std::to_string(shard) + ".tar"; }
  std::string path(std::uint64_t shard) const { return dir_ / name(shard); }
  std::string index_path() const { return dir_ / "train.idx"; }

 private:
  TempDir dir_;
  std::uint64_t per_shard_;
  std::vector<std::string> paths_;
};

/// Checks `data[i]`. Returns the error, or "".
inline std::string wrong_with(const Dataset& data, std::uint64_t i) {
  const Sample sample = data[i];
  if (sample.key() != key_of(i)) return "sample " + std::to_string(i) + " has another key";
  if (sample["bin"] != content_of(i)) return "sample " + std::to_string(i) + " has other bytes";
  if (sample.integer("cls") != static_cast<std::int64_t>(i % 10)) return "wrong cls";
  return {};
}

/// Checks every sample. Returns the first error, or "".
inline std::string wrong_with(const Dataset& data) {
  for (std::uint64_t i = 0; i < data.size(); ++i) {
    if (std::string wrong = wrong_with(data, i); !wrong.empty()) return wrong;
  }
  return {};
}

}  // namespace shardwise::test
