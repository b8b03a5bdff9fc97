#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <memory>
#include <vector>

#include "commands.h"
#include "interrupt.h"
#include "options.h"
#include "order_options.h"

namespace shardwise::tools {
namespace {

constexpr std::size_t kNumbersAtOnce = 4096;

struct OrderCommandOptions {
  OrderedArguments samples;
  OrderArguments order;
  std::uint64_t from = 0;
  std::uint64_t limit = std::numeric_limits<std::uint64_t>::max();
};

void run(const OrderCommandOptions& options, Output& out) {
  const std::unique_ptr<Sampler> sampler =
      sampler_for(options.order, open_ordered(options.samples));
  sampler->seek(options.from);
  std::vector<std::uint64_t> numbers(std::min<std::uint64_t>(kNumbersAtOnce, options.limit));
  for (std::uint64_t left = options.limit; left > 0;) {
    throw_if_interrupted();
    const std::size_t wanted = std::min<std::uint64_t>(numbers.size(), left);
    const std::size_t got = sampler->next_batch({numbers.data(), wanted});
    for (std::size_t i = 0; i < got; ++i) out.print("{}\n", numbers[i]);
    if (got < wanted) return;
    left -= got;
  }
}

}  // namespace

void add_order_command(CLI::App& program, Output& out) {
  CLI::App* command =
      program.add_subcommand("order", "Print the sample numbers that one rank gets, one a line");
  const auto options = std::make_shared<OrderCommandOptions>();
  add_ordered_arguments(*command, options->samples);
  command->add_option("--from", options->from, "begin at this one of the rank's samples, from 0")
      ->check(kWholeNumber)
      ->type_name("POS");
  command->add_option("--limit", options->limit, "at most so many")
      ->check(kWholeNumber)
      ->type_name("N");
  add_order_options(*command, options->order);
  command->footer("Example:\n  shardwise order train.idx --epoch 3 --world 8 --rank 0 --limit 10");
  command->callback([options, &out] { run(*options, out); });
}

}  // namespace shardwise::tools
