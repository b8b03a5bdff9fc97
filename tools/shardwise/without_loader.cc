// Replaces loaded_epoch.cc and grouped_steps.cc in builds without the loader.
#include <nlohmann/json.hpp>

#include "base/error_types.h"
#include "group_options.h"
#include "interrupt.h"
#include "loaded_epoch.h"

namespace shardwise::tools {

struct LoadedEpoch::Impl {
  const std::uint64_t batch_size;
  std::uint64_t bytes_read = 0;
};

bool has_loader() noexcept { return false; }

LoadedEpoch::LoadedEpoch(const DecodeArguments& arguments, const Settings& settings)
    : impl_(new Impl{.batch_size = settings.batch_size}) {
  if (!arguments.is_on()) return;
  throw Unsupported("this program was built without the loader", "--decode " + arguments.decode,
                    "build Shardwise with SHARDWISE_WITH_LOADER=ON, or leave out --decode");
}
LoadedEpoch::~LoadedEpoch() = default;

void LoadedEpoch::load(const MixedDataset& data, const Sampler& sampler, const Use& use) {
  const auto rest = sampler.clone();
  std::vector<std::uint64_t> batch(impl_->batch_size);
  while (const std::size_t size = rest->next_batch(batch)) {
    throw_if_interrupted();
    Loaded loaded;
    for (const std::uint64_t number : std::span(batch).first(size)) {
      const std::size_t part = data.part_of(number);
      const Sample sample = data.part(part)[number - data.first_sample(part)];
      loaded.checksum += checksum_of(sample, impl_->bytes_read);
      loaded.samples.push_back(data.first_sample(part) + sample.index());
    }
    use(loaded);
  }
}
std::chrono::duration<double> LoadedEpoch::replay(const MixedDataset&, const Sampler&,
                                                  std::uint64_t, const Use&) {
  return {};
}
unsigned LoadedEpoch::threads() const { return 0; }
std::chrono::duration<double> LoadedEpoch::waited() const { return {}; }
std::uint64_t LoadedEpoch::bytes_read() const { return impl_->bytes_read; }
std::string LoadedEpoch::limit() const { return {}; }
std::vector<std::string> LoadedEpoch::forgiven() const { return {}; }
nlohmann::ordered_json LoadedEpoch::forgiven_json() const { return {}; }
nlohmann::ordered_json LoadedEpoch::stages_json() const { return {}; }
std::vector<std::uint64_t> LoadedEpoch::bad_samples() const { return {}; }
std::vector<std::string> LoadedEpoch::bad() const { return {}; }
nlohmann::ordered_json LoadedEpoch::bad_json() const { return {}; }
void LoadedEpoch::finish(const MixedDataset&) const {}

std::vector<GroupedStep> explain_groups(const GroupArguments&, const Run&, std::uint64_t,
                                        std::uint64_t) {
  throw Unsupported("this program was built without the loader", "--group-by",
                    "build it with SHARDWISE_WITH_LOADER=ON, or leave out --group-by");
}

}  // namespace shardwise::tools
