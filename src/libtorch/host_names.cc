#include "libtorch/host_names.h"

#include <torch/torch.h>
#include <unistd.h>

#include <cstddef>

namespace shardwise::libtorch::detail {

std::vector<std::string> host_names(const ProcessGroup& group) {
  constexpr std::int64_t kLongest = 256;  // with the zero at its end
  const auto hosts = torch::zeros({group.world_size(), kLongest}, torch::kUInt8);
  auto* const own = static_cast<char*>(hosts[group.rank()].data_ptr());
  if (::gethostname(own, static_cast<std::size_t>(kLongest) - 1) != 0) own[0] = '?';
  group.all_reduce(hosts);
  std::vector<std::string> names;
  for (int rank = 0; rank < group.world_size(); ++rank) {
    names.emplace_back(static_cast<const char*>(hosts[rank].data_ptr()));
  }
  return names;
}

}  // namespace shardwise::libtorch::detail
