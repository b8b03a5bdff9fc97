#include <fmt/core.h>
#include <sys/resource.h>

#include <algorithm>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/cores.h"
#include "base/text.h"
#include "cache_options.h"
#include "commands.h"
#include "fetch_options.h"
#include "interrupt.h"
#include "json_names.h"
#include "loaded_epoch.h"
#include "mixture_options.h"
#include "options.h"
#include "order_options.h"
#include "progress.h"
#include "shardwise/base/error.h"
#include "shardwise/data/fetch_plan.h"
#include "shardwise/data/shard_prefetcher.h"
#include "shardwise/order/epoch_audit.h"

namespace shardwise::tools {
namespace {

struct EpochOptions {
  RunArguments run;
  unsigned threads = usable_cores();
  std::uint64_t batch = 64;
  DecodeArguments decode;
  std::string access = "map";
  Index::Lookup lookup;
  CacheArguments cache;
  unsigned fetch_threads = ShardPrefetcher::Options().fetch_threads;
  std::optional<std::uint64_t> nodes;
  bool allow_empty = false;
  bool json = false;
};

struct EpochReport {
  explicit EpochReport(const Hash128& fingerprint) : audit(fingerprint) {}

  void add(const LoadedEpoch::Loaded& loaded) {
    audit.add(loaded.samples);
    checksum += loaded.checksum;
    images += loaded.images;
  }

  EpochAudit audit;
  std::uint64_t checksum = 0;
  std::uint64_t images = 0;
  std::vector<std::uint64_t> bad;  ///< samples left out, once for each time that a sample was
  double seconds = 0;
  std::string proof;  ///< empty for an epoch without samples
};

/// Returns the ranks that read at the same time through this node's cache. This is only the loaded
/// rank, unless --nodes or a launcher sets others. Errors: wrong usage.
RankOptions::Range node_of(const EpochOptions& options, const Sampler& sampler) {
  const std::uint64_t rank = sampler.rank();
  if (!options.nodes) return options.run.node.value_or(RankOptions::Range{rank, 1});
  if (!options.run.rank) {
    throw CLI::ValidationError(
        "--nodes",
        "needs --rank, because without --rank this command loads all ranks, one after "
        "another");
  }
  const std::uint64_t count = ranks_per_node(sampler.world_size(), *options.nodes);
  return {.first = rank / count * count, .count = count};
}

/// Returns the ranks whose parts are loaded: one rank of each group of replicas.
std::vector<std::uint64_t> ranks_to_load(const Sampler& sampler, bool whole) {
  if (!whole) return {sampler.rank()};
  std::vector<std::uint64_t> ranks;
  for (std::uint64_t rank = 0; rank < sampler.world_size(); rank += sampler.replicas()) {
    ranks.push_back(rank);
  }
  return ranks;
}

/// Throws NotExact unless these ranks together got the samples that follow the run's position in
/// their orders, without bad samples.
void prove_as_ordered(const Sampler& sampler, const std::vector<std::uint64_t>& ranks,
                      const EpochReport& report) {
  EpochAudit::Sum expected;
  std::vector<std::uint64_t> batch(4096);
  const std::set<std::uint64_t> bad(report.bad.begin(), report.bad.end());
  for (const std::uint64_t rank : ranks) {
    const std::unique_ptr<Sampler> again = sampler.for_rank(rank);
    while (const std::size_t got = again->next_batch(batch)) {
      const auto end = batch.begin() + static_cast<std::ptrdiff_t>(got);
      const auto good = std::remove_if(batch.begin(), end,
                                       [&](std::uint64_t number) { return bad.contains(number); });
      expected += EpochAudit::Sum::of({batch.begin(), good}, sampler.fingerprint());
    }
  }
  if (report.audit.sum() == expected) return;
  throw NotExact("the loaded samples differ from those of the order",
                 fmt::format("epoch {}", sampler.epoch()), "report this as a bug of Shardwise");
}

/// Proves the epoch if all its deliveries are known. They are not known for a single rank, or if
/// the token lacks earlier deliveries. In these cases, proves only that the ranks got the samples
/// of their orders.
std::string prove(const Run& run, bool whole, const EpochReport& report) {
  const Sampler& sampler = *run.sampler;
  const std::uint64_t samples = report.audit.sum().count;
  if (whole && (run.position == 0 || run.delivered_before)) {
    EpochAudit audit(sampler.fingerprint());
    audit.merge(report.audit.sum());
    if (run.delivered_before) audit.merge(*run.delivered_before);
    EpochAudit::Expectation expectation = sampler.expectation();
    expectation.leave_out(report.bad);
    audit.prove(expectation, sampler.epoch());
    return audit.verdict(expectation).text(sampler.epoch());
  }
  prove_as_ordered(sampler, ranks_to_load(sampler, whole), report);
  if (whole) {
    return fmt::format("epoch {}: the rest from position {} on: {} as ordered: proven",
                       sampler.epoch(), run.position, counted(samples, "sample"));
  }
  return fmt::format("epoch {}: rank {} of {}: {} as ordered: proven", sampler.epoch(),
                     sampler.rank(), sampler.world_size(), counted(samples, "sample"));
}

std::uint64_t peak_memory_bytes() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  return static_cast<std::uint64_t>(usage.ru_maxrss) * 1024;
}

/// Returns the private memory of this process in bytes, without mapped shards.
std::uint64_t private_memory_bytes() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("RssAnon:")) return std::stoull(line.substr(8)) * 1024;
  }
  return 0;
}

