#pragma once

// Attributes of clang's thread-safety analysis, which checks the use of locks at compile time
// (-Wthread-safety; presets core-clang and fuzz). For other compilers they are empty.
//
//   Mutex mutex_;
//   std::size_t size_ SHARDWISE_GUARDED_BY(mutex_) = 0;       // used only with the mutex held
//   void grow() SHARDWISE_REQUIRES(mutex_);                   // called with the mutex held
//
// The analysis covers one function at a time, and a lambda is a separate function. Pass guarded
// members to a lambda as arguments, or take the lock inside the lambda.

#if defined(__clang__)
#define SHARDWISE_THREAD_ATTRIBUTE(x) __attribute__((x))
#else
#define SHARDWISE_THREAD_ATTRIBUTE(x)
#endif

/// A type whose objects are locks. Warnings call it `name`.
#define SHARDWISE_CAPABILITY(name) SHARDWISE_THREAD_ATTRIBUTE(capability(name))
/// A type whose objects hold a lock while they live.
#define SHARDWISE_SCOPED_CAPABILITY SHARDWISE_THREAD_ATTRIBUTE(scoped_lockable)
/// This member is read and written only with the lock held.
#define SHARDWISE_GUARDED_BY(lock) SHARDWISE_THREAD_ATTRIBUTE(guarded_by(lock))
/// The caller holds the locks.
#define SHARDWISE_REQUIRES(...) SHARDWISE_THREAD_ATTRIBUTE(requires_capability(__VA_ARGS__))
/// The caller does not hold the locks: the function takes them.
#define SHARDWISE_EXCLUDES(...) SHARDWISE_THREAD_ATTRIBUTE(locks_excluded(__VA_ARGS__))
/// The function takes the lock, and returns with it held.
#define SHARDWISE_ACQUIRE(...) SHARDWISE_THREAD_ATTRIBUTE(acquire_capability(__VA_ARGS__))
/// The function frees the lock.
#define SHARDWISE_RELEASE(...) SHARDWISE_THREAD_ATTRIBUTE(release_capability(__VA_ARGS__))
/// A thread that takes both kinds takes this lock before the listed ones (-Wthread-safety-beta).
#define SHARDWISE_ACQUIRED_BEFORE(...) SHARDWISE_THREAD_ATTRIBUTE(acquired_before(__VA_ARGS__))
/// The function's body is not analysed. A comment at each use states why.
#define SHARDWISE_NO_THREAD_SAFETY_ANALYSIS SHARDWISE_THREAD_ATTRIBUTE(no_thread_safety_analysis)
