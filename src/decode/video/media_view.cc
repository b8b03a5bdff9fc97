#include "decode/video/media_view.h"

#include <bit>
#include <cstring>

namespace shardwise::detail {

MediaInput::MediaInput(const ByteSource& source)
    : source_(source),
      size_(source.size()),
      min_window_(std::bit_ceil(std::clamp<std::size_t>(source.cheap_read_bytes(), 1, kMaxWindow))),
      last_size_(min_window_) {}

MediaInput::Window* MediaInput::find(std::size_t at, std::size_t count) noexcept {
  for (Window& window : windows_) {
    if (window.has(at, count)) return &window;
  }
  return nullptr;
}

/// Returns the size of the next window if a read begins at `at`: more than the last one if the read
/// continues there, or skips fewer bytes than were read.
std::size_t MediaInput::window_size(std::size_t at) const noexcept {
  const bool goes_on = at >= end_ && at - end_ < last_size_;
  return goes_on ? std::clamp(2 * last_size_, min_window_, kMaxWindow) : min_window_;
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
  if (window.capacity < size || window.capacity > std::max(size, kMaxWindow)) {
    window.bytes.reset();
    window.capacity = 0;
    window.bytes = std::make_unique_for_overwrite<char[]>(size);
    window.capacity = size;
  }
  read(begin, {window.bytes.get(), size});
  window.begin = begin;
  window.size = size;
}

std::string_view MediaInput::view(std::size_t at, std::size_t count) {
  if (count == 0) return {};
  Window* window = find(at, count);
  if (window == nullptr) {
    window = &windows_[last_ == windows_.data() ? 1 : 0];
    load(*window, at, count);
  }
  last_ = window;
  return {window->at(at), count};
}

void MediaInput::copy(std::size_t at, std::span<char> to) {
  while (!to.empty()) {
    Window* window = find(at, 1);
    if (window == nullptr && to.size() >= window_size(at)) return read(at, to);
    if (window == nullptr) {
      static_cast<void>(view(at, 1));
      window = last_;
    }
    const std::size_t count = std::min(to.size(), window->size - (at - window->begin));
    std::memcpy(to.data(), window->at(at), count);
    last_ = window;
    at += count;
    to = to.subspan(count);
  }
}

void MediaView::copy(std::size_t at, std::span<char> to) const {
  if (!is_in_memory()) {
    input_->copy(begin_ + at, to);
  } else if (!to.empty()) {
    std::memcpy(to.data(), memory_ + at, to.size());
  }
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
