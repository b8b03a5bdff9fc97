#include "support/support.h"

#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iostream>
#include <random>
#include <sstream>
#include <utility>

#include "base/file.h"
#include "compressed_bytes.h"
#include "support/shards.h"

namespace shardwise::test {
namespace fs = std::filesystem;

TempDir::TempDir() : path_(fs::temp_directory_path() / ("shardwise-test-" + random_name(16))) {
  fs::create_directory(path_);
}

TempDir::~TempDir() {
  std::error_code ignored;
  fs::remove_all(path_, ignored);
}

std::vector<std::string> TempDir::list() const {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(path_)) names.push_back(entry.path().filename());
  std::sort(names.begin(), names.end());
  return names;
}

std::string compress(std::string_view bytes, Compression compression) {
  if (compression == Compression::kNone) return std::string(bytes);
  return fuzz::compressed_bytes(bytes, compression);
}

std::string compress_unchecked(std::string_view bytes, Compression compression) {
  return fuzz::compressed_bytes(bytes, compression, false);
}

std::uint64_t random_seed() {
  const char* given = std::getenv("SHARDWISE_SEED");
  const std::uint64_t seed =
      given == nullptr ? std::random_device()() : std::strtoull(given, nullptr, 10);
  std::cout << "SHARDWISE_SEED=" << seed << "\n";
  return seed;
}

int repeats(int slice, int whole) {
  return std::getenv("SHARDWISE_THOROUGH") == nullptr ? slice : whole;
}

std::string read_file(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) throw std::runtime_error("cannot read " + path);
  std::ostringstream bytes;
  bytes << in.rdbuf();  // in blocks
  return std::move(bytes).str();
}

void write_file(const std::string& path, std::string_view bytes) {
  std::ofstream out(path, std::ios::binary | std::ios::trunc);
  out.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  if (!out.flush()) throw std::runtime_error("cannot write " + path);
}

std::string source_dir() { return SHARDWISE_SOURCE_DIR; }

std::optional<fs::path> corpus_dir() {
  const char* named = std::getenv("SHARDWISE_CORPUS");
  const fs::path dir = named != nullptr ? fs::path(named) : fs::path(source_dir()) / "../shared";
  if (!fs::is_directory(dir)) return std::nullopt;
  return dir;
}

void TarBuilder::fix_checksum(char* header) {
  std::memset(header + 148, ' ', 8);
  unsigned sum = 0;
  for (int i = 0; i < 512; ++i) sum += static_cast<unsigned char>(header[i]);
  std::snprintf(header + 148, 8, "%06o", sum);
  header[155] = ' ';
}

std::string TarBuilder::header(std::string_view name, char type, std::uint64_t size,
                               std::string_view link) {
  std::string h(512, '\0');
  name.copy(h.data(), 100);
  std::memcpy(h.data() + 100, "0000644", 7);
  std::memcpy(h.data() + 108, "0001750", 7);
  std::memcpy(h.data() + 116, "0001750", 7);
  std::snprintf(h.data() + 124, 12, "%011llo", static_cast<unsigned long long>(size));
  std::memcpy(h.data() + 136, "14747507020", 11);
  h[156] = type;
  link.copy(h.data() + 157, 100);
  std::memcpy(h.data() + 257,
              "ustar\0"
              "00",
              8);
  fix_checksum(h.data());
  return h;
}

TarBuilder& TarBuilder::entry(std::string_view name, char type, std::string_view content,
                              std::string_view link) {
  bytes_ += header(name, type, content.size(), link);
  bytes_ += content;
  bytes_.append((512 - content.size() % 512) % 512, '\0');
  return *this;
}

TarBuilder& TarBuilder::file(std::string_view name, std::string_view content) {
  return entry(name, '0', content);
}

TarBuilder& TarBuilder::pax(const std::vector<std::pair<std::string, std::string>>& records,
                            char type) {
  std::string body;
  for (const auto& [key, value] : records) {
    const std::string rest = " " + key + "=" + value + "\n";
    std::size_t length = rest.size() + 1;
    while (std::to_string(length).size() + rest.size() != length) {
      length = std::to_string(length).size() + rest.size();
    }
    body += std::to_string(length) + rest;
  }
  return entry("PaxHeaders/x", type, body);
}

TarBuilder& TarBuilder::raw(std::string_view bytes) {
  bytes_ += bytes;
  return *this;
}

TarBuilder& TarBuilder::end() {
  bytes_.append(1024, '\0');
  return *this;
}

std::string tar_of(const std::string& key) {
  return TarBuilder().file(key + ".txt", "text of " + key).end().bytes();
}

std::string table_of(const TempDir& dir, const std::string& index) {
  for (const std::string& name : dir.list()) {
    if (name.starts_with(index + ".") && name.ends_with(".table")) return name;
  }
  return {};
}

std::vector<std::string> write_shards(const TempDir& dir, int num_shards, int samples_per_shard,
                                      const std::string& prefix) {
  std::vector<std::string> paths;
  int sample = 0;
  for (int shard = 0; shard < num_shards; ++shard) {
    TarBuilder tar;
    for (int i = 0; i < samples_per_shard; ++i, ++sample) {
      char key[16];
      std::snprintf(key, sizeof key, "s%06d", sample);
      tar.file(std::string(key) + ".txt", "text " + std::to_string(sample));
      tar.file(std::string(key) + ".cls", std::to_string(sample % 10));
    }
    tar.end();
    char number[16];
    std::snprintf(number, sizeof number, "%06d", shard);
    paths.push_back(dir / (prefix + "-" + number + ".tar"));
    write_file(paths.back(), tar.bytes());
  }
  return paths;
}

}  // namespace shardwise::test

#ifdef __SANITIZE_THREAD__
// ThreadSanitizer does not know the lock that glibc takes in mktime(), which libarchive calls,
// nor how the threads of libx265, which encodes videos for tests, wait for each other.
extern "C" const char* __tsan_default_suppressions();  // NOLINT: the sanitizer's name
extern "C" const char* __tsan_default_suppressions() {
  return "race:tzset_internal\nrace:libx265\n";
}
#endif
