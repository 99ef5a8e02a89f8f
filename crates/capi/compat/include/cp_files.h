/*
 * cp_files.h: opening, reading, writing, querying, renaming and deleting files. Included by
 * <windows.h>.
 *
 * Names are the system's. A `\` is converted to `/`, so a file whose name contains a `\` cannot be
 * named. There are no drives. `NUL`, `CONIN$` and `CONOUT$` mean the same as there, a leading
 * `\\?\` is ignored, and other names that begin with two `\` do not exist. Names are
 * case-sensitive. A narrow name is bytes; a wide one is converted to UTF-8.
 *
 * PORTING.md lists the differences.
 */
#ifndef CP_FILES_H
#define CP_FILES_H

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cp_clocks.h>
#include <cp_console.h>
#include <cp_events.h>
#include <cp_overlapped.h>
#include <cp_text.h>

/* ---- What a file is opened for ------------------------------------------------------------------------ */

#define DELETE 0x00010000
#define READ_CONTROL 0x00020000
#define SYNCHRONIZE 0x00100000
#define STANDARD_RIGHTS_REQUIRED 0x000F0000
#define MAXIMUM_ALLOWED 0x02000000
#define GENERIC_ALL 0x10000000
#define GENERIC_EXECUTE 0x20000000
#define GENERIC_WRITE 0x40000000U
#define GENERIC_READ 0x80000000U
#define FILE_READ_DATA 0x1
#define FILE_LIST_DIRECTORY 0x1
#define FILE_WRITE_DATA 0x2
#define FILE_APPEND_DATA 0x4
#define FILE_READ_ATTRIBUTES 0x80
#define FILE_WRITE_ATTRIBUTES 0x100

#define FILE_SHARE_READ 0x1
#define FILE_SHARE_WRITE 0x2
#define FILE_SHARE_DELETE 0x4

#define CREATE_NEW 1
#define CREATE_ALWAYS 2
#define OPEN_EXISTING 3
#define OPEN_ALWAYS 4
#define TRUNCATE_EXISTING 5

#define FILE_ATTRIBUTE_READONLY 0x1
#define FILE_ATTRIBUTE_HIDDEN 0x2
#define FILE_ATTRIBUTE_SYSTEM 0x4
#define FILE_ATTRIBUTE_DIRECTORY 0x10
#define FILE_ATTRIBUTE_ARCHIVE 0x20
#define FILE_ATTRIBUTE_DEVICE 0x40
#define FILE_ATTRIBUTE_NORMAL 0x80
#define FILE_ATTRIBUTE_TEMPORARY 0x100
#define INVALID_FILE_ATTRIBUTES 0xFFFFFFFFU

#define FILE_FLAG_OPEN_REPARSE_POINT 0x00200000
#define FILE_FLAG_POSIX_SEMANTICS 0x01000000
#define FILE_FLAG_BACKUP_SEMANTICS 0x02000000
#define FILE_FLAG_DELETE_ON_CLOSE 0x04000000
#define FILE_FLAG_SEQUENTIAL_SCAN 0x08000000
#define FILE_FLAG_RANDOM_ACCESS 0x10000000
#define FILE_FLAG_NO_BUFFERING 0x20000000
#define FILE_FLAG_WRITE_THROUGH 0x80000000U

#define FILE_BEGIN 0
#define FILE_CURRENT 1
#define FILE_END 2
#define INVALID_FILE_SIZE 0xFFFFFFFFU
#define INVALID_SET_FILE_POINTER 0xFFFFFFFFU

#define FILE_TYPE_UNKNOWN 0x0
#define FILE_TYPE_DISK 0x1
#define FILE_TYPE_CHAR 0x2
#define FILE_TYPE_PIPE 0x3

#define MOVEFILE_REPLACE_EXISTING 0x1
#define MOVEFILE_COPY_ALLOWED 0x2
#define MOVEFILE_WRITE_THROUGH 0x8

/* ---- Names ---------------------------------------------------------------------------------------------- */

/* A name as the system has it. */
typedef struct cp_name {
    char text[4096];
} cp_name;

/* Whether both are the same, whatever the letters' size; `known` has capital ones. */
CP_INLINE int cp_is_device(const char *name, const char *known) {
    while (*known && (*name == *known || (*name >= 'a' && *name <= 'z' && *name - 'a' + 'A' == *known))) {
        name++;
        known++;
    }
    return *known == 0 && (*name == 0 || (*name == ':' && name[1] == 0));
}

