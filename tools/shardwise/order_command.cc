#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "commands.h"
#include "interrupt.h"
#include "options.h"
#include "order_options.h"

namespace shardwise::tools {
namespace {

constexpr std::size_t kNumbersAtOnce = 4096;

struct OrderCommandOptions {
  RunArguments run;
  std::uint64_t from = 0;
  std::uint64_t limit = std::numeric_limits<std::uint64_t>::max();
  bool json = false;
};

void run(const OrderCommandOptions& options, Output& out) {
  const Run run = open_run(options.run);
  Sampler& sampler = *run.sampler;
  if (!options.run.rank && sampler.world_size() > 1 && ::isatty(STDERR_FILENO) == 1) {
    say("note", fmt::format("these are the samples of rank 0 of {}; choose another rank with "
                            "--rank",
                            sampler.world_size()));
  }
  sampler.seek(options.from);
  std::vector<std::uint64_t> numbers(std::min<std::uint64_t>(kNumbersAtOnce, options.limit));
  for (std::uint64_t left = options.limit; left > 0;) {
    throw_if_interrupted();
    const std::size_t wanted = std::min<std::uint64_t>(numbers.size(), left);
    const std::uint64_t first = sampler.position();
    const std::size_t got = sampler.next_batch({numbers.data(), wanted});
    for (std::size_t i = 0; i < got; ++i) {
      if (options.json) {
        out.print("{{\"sample\":{},\"position\":{}}}\n", numbers[i],
                  sampler.position_in_epoch(first + i));
      } else {
        out.write(std::to_string(numbers[i]) + '\n');  // takes less time than print()
      }
    }
    if (got < wanted) return;
    left -= got;
  }
}

}  // namespace

void add_order_command(CLI::App& program, Output& out) {
  CLI::App* command =
      program.add_subcommand("order", "Print the sample numbers that one rank reads, one per line");
  const auto options = std::make_shared<OrderCommandOptions>();
  command->add_option("--from", options->from, "skip the first N samples of the rank")
      ->transform(kWholeNumber)
      ->type_name("N");
  command->add_option("--limit", options->limit, "print at most N samples")
      ->transform(kWholeNumber)
      ->type_name("N");
  command->add_flag("--json", options->json,
                    "print one JSON object per line: the sample, and its position in the epoch");
  add_run_options(*command, options->run, /*with_size=*/true);
  mark_common(*command, {"--size", "--sampler", "--seed", "--epoch", "--world", "--rank", "--from",
                         "--limit", "--json"});
  command->footer(
      "Without --rank, it prints the samples of rank 0. Under srun, mpirun or torchrun, and "
      "without --world, it prints those of the launcher's rank.\n\n"
      "Example:\n  shardwise order train.idx --epoch 3 --world 8 --rank 0 --limit 10");
  command->callback([options, &out] {
    go_by_launcher(options->run);
    run(*options, out);
  });
}

}  // namespace shardwise::tools
