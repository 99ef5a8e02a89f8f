/*
 * cp_find.h: the files of a folder whose names match a pattern. Included by <windows.h>.
 *
 * FindFirstFile reads the names in the folder. Each call then looks up the file of the next name. Files that have been
 * deleted by then are left out, and files created later are not found. `.` and `..` come first, the others in the order
 * of the file system.
 *
 * A name of MAX_PATH bytes or more is left out. In a wide name, bytes that are not UTF-8 become U+FFFD. There are no
 * short names, and patterns are case-sensitive.
 */
#ifndef CP_FIND_H
#define CP_FIND_H

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <cp_files.h>

typedef struct _WIN32_FIND_DATAA {
    DWORD dwFileAttributes;
    FILETIME ftCreationTime;
    FILETIME ftLastAccessTime;
    FILETIME ftLastWriteTime;
    DWORD nFileSizeHigh;
    DWORD nFileSizeLow;
    DWORD dwReserved0;
    DWORD dwReserved1;
    CHAR cFileName[MAX_PATH];
    CHAR cAlternateFileName[14];
} WIN32_FIND_DATAA, *PWIN32_FIND_DATAA, *LPWIN32_FIND_DATAA;

typedef struct _WIN32_FIND_DATAW {
    DWORD dwFileAttributes;
    FILETIME ftCreationTime;
    FILETIME ftLastAccessTime;
    FILETIME ftLastWriteTime;
    DWORD nFileSizeHigh;
    DWORD nFileSizeLow;
    DWORD dwReserved0;
    DWORD dwReserved1;
    WCHAR cFileName[MAX_PATH];
    WCHAR cAlternateFileName[14];
} WIN32_FIND_DATAW, *PWIN32_FIND_DATAW, *LPWIN32_FIND_DATAW;

typedef enum _FINDEX_INFO_LEVELS { FindExInfoStandard, FindExInfoBasic, FindExInfoMaxInfoLevel } FINDEX_INFO_LEVELS;

typedef enum _FINDEX_SEARCH_OPS {
    FindExSearchNameMatch,
    FindExSearchLimitToDirectories,
    FindExSearchLimitToDevices,
    FindExSearchMaxSearchOp
} FINDEX_SEARCH_OPS;

#define FIND_FIRST_EX_CASE_SENSITIVE 0x1
#define FIND_FIRST_EX_LARGE_FETCH 0x2
#define FIND_FIRST_EX_ON_DISK_ENTRIES_ONLY 0x4

/* ---- Patterns -------------------------------------------------------------------------------------------- */

/* The parts of a pattern besides letters. */
enum {
    CP_ANY = 0x110000, /* any number of letters */
    CP_ANY_TO_DOT,     /* `*` before a dot: any letters, but not the last dot */
    CP_ONE,            /* `?`: one letter; may match none before a dot or at the end */
    CP_DOT             /* a dot before `*` or `?`: a dot, or the end */
};

/* A pattern has no more parts than a name in the file system has bytes. */
typedef struct cp_pattern {
    uint32_t parts[4097];
    size_t count;
} cp_pattern;

CP_INLINE void cp_pattern_make(cp_pattern *it, const char *text) {
    size_t left = strlen(text), bytes;
    it->count = 0;
    if (strcmp(text, "*.*") == 0)
        text = "*", left = 1;
    for (; left > 0; text += bytes, left -= bytes) {
        uint32_t letter = cp_letter((const unsigned char *)text, left, &bytes);
        /* A byte that is not valid UTF-8 matches itself. */
        uint32_t part = letter == 0xFFFD && bytes == 1 ? 0x200000 | (unsigned char)*text : letter;
        uint32_t *before = it->count > 0 ? &it->parts[it->count - 1] : NULL;
        if (letter == '.' && before && *before == CP_ANY) {
            *before = CP_ANY_TO_DOT;
            /* A dot at the end is not part of a name. */
            if (left == 1)
                break;
        }
        if (letter == '*' || letter == '?') {
            part = letter == '*' ? CP_ANY : CP_ONE;
            if (before && *before == '.')
                *before = CP_DOT;
        }
        it->parts[it->count++] = part;
    }
}

/* Marks the places after parts that may match nothing, before this letter or at the end (0). */
CP_INLINE void cp_pattern_skip(const cp_pattern *it, char *places, uint32_t letter) {
    size_t at;
    for (at = 0; at < it->count; at++) {
        uint32_t part = it->parts[at];
        if (places[at] && (part == CP_ANY || part == CP_ANY_TO_DOT || (part == CP_ONE && (letter == 0 || letter == '.'))
                           || (part == CP_DOT && letter == 0)))
            places[at + 1] = 1;
    }
}

