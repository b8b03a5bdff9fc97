#pragma once

#include <chrono>
#include <filesystem>
#include <stdexcept>
#include <string>

#include "support/spawned.h"
#include "support/support.h"

namespace shardwise::test {

/// Runs nginx, which serves the folder www of `dir`, until this object is destroyed.
class Nginx {
 public:
  /// @param program  the result of find_program("nginx").
  /// @param http     lines for nginx's http block.
  /// @param server   lines for its only server block, including `listen`.
  /// @param port     port that the constructor polls until nginx answers.
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
    // nginx's workers may run as another user, who must be able to read these files.
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