nlohmann::ordered_json cache_json(const ShardCache::Stats& stats) {
  return {{"hits", stats.hits},
          {"misses", stats.misses},
          {"fetched", stats.fetched},
          {"fetched_bytes", stats.fetched_bytes},
          {"wrong", stats.wrong},
          {"waits", stats.waits},
          {"wait_seconds", std::chrono::duration<double>(stats.waited).count()},
          {"evicted", stats.evicted},
          {"evicted_bytes", stats.evicted_bytes},
          {"bypassed", stats.bypassed}};
}

void print_cache(const ShardCache::Stats& stats, Output& out) {
  out.print("cache     {}, {}; fetched {}, {}; evicted {}, {}{}\n", counted(stats.hits, "hit"),
            counted(stats.misses, "miss"), counted(stats.fetched, "shard"),
            human_bytes(stats.fetched_bytes), human_count(stats.evicted),
            human_bytes(stats.evicted_bytes),
            stats.bypassed == 0
                ? ""
                : fmt::format("; {} did not fit into the cache", human_count(stats.bypassed)));
}

/// Prints advice if the cache is too small for the order.
void note_repeated_fetches(const ShardCache::Stats& stats, const MixedDataset& data,
                           bool is_sharded) {
  const std::uint64_t num_shards = data.shard_starts().size() - 1;
  if (stats.fetched <= num_shards) return;
  // Shards were fetched again for another reason: they were damaged, or others removed them.
  if (stats.evicted + stats.bypassed == 0) return;
  say("note",
      fmt::format("{} were fetched {} times, because the cache is too small for this order; "
                  "`shardwise plan` shows the cache size that this order needs{}",
                  counted(num_shards, "shard"), human_count(stats.fetched),
                  is_sharded ? "" : ", and --sampler sharded needs a smaller cache"));
}

/// Opens the data set, or all data sets of a mixture, which share one cache.
Run open_epoch(const EpochOptions& options) {
  const auto open = dataset_opener(options.lookup, parse_access(options.access), options.cache,
                                   options.run.order.allow_part, interrupt_token());
  if (options.run.index.empty() && options.run.order.mix.empty()) {
    throw CLI::RequiredError("INDEX");
  }
  RunArguments arguments = options.run;
  arguments.first_use.fetching = options.cache.fetching;
  Run run = open_run(arguments, {.batch_size = options.batch}, open);
  check_servers(options.cache.fetching, *run.data, options.run.first_use.quiet);
  return run;
}

/// @param node  the ranks of this node; count 0 means only the loaded ranks.
LoadedEpoch::Settings load_settings(const EpochOptions& options, const RankOptions::Range& node) {
  return {.batch_size = options.batch,
          .threads = options.threads,
          .fetch_threads = options.fetch_threads,
          .node = node};
}

