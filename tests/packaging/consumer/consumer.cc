// Indexes a shard, reads a sample, and catches an error, with only the installed package.

#include <shardwise/shardwise.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>

#ifndef SHARDWISE_VERSION  // CMake's package sets it; with pkg-config, --modversion prints it
#define SHARDWISE_VERSION "by pkg-config"
#endif

namespace {

std::string tar_of_one_file(const std::string& name, const std::string& content) {
  std::string header(512, '\0');
  header.replace(0, name.size(), name);
  header.replace(100, 7, "0000644");
  char octal[12];
  std::snprintf(octal, sizeof octal, "%011zo", content.size());
  header.replace(124, 11, octal);
  header.replace(148, 8, "        ");
  header[156] = '0';
  unsigned sum = 0;
  for (const char c : header) sum += static_cast<unsigned char>(c);
  std::snprintf(octal, sizeof octal, "%06o", sum);
  header.replace(148, 7, std::string(octal, 7));
  return header + content + std::string(512 - content.size() % 512, '\0') + std::string(1024, '\0');
}

}  // namespace

int main() {
  const std::string folder = "consumer-data";
  std::filesystem::create_directory(folder);
  const std::string shard = folder + "/shard.tar", index = folder + "/shard.idx";
  std::ofstream(shard, std::ios::binary) << tar_of_one_file("greeting.txt", "hello");

  shardwise::build_index(index, {shard});
  const auto data = shardwise::Dataset::open(index);
  const shardwise::Sample sample = data[0];
  const bool read = data.size() == 1 && sample.key() == "greeting" && sample["txt"] == "hello";

  bool caught = false;
  try {
    static_cast<void>(sample["png"]);
  } catch (const shardwise::NotFound& e) {
    caught = std::string(e.what()).find("png") != std::string::npos;
  }
  std::printf("shardwise %s: read %d, caught %d\n", SHARDWISE_VERSION, read, caught);
  return read && caught ? 0 : 1;
}