/* A loop, because compilers warn about strncmp with a shorter constant. */
CP_INLINE int cp_begins(const char *name, const char *with) {
    while (*with && *name == *with) {
        name++;
        with++;
    }
    return *with == 0;
}

/* Makes it one of the system's; fails with the last error. */
CP_INLINE int cp_name_make(cp_name *it) {
    char *at = it->text;
    if (cp_begins(at, "\\\\?\\")) {
        memmove(at, at + 4, strlen(at + 4) + 1);
        if (cp_begins(at, "UNC\\")) {
            SetLastError(ERROR_BAD_NETPATH);
            return 0;
        }
    } else if (cp_begins(at, "\\\\.\\")) {
        /* A device, or a pipe. */
        SetLastError(ERROR_FILE_NOT_FOUND);
        return 0;
    } else if (cp_begins(at, "\\\\")) {
        SetLastError(ERROR_BAD_NETPATH);
        return 0;
    }
    if (cp_is_device(at, "NUL"))
        strcpy(at, "/dev/null");
    else if (cp_is_device(at, "CONIN$") || cp_is_device(at, "CONOUT$"))
        strcpy(at, "/dev/tty");
    for (; *at; at++)
        if (*at == '\\')
            *at = '/';
    return 1;
}

CP_INLINE int cp_name_of(cp_name *it, LPCSTR name) {
    if (!name || strlen(name) >= sizeof it->text) {
        SetLastError(name ? ERROR_FILENAME_EXCED_RANGE : ERROR_PATH_NOT_FOUND);
        return 0;
    }
    strcpy(it->text, name);
    return cp_name_make(it);
}

CP_INLINE int cp_name_of_wide(cp_name *it, LPCWSTR name) {
    if (!name) {
        SetLastError(ERROR_PATH_NOT_FOUND);
        return 0;
    }
    if (WideCharToMultiByte(CP_UTF8, 0, name, -1, it->text, (int)sizeof it->text, NULL, NULL) == 0) {
        SetLastError(ERROR_FILENAME_EXCED_RANGE);
        return 0;
    }
    return cp_name_make(it);
}

/* What a call on a name returns: TRUE, or FALSE and the last error. */
CP_INLINE BOOL cp_name_result(const cp_name *it, int done) {
    if (done == 0)
        return TRUE;
    SetLastError(cp_error_of_name(errno, it->text));
    return FALSE;
}

/* ---- Files ---------------------------------------------------------------------------------------------- */

CP_INLINE HANDLE WINAPI CreateFileA(LPCSTR lpFileName, DWORD dwDesiredAccess, DWORD dwShareMode,
                                    LPSECURITY_ATTRIBUTES lpSecurityAttributes, DWORD dwCreationDisposition,
                                    DWORD dwFlagsAndAttributes, HANDLE hTemplateFile) {
    cp_name name;
    (void)hTemplateFile;
    if (!cp_name_of(&name, lpFileName))
        return INVALID_HANDLE_VALUE;
    return cp_open_file(name.text, dwDesiredAccess, dwShareMode,
                        lpSecurityAttributes && lpSecurityAttributes->bInheritHandle, dwCreationDisposition,
                        dwFlagsAndAttributes);
}

CP_INLINE HANDLE WINAPI CreateFileW(LPCWSTR lpFileName, DWORD dwDesiredAccess, DWORD dwShareMode,
                                    LPSECURITY_ATTRIBUTES lpSecurityAttributes, DWORD dwCreationDisposition,
                                    DWORD dwFlagsAndAttributes, HANDLE hTemplateFile) {
    cp_name name;
    (void)hTemplateFile;
    if (!cp_name_of_wide(&name, lpFileName))
        return INVALID_HANDLE_VALUE;
    return cp_open_file(name.text, dwDesiredAccess, dwShareMode,
                        lpSecurityAttributes && lpSecurityAttributes->bInheritHandle, dwCreationDisposition,
                        dwFlagsAndAttributes);
}

/* The result of a call on a standard stream, as that of a finished operation. */
CP_INLINE BOOL cp_stream_done(BOOL done, DWORD bytes, LPOVERLAPPED overlapped) {
    HANDLE event;
    if (!done || !overlapped)
        return done;
    event = (HANDLE)((uintptr_t)overlapped->hEvent & ~(uintptr_t)3);
    overlapped->InternalHigh = bytes;
    overlapped->Internal = 0;
    return event ? SetEvent(event) : TRUE;
}

