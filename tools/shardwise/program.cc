#include "program.h"

#include <exception>
#include <new>

#include "commands.h"
#include "shardwise/base/error.h"

namespace shardwise::tools {
namespace {

constexpr int kDone = 0;
constexpr int kFailed = 1;
constexpr int kWrongUsage = 2;
constexpr int kInterrupted = 130;

int failed(Output& out, std::string_view text) {
  try {
    out.flush();  // what was found before the error
  } catch (const std::exception&) {
    // One error is enough.
  } catch (const ReaderGone&) {
    // The error still counts.
  }
  say("error", text);
  return kFailed;
}

}  // namespace

int run_program(int argc, char** argv) {
  Output out;
  CLI::App program("Indexed random access to WebDataset tar shards with exact epochs", "shardwise");
  program.set_version_flag("--version", "shardwise " SHARDWISE_VERSION);
  program.require_subcommand(1);
  program.failure_message([](const CLI::App*, const CLI::Error& e) {
    return fmt::format("shardwise: error: {}; see --help\n", e.what());
  });
  program.footer("Each command has its own help and an example: shardwise index --help");
  add_index_command(program, out);
  add_merge_command(program, out);
  add_info_command(program, out);
  add_ls_command(program, out);
  add_cat_command(program, out);
  add_verify_command(program, out);
  add_query_command(program, out);
  add_order_command(program, out);
  add_explain_command(program, out);
  add_when_command(program, out);
  add_plan_command(program, out);
  add_epoch_command(program, out);
  add_export_command(program, out);
  add_cache_command(program, out);
  add_pack_command(program, out);
  try {
    program.parse(argc, argv);
    out.flush();
    return kDone;
  } catch (const CLI::ParseError& e) {
    return program.exit(e) == 0 ? kDone : kWrongUsage;
  } catch (const ReaderGone&) {
    return kDone;
  } catch (const Cancelled&) {
    say("error", "interrupted; nothing was left half-written");
    return kInterrupted;
  } catch (const std::bad_alloc&) {
    return failed(out, "not enough memory");
  } catch (const std::exception& e) {
    return failed(out, e.what());
  }
}

}  // namespace shardwise::tools
