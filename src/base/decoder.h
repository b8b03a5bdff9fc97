#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

#include "base/expanding_reader.h"
#include "shardwise/base/compression.h"
#include "shardwise/base/error.h"

namespace shardwise {

/// Expands streams of one codec, one after another, and checks all their checksums. Bytes of a
/// stream are unverified until the stream has ended.
/// Threads: one.
class Decoder {
 public:
  /// The reason why a stream cannot be expanded. begin() and step() throw it, or std::bad_alloc.
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

  /// Prepares for the stream at the front of `rest`. REQUIRES: `rest` begins with the codec's
  /// magic.
  /// @return  true if the stream carries a checksum over its content.
  virtual bool begin(std::string_view rest) = 0;
  /// Expands as much of `in` as fits into `out`. If the Step's `taken` and `given` are both 0, `in`
  /// is truncated.
  virtual Step step(std::string_view in, char* out, std::size_t size) = 0;
};

/// REQUIRES: compression is not kNone.
std::unique_ptr<Decoder> make_decoder(Compression compression, const ExpansionLimits& limits);

}  // namespace shardwise
