#pragma once

// clang reports its sanitizers by __has_feature. Define the names that g++ defines.
#if defined(__has_feature)
#if __has_feature(address_sanitizer) && !defined(__SANITIZE_ADDRESS__)
#define __SANITIZE_ADDRESS__ 1  // NOLINT: g++'s name
#endif
#if __has_feature(thread_sanitizer) && !defined(__SANITIZE_THREAD__)
#define __SANITIZE_THREAD__ 1  // NOLINT: g++'s name
#endif
#endif
