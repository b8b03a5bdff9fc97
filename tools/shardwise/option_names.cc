#include "option_names.h"

#include <algorithm>
#include <array>
#include <utility>

namespace shardwise::tools {
namespace {

/// What the library says, and what it is on the command line. The first that fits is taken, so
/// longer ones come first.
constexpr std::array kNames = std::to_array<std::pair<std::string_view, std::string_view>>({
    // Sentences.
    {", or be more patient (FetchOptions: connect_timeout, low_speed_time, max_retries)", ""},
    {", or allow more retries (FetchOptions::max_retries)", ""},
    {"name it (FetchOptions::ca_file)", "add it to the certificates of this machine"},
    {", or name the authorities' certificates (FetchOptions::ca_file)", ""},
    {"name it (S3Options::region or AWS_REGION)", "name it in the environment: AWS_REGION"},
    {"set FetchOptions::allow_pipe (--allow-pipe)", "give --allow-pipe"},
    {"use http, https, s3 or file, or add a fetcher (Fetchers::add)",
     "use http, https, s3 or file"},
    {"give a cache (DatasetOptions::cache, --cache DIR)", "give --cache DIR"},
    {"read single samples (Access::kRange, --access range)",
     "read single samples with --access range"},
    {"map the shards (Access::kMap)", "map the shards with --access map"},
    {"(IndexCacheOptions::build_missing)", "(--no-index-cache)"},
    {"name another folder (IndexCacheOptions::directory, --index-cache DIR)",
     "name another folder with --index-cache DIR"},
    {"or index with the policy `skip`", "or index with --on-bad skip"},
    {"index without unique keys",
     "index without --unique-keys (--forget, if the index before was built with it)"},
    {"use BalancedSampler, or make_sampler with sizes", "give INDEX instead of --size"},
    {" (DatasetOptions::root)", ""},
    {" (DatasetOptions::accept_times)", ""},
    {" (BuildOptions::accept_times)", ""},
    {" (BuildOptions::drop_missing)", ""},
    // Options whose names are also words.
    {"rank is", "--rank is"},
    {"rank means", "--rank means"},
    {"window is", "--window is"},
    {"window means", "--window means"},
    {"tail means", "--tail means"},
    {"resample means", "--resample means"},
    {"seed means", "--seed means"},
    {"epoch means", "--epoch means"},
    {"replicas means", "--replicas means"},
    {"replicas is", "--replicas is"},
    {"tail pad", "--tail pad"},
    {"phase means", "--phase means"},
    {"shuffle means", "--no-shuffle means"},
    // Names that are nothing else.
    {"DatasetOptions::cache", "--cache"},
    {"FetchOptions::allow_pipe", "--allow-pipe"},
    {"ShardCacheOptions::budget_bytes", "--cache-bytes"},
    {"ShardCacheOptions::bypass_large", "--cache-bypass-large"},
    {"BuildOptions::drop_missing", "--drop-missing"},
    {"QueryLimits::scratch_bytes", "--scratch-bytes"},
    {"Access::kMap", "--access map"},
    {"Access::kRead", "--access read"},
    {"Access::kRange", "--access range"},
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
    {"global_batch_size", "--global-batch-size"},
    {"max_bad", "--max-bad"},
    {"streams", "--streams"},
    {"image_field", "--image-field"},
    {"label_field", "--label-field"},
});

bool is_of_a_name(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
         c == '-';
}

/// True if `name` stands in `text` at `at` as a whole.
bool stands_at(std::string_view text, std::size_t at, std::string_view name) {
  if (text.substr(at, name.size()) != name) return false;
  const std::size_t end = at + name.size();
  if (is_of_a_name(name.front()) && at > 0 && is_of_a_name(text[at - 1])) return false;
  return !is_of_a_name(name.back()) || end == text.size() || !is_of_a_name(text[end]);
}

/// Where the quotation that begins at `at` ends, or `at` if it is none but an apostrophe.
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
      named += name->second;
      at += name->first.size();
    }
  }
  return named;
}

}  // namespace shardwise::tools
