/* cp_machine.h: what the machine is. Included by <windows.h>. */
#ifndef CP_MACHINE_H
#define CP_MACHINE_H

#include <unistd.h>

#include <cp_base.h>

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
    lpSystemInfo->dwAllocationGranularity = lpSystemInfo->dwPageSize;
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
