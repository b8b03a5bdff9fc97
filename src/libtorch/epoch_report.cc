#include "shardwise/libtorch/epoch_report.h"

#include <torch/torch.h>

#include <algorithm>
#include <array>
#include <cstdio>

#include "libtorch/group_access.h"

namespace shardwise::libtorch {
namespace {

double seconds(std::chrono::nanoseconds time) {
  return std::chrono::duration<double>(time).count();
}

/// Figures that each rank sends to all others.
enum Figure : std::int64_t { kElapsed, kWaited, kExchanged, kWorked, kBytes, kBad, kNumFigures };

std::array<double, kNumFigures> figures_of(const Loader::Stats& now, const Loader::Stats& before,
                                           std::chrono::nanoseconds exchanged) {
  const auto worked = [](const Loader::Stats& stats) {
    return stats.planning + stats.opening + stats.reading + stats.decoding + stats.transforming +
           stats.functions + stats.collating;
  };
  std::array<double, kNumFigures> figures{};
  figures[kElapsed] = seconds(now.elapsed - before.elapsed);
  figures[kWaited] = seconds(now.waited - before.waited);
  figures[kExchanged] = seconds(exchanged);
  figures[kWorked] = seconds(worked(now) - worked(before));
  figures[kBytes] = static_cast<double>(now.bytes_read - before.bytes_read);
  figures[kBad] = static_cast<double>(now.bad_samples - before.bad_samples);
  return figures;
}

/// Returns the loop's time without waits and exchanges: what the program itself used.
double compute_of(const double* figures) {
  return std::max(0.0, figures[kElapsed] - figures[kWaited] - figures[kExchanged]);
}

}  // namespace

std::string epoch_report(const Loader::Stats& now, const Loader::Stats& before,
                         std::chrono::nanoseconds exchanged, const ProcessGroup& group) {
  const auto own = figures_of(now, before, exchanged);
  const auto of_ranks = torch::zeros({group.world_size(), kNumFigures}, torch::kFloat64);
  std::copy(own.begin(), own.end(), of_ranks[group.rank()].data_ptr<double>());
  group.all_reduce(of_ranks);
  const detail::Peers& peers = GroupAccess::calls(group).peers();

  std::string text = " rank      wait    compute   exchange    loading   MB read  bad  host\n";
  int slowest = 0;
  const auto own_time = [&](int rank) {
    const double* const figures = of_ranks[rank].data_ptr<double>();
    return figures[kWaited] + compute_of(figures);
  };
  for (int rank = 0; rank < group.world_size(); ++rank) {
    const double* const figures = of_ranks[rank].data_ptr<double>();
    if (own_time(rank) > own_time(slowest)) slowest = rank;
    std::array<char, 128> line{};
    std::snprintf(line.data(), line.size(), "%5d %7.2f s  %7.2f s  %7.2f s  %7.2f s  %8.1f %4.0f  ",
                  rank, figures[kWaited], compute_of(figures), figures[kExchanged],
                  figures[kWorked], figures[kBytes] / 1e6, figures[kBad]);
    text += line.data() + peers.host_of(rank) + "\n";
  }
  if (group.world_size() == 1) return text;
  const double* const figures = of_ranks[slowest].data_ptr<double>();
  std::array<char, 160> line{};
  std::snprintf(line.data(), line.size(), ": %.2f s of waiting for data and %.2f s of compute\n",
                figures[kWaited], compute_of(figures));
  return text + "slowest: rank " + std::to_string(slowest) + " (host " + peers.host_of(slowest) +
         ")" + line.data();
}

}  // namespace shardwise::libtorch
