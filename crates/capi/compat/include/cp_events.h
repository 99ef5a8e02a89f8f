/* cp_events.h: events, semaphores and mutexes. A name is known in its process only. Included by <windows.h>. */
#ifndef CP_EVENTS_H
#define CP_EVENTS_H

#include <cp_waits.h>

/* ---- Events ---------------------------------------------------------------------------------- */

#define CREATE_EVENT_MANUAL_RESET 0x1
#define CREATE_EVENT_INITIAL_SET 0x2
#define EVENT_MODIFY_STATE 0x2
#define EVENT_ALL_ACCESS 0x1F0003
#define SEMAPHORE_MODIFY_STATE 0x2
#define SEMAPHORE_ALL_ACCESS 0x1F0003

CP_INLINE HANDLE WINAPI CreateEventA(LPSECURITY_ATTRIBUTES lpEventAttributes, BOOL bManualReset,
                                     BOOL bInitialState, LPCSTR lpName) {
    (void)lpEventAttributes;
    return cp_name_object(cp_new_event(bManualReset != 0, bInitialState != 0), lpName, (int)sizeof *lpName);
}

CP_INLINE HANDLE WINAPI CreateEventW(LPSECURITY_ATTRIBUTES lpEventAttributes, BOOL bManualReset,
                                     BOOL bInitialState, LPCWSTR lpName) {
    (void)lpEventAttributes;
    return cp_name_object(cp_new_event(bManualReset != 0, bInitialState != 0), lpName, (int)sizeof *lpName);
}

/* Refuses flags that the call does not have. */
CP_INLINE BOOL cp_has_flags(DWORD flags, DWORD known) {
    if (flags & ~known) {
        SetLastError(ERROR_INVALID_PARAMETER);
        return FALSE;
    }
    return TRUE;
}

CP_INLINE HANDLE WINAPI CreateEventExA(LPSECURITY_ATTRIBUTES lpEventAttributes, LPCSTR lpName,
                                       DWORD dwFlags, DWORD dwDesiredAccess) {
    (void)lpEventAttributes;
    (void)dwDesiredAccess;
    if (!cp_has_flags(dwFlags, CREATE_EVENT_MANUAL_RESET | CREATE_EVENT_INITIAL_SET))
        return NULL;
    return cp_name_object(cp_new_event((dwFlags & CREATE_EVENT_MANUAL_RESET) != 0,
                                       (dwFlags & CREATE_EVENT_INITIAL_SET) != 0),
                          lpName, (int)sizeof *lpName);
}

CP_INLINE HANDLE WINAPI CreateEventExW(LPSECURITY_ATTRIBUTES lpEventAttributes, LPCWSTR lpName,
                                       DWORD dwFlags, DWORD dwDesiredAccess) {
    return cp_name_object(CreateEventExA(lpEventAttributes, NULL, dwFlags, dwDesiredAccess), lpName,
                          (int)sizeof *lpName);
}

CP_INLINE HANDLE WINAPI OpenEventA(DWORD dwDesiredAccess, BOOL bInheritHandle, LPCSTR lpName) {
    (void)dwDesiredAccess;
    (void)bInheritHandle;
    return cp_open_named(cp_new_event(1, 0), lpName, (int)sizeof *lpName);
}

