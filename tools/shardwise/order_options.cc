#include "order_options.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>

#include <algorithm>
#include <utility>

#include "base/error_types.h"
#include "base/rank_environment.h"
#include "base/text.h"
#include "base/url.h"
#include "cache_options.h"
#include "fetch_options.h"
#include "index/offset_table.h"
#include "index/segment_of.h"
#include "mixture_options.h"
#include "options.h"
#include "order/checkpoint_format.h"
#include "order/fields.h"
#include "output.h"
#include "skip_file.h"
#include "token_file.h"

namespace shardwise::tools {
namespace {

constexpr const char* kGroup = "Order of the samples";
constexpr const char* kRankGroup = "Epoch and ranks";
constexpr const char* kRareGroup = "Order of the samples, rarely needed";

/// Throws wrong usage if `holds` is false: an option was given that the sampler does not use.
void require(bool holds, std::string_view option, const std::string& sampler,
             std::string_view used_by) {
  if (holds) return;
  throw_usage(fmt::format("{} does not apply to {}, only to {}; leave out {}", option, sampler,
                          used_by, option));
}

/// Parses an option's value that has been checked before.
template <class Value>
Value value_of(const std::string& text) {
  if constexpr (detail::Choice<Value>) {
    return detail::find_choice<Value>(text).value();
  } else if constexpr (std::is_same_v<Value, std::uint64_t>) {
    return std::stoull(text);
  } else {
    return Value(text);
  }
}

/// Returns the kind of order that the options select, without a mixture.
OrderKind kind_of(const OrderArguments& arguments) {
  const std::string& name = arguments.sampler;
  const bool in_order = arguments.no_shuffle && (name == "chunked" || name == "sharded");
  const std::string said = in_order ? "--no-shuffle" : "--sampler " + name;
  OrderKind kind = in_order ? OrderKind(Sequential{}) : parse_order_kind(name);
  require(!arguments.no_shuffle || !std::holds_alternative<Resampled>(kind), "--no-shuffle", said,
          "the other samplers");
  for (const detail::KindOption& option : detail::kind_options()) {
    const bool is_of_it = std::ranges::count(option.kinds, name_of(kind)) > 0;
    require(is_of_it || !arguments.of_kind.contains(option.option), option.option, said,
            fmt::format("{}", fmt::join(option.kinds, " and ")));
  }
  const auto set = [&]<class Kind>(Kind& chosen) {
    detail::visit_fields<Kind>([&]<class Value>(const detail::Field<Kind, Value>& field) {
      const auto given = arguments.of_kind.find(field.text.option);
      if constexpr (std::is_same_v<Value, bool>) {  // a flag, given or not
        chosen.*field.member = given != arguments.of_kind.end();
      } else if constexpr (!std::is_same_v<Kind, Mixture>) {
        if (given != arguments.of_kind.end()) {
          chosen.*field.member = value_of<Value>(given->second);
        }
      }
    });
  };
  std::visit(set, kind);
  if (auto* const wids = std::get_if<Wids>(&kind)) wids->shuffle = !arguments.no_shuffle;
  return kind;
}

/// Returns the order used for each data set of a mixture.
std::variant<Chunked, Sharded, Sequential> part_kind_of(const OrderKind& kind) {
  if (const auto* chunked = std::get_if<Chunked>(&kind)) return *chunked;
  if (const auto* sharded = std::get_if<Sharded>(&kind)) return *sharded;
  if (std::holds_alternative<Sequential>(kind)) return Sequential{};
  throw_usage(
      fmt::format("--mix cannot be given with --sampler {}; choose --sampler chunked, sharded or "
                  "sequential",
                  name_of(kind)));
}

FindKey key_finder(const MixedDataset* data) {
  if (data == nullptr) return nullptr;
  return [data](const std::string& key) -> std::optional<std::uint64_t> {
    for (std::size_t part = 0; part < data->num_parts(); ++part) {
      if (const auto sample = data->part(part).find(key)) {
        return data->first_sample(part) + sample->index();
      }
    }
    return std::nullopt;
  };
}

SkipList skip_of(const OrderArguments& arguments, const MixedDataset* data) {
  if (arguments.skip_file.empty()) return {};
  SkipList skip = read_skip_file(arguments.skip_file, key_finder(data),
                                 data != nullptr ? to_string(data->fingerprint()) : "");
  if (data != nullptr && !skip.samples().empty() &&
      skip.samples().rbegin()->first >= data->size()) {
    throw OutOfRange("the skip file names a sample that the data lacks",
                     in_quotes(arguments.skip_file) + ", sample " +
                         std::to_string(skip.samples().rbegin()->first),
                     "the data has " + counted(data->size(), "sample") +
                         ", numbered from 0; correct the number");
  }
  return skip;
}

/// Calls a library function. Throws wrong usage for an InvalidArgument.
template <class Function>
auto as_usage(Function function) {
  try {
    return function();
  } catch (const InvalidArgument& e) {
    throw_usage(e.what());
  }
}

std::optional<ResumeToken> token_of(const RunArguments& arguments) {
  if (!arguments.checkpoint.empty()) return read_checkpoint_token(arguments.checkpoint);
  if (!arguments.token.empty()) return read_token(arguments.token);
  return std::nullopt;
}

void refuse_beside_token(const RunArguments& arguments) {
  for (const CLI::Option* option : arguments.order.order_options) {
    if (option->count() == 0) continue;
    throw_usage(fmt::format(
        "{} cannot be given with {}, which sets the order; leave out {}", option->get_name(),
        arguments.checkpoint.empty() ? "--token" : "--checkpoint", option->get_name()));
  }
}

/// Returns the sample numbers of a run without a data set: from the token, or from --size.
SampleSet samples_of(const RunArguments& arguments, const std::optional<ResumeToken>& token) {
  if (token) {
    if (arguments.size && *arguments.size != token->spec.num_samples) {
      throw_usage(
          fmt::format("--size {} differs from the token, which is for {} samples; leave "
                      "out --size",
                      *arguments.size, token->spec.num_samples));
    }
    return SampleSet(token->spec.num_samples).with_fingerprint(token->fingerprint);
  }
  if (!arguments.size) throw CLI::RequiredError("INDEX or --size");
  return SampleSet(*arguments.size);
}

/// Adds the option for a field. Calls `given` with the option's text, which is empty for a flag.
template <class Owner, class Value, class Given>
CLI::Option* add_field(CLI::App& command, const detail::Field<Owner, Value>& field,
                       const std::string& words, const Given& given) {
  const std::string name(field.text.option);
  CLI::Option* option = nullptr;
  if constexpr (std::is_same_v<Value, bool>) {
    option = command.add_flag_callback(
        name, [given] { given(""); }, words);
  } else {
    option = command.add_option_function<std::string>(name, given, words);
  }
  if constexpr (std::is_same_v<Value, std::uint64_t>) {
    option->transform(kWholeNumber)->type_name("N");
  } else if constexpr (detail::Choice<Value>) {
    constexpr auto names = choices(std::type_identity<Value>{});
    option->check(CLI::IsMember(std::vector<std::string>(names.begin(), names.end())));
  } else if constexpr (std::is_same_v<Value, std::string>) {
    option->type_name(std::string(field.text.value));
  }
  return option->group(field.text.is_rare ? kRareGroup : kGroup);
}

/// Adds the options of all kinds of order: the fields of Order.
void add_shared_options(CLI::App& command, OrderArguments& arguments) {
  detail::visit_fields<Order>([&]<class Value>(const detail::Field<Order, Value>& field) {
    if (field.text.option.empty()) return;
    if constexpr (requires { detail::shown(Value{}); }) {
      Value& value = arguments.order.*field.member;
      CLI::Option* const option = add_field(command, field, std::string(field.text.words),
                                            [&value](const std::string& text) {
                                              if constexpr (std::is_same_v<Value, bool>) {
                                                value = true;
                                              } else {
                                                value = value_of<Value>(text);
                                              }
                                            });
      if (!std::is_same_v<Value, bool>) option->default_str(detail::shown(value));
      arguments.order_options.push_back(option);
    }
  });
}

/// Adds the options that apply only to some kinds of order.
void add_kind_options(CLI::App& command, OrderArguments& arguments) {
  std::vector<detail::KindOption> left = detail::kind_options();
  std::erase_if(left, [](const auto& option) { return option.option == "--no-shuffle"; });
  detail::visit_kinds([&]<class Kind>() {
    detail::visit_fields<Kind>([&](const auto& field) {
      const auto described = std::ranges::find(left, field.name, &detail::KindOption::name);
      if (described == left.end()) return;
      arguments.order_options.push_back(
          add_field(command, field, described->words,
                    [&arguments, name = field.text.option](const std::string& text) {
                      arguments.of_kind[name] = text;
                    }));
      left.erase(described);
    });
  });
}

}  // namespace

void add_order_options(CLI::App& command, OrderArguments& arguments) {
  arguments.order_options.push_back(
      command
          .add_option(
              "--sampler", arguments.sampler,
              "order of the samples; chunked shuffles chunks of samples; sharded shuffles whole "
              "shards; sequential does not shuffle; resampled draws with replacement; "
              "wids is the order of Python wids")
          ->check(CLI::IsMember({"chunked", "sharded", "sequential", "resampled", "wids"}))
          ->capture_default_str()
          ->group(kGroup));
  add_shared_options(command, arguments);
  add_kind_options(command, arguments);
  arguments.order_options.push_back(
      command
          .add_flag("--no-shuffle", arguments.no_shuffle,
                    "read the samples in the order of the index: 0, 1, 2 ...")
          ->group(kGroup));
  command
      .add_option("--where", arguments.where,
                  "use only the samples for which this SQL condition holds, e.g. \"cls = 7\"")
      ->type_name("SQL")
      ->group(kGroup);
  command
      .add_flag("--allow-part", arguments.allow_part,
                "accept an index that is one part of several; the epoch then covers only this part")
      ->group(kRareGroup);
  command.add_option("--skip", arguments.skip_file, fmt::format("file with {}", kSkipFileHelp))
      ->type_name("FILE")
      ->group(kGroup);
  command
      .add_option("--mix", arguments.mix,
                  "read several indexes, mixed by weight, instead of INDEX; each index is read in "
                  "exact epochs")
      ->type_name("INDEX=WEIGHT,...")
      ->delimiter(',')
      ->group(kRareGroup);
  arguments.order_options.push_back(
      command
          .add_option(
              "--schedule", arguments.schedule,
              "change the weights of --mix at a position of the run; give one weight for each "
              "index, and the option once for each change; the position is the number of "
              "samples that all ranks have read in all epochs, rounded up to a multiple of 256")
          ->type_name("POSITION=WEIGHT,...")
          ->allow_extra_args(false)
          ->group(kRareGroup));
  command
      .add_option(
          "--replicas", arguments.replicas,
          "number of neighbouring ranks that read the same samples, e.g. in tensor parallelism")
      ->transform(kWholeNumber)
      ->type_name("N")
      ->capture_default_str()
      ->group(kRareGroup);
}

void check_order_options(const OrderArguments& arguments) {
  const OrderKind kind = kind_of(arguments);
  parse_schedule(arguments.schedule, arguments.mix);
  if (parse_mix(arguments.mix).indexes.empty()) return;
  part_kind_of(kind);
}

Order order_of(const OrderArguments& arguments, const MixedDataset* data) {
  Order order = arguments.order;
  order.kind = kind_of(arguments);
  std::vector<Mixture::Change> schedule = parse_schedule(arguments.schedule, arguments.mix);
  if (!arguments.mix.empty() && data != nullptr) {
    order.kind = as_usage([&] {
      return data->mixture(parse_mix(arguments.mix).weights, part_kind_of(order.kind),
                           std::move(schedule));
    });
  }
  order.skip = skip_of(arguments, data);
  return order;
}

void add_step_size(CLI::App& command, StepSize& step) {
  CLI::Option* const batch =
      command.add_option("--batch", step.batch_size, "samples per step on each rank")
          ->transform(kPositiveNumber)
          ->type_name("N");
  command
      .add_option("--global-batch", step.global_batch_size,
                  "samples per step on all ranks together, instead of --batch")
      ->transform(kPositiveNumber)
      ->excludes(batch)
      ->type_name("N");
}

StepSize checked(const StepSize& given) {
  StepSize step = given;
  if (step.batch_size == 0 && step.global_batch_size == 0) {
    throw CLI::RequiredError("--batch or --global-batch");
  }
  step.batch_size = std::max<std::uint64_t>(step.batch_size, 1);  // 1 with global_batch_size
  return step;
}

MixedDataset open_data(const OrderArguments& arguments, const std::string& index, bool quiet,
                       const std::function<Dataset(const std::string& index)>& open) {
  std::vector<std::string> indexes = parse_mix(arguments.mix).indexes;
  if (!index.empty() && !indexes.empty())
    throw_usage(
        "--mix cannot be given with INDEX; leave "
        "out INDEX");
  if (indexes.empty()) indexes = {index};
  std::vector<Dataset> parts;
  for (const std::string& name : indexes) {
    parts.push_back(selected(open(name), arguments.where, quiet));
  }
  return MixedDataset(std::move(parts));
}

void add_run_options(CLI::App& command, RunArguments& arguments, bool with_size) {
  CLI::Option* const index = add_index_argument(command, arguments.index);
  if (with_size) {
    command.add_option("--size", arguments.size, "number of samples, instead of INDEX")
        ->transform(kWholeNumber)
        ->excludes(index)
        ->type_name("N");
  }
  const auto number = [&](const char* name, auto& value, const char* text) {
    command.add_option(name, value, text)
        ->transform(kWholeNumber)
        ->type_name("N")
        ->group(kRankGroup);
  };
  number("--epoch", arguments.epoch,
         "epoch number, from 0; with --token or --checkpoint, a later epoch to begin instead of "
         "resuming");
  arguments.world_option = command.add_option("--world", arguments.world_size, "number of ranks")
                               ->transform(kWholeNumber)
                               ->type_name("N")
                               ->capture_default_str()
                               ->group(kRankGroup);
  number("--rank", arguments.rank, "rank whose samples are used, from 0");
  add_order_options(command, arguments.order);
  CLI::Option* const token =
      command
          .add_option(
              "--token", arguments.token,
              "resume token, as a file or as text; the token sets the order and the position to "
              "resume from")
          ->type_name("FILE|TEXT")
          ->group("Resuming a run");
  command
      .add_option("--checkpoint", arguments.checkpoint,
                  "checkpoint whose resume token sets the "
                  "order and the position to resume from")
      ->type_name("FILE")
      ->excludes(token)
      ->group("Resuming a run");
  add_first_use_options(command, arguments.first_use);
}

void go_by_launcher(RunArguments& arguments) {
  if (arguments.rank || arguments.world_option->count() > 0 || is_batch_script()) return;
  const RankEnvironment found = rank_environment();
  if (found.world_size == 1) return;
  arguments.rank = static_cast<std::uint64_t>(found.rank);
  arguments.world_size = static_cast<std::uint64_t>(found.world_size);
  arguments.node = {.first = static_cast<std::uint64_t>(found.rank - found.local_rank),
                    .count = static_cast<std::uint64_t>(found.local_world_size)};
  if (!arguments.first_use.quiet) {
    say("note", fmt::format("using the samples of {} (from {}); to choose another rank, give "
                            "--world and --rank",
                            describe(found), found.launcher));
  }
}

namespace {

/// Checks that a mixture's token is used with the same data sets and with weights that it had.
void check_mixture(const OrderArguments& arguments, const Order& order, const MixedDataset* data) {
  const auto* const mixture = std::get_if<Mixture>(&order.kind);
  const std::vector<double> weights = parse_mix(arguments.mix).weights;
  if (mixture == nullptr || data == nullptr) return;
  if (weights.empty())
    throw_usage(
        "the token is for a mixture of indexes; name these indexes "
        "with --mix");
  const bool same =
      std::ranges::equal(weights, mixture->parts, {}, {}, &Mixture::Part::weight) ||
      std::ranges::any_of(mixture->schedule, [&](const auto& c) { return c.weights == weights; });
  if (!same)
    throw_usage(
        "--mix has other weights than the token; give the --mix of the run that "
        "wrote the token");
}

/// Returns a sampler at the position that the options select.
std::unique_ptr<Sampler> sampler_at(const RunArguments& arguments, const SampleSet& samples,
                                    const std::optional<ResumeToken>& token,
                                    const MixedDataset* data, const StepSize& step) {
  Order order;
  if (token) {
    order = token->spec.order;
    order.skip = skip_of(arguments.order, data);
    check_mixture(arguments.order, order, data);
  } else {
    order = order_of(arguments.order, data);
  }
  const RankOptions ranks{.rank = arguments.rank.value_or(0),
                          .world_size = arguments.world_size,
                          .batch_size = step.batch_size,
                          .global_batch_size = step.global_batch_size,
                          .replicas = arguments.order.replicas};
  if (std::holds_alternative<Sharded>(order.kind) && !samples.knows_shards()) {
    throw_usage("--sampler sharded needs shards; give INDEX instead of --size");
  }
  auto sampler = as_usage([&] { return make_sampler(samples, order, ranks); });
  if (token) sampler->resume(*token);
  if (arguments.epoch) {
    if (token && *arguments.epoch < token->epoch) {
      throw_usage(
          fmt::format("--epoch {} is before epoch {} of the token; give a later --epoch, "
                      "or leave out --epoch",
                      *arguments.epoch, token->epoch));
    }
    as_usage([&] { sampler->set_epoch(*arguments.epoch); });
  }
  return sampler;
}

}  // namespace

Run open_run(const RunArguments& arguments, const SampleSet& samples) {
  const std::optional<ResumeToken> token = token_of(arguments);
  if (token) refuse_beside_token(arguments);
  Run run;
  run.sampler = sampler_at(arguments, samples, token, nullptr, {});
  return run;
}

Run open_run(const RunArguments& arguments, const StepSize& step,
             const std::function<Dataset(const FoundIndex& index)>& open) {
  std::optional<ResumeToken> token = token_of(arguments);
  if (token) refuse_beside_token(arguments);
  Run run;
  if (token && arguments.takes_batches) run.batches = std::exchange(token->batches, std::nullopt);
  if (arguments.epoch) run.batches.reset();
  if (!arguments.index.empty() || !arguments.order.mix.empty()) {
    run.data = open_data(
        arguments.order, arguments.index, arguments.first_use.quiet,
        [&](const std::string& name) { return open(find_index(name, arguments.first_use)); });
  } else if (arguments.order.where) {
    throw_usage("--where needs INDEX; give INDEX instead of --size");
  }
  const MixedDataset* const data = run.data ? &*run.data : nullptr;
  const SampleSet samples = data ? SampleSet(*data) : samples_of(arguments, token);
  run.sampler = sampler_at(arguments, samples, token, data, step);
  if (token && !arguments.epoch) {
    run.position = token->position;
    if (token->position > 0) run.delivered_before = token->audit;
  }
  return run;
}

Run open_run(const RunArguments& arguments, const StepSize& step) {
  Run run = open_run(arguments, step, [&](const FoundIndex& index) {
    return Dataset::open(index.path, {.allow_part = arguments.order.allow_part});
  });
  if (run.data) {
    check_servers(arguments.first_use.fetching, *run.data, arguments.first_use.quiet);
  }
  return run;
}

SampleNames names_of(const MixedDataset& data, std::uint64_t sample) {
  const std::size_t number = data.part_of(sample);
  const Dataset& part = data.part(number);
  const Index& index = part.index();
  const std::uint64_t in_index = part.number_in_index(sample - data.first_sample(number));
  const std::uint64_t shard = index.shard_of(in_index);
  const auto local = static_cast<std::uint32_t>(in_index - index.first_sample(shard));
  return {.key = std::string(segment_of(index, shard).key(local)),
          .shard = shard,
          .url = without_secrets(index.shard(shard).path)};
}

std::uint64_t ranks_per_node(std::uint64_t world, std::uint64_t nodes) {
  if (world % nodes == 0) return world / nodes;
  throw_usage(
      fmt::format("--world {} is not a multiple of --nodes {}; give each node the same number of "
                  "ranks",
                  world, nodes));
}

}  // namespace shardwise::tools
