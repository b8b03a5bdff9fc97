#include "loaded_epoch.h"

#include <fmt/core.h>

#include <algorithm>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>
#include <span>
#include <utility>

#include "base/file.h"
#include "base/text.h"
#include "console.h"
#include "decoded_fields.h"
#include "interrupt.h"
#include "loader/bad_field.h"
#include "loader/fields.h"
#include "loader/loader_access.h"
#include "loader/trace_text.h"
#include "output.h"
#include "shardwise/base/error.h"
#include "shardwise/loader/loader.h"
#include "skip_file.h"

namespace shardwise::tools {
namespace {

using detail::LoaderAccess;
using detail::trace_text;
using detail::TraceEvent;

constexpr std::uint64_t kAllBad = std::numeric_limits<std::uint64_t>::max();
/// Limit of bad samples shown to people; --bad-list and --json list all.
constexpr std::size_t kBadShown = 20;

/// The names of the columns, of which one is loaded: pixels of images, or int64 numbers of images
/// or checksums of samples.
constexpr const char* kPixels = "image";
constexpr const char* kImages = "images";
constexpr const char* kChecksums = "checksums";

/// Limit of events kept, which take about 10 MB.
constexpr std::size_t kMaxEvents = 100'000;

/// The Reducer of one of several ranks that this process loads one after another. The ranks do not
/// communicate, since the command itself proves the epoch.
class OneRank final : public Reducer {
 public:
  /// @param node  the ranks that share the rank's cache; count 0 means this rank alone.
  OneRank(std::uint64_t rank, std::uint64_t world_size, const RankOptions::Range& node)
      : rank_(rank), world_size_(world_size), node_(node) {
    if (node_.count == 0) node_ = {.first = rank, .count = 1};
  }

  [[nodiscard]] std::uint64_t rank() const noexcept override { return rank_; }
  [[nodiscard]] std::uint64_t world_size() const noexcept override { return world_size_; }
  [[nodiscard]] std::uint64_t local_rank() const noexcept override { return rank_ - node_.first; }
  [[nodiscard]] std::uint64_t local_world_size() const noexcept override { return node_.count; }
  void add(std::span<std::int64_t>) override {}

 private:
  const std::uint64_t rank_;
  const std::uint64_t world_size_;
  RankOptions::Range node_;
};

std::optional<ImageTransform> transform_of(const DecodeArguments& arguments) {
  if (arguments.resize.empty()) return std::nullopt;
  const std::size_t x = arguments.resize.find('x');
  const ImageTransform::Size size{std::stoul(arguments.resize.substr(0, x)),
                                  std::stoul(arguments.resize.substr(x + 1))};
  ImageTransform transform;
  if (arguments.crop == "random") {
    transform.random_resized_crop = ImageTransform::RandomResizedCrop{.size = size};
    transform.horizontal_flip = 0.5;
  } else if (arguments.crop == "centre") {
    transform.resize_shorter_side = std::max(size.height, size.width) * 8 / 7;
    transform.centre_crop = size;
  } else {
    transform.resize = size;
  }
  return transform;
}

Column column_of(const DecodeArguments& arguments) {
  if (!arguments.is_on()) return read_fields().named(kChecksums);
  const auto transform = transform_of(arguments);
  if (arguments.decode == "rgb" && transform) {
    return columns::image(arguments.image_field, *transform).named(kPixels);
  }
  return decoded_fields(arguments.decode == "auto", arguments.image_field, transform)
      .named(kImages);
}

LoadedEpoch::Loaded loaded_of(const Batch& batch) {
  LoadedEpoch::Loaded loaded;
  loaded.samples.assign(batch.samples().begin(), batch.samples().end());
  const auto sum_of = [](const Batch::Array& array) {
    const auto values = array.values<std::int64_t>();
    return std::accumulate(values.begin(), values.end(), std::uint64_t{0});
  };
  for (const Batch::Array& array : batch.arrays()) {
    if (array.name() == kPixels) loaded.images = batch.size();
    if (array.name() == kImages) loaded.images = sum_of(array);
    if (array.name() == kChecksums) loaded.checksum = sum_of(array);
  }
  return loaded;
}

void add(std::chrono::nanoseconds& sum, std::chrono::nanoseconds more) { sum += more; }
void add(std::uint64_t& sum, std::uint64_t more) { sum += more; }
template <std::size_t kSize>
void add(std::array<std::uint64_t, kSize>& sum, const std::array<std::uint64_t, kSize>& more) {
  for (std::size_t i = 0; i < kSize; ++i) sum[i] += more[i];
}
void add(std::vector<Loader::Stats::Forgiven>& sum,
         const std::vector<Loader::Stats::Forgiven>& more) {
  for (const Loader::Stats::Forgiven& what : more) {
    const auto same = std::ranges::find(sum, what.kind, &Loader::Stats::Forgiven::kind);
    if (same == sum.end()) {
      sum.push_back(what);
    } else {
      same->images += what.images;
    }
  }
}

/// Adds the statistics of one loader to the sum over loaders that ran one after another.
void add_stats(Loader::Stats& sum, const Loader::Stats& more) {
  const Loader::Stats before = sum;
  detail::visit_fields<Loader::Stats>([&](const auto& field) {
    auto& own = sum.*field.member;
    if constexpr (requires { add(own, own); }) {
      if (field.text.adds_up) return add(own, more.*field.member);
    }
    own = more.*field.member;
  });
  if (before.slowest_time <= more.slowest_time) return;
  sum.slowest_time = before.slowest_time;
  sum.slowest_sample = before.slowest_sample;
}

}  // namespace

struct LoadedEpoch::Impl {
  /// Returns a loader at the position of `sampler`.
  std::unique_ptr<Loader> loader_at(const MixedDataset& data, const Sampler& sampler) const {
    auto loader = std::make_unique<Loader>(
        data,
        Loader::Options{.columns = {column_of(arguments)},
                        .order = sampler.order(),
                        .batch_size = settings.batch_size,
                        .replicas = sampler.replicas(),
                        .threads = settings.threads,
                        // With --bad-list the loader allows all: keep_bad() counts, and writes the
                        // list before it throws.
                        .max_bad = max_bad() == 0 && arguments.bad_list.empty() ? 0 : kAllBad,
                        .fetch_threads = settings.fetch_threads},
        std::make_shared<OneRank>(sampler.rank(), sampler.world_size(), settings.node));
    ResumeToken token = sampler.token_after(0);
    // Tell the loader how much was delivered: the command itself proves the epoch, even if the
    // token lacks the earlier deliveries.
    token.audit.emplace().count = sampler.deliveries_before(token.position);
    loader->restore(token);
    LoaderAccess::accept_all_bad(*loader);
    if (!arguments.trace.empty()) LoaderAccess::keep_events(*loader, kMaxEvents);
    return loader;
  }

