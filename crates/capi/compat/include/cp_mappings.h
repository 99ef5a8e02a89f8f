/*
 * cp_mappings.h: files and shared memory in the address space. Included by <windows.h>.
 *
 * What differs: mappings have no names, so another process gets one only by fork. Memory is allocated on first access.
 * A file may be truncated while it is mapped; accessing memory beyond its end then raises SIGBUS.
 */
#ifndef CP_MAPPINGS_H
#define CP_MAPPINGS_H

#include <cp_events.h>
#include <cp_pages.h>

#define PAGE_WRITECOPY 0x08
#define PAGE_EXECUTE_WRITECOPY 0x80

#define SEC_IMAGE 0x01000000
#define SEC_RESERVE 0x04000000
#define SEC_COMMIT 0x08000000
#define SEC_NOCACHE 0x10000000
#define SEC_WRITECOMBINE 0x40000000
#define SEC_LARGE_PAGES 0x80000000U

#define SECTION_MAP_WRITE 0x2
#define SECTION_MAP_READ 0x4
#define SECTION_ALL_ACCESS 0xF001F
#define FILE_MAP_COPY 0x1
#define FILE_MAP_WRITE 0x2
#define FILE_MAP_READ 0x4
#define FILE_MAP_EXECUTE 0x20
#define FILE_MAP_ALL_ACCESS 0xF001F

CP_INLINE HANDLE cp_new_mapping(HANDLE file, DWORD protect, DWORD high, DWORD low, int has_name) {
    if (has_name) {
        SetLastError(ERROR_NOT_SUPPORTED);
        return NULL;
    }
    return cp_create_mapping(file, protect, (uint64_t)high << 32 | low);
}

CP_INLINE HANDLE WINAPI CreateFileMappingA(HANDLE hFile, LPSECURITY_ATTRIBUTES lpFileMappingAttributes,
                                           DWORD flProtect, DWORD dwMaximumSizeHigh, DWORD dwMaximumSizeLow,
                                           LPCSTR lpName) {
    (void)lpFileMappingAttributes;
    return cp_new_mapping(hFile, flProtect, dwMaximumSizeHigh, dwMaximumSizeLow, lpName != NULL);
}

CP_INLINE HANDLE WINAPI CreateFileMappingW(HANDLE hFile, LPSECURITY_ATTRIBUTES lpFileMappingAttributes,
                                           DWORD flProtect, DWORD dwMaximumSizeHigh, DWORD dwMaximumSizeLow,
                                           LPCWSTR lpName) {
    (void)lpFileMappingAttributes;
    return cp_new_mapping(hFile, flProtect, dwMaximumSizeHigh, dwMaximumSizeLow, lpName != NULL);
}

CP_INLINE LPVOID WINAPI MapViewOfFileEx(HANDLE hFileMappingObject, DWORD dwDesiredAccess, DWORD dwFileOffsetHigh,
                                        DWORD dwFileOffsetLow, SIZE_T dwNumberOfBytesToMap, LPVOID lpBaseAddress) {
    return cp_map_view(hFileMappingObject, dwDesiredAccess, (uint64_t)dwFileOffsetHigh << 32 | dwFileOffsetLow,
                       dwNumberOfBytesToMap, lpBaseAddress);
}

CP_INLINE LPVOID WINAPI MapViewOfFile(HANDLE hFileMappingObject, DWORD dwDesiredAccess, DWORD dwFileOffsetHigh,
                                      DWORD dwFileOffsetLow, SIZE_T dwNumberOfBytesToMap) {
    return MapViewOfFileEx(hFileMappingObject, dwDesiredAccess, dwFileOffsetHigh, dwFileOffsetLow,
                           dwNumberOfBytesToMap, NULL);
}

CP_INLINE BOOL WINAPI UnmapViewOfFile(LPCVOID lpBaseAddress) {
    return cp_unmap_view(lpBaseAddress);
}

CP_INLINE BOOL WINAPI FlushViewOfFile(LPCVOID lpBaseAddress, SIZE_T dwNumberOfBytesToFlush) {
    return cp_flush_view(lpBaseAddress, dwNumberOfBytesToFlush);
}

#if defined UNICODE || defined _UNICODE
#define CreateFileMapping CreateFileMappingW
#else
#define CreateFileMapping CreateFileMappingA
#endif

#endif