CP_INLINE BOOL WINAPI WriteFile(HANDLE hFile, LPCVOID lpBuffer, DWORD nNumberOfBytesToWrite,
                                LPDWORD lpNumberOfBytesWritten, LPOVERLAPPED lpOverlapped) {
    DWORD count = 0;
    BOOL done;
    if (!cp_is_standard_stream(hFile))
        return cp_write_file(hFile, lpBuffer, nNumberOfBytesToWrite, lpNumberOfBytesWritten, lpOverlapped);
    done = cp_write_stream(hFile, lpBuffer, nNumberOfBytesToWrite, &count);
    if (lpNumberOfBytesWritten)
        *lpNumberOfBytesWritten = count;
    return cp_stream_done(done, count, lpOverlapped);
}

CP_INLINE BOOL WINAPI ReadFile(HANDLE hFile, LPVOID lpBuffer, DWORD nNumberOfBytesToRead,
                               LPDWORD lpNumberOfBytesRead, LPOVERLAPPED lpOverlapped) {
    DWORD count = 0;
    BOOL done;
    if (!cp_is_standard_stream(hFile))
        return cp_read_file(hFile, lpBuffer, nNumberOfBytesToRead, lpNumberOfBytesRead, lpOverlapped);
    done = cp_read_stream(hFile, lpBuffer, nNumberOfBytesToRead, &count);
    if (lpNumberOfBytesRead)
        *lpNumberOfBytesRead = count;
    return cp_stream_done(done, count, lpOverlapped);
}

/* Also what `stdio` holds back for a standard stream. */
CP_INLINE BOOL WINAPI FlushFileBuffers(HANDLE hFile) {
    if (!cp_is_standard_stream(hFile))
        return cp_file_flush(hFile);
    return cp_write_stream(hFile, "", 0, NULL);
}

CP_INLINE BOOL WINAPI SetFilePointerEx(HANDLE hFile, LARGE_INTEGER liDistanceToMove, PLARGE_INTEGER lpNewFilePointer,
                                       DWORD dwMoveMethod) {
    int64_t place = 0;
    if (!cp_file_seek(hFile, liDistanceToMove.QuadPart, dwMoveMethod, &place))
        return FALSE;
    if (lpNewFilePointer)
        lpNewFilePointer->QuadPart = place;
    return TRUE;
}

/* Without a place for the upper half the distance has 32 bits. The last error distinguishes a
 * failure from a position with the same bits. */
CP_INLINE DWORD WINAPI SetFilePointer(HANDLE hFile, LONG lDistanceToMove, PLONG lpDistanceToMoveHigh,
                                      DWORD dwMoveMethod) {
    int64_t distance = lDistanceToMove, place = 0;
    if (lpDistanceToMoveHigh)
        distance = (int64_t)((uint64_t)(uint32_t)*lpDistanceToMoveHigh << 32 | (uint32_t)lDistanceToMove);
    if (!cp_file_seek(hFile, distance, dwMoveMethod, &place))
        return INVALID_SET_FILE_POINTER;
    if (lpDistanceToMoveHigh) {
        *lpDistanceToMoveHigh = (LONG)(place >> 32);
    } else if (place > INT32_MAX) {
        SetLastError(ERROR_INVALID_PARAMETER);
        return INVALID_SET_FILE_POINTER;
    }
    SetLastError(NO_ERROR);
    return (DWORD)place;
}

CP_INLINE BOOL WINAPI GetFileSizeEx(HANDLE hFile, PLARGE_INTEGER lpFileSize) {
    int64_t size = 0;
    if (!lpFileSize) {
        SetLastError(ERROR_INVALID_PARAMETER);
        return FALSE;
    }
    if (!cp_file_size(hFile, &size))
        return FALSE;
    lpFileSize->QuadPart = size;
    return TRUE;
}

CP_INLINE DWORD WINAPI GetFileSize(HANDLE hFile, LPDWORD lpFileSizeHigh) {
    int64_t size = 0;
    if (!cp_file_size(hFile, &size))
        return INVALID_FILE_SIZE;
    if (lpFileSizeHigh)
        *lpFileSizeHigh = (DWORD)((uint64_t)size >> 32);
    SetLastError(NO_ERROR);
    return (DWORD)size;
}

