// The program `shardwise`: see `shardwise --help`.

#include "interrupt.h"
#include "output.h"
#include "program.h"

int main(int argc, char** argv) {
  shardwise::tools::hold_standard_descriptors();
  shardwise::tools::install_signal_handlers();
  return shardwise::tools::run_program(argc, argv);
}
