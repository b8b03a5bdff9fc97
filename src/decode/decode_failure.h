#pragma once

#include <stdexcept>

#include "shardwise/base/export.h"

namespace shardwise::detail {

/// Says why bytes could not be decoded. Users get a BadField, which also says where.
class SHARDWISE_EXPORT DecodeFailure : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

}  // namespace shardwise::detail
