// Replaces decoded_epoch.cc in builds without the loader.
#include <nlohmann/json.hpp>

#include "base/error_types.h"
#include "decoded_epoch.h"

namespace shardwise::tools {

struct DecodedEpoch::Impl {};

DecodedEpoch::DecodedEpoch(const DecodeArguments& arguments, const Settings&) {
  throw Unsupported("this program was built without the loader", "--decode " + arguments.decode,
                    "build it with SHARDWISE_WITH_LOADER=ON, or leave out --decode");
}
DecodedEpoch::~DecodedEpoch() = default;

void DecodedEpoch::load(const MixedDataset&, const Sampler&, const std::optional<EpochAudit::Sum>&,
                        const Use&) {}
std::chrono::duration<double> DecodedEpoch::replay(const MixedDataset&, const Sampler&,
                                                   const std::optional<EpochAudit::Sum>&,
                                                   std::uint64_t, const Use&) {
  return {};
}
std::chrono::duration<double> DecodedEpoch::waited() const { return {}; }
std::uint64_t DecodedEpoch::bytes_read() const { return 0; }
std::string DecodedEpoch::limit() const { return {}; }
std::vector<std::string> DecodedEpoch::forgiven() const { return {}; }
nlohmann::ordered_json DecodedEpoch::forgiven_json() const { return {}; }
nlohmann::ordered_json DecodedEpoch::stages_json() const { return {}; }
std::vector<std::uint64_t> DecodedEpoch::bad_samples() const { return {}; }
std::vector<std::string> DecodedEpoch::bad() const { return {}; }
nlohmann::ordered_json DecodedEpoch::bad_json() const { return {}; }
void DecodedEpoch::finish(const MixedDataset&) const {}

}  // namespace shardwise::tools
