#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/byte_source.h"

namespace shardwise::detail {

/// Reads a file of video or sound in parts, and keeps the parts that were read last.
///
/// Two windows hold bytes of the file: libav and our checks of the container may read at two places
/// in turn. A window grows from one cheap read to a limit while reads follow each other. It is
/// larger only if a caller needs more contiguous bytes, e.g. the header of an MP4. prefetch() reads
/// many small ranges at once.
///
/// Threads: one.
/// Errors: those of the source.
class MediaInput {
 public:
  /// Largest window if small reads are cheap, as from a file.
  static constexpr std::size_t kFileWindow = std::size_t{256} << 10;
  /// Largest window if only large reads are efficient, as from a server.
  static constexpr std::size_t kMaxWindow = std::size_t{4} << 20;

  /// A range of bytes.
  struct Range {
    std::size_t begin = 0;
    std::size_t end = 0;
  };

  /// Lifetime: `source` must outlive this object.
  explicit MediaInput(const ByteSource& source);
  MediaInput(const MediaInput&) = delete;
  MediaInput& operator=(const MediaInput&) = delete;

  [[nodiscard]] std::size_t size() const noexcept { return size_; }
  /// REQUIRES: at < size().
  [[nodiscard]] char byte(std::size_t at) {
    return last_->has(at, 1) ? last_->at(at)[0] : view(at, 1)[0];
  }
  /// Returns contiguous bytes, valid until the next call. REQUIRES: count <= size() - at.
  [[nodiscard]] std::string_view view(std::size_t at, std::size_t count);
  /// Copies bytes to `to`. Reads of many bytes bypass the windows.
  /// REQUIRES: to.size() <= size() - at.
  void copy(std::size_t at, std::span<char> to);
  /// Reads ranges that later calls need, and keeps them until the next call of prefetch().
  void prefetch(std::vector<Range> ranges);

 private:
  /// Bytes in memory.
  struct Kept {
    std::size_t begin = 0;
    std::size_t size = 0;
    const char* bytes = nullptr;

    [[nodiscard]] bool has(std::size_t place, std::size_t count) const noexcept {
      return place - begin < size && count <= size - (place - begin);
    }
    [[nodiscard]] const char* at(std::size_t place) const noexcept {
      return bytes + (place - begin);
    }
  };
  struct Window : Kept {
    std::size_t capacity = 0;
    std::unique_ptr<char[]> memory;
  };

  [[nodiscard]] const Kept* find(std::size_t at, std::size_t count) const noexcept;
  [[nodiscard]] std::size_t window_size(std::size_t at) const noexcept;
  void load(Window& window, std::size_t at, std::size_t count);
  void read(std::size_t at, std::span<char> to);

  const ByteSource& source_;
  const std::size_t size_;
  const std::size_t min_window_;  // a power of two
  const std::size_t max_window_;
  std::array<Window, 2> windows_;
  std::vector<Kept> prefetched_;  // sorted by `begin`
  std::unique_ptr<char[]> prefetched_bytes_;
  const Kept* last_ = windows_.data();  // the bytes that were used last
  std::size_t last_size_;               // number of bytes of the last read, or of the last window
  std::size_t end_ = 0;                 // end of the last read
};

/// A range of the bytes of a video or sound, in memory or in a MediaInput. It has the interface of
/// a std::string_view, as far as it is needed.
/// Lifetime: the memory or the input must outlive it.
/// Errors: reads of bytes throw the errors of the input's source.
class MediaView {
 public:
  static constexpr std::size_t npos = std::string_view::npos;

  MediaView() = default;
  MediaView(std::string_view bytes) noexcept  // NOLINT(google-explicit-constructor)
      : memory_(bytes.data()), size_(bytes.size()) {}
  MediaView(const std::string& bytes) noexcept  // NOLINT(google-explicit-constructor)
      : MediaView(std::string_view(bytes)) {}
  MediaView(MediaInput& input) noexcept  // NOLINT(google-explicit-constructor)
      : input_(&input), size_(input.size()) {}

  [[nodiscard]] bool is_in_memory() const noexcept { return input_ == nullptr; }
  [[nodiscard]] std::size_t size() const noexcept { return size_; }
  [[nodiscard]] bool empty() const noexcept { return size_ == 0; }
  [[nodiscard]] char operator[](std::size_t at) const {
    return is_in_memory() ? memory_[at] : input_->byte(begin_ + at);
  }
  /// REQUIRES: at <= size().
  [[nodiscard]] MediaView substr(std::size_t at, std::size_t count = npos) const noexcept {
    MediaView part = *this;
    part.remove_prefix(at);
    part.size_ = std::min(count, part.size_);
    return part;
  }
  /// REQUIRES: count <= size().
  void remove_prefix(std::size_t count) noexcept {
    if (is_in_memory()) memory_ += count;
    begin_ += count;
    size_ -= count;
  }
  [[nodiscard]] bool has(std::size_t at, std::string_view text) const {
    return at <= size_ && text.size() <= size_ - at && substr(at, text.size()).view() == text;
  }
  [[nodiscard]] bool starts_with(std::string_view text) const { return has(0, text); }
  [[nodiscard]] bool ends_with(std::string_view text) const {
    return text.size() <= size_ && has(size_ - text.size(), text);
  }
  [[nodiscard]] std::size_t find(std::string_view text, std::size_t from = 0) const;
  [[nodiscard]] std::size_t rfind(std::string_view text) const;
  [[nodiscard]] std::size_t find_first_not_of(char c, std::size_t from = 0) const {
    return find_first(from, [c](char other) { return other != c; });
  }
  template <class Predicate>
  [[nodiscard]] bool all_of(const Predicate& is) const {
    return find_first(0, [&](char c) { return !is(c); }) == npos;
  }

  /// Returns all bytes as contiguous memory. In a MediaInput they are valid until the next read of
  /// the input, and all of them are in memory at once.
  [[nodiscard]] std::string_view view() const {
    return is_in_memory() ? std::string_view(memory_, size_) : input_->view(begin_, size_);
  }
  /// Copies the bytes from `at` on to `to`. REQUIRES: to.size() <= size() - at.
  void copy(std::size_t at, std::span<char> to) const;
  /// See MediaInput::prefetch(). REQUIRES: the bytes are not in memory.
  void prefetch(std::vector<MediaInput::Range> ranges) const;

 private:
  /// Returns the position of the first byte from `from` on for which `is` returns true.
  template <class Predicate>
  [[nodiscard]] std::size_t find_first(std::size_t from, const Predicate& is) const {
    while (from < size_) {
      const std::string_view part = substr(from, part_size()).view();
      const auto found = std::ranges::find_if(part, is);
      if (found != part.end()) return from + static_cast<std::size_t>(found - part.begin());
      from += part.size();
    }
    return npos;
  }
  /// Returns how many bytes a search looks at in one step.
  [[nodiscard]] std::size_t part_size() const noexcept {
    return is_in_memory() ? size_ : MediaInput::kFileWindow / 4;
  }

  MediaInput* input_ = nullptr;   // null if the bytes are in memory
  const char* memory_ = nullptr;  // null if the bytes are in `input_`
  std::size_t begin_ = 0;         // offset in `input_`
  std::size_t size_ = 0;
};

}  // namespace shardwise::detail
