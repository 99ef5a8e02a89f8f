/*
 * cp_wait_callbacks.h: functions called when an object is signalled. Included by <windows.h>.
 *
 * Each registered wait has its own thread, which waits and calls the function. So a function may
 * block, and the flags that choose a thread have no effect.
 */
#ifndef CP_WAIT_CALLBACKS_H
#define CP_WAIT_CALLBACKS_H

#include <cp_pool.h>
#include <cp_waits.h>

typedef VOID(CALLBACK *WAITORTIMERCALLBACK)(PVOID lpParameter, BOOLEAN TimerOrWaitFired);
typedef WAITORTIMERCALLBACK WAITORTIMERCALLBACKFUNC;

/* The object stays as long as the wait does, even if its handle is closed. */
CP_INLINE BOOL WINAPI RegisterWaitForSingleObject(PHANDLE phNewWaitObject, HANDLE hObject,
                                                  WAITORTIMERCALLBACK Callback, PVOID Context,
                                                  ULONG dwMilliseconds, ULONG dwFlags) {
    if (!phNewWaitObject) {
        SetLastError(ERROR_INVALID_PARAMETER);
        return FALSE;
    }
    *phNewWaitObject = cp_register_wait(hObject, (void (*)(void *, uint8_t))(FARPROC)Callback, Context, dwMilliseconds,
                                        dwFlags);
    return *phNewWaitObject != NULL;
}

/* After this no call starts. With INVALID_HANDLE_VALUE, it waits for a call in progress. Otherwise,
 * if one is in progress, it fails with ERROR_IO_PENDING and sets the event, if there is one, when
 * the call has ended. */
CP_INLINE BOOL WINAPI UnregisterWaitEx(HANDLE WaitHandle, HANDLE CompletionEvent) {
    return cp_unregister_wait(WaitHandle, CompletionEvent);
}

CP_INLINE BOOL WINAPI UnregisterWait(HANDLE WaitHandle) {
    return UnregisterWaitEx(WaitHandle, NULL);
}

#endif
