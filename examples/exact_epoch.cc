// Reads an epoch on three ranks, stops within it, continues on two ranks, and proves that every
// sample was read exactly once. Here each rank is a thread; in a cluster it is a process.
//
//     exact_epoch SHARDS                 for example: exact_epoch data/train

#include <shardwise/shardwise.h>

#include <algorithm>
#include <cstdio>
#include <exception>
#include <future>
#include <optional>
#include <string>
#include <vector>

namespace {

/// Reads up to `max_steps` steps on `num_ranks` ranks. Adds the samples that were read to `audit`.
/// @return  a resume token for the position after these steps.
std::string run(const shardwise::Dataset& data, std::uint64_t num_ranks, std::uint64_t max_steps,
                const std::string& token, shardwise::EpochAudit& audit) {
  shardwise::DistributedChunkedSampler order(data, {.seed = 17},
                                             {.rank = 0, .world_size = num_ranks, .batch_size = 4});
  if (!token.empty()) order.resume(shardwise::ResumeToken::from_text(token));
  const std::uint64_t num_steps = std::min(max_steps, order.steps());
  std::vector<std::future<shardwise::EpochAudit>> ranks;
  for (std::uint64_t rank = 0; rank < num_ranks; ++rank) {
    ranks.push_back(std::async(std::launch::async, [&, mine = order.for_rank(rank)] {
      shardwise::EpochAudit read(data.fingerprint());
      while (mine->position() < mine->first_of_step(num_steps)) {
        const shardwise::Sample sample = data[*mine->next()];  // train with the sample here
        read.add(sample.index());
      }
      return read;
    }));
  }
  for (auto& rank : ranks) audit.merge(rank.get());  // get() rethrows a rank's error
  return order.token_after(num_steps).to_text();
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) return std::fputs("usage: exact_epoch SHARDS\n", stderr), 2;
  try {
    const auto data = shardwise::Dataset::open(argv[1]);
    shardwise::EpochAudit audit(data.fingerprint());
    const std::string token = run(data, 3, 2, {}, audit);
    std::printf("stopped after %llu samples\n", static_cast<unsigned long long>(audit.sum().count));
    run(data, 2, ~std::uint64_t{0}, token, audit);
    const shardwise::DistributedChunkedSampler order(data, {.seed = 17});
    audit.prove(order.expectation(), 0);  // throws NotExact if a sample is missing or repeated
    std::printf("%s\n", audit.verdict(order.expectation()).text(0).c_str());
  } catch (const std::exception& e) {
    std::fprintf(stderr, "exact_epoch: %s\n", e.what());
    return 1;
  }
}