double per_second(std::uint64_t count, double seconds) {
  return static_cast<double>(count) / std::max(seconds, 1e-9);
}

void print_images(std::uint64_t images, double seconds, Output& out) {
  out.print("images    {}, {} images/s\n", human_count(images),
            human_count(static_cast<std::uint64_t>(per_second(images, seconds))));
}

/// For --replay: uses the first batch of one rank repeatedly.
void replay(const EpochOptions& options, const Run& run, Output& out) {
  LoadedEpoch loading(options.decode, load_settings(options, {.first = 0, .count = 0}));
  const std::uint64_t times = *options.decode.replay;
  EpochReport report(run.data->fingerprint());
  const auto take = [&](const LoadedEpoch::Loaded& loaded) { report.add(loaded); };
  const double seconds = loading.replay(*run.data, *run.sampler, times, take).count();
  const std::uint64_t samples = report.audit.sum().count;
  constexpr const char* kNotProven =
      "the epoch is not proven, because --replay delivers one batch repeatedly";
  if (options.json) {
    const nlohmann::ordered_json json = {
        {"samples", samples},
        {"images", report.images},
        {"seconds", seconds},
        {"samples_per_second", per_second(samples, seconds)},
        {"images_per_second", per_second(report.images, seconds)},
        {"decode", options.decode.decode},
        {"replayed", times},
        {"proof", nullptr},
        {"note", kNotProven},
    };
    print_json(out, "epoch", json);
    return;
  }
  out.print("samples   {}: one batch, {}\n", human_count(samples), counted(times, "time"));
  print_images(report.images, seconds, out);
  out.print("seconds   {:.3f}\n", seconds);
  out.print("rate      {} samples/s without loading\n",
            human_count(static_cast<std::uint64_t>(per_second(samples, seconds))));
  out.print("{}\n", kNotProven);
}

/// Errors: InvalidArgument if there is no sample, unless --allow-empty is given.
void require_samples(const EpochOptions& options, const Sampler& sampler) {
  if (sampler.num_samples() > 0 || options.allow_empty) return;
  throw InvalidArgument(
      "the epoch has no sample", fmt::format("epoch {}", sampler.epoch()),
      "check --where and `shardwise info`, or accept an empty epoch with --allow-empty");
}

/// Warns of ranks that open a shard for nearly every sample.
void warn_of_shared_streams(const Run& run) {
  std::uint64_t num_shards = 0;
  for (std::size_t i = 0; i < run.data->num_parts(); ++i) {
    num_shards += run.data->part(i).index().num_shards();
  }
  if (const auto warning = shared_stream_warning(*run.sampler, num_shards)) {
    say("warning", *warning);
  }
}

/// Warns of a cache that is too small for the ranks of this node.
void warn_of_small_cache(const EpochOptions& options, const Run& run) {
  if (run.data->num_parts() > 1) return;
  const Sampler& sampler = *run.sampler;
  const bool is_known = options.nodes || options.run.node;
  const RankOptions::Range node =
      is_known ? node_of(options, sampler)
               : RankOptions::Range{.first = 0, .count = sampler.world_size()};
  const auto warning = small_cache_warning(run.data->part(0), sampler, node);
  if (warning) say("warning", *warning);
}

/// Loads the parts of all ranks, or of --rank, and proves them.
EpochReport load_epoch(const EpochOptions& options, const Run& run, LoadedEpoch& loading) {
  const MixedDataset& data = *run.data;
  const bool whole = !options.run.rank;
  const std::vector<std::uint64_t> ranks = ranks_to_load(*run.sampler, whole);
  std::uint64_t num_samples = 0;
  for (const std::uint64_t rank : ranks) num_samples += run.sampler->for_rank(rank)->size();
  Progress progress("loading", Unit::kSamples, options.run.first_use.quiet);
  EpochReport report(data.fingerprint());
  for (const std::uint64_t rank : ranks) {
    loading.load(data, *run.sampler->for_rank(rank), [&](const LoadedEpoch::Loaded& loaded) {
      report.add(loaded);
      progress.update(report.audit.sum().count, num_samples,
                      [&] { return human_bytes(loading.bytes_read()); });
    });
  }
  report.seconds = progress.seconds();
  progress.clear();
  loading.finish(data);
  report.bad = loading.bad_samples();
  if (run.sampler->num_samples() > 0) report.proof = prove(run, whole, report);
  return report;
}

