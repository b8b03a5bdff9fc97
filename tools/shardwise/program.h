#pragma once

namespace shardwise::tools {

/// The program `shardwise`: parses the command line, runs a command, and gives the exit code. What
/// went wrong is on standard error. Once a process.
int run_program(int argc, char** argv);

}  // namespace shardwise::tools