CP_INLINE BOOL WINAPI SetEndOfFile(HANDLE hFile) {
    return cp_file_cut(hFile);
}

CP_INLINE DWORD WINAPI GetFileType(HANDLE hFile) {
    return cp_file_type(hFile, cp_is_standard_stream(hFile) ? cp_standard_stream(hFile) : -1);
}

/* ---- By name ---------------------------------------------------------------------------------------------- */

CP_INLINE BOOL WINAPI DeleteFileA(LPCSTR lpFileName) {
    cp_name name;
    return cp_name_of(&name, lpFileName) && cp_name_result(&name, unlink(name.text));
}

CP_INLINE BOOL WINAPI DeleteFileW(LPCWSTR lpFileName) {
    cp_name name;
    return cp_name_of_wide(&name, lpFileName) && cp_name_result(&name, unlink(name.text));
}

CP_INLINE BOOL WINAPI CreateDirectoryA(LPCSTR lpPathName, LPSECURITY_ATTRIBUTES lpSecurityAttributes) {
    cp_name name;
    (void)lpSecurityAttributes;
    return cp_name_of(&name, lpPathName) && cp_name_result(&name, mkdir(name.text, 0777));
}

CP_INLINE BOOL WINAPI CreateDirectoryW(LPCWSTR lpPathName, LPSECURITY_ATTRIBUTES lpSecurityAttributes) {
    cp_name name;
    (void)lpSecurityAttributes;
    return cp_name_of_wide(&name, lpPathName) && cp_name_result(&name, mkdir(name.text, 0777));
}

CP_INLINE BOOL WINAPI RemoveDirectoryA(LPCSTR lpPathName) {
    cp_name name;
    return cp_name_of(&name, lpPathName) && cp_name_result(&name, rmdir(name.text));
}

CP_INLINE BOOL WINAPI RemoveDirectoryW(LPCWSTR lpPathName) {
    cp_name name;
    return cp_name_of_wide(&name, lpPathName) && cp_name_result(&name, rmdir(name.text));
}

/* Of those the system has: whether it is a folder, and whether nobody may write to it. */
CP_INLINE DWORD cp_attributes(const cp_name *name) {
    cp_facts facts;
    return cp_name_facts(name->text, 0, &facts) ? facts.attributes : INVALID_FILE_ATTRIBUTES;
}

CP_INLINE DWORD WINAPI GetFileAttributesA(LPCSTR lpFileName) {
    cp_name name;
    return cp_name_of(&name, lpFileName) ? cp_attributes(&name) : INVALID_FILE_ATTRIBUTES;
}

CP_INLINE DWORD WINAPI GetFileAttributesW(LPCWSTR lpFileName) {
    cp_name name;
    return cp_name_of_wide(&name, lpFileName) ? cp_attributes(&name) : INVALID_FILE_ATTRIBUTES;
}

/* An existing file stays, unless it may be replaced. Files cannot be moved to another disk. */
CP_INLINE BOOL cp_move(const cp_name *from, const cp_name *to, DWORD flags) {
    return cp_move_file(from->text, to->text, (flags & MOVEFILE_REPLACE_EXISTING) != 0);
}

CP_INLINE BOOL WINAPI MoveFileExA(LPCSTR lpExistingFileName, LPCSTR lpNewFileName, DWORD dwFlags) {
    cp_name from, to;
    return cp_name_of(&from, lpExistingFileName) && cp_name_of(&to, lpNewFileName) && cp_move(&from, &to, dwFlags);
}

CP_INLINE BOOL WINAPI MoveFileExW(LPCWSTR lpExistingFileName, LPCWSTR lpNewFileName, DWORD dwFlags) {
    cp_name from, to;
    return cp_name_of_wide(&from, lpExistingFileName) && cp_name_of_wide(&to, lpNewFileName) &&
           cp_move(&from, &to, dwFlags);
}

CP_INLINE BOOL WINAPI MoveFileA(LPCSTR lpExistingFileName, LPCSTR lpNewFileName) {
    return MoveFileExA(lpExistingFileName, lpNewFileName, 0);
}

CP_INLINE BOOL WINAPI MoveFileW(LPCWSTR lpExistingFileName, LPCWSTR lpNewFileName) {
    return MoveFileExW(lpExistingFileName, lpNewFileName, 0);
}

