#pragma once

#include <memory>

#include "output.h"

namespace CLI {
class App;
}  // namespace CLI

namespace shardwise::tools {

/// The command line of `shardwise` with all its commands, whose results go to `out`.
std::unique_ptr<CLI::App> make_program(Output& out);

/// The program `shardwise`: parses the command line, runs a command, and returns the exit code.
/// Errors are reported on standard error. Call it once per process.
int run_program(int argc, char** argv);

}  // namespace shardwise::tools
