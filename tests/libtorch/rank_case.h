#pragma once

#include <cstdlib>
#include <exception>
#include <iostream>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

/// What the programs share that are one rank of a test: PROGRAM CASE [ARGUMENTS].

#define REQUIRE(condition)                                                              \
  do {                                                                                  \
    if (!(condition)) {                                                                 \
      throw std::runtime_error(std::string("line ") + std::to_string(__LINE__) + ": " + \
                               #condition);                                             \
    }                                                                                   \
  } while (false)

namespace shardwise::test {

/// [0] is the case's name.
using Arguments = std::vector<std::string>;
using Cases = std::vector<std::pair<std::string, void (*)(const Arguments&)>>;

/// The program's exit code: 0 if the case held. Else says on stderr what did not.
inline int run_case(int argc, char** argv, const Cases& cases) {
  const Arguments arguments(argv + 1, argv + argc);
  try {
    for (const auto& [name, run] : cases) {
      if (!arguments.empty() && arguments[0] == name) {
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

}  // namespace shardwise::test
