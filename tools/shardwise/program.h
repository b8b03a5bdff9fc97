#pragma once

#include <memory>

#include "output.h"

namespace CLI {
class App;
}  // namespace CLI

namespace shardwise::tools {

/// Returns the command line of `shardwise` with all commands. They write results to `out`.
std::unique_ptr<CLI::App> make_program(Output& out);

/// Runs the program `shardwise`: parses the command line, runs a command, reports errors on
/// standard error, and returns the exit code. Call it once per process.
int run_program(int argc, char** argv);

}  // namespace shardwise::tools
