#include "version.h"

#include <archive.h>
#include <curl/curl.h>
#include <fmt/core.h>
#include <sqlite3.h>

#include <CLI/CLI.hpp>

#include "index/offset_table.h"
#include "order/algorithms.h"
#include "order/checkpoint_format.h"
#include "shardwise/index/index.h"
#include "shardwise/order/resume.h"

namespace shardwise::tools {
namespace {

/// Returns the libraries' versions. libarchive lists those that it was built with: "libarchive
/// 3.6.2 zlib/1.2.13 ...".
nlohmann::ordered_json libraries_json() {
  const curl_version_info_data& curl = *curl_version_info(CURLVERSION_NOW);
  nlohmann::ordered_json libraries = {
      {"sqlite", sqlite3_libversion()},
      {"curl", curl.version},
      {"curl_tls", curl.ssl_version == nullptr ? "none" : curl.ssl_version},
  };
  const std::string archive = archive_version_details();
  for (std::size_t begin = 0; begin < archive.size();) {
    const std::size_t end = std::min(archive.find(' ', begin), archive.size());
    const std::string word = archive.substr(begin, end - begin);
    if (const std::size_t slash = word.find('/'); slash != std::string::npos) {
      libraries[word.substr(0, slash)] = word.substr(slash + 1);
    } else if (word.find('.') != std::string::npos) {
      libraries["libarchive"] = word;
    }
    begin = end + 1;
  }
  libraries["fmt"] =
      fmt::format("{}.{}.{}", FMT_VERSION / 10000, FMT_VERSION / 100 % 100, FMT_VERSION % 100);
  libraries["CLI11"] = CLI11_VERSION;
  return libraries;
}

std::string text_of(const nlohmann::ordered_json& value) {
  return value.is_string() ? value.get<std::string>() : value.dump();
}

/// Returns e.g. "permutation 1, epoch 1".
std::string joined(const nlohmann::ordered_json& object) {
  std::string text;
  for (const auto& [name, value] : object.items()) {
    std::string words = name;
    std::replace(words.begin(), words.end(), '_', ' ');
    text += (text.empty() ? "" : ", ") + words + " " + text_of(value);
  }
  return text;
}

}  // namespace

std::string json_name(Algorithm algorithm) {
  std::string name(algorithm_name(algorithm));
  std::replace(name.begin(), name.end(), ' ', '_');
  return name;
}

nlohmann::ordered_json version_json() {
  nlohmann::ordered_json algorithms = nlohmann::ordered_json::object();
  for (std::size_t i = 0; i < kNumAlgorithms; ++i) {
    const auto algorithm = static_cast<Algorithm>(i);
    algorithms[json_name(algorithm)] = algorithm_version(algorithm);
  }
  return {
      {"version", SHARDWISE_VERSION},
      {"algorithms", std::move(algorithms)},
      {"formats",
       {{"index", kIndexVersion},
        {"resume_token", ResumeToken::kVersion},
        {"checkpoint", kCheckpointVersion}}},
      {"compiler", __VERSION__},
      {"libraries", libraries_json()},
      {"libtorch", "not in this program, but in shardwise-train"},
  };
}

std::string version_text(const std::string& program, const nlohmann::ordered_json& json) {
  std::string text = program;
  for (const auto& [name, value] : json.items()) {
    if (name == "version") {
      text += " " + text_of(value);
      continue;
    }
    text += fmt::format("\n{:<12}{}", name, value.is_object() ? joined(value) : text_of(value));
  }
  return text;
}

}  // namespace shardwise::tools
