#include "program.h"

#include <CLI/CLI.hpp>

#include <exception>
#include <initializer_list>
#include <new>
#include <optional>

#include "base/cancel_scope.h"
#include "command_line.h"
#include "commands.h"
#include "interrupt.h"
#include "shardwise/base/error.h"
#include "version.h"

namespace shardwise::tools {
namespace {

int failed(Output& out, std::string_view text) {
  try {
    out.flush();  // results found before the error are written, too
  } catch (const std::exception&) {
    // Report only the first error.
  } catch (const ReaderGone&) {
    // The exit code reports the error.
  }
  say("error", text);
  return kExitFailed;
}

void add_commands(CLI::App& program, Output& out) {
  add_index_command(program, out);
  add_merge_command(program, out);
  add_attach_command(program, out);
  add_info_command(program, out);
  add_ls_command(program, out);
  add_cat_command(program, out);
  add_verify_command(program, out);
  add_query_command(program, out);
  add_export_command(program, out);
  add_pack_command(program, out);
  add_repack_command(program, out);
  add_order_command(program, out);
  add_explain_command(program, out);
  add_when_command(program, out);
  add_plan_command(program, out);
  add_epoch_command(program, out);
  add_token_command(program, out);
  add_cache_command(program, out);
  add_help_command(program, out);
  add_version_command(program, out);
  const auto group = [&](const char* title, std::initializer_list<const char*> names) {
    for (const char* name : names) program.get_subcommand(name)->group(title);
  };
  group("Indexes", {"index", "merge", "attach", "info", "ls", "cat", "verify", "query", "export"});
  group("Shards", {"pack", "repack", "cache"});
  group("Orders and epochs", {"order", "explain", "when", "plan", "epoch", "token"});
  group("About the program", {"help", "version"});
}

}  // namespace

std::unique_ptr<CLI::App> make_program(Output& out) {
  auto program = std::make_unique<CLI::App>(
      "Indexed random access to WebDataset tar shards with exact epochs", "shardwise");
  program->set_version_flag(
      "-V,--version", [] { return version_text("shardwise", version_json()); },
      "show versions, and exit");
  program->require_subcommand(1);
  add_commands(*program, out);
  add_usual_options(*program);
  // Set the footer after adding the commands, which would otherwise inherit it.
  program->footer(
      "Each command has its own help, with an example: `shardwise help index`. Its short help "
      "lists "
      "the common options: `shardwise index -h`\n\n"
      "Examples:\n  shardwise index -o train.idx 'train-{000000..001281}.tar'\n"
      "  shardwise cat train.idx 42 jpg > 42.jpg");
  return program;
}

int run_program(int argc, char** argv) {
  Output out;
  const detail::CancelScope heard(interrupt_flag());
  const std::unique_ptr<CLI::App> program = make_program(out);
  try {
    if (const std::optional<int> exit_code = parse_command_line(*program, argc, argv, out)) {
      return *exit_code;
    }
    out.flush();
    return kExitDone;
  } catch (const ReaderGone&) {
    return kExitDone;
  } catch (const Interrupted& e) {
    say("error", e.what());
    return interrupt_exit_code();
  } catch (const Cancelled&) {
    say("error", "interrupted; nothing was left half-written");
    return interrupt_exit_code();
  } catch (const std::bad_alloc&) {
    return failed(
        out,
        "not enough memory; raise the limit on the address space (ulimit -v), or run with "
        "fewer threads");
  } catch (const std::exception& e) {
    return failed(out, e.what());
  }
}

}  // namespace shardwise::tools