CP_INLINE HANDLE WINAPI OpenEventW(DWORD dwDesiredAccess, BOOL bInheritHandle, LPCWSTR lpName) {
    (void)dwDesiredAccess;
    (void)bInheritHandle;
    return cp_open_named(cp_new_event(1, 0), lpName, (int)sizeof *lpName);
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

CP_INLINE HANDLE WINAPI CreateSemaphoreA(LPSECURITY_ATTRIBUTES lpSemaphoreAttributes, LONG lInitialCount,
                                         LONG lMaximumCount, LPCSTR lpName) {
    (void)lpSemaphoreAttributes;
    return cp_name_object(cp_new_semaphore(lInitialCount, lMaximumCount), lpName, (int)sizeof *lpName);
}

CP_INLINE HANDLE WINAPI CreateSemaphoreW(LPSECURITY_ATTRIBUTES lpSemaphoreAttributes, LONG lInitialCount,
                                         LONG lMaximumCount, LPCWSTR lpName) {
    (void)lpSemaphoreAttributes;
    return cp_name_object(cp_new_semaphore(lInitialCount, lMaximumCount), lpName, (int)sizeof *lpName);
}

CP_INLINE HANDLE WINAPI OpenSemaphoreA(DWORD dwDesiredAccess, BOOL bInheritHandle, LPCSTR lpName) {
    (void)dwDesiredAccess;
    (void)bInheritHandle;
    return cp_open_named(cp_new_semaphore(0, 1), lpName, (int)sizeof *lpName);
}

CP_INLINE HANDLE WINAPI OpenSemaphoreW(DWORD dwDesiredAccess, BOOL bInheritHandle, LPCWSTR lpName) {
    (void)dwDesiredAccess;
    (void)bInheritHandle;
    return cp_open_named(cp_new_semaphore(0, 1), lpName, (int)sizeof *lpName);
}

/* Nothing changes if the count would exceed the semaphore's maximum. Releases threads as SetEvent does. */
CP_INLINE BOOL WINAPI ReleaseSemaphore(HANDLE hSemaphore, LONG lReleaseCount, LONG *lpPreviousCount) {
    return cp_release_semaphore(hSemaphore, lReleaseCount, lpPreviousCount);
}

/* ---- Mutexes ---------------------------------------------------------------------------------- */

#define CREATE_MUTEX_INITIAL_OWNER 0x1
#define MUTEX_MODIFY_STATE 0x1
#define MUTEX_ALL_ACCESS 0x1F0001

CP_INLINE HANDLE WINAPI CreateMutexA(LPSECURITY_ATTRIBUTES lpMutexAttributes, BOOL bInitialOwner, LPCSTR lpName) {
    (void)lpMutexAttributes;
    return cp_name_object(cp_new_mutex(bInitialOwner != 0), lpName, (int)sizeof *lpName);
}

CP_INLINE HANDLE WINAPI CreateMutexW(LPSECURITY_ATTRIBUTES lpMutexAttributes, BOOL bInitialOwner, LPCWSTR lpName) {
    (void)lpMutexAttributes;
    return cp_name_object(cp_new_mutex(bInitialOwner != 0), lpName, (int)sizeof *lpName);
}

CP_INLINE HANDLE WINAPI CreateMutexExA(LPSECURITY_ATTRIBUTES lpMutexAttributes, LPCSTR lpName, DWORD dwFlags,
                                       DWORD dwDesiredAccess) {
    (void)lpMutexAttributes;
    (void)dwDesiredAccess;
    if (!cp_has_flags(dwFlags, CREATE_MUTEX_INITIAL_OWNER))
        return NULL;
    return cp_name_object(cp_new_mutex((dwFlags & CREATE_MUTEX_INITIAL_OWNER) != 0), lpName,
                          (int)sizeof *lpName);
}

CP_INLINE HANDLE WINAPI CreateMutexExW(LPSECURITY_ATTRIBUTES lpMutexAttributes, LPCWSTR lpName, DWORD dwFlags,
                                       DWORD dwDesiredAccess) {
    return cp_name_object(CreateMutexExA(lpMutexAttributes, NULL, dwFlags, dwDesiredAccess), lpName,
                          (int)sizeof *lpName);
}

CP_INLINE HANDLE WINAPI OpenMutexA(DWORD dwDesiredAccess, BOOL bInheritHandle, LPCSTR lpName) {
    (void)dwDesiredAccess;
    (void)bInheritHandle;
    return cp_open_named(cp_new_mutex(0), lpName, (int)sizeof *lpName);
}

CP_INLINE HANDLE WINAPI OpenMutexW(DWORD dwDesiredAccess, BOOL bInheritHandle, LPCWSTR lpName) {
    (void)dwDesiredAccess;
    (void)bInheritHandle;
    return cp_open_named(cp_new_mutex(0), lpName, (int)sizeof *lpName);
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
#define OpenMutex OpenMutexW
#define OpenEvent OpenEventW
#define OpenSemaphore OpenSemaphoreW
#else
#define CreateMutex CreateMutexA
#define CreateMutexEx CreateMutexExA
#define CreateEvent CreateEventA
#define CreateEventEx CreateEventExA
#define CreateSemaphore CreateSemaphoreA
#define OpenMutex OpenMutexA
#define OpenEvent OpenEventA
#define OpenSemaphore OpenSemaphoreA
#endif

#endif
