#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

#include "base/expanding_reader.h"
#include "shardwise/base/compression.h"
#include "shardwise/base/error.h"

namespace shardwise {

/// Expands streams of one codec, one after another. Each is checked against every checksum that it
/// carries; that its bytes are right is known when it has ended. One thread.
class Decoder {
 public:
  /// Says why a stream cannot be expanded. begin() and step() throw this, or std::bad_alloc.
  struct Failure {
    ErrorCode code;
    std::string why;
  };
  struct Step {
    std::size_t taken;  ///< bytes of the input
    std::size_t given;  ///< bytes to the output
    bool ended;         ///< the stream, and it is whole
  };

  virtual ~Decoder() = default;

  /// Makes ready for the stream that `rest` begins with, by its magic.
  /// @return  true if the stream carries a checksum over its content.
  virtual bool begin(std::string_view rest) = 0;
  /// Expands as much of `in` as fits. Nothing is taken and given only if `in` ends too early.
  virtual Step step(std::string_view in, char* out, std::size_t size) = 0;
};

/// REQUIRES: compression is not kNone.
std::unique_ptr<Decoder> make_decoder(Compression compression, const ExpansionLimits& limits);

}  // namespace shardwise
