// Builds an index while it is recorded. Arguments: <index> <journal bytes> <fault point, or ""> <n>
// <shard>... The process is killed by SIGKILL when it reaches the fault point for the n-th time,
// counted from 1.

#include <atomic>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <string_view>

#include "base/fault_point.h"
#include "shardwise/ingest/index_builder.h"

namespace {

const char* deadly_point = "";
std::atomic<int> countdown{0};

void die_in_time(const char* name) {
  if (std::string_view(name) == deadly_point && countdown.fetch_sub(1) == 1) {
    std::raise(SIGKILL);
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 6) return 2;
  deadly_point = argv[3];
  countdown = std::atoi(argv[4]);
  shardwise::set_fault_handler(die_in_time);
  shardwise::BuildOptions options;
  options.threads = 2;
  options.journal_bytes = std::strtoull(argv[2], nullptr, 10);
  try {
    shardwise::build_index(argv[1], {argv + 5, argv + argc}, options);
    return 0;
  } catch (const std::exception& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return 1;
  }
}
