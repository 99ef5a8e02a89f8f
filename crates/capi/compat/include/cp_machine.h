/* cp_machine.h: properties of the machine. Included by <windows.h>. */
#ifndef CP_MACHINE_H
#define CP_MACHINE_H

#include <fcntl.h>
#include <unistd.h>

#include <cp_ports.h>

/* ---- The version, as programs ask for it that want a recent one -------------------------------- */

#define VER_PLATFORM_WIN32_WINDOWS 1
#define VER_PLATFORM_WIN32_NT 2

#define CP_OS_VERSION(character) \
    { \
        DWORD dwOSVersionInfoSize; \
        DWORD dwMajorVersion; \
        DWORD dwMinorVersion; \
        DWORD dwBuildNumber; \
        DWORD dwPlatformId; \
        character szCSDVersion[128]; \
    }
typedef struct _OSVERSIONINFOA CP_OS_VERSION(CHAR) OSVERSIONINFOA, *POSVERSIONINFOA, *LPOSVERSIONINFOA;
typedef struct _OSVERSIONINFOW CP_OS_VERSION(WCHAR) OSVERSIONINFOW, *POSVERSIONINFOW, *LPOSVERSIONINFOW;

/* That of the reference whose functions are here. */
#define CP_TELL_VERSION(info) \
    ((info)->dwOSVersionInfoSize < sizeof *(info) \
         ? (SetLastError(ERROR_INSUFFICIENT_BUFFER), FALSE) \
         : ((info)->dwMajorVersion = 10, (info)->dwMinorVersion = 0, (info)->dwBuildNumber = 22000, \
            (info)->dwPlatformId = VER_PLATFORM_WIN32_NT, (info)->szCSDVersion[0] = 0, TRUE))

CP_INLINE BOOL WINAPI GetVersionExA(LPOSVERSIONINFOA lpVersionInformation) {
    return CP_TELL_VERSION(lpVersionInformation);
}

CP_INLINE BOOL WINAPI GetVersionExW(LPOSVERSIONINFOW lpVersionInformation) {
    return CP_TELL_VERSION(lpVersionInformation);
}

#if defined UNICODE || defined _UNICODE
typedef OSVERSIONINFOW OSVERSIONINFO, *LPOSVERSIONINFO;
#define GetVersionEx GetVersionExW
#else
typedef OSVERSIONINFOA OSVERSIONINFO, *LPOSVERSIONINFO;
#define GetVersionEx GetVersionExA
#endif

/* ---- Handles ----------------------------------------------------------------------------------- */

#define HANDLE_FLAG_INHERIT 0x1
#define HANDLE_FLAG_PROTECT_FROM_CLOSE 0x2

/* Whether programs that the process starts have a descriptor too. No other handle goes over to them. */
CP_INLINE BOOL WINAPI SetHandleInformation(HANDLE hObject, DWORD dwMask, DWORD dwFlags) {
    DWORD set = dwMask & dwFlags;
    BOOL is_descriptor = (uintptr_t)hObject <= 0x7FFFFFFF;
    int flags = is_descriptor ? fcntl((int)(uintptr_t)hObject, F_GETFD) : 0;
    if (flags < 0) {
        SetLastError(ERROR_INVALID_HANDLE);
        return FALSE;
    }
    if (set & (is_descriptor ? ~(DWORD)HANDLE_FLAG_INHERIT : ~(DWORD)0)) {
        SetLastError(ERROR_NOT_SUPPORTED);
        return FALSE;
    }
    if (is_descriptor && dwMask & HANDLE_FLAG_INHERIT)
        fcntl((int)(uintptr_t)hObject, F_SETFD, set ? flags & ~FD_CLOEXEC : flags | FD_CLOEXEC);
    return TRUE;
}

/* ---- The machine ------------------------------------------------------------------------------- */

#define PROCESSOR_ARCHITECTURE_AMD64 9
#define PROCESSOR_ARCHITECTURE_ARM64 12
#define PROCESSOR_ARCHITECTURE_UNKNOWN 0xFFFF
#define PROCESSOR_AMD_X8664 8664

typedef struct _SYSTEM_INFO {
    __extension__ union {
        DWORD dwOemId;
        __extension__ struct {
            WORD wProcessorArchitecture;
            WORD wReserved;
        };
    };
    DWORD dwPageSize;
    LPVOID lpMinimumApplicationAddress;
    LPVOID lpMaximumApplicationAddress;
    DWORD_PTR dwActiveProcessorMask;
    DWORD dwNumberOfProcessors;
    DWORD dwProcessorType;
    DWORD dwAllocationGranularity;
    WORD wProcessorLevel;
    WORD wProcessorRevision;
} SYSTEM_INFO, *LPSYSTEM_INFO;

/* The mask has one bit for each processor, 64 at most. Level and revision are 0: no program can rely on them. */
CP_INLINE VOID WINAPI GetSystemInfo(LPSYSTEM_INFO lpSystemInfo) {
    long processors = sysconf(_SC_NPROCESSORS_ONLN);
    long page = sysconf(_SC_PAGESIZE);
    memset(lpSystemInfo, 0, sizeof *lpSystemInfo);
#if defined __x86_64__
    lpSystemInfo->wProcessorArchitecture = PROCESSOR_ARCHITECTURE_AMD64;
    lpSystemInfo->dwProcessorType = PROCESSOR_AMD_X8664;
#elif defined __aarch64__
    lpSystemInfo->wProcessorArchitecture = PROCESSOR_ARCHITECTURE_ARM64;
#else
    lpSystemInfo->wProcessorArchitecture = PROCESSOR_ARCHITECTURE_UNKNOWN;
#endif
    lpSystemInfo->dwPageSize = page > 0 ? (DWORD)page : 4096;
    /* Of VirtualAlloc and MapViewOfFile. */
    lpSystemInfo->dwAllocationGranularity = 0x10000;
    lpSystemInfo->lpMinimumApplicationAddress = (LPVOID)(uintptr_t)0x10000;
    lpSystemInfo->lpMaximumApplicationAddress = (LPVOID)(uintptr_t)0x7FFFFFFEFFFF;
    lpSystemInfo->dwNumberOfProcessors = processors > 0 ? (DWORD)processors : 1;
    lpSystemInfo->dwActiveProcessorMask = lpSystemInfo->dwNumberOfProcessors < 64
                                              ? ((DWORD_PTR)1 << lpSystemInfo->dwNumberOfProcessors) - 1
                                              : ~(DWORD_PTR)0;
}

CP_INLINE VOID WINAPI GetNativeSystemInfo(LPSYSTEM_INFO lpSystemInfo) {
    GetSystemInfo(lpSystemInfo);
}

#endif
