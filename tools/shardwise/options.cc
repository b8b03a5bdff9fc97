#include "options.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <limits>

#include "base/text.h"

namespace shardwise::tools {
namespace {

/// Returns the bytes of a unit, or nullopt for an unknown unit.
std::optional<std::uint64_t> unit_bytes(std::string_view unit) {
  constexpr std::string_view kLetters = "KMGTPE";
  std::string upper(unit);
  for (char& c : upper) {
    if (c >= 'a' && c <= 'z') c = static_cast<char>(c - 'a' + 'A');
  }
  if (upper.empty() || upper == "B" || upper == "BYTES") return 1;
  const std::size_t power = kLetters.find(upper.front());
  const std::string_view rest = std::string_view(upper).substr(1);
  if (power == std::string_view::npos || (!rest.empty() && rest != "B" && rest != "IB")) {
    return std::nullopt;
  }
  std::uint64_t bytes = 1;
  for (std::size_t i = 0; i <= power; ++i) bytes *= rest == "B" ? 1000 : 1024;
  return bytes;
}

/// Returns the digits of a number without its thousands separators: "20000" for "20,000". Returns
/// the text unchanged if commas do not separate groups of three digits.
std::string without_separators(std::string_view text) {
  const std::size_t first = text.find(',');
  if (first == std::string_view::npos || first == 0 || first > 3) return std::string(text);
  std::string digits(text.substr(0, first));
  for (std::size_t i = first; i < text.size(); i += 4) {
    if (text[i] != ',' || text.size() - i < 4) return std::string(text);
    digits += text.substr(i + 1, 3);
  }
  return digits;
}

constexpr std::uint64_t kAny = std::numeric_limits<std::uint64_t>::max();

/// Removes thousands separators from `text`. Returns why `text` is not an integer from `least` to
/// `most`; returns "" if it is.
std::string problem_of_number(std::string& text, std::uint64_t least, std::uint64_t most = kAny) {
  std::uint64_t value = 0;
  const std::string digits = without_separators(text);
  const char* const end = digits.data() + digits.size();
  const auto [stop, error] = std::from_chars(digits.data(), end, value);
  const bool is_number = stop == end && error == std::errc();
  if (is_number && value >= least && value <= most) {
    text = digits;
    return {};
  }
  if (most != kAny) {
    return in_quotes(text) + " is not a whole number from " + std::to_string(least) + " to " +
           std::to_string(most);
  }
  if (stop == end && error == std::errc::result_out_of_range) {
    return in_quotes(text) + " is too large; give a number below 2^64";
  }
  return in_quotes(text) + " is not a whole number of at least " + std::to_string(least);
}

}  // namespace

std::optional<std::uint64_t> parse_byte_size(std::string_view text) {
  const std::size_t num_digits = std::min(text.find_first_not_of("0123456789,"), text.size());
  const std::string digits = without_separators(text.substr(0, num_digits));
  const char* const end = digits.data() + digits.size();
  std::uint64_t number = 0;
  const auto [stop, error] = std::from_chars(digits.data(), end, number);
  if (error != std::errc() || stop != end) return std::nullopt;
  std::string_view unit = text.substr(num_digits);
  if (unit.size() > 1 && unit.front() == ' ') unit.remove_prefix(1);
  const std::optional<std::uint64_t> bytes = unit_bytes(unit);
  if (!bytes || number > std::numeric_limits<std::uint64_t>::max() / *bytes) return std::nullopt;
  return number * *bytes;
}

std::optional<std::chrono::milliseconds> parse_duration(std::string_view text) {
  struct TimeUnit {
    std::string_view name;
    std::chrono::milliseconds length;
  };
  constexpr std::array<TimeUnit, 5> kUnits{{{"ms", std::chrono::milliseconds(1)},
                                            {"s", std::chrono::seconds(1)},
                                            {"m", std::chrono::minutes(1)},
                                            {"h", std::chrono::hours(1)},
                                            {"d", std::chrono::hours(24)}}};
  const char* const end = text.data() + text.size();
  std::int64_t number = 0;
  const auto [stop, error] = std::from_chars(text.data(), end, number);
  if (error != std::errc() || number < 0) return std::nullopt;
  const std::string_view name(stop, static_cast<std::size_t>(end - stop));
  if (name.empty() && number == 0) return std::chrono::milliseconds::zero();
  for (const TimeUnit& unit : kUnits) {
    const bool fits = number <= std::chrono::milliseconds::max() / unit.length;
    if (unit.name == name && fits) return number * unit.length;
  }
  return std::nullopt;
}

void mark_common(CLI::App& command, std::initializer_list<const char*> names) {
  for (const char* name : names) command.get_option(name)->configurable(false);
}

CLI::Option* add_byte_size(CLI::App& command, const std::string& name, std::uint64_t& value,
                           const std::string& text) {
  return command.add_option(name, value, text)->transform(kByteSize)->type_name(kSizeType);
}

const CLI::Validator kByteSize(
    [](std::string& text) {
      const std::optional<std::uint64_t> bytes = parse_byte_size(text);
      if (!bytes)
        return in_quotes(text) +
               " is not a size; write a number of bytes, or e.g. 512M, 20GiB or 500MB";
      text = std::to_string(*bytes);
      return std::string();
    },
    "", "bytes");

const CLI::Validator kWholeNumber([](std::string& text) { return problem_of_number(text, 0); }, "");

const CLI::Validator kPositiveNumber([](std::string& text) { return problem_of_number(text, 1); },
                                     "");

void add_new_shard_options(CLI::App& command, std::uint64_t& max_samples, std::uint64_t& max_bytes,
                           std::string& prefix) {
  command.add_option("--max-samples", max_samples, "maximum samples per shard")
      ->transform(kPositiveNumber)
      ->type_name("N")
      ->capture_default_str();
  add_byte_size(command, "--max-bytes", max_bytes, "maximum bytes per shard");
  command.add_option("--prefix", prefix, "beginning of the shards' names")
      ->check([](const std::string& text) {
        return text.find('/') == std::string::npos ? ""
                                                   : "must not contain a slash; name a folder "
                                                     "with --output";
      })
      ->type_name("TEXT")
      ->capture_default_str();
}

const CLI::Validator kNumThreads([](std::string& text) { return problem_of_number(text, 0, 1024); },
                                 "");

}  // namespace shardwise::tools
