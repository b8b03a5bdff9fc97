#include "option_names.h"

#include <algorithm>
#include <array>
#include <utility>

#include "console.h"

namespace shardwise::tools {
namespace {

/// Names in texts of the library, and those of the command line. The first match is used, so longer
/// names come first.
constexpr std::array kNames = std::to_array<std::pair<std::string_view, std::string_view>>({
    // Sentences.
    {", or be more patient (Fetchers::Options: connect_timeout, low_speed_time, retry_for)",
     ", or for longer (--retry-for)"},
    {"(Fetchers::Options::retry_for)", "(--retry-for)"},
    {"(Fetchers::Options: moved, resolve, headers, netrc_file)",
     "(--url-base, --http-header, --bearer-token-file, --netrc-file)"},
    {" (SSL_CERT_FILE, Fetchers::Options::ca_file)", " with --ca-file"},
    {"name it (Fetchers::S3Options::region or AWS_REGION)",
     "name it in the environment: AWS_REGION"},
    {"set Fetchers::Options::allow_pipe (--allow-pipe)", "give --allow-pipe"},
    {"use http, https, s3, gs, az, hf or file, or add a fetcher (Fetchers::add)",
     "use http, https, s3, gs, az, hf or file"},
    {"give a cache (Dataset::Options::cache, --cache DIR)", "give --cache DIR"},
    {"read single samples (Dataset::Access::kRange, --access range)",
     "read single samples with --access range"},
    {"map the shards (Dataset::Access::kMap)", "map the shards with --access map"},
    {"(IndexCacheOptions::build_missing)", "(--no-index-cache)"},
    {"name another folder (IndexCacheOptions::directory, --index-cache DIR)",
     "name another folder with --index-cache DIR"},
    {"index without unique keys",
     "index without --unique-keys (--forget, if the index before was built with it)"},
    {"open the index without a root,", "leave out --root,"},
    {" with --root (Dataset::Options::root) ", " with --root "},
    {" (Dataset::Options::allow_part, --allow-part)", " with --allow-part"},
    {" (Dataset::Options::root)", ""},
    {" (Dataset::Options::accept_times)", ""},
    {" (BuildOptions::accept_times)", ""},
    {" (BuildOptions::drop_missing)", ""},
    {", or a larger max_open_shards of the data set", ""},
    {"set resize, or a crop", "give --resize HEIGHTxWIDTH"},
    {"name the image's field", "name the image's field with --image-field"},
    {"smaller images, or ImageDecoding::Scaling::kFast", "smaller images"},
    {"fetch_threads = ", "--prefetch "},
    {"threads = ", "--threads "},
    // Options whose names are also words of English.
    {"rank is", "--rank is"},
    {"window is", "--window is"},
    {"threads is", "--threads is"},
    {"replicas is", "--replicas is"},
    {"tail pad", "--tail pad"},
    // Names without another meaning.
    {"Dataset::Options::cache", "--cache"},
    {"Fetchers::Options::allow_pipe", "--allow-pipe"},
    {"Fetchers::Options::ca_file", "--ca-file"},
    {"Fetchers::Options::headers", "--http-header"},
    {"Fetchers::Options::max_connections_per_host", "--host-connections"},
    {"Fetchers::Options::max_connections_per_shard", "--shard-connections"},
    {"Fetchers::Options::moved", "--url-base"},
    {"Fetchers::Options::retry_for", "--retry-for"},
    {"ShardCache::Options::budget_bytes", "--cache-bytes"},
    {"ShardCache::Options::bypass_large", "--cache-bypass-large"},
    {"BuildOptions::drop_missing", "--drop-missing"},
    {"Query::Limits::scratch_bytes", "--scratch-bytes"},
    {"Dataset::Access::kMap", "--access map"},
    {"Dataset::Access::kRead", "--access read"},
    {"(Dataset::Access::kRange, --access range)", "(--access range)"},
    {"Dataset::Access::kRange", "--access range"},
    {"chunk_size", "--chunk"},
    {"world_size", "--world"},
    {"epoch_size", "--epoch-size"},
    {"batch_size", "--batch"},
    {"balance_bytes", "--balance-bytes"},
    {"budget_bytes", "--cache-bytes"},
    {"bypass_large", "--cache-bypass-large"},
    {"drop_missing", "--drop-missing"},
    {"unique_keys", "--unique-keys"},
    {"shufflefirst", "--shufflefirst"},
    {"global_batch_size", "--global-batch"},
    {"max_bad", "--max-bad"},
    {"max_samples", "--max-samples"},
    {"max_bytes", "--max-bytes"},
    {"streams", "--streams"},
    {"image_field", "--image-field"},
    {"label_field", "--label-field"},
});

/// An option's name in this program: shardwise-train names some differently.
std::string_view name_here(std::string_view option) {
  if (std::string_view(program_name()) != "shardwise-train") return option;
  if (option == "--batch") return "--batch-size";
  if (option == "--global-batch") return "--global-batch-size";
  return option;
}

bool is_of_a_name(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
         c == '-';
}

/// True if `name` is in `text` at `at` as a whole word.
bool stands_at(std::string_view text, std::size_t at, std::string_view name) {
  if (text.substr(at, name.size()) != name) return false;
  const std::size_t end = at + name.size();
  if (is_of_a_name(name.front()) && at > 0 && is_of_a_name(text[at - 1])) return false;
  return !is_of_a_name(name.back()) || end == text.size() || !is_of_a_name(text[end]);
}

/// The end of the quotation that begins at `at`; returns `at` for an apostrophe.
std::size_t end_of_quotation(std::string_view text, std::size_t at) {
  if (text[at] != '\'' || (at > 0 && is_of_a_name(text[at - 1]))) return at;
  const std::size_t end = text.find('\'', at + 1);
  return end == std::string_view::npos ? at : end + 1;
}

}  // namespace

std::string with_option_names(std::string_view text) {
  std::string named;
  for (std::size_t at = 0; at < text.size();) {
    if (const std::size_t end = end_of_quotation(text, at); end > at) {
      named += text.substr(at, end - at);
      at = end;
      continue;
    }
    const auto* const name = std::find_if(
        kNames.begin(), kNames.end(), [&](const auto& n) { return stands_at(text, at, n.first); });
    if (name == kNames.end()) {
      named += text[at++];
    } else {
      named += name_here(name->second);
      at += name->first.size();
    }
  }
  return named;
}

}  // namespace shardwise::tools
