/* cp_modules.h: functions looked up by the names of modules and functions. Included by <windows.h>. */
#ifndef CP_MODULES_H
#define CP_MODULES_H

#include <cp_ports.h>

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

#endif
