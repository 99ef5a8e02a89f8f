/*
 * windows.h: I/O completion ports under the reference's names, on Linux, and other functions that
 * servers use: threads and waits for them, events, timers, locks, clocks, atomic operations,
 * memory, messages, the console.
 *
 * Macros to define before including it:
 *   CP_NO_WIN32   only completion ports, the last error and functions by name
 *   CP_NO_SAL     the annotations of parameters (_In_, _Out_ and the like) stay undefined
 *
 * Absent functions of the reference that servers are known to call are declared: the compiler
 * reports at the call that they are not available. See <cp_absent.h>.
 */
#ifndef CP_WINDOWS_H
#define CP_WINDOWS_H

#ifndef CP_NO_SAL
#include <sal.h>
#endif

#include <cp_base.h>
#include <cp_errors.h>
#include <cp_modules.h>
#include <cp_overlapped.h>
#include <cp_ports.h>

#ifndef CP_NO_WIN32
#include <cp_win32.h>
#endif

/* After all of them. */
#include <cp_names.h>

#endif
