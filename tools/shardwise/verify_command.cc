#include <fmt/core.h>

#include <memory>

#include "commands.h"
#include "interrupt.h"
#include "progress.h"
#include "shardwise/base/mapped_file.h"
#include "shardwise/base/text.h"
#include "shardwise/index/index.h"
#include "shardwise/index/sample_name.h"
#include "shardwise/index/tar_scanner.h"

namespace shardwise::tools {
namespace {

struct VerifyOptions {
  std::string index;
  bool quiet = false;
  bool json = false;
};

/// Holds the members that a scan finds against the index's records, in archive order.
class MemberComparison {
 public:
  explicit MemberComparison(const SegmentView& segment) : segment_(segment) {}

  void see(const TarMember& member) {
    if (next_ == segment_.num_members() || !problem_.empty()) return;
    const MemberRecord& record = segment_.members()[next_];
    // What lies before the next member of the index is in no sample, or was skipped.
    if (member.data_offset < record.data_offset()) return;
    while (next_ == end_of_sample()) ++sample_;
    const std::optional<SampleName> name = split_sample_name(member.name);
    if (member.data_offset != record.data_offset() || member.size_bytes != record.size_bytes ||
        !name || name->key != segment_.key(sample_) ||
        lower_case(name->field) != segment_.field_name(record.field())) {
      problem_ = fmt::format(
          "{} at offset {} with {} bytes, where the index has {} of sample {} at offset {} with {} "
          "bytes",
          in_quotes(member.name), member.data_offset, member.size_bytes,
          in_quotes(segment_.field_name(record.field())), in_quotes(segment_.key(sample_)),
          record.data_offset(), record.size_bytes);
    }
    ++next_;
  }

  /// Empty if all members of the index were seen as they are there.
  std::string problem() const {
    if (!problem_.empty() || next_ == segment_.num_members()) return problem_;
    return fmt::format("no member at offset {}, where the index has one",
                       segment_.members()[next_].data_offset());
  }

 private:
  std::uint32_t end_of_sample() const {
    const auto members = segment_.members(sample_);
    return static_cast<std::uint32_t>(members.data() + members.size() - segment_.members().data());
  }

  static std::string lower_case(std::string_view text) {
    std::string lower(text);
    for (char& c : lower) {
      if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
    }
    return lower;
  }

  const SegmentView segment_;
  std::uint32_t next_ = 0;    // member
  std::uint32_t sample_ = 0;  // that holds it
  std::string problem_;
};

/// What tells `shard`'s file from the one that was indexed; empty if nothing does.
std::string difference(const Index& index, const ShardInfo& shard, bool lenient) {
  try {
    const MappedFile file = MappedFile::open(shard.path, MappedFile::Access::kNormal);
    require_unchanged(shard, file.identity().size_bytes, file.identity().mtime_ns);
    MemberComparison members(index.segment(shard.number));
    const TarScanReport report =
        scan_tar(file.bytes(), shard.path, {.lenient = lenient}, [&](const TarMember& member) {
          throw_if_interrupted();
          members.see(member);
        });
    if (report.header_hash == shard.header_hash) return members.problem();
    const std::string problem = members.problem();
    return problem.empty() ? "headers differ from those that were indexed" : problem;
  } catch (const Cancelled&) {
    throw;
  } catch (const CorruptIndex&) {
    throw;
  } catch (const Error& e) {
    return e.what();
  }
}

void print_result(const ShardInfo& shard, const std::string& problem, bool json, Output& out) {
  if (!json) {
    out.print("{}  {}{}{}\n", problem.empty() ? "ok     " : "DIFFERS", escaped(shard.path),
              problem.empty() ? "" : ": ", problem);
    return;
  }
  std::string line = fmt::format("{{\"shard\":{},", shard.number);
  append_json_name(line, "url", shard.path);
  line += problem.empty() ? ",\"ok\":true" : ",\"ok\":false,\"problem\":";
  if (!problem.empty()) append_json_string(line, problem);
  out.print("{}}}\n", line);
}

void run(const VerifyOptions& options, Output& out) {
  const std::shared_ptr<const Index> index = Index::open(options.index);
  index->check();
  const IndexSummary summary = index->summary();
  Progress progress("verifying", Unit::kBytes, options.quiet);
  std::uint64_t bytes_done = 0;
  std::uint64_t num_different = 0;
  for (std::uint64_t number = 0; number < index->num_shards(); ++number) {
    throw_if_interrupted();
    const ShardInfo shard = index->shard(number);
    const std::string problem = difference(*index, shard, summary.on_bad == "skip");
    num_different += problem.empty() ? 0 : 1;
    print_result(shard, problem, options.json, out);
    bytes_done += shard.size_bytes;
    progress.update(bytes_done, summary.shard_bytes, [&] {
      return fmt::format("{} of {}", human_count(number + 1), counted(summary.num_shards, "shard"));
    });
  }
  progress.clear();
  if (num_different > 0) {
    throw StaleIndex(
        fmt::format("{} of {} differ from what was indexed", human_count(num_different),
                    counted(summary.num_shards, "shard")),
        in_quotes(options.index),
        "restore the shards, or run shardwise index again to take them as they are now");
  }
}

}  // namespace

void add_verify_command(CLI::App& program, Output& out) {
  CLI::App* command = program.add_subcommand(
      "verify", "Check every shard against the index: its size, its time, and each of its headers");
  const auto options = std::make_shared<VerifyOptions>();
  command->add_option("INDEX", options->index, "the index")->required()->type_name("");
  command->add_flag("--quiet", options->quiet, "show no progress");
  command->add_flag("--json", options->json, "print one JSON object a shard");
  command->footer("Example:\n  shardwise verify train.idx");
  command->callback([options, &out] { run(*options, out); });
}

}  // namespace shardwise::tools
