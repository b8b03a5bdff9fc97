#pragma once

#include <cstdlib>
#include <fstream>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "shardwise/base/error.h"

/// Helpers for the cases of the rank program.

#define REQUIRE(condition)                                                              \
  do {                                                                                  \
    if (!(condition)) {                                                                 \
      throw std::runtime_error(std::string("line ") + std::to_string(__LINE__) + ": " + \
                               #condition);                                             \
    }                                                                                   \
  } while (false)

namespace shardwise::test {

/// Arguments of a case: [0] is its name, [1] is OUT, the prefix of its output files, and the others
/// depend on the case.
using Arguments = std::vector<std::string>;
using Cases = std::vector<std::pair<std::string, void (*)(const Arguments&)>>;

const Cases& call_cases();
const Cases& loading_cases();
const Cases& peer_cases();
const Cases& stop_cases();

/// Returns the text of the Error that `call` throws.
/// @param code  the error's expected code; nullopt means any code.
template <class Call>
std::string text_of(std::optional<ErrorCode> code, Call&& call) {
  try {
    call();
  } catch (const Error& e) {
    if (code && e.code() != *code) throw;
    return e.what();
  }
  throw std::runtime_error("nothing was thrown");
}

/// Writes this rank's result for the test to the file OUT.RANK.
inline void tell(const std::string& out, const std::string& text) {
  std::ofstream(out + "." + std::getenv("RANK")) << text;
}

}  // namespace shardwise::test