/* With a `/` at the end. How long it is; how much room it needs if there is less. */
CP_INLINE DWORD WINAPI GetTempPathA(DWORD nBufferLength, LPSTR lpBuffer) {
    const char *folder = getenv("TMPDIR");
    size_t length, ends;
    if (!folder || !*folder)
        folder = "/tmp";
    length = strlen(folder);
    ends = folder[length - 1] == '/';
    if (length + !ends + 1 > nBufferLength)
        return (DWORD)(length + !ends + 1);
    memcpy(lpBuffer, folder, length);
    strcpy(lpBuffer + length, ends ? "" : "/");
    return (DWORD)(length + !ends);
}

CP_INLINE DWORD WINAPI GetTempPathW(DWORD nBufferLength, LPWSTR lpBuffer) {
    cp_name name;
    DWORD length = GetTempPathA((DWORD)sizeof name.text, name.text), wide;
    if (length >= sizeof name.text)
        return 0;
    wide = (DWORD)MultiByteToWideChar(CP_UTF8, 0, name.text, -1, NULL, 0);
    if (wide > nBufferLength)
        return wide;
    return (DWORD)MultiByteToWideChar(CP_UTF8, 0, name.text, -1, lpBuffer, (int)nBufferLength) - 1;
}

/* A name that no file of the folder has, and of which an empty one is made unless the number is given. */
CP_INLINE UINT WINAPI GetTempFileNameA(LPCSTR lpPathName, LPCSTR lpPrefixString, UINT uUnique, LPSTR lpTempFileName) {
    UINT number = uUnique ? uUnique & 0xFFFF : (UINT)(cp_clock() / 1000) ^ (UINT)getpid();
    UINT tries;
    for (tries = 0; tries < 0x10000; tries++, number++) {
        HANDLE made;
        if ((number & 0xFFFF) == 0)
            continue;
        if (snprintf(lpTempFileName, MAX_PATH, "%s%s%.3s%04X.tmp", lpPathName,
                     *lpPathName && strchr("/\\", lpPathName[strlen(lpPathName) - 1]) ? "" : "/",
                     lpPrefixString ? lpPrefixString : "", number & 0xFFFF) >= MAX_PATH) {
            SetLastError(ERROR_FILENAME_EXCED_RANGE);
            return 0;
        }
        if (uUnique)
            return number;
        made = CreateFileA(lpTempFileName, GENERIC_WRITE, 0, NULL, CREATE_NEW, FILE_ATTRIBUTE_NORMAL, NULL);
        if (made != INVALID_HANDLE_VALUE) {
            CloseHandle(made);
            return number & 0xFFFF;
        }
        if (GetLastError() != ERROR_FILE_EXISTS)
            return 0;
    }
    return 0;
}

CP_INLINE UINT WINAPI GetTempFileNameW(LPCWSTR lpPathName, LPCWSTR lpPrefixString, UINT uUnique,
                                       LPWSTR lpTempFileName) {
    cp_name folder, prefix, made;
    UINT number;
    if (!cp_name_of_wide(&folder, lpPathName) || !cp_name_of_wide(&prefix, lpPrefixString ? lpPrefixString : L""))
        return 0;
    number = GetTempFileNameA(folder.text, prefix.text, uUnique, made.text);
    if (number != 0 && MultiByteToWideChar(CP_UTF8, 0, made.text, -1, lpTempFileName, MAX_PATH) == 0)
        return 0;
    return number;
}

#if defined UNICODE || defined _UNICODE
#define CreateFile CreateFileW
#define DeleteFile DeleteFileW
#define CreateDirectory CreateDirectoryW
#define RemoveDirectory RemoveDirectoryW
#define GetFileAttributes GetFileAttributesW
#define MoveFile MoveFileW
#define MoveFileEx MoveFileExW
#define GetTempPath GetTempPathW
#define GetTempFileName GetTempFileNameW
#else
#define CreateFile CreateFileA
#define DeleteFile DeleteFileA
#define CreateDirectory CreateDirectoryA
#define RemoveDirectory RemoveDirectoryA
#define GetFileAttributes GetFileAttributesA
#define MoveFile MoveFileA
#define MoveFileEx MoveFileExA
#define GetTempPath GetTempPathA
#define GetTempFileName GetTempFileNameA
#endif

#endif
