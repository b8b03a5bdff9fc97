#include <shardwise/shardwise.h>
#include <shardwise/video.h>

#include <cstdio>

int main() {
  try {
    shardwise::VideoReader video("no video");
  } catch (const shardwise::BadField& error) {
    std::puts(error.what());
    return 0;
  }
  return 1;
}
