/* cp_console.h: the standard streams, and what stops a program. Included by <windows.h>. */
#ifndef CP_CONSOLE_H
#define CP_CONSOLE_H

#include <errno.h>
#include <stdio.h>
#include <unistd.h>

#include <cp_text.h>

/* ---- Standard streams ------------------------------------------------------------------------------ */

#define STD_INPUT_HANDLE ((DWORD)-10)
#define STD_OUTPUT_HANDLE ((DWORD)-11)
#define STD_ERROR_HANDLE ((DWORD)-12)

/* The handles of the streams are separate numbers that CloseHandle does not know: it fails, and the
 * stream stays open. */
#define CP_STANDARD_STREAMS ((uintptr_t)0x53544400)

CP_INLINE HANDLE WINAPI GetStdHandle(DWORD nStdHandle) {
    if (nStdHandle <= STD_INPUT_HANDLE && nStdHandle >= STD_ERROR_HANDLE)
        return (HANDLE)(CP_STANDARD_STREAMS + (STD_INPUT_HANDLE - nStdHandle) * 4U);
    SetLastError(ERROR_INVALID_HANDLE);
    return INVALID_HANDLE_VALUE;
}

CP_INLINE int cp_is_standard_stream(HANDLE handle) {
    uintptr_t offset = (uintptr_t)handle - CP_STANDARD_STREAMS;
    return offset < 12; /* ignores the two lowest bits, which belong to the program */
}

/* ---- Messages ---------------------------------------------------------------------------------------- */

#define MB_OK 0x00
#define MB_OKCANCEL 0x01
#define MB_YESNO 0x04
#define MB_ICONSTOP 0x10
#define MB_ICONERROR 0x10
#define MB_ICONQUESTION 0x20
#define MB_ICONWARNING 0x30
#define MB_ICONEXCLAMATION 0x30
#define MB_ICONINFORMATION 0x40
#define MB_SYSTEMMODAL 0x1000
#define MB_TASKMODAL 0x2000
#define MB_SETFOREGROUND 0x10000
#define MB_TOPMOST 0x40000
#define MB_SERVICE_NOTIFICATION 0x200000
#define IDOK 1
#define IDCANCEL 2
#define IDYES 6
#define IDNO 7

/* A message goes to standard error. One that leaves a choice nobody can answer: the call fails. */
CP_INLINE int cp_message_box(const char *text, const char *caption, UINT type) {
    fprintf(stderr, "%s: %s\n", caption ? caption : "Error", text ? text : "");
    if ((type & 0xF) == MB_OK)
        return IDOK;
    SetLastError(ERROR_NOT_SUPPORTED);
    return 0;
}

CP_INLINE int WINAPI MessageBoxA(HWND hWnd, LPCSTR lpText, LPCSTR lpCaption, UINT uType) {
    (void)hWnd;
    return cp_message_box(lpText, lpCaption, uType);
}

CP_INLINE int WINAPI MessageBoxW(HWND hWnd, LPCWSTR lpText, LPCWSTR lpCaption, UINT uType) {
    char text[1024], caption[256];
    (void)hWnd;
    if (!lpText || WideCharToMultiByte(CP_UTF8, 0, lpText, -1, text, sizeof text, NULL, NULL) == 0)
        text[0] = '\0';
    if (!lpCaption || WideCharToMultiByte(CP_UTF8, 0, lpCaption, -1, caption, sizeof caption, NULL, NULL) == 0)
        return cp_message_box(text, NULL, uType);
    return cp_message_box(text, caption, uType);
}

#if defined UNICODE || defined _UNICODE
#define MessageBox MessageBoxW
#else
#define MessageBox MessageBoxA
#endif

/* ---- Code pages -------------------------------------------------------------------------------------- */

/* Narrow text is UTF-8, whatever code page is named. */
CP_INLINE BOOL WINAPI SetConsoleCP(UINT wCodePageID) {
    (void)wCodePageID;
    return TRUE;
}

CP_INLINE BOOL WINAPI SetConsoleOutputCP(UINT wCodePageID) {
    (void)wCodePageID;
    return TRUE;
}

CP_INLINE UINT WINAPI GetConsoleCP(void) {
    return CP_UTF8;
}

