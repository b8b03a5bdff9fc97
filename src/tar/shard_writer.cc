#include "shardwise/tar/shard_writer.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <set>
#include <system_error>
#include <utility>

#include "base/ascii.h"
#include "base/errno_error.h"
#include "base/error_types.h"
#include "base/file.h"
#include "base/normal_path.h"
#include "base/spelling.h"
#include "base/text.h"
#include "shardwise/base/error.h"
#include "tar/sample_name.h"
#include "tar/shard_set.h"
#include "tar/tar_writer.h"

namespace shardwise {
namespace {

constexpr unsigned kMaxDigits = 19;

[[noreturn]] void bad_pattern(std::string_view pattern, const char* what) {
  throw InvalidArgument(what, in_quotes(pattern),
                        "write the shard's number as %06d or {:06}, e.g. 'data/train-%06d.tar'");
}

/// Removes a placeholder for the number, "%06d" or "{:06}", from the front of `rest`. Returns its
/// number of digits, or nothing if `rest` does not begin with a placeholder.
std::optional<unsigned> take_number(std::string_view& rest, std::string_view pattern) {
  const bool braces = rest.starts_with('{');
  if (!braces && !rest.starts_with('%')) return std::nullopt;
  std::string_view inside = rest.substr(1);
  const std::size_t end = inside.find(braces ? '}' : 'd');
  if (end == std::string_view::npos)
    bad_pattern(pattern, "the number in the pattern lacks its closing brace");
  rest = inside.substr(end + 1);
  inside = inside.substr(0, end);
  if (braces && inside.starts_with(':')) inside.remove_prefix(1);
  if (braces && inside.ends_with('d')) inside.remove_suffix(1);
  if (inside.empty()) return 1;
  const std::optional<std::int64_t> digits = parse_int64(inside);
  if (!inside.starts_with('0') || !digits || *digits < 1 || *digits > kMaxDigits) {
    bad_pattern(pattern, "the number in the pattern is malformed");
  }
  return static_cast<unsigned>(*digits);
}

/// True if unpacking a member of this name would write outside the folder.
bool leads_out(std::string_view name) {
  if (name.starts_with('/')) return true;
  for (std::string_view rest = name; !rest.empty();) {
    const std::string_view part = rest.substr(0, rest.find('/'));
    if (part == "..") return true;
    rest.remove_prefix(std::min(rest.size(), part.size() + 1));
  }
  return false;
}

/// Throws unless readers split the name `key.field` into this key and this field.
void require_name(std::string_view key, std::string_view field) {
  const std::string name = std::string(key) + "." + std::string(field);
  if (leads_out(name)) {
    throw InvalidArgument("the key leads out of the folder when a shard is unpacked",
                          in_quotes(key), "leave out a leading slash and \"..\"");
  }
  const std::optional<SampleName> read = split_sample_name(name);
  const bool is_read_back = read && read->key == key && read->field == field;
  if (is_read_back && !is_meta_name(name) && !field.empty() &&
      name.find('\0') == std::string::npos) {
    return;
  }
  throw InvalidArgument(
      "readers would not split the name of the member into this key and field",
      in_quotes(key) + " and " + in_quotes(field),
      "use a key without a dot after its last slash, and a field without a slash; neither may be "
      "empty, hidden, reserved by webdataset, or contain NUL");
}

}  // namespace

std::string ShardWriter::Names::name(std::uint64_t number) const {
  std::string text = std::to_string(number);
  if (text.size() < digits) text.insert(0, digits - text.size(), '0');
  return before + text + after;
}

ShardWriter::Names parse_shard_names(std::string_view given) {
  ShardWriter::Names names{.before = {}, .digits = 0, .after = {}};
  const std::string at = at_home(std::string(given));
  const std::string_view pattern = at;
  std::string_view rest = pattern;
  while (!rest.empty()) {
    std::string& text = names.digits == 0 ? names.before : names.after;
    if (rest.starts_with("%%") || rest.starts_with("{{") || rest.starts_with("}}")) {
      text += rest[0];
      rest.remove_prefix(2);
    } else if (const auto digits = take_number(rest, pattern)) {
      if (names.digits != 0) bad_pattern(pattern, "the pattern has two numbers");
      names.digits = *digits;
    } else {
      text += rest[0];
      rest.remove_prefix(1);
    }
  }
  if (names.digits == 0) bad_pattern(pattern, "the pattern has no number");
  if (names.after.find('/') != std::string::npos) {
    bad_pattern(pattern, "the number in the pattern is in the name of a folder");
  }
  return names;
}

struct ShardWriter::Impl {
  Impl(ShardWriter::Names given, const ShardWriter::Options& how)
      : names(std::move(given)), options(how) {
    if (options.max_samples == 0 || options.max_bytes == 0) {
      throw InvalidOption(
          "a limit of the shards is 0", in_quotes(names.name(options.first)),
          "set " + spelled("max_samples") + " and " + spelled("max_bytes") + " to at least 1");
    }
  }

