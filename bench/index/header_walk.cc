// Maps each tar below a folder, in the order of the folder, and follows its headers, on one thread.
// The limit for `shardwise index` in scale_sets.py. Prints the number of members.
//
//   header_walk FOLDER
#include "index/header_walk.h"

#include <cstdint>
#include <cstdio>
#include <exception>
#include <filesystem>

#include "base/mapped_file.h"

int main(int argc, char** argv) {
  if (argc != 2) return std::fputs("usage: header_walk FOLDER\n", stderr), 2;
  try {
    std::uint64_t members = 0;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(argv[1])) {
      if (entry.path().extension() != ".tar") continue;
      members += shardwise::bench::walk_headers(
          shardwise::detail::MappedFile::open(entry.path().native()).bytes());
    }
    std::printf("%ju members\n", static_cast<std::uintmax_t>(members));
  } catch (const std::exception& error) {
    std::fprintf(stderr, "header_walk: error: %s\n", error.what());
    return 1;
  }
}