CP_INLINE UINT WINAPI GetConsoleOutputCP(void) {
    return CP_UTF8;
}

/* The stream's descriptor, or -1. */
CP_INLINE int cp_standard_stream(HANDLE handle) {
    if (cp_is_standard_stream(handle))
        return (int)(((uintptr_t)handle - CP_STANDARD_STREAMS) / 4);
    SetLastError(ERROR_INVALID_HANDLE);
    return -1;
}

/* Writes everything, though the system takes it in parts. Data buffered by `stdio` for the stream
 * goes first. */
CP_INLINE BOOL cp_write_stream(HANDLE handle, const void *bytes, DWORD count, LPDWORD written) {
    int stream = cp_standard_stream(handle);
    DWORD done = 0;
    if (written)
        *written = 0;
    if (stream < 0)
        return FALSE;
    fflush(stream == 2 ? stderr : stdout);
    while (done < count) {
        ssize_t part = write(stream, (const char *)bytes + done, count - done);
        if (part > 0) {
            done += (DWORD)part;
        } else if (part == 0 || errno != EINTR) {
            SetLastError(ERROR_GEN_FAILURE);
            return FALSE;
        }
    }
    if (written)
        *written = done;
    return TRUE;
}

/* What there is, or the end: 0 bytes. */
CP_INLINE BOOL cp_read_stream(HANDLE handle, void *bytes, DWORD count, LPDWORD got) {
    int stream = cp_standard_stream(handle);
    ssize_t part;
    *got = 0;
    if (stream < 0)
        return FALSE;
    do
        part = read(stream, bytes, count);
    while (part < 0 && errno == EINTR);
    if (part < 0) {
        SetLastError(ERROR_GEN_FAILURE);
        return FALSE;
    }
    *got = (DWORD)part;
    return TRUE;
}

CP_INLINE BOOL WINAPI WriteConsoleA(HANDLE hConsoleOutput, const VOID *lpBuffer,
                                    DWORD nNumberOfCharsToWrite, LPDWORD lpNumberOfCharsWritten,
                                    LPVOID lpReserved) {
    (void)lpReserved;
    return cp_write_stream(hConsoleOutput, lpBuffer, nNumberOfCharsToWrite, lpNumberOfCharsWritten);
}

CP_INLINE BOOL WINAPI WriteConsoleW(HANDLE hConsoleOutput, const VOID *lpBuffer,
                                    DWORD nNumberOfCharsToWrite, LPDWORD lpNumberOfCharsWritten,
                                    LPVOID lpReserved) {
    const WCHAR *text = (const WCHAR *)lpBuffer;
    DWORD done;
    (void)lpReserved;
    for (done = 0; done < nNumberOfCharsToWrite; done++) {
        unsigned char bytes[4];
        size_t size = cp_put_letter((uint32_t)text[done], bytes);
        if (!cp_write_stream(hConsoleOutput, bytes, (DWORD)size, NULL))
            return FALSE;
    }
    if (lpNumberOfCharsWritten)
        *lpNumberOfCharsWritten = done;
    return TRUE;
}

/* ---- What stops a program -------------------------------------------------------------------------- */

#define CTRL_C_EVENT 0
#define CTRL_BREAK_EVENT 1
#define CTRL_CLOSE_EVENT 2
#define CTRL_LOGOFF_EVENT 5
#define CTRL_SHUTDOWN_EVENT 6

typedef BOOL(WINAPI *PHANDLER_ROUTINE)(DWORD CtrlType);

/* SIGINT is CTRL_C_EVENT, SIGQUIT CTRL_BREAK_EVENT, SIGHUP CTRL_CLOSE_EVENT and SIGTERM
 * CTRL_SHUTDOWN_EVENT. As there, a separate thread calls the routines, the last one first, until
 * one returns TRUE. If none does, the signal ends the program. Without a routine, `Add` chooses
 * whether Ctrl+C is ignored. */
CP_INLINE BOOL WINAPI SetConsoleCtrlHandler(PHANDLER_ROUTINE HandlerRoutine, BOOL Add) {
    return cp_set_control_handler(HandlerRoutine, Add);
}

#if defined UNICODE || defined _UNICODE
#define WriteConsole WriteConsoleW
#else
#define WriteConsole WriteConsoleA
#endif

#endif
