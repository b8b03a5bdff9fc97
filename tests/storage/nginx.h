#pragma once

#include <chrono>
#include <filesystem>
#include <stdexcept>
#include <string>

#include "support/spawned.h"
#include "support/support.h"

namespace shardwise::test {

/// nginx, in front of the folder www of `dir`, until this goes.
class Nginx {
 public:
  /// @param program  as find_program("nginx") gives it.
  /// @param http     lines for its http block; @param server for its one server, with `listen`.
  /// @param port     what is asked until it answers.
  Nginx(const std::string& program, const TempDir& dir, const std::string& http,
        const std::string& server, int port)
      : server_((write_configuration(dir, http, server),
                 std::vector<std::string>{program, "-p", dir.path(), "-e", dir / "error.log", "-c",
                                          dir / "nginx.conf"})) {
    if (!wait_for_port(port, std::chrono::seconds(20))) {
      throw std::runtime_error("nginx does not start: " + read_file(dir / "error.log"));
    }
  }

 private:
  static void write_configuration(const TempDir& dir, const std::string& http,
                                  const std::string& server) {
    // Its workers may be of another user, who must be able to read this.
    std::filesystem::permissions(dir.path(), std::filesystem::perms(0755));
    std::filesystem::create_directories(dir / "www");
    std::filesystem::create_directories(dir / "tmp");
    std::string temporaries;
    for (const char* kind : {"client_body", "proxy", "fastcgi", "uwsgi", "scgi"}) {
      temporaries += std::string(kind) + "_temp_path " + (dir / "tmp") + "/" + kind + ";\n";
    }
    write_file(dir / "nginx.conf", "daemon off;\nmaster_process off;\npid " + (dir / "pid") +
                                       ";\nerror_log " + (dir / "error.log") +
                                       ";\nevents { worker_connections 64; }\nhttp {\n" +
                                       temporaries + http + "server {\nroot " + (dir / "www") +
                                       ";\n" + server + "}\n}\n");
  }

  Spawned server_;
};

}  // namespace shardwise::test
