// One rank of a test: rank_program CASE OUT [ARGUMENTS]. Exits with 0 if the case succeeded;
// otherwise prints the failure on stderr. Results for the test are written to files whose paths
// begin with OUT.

#include <torch/torch.h>

#include <cstdlib>
#include <exception>
#include <iostream>

#include "rank_case.h"

int main(int argc, char** argv) {
  using namespace shardwise::test;  // NOLINT(google-build-using-namespace): a program
  torch::set_num_threads(1);
  const Arguments arguments(argv + 1, argv + argc);
  try {
    for (const Cases* cases : {&call_cases(), &loading_cases(), &peer_cases(), &stop_cases()}) {
      for (const auto& [name, run] : *cases) {
        if (arguments.size() < 2 || arguments[0] != name) continue;
        run(arguments);
        return 0;
      }
    }
    throw std::runtime_error("no such case");
  } catch (const std::exception& e) {
    const char* rank = std::getenv("RANK");
    std::cerr << "rank " << (rank != nullptr ? rank : "?") << ": " << e.what() << std::endl;
    return 1;
  }
}
