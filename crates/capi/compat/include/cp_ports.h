/* cp_ports.h: completion ports, their packets, and the last error. Included by <windows.h>. */
#ifndef CP_PORTS_H
#define CP_PORTS_H

#include <cp_base.h>
#include <cp_errors.h>

/* ---- Structs ------------------------------------------------------------------------------- */

typedef struct _OVERLAPPED {
    ULONG_PTR Internal;
    ULONG_PTR InternalHigh;
    __extension__ union {
        __extension__ struct {
            DWORD Offset;
            DWORD OffsetHigh;
        };
        PVOID Pointer;
    };
    HANDLE hEvent;
} OVERLAPPED, *LPOVERLAPPED;

typedef struct _OVERLAPPED_ENTRY {
    ULONG_PTR lpCompletionKey;
    LPOVERLAPPED lpOverlapped;
    ULONG_PTR Internal;
    DWORD dwNumberOfBytesTransferred;
} OVERLAPPED_ENTRY, *LPOVERLAPPED_ENTRY;

typedef void(WINAPI *LPOVERLAPPED_COMPLETION_ROUTINE)(DWORD, DWORD, LPOVERLAPPED);

#define FILE_FLAG_OVERLAPPED 0x40000000

/* ---- Errors -------------------------------------------------------------------------------- */

CP_INLINE DWORD WINAPI GetLastError(void) {
    return cp_last_error();
}

CP_INLINE void WINAPI SetLastError(DWORD code) {
    cp_set_last_error(code);
}

/* ---- Ports --------------------------------------------------------------------------------- */

CP_INLINE HANDLE WINAPI CreateIoCompletionPort(HANDLE FileHandle, HANDLE ExistingCompletionPort,
                                               ULONG_PTR CompletionKey,
                                               DWORD NumberOfConcurrentThreads) {
    return cp_create_io_completion_port(FileHandle, ExistingCompletionPort, CompletionKey,
                                        NumberOfConcurrentThreads);
}

CP_INLINE BOOL WINAPI CloseHandle(HANDLE hObject) {
    return cp_close_handle(hObject);
}

CP_INLINE BOOL WINAPI GetQueuedCompletionStatus(HANDLE CompletionPort,
                                                LPDWORD lpNumberOfBytesTransferred,
                                                PULONG_PTR lpCompletionKey,
                                                LPOVERLAPPED *lpOverlapped, DWORD dwMilliseconds) {
    void *overlapped = NULL;
    BOOL done = cp_dequeue(CompletionPort, lpNumberOfBytesTransferred, lpCompletionKey,
                           lpOverlapped ? &overlapped : NULL, dwMilliseconds);
    if (lpOverlapped)
        *lpOverlapped = (LPOVERLAPPED)overlapped;
    return done;
}

CP_INLINE BOOL WINAPI GetQueuedCompletionStatusEx(HANDLE CompletionPort,
                                                  LPOVERLAPPED_ENTRY lpCompletionPortEntries,
                                                  ULONG ulCount, PULONG ulNumEntriesRemoved,
                                                  DWORD dwMilliseconds, BOOL fAlertable) {
    return cp_dequeue_many(CompletionPort, (cp_entry *)(void *)lpCompletionPortEntries, ulCount,
                           ulNumEntriesRemoved, dwMilliseconds, fAlertable);
}

CP_INLINE BOOL WINAPI PostQueuedCompletionStatus(HANDLE CompletionPort,
                                                 DWORD dwNumberOfBytesTransferred,
                                                 ULONG_PTR dwCompletionKey,
                                                 LPOVERLAPPED lpOverlapped) {
    return cp_post(CompletionPort, dwNumberOfBytesTransferred, dwCompletionKey, lpOverlapped);
}

#endif