/* Tracks all possible places in the pattern simultaneously, so no pattern takes long. */
CP_INLINE int cp_pattern_matches(const cp_pattern *it, const char *name) {
    char places[2][sizeof it->parts / sizeof it->parts[0] + 1];
    const char *last_dot = strrchr(name, '.');
    size_t left = strlen(name), bytes, at;
    int now = 0;
    memset(places[0], 0, it->count + 1);
    places[0][0] = 1;
    for (; left > 0; name += bytes, left -= bytes, now = !now) {
        uint32_t letter = cp_letter((const unsigned char *)name, left, &bytes);
        if (letter == 0xFFFD && bytes == 1)
            letter = 0x200000 | (unsigned char)*name;
        cp_pattern_skip(it, places[now], letter);
        memset(places[!now], 0, it->count + 1);
        for (at = 0; at < it->count; at++) {
            uint32_t part = it->parts[at];
            if (!places[now][at])
                continue;
            if (part == CP_ANY || (part == CP_ANY_TO_DOT && name != last_dot))
                places[!now][at] = 1;
            else if (part == letter || (part == CP_ONE && letter != '.') || (part == CP_DOT && letter == '.'))
                places[!now][at + 1] = 1;
        }
    }
    cp_pattern_skip(it, places[now], 0);
    return places[now][it->count];
}

/* ---- What was found -------------------------------------------------------------------------------------- */

/* The names that were found, each with a final zero, and their folder. */
typedef struct cp_search {
    uint32_t shares;
    size_t at; /* the next name */
    size_t length;
    size_t room;
    char *names;
    char folder[4096];
} cp_search;

#define CP_KIND_SEARCH 0x46494E44U

CP_INLINE void cp_search_retain(void *object) {
    __atomic_fetch_add(&((cp_search *)object)->shares, 1U, __ATOMIC_RELAXED);
}

CP_INLINE void cp_search_release(void *object) {
    cp_search *search = (cp_search *)object;
    if (__atomic_fetch_sub(&search->shares, 1U, __ATOMIC_ACQ_REL) != 1)
        return;
    free(search->names);
    free(search);
}

/* Only FindClose closes it: CloseHandle knows no handle with this bit. */
CP_INLINE HANDLE cp_search_handle(HANDLE handle) {
    return (HANDLE)((uintptr_t)handle ^ (uintptr_t)1 << 62);
}

CP_INLINE int cp_search_add(cp_search *search, const char *name) {
    size_t size = strlen(name) + 1;
    if (size > MAX_PATH)
        return 1;
    if (search->room - search->length < size) {
        size_t room = search->room * 2 + 1024;
        char *names = (char *)realloc(search->names, room);
        if (!names) {
            SetLastError(ERROR_NOT_ENOUGH_MEMORY);
            return 0;
        }
        search->names = names;
        search->room = room;
    }
    memcpy(search->names + search->length, name, size);
    search->length += size;
    return 1;
}

/* Reads all matching names of the folder. Fails with the last error. */
CP_INLINE int cp_search_read(cp_search *search, const cp_pattern *pattern) {
    static const char *const both[] = {".", ".."};
    DIR *folder = opendir(*search->folder ? search->folder : ".");
    const struct dirent *entry;
    int at, good = 1, failed;
    if (!folder) {
        SetLastError(errno == ENOENT ? ERROR_PATH_NOT_FOUND : cp_error_of_name(errno, search->folder));
        return 0;
    }
    for (at = 0; at < 2; at++)
        good = good && (!cp_pattern_matches(pattern, both[at]) || cp_search_add(search, both[at]));
    while (good) {
        errno = 0;
        entry = readdir(folder);
        if (!entry)
            break;
        if (strcmp(entry->d_name, both[0]) != 0 && strcmp(entry->d_name, both[1]) != 0 &&
            cp_pattern_matches(pattern, entry->d_name))
            good = cp_search_add(search, entry->d_name);
    }
    failed = good ? errno : 0;
    closedir(folder);
    if (failed)
        SetLastError(cp_error_of_name(failed, search->folder));
    return good && !failed;
}

/* Returns the next name that still exists, relative to the folder, and its metadata. NULL if there is none. */
CP_INLINE const char *cp_search_next(cp_search *search, cp_facts *facts) {
    char path[sizeof search->folder + MAX_PATH];
    size_t at = __atomic_load_n(&search->at, __ATOMIC_RELAXED);
    while (at < search->length) {
        const char *name = search->names + at;
        size_t next = at + strlen(name) + 1;
        /* Each name goes to one thread. */
        if (!__atomic_compare_exchange_n(&search->at, &at, next, 0, __ATOMIC_RELAXED, __ATOMIC_RELAXED))
            continue;
        strcpy(path, search->folder);
        strcat(path, name);
        if (cp_name_facts(path, 1, facts))
            return name;
        at = next;
    }
    return NULL;
}