  /// Returns the value of --max-bad. With only --bad-list there is no limit.
  std::uint64_t max_bad() const {
    return arguments.max_bad.value_or(arguments.bad_list.empty() ? 0 : kAllBad);
  }

  /// Records the loader's bad samples from number `num_kept` on. Checks the limit here, since each
  /// rank's loader counts only its own bad samples. Errors: BadField.
  void keep_bad(const Loader& loader, std::size_t num_kept, const MixedDataset& data) {
    const auto& rows = LoaderAccess::bad_rows(loader);
    for (std::size_t i = num_kept; i < rows.size(); ++i) {
      bad.push_back(rows[i].sample);
      reasons.try_emplace(rows[i].sample, rows[i].reason);
    }
    if (bad.size() <= max_bad()) return;
    write_bad_list(data.fingerprint());
    detail::throw_too_many_bad(bad.size(), max_bad(),
                               "the last of them: " + reasons.at(bad.back()));
  }

  void write_bad_list(const Hash128& fingerprint) const {
    if (arguments.bad_list.empty()) return;
    std::string text = fmt::format("{}{}, for --skip\n", kBadListBegin, to_string(fingerprint));
    for (const auto& [sample, reason] : reasons) text += fmt::format("{} # {}\n", sample, reason);
    write(arguments.bad_list, text);
  }

  static void write(const std::string& path, const std::string& text) {
    AtomicFile file(path);
    file.file().write(text);
    file.commit();
  }

  void keep_events(const Loader& loader) {
    const std::vector<TraceEvent> more = LoaderAccess::events(loader);
    events.insert(events.end(), more.begin(), more.end());
    if (events.size() <= kMaxEvents) return;
    events.erase(events.begin(), events.end() - static_cast<std::ptrdiff_t>(kMaxEvents));
  }

