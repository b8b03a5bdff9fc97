// The program `shardwise`: see `shardwise --help`.

#include <fcntl.h>
#include <unistd.h>

#include "interrupt.h"
#include "program.h"

namespace {

/// Makes sure that descriptors 0 to 2 are taken, so that no file of ours becomes "standard output"
/// when the program is started with that closed.
void hold_standard_descriptors() {
  int fd = 0;
  do {
    fd = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
  } while (fd >= 0 && fd <= STDERR_FILENO);
  if (fd >= 0) ::close(fd);
}

}  // namespace

int main(int argc, char** argv) {
  hold_standard_descriptors();
  shardwise::tools::install_signal_handlers();
  return shardwise::tools::run_program(argc, argv);
}
