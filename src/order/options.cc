#include "shardwise/order/options.h"

#include "shardwise/base/error.h"
#include "shardwise/base/text.h"

namespace shardwise {

std::string_view sampler_name(SamplerKind kind) noexcept {
  switch (kind) {
    case SamplerKind::kChunked:
      return "chunked";
    case SamplerKind::kSharded:
      return "sharded";
    case SamplerKind::kSequential:
      return "sequential";
    case SamplerKind::kResampled:
      return "resampled";
    case SamplerKind::kWids:
      return "wids";
    case SamplerKind::kMixture:
      return "mixture";
  }
  return "?";
}

SamplerKind parse_sampler(std::string_view name) {
  for (const SamplerKind kind :
       {SamplerKind::kChunked, SamplerKind::kSharded, SamplerKind::kSequential,
        SamplerKind::kResampled, SamplerKind::kWids}) {
    if (name == sampler_name(kind)) return kind;
  }
  throw InvalidArgument("no sampler " + in_quotes(name), {},
                        "use chunked, sharded, sequential, resampled or wids");
}

}  // namespace shardwise
