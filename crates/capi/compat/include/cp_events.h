/* cp_events.h: events and semaphores, without names. Included by <windows.h>. */
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

/* For the library, which sets events at the end of operations. */
CP_INLINE void cp_event_set(void *object, int on) {
    cp_waitable *event = (cp_waitable *)object;
    if (on)
        cp_waitable_signal(event);
    else
        __atomic_store_n(&event->signalled, 0U, __ATOMIC_SEQ_CST);
}

CP_INLINE HANDLE cp_new_event(int stays, int is_set, int has_name) {
    cp_waitable *event;
    if (!cp_is_nameless(has_name))
        return NULL;
    event = (cp_waitable *)cp_waitable_new(sizeof *event, CP_IS_EVENT, 1);
    if (!event)
        return NULL;
    event->resets = !stays;
    event->signalled = (uint32_t)is_set;
    return cp_open_event(event, CP_KIND_WAITABLE, cp_waitable_retain, cp_waitable_release, cp_event_set);
}

CP_INLINE HANDLE WINAPI CreateEventA(LPSECURITY_ATTRIBUTES lpEventAttributes, BOOL bManualReset,
                                     BOOL bInitialState, LPCSTR lpName) {
    (void)lpEventAttributes;
    return cp_new_event(bManualReset != 0, bInitialState != 0, lpName != NULL);
}

CP_INLINE HANDLE WINAPI CreateEventW(LPSECURITY_ATTRIBUTES lpEventAttributes, BOOL bManualReset,
                                     BOOL bInitialState, LPCWSTR lpName) {
    (void)lpEventAttributes;
    return cp_new_event(bManualReset != 0, bInitialState != 0, lpName != NULL);
}

CP_INLINE HANDLE WINAPI CreateEventExA(LPSECURITY_ATTRIBUTES lpEventAttributes, LPCSTR lpName,
                                       DWORD dwFlags, DWORD dwDesiredAccess) {
    (void)lpEventAttributes;
    (void)dwDesiredAccess;
    return cp_new_event((dwFlags & CREATE_EVENT_MANUAL_RESET) != 0,
                        (dwFlags & CREATE_EVENT_INITIAL_SET) != 0, lpName != NULL);
}

CP_INLINE HANDLE WINAPI CreateEventExW(LPSECURITY_ATTRIBUTES lpEventAttributes, LPCWSTR lpName,
                                       DWORD dwFlags, DWORD dwDesiredAccess) {
    return CreateEventExA(lpEventAttributes, lpName ? "" : NULL, dwFlags, dwDesiredAccess);
}

CP_INLINE BOOL WINAPI SetEvent(HANDLE hEvent) {
    cp_waitable *event = (cp_waitable *)cp_waitable_find(hEvent, CP_IS_EVENT);
    if (!event)
        return FALSE;
    cp_waitable_signal(event);
    cp_waitable_release(event);
    return TRUE;
}

CP_INLINE BOOL WINAPI ResetEvent(HANDLE hEvent) {
    cp_waitable *event = (cp_waitable *)cp_waitable_find(hEvent, CP_IS_EVENT);
    if (!event)
        return FALSE;
    __atomic_store_n(&event->signalled, 0U, __ATOMIC_SEQ_CST);
    cp_waitable_release(event);
    return TRUE;
}

/* ---- Semaphores ------------------------------------------------------------------------------- */

typedef struct cp_semaphore {
    cp_waitable base;
    uint32_t most;
} cp_semaphore;

CP_INLINE HANDLE cp_new_semaphore(LONG count, LONG most, int has_name) {
    cp_semaphore *semaphore;
    if (!cp_is_nameless(has_name))
        return NULL;
    if (most <= 0 || count < 0 || count > most) {
        SetLastError(ERROR_INVALID_PARAMETER);
        return NULL;
    }
    semaphore = (cp_semaphore *)cp_waitable_new(sizeof *semaphore, CP_IS_SEMAPHORE, 1);
    if (!semaphore)
        return NULL;
    semaphore->base.resets = 1;
    semaphore->base.signalled = (uint32_t)count;
    semaphore->most = (uint32_t)most;
    return cp_waitable_open(semaphore);
}

CP_INLINE HANDLE WINAPI CreateSemaphoreA(LPSECURITY_ATTRIBUTES lpSemaphoreAttributes, LONG lInitialCount,
                                         LONG lMaximumCount, LPCSTR lpName) {
    (void)lpSemaphoreAttributes;
    return cp_new_semaphore(lInitialCount, lMaximumCount, lpName != NULL);
}

CP_INLINE HANDLE WINAPI CreateSemaphoreW(LPSECURITY_ATTRIBUTES lpSemaphoreAttributes, LONG lInitialCount,
                                         LONG lMaximumCount, LPCWSTR lpName) {
    (void)lpSemaphoreAttributes;
    return cp_new_semaphore(lInitialCount, lMaximumCount, lpName != NULL);
}

/* Nothing changes if the count would exceed the semaphore's maximum. */
CP_INLINE BOOL WINAPI ReleaseSemaphore(HANDLE hSemaphore, LONG lReleaseCount, LONG *lpPreviousCount) {
    cp_semaphore *semaphore = (cp_semaphore *)cp_waitable_find(hSemaphore, CP_IS_SEMAPHORE);
    uint32_t count;
    BOOL done = FALSE;
    if (!semaphore)
        return FALSE;
    count = __atomic_load_n(&semaphore->base.signalled, __ATOMIC_SEQ_CST);
    if (lReleaseCount <= 0) {
        SetLastError(ERROR_INVALID_PARAMETER);
    } else {
        do {
            if ((uint32_t)lReleaseCount > semaphore->most - count) {
                SetLastError(ERROR_TOO_MANY_POSTS);
                break;
            }
            done = __atomic_compare_exchange_n(&semaphore->base.signalled, &count,
                                               count + (uint32_t)lReleaseCount, 0, __ATOMIC_SEQ_CST,
                                               __ATOMIC_SEQ_CST);
        } while (!done);
    }
    if (done) {
        cp_signal();
        if (lpPreviousCount)
            *lpPreviousCount = (LONG)count;
    }
    cp_waitable_release(semaphore);
    return done;
}

#if defined UNICODE || defined _UNICODE
#define CreateEvent CreateEventW
#define CreateEventEx CreateEventExW
#define CreateSemaphore CreateSemaphoreW
#else
#define CreateEvent CreateEventA
#define CreateEventEx CreateEventExA
#define CreateSemaphore CreateSemaphoreA
#endif

#endif
