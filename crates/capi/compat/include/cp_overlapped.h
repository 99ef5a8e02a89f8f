/*
 * cp_overlapped.h: how a program detects the end of an operation without its packet, and how it
 * cancels one. Included by <windows.h>.
 *
 * What differs: threads cannot wait for the handle of a socket. A thread waits for an operation by
 * its event, by GetOverlappedResult, or on the port.
 */
#ifndef CP_OVERLAPPED_H
#define CP_OVERLAPPED_H

#include <cp_ports.h>

#define FILE_SKIP_COMPLETION_PORT_ON_SUCCESS 0x1
#define FILE_SKIP_SET_EVENT_ON_HANDLE 0x2

#define STATUS_PENDING ((DWORD)0x103)
/* Reads with acquire ordering, so that earlier writes of the operation are visible. */
#define HasOverlappedIoCompleted(overlapped) \
    ((DWORD)__atomic_load_n(&(overlapped)->Internal, __ATOMIC_ACQUIRE) != STATUS_PENDING)

/* The descriptor that a handle is; none if it cannot be one. */
CP_INLINE int cp_descriptor_of(HANDLE handle) {
    return (uintptr_t)handle > 0x7FFFFFFF ? -1 : (int)(uintptr_t)handle;
}

CP_INLINE BOOL WINAPI GetOverlappedResultEx(HANDLE hFile, LPOVERLAPPED lpOverlapped,
                                            LPDWORD lpNumberOfBytesTransferred, DWORD dwMilliseconds,
                                            BOOL bAlertable) {
    (void)bAlertable;
    return cp_overlapped_result(cp_descriptor_of(hFile), lpOverlapped, lpNumberOfBytesTransferred, NULL,
                                dwMilliseconds, 0);
}

CP_INLINE BOOL WINAPI GetOverlappedResult(HANDLE hFile, LPOVERLAPPED lpOverlapped,
                                          LPDWORD lpNumberOfBytesTransferred, BOOL bWait) {
    return GetOverlappedResultEx(hFile, lpOverlapped, lpNumberOfBytesTransferred, bWait ? INFINITE : 0, FALSE);
}

CP_INLINE BOOL WINAPI CancelIoEx(HANDLE hFile, LPOVERLAPPED lpOverlapped) {
    return cp_cancel(hFile, lpOverlapped);
}

/* Those that the calling thread has started. */
CP_INLINE BOOL WINAPI CancelIo(HANDLE hFile) {
    return cp_cancel_own(hFile);
}

CP_INLINE BOOL WINAPI SetFileCompletionNotificationModes(HANDLE FileHandle, UCHAR Flags) {
    return cp_set_completion_modes(FileHandle, Flags);
}

#endif