  void write(std::string_view key, std::span<const ShardWriter::Field> fields) {
    require_usable();
    require_sample(key, fields);
    std::uint64_t content_bytes = 0;
    std::uint64_t tar_bytes = 0;
    for (const ShardWriter::Field& field : fields) {
      const std::uint64_t size_bytes =
          field.file.empty() ? field.bytes.size() : file_identity(field.file).size_bytes;
      content_bytes += size_bytes;
      tar_bytes += TarWriter::member_bytes(size_bytes);
    }
    const std::uint64_t room = options.max_bytes - std::min(bytes, options.max_bytes);
    if (!keys.empty() && (keys.size() == options.max_samples || tar_bytes > room)) finish();
    if (keys.contains(std::string(key))) {
      throw InvalidArgument(
          "the key is already in this shard",
          in_quotes(names.name(options.first + totals.shards - 1)) + ", key " + in_quotes(key),
          "give each sample another key");
    }
    if (keys.empty()) begin();
    if (writer) {
      usable = false;
      for (const ShardWriter::Field& field : fields) add(key, field);
      usable = true;
    }
    keys.emplace(key);
    bytes += tar_bytes;
    ++totals.samples;
    totals.members += fields.size();
    totals.content_bytes += content_bytes;
  }

  void close() {
    require_usable();
    if (!keys.empty()) finish();
    usable = false;
    if (options.replace && !options.dry_run) remove_surplus();
  }

  /// Removes the surplus shards of an earlier, larger set, so that a pattern such as train-*.tar
  /// finds only this set.
  void remove_surplus() const {
    for (const std::uint64_t number : detail::numbers_there(names)) {
      const std::string path = names.name(number);
      if (number < options.first + totals.shards || !detail::is_of_shard_writer(path)) continue;
      if (totals.shards == 0) {
        throw InvalidArgument("no sample was written, but shards of an earlier set exist",
                              in_quotes(path), "remove these shards if an empty set is intended");
      }
      if (::unlink(path.c_str()) != 0) throw_errno(errno, "cannot remove the old shard", path);
    }
  }

  void require_usable() const {
    if (usable) return;
    throw InvalidArgument("the writer is closed, or has failed",
                          in_quotes(names.name(options.first)),
                          "make a new writer, and write the samples again");
  }

  void require_sample(std::string_view key, std::span<const ShardWriter::Field> fields) const {
    std::set<std::string> lower;
    for (const ShardWriter::Field& field : fields) {
      require_name(key, field.name);
      if (!lower.insert(to_lower(field.name)).second) {
        throw InvalidArgument(
            "the field occurs twice in the sample",
            in_quotes(field.name) + ", key " + in_quotes(key),
            "rename one of the two fields; readers ignore the case of field names");
      }
    }
    if (fields.empty()) {
      throw InvalidArgument("the sample has no fields", in_quotes(key), "leave the sample out");
    }
  }

  void require_free(const std::string& path) const {
    std::error_code failed;  // the creation of the file then reports the error
    const auto status = std::filesystem::symlink_status(path, failed);
    if (options.replace || !std::filesystem::exists(status)) return;
    throw InvalidArgument("the shard already exists", in_quotes(path),
                          "choose another name" +
                              if_there(", or replace it (", "ShardWriter::Options::replace", ")"));
  }

  void begin() {
    const std::string path = names.name(options.first + totals.shards);
    require_free(path);
    if (!options.dry_run) {
      sweep_temporaries(path);
      writer = std::make_unique<TarWriter>(path);
    }
    ++totals.shards;
  }

  void add(std::string_view key, const ShardWriter::Field& field) {
    const std::string name = std::string(key) + "." + field.name;
    if (field.file.empty()) {
      writer->add(name, field.bytes);
    } else {
      writer->add_file(name, field.file);
    }
  }

  void finish() {
    std::string path = names.name(options.first + totals.shards - 1);
    if (writer) {
      usable = false;
      const std::unique_ptr<TarWriter> whole = std::move(writer);
      require_free(path);  // another writer may have created the file meanwhile
      whole->commit();
      totals.shard_bytes += file_identity(path).size_bytes;
      usable = true;
    } else {
      totals.shard_bytes += TarWriter::archive_bytes(bytes);
    }
    paths.push_back(std::move(path));
    keys.clear();
    bytes = 0;
  }

  const ShardWriter::Names names;
  const ShardWriter::Options options;
  bool usable = true;
  std::unique_ptr<TarWriter> writer;  // the current shard's writer; null in a dry run
  std::set<std::string> keys;         // keys in the current shard; empty if none was begun
  std::uint64_t bytes = 0;            // bytes of the members of the current shard
  Totals totals;
  std::vector<std::string> paths;
};

ShardWriter::ShardWriter(std::string_view pattern) : ShardWriter(pattern, Options{}) {}
ShardWriter::ShardWriter(std::string_view pattern, const Options& options)
    : ShardWriter(parse_shard_names(pattern), options) {}
ShardWriter::ShardWriter(const Names& names, const Options& options)
    : impl_(std::make_unique<Impl>(names, options)) {}
ShardWriter::~ShardWriter() = default;
ShardWriter::ShardWriter(ShardWriter&&) noexcept = default;
ShardWriter& ShardWriter::operator=(ShardWriter&&) noexcept = default;

void ShardWriter::write(std::string_view key, std::span<const ShardWriter::Field> fields) {
  impl_->write(key, fields);
}
void ShardWriter::close() { impl_->close(); }
const ShardWriter::Totals& ShardWriter::totals() const noexcept { return impl_->totals; }
const std::vector<std::string>& ShardWriter::paths() const noexcept { return impl_->paths; }

}  // namespace shardwise
