/*
 * cp_paths.h: the current folder, and absolute names. Included by <windows.h>.
 *
 * The parts of a name are separated by `/`. GetFullPathName looks only at the name: in `a/../b` it removes `a`, even if
 * that is a link to another folder.
 */
#ifndef CP_PATHS_H
#define CP_PATHS_H

#include <errno.h>
#include <string.h>
#include <unistd.h>

#include <cp_files.h>

/* Returns the length of the name written, or the room it needs; 0 if there is no name. */
CP_INLINE DWORD cp_path_out(const char *path, DWORD room, LPSTR to) {
    size_t length = strlen(path);
    if (length >= room || !to)
        return (DWORD)length + 1;
    memcpy(to, path, length + 1);
    return (DWORD)length;
}

CP_INLINE DWORD cp_path_out_wide(const char *path, DWORD room, LPWSTR to) {
    DWORD size = (DWORD)MultiByteToWideChar(CP_UTF8, 0, path, -1, NULL, 0);
    if (size > room || !to)
        return size;
    return (DWORD)MultiByteToWideChar(CP_UTF8, 0, path, -1, to, (int)size) - 1;
}

CP_INLINE int cp_current_folder(cp_name *to) {
    return cp_name_result(to, getcwd(to->text, sizeof to->text) ? 0 : (strcpy(to->text, "."), -1));
}

CP_INLINE DWORD WINAPI GetCurrentDirectoryA(DWORD nBufferLength, LPSTR lpBuffer) {
    cp_name folder;
    return cp_current_folder(&folder) ? cp_path_out(folder.text, nBufferLength, lpBuffer) : 0;
}

CP_INLINE DWORD WINAPI GetCurrentDirectoryW(DWORD nBufferLength, LPWSTR lpBuffer) {
    cp_name folder;
    return cp_current_folder(&folder) ? cp_path_out_wide(folder.text, nBufferLength, lpBuffer) : 0;
}

CP_INLINE BOOL WINAPI SetCurrentDirectoryA(LPCSTR lpPathName) {
    cp_name name;
    return cp_name_of(&name, lpPathName) && cp_name_result(&name, chdir(name.text));
}

CP_INLINE BOOL WINAPI SetCurrentDirectoryW(LPCWSTR lpPathName) {
    cp_name name;
    return cp_name_of_wide(&name, lpPathName) && cp_name_result(&name, chdir(name.text));
}

/* Appends the parts of a name to `to`, which has `length` bytes and begins with a `/`. */
CP_INLINE int cp_path_join(cp_name *to, size_t length, const char *name) {
    while (*name) {
        size_t size = strcspn(name, "/");
        int is_last = name[size] == 0;
        if (size == 2 && name[0] == '.' && name[1] == '.') {
            while (length > 1 && to->text[--length - 1] != '/')
                continue;
        } else if (size > 0 && !(size == 1 && *name == '.')) {
            if (length + size + 2 > sizeof to->text) {
                SetLastError(ERROR_FILENAME_EXCED_RANGE);
                return 0;
            }
            memcpy(to->text + length, name, size);
            length += size;
            if (!is_last)
                to->text[length++] = '/';
        }
        name += size + !is_last;
        /* A name that ends with `.` or `..` names a folder, and has no `/` at its end. */
        if (is_last && size > 0 && length > 1 && to->text[length - 1] == '/')
            length--;
    }
    to->text[length] = 0;
    return 1;
}

/* The absolute form of a name that is already in the system's form. */
CP_INLINE int cp_path_make(cp_name *to, const cp_name *name) {
    size_t length = 1;
    if (*name->text == 0) {
        SetLastError(ERROR_INVALID_NAME);
        return 0;
    }
    strcpy(to->text, "/");
    if (*name->text != '/') {
        if (!cp_current_folder(to))
            return 0;
        length = strlen(to->text);
        if (length > 1 && length + 1 < sizeof to->text)
            to->text[length++] = '/';
    }
    return cp_path_join(to, length, name->text);
}

CP_INLINE DWORD WINAPI GetFullPathNameA(LPCSTR lpFileName, DWORD nBufferLength, LPSTR lpBuffer, LPSTR *lpFilePart) {
    cp_name name, whole;
    DWORD length;
    if (!lpFileName)
        lpFileName = "";
    if (!cp_name_of(&name, lpFileName) || !cp_path_make(&whole, &name))
        return 0;
    length = cp_path_out(whole.text, nBufferLength, lpBuffer);
    if (lpFilePart && lpBuffer && length < nBufferLength) {
        LPSTR slash = strrchr(lpBuffer, '/');
        *lpFilePart = slash && slash[1] ? slash + 1 : NULL;
    }
    return length;
}

CP_INLINE DWORD WINAPI GetFullPathNameW(LPCWSTR lpFileName, DWORD nBufferLength, LPWSTR lpBuffer, LPWSTR *lpFilePart) {
    cp_name name, whole;
    DWORD length;
    if (!cp_name_of_wide(&name, lpFileName ? lpFileName : L"") || !cp_path_make(&whole, &name))
        return 0;
    length = cp_path_out_wide(whole.text, nBufferLength, lpBuffer);
    if (lpFilePart && lpBuffer && length < nBufferLength) {
        LPWSTR slash = wcsrchr(lpBuffer, L'/');
        *lpFilePart = slash && slash[1] ? slash + 1 : NULL;
    }
    return length;
}

#if defined UNICODE || defined _UNICODE
#define GetCurrentDirectory GetCurrentDirectoryW
#define SetCurrentDirectory SetCurrentDirectoryW
#define GetFullPathName GetFullPathNameW
#else
#define GetCurrentDirectory GetCurrentDirectoryA
#define SetCurrentDirectory SetCurrentDirectoryA
#define GetFullPathName GetFullPathNameA
#endif

#endif
