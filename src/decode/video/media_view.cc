#include "decode/video/media_view.h"

#include <bit>
#include <cstring>
#include <iterator>
#include <utility>

namespace shardwise::detail {

MediaInput::MediaInput(const ByteSource& source)
    : source_(source),
      size_(source.size()),
      min_window_(
          std::bit_ceil(std::clamp<std::size_t>(source.cheap_read_bytes(), 1, kFileWindow))),
      max_window_(std::clamp(16 * min_window_, kFileWindow, kMaxWindow)),
      last_size_(min_window_) {}

const MediaInput::Kept* MediaInput::find(std::size_t at, std::size_t count) const noexcept {
  for (const Window& window : windows_) {
    if (window.has(at, count)) return &window;
  }
  const auto behind = std::ranges::upper_bound(prefetched_, at, {}, &Kept::begin);
  if (behind == prefetched_.begin() || !std::prev(behind)->has(at, count)) return nullptr;
  return &*std::prev(behind);
}

/// Returns the size of the next window if a read begins at `at`: more than the last one if the read
/// continues there, or skips fewer bytes than were read.
std::size_t MediaInput::window_size(std::size_t at) const noexcept {
  const bool goes_on = at >= end_ && at - end_ < last_size_;
  return goes_on ? std::clamp(2 * last_size_, min_window_, max_window_) : min_window_;
}

void MediaInput::read(std::size_t at, std::span<char> to) {
  source_.read(at, to);
  end_ = at + to.size();
  last_size_ = to.size();
}

/// Reads a window that has `count` bytes at `at`. It begins at a multiple of the smallest window's
/// size, so that a caller may also read backwards.
void MediaInput::load(Window& window, std::size_t at, std::size_t count) {
  const std::size_t begin = at - at % min_window_;
  const std::size_t wanted = std::max(window_size(at), at - begin + count);
  const std::size_t size = std::min(wanted, size_ - begin);
  window.size = 0;
  if (window.capacity < size || window.capacity > std::max(size, max_window_)) {
    window.memory.reset();
    window.capacity = 0;
    window.memory = std::make_unique_for_overwrite<char[]>(size);
    window.capacity = size;
  }
  window.bytes = window.memory.get();
  read(begin, {window.memory.get(), size});
  window.begin = begin;
  window.size = size;
}

std::string_view MediaInput::view(std::size_t at, std::size_t count) {
  if (count == 0) return {};
  const Kept* kept = find(at, count);
  if (kept == nullptr) {
    Window& window = windows_[last_ == windows_.data() ? 1 : 0];
    load(window, at, count);
    kept = &window;
  }
  last_ = kept;
  return {kept->at(at), count};
}

void MediaInput::copy(std::size_t at, std::span<char> to) {
  while (!to.empty()) {
    const Kept* kept = find(at, 1);
    if (kept == nullptr && to.size() >= window_size(at)) return read(at, to);
    if (kept == nullptr) {
      static_cast<void>(view(at, 1));
      kept = last_;
    }
    const std::size_t count = std::min(to.size(), kept->size - (at - kept->begin));
    std::memcpy(to.data(), kept->at(at), count);
    last_ = kept;
    at += count;
    to = to.subspan(count);
  }
}

void MediaInput::prefetch(std::vector<Range> ranges) {
  prefetched_.clear();
  last_ = windows_.data();
  std::size_t total = 0;
  for (Range& range : ranges) {
    range.end = std::min(range.end, size_);
    range.begin = std::min(range.begin, range.end);
    total += range.end - range.begin;
  }
  std::ranges::sort(ranges, {}, &Range::begin);
  prefetched_bytes_ = std::make_unique_for_overwrite<char[]>(total);
  std::vector<Kept> kept;
  std::vector<ByteSource::Part> parts;
  char* to = prefetched_bytes_.get();
  for (const auto& [begin, end] : ranges) {
    if (begin == end) continue;  // a damaged table may name bytes beyond the end
    kept.push_back({begin, end - begin, to});
    parts.push_back({begin, {to, end - begin}});
    to += end - begin;
  }
  if (!parts.empty()) source_.read_parts(parts);
  prefetched_ = std::move(kept);
}

void MediaView::copy(std::size_t at, std::span<char> to) const {
  if (!is_in_memory()) {
    input_->copy(begin_ + at, to);
  } else if (!to.empty()) {
    std::memcpy(to.data(), memory_ + at, to.size());
  }
}

void MediaView::prefetch(std::vector<MediaInput::Range> ranges) const {
  for (auto& [begin, end] : ranges) {
    begin = begin_ + std::min(begin, size_);
    end = begin_ + std::min(end, size_);
  }
  input_->prefetch(std::move(ranges));
}

std::size_t MediaView::find(std::string_view text, std::size_t from) const {
  if (is_in_memory()) return view().find(text, from);
  for (; from < size_ && text.size() <= size_ - from; from += part_size()) {
    const std::size_t found = substr(from, part_size() + text.size() - 1).view().find(text);
    if (found != npos) return from + found;
  }
  return npos;
}

std::size_t MediaView::rfind(std::string_view text) const {
  if (is_in_memory()) return view().rfind(text);
  for (std::size_t end = size_; end >= text.size();) {
    const std::size_t begin = end - std::min(end, part_size());
    const std::size_t found = substr(begin, end - begin).view().rfind(text);
    if (found != npos) return begin + found;
    if (begin == 0) break;
    end = begin + text.size() - 1;
  }
  return npos;
}

}  // namespace shardwise::detail
