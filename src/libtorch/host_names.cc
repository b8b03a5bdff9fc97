#include "libtorch/host_names.h"

#include <torch/torch.h>

#include "libtorch/rendezvous/own_address.h"

namespace shardwise::libtorch::detail {

std::vector<std::string> host_names(const ProcessGroup& group) {
  constexpr std::int64_t kLongest = 256;  // with the zero at its end
  const auto hosts = torch::zeros({group.world_size(), kLongest}, torch::kUInt8);
  const std::string own = own_host_name();
  own.copy(static_cast<char*>(hosts[group.rank()].data_ptr()), kLongest - 1);
  group.all_reduce(hosts);
  std::vector<std::string> names;
  for (int rank = 0; rank < group.world_size(); ++rank) {
    names.emplace_back(static_cast<const char*>(hosts[rank].data_ptr()));
  }
  return names;
}

}  // namespace shardwise::libtorch::detail