CP_INLINE FILETIME cp_file_time(int64_t ticks) {
    FILETIME time;
    time.dwLowDateTime = (DWORD)ticks;
    time.dwHighDateTime = (DWORD)((uint64_t)ticks >> 32);
    return time;
}

CP_INLINE BOOL cp_found(LPWIN32_FIND_DATAA to, const cp_facts *facts, const char *name) {
    memset(to, 0, sizeof *to);
    to->dwFileAttributes = facts->attributes;
    to->ftCreationTime = cp_file_time(facts->created);
    to->ftLastAccessTime = cp_file_time(facts->accessed);
    to->ftLastWriteTime = cp_file_time(facts->written);
    to->nFileSizeHigh = (DWORD)((uint64_t)facts->size >> 32);
    to->nFileSizeLow = (DWORD)facts->size;
    strcpy(to->cFileName, name);
    return TRUE;
}

CP_INLINE void cp_found_wide(LPWIN32_FIND_DATAW to, const WIN32_FIND_DATAA *from) {
    memset(to, 0, sizeof *to);
    to->dwFileAttributes = from->dwFileAttributes;
    to->ftCreationTime = from->ftCreationTime;
    to->ftLastAccessTime = from->ftLastAccessTime;
    to->ftLastWriteTime = from->ftLastWriteTime;
    to->nFileSizeHigh = from->nFileSizeHigh;
    to->nFileSizeLow = from->nFileSizeLow;
    MultiByteToWideChar(CP_UTF8, 0, from->cFileName, -1, to->cFileName, MAX_PATH);
}

/* ---- Searches -------------------------------------------------------------------------------------------- */

/* Splits the name into the folder and the pattern, and finds all matching names. Fails with the last error. */
CP_INLINE int cp_search_fill(cp_search *search, const cp_name *name) {
    const char *slash = strrchr(name->text, '/');
    const char *last = slash ? slash + 1 : name->text;
    cp_pattern *pattern;
    cp_facts facts;
    int good;
    if (*last == 0) {
        SetLastError(slash ? ERROR_FILE_NOT_FOUND : ERROR_PATH_NOT_FOUND);
        return 0;
    }
    memcpy(search->folder, name->text, (size_t)(last - name->text));
    if (!strpbrk(last, "*?"))
        return cp_name_facts(name->text, 1, &facts) && cp_search_add(search, last);
    pattern = (cp_pattern *)malloc(sizeof *pattern);
    if (!pattern) {
        SetLastError(ERROR_NOT_ENOUGH_MEMORY);
        return 0;
    }
    cp_pattern_make(pattern, last);
    good = cp_search_read(search, pattern);
    free(pattern);
    return good;
}

CP_INLINE HANDLE cp_search_begin(const cp_name *name, LPWIN32_FIND_DATAA found) {
    cp_search *search = (cp_search *)calloc(1, sizeof *search);
    const char *first;
    cp_facts facts;
    HANDLE handle;
    int is_filled;
    if (!search) {
        SetLastError(ERROR_NOT_ENOUGH_MEMORY);
        return INVALID_HANDLE_VALUE;
    }
    search->shares = 1;
    is_filled = cp_search_fill(search, name);
    first = is_filled ? cp_search_next(search, &facts) : NULL;
    if (!first) {
        cp_search_release(search);
        if (is_filled)
            SetLastError(ERROR_FILE_NOT_FOUND);
        return INVALID_HANDLE_VALUE;
    }
    cp_found(found, &facts, first);
    handle = cp_open_object(search, CP_KIND_SEARCH, cp_search_retain, cp_search_release);
    return handle ? cp_search_handle(handle) : INVALID_HANDLE_VALUE;
}

/* What FindFirstFileEx accepts: it filters only by file name, and `LimitToDirectories` is a hint that no file system
 * here uses. */
CP_INLINE int cp_search_is_known(FINDEX_INFO_LEVELS level, const void *found, FINDEX_SEARCH_OPS operation,
                                 const void *filter, DWORD flags) {
    const DWORD known = FIND_FIRST_EX_CASE_SENSITIVE | FIND_FIRST_EX_LARGE_FETCH | FIND_FIRST_EX_ON_DISK_ENTRIES_ONLY;
    if ((unsigned)level < FindExInfoMaxInfoLevel && found && (unsigned)operation < FindExSearchLimitToDevices &&
        !filter && (flags & ~known) == 0)
        return 1;
    SetLastError(ERROR_INVALID_PARAMETER);
    return 0;
}

