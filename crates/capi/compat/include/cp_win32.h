/*
 * cp_win32.h: what nearly every source for the reference uses beside completion ports. <windows.h> includes it
 * unless CP_NO_WIN32 is defined. One header for each subject.
 *
 * Thin wrappers over pthread, the compiler's atomic operations and a few functions of
 * completion_port_internals.h. Compile with -pthread.
 */
#ifndef CP_WIN32_H
#define CP_WIN32_H

#include <cp_absent.h>
#include <cp_atomics.h>
#include <cp_clocks.h>
#include <cp_console.h>
#include <cp_crt.h>
#include <cp_events.h>
#include <cp_facts.h>
#include <cp_files.h>
#include <cp_find.h>
#include <cp_lists.h>
#include <cp_locks.h>
#include <cp_machine.h>
#include <cp_mappings.h>
#include <cp_memory.h>
#include <cp_pages.h>
#include <cp_paths.h>
#include <cp_pool.h>
#include <cp_random.h>
#include <cp_text.h>
#include <cp_threads.h>
#include <cp_timers.h>
#include <cp_wait_callbacks.h>
#include <cp_waits.h>

#endif
