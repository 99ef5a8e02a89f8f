/* cp_events.h: events, semaphores and mutexes, without names. Included by <windows.h>. */
#ifndef CP_EVENTS_H
#define CP_EVENTS_H

#include <cp_waits.h>

/* Objects have no names. */
CP_INLINE int cp_is_nameless(int has_name) {
    if (has_name)
        SetLastError(ERROR_NOT_SUPPORTED);
    return !has_name;
}

/* ---- Events ---------------------------------------------------------------------------------- */

#define CREATE_EVENT_MANUAL_RESET 0x1
#define CREATE_EVENT_INITIAL_SET 0x2

CP_INLINE HANDLE cp_nameless_event(int stays, int is_set, int has_name) {
    return cp_is_nameless(has_name) ? cp_new_event(stays, is_set) : NULL;
}

CP_INLINE HANDLE WINAPI CreateEventA(LPSECURITY_ATTRIBUTES lpEventAttributes, BOOL bManualReset,
                                     BOOL bInitialState, LPCSTR lpName) {
    (void)lpEventAttributes;
    return cp_nameless_event(bManualReset != 0, bInitialState != 0, lpName != NULL);
}

CP_INLINE HANDLE WINAPI CreateEventW(LPSECURITY_ATTRIBUTES lpEventAttributes, BOOL bManualReset,
                                     BOOL bInitialState, LPCWSTR lpName) {
    (void)lpEventAttributes;
    return cp_nameless_event(bManualReset != 0, bInitialState != 0, lpName != NULL);
}

CP_INLINE HANDLE WINAPI CreateEventExA(LPSECURITY_ATTRIBUTES lpEventAttributes, LPCSTR lpName,
                                       DWORD dwFlags, DWORD dwDesiredAccess) {
    (void)lpEventAttributes;
    (void)dwDesiredAccess;
    return cp_nameless_event((dwFlags & CREATE_EVENT_MANUAL_RESET) != 0,
                        (dwFlags & CREATE_EVENT_INITIAL_SET) != 0, lpName != NULL);
}

CP_INLINE HANDLE WINAPI CreateEventExW(LPSECURITY_ATTRIBUTES lpEventAttributes, LPCWSTR lpName,
                                       DWORD dwFlags, DWORD dwDesiredAccess) {
    return CreateEventExA(lpEventAttributes, lpName ? "" : NULL, dwFlags, dwDesiredAccess);
}

/* Releases the thread that has waited longest, or all waiting threads if the event stays set. This happens before the
 * call returns, even if none of them has run: another SetEvent releases another thread, and a ResetEvent takes nothing
 * back. */
CP_INLINE BOOL WINAPI SetEvent(HANDLE hEvent) {
    return cp_set_event(hEvent);
}

CP_INLINE BOOL WINAPI ResetEvent(HANDLE hEvent) {
    return cp_reset_event(hEvent);
}

/* Releases one or all of the threads waiting now, and leaves the event reset. */
CP_INLINE BOOL WINAPI PulseEvent(HANDLE hEvent) {
    return cp_pulse_event(hEvent);
}

/* ---- Semaphores ------------------------------------------------------------------------------- */

CP_INLINE HANDLE cp_nameless_semaphore(LONG count, LONG most, int has_name) {
    return cp_is_nameless(has_name) ? cp_new_semaphore(count, most) : NULL;
}

CP_INLINE HANDLE WINAPI CreateSemaphoreA(LPSECURITY_ATTRIBUTES lpSemaphoreAttributes, LONG lInitialCount,
                                         LONG lMaximumCount, LPCSTR lpName) {
    (void)lpSemaphoreAttributes;
    return cp_nameless_semaphore(lInitialCount, lMaximumCount, lpName != NULL);
}

CP_INLINE HANDLE WINAPI CreateSemaphoreW(LPSECURITY_ATTRIBUTES lpSemaphoreAttributes, LONG lInitialCount,
                                         LONG lMaximumCount, LPCWSTR lpName) {
    (void)lpSemaphoreAttributes;
    return cp_nameless_semaphore(lInitialCount, lMaximumCount, lpName != NULL);
}

/* Nothing changes if the count would exceed the semaphore's maximum. Releases threads as SetEvent does. */
CP_INLINE BOOL WINAPI ReleaseSemaphore(HANDLE hSemaphore, LONG lReleaseCount, LONG *lpPreviousCount) {
    return cp_release_semaphore(hSemaphore, lReleaseCount, lpPreviousCount);
}

/* ---- Mutexes ---------------------------------------------------------------------------------- */

#define CREATE_MUTEX_INITIAL_OWNER 0x1
#define MUTEX_MODIFY_STATE 0x1
#define MUTEX_ALL_ACCESS 0x1F0001

CP_INLINE HANDLE cp_nameless_mutex(int is_owned, int has_name) {
    return cp_is_nameless(has_name) ? cp_new_mutex(is_owned) : NULL;
}

CP_INLINE HANDLE WINAPI CreateMutexA(LPSECURITY_ATTRIBUTES lpMutexAttributes, BOOL bInitialOwner, LPCSTR lpName) {
    (void)lpMutexAttributes;
    return cp_nameless_mutex(bInitialOwner != 0, lpName != NULL);
}

CP_INLINE HANDLE WINAPI CreateMutexW(LPSECURITY_ATTRIBUTES lpMutexAttributes, BOOL bInitialOwner, LPCWSTR lpName) {
    (void)lpMutexAttributes;
    return cp_nameless_mutex(bInitialOwner != 0, lpName != NULL);
}

CP_INLINE HANDLE WINAPI CreateMutexExA(LPSECURITY_ATTRIBUTES lpMutexAttributes, LPCSTR lpName, DWORD dwFlags,
                                       DWORD dwDesiredAccess) {
    (void)lpMutexAttributes;
    (void)dwDesiredAccess;
    return cp_nameless_mutex((dwFlags & CREATE_MUTEX_INITIAL_OWNER) != 0, lpName != NULL);
}

CP_INLINE HANDLE WINAPI CreateMutexExW(LPSECURITY_ATTRIBUTES lpMutexAttributes, LPCWSTR lpName, DWORD dwFlags,
                                       DWORD dwDesiredAccess) {
    return CreateMutexExA(lpMutexAttributes, lpName ? "" : NULL, dwFlags, dwDesiredAccess);
}

/* The thread must release it as often as it has waited for it. A thread that ends before that abandons it, and the next
 * wait for it returns WAIT_ABANDONED. */
CP_INLINE BOOL WINAPI ReleaseMutex(HANDLE hMutex) {
    return cp_release_mutex(hMutex);
}

#if defined UNICODE || defined _UNICODE
#define CreateMutex CreateMutexW
#define CreateMutexEx CreateMutexExW
#define CreateEvent CreateEventW
#define CreateEventEx CreateEventExW
#define CreateSemaphore CreateSemaphoreW
#else
#define CreateMutex CreateMutexA
#define CreateMutexEx CreateMutexExA
#define CreateEvent CreateEventA
#define CreateEventEx CreateEventExA
#define CreateSemaphore CreateSemaphoreA
#endif

#endif