CP_INLINE HANDLE WINAPI FindFirstFileExA(LPCSTR lpFileName, FINDEX_INFO_LEVELS fInfoLevelId, LPVOID lpFindFileData,
                                         FINDEX_SEARCH_OPS fSearchOp, LPVOID lpSearchFilter, DWORD dwAdditionalFlags) {
    cp_name name;
    if (!cp_search_is_known(fInfoLevelId, lpFindFileData, fSearchOp, lpSearchFilter, dwAdditionalFlags) ||
        !cp_name_of(&name, lpFileName))
        return INVALID_HANDLE_VALUE;
    return cp_search_begin(&name, (LPWIN32_FIND_DATAA)lpFindFileData);
}

CP_INLINE HANDLE WINAPI FindFirstFileExW(LPCWSTR lpFileName, FINDEX_INFO_LEVELS fInfoLevelId, LPVOID lpFindFileData,
                                         FINDEX_SEARCH_OPS fSearchOp, LPVOID lpSearchFilter, DWORD dwAdditionalFlags) {
    WIN32_FIND_DATAA found;
    cp_name name;
    HANDLE search;
    if (!cp_search_is_known(fInfoLevelId, lpFindFileData, fSearchOp, lpSearchFilter, dwAdditionalFlags) ||
        !cp_name_of_wide(&name, lpFileName))
        return INVALID_HANDLE_VALUE;
    search = cp_search_begin(&name, &found);
    if (search != INVALID_HANDLE_VALUE)
        cp_found_wide((LPWIN32_FIND_DATAW)lpFindFileData, &found);
    return search;
}

CP_INLINE HANDLE WINAPI FindFirstFileA(LPCSTR lpFileName, LPWIN32_FIND_DATAA lpFindFileData) {
    return FindFirstFileExA(lpFileName, FindExInfoStandard, lpFindFileData, FindExSearchNameMatch, NULL, 0);
}

CP_INLINE HANDLE WINAPI FindFirstFileW(LPCWSTR lpFileName, LPWIN32_FIND_DATAW lpFindFileData) {
    return FindFirstFileExW(lpFileName, FindExInfoStandard, lpFindFileData, FindExSearchNameMatch, NULL, 0);
}

CP_INLINE BOOL WINAPI FindNextFileA(HANDLE hFindFile, LPWIN32_FIND_DATAA lpFindFileData) {
    cp_search *search = (cp_search *)cp_find_object(cp_search_handle(hFindFile), CP_KIND_SEARCH);
    const char *name;
    cp_facts facts;
    BOOL found;
    if (!search)
        return FALSE;
    if (!lpFindFileData) {
        cp_search_release(search);
        SetLastError(ERROR_INVALID_PARAMETER);
        return FALSE;
    }
    name = cp_search_next(search, &facts);
    found = name && cp_found(lpFindFileData, &facts, name);
    cp_search_release(search);
    if (!found)
        SetLastError(ERROR_NO_MORE_FILES);
    return found;
}

CP_INLINE BOOL WINAPI FindNextFileW(HANDLE hFindFile, LPWIN32_FIND_DATAW lpFindFileData) {
    WIN32_FIND_DATAA found;
    if (!FindNextFileA(hFindFile, lpFindFileData ? &found : NULL))
        return FALSE;
    cp_found_wide(lpFindFileData, &found);
    return TRUE;
}

CP_INLINE BOOL WINAPI FindClose(HANDLE hFindFile) {
    HANDLE handle = cp_search_handle(hFindFile);
    void *search = cp_find_object(handle, CP_KIND_SEARCH);
    if (!search)
        return FALSE;
    cp_search_release(search);
    return CloseHandle(handle);
}

#if defined UNICODE || defined _UNICODE
typedef WIN32_FIND_DATAW WIN32_FIND_DATA, *PWIN32_FIND_DATA, *LPWIN32_FIND_DATA;
#define FindFirstFile FindFirstFileW
#define FindFirstFileEx FindFirstFileExW
#define FindNextFile FindNextFileW
#else
typedef WIN32_FIND_DATAA WIN32_FIND_DATA, *PWIN32_FIND_DATA, *LPWIN32_FIND_DATA;
#define FindFirstFile FindFirstFileA
#define FindFirstFileEx FindFirstFileExA
#define FindNextFile FindNextFileA
#endif

#endif
