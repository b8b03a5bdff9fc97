#pragma once

#include <string_view>

#include "base/text.h"
#include "decode/decode_failure.h"
#include "shardwise/base/error.h"

namespace shardwise::detail {

/// Calls `work`. Converts a DecodeFailure to a BadField whose text also names the place.
template <class Work>
auto with_place(std::string_view action, std::string_view where, Work&& work) {
  try {
    return work();
  } catch (const DecodeFailure& failure) {
    std::string what(action);
    what.append(" (").append(escaped(failure.what())).append(")");
    throw BadField(what, where, "repair the member, or leave the sample out");
  }
}

}  // namespace shardwise::detail
