#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

#include "base/expanding_reader.h"
#include "shardwise/base/compression.h"
#include "shardwise/base/error.h"

namespace shardwise {

/// Expands streams of one codec, one after another, and checks every checksum in them. A stream's
/// bytes are verified only when it has ended.
/// Threads: one.
class Decoder {
 public:
  /// The reason why a stream cannot be expanded. begin() and step() throw this, or std::bad_alloc.
  struct Failure {
    ErrorCode code;
    std::string why;
  };
  struct Step {
    std::size_t taken;  ///< input bytes consumed
    std::size_t given;  ///< output bytes written
    bool ended;         ///< the stream is complete
  };

  virtual ~Decoder() = default;

  /// Prepares for the stream at the front of `rest`, which begins with its magic.
  /// @return  true if the stream carries a checksum over its content.
  virtual bool begin(std::string_view rest) = 0;
  /// Expands as much of `in` as fits. If `taken` and `given` are both 0, `in` is truncated.
  virtual Step step(std::string_view in, char* out, std::size_t size) = 0;
};

/// REQUIRES: compression is not kNone.
std::unique_ptr<Decoder> make_decoder(Compression compression, const ExpansionLimits& limits);

}  // namespace shardwise
