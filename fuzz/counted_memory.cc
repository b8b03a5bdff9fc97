#include "counted_memory.h"

#include <malloc.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdlib>

#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define SHARDWISE_SANITIZED_MALLOC
#endif
#endif
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SHARDWISE_SANITIZED_MALLOC
#endif

#ifdef SHARDWISE_SANITIZED_MALLOC
#include <sanitizer/allocator_interface.h>
#endif

namespace shardwise::fuzz {
namespace {

struct Count {
  bool is_on = false;
  std::ptrdiff_t held = 0;
  std::ptrdiff_t peak = 0;
};
thread_local Count count;

void add(std::size_t size) noexcept {
  if (!count.is_on) return;
  count.held += static_cast<std::ptrdiff_t>(size);
  count.peak = std::max(count.peak, count.held);
}

void take_off(std::size_t size) noexcept {
  if (count.is_on) count.held -= static_cast<std::ptrdiff_t>(size);
}

#ifdef SHARDWISE_SANITIZED_MALLOC
const int hooks = __sanitizer_install_malloc_and_free_hooks(
    [](const volatile void*, std::size_t size) { add(size); },
    [](const volatile void* memory) {
      if (count.is_on && memory != nullptr) {
        take_off(__sanitizer_get_allocated_size(const_cast<const void*>(memory)));
      }
    });
#endif

}  // namespace

CountedMemory::CountedMemory() noexcept {
#ifdef SHARDWISE_SANITIZED_MALLOC
  static_cast<void>(hooks);
#endif
  count = {.is_on = true};
}
CountedMemory::~CountedMemory() { count.is_on = false; }
std::size_t CountedMemory::peak() const noexcept { return static_cast<std::size_t>(count.peak); }

}  // namespace shardwise::fuzz

#ifndef SHARDWISE_SANITIZED_MALLOC
// A program may replace glibc's malloc(); its libraries then call the replacement, too.
using shardwise::fuzz::add;
using shardwise::fuzz::take_off;

extern "C" {

void* __libc_malloc(std::size_t size);
void* __libc_calloc(std::size_t number, std::size_t size);
void* __libc_realloc(void* memory, std::size_t size);
void* __libc_memalign(std::size_t alignment, std::size_t size);
void __libc_free(void* memory);

void* malloc(std::size_t size) noexcept {
  void* const memory = __libc_malloc(size);
  add(malloc_usable_size(memory));
  return memory;
}

void* calloc(std::size_t number, std::size_t size) noexcept {
  void* const memory = __libc_calloc(number, size);
  add(malloc_usable_size(memory));
  return memory;
}

void* realloc(void* memory, std::size_t size) noexcept {
  const std::size_t before = malloc_usable_size(memory);
  void* const moved = __libc_realloc(memory, size);
  if (moved != nullptr || size == 0) take_off(before);
  add(malloc_usable_size(moved));
  return moved;
}

void* memalign(std::size_t alignment, std::size_t size) noexcept {
  void* const memory = __libc_memalign(alignment, size);
  add(malloc_usable_size(memory));
  return memory;
}

void* aligned_alloc(std::size_t alignment, std::size_t size) noexcept {
  return memalign(alignment, size);
}

int posix_memalign(void** to, std::size_t alignment, std::size_t size) noexcept {
  void* const memory = memalign(alignment, size);
  if (memory == nullptr) return ENOMEM;
  *to = memory;
  return 0;
}

void free(void* memory) noexcept {
  take_off(malloc_usable_size(memory));
  __libc_free(memory);
}

}  // extern "C"
#endif
