#include "shardwise/order/explain.h"

#include <fmt/core.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/text.h"
#include "commands.h"
#include "group_options.h"
#include "options.h"
#include "order_options.h"
#include "table.h"

namespace shardwise::tools {
namespace {

struct ExplainOptions {
  RunArguments run;
  std::uint64_t step = 0;
  StepSize batch = {.batch_size = 0};
  GroupArguments groups;
  bool json = false;
  bool header = false;
};

void print_json(const GroupedStep& batch, std::size_t place, const SampleNames* names,
                bool has_groups, Output& out) {
  const Sampler::RankStep& rank = batch.step;
  std::string line = fmt::format("{{\"rank\":{},\"place\":{},\"sample\":{}", rank.rank, place,
                                 rank.samples[place]);
  if (names != nullptr) {
    line += ',';
    append_json_name(line, "key", names->key);
    line += ',';
    line += fmt::format("\"shard\":{},", names->shard);
    append_json_name(line, "url", names->url);
  }
  if (has_groups) {
    line += ',';
    append_json_name(line, "group", batch.group);
  }
  out.print("{}}}\n", line);
}

std::vector<GroupedStep> steps_of(const ExplainOptions& options, const Run& run) {
  if (options.groups.is_on()) {
    if (!run.data) throw CLI::ValidationError("--group-by", "needs INDEX, not --size");
    if (options.batch.global_batch_size != 0) {
      throw CLI::ValidationError("--group-by", "needs --batch, not --global-batch");
    }
    return explain_groups(options.groups, run, options.batch.batch_size, options.step);
  }
  std::vector<GroupedStep> steps;
  for (Sampler::RankStep& rank : explain_step(*run.sampler, options.step)) {
    steps.push_back({std::move(rank), {}});
  }
  return steps;
}

void run(const ExplainOptions& options, Output& out) {
  RunArguments arguments = options.run;
  arguments.takes_batches = options.groups.is_on();
  const Run run = open_run(arguments, checked(options.batch));
  std::vector<TableColumn> columns = {{"rank", Align::kRight}, {"sample", Align::kRight}};
  if (run.data) {
    columns.push_back({"key"});
    columns.push_back({"url", Align::kLeft, Cut::kStart});
  }
  if (options.groups.is_on()) columns.push_back({"group"});
  Table table(out, columns, options.header);
  for (const GroupedStep& batch : steps_of(options, run)) {
    const Sampler::RankStep& rank = batch.step;
    if (options.run.rank && *options.run.rank != rank.rank) continue;
    for (std::size_t place = 0; place < rank.samples.size(); ++place) {
      std::optional<SampleNames> names;
      if (run.data) names = names_of(*run.data, rank.samples[place]);
      if (options.json) {
        print_json(batch, place, names ? &*names : nullptr, options.groups.is_on(), out);
        continue;
      }
      std::vector<std::string> cells = {std::to_string(rank.rank),
                                        std::to_string(rank.samples[place])};
      if (names) {
        cells.push_back(escaped(names->key));
        cells.push_back(escaped(names->url));
      }
      if (options.groups.is_on()) cells.push_back(escaped(batch.group));
      table.add(std::move(cells));
    }
  }
  if (!options.json) table.finish();
}

}  // namespace

void add_explain_command(CLI::App& program, Output& out) {
  CLI::App* command = program.add_subcommand(
      "explain", "Print what each rank reads in one step: rank, sample, key and URL of the shard");
  const auto options = std::make_shared<ExplainOptions>();
  command
      ->add_option("--step", options->step,
                   "step of the epoch, from 0; with --token or --checkpoint, counted from the "
                   "position to resume from")
      ->required()
      ->transform(kWholeNumber)
      ->type_name("N");
  add_step_size(*command, options->batch);
  add_group_options(*command, options->groups);
  command->add_flag("--json", options->json, "print one JSON object per line");
  command->add_flag("--header", options->header, kHeaderHelp);
  add_run_options(*command, options->run, /*with_size=*/true);
  mark_common(*command, {"--step", "--batch", "--sampler", "--seed", "--epoch", "--world",
                         "--checkpoint", "--header", "--json"});
  command->footer(
      "Examples:\n  shardwise explain train.idx --epoch 3 --world 8 --step 1200 --batch 64\n"
      "  shardwise explain train.idx --checkpoint run.pt --world 8 --step 0 --batch 64\n"
      "  shardwise explain train.idx --step 0 --batch 64 --group-by \"width > height\"");
  command->callback([options, &out] { run(*options, out); });
}

}  // namespace shardwise::tools
