/* cp_modules.h: functions looked up by the names of modules and functions. Included by <windows.h>. */
#ifndef CP_MODULES_H
#define CP_MODULES_H

#include <cp_ports.h>

/* ---- The functions of headers ------------------------------------------------------------------------ */

/* Most functions are inline, so their addresses are those of the unit that asks. Each header ends with a table of its
 * functions, terminated by NULL. GetProcAddress is defined before the tables, and reaches each one through a reference
 * to its assembler name. That reference is NULL in a unit without the header. Nothing else refers to a table, so a unit
 * that never calls GetProcAddress contains none. */
typedef struct cp_export {
    const char *module;
    const char *name;
    FARPROC function;
} cp_export;

#define CP_EXPORT(module, function) {module, #function, (FARPROC)(function)}
#define CP_EXPORT_OF(module, name, function) {module, name, (FARPROC)(function)}

#define CP_EXPORTS(group) \
    static const cp_export *cp_exports_##group(void) __attribute__((__weakref__("cp_exports_of_" #group)))
#define CP_EXPORTS_BEGIN(group)                                                                      \
    static inline const cp_export *cp_exports_list_##group(void) __asm__("cp_exports_of_" #group);   \
    static inline const cp_export *cp_exports_list_##group(void) {                                   \
        static const cp_export names[] = {
#define CP_EXPORTS_END      \
        {NULL, NULL, NULL}, \
    };                      \
    return names;           \
    }

CP_EXPORTS(windows);
CP_EXPORTS(winsock);
CP_EXPORTS(tcpip);
CP_EXPORTS(mswsock);
CP_EXPORTS(iphlpapi);

static inline FARPROC cp_export_find(HMODULE module, LPCSTR name) {
    const cp_export *(*const groups[])(void) = {cp_exports_windows, cp_exports_winsock, cp_exports_tcpip,
                                                cp_exports_mswsock, cp_exports_iphlpapi};
    size_t at;
    for (at = 0; at < sizeof groups / sizeof *groups; at++) {
        const cp_export *it = groups[at] ? groups[at]() : NULL;
        for (; it && it->name; it++) {
            if (strcmp(it->name, name) == 0 && cp_module(it->module) == (const void *)module)
                return it->function;
        }
    }
    return NULL;
}

/* ---- Modules ------------------------------------------------------------------------------------------- */

/* Knows ntdll, and the modules whose functions are in these headers. */
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

/* Finds the functions of all headers that the unit includes, before the call or after it. Also finds a few functions of
 * the library, whatever the unit includes. A number in place of a name finds nothing. In C++ each unit has its own
 * version, because it has its own tables. */
static inline FARPROC WINAPI GetProcAddress(HMODULE hModule, LPCSTR lpProcName) {
    /* ISO C has no cast from the address of an object to that of a function; POSIX says they are alike. */
    union {
        const void *address;
        FARPROC function;
    } found;
    found.function = NULL;
    if (hModule && (uintptr_t)lpProcName >= 0x10000)
        found.function = cp_export_find(hModule, lpProcName);
    if (!found.function)
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

#endif
