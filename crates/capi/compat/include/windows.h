/*
 * windows.h: I/O completion ports by the reference's names, on Linux, and what servers use beside them: threads
 * and waiting for them, events, timers, locks, clocks, atomic operations, memory, messages, the console.
 *
 * Defined before it is included:
 *   CP_NO_WIN32   only completion ports, the last error and functions by name
 *   CP_NO_SAL     the annotations of parameters (_In_, _Out_ and the like) stay undefined
 *
 * A function of the reference that is not here is declared all the same, if servers are known to call it: the
 * compiler then says at the call that it is not available. See <cp_absent.h>.
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
