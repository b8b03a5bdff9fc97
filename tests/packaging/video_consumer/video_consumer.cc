#include <shardwise/loader.h>
#include <shardwise/video.h>

#include <cstdio>

int main() {
  // The video library includes the loader.
  if (shardwise::columns::video("mp4", {.frames = 8}).name() != "mp4") return 1;
  try {
    shardwise::VideoReader video("no video");
  } catch (const shardwise::BadField& error) {
    std::puts(error.what());
    return 0;
  }
  return 1;
}
