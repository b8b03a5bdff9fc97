#include "support/support.h"

#include <archive.h>
#include <archive_entry.h>

#include <cstdlib>
#include <cstring>
#include <fstream>
#include <sstream>

#include "shardwise/base/file.h"
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
  const std::unique_ptr<archive, int (*)(archive*)> writer(archive_write_new(), archive_write_free);
  archive* a = writer.get();
  const std::string name(compression_name(compression));
  std::string out(bytes.size() * 2 + 65536, '\0');
  std::size_t used = 0;
  archive_write_set_format_raw(a);
  archive_write_set_bytes_in_last_block(a, 1);
  const std::unique_ptr<archive_entry, void (*)(archive_entry*)> entry(archive_entry_new(),
                                                                       archive_entry_free);
  archive_entry_set_filetype(entry.get(), AE_IFREG);
  if (archive_write_add_filter_by_name(a, name.c_str()) != ARCHIVE_OK ||
      archive_write_open_memory(a, out.data(), out.size(), &used) != ARCHIVE_OK ||
      archive_write_header(a, entry.get()) != ARCHIVE_OK ||
      archive_write_data(a, bytes.data(), bytes.size()) != static_cast<la_ssize_t>(bytes.size()) ||
      archive_write_close(a) != ARCHIVE_OK) {
    throw std::runtime_error("cannot compress with " + name);
  }
  out.resize(used);
  return out;
}

std::string read_file(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) throw std::runtime_error("cannot read " + path);
  return {std::istreambuf_iterator<char>(in), {}};
}

void write_file(const std::string& path, std::string_view bytes) {
  std::ofstream out(path, std::ios::binary | std::ios::trunc);
  out.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  if (!out.flush()) throw std::runtime_error("cannot write " + path);
}

std::optional<fs::path> corpus_dir() {
  const char* named = std::getenv("SHARDWISE_CORPUS");
  const fs::path dir = named != nullptr ? named : SHARDWISE_SOURCE_DIR "/../shared";
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
