// fetch_program FILE URL...: fetches each URL into FILE, and prints its size or the error. Used by
// tests that observe the process from outside, and for timing.

#include <cstdio>
#include <exception>
#include <string>
#include <string_view>

#include "base/file.h"
#include "shardwise/storage/fetcher.h"

namespace {

class FileSink : public shardwise::Fetcher::Sink {
 public:
  explicit FileSink(const std::string& path) : file_(path) {}
  void write(std::string_view bytes) override {
    size += bytes.size();
    file_.file().write(bytes);
  }
  bool restart() override { return false; }

  unsigned long long size = 0;

 private:
  shardwise::AtomicFile file_;  // never committed, so no file remains
};

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) return 2;
  const shardwise::Fetchers fetchers;
  for (int i = 2; i < argc; ++i) {
    try {
      FileSink sink(argv[1]);
      fetchers.fetch({.url = argv[i]}, sink);
      std::printf("%llu\n", sink.size);
    } catch (const std::exception& e) {
      std::printf("%s\n", e.what());
    }
  }
  return 0;
}