  const DecodeArguments arguments;
  const Settings settings;
  const std::chrono::steady_clock::time_point start = std::chrono::steady_clock::now();
  std::unique_ptr<Loader> part{};  // the loader of the current part
  Loader::Stats stats{};           // of the parts loaded before
  std::vector<TraceEvent> events{};
  std::vector<std::uint64_t> bad{};  // once for each time that a sample was bad
  std::map<std::uint64_t, std::string> reasons{};
};

bool has_loader() noexcept { return true; }

LoadedEpoch::LoadedEpoch(const DecodeArguments& arguments, const Settings& settings)
    : impl_(new Impl{.arguments = arguments, .settings = settings}) {}
LoadedEpoch::~LoadedEpoch() = default;

void LoadedEpoch::load(const MixedDataset& data, const Sampler& sampler, const Use& use) {
  if (sampler.size() == 0) return;
  impl_->part = impl_->loader_at(data, sampler);
  Loader& loader = *impl_->part;
  std::size_t num_bad = 0;
  while (const auto batch = loader.next()) {
    throw_if_interrupted();
    if (LoaderAccess::bad_rows(loader).size() > num_bad) {
      impl_->keep_bad(loader, std::exchange(num_bad, LoaderAccess::bad_rows(loader).size()), data);
    }
    use(loaded_of(*batch));
  }
  add_stats(impl_->stats, loader.stats());
  if (!impl_->arguments.trace.empty()) impl_->keep_events(loader);
  impl_->part.reset();
}

std::chrono::duration<double> LoadedEpoch::replay(const MixedDataset& data, const Sampler& sampler,
                                                  std::uint64_t times, const Use& use) {
  std::optional<Batch> batch;
  if (sampler.size() > 0) batch = impl_->loader_at(data, sampler)->next();
  if (!batch) {
    throw InvalidArgument("the rank has no samples, so no batch can be replayed", "--replay",
                          "choose a --rank with samples, or another INDEX");
  }
  const auto begin = std::chrono::steady_clock::now();
  for (std::uint64_t i = 0; i < times; ++i) {
    throw_if_interrupted();
    use(loaded_of(*batch));
  }
  return std::chrono::steady_clock::now() - begin;
}

unsigned LoadedEpoch::threads() const { return impl_->settings.threads; }
std::chrono::duration<double> LoadedEpoch::waited() const { return impl_->stats.waited; }
std::uint64_t LoadedEpoch::bytes_read() const {
  return impl_->stats.bytes_read + (impl_->part ? impl_->part->stats().bytes_read : 0);
}

std::string LoadedEpoch::limit() const { return impl_->stats.summary(); }

std::vector<std::string> LoadedEpoch::forgiven() const {
  std::vector<std::string> lines;
  for (const Loader::Stats::Forgiven& what : impl_->stats.forgiven) {
    lines.push_back(escaped(what.kind) + ": " + counted(what.images, "image") + ", first " +
                    what.first_sample);
  }
  return lines;
}

nlohmann::ordered_json LoadedEpoch::forgiven_json() const {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const Loader::Stats::Forgiven& what : impl_->stats.forgiven) {
    list.push_back(
        {{"kind", escaped(what.kind)}, {"images", what.images}, {"example", what.first_sample}});
  }
  return list;
}

nlohmann::ordered_json LoadedEpoch::stages_json() const {
  nlohmann::ordered_json json;
  detail::visit_fields<Loader::Stats>([&](const auto& field) {
    const auto& value = impl_->stats.*field.member;
    const std::string key(field.text.key);
    if (key.empty()) return;
    if constexpr (requires { std::chrono::duration<double>(value); }) {
      json[key] = std::chrono::duration<double>(value).count();
    } else if constexpr (requires { json[key] = value; }) {
      json[key] = value;
    }
  });
  return json;
}

std::vector<std::uint64_t> LoadedEpoch::bad_samples() const { return impl_->bad; }

std::vector<std::string> LoadedEpoch::bad() const {
  std::vector<std::string> lines;
  for (const auto& [sample, reason] : impl_->reasons) {
    if (lines.size() == kBadShown) break;
    lines.push_back(reason);
  }
  if (const std::size_t more = impl_->reasons.size() - lines.size(); more > 0) {
    const std::string& list = impl_->arguments.bad_list;
    lines.push_back(fmt::format("and {} more bad samples; {} lists all", human_count(more),
                                list.empty() ? "--bad-list FILE" : escaped(list)));
  }
  return lines;
}

nlohmann::ordered_json LoadedEpoch::bad_json() const {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const auto& [sample, reason] : impl_->reasons) {
    list.push_back({{"sample", sample}, {"reason", reason}});
  }
  return list;
}

void LoadedEpoch::finish(const MixedDataset& data) const {
  if (!impl_->arguments.trace.empty()) {
    Impl::write(impl_->arguments.trace, trace_text(impl_->events, impl_->start));
  }
  impl_->write_bad_list(data.fingerprint());
  if (impl_->bad.empty() || impl_->stats.samples > 0) return;
  throw BadField(
      "all loaded samples are bad",
      counted(impl_->reasons.size(), "sample") + ", the first: " + impl_->reasons.begin()->second,
      "check --decode and --image-field");
}

}  // namespace shardwise::tools
