// fuzz_seeds FOLDER: writes each target's seeds to FOLDER/<target>/.

#include <cstdio>
#include <filesystem>
#include <fstream>

#include "targets.h"

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: fuzz_seeds FOLDER\n");
    return 2;
  }
  for (const auto& target : shardwise::fuzz::all_targets()) {
    const std::filesystem::path folder = std::filesystem::path(argv[1]) / target.name;
    std::filesystem::create_directories(folder);
    int number = 0;
    for (const std::string& seed : target.seeds()) {
      std::ofstream(folder / ("seed-" + std::to_string(number++)), std::ios::binary) << seed;
    }
  }
}
