#include "shardwise/loader/reducer.h"

#include <algorithm>
#include <vector>

#include "loader/step_watch.h"

namespace shardwise {
namespace {

class SingleProcess final : public Reducer {
 public:
  [[nodiscard]] std::uint64_t rank() const noexcept override { return 0; }
  [[nodiscard]] std::uint64_t world_size() const noexcept override { return 1; }
  [[nodiscard]] std::uint64_t local_rank() const noexcept override { return 0; }
  [[nodiscard]] std::uint64_t local_world_size() const noexcept override { return 1; }
  void add(std::span<std::int64_t>) override {}
};

}  // namespace

Reducer::~Reducer() = default;
detail::StepWatch::~StepWatch() = default;

std::string Reducer::gather(std::string_view bytes) {
  std::vector<std::int64_t> sizes(world_size());
  sizes[rank()] = static_cast<std::int64_t>(bytes.size());
  add(sizes);
  std::size_t total = 0;
  std::size_t begin = 0;
  for (std::size_t r = 0; r < sizes.size(); ++r) {
    if (r == rank()) begin = total;
    total += static_cast<std::size_t>(sizes[r]);
  }
  // Each byte is zero on all ranks but one, so the sum has no carries.
  std::vector<std::int64_t> words((total + 7) / 8);
  auto* const place = reinterpret_cast<char*>(words.data());
  std::copy(bytes.begin(), bytes.end(), place + begin);
  add(words);
  return {place, total};
}

std::shared_ptr<Reducer> single_process() { return std::make_shared<SingleProcess>(); }

}  // namespace shardwise