std::uint64_t shards_opened(const MixedDataset& data) {
  std::uint64_t opened = 0;
  for (std::size_t i = 0; i < data.num_parts(); ++i) opened += data.part(i).pool_stats().opened;
  return opened;
}

/// Returns what a run has read of each data set of a mixture at the end of the epoch. Empty for
/// other orders.
std::vector<ResumeToken::Progress> read_at_end(const Sampler& sampler) {
  return data_sets_read(sampler.token_after(sampler.steps()));
}

nlohmann::ordered_json json_report(const EpochOptions& options, const Run& run,
                                   const LoadedEpoch& loading, const EpochReport& report) {
  const Sampler& sampler = *run.sampler;
  const std::uint64_t samples = report.audit.sum().count;
  const nlohmann::ordered_json none;
  nlohmann::ordered_json json = {
      {"samples", samples},
      {"bytes", loading.bytes_read()},
      {"seconds", report.seconds},
      {"samples_per_second", per_second(samples, report.seconds)},
      {"wait_seconds", loading.waited().count()},
      {"threads", loading.threads()},
      {"shards_opened", shards_opened(*run.data)},
      {"peak_memory_bytes", peak_memory_bytes()},
      {"private_memory_bytes", private_memory_bytes()},
      {"checksum", fmt::format("{:016x}", report.checksum)},
      {"epoch", sampler.epoch()},
      {"world_size", sampler.world_size()},
      {"rank", options.run.rank ? nlohmann::ordered_json(sampler.rank()) : none},
      {"proof", report.proof.empty() ? none : nlohmann::ordered_json(report.proof)},
  };
  if (const auto read = read_at_end(sampler); !read.empty()) json["data_sets"] = json_of_read(read);
  if (options.decode.is_on()) {
    json["checksum"] = nullptr;
    json["decode"] = options.decode.decode;
    json["images"] = report.images;
    json["images_per_second"] = per_second(report.images, report.seconds);
    json["forgiven"] = loading.forgiven_json();
    json["bad"] = loading.bad_json();
    json["limit"] = loading.limit();
    json["stages"] = loading.stages_json();
  }
  if (const auto cache = run.data->part(0).cache()) json["cache"] = cache_json(cache->stats());
  return json;
}

void print_report(const EpochOptions& options, const Run& run, const LoadedEpoch& loading,
                  const EpochReport& report, Output& out) {
  const std::uint64_t samples = report.audit.sum().count, bytes = loading.bytes_read();
  const auto rate = [&](std::uint64_t count) {
    return static_cast<std::uint64_t>(per_second(count, report.seconds));
  };
  const bool decodes = options.decode.is_on();
  out.print("samples   {}\n", human_count(samples));
  if (decodes) print_images(report.images, report.seconds, out);
  out.print("bytes     {}, {}/s\n", human_bytes(bytes), human_bytes(rate(bytes)));
  out.print("seconds   {:.3f}; the reading loop waited {:.3f} s for data\n", report.seconds,
            loading.waited().count());
  out.print("rate      {} samples/s on {}\n", human_count(rate(samples)),
            counted(loading.threads(), "thread"));
  if (decodes) {
    for (const std::string& line : loading.forgiven()) out.print("forgiven  {}\n", line);
    for (const std::string& line : loading.bad()) out.print("bad       {}\n", line);
    out.print("limit     {}\n", loading.limit());
  }
  out.print("shards    opened {}\n", counted(shards_opened(*run.data), "time"));
  const auto cache = run.data->part(0).cache();
  if (cache) print_cache(cache->stats(), out);
  out.print("memory    peak {} with mapped shards; {} private at the end\n",
            human_bytes(peak_memory_bytes()), human_bytes(private_memory_bytes()));
  print_read(read_at_end(*run.sampler), out);
  out.print("{}\n",
            report.proof.empty() ? "the epoch has no sample, so it is not proven" : report.proof);
  if (!cache) return;
  out.flush();
  note_repeated_fetches(cache->stats(), *run.data,
                        std::holds_alternative<Sharded>(run.sampler->order().kind));
}

