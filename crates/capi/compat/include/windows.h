/*
 * windows.h: I/O completion ports by the reference's names, on Linux; and only those.
 *
 * Defined before it is included:
 *   CP_WITH_WIN32   also <cp_win32.h>: threads, locks, events, clocks, atomic operations
 *   CP_WITH_SAL     also <sal.h>: _In_, _Out_ and the like
 */
#ifndef CP_WINDOWS_H
#define CP_WINDOWS_H

#ifdef CP_WITH_SAL
#include <sal.h>
#endif

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

/* For operations on a descriptor, of which there are none yet. */
#define FILE_SKIP_COMPLETION_PORT_ON_SUCCESS 0x1
#define FILE_SKIP_SET_EVENT_ON_HANDLE 0x2
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

/* ---- Functions by name ---------------------------------------------------------------------- */

/* Knows ws2_32, kernel32 and mswsock, and of those the functions on ports and ProcessSocketNotifications. */
CP_INLINE HMODULE WINAPI LoadLibraryA(LPCSTR lpLibFileName) {
    return (HMODULE)(uintptr_t)cp_module(lpLibFileName);
}

CP_INLINE HMODULE WINAPI LoadLibraryW(LPCWSTR lpLibFileName) {
    char name[32];
    size_t length = 0;
    while (lpLibFileName && lpLibFileName[length] && length + 1 < sizeof name) {
        wchar_t letter = lpLibFileName[length];
        name[length++] = letter > 0 && letter < 0x80 ? (char)letter : '?';
    }
    name[length] = '\0';
    return (HMODULE)(uintptr_t)cp_module(name);
}

/* Path and flags mean nothing here: no file is looked for. */
CP_INLINE HMODULE WINAPI LoadLibraryExA(LPCSTR lpLibFileName, HANDLE hFile, DWORD dwFlags) {
    (void)hFile;
    (void)dwFlags;
    return LoadLibraryA(lpLibFileName);
}

CP_INLINE HMODULE WINAPI LoadLibraryExW(LPCWSTR lpLibFileName, HANDLE hFile, DWORD dwFlags) {
    (void)hFile;
    (void)dwFlags;
    return LoadLibraryW(lpLibFileName);
}

CP_INLINE HMODULE WINAPI GetModuleHandleA(LPCSTR lpModuleName) {
    return LoadLibraryA(lpModuleName);
}

CP_INLINE HMODULE WINAPI GetModuleHandleW(LPCWSTR lpModuleName) {
    return LoadLibraryW(lpModuleName);
}

CP_INLINE FARPROC WINAPI GetProcAddress(HMODULE hModule, LPCSTR lpProcName) {
    /* ISO C has no cast from the address of an object to that of a function; POSIX says they are alike. */
    union {
        const void *address;
        FARPROC function;
    } found;
    found.address = cp_function(hModule, lpProcName);
    return found.function;
}

CP_INLINE BOOL WINAPI FreeLibrary(HMODULE hLibModule) {
    if (hLibModule)
        return TRUE;
    SetLastError(ERROR_INVALID_HANDLE);
    return FALSE;
}

#define LOAD_LIBRARY_SEARCH_SYSTEM32 0x00000800
#if defined UNICODE || defined _UNICODE
#define LoadLibrary LoadLibraryW
#define LoadLibraryEx LoadLibraryExW
#define GetModuleHandle GetModuleHandleW
#else
#define LoadLibrary LoadLibraryA
#define LoadLibraryEx LoadLibraryExA
#define GetModuleHandle GetModuleHandleA
#endif

#ifdef CP_WITH_WIN32
#include <cp_win32.h>
#endif

#endif
