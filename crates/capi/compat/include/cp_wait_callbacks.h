/*
 * cp_wait_callbacks.h: functions that are called when an object is signalled. Included by <windows.h>.
 *
 * Each registered wait has a thread of its own, which waits and calls the function: so a function may block, and
 * the flags that say which thread shall call it change nothing.
 */
#ifndef CP_WAIT_CALLBACKS_H
#define CP_WAIT_CALLBACKS_H

#include <cp_events.h>
#include <cp_locks.h>
#include <cp_threads.h>

#define WT_EXECUTEDEFAULT 0x00
#define WT_EXECUTEINIOTHREAD 0x01
#define WT_EXECUTEINWAITTHREAD 0x04
#define WT_EXECUTEONLYONCE 0x08
#define WT_EXECUTELONGFUNCTION 0x10
#define WT_EXECUTEINPERSISTENTTHREAD 0x80
#define WT_TRANSFER_IMPERSONATION 0x100

typedef VOID(CALLBACK *WAITORTIMERCALLBACK)(PVOID lpParameter, BOOLEAN TimerOrWaitFired);
typedef WAITORTIMERCALLBACK WAITORTIMERCALLBACKFUNC;

typedef struct cp_registered_wait {
    cp_waitable base; /* signalled: it shall end */
    cp_awaited awaited;
    WAITORTIMERCALLBACK callback;
    PVOID context;
    DWORD milliseconds;
    ULONG flags;
    SRWLOCK lock; /* of what follows */
    uint32_t calls;
    uint32_t has_ended;
    HANDLE tell; /* an event to set at the end, or NULL */
} cp_registered_wait;

/* Whether the function may be called: not once the wait was unregistered. */
CP_INLINE int cp_registered_wait_begin_call(cp_registered_wait *wait) {
    int may_call;
    AcquireSRWLockExclusive(&wait->lock);
    may_call = !cp_waitable_is_signalled(&wait->base);
    wait->calls = (uint32_t)may_call;
    ReleaseSRWLockExclusive(&wait->lock);
    return may_call;
}

CP_INLINE void cp_registered_wait_end_call(cp_registered_wait *wait) {
    AcquireSRWLockExclusive(&wait->lock);
    wait->calls = 0;
    ReleaseSRWLockExclusive(&wait->lock);
}

CP_INLINE DWORD WINAPI cp_registered_wait_main(LPVOID argument) {
    cp_registered_wait *wait = (cp_registered_wait *)argument;
    for (;;) {
        cp_awaited both[2];
        DWORD result;
        both[0].object = &wait->base;
        both[0].port = NULL;
        both[1] = wait->awaited;
        result = cp_wait_for(both, 2, FALSE, wait->milliseconds);
        if ((result != WAIT_OBJECT_0 + 1 && result != WAIT_TIMEOUT) || !cp_registered_wait_begin_call(wait))
            break;
        wait->callback(wait->context, result == WAIT_TIMEOUT);
        cp_registered_wait_end_call(wait);
        if (wait->flags & WT_EXECUTEONLYONCE)
            break;
    }
    AcquireSRWLockExclusive(&wait->lock);
    if (wait->tell)
        SetEvent(wait->tell);
    __atomic_store_n(&wait->has_ended, 1U, __ATOMIC_SEQ_CST);
    ReleaseSRWLockExclusive(&wait->lock);
    cp_wake_word(&wait->has_ended, INT32_MAX);
    cp_awaited_release(&wait->awaited);
    cp_waitable_release(wait);
    return 0;
}

/* The object stays as long as the wait does, even if its handle is closed. */
CP_INLINE BOOL WINAPI RegisterWaitForSingleObject(PHANDLE phNewWaitObject, HANDLE hObject,
                                                  WAITORTIMERCALLBACK Callback, PVOID Context,
                                                  ULONG dwMilliseconds, ULONG dwFlags) {
    cp_registered_wait *wait;
    HANDLE thread = NULL;
    if (!phNewWaitObject || !Callback) {
        SetLastError(ERROR_INVALID_PARAMETER);
        return FALSE;
    }
    *phNewWaitObject = NULL;
    /* One share each for the handle and the thread. */
    wait = (cp_registered_wait *)cp_waitable_new(sizeof *wait, CP_IS_REGISTERED_WAIT, 2);
    if (!wait)
        return FALSE;
    if (!cp_awaited_find(&wait->awaited, hObject)) {
        free(wait);
        return FALSE;
    }
    wait->callback = Callback;
    wait->context = Context;
    wait->milliseconds = dwMilliseconds;
    wait->flags = dwFlags;
    *phNewWaitObject = cp_waitable_open(wait);
    if (*phNewWaitObject)
        thread = CreateThread(NULL, 0, cp_registered_wait_main, wait, 0, NULL);
    if (!thread) {
        DWORD last = GetLastError();
        if (*phNewWaitObject)
            CloseHandle(*phNewWaitObject);
        *phNewWaitObject = NULL;
        cp_awaited_release(&wait->awaited);
        cp_waitable_release(wait);
        SetLastError(last);
        return FALSE;
    }
    CloseHandle(thread);
    return TRUE;
}

/* Afterwards no call begins. With INVALID_HANDLE_VALUE it waits for one that has begun; else it fails with
 * ERROR_IO_PENDING if one goes on, and sets the event, if there is one, when that has ended. */
CP_INLINE BOOL WINAPI UnregisterWaitEx(HANDLE WaitHandle, HANDLE CompletionEvent) {
    cp_registered_wait *wait =
        (cp_registered_wait *)cp_waitable_find(WaitHandle, CP_IS_REGISTERED_WAIT);
    int waits = CompletionEvent == INVALID_HANDLE_VALUE;
    int goes_on;
    if (!wait)
        return FALSE;
    CloseHandle(WaitHandle);
    AcquireSRWLockExclusive(&wait->lock);
    cp_waitable_signal(&wait->base);
    goes_on = wait->calls != 0;
    if (CompletionEvent && !waits) {
        if (wait->has_ended)
            SetEvent(CompletionEvent);
        else
            wait->tell = CompletionEvent;
    }
    ReleaseSRWLockExclusive(&wait->lock);
    if (waits)
        while (__atomic_load_n(&wait->has_ended, __ATOMIC_SEQ_CST) == 0)
            cp_wait_word(&wait->has_ended, 0, INFINITE);
    cp_waitable_release(wait);
    if (waits || !goes_on)
        return TRUE;
    SetLastError(ERROR_IO_PENDING);
    return FALSE;
}

CP_INLINE BOOL WINAPI UnregisterWait(HANDLE WaitHandle) {
    return UnregisterWaitEx(WaitHandle, NULL);
}

#endif