void run(const EpochOptions& options, Output& out) {
  check_decode_options(options.decode);
  const Run run = open_epoch(options);
  if (options.decode.replay) return replay(options, run, out);
  require_samples(options, *run.sampler);
  const RankOptions::Range node = node_of(options, *run.sampler), alone{.first = 0, .count = 0};
  warn_of_small_cache(options, run);
  warn_of_shared_streams(run);
  LoadedEpoch loading(options.decode, load_settings(options, options.run.rank ? node : alone));
  const EpochReport report = load_epoch(options, run, loading);
  if (options.json) {
    print_json(out, "epoch", json_report(options, run, loading, report));
  } else {
    print_report(options, run, loading, report, out);
  }
}

/// Refuses options that only the loader obeys.
void refuse_loader_options(CLI::App& command) {
  for (const char* name : {"--threads", "--prefetch"}) {
    command.get_option(name)->check([](const std::string&) {
      return "this program was built without the loader; leave out this option, or build "
             "Shardwise with SHARDWISE_WITH_LOADER=ON";
    });
  }
}

}  // namespace

void add_epoch_command(CLI::App& program, Output& out) {
  CLI::App* command = program.add_subcommand(
      "epoch",
      "Read every byte of one epoch, and prove that no sample is missing or extra; without --rank, "
      "read all ranks one after another");
  const auto options = std::make_shared<EpochOptions>();
  command
      ->add_option("--threads", options->threads,
                   "loading threads; 0 means: the reading loop loads")
      ->transform(kNumThreads)
      ->type_name("N")
      ->default_str("one per core");
  command->add_option("--batch", options->batch, "samples per step on each rank")
      ->check(CLI::Range(std::uint64_t{1}, std::uint64_t{1} << 24))
      ->type_name("B")
      ->capture_default_str();
  add_decode_options(*command, options->decode);
  command->add_flag("--json", options->json, "print one JSON object");
  command->add_option("--access", options->access, kAccessHelp)
      ->check(CLI::IsMember({"map", "read", "range"}))
      ->capture_default_str();
  add_lookup_options(*command, options->lookup);
  add_cache_options(*command, options->cache);
  command
      ->add_option("--prefetch", options->fetch_threads,
                   "number of shards that are fetched ahead at the same time; 0 means: no shard "
                   "is fetched ahead")
      ->transform(kNumThreads)
      ->type_name("N")
      ->capture_default_str();
  add_run_options(*command, options->run, /*with_size=*/false);
  command
      ->add_option("--nodes", options->nodes,
                   "number of nodes; each has an equal block of the ranks, and one cache for "
                   "them, which does not evict a shard that another of these ranks still needs")
      ->transform(kPositiveNumber)
      ->type_name("N");
  command->add_flag("--allow-empty", options->allow_empty,
                    "accept an epoch without samples, instead of failing");
  if (!has_loader()) refuse_loader_options(*command);
  mark_common(*command, {"--batch", "--threads", "--decode", "--resize", "--sampler", "--seed",
                         "--epoch", "--world", "--rank", "--cache", "--json"});
  command->footer(
      "Without --world and --rank, it reads the samples of the launcher's rank under srun, mpirun "
      "or torchrun.\n\n"
      "The library's Loader loads the samples, as in a training run. With --decode, the line "
      "\"limit\" names the bottleneck, and a line \"forgiven\" counts each kind of damage in "
      "images that were decoded anyway.\n\n"
      "--bad-list finds all samples that cannot be decoded, for --skip of later runs.\n\n"
      "Examples:\n  shardwise epoch train.idx --world 8 --threads 4\n"
      "  shardwise epoch train.idx --decode rgb --resize 224x224 --crop random --threads 8");
  command->callback([options, &out] {
    go_by_launcher(options->run);
    run(*options, out);
  });
}

}  // namespace shardwise::tools
