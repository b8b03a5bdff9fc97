#pragma once

#include <functional>
#include <optional>
#include <string>

#include "ingest/remote_shards.h"
#include "support/shards.h"

namespace shardwise::test {

/// Remote access that serves one tar, of one sample, at every URL.
class OneTar : public RemoteShards {
 public:
  State state(const std::string&) override {
    return {.size_bytes = bytes_.size(), .validator = "\"v\""};
  }
  void read(const std::string&, const State&, std::uint64_t begin, std::optional<std::uint64_t> end,
            const std::function<void(std::string_view)>& take) override {
    take(std::string_view(bytes_).substr(begin, end.value_or(bytes_.size()) - begin));
  }
  std::optional<Copy> copy(const std::string&, const State&) override { return std::nullopt; }
  void keep_expanded(const std::string&, const State&, const std::string&, Compression,
                     std::uint64_t) override {}

 private:
  const std::string bytes_ = tar_of("1");
};

}  // namespace shardwise::test
