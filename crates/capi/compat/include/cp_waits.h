/*
 * cp_waits.h: waits for objects. Included by <windows.h>.
 *
 * Threads, events, semaphores, timers and mutexes are handles, which CloseHandle closes. A wait may be for those, for
 * ports, which are signalled while packets are queued, and for files, which the end of an operation signals. For
 * anything else it fails with ERROR_INVALID_HANDLE.
 *
 * What differs: a wait for a port checks every millisecond. There are no APCs, so an alertable wait is a plain one.
 */
#ifndef CP_WAITS_H
#define CP_WAITS_H

#include <cp_clocks.h>
#include <cp_ports.h>

#define WAIT_OBJECT_0 0
#define WAIT_ABANDONED 0x80
#define WAIT_ABANDONED_0 0x80
#define WAIT_IO_COMPLETION 0xC0
#define WAIT_FAILED 0xFFFFFFFFU
#define MAXIMUM_WAIT_OBJECTS 64

CP_INLINE DWORD WINAPI WaitForMultipleObjects(DWORD nCount, const HANDLE *lpHandles, BOOL bWaitAll,
                                              DWORD dwMilliseconds) {
    return cp_wait_for(lpHandles, nCount, bWaitAll, dwMilliseconds);
}

CP_INLINE DWORD WINAPI WaitForSingleObject(HANDLE hHandle, DWORD dwMilliseconds) {
    return cp_wait_for(&hHandle, 1, FALSE, dwMilliseconds);
}

CP_INLINE DWORD WINAPI WaitForSingleObjectEx(HANDLE hHandle, DWORD dwMilliseconds, BOOL bAlertable) {
    (void)bAlertable;
    return WaitForSingleObject(hHandle, dwMilliseconds);
}

CP_INLINE DWORD WINAPI WaitForMultipleObjectsEx(DWORD nCount, const HANDLE *lpHandles, BOOL bWaitAll,
                                                DWORD dwMilliseconds, BOOL bAlertable) {
    (void)bAlertable;
    return WaitForMultipleObjects(nCount, lpHandles, bWaitAll, dwMilliseconds);
}

#endif
