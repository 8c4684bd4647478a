/** @file sanitizer.h  For which sanitizer this file is compiled: gcc says so by macros of its own,
 *  clang by features.
 *
 * CT_SAN_ADDRESS: memory from malloc() is watched byte by byte, and what does not come from there
 * can be (ct_guard()). CT_SAN_THREAD: accesses of threads are, and what libraries do that are
 * compiled without it, such as gcc's OpenMP, is unknown. Each is 1 or 0.
 */
#ifndef CT_SANITIZER_H
#define CT_SANITIZER_H

#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define CT_SAN_ADDRESS 1
#endif
#if __has_feature(thread_sanitizer)
#define CT_SAN_THREAD 1
#endif
#endif

#if defined(__SANITIZE_ADDRESS__) && !defined(CT_SAN_ADDRESS)
#define CT_SAN_ADDRESS 1
#endif
#if defined(__SANITIZE_THREAD__) && !defined(CT_SAN_THREAD)
#define CT_SAN_THREAD 1
#endif

#ifndef CT_SAN_ADDRESS
#define CT_SAN_ADDRESS 0
#endif
#ifndef CT_SAN_THREAD
#define CT_SAN_THREAD 0
#endif

#endif
