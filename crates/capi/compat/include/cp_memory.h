/*
 * cp_memory.h: the process's heap, and memory that programs free. Included by <windows.h>.
 *
 * All memory comes from `malloc`. There is one heap; only the functions here accept its handle.
 */
#ifndef CP_MEMORY_H
#define CP_MEMORY_H

#include <stdlib.h>

#include <cp_ports.h>

#define HEAP_NO_SERIALIZE 0x1
#define HEAP_GENERATE_EXCEPTIONS 0x4
#define HEAP_ZERO_MEMORY 0x8

typedef HANDLE HGLOBAL, HLOCAL;

#define GMEM_FIXED 0x0
#define GMEM_ZEROINIT 0x40
#define GPTR 0x40
#define LMEM_FIXED 0x0
#define LMEM_ZEROINIT 0x40
#define LPTR 0x40

CP_INLINE HANDLE WINAPI GetProcessHeap(void) {
    return (HANDLE)(uintptr_t)0x48454150;
}

/* The last error stays as it is, there and here. */
CP_INLINE LPVOID WINAPI HeapAlloc(HANDLE hHeap, DWORD dwFlags, SIZE_T dwBytes) {
    (void)hHeap;
    return dwFlags & HEAP_ZERO_MEMORY ? calloc(1, dwBytes ? dwBytes : 1) : malloc(dwBytes ? dwBytes : 1);
}

CP_INLINE BOOL WINAPI HeapFree(HANDLE hHeap, DWORD dwFlags, LPVOID lpMem) {
    (void)hHeap;
    (void)dwFlags;
    free(lpMem);
    return TRUE;
}

/* Fixed memory only. */
CP_INLINE HGLOBAL WINAPI GlobalAlloc(UINT uFlags, SIZE_T dwBytes) {
    if (uFlags & ~(UINT)GMEM_ZEROINIT) {
        SetLastError(ERROR_NOT_SUPPORTED);
        return NULL;
    }
    return HeapAlloc(GetProcessHeap(), uFlags & GMEM_ZEROINIT ? HEAP_ZERO_MEMORY : 0, dwBytes);
}

CP_INLINE HGLOBAL WINAPI GlobalFree(HGLOBAL hMem) {
    free(hMem);
    return NULL;
}

CP_INLINE HLOCAL WINAPI LocalAlloc(UINT uFlags, SIZE_T uBytes) {
    return GlobalAlloc(uFlags, uBytes);
}

CP_INLINE HLOCAL WINAPI LocalFree(HLOCAL hMem) {
    return GlobalFree(hMem);
}

#endif
