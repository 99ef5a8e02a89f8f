/*
 * cp_pages.h: whole pages of memory. Included by <windows.h>.
 *
 * What differs: committed memory is allocated when it is first touched. The rest of the last 64 KiB
 * of a region cannot be used.
 */
#ifndef CP_PAGES_H
#define CP_PAGES_H

#include <sys/mman.h>
#include <unistd.h>

#include <cp_ports.h>

#define MEM_COMMIT 0x1000
#define MEM_RESERVE 0x2000
#define MEM_DECOMMIT 0x4000
#define MEM_RELEASE 0x8000
#define MEM_TOP_DOWN 0x100000
#define PAGE_NOACCESS 0x01
#define PAGE_READONLY 0x02
#define PAGE_READWRITE 0x04
#define PAGE_EXECUTE 0x10
#define PAGE_EXECUTE_READ 0x20
#define PAGE_EXECUTE_READWRITE 0x40

/* A region begins at a multiple of this. */
#define CP_GRANULARITY ((uintptr_t)0x10000)
/* With what the system calls MAP_ANONYMOUS and MAP_NORESERVE, which strict C hides. */
#define CP_PRIVATE_PAGES (MAP_PRIVATE | 0x20 | 0x4000)

/* In the page before a region. */
typedef struct cp_region {
    void *mapped;
    size_t size;
    uintptr_t mark;
} cp_region;

CP_INLINE uintptr_t cp_page(void) {
    return (uintptr_t)sysconf(_SC_PAGESIZE);
}

/* -1 if it is none. */
CP_INLINE int cp_page_protection(DWORD protect) {
    switch (protect) {
    case PAGE_NOACCESS:
        return PROT_NONE;
    case PAGE_READONLY:
        return PROT_READ;
    case PAGE_READWRITE:
        return PROT_READ | PROT_WRITE;
    case PAGE_EXECUTE:
        return PROT_EXEC;
    case PAGE_EXECUTE_READ:
        return PROT_READ | PROT_EXEC;
    case PAGE_EXECUTE_READWRITE:
        return PROT_READ | PROT_WRITE | PROT_EXEC;
    default:
        return -1;
    }
}

CP_INLINE BOOL cp_pages_fail(DWORD code) {
    SetLastError(code);
    return FALSE;
}

/* Changes the pages that have any byte of the range. */
CP_INLINE BOOL cp_protect(uintptr_t address, SIZE_T size, int protection) {
    uintptr_t first = address & ~(cp_page() - 1);
    return mprotect((void *)first, address + size - first, protection) == 0 || cp_pages_fail(ERROR_NOT_ENOUGH_MEMORY);
}

CP_INLINE LPVOID WINAPI VirtualAlloc(LPVOID lpAddress, SIZE_T dwSize, DWORD flAllocationType, DWORD flProtect) {
    DWORD type = flAllocationType & ~(DWORD)MEM_TOP_DOWN;
    int protection = cp_page_protection(flProtect);
    uintptr_t page = cp_page(), start;
    cp_region *region;
    void *mapped;
    size_t size;
    if (dwSize == 0 || dwSize > ~(SIZE_T)0 / 2 || protection < 0 || (type & ~(DWORD)(MEM_COMMIT | MEM_RESERVE)) || !type
        || (lpAddress && type != MEM_COMMIT)) {
        cp_pages_fail(ERROR_INVALID_PARAMETER);
        return NULL;
    }
    if (lpAddress)
        /* Of a region that was reserved before. */
        return cp_protect((uintptr_t)lpAddress, dwSize, protection)
                   ? (LPVOID)((uintptr_t)lpAddress & ~(page - 1))
                   : NULL;
    size = page + CP_GRANULARITY + ((dwSize + page - 1) & ~(page - 1));
    mapped = mmap(NULL, size, PROT_NONE, CP_PRIVATE_PAGES, -1, 0);
    if (mapped == MAP_FAILED) {
        cp_pages_fail(ERROR_NOT_ENOUGH_MEMORY);
        return NULL;
    }
    start = ((uintptr_t)mapped + page + CP_GRANULARITY - 1) & ~(CP_GRANULARITY - 1);
    region = (cp_region *)(start - page);
    if (mprotect(region, page, PROT_READ | PROT_WRITE) != 0
        || (type & MEM_COMMIT && mprotect((void *)start, dwSize, protection) != 0)) {
        munmap(mapped, size);
        cp_pages_fail(ERROR_NOT_ENOUGH_MEMORY);
        return NULL;
    }
    region->mapped = mapped;
    region->size = size;
    region->mark = start;
    return (LPVOID)start;
}

/* Whether a region begins there: its page in front has the mark. */
CP_INLINE int cp_is_region(uintptr_t start, cp_region *region) {
    uintptr_t page = cp_page();
    if (start < page || start % CP_GRANULARITY != 0 || !cp_is_memory(start - page, sizeof *region))
        return 0;
    *region = *(const cp_region *)(start - page);
    return region->mark == start;
}

CP_INLINE BOOL WINAPI VirtualFree(LPVOID lpAddress, SIZE_T dwSize, DWORD dwFreeType) {
    uintptr_t start = (uintptr_t)lpAddress, page = cp_page();
    cp_region region;
    if (dwFreeType == MEM_DECOMMIT && start) {
        uintptr_t first = start & ~(page - 1), end = start + dwSize;
        /* Without a size, of a whole region. */
        if (dwSize == 0) {
            if (!cp_is_region(start, &region))
                return cp_pages_fail(ERROR_INVALID_PARAMETER);
            end = (uintptr_t)region.mapped + region.size;
        }
        return mmap((void *)first, end - first, PROT_NONE, CP_PRIVATE_PAGES | MAP_FIXED, -1, 0) != MAP_FAILED
               || cp_pages_fail(ERROR_NOT_ENOUGH_MEMORY);
    }
    if (dwFreeType != MEM_RELEASE || dwSize != 0 || !cp_is_region(start, &region))
        return cp_pages_fail(ERROR_INVALID_PARAMETER);
    munmap(region.mapped, region.size);
    return TRUE;
}

#endif
