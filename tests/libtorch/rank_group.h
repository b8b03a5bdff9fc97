#pragma once

#include <cstdlib>
#include <stdexcept>
#include <string>

#ifdef SHARDWISE_HAVE_GLOO
#include <torch/csrc/distributed/c10d/FileStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#endif

#include "shardwise/libtorch/advanced.h"

namespace shardwise::test {

#ifdef SHARDWISE_HAVE_GLOO
/// Makes a Gloo group of the ranks that the launcher started, as a program would.
/// @param meeting  path of a file that no group has used before.
/// @param address  address of this rank.
inline c10::intrusive_ptr<c10d::ProcessGroupGloo> make_gloo(
    const std::string& meeting, const std::string& address = "127.0.0.1") {
  const int rank = std::stoi(std::getenv("RANK"));
  const int world = std::stoi(std::getenv("WORLD_SIZE"));
  auto options = c10d::ProcessGroupGloo::Options::create();
  if (address != "127.0.0.1") options->timeout = std::chrono::milliseconds(5000);
  options->devices.push_back(c10d::ProcessGroupGloo::createDeviceForHostname(address));
  return c10::make_intrusive<c10d::ProcessGroupGloo>(
      c10::make_intrusive<c10d::FileStore>(meeting, world), rank, world, options);
}
#endif

/// @param kind     "own", or "adopted" for a c10d group that the program makes.
/// @param meeting  for an adopted group.
inline libtorch::ProcessGroup make_group(const std::string& kind, const std::string& meeting,
                                         libtorch::StopGuard* guard) {
  if (kind == "own") return libtorch::init_process_group({.guard = guard});
#ifdef SHARDWISE_HAVE_GLOO
  return libtorch::adopt_process_group(make_gloo(meeting), guard);
#else
  throw std::runtime_error("no Gloo for " + meeting);
#endif
}

}  // namespace shardwise::test
