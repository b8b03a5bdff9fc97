#include "base/agreement.h"

#include <algorithm>
#include <cstdint>
#include <map>

#include "base/bytes.h"
#include "base/text.h"

namespace shardwise::detail {
namespace {

void put_counted(std::string& bytes, const std::string& text) {
  char size[4];
  store_le32(size, static_cast<std::uint32_t>(text.size()));
  bytes.append(size, sizeof size);
  bytes += text;
}

std::optional<std::string> take_counted(std::string_view& bytes) {
  if (bytes.size() < 4) return std::nullopt;
  const std::uint32_t size = load_le32(bytes.data());
  if (size > bytes.size() - 4) return std::nullopt;
  std::string text(bytes.substr(4, size));
  bytes.remove_prefix(4 + size);
  return text;
}

/// Returns the value of `name`, or nothing if the record lacks it.
std::optional<std::string> find_value(const Record& record, const std::string& name) {
  for (const auto& [own, value] : record) {
    if (own == name) return value;
  }
  return std::nullopt;
}

/// Describes how the values of `name` differ, e.g. "'64' on rank 3 and '32' on ranks 0 to 2".
/// Returns nothing if all ranks have the same value.
std::optional<std::string> difference(const std::vector<Record>& of_ranks,
                                      const std::string& name) {
  // Groups the ranks by value, the smallest group first, so that the text begins with the ranks
  // that differ.
  std::map<std::optional<std::string>, std::vector<int>> ranks;
  for (std::size_t rank = 0; rank < of_ranks.size(); ++rank) {
    ranks[find_value(of_ranks[rank], name)].push_back(static_cast<int>(rank));
  }
  if (ranks.size() < 2) return std::nullopt;
  std::vector<std::pair<std::optional<std::string>, std::vector<int>>> groups(ranks.begin(),
                                                                              ranks.end());
  std::stable_sort(groups.begin(), groups.end(), [](const auto& a, const auto& b) {
    if (a.second.size() != b.second.size()) return a.second.size() < b.second.size();
    return a.second.front() > b.second.front();
  });
  constexpr std::size_t kMaxValues = 4;
  std::string text = "the " + name + " is ";
  for (std::size_t i = 0; i < groups.size() && i < kMaxValues; ++i) {
    if (i > 0) text += i + 1 == groups.size() ? " and " : ", ";
    const auto& [value, members] = groups[i];
    text += (value ? in_quotes(*value) : "not given") + " on rank" +
            (members.size() > 1 ? "s " : " ") + list_of(members);
  }
  if (groups.size() > kMaxValues) text += ", ...";
  return text;
}

}  // namespace

std::string to_bytes(const Record& record) {
  std::string bytes;
  for (const auto& [name, value] : record) {
    put_counted(bytes, name);
    put_counted(bytes, value);
  }
  return bytes;
}

std::optional<Record> record_from(std::string_view bytes) {
  Record record;
  while (!bytes.empty()) {
    auto name = take_counted(bytes);
    if (!name) return std::nullopt;
    auto value = take_counted(bytes);
    if (!value) return std::nullopt;
    record.emplace_back(std::move(*name), std::move(*value));
  }
  return record;
}

std::string list_of(const std::vector<int>& ranks) {
  constexpr std::size_t kMaxParts = 8;
  std::vector<std::string> parts;
  for (std::size_t i = 0; i < ranks.size();) {
    std::size_t end = i + 1;
    while (end < ranks.size() && ranks[end] == ranks[end - 1] + 1) ++end;
    const bool is_run = end - i > 2;
    parts.push_back(std::to_string(ranks[i]) +
                    (is_run ? " to " + std::to_string(ranks[end - 1]) : ""));
    i = is_run ? end : i + 1;
  }
  const bool cut = parts.size() > kMaxParts;
  if (cut) parts.resize(kMaxParts);
  std::string text;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    if (i > 0) text += !cut && i + 1 == parts.size() ? " and " : ", ";
    text += parts[i];
  }
  return cut ? text + ", ..." : text;
}

std::optional<std::string> find_disagreement(const std::vector<Record>& of_ranks) {
  constexpr int kMaxNames = 3;
  std::vector<std::string> names;
  for (const Record& record : of_ranks) {
    for (const auto& [name, value] : record) {
      if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
    }
  }
  std::string text;
  int told = 0;
  for (const std::string& name : names) {
    const auto different = difference(of_ranks, name);
    if (!different) continue;
    if (++told > kMaxNames) {
      text += "; and more";
      break;
    }
    text += (text.empty() ? "" : "; ") + *different;
  }
  if (told == 0) return std::nullopt;
  return text;
}

}  // namespace shardwise::detail
