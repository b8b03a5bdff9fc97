#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "shardwise/base/compression.h"
#include "shardwise/base/error.h"

namespace shardwise::test {

/// A new directory. The destructor removes it with its content.
class TempDir {
 public:
  TempDir();
  ~TempDir();
  TempDir(const TempDir&) = delete;
  TempDir& operator=(const TempDir&) = delete;

  const std::string& path() const { return path_; }
  std::string operator/(const std::string& name) const { return path_ + "/" + name; }
  /// Returns the sorted names of the entries.
  std::vector<std::string> list() const;

 private:
  std::string path_;
};

/// Compresses `bytes` as the codec's command-line tool does; returns them unchanged for kNone.
std::string compress(std::string_view bytes, Compression compression);
/// Like compress(), but without a checksum of the content.
std::string compress_unchecked(std::string_view bytes, Compression compression);

/// Returns the seed of a random test: SHARDWISE_SEED if it is set, otherwise a new one. Prints it.
std::uint64_t random_seed();

/// Returns how many times a test repeats a property: `whole` with tools/test.sh --thorough
/// (SHARDWISE_THOROUGH=1), otherwise `slice`.
int repeats(int slice, int whole);

std::string read_file(const std::string& path);
void write_file(const std::string& path, std::string_view bytes);

/// Returns the root directory of this project's source.
std::string source_dir();

/// Returns the folder of tars and golden orders that other programs made: SHARDWISE_CORPUS, or
/// ../shared next to the checkout. Returns nullopt if it does not exist; the calling test is then
/// skipped.
std::optional<std::filesystem::path> corpus_dir();

/// A small tar writer that can also make damaged and unusual tars.
class TarBuilder {
 public:
  /// Adds a regular file with a ustar header.
  TarBuilder& file(std::string_view name, std::string_view content);
  /// Adds any entry, with `type` as in the header. The content is padded to a multiple of 512
  /// bytes.
  TarBuilder& entry(std::string_view name, char type, std::string_view content,
                    std::string_view link = {});
  /// Adds a pax extended header ('x') or global header ('g') with these records.
  TarBuilder& pax(const std::vector<std::pair<std::string, std::string>>& records, char type = 'x');
  TarBuilder& raw(std::string_view bytes);
  /// Adds the two zero blocks that end an archive.
  TarBuilder& end();

  const std::string& bytes() const { return bytes_; }
  std::size_t size() const { return bytes_.size(); }

  /// Returns a 512-byte ustar header with a correct checksum.
  static std::string header(std::string_view name, char type, std::uint64_t size,
                            std::string_view link = {});
  /// Recomputes the checksum of the header at `header`.
  static void fix_checksum(char* header);

 private:
  std::string bytes_;
};

/// Returns the text of the shardwise::Error that `call` throws. The test fails if `call` does not
/// throw.
template <class Call>
std::string error_text(Call&& call) {
  try {
    call();
  } catch (const Error& e) {
    return e.what();
  } catch (const std::exception& e) {
    ADD_FAILURE() << "threw something else: " << e.what();
    return {};
  }
  ADD_FAILURE() << "did not throw";
  return {};
}

/// Returns the code of the shardwise::Error that `call` throws. The test fails if `call` does not
/// throw.
template <class Call>
std::optional<ErrorCode> error_code(Call&& call) {
  try {
    call();
  } catch (const Error& e) {
    return e.code();
  } catch (const std::exception& e) {
    ADD_FAILURE() << "threw something else: " << e.what();
    return std::nullopt;
  }
  ADD_FAILURE() << "did not throw";
  return std::nullopt;
}

}  // namespace shardwise::test
