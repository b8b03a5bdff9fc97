#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace shardwise::libtorch::detail {

/// Waits until a process listens at host:port, and returns this machine's own address on the way
/// there, in numbers.
/// Errors: kDistributed at the deadline, with the system's reason.
std::string wait_for_listener(const std::string& host, std::uint16_t port,
                              std::chrono::steady_clock::time_point deadline);

/// True for 127.0.0.0/8 and ::1.
bool is_loopback(const std::string& address);

}  // namespace shardwise::libtorch::detail
