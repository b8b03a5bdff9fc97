#include "group_options.h"

#include <charconv>

#include "base/text.h"
#include "options.h"

namespace shardwise::tools {
namespace {

constexpr const char* kGroupGroup = "Batches by group";

}  // namespace

void add_group_options(CLI::App& command, GroupArguments& arguments) {
  CLI::Option* const by =
      command
          .add_option("--group-by", arguments.expression,
                      "make batches by group, as Loader with by_group does: the SQL expression "
                      "gives the group of a sample, e.g. \"width > height\"")
          ->type_name("SQL")
          ->group(kGroupGroup);
  command
      .add_option("--group", arguments.groups,
                  "a group and its batch size; 0 means the size of --batch; give the option once "
                  "for each group, in the order of the run (default: each value of the "
                  "expression is a group)")
      ->type_name("KEY=BATCH")
      ->needs(by)
      ->group(kGroupGroup);
  command
      .add_option("--group-window", arguments.window,
                  "number of consecutive positions of the order whose samples are divided into "
                  "batches together (default: 8192)")
      ->transform(kPositiveNumber)
      ->type_name("N")
      ->needs(by)
      ->group(kGroupGroup);
  command
      .add_option("--leftovers", arguments.leftovers,
                  "rule for samples of a group that do not fill a batch at the end of a window")
      ->check(CLI::IsMember({"hold_over", "smaller_batch"}))
      ->capture_default_str()
      ->needs(by)
      ->group(kGroupGroup);
}

std::vector<GroupSize> parse_groups(const std::vector<std::string>& groups) {
  std::vector<GroupSize> parsed;
  for (const std::string& group : groups) {
    const std::size_t mark = group.rfind('=');
    const std::string text = mark == std::string::npos ? "" : group.substr(mark + 1);
    GroupSize& one = parsed.emplace_back(GroupSize{.key = group.substr(0, mark)});
    const auto [end, error] =
        std::from_chars(text.data(), text.data() + text.size(), one.batch_size);
    if (error != std::errc() || end != text.data() + text.size()) {
      throw CLI::ValidationError("--group " + in_quotes(group), "write KEY=BATCH, e.g. wide=64");
    }
  }
  return parsed;
}

}  // namespace shardwise::tools
