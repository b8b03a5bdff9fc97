#include "support/fixtures.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <stdexcept>

#include "base/file.h"

namespace shardwise::bench {
namespace fs = std::filesystem;
namespace {

constexpr std::size_t kBlockBytes = 512;

void append_member(std::string& tar, const std::string& name, std::string_view content) {
  char header[kBlockBytes] = {};
  std::memcpy(header, name.data(), name.size());
  std::memcpy(header + 100,
              "0000644\0"
              "0001750\0"
              "0001750",
              23);
  std::snprintf(header + 124, 12, "%011llo", static_cast<unsigned long long>(content.size()));
  std::memcpy(header + 136, "14747507020", 11);
  header[156] = '0';
  std::memcpy(header + 257,
              "ustar\0"
              "00",
              8);
  std::memset(header + 148, ' ', 8);
  unsigned sum = 0;
  for (const char c : header) sum += static_cast<unsigned char>(c);
  std::snprintf(header + 148, 8, "%06o", sum);
  tar.append(header, sizeof header);
  tar.append(content);
  tar.append((kBlockBytes - content.size() % kBlockBytes) % kBlockBytes, '\0');
}

/// Makes the shards unless an earlier run has made them. The file "complete" is written last.
/// @param label  name of the second field.
/// @param step   sample i has the key key_of(i * step % num_samples).
ShardSet make_shards(const std::string& name, std::uint64_t num_shards, std::uint64_t num_samples,
                     const std::string& field, std::uint64_t field_bytes,
                     const std::string& label = "cls", std::uint64_t step = 1) {
  ShardSet set{.dir = fixture_dir() + "/" + name + "-" + std::to_string(num_samples),
               .field = field,
               .shards = {},
               .num_samples = num_samples,
               .field_bytes = field_bytes};
  for (std::uint64_t shard = 0; shard < num_shards; ++shard) {
    char file[32];
    std::snprintf(file, sizeof file, "/train-%06u.tar", static_cast<unsigned>(shard));
    set.shards.push_back(set.dir + file);
  }
  if (fs::exists(set.dir + "/complete")) return set;
  std::fprintf(stderr, "making %s ...\n", set.dir.c_str());
  fs::remove_all(set.dir);
  fs::create_directories(set.dir);
  std::string content(field_bytes, '\0');
  std::uint64_t state = 42;
  for (char& byte : content) {
    state = state * 6364136223846793005U + 1442695040888963407U;
    byte = static_cast<char>(state >> 56);
  }
  std::string tar;
  for (std::uint64_t shard = 0; shard < num_shards; ++shard) {
    tar.clear();
    const std::uint64_t end = num_samples * (shard + 1) / num_shards;
    for (std::uint64_t i = num_samples * shard / num_shards; i < end; ++i) {
      const std::string key = key_of(i * step % num_samples);
      std::memcpy(content.data(), &i, sizeof i);
      append_member(tar, key + "." + field, content);
      append_member(tar, key + "." + label, std::to_string(i % 1000));
    }
    tar.append(2 * kBlockBytes, '\0');
    std::ofstream out(set.shards[shard], std::ios::binary);
    if (!out.write(tar.data(), static_cast<std::streamsize>(tar.size())).flush()) {
      throw std::runtime_error("cannot write " + set.shards[shard]);
    }
  }
  std::ofstream(set.dir + "/complete") << "ok\n";
  return set;
}

}  // namespace

std::string fixture_dir() {
  if (const char* dir = std::getenv("SHARDWISE_BENCH_DIR")) return dir;
  return (fs::temp_directory_path() / "shardwise-bench").string();
}

std::uint64_t num_tiny_samples() {
  const char* wanted = std::getenv("SHARDWISE_BENCH_SAMPLES");
  return wanted != nullptr ? std::max<std::uint64_t>(1000, std::strtoull(wanted, nullptr, 10))
                           : 1'000'000;
}

ShardSet tiny_shards() { return make_shards("tiny", 100, num_tiny_samples(), "bin", 300); }

ShardSet caption_shards(bool in_order) {
  constexpr std::uint64_t kPrime = 1'000'003;
  return make_shards(in_order ? "captions" : "captions-mixed", 100, num_tiny_samples(), "txt", 300,
                     "score", in_order ? 1 : kPrime);
}

ShardSet image_shards() {
  return make_shards("images", 10, num_tiny_samples() / 100, "jpg", 80'000);
}

ShardSet cold_shards(std::uint64_t field_bytes) {
  constexpr std::uint64_t kOtherBytes = 1536;  // two headers and the label
  const std::uint64_t all_bytes = num_tiny_samples() * 640;
  return make_shards("cold-" + std::to_string(field_bytes), 10,
                     std::max<std::uint64_t>(all_bytes / (field_bytes + kOtherBytes), 10), "bin",
                     field_bytes);
}

std::string key_of(std::uint64_t sample) {
  char key[32];
  std::snprintf(key, sizeof key, "s%09llu", static_cast<unsigned long long>(sample));
  return key;
}

void warm_page_cache(const ShardSet& set) {
  std::string buffer(1 << 20, '\0');
  for (const std::string& shard : set.shards) {
    const File file = File::open_read(shard);
    for (std::uint64_t at = 0;; at += buffer.size()) {
      if (file.read_at(at, buffer.data(), buffer.size()) < buffer.size()) break;
    }
  }
}

}  // namespace shardwise::bench
