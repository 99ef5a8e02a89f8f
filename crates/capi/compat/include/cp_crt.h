/*
 * cp_crt.h: functions that servers use of the reference's C library and that the standard lacks.
 * Included by <windows.h>: the reference declares them in <stdio.h> and <string.h>, which are the
 * system's here.
 *
 * If its buffer is too small or an argument is NULL, a function returns its error. It does not end
 * the program, as the reference does unless a handler is set.
 */
#ifndef CP_CRT_H
#define CP_CRT_H

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <wchar.h>

#include <cp_clocks.h>
#include <cp_formats.h>
#include <cp_random.h>

#ifndef CP_ERRNO_T_DEFINED
#define CP_ERRNO_T_DEFINED
typedef int errno_t;
#endif

#ifndef _countof
#define _countof(array) (sizeof(array) / sizeof((array)[0]))
#endif
#define _TRUNCATE ((size_t)-1)
#define STRUNCATE 80

/* ---- Text into a buffer ---------------------------------------------------------------------------------- */

/* As on the reference: returns -1 if the text does not fit, and omits the final zero if there is no room for it.
 * Without a buffer and a count, returns the length of the text. */
__attribute__((__format__(__printf__, 3, 0))) CP_INLINE int _vsnprintf(char *buffer, size_t count,
                                                                       const char *format, va_list arguments) {
    int length = cp_vsnprintf(NULL, 0, format, arguments);
    if (length < 0 || (!buffer && count == 0))
        return length;
    if ((size_t)length < count)
        return cp_vsnprintf(buffer, count, format, arguments);
    if (count > 0) {
        char *whole = (char *)malloc((size_t)length + 1);
        if (!whole)
            return -1;
        cp_vsnprintf(whole, (size_t)length + 1, format, arguments);
        memcpy(buffer, whole, count);
        free(whole);
    }
    return (size_t)length == count ? length : -1;
}

__attribute__((__format__(__printf__, 3, 4))) CP_INLINE int _snprintf(char *buffer, size_t count,
                                                                      const char *format, ...) {
    va_list arguments;
    int length;
    va_start(arguments, format);
    length = _vsnprintf(buffer, count, format, arguments);
    va_end(arguments);
    return length;
}

/* What does not fit leaves the buffer empty. */
__attribute__((__format__(__printf__, 3, 0))) CP_INLINE int vsprintf_s(char *buffer, size_t size,
                                                                       const char *format, va_list arguments) {
    int length;
    if (!buffer || size == 0 || !format) {
        errno = EINVAL;
        return -1;
    }
    length = cp_vsnprintf(buffer, size, format, arguments);
    if (length >= 0 && (size_t)length < size)
        return length;
    buffer[0] = '\0';
    if (length >= 0)
        errno = ERANGE;
    return -1;
}

__attribute__((__format__(__printf__, 3, 4))) CP_INLINE int sprintf_s(char *buffer, size_t size,
                                                                      const char *format, ...) {
    va_list arguments;
    int length;
    va_start(arguments, format);
    length = vsprintf_s(buffer, size, format, arguments);
    va_end(arguments);
    return length;
}

/* Returns the length of the text. */
__attribute__((__format__(__printf__, 1, 0))) CP_INLINE int _vscprintf(const char *format, va_list arguments) {
    if (!format) {
        errno = EINVAL;
        return -1;
    }
    return cp_vsnprintf(NULL, 0, format, arguments);
}

__attribute__((__format__(__printf__, 1, 2))) CP_INLINE int _scprintf(const char *format, ...) {
    va_list arguments;
    int length;
    va_start(arguments, format);
    length = _vscprintf(format, arguments);
    va_end(arguments);
    return length;
}

CP_INLINE errno_t cp_refuse_copy(char *to, size_t size, errno_t code) {
    if (to && size > 0)
        to[0] = '\0';
    errno = code;
    return code;
}

CP_INLINE errno_t strcpy_s(char *to, size_t size, const char *from) {
    if (!to || size == 0 || !from)
        return cp_refuse_copy(to, size, EINVAL);
    if (strlen(from) >= size)
        return cp_refuse_copy(to, size, ERANGE);
    memcpy(to, from, strlen(from) + 1);
    return 0;
}

/* With _TRUNCATE, text that does not fit is truncated, and STRUNCATE is returned. */
CP_INLINE errno_t strncpy_s(char *to, size_t size, const char *from, size_t count) {
    size_t length = 0;
    if (count == 0 && !to && size == 0)
        return 0;
    if (count == 0 && to && size > 0)
        from = "";
    if (!to || size == 0 || !from)
        return cp_refuse_copy(to, size, EINVAL);
    while (length < count && length < size && from[length])
        length++;
    if (length == size) {
        if (count != _TRUNCATE)
            return cp_refuse_copy(to, size, ERANGE);
        memcpy(to, from, size - 1);
        to[size - 1] = '\0';
        return STRUNCATE;
    }
    memcpy(to, from, length);
    to[length] = '\0';
    return 0;
}

CP_INLINE errno_t strcat_s(char *to, size_t size, const char *from) {
    size_t length = 0;
    if (!to || size == 0 || !from)
        return cp_refuse_copy(to, size, EINVAL);
    while (length < size && to[length])
        length++;
    if (length == size)
        return cp_refuse_copy(to, size, EINVAL);
    if (strlen(from) >= size - length)
        return cp_refuse_copy(to, size, ERANGE);
    memcpy(to + length, from, strlen(from) + 1);
    return 0;
}

CP_INLINE errno_t memcpy_s(void *to, size_t size, const void *from, size_t count) {
    if (count == 0)
        return 0;
    if (!to || !from || count > size) {
        if (to)
            memset(to, 0, size);
        errno = to && from ? ERANGE : EINVAL;
        return errno;
    }
    memcpy(to, from, count);
    return 0;
}

#ifdef __cplusplus
/* The size of an array is known. */
template <size_t Size>
inline errno_t strcpy_s(char (&to)[Size], const char *from) {
    return strcpy_s(to, Size, from);
}
template <size_t Size>
inline errno_t strncpy_s(char (&to)[Size], const char *from, size_t count) {
    return strncpy_s(to, Size, from, count);
}
template <size_t Size>
inline errno_t strcat_s(char (&to)[Size], const char *from) {
    return strcat_s(to, Size, from);
}
template <size_t Size>
__attribute__((__format__(__printf__, 2, 0))) inline int vsprintf_s(char (&buffer)[Size], const char *format,
                                                                    va_list arguments) {
    return vsprintf_s(buffer, Size, format, arguments);
}
template <size_t Size>
__attribute__((__format__(__printf__, 2, 3))) inline int sprintf_s(char (&buffer)[Size], const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    int length = vsprintf_s(buffer, Size, format, arguments);
    va_end(arguments);
    return length;
}
#endif

/* ---- Wide text ------------------------------------------------------------------------------------------- */

/* Like _vsnprintf. */
CP_INLINE int _vsnwprintf(wchar_t *buffer, size_t count, const wchar_t *format, va_list arguments) {
    cp_out out = {NULL, buffer, count, 0};
    cp_format text = {NULL, format};
    int length;
    if (!format || (!buffer && count > 0)) {
        errno = EINVAL;
        return -1;
    }
    if (!buffer)
        return cp_vsnwprintf(NULL, 0, format, arguments);
    length = cp_out_format(&out, text, arguments);
    if (length >= 0 && (size_t)length < count)
        buffer[length] = L'\0';
    return length >= 0 && (size_t)length <= count ? length : -1;
}

CP_INLINE int _snwprintf(wchar_t *buffer, size_t count, const wchar_t *format, ...) {
    va_list arguments;
    int length;
    va_start(arguments, format);
    length = _vsnwprintf(buffer, count, format, arguments);
    va_end(arguments);
    return length;
}

CP_INLINE int _vscwprintf(const wchar_t *format, va_list arguments) {
    return _vsnwprintf(NULL, 0, format, arguments);
}

CP_INLINE int _scwprintf(const wchar_t *format, ...) {
    va_list arguments;
    int length;
    va_start(arguments, format);
    length = _vscwprintf(format, arguments);
    va_end(arguments);
    return length;
}

/* Text that does not fit leaves the buffer empty. */
CP_INLINE int vswprintf_s(wchar_t *buffer, size_t size, const wchar_t *format, va_list arguments) {
    int length;
    if (!buffer || size == 0 || !format) {
        errno = EINVAL;
        return -1;
    }
    length = cp_vsnwprintf(buffer, size, format, arguments);
    if (length >= 0 && (size_t)length < size)
        return length;
    buffer[0] = L'\0';
    if (length >= 0)
        errno = ERANGE;
    return -1;
}

CP_INLINE int swprintf_s(wchar_t *buffer, size_t size, const wchar_t *format, ...) {
    va_list arguments;
    int length;
    va_start(arguments, format);
    length = vswprintf_s(buffer, size, format, arguments);
    va_end(arguments);
    return length;
}

CP_INLINE errno_t cp_refuse_wide_copy(wchar_t *to, size_t size, errno_t code) {
    if (to && size > 0)
        to[0] = L'\0';
    errno = code;
    return code;
}

CP_INLINE errno_t wcscpy_s(wchar_t *to, size_t size, const wchar_t *from) {
    if (!to || size == 0 || !from)
        return cp_refuse_wide_copy(to, size, EINVAL);
    if (wcslen(from) >= size)
        return cp_refuse_wide_copy(to, size, ERANGE);
    wmemcpy(to, from, wcslen(from) + 1);
    return 0;
}

/* With _TRUNCATE, text that does not fit is truncated and the result is STRUNCATE. */
CP_INLINE errno_t wcsncpy_s(wchar_t *to, size_t size, const wchar_t *from, size_t count) {
    size_t length = 0;
    if (count == 0 && !to && size == 0)
        return 0;
    if (count == 0 && to && size > 0)
        from = L"";
    if (!to || size == 0 || !from)
        return cp_refuse_wide_copy(to, size, EINVAL);
    while (length < count && length < size && from[length])
        length++;
    if (length == size) {
        if (count != _TRUNCATE)
            return cp_refuse_wide_copy(to, size, ERANGE);
        wmemcpy(to, from, size - 1);
        to[size - 1] = L'\0';
        return STRUNCATE;
    }
    wmemcpy(to, from, length);
    to[length] = L'\0';
    return 0;
}

CP_INLINE errno_t wcscat_s(wchar_t *to, size_t size, const wchar_t *from) {
    size_t length = 0;
    if (!to || size == 0 || !from)
        return cp_refuse_wide_copy(to, size, EINVAL);
    while (length < size && to[length])
        length++;
    if (length == size)
        return cp_refuse_wide_copy(to, size, EINVAL);
    if (wcslen(from) >= size - length)
        return cp_refuse_wide_copy(to, size, ERANGE);
    wmemcpy(to + length, from, wcslen(from) + 1);
    return 0;
}

#ifdef __cplusplus
template <size_t Size>
inline errno_t wcscpy_s(wchar_t (&to)[Size], const wchar_t *from) {
    return wcscpy_s(to, Size, from);
}
template <size_t Size>
inline errno_t wcsncpy_s(wchar_t (&to)[Size], const wchar_t *from, size_t count) {
    return wcsncpy_s(to, Size, from, count);
}
template <size_t Size>
inline errno_t wcscat_s(wchar_t (&to)[Size], const wchar_t *from) {
    return wcscat_s(to, Size, from);
}
template <size_t Size>
inline int vswprintf_s(wchar_t (&buffer)[Size], const wchar_t *format, va_list arguments) {
    return vswprintf_s(buffer, Size, format, arguments);
}
template <size_t Size>
inline int swprintf_s(wchar_t (&buffer)[Size], const wchar_t *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    int length = vswprintf_s(buffer, Size, format, arguments);
    va_end(arguments);
    return length;
}
#endif

/* Returns the length of the text, at most `most`; 0 if there is no text. */
CP_INLINE size_t strnlen_s(const char *text, size_t most) {
    size_t length = 0;
    while (text && length < most && text[length])
        length++;
    return length;
}

CP_INLINE size_t wcsnlen_s(const wchar_t *text, size_t most) {
    size_t length = 0;
    while (text && length < most && text[length])
        length++;
    return length;
}

/* Ignores case only for ASCII letters. */
CP_INLINE int _wcsnicmp(const wchar_t *one, const wchar_t *other, size_t count) {
    size_t at;
    for (at = 0; at < count; at++) {
        wchar_t a = one[at], b = other[at];
        a += a >= L'A' && a <= L'Z' ? L'a' - L'A' : 0;
        b += b >= L'A' && b <= L'Z' ? L'a' - L'A' : 0;
        if (a != b)
            return a < b ? -1 : 1;
        if (a == 0)
            break;
    }
    return 0;
}

CP_INLINE int _wcsicmp(const wchar_t *one, const wchar_t *other) {
    return _wcsnicmp(one, other, (size_t)-1);
}

/* ---- Text out ------------------------------------------------------------------------------------------- */

#define printf_s printf
#define fprintf_s fprintf
#define vprintf_s vprintf
#define wprintf_s wprintf

/* ---- Claims ---------------------------------------------------------------------------------------------- */

#ifdef _DEBUG
#define _ASSERT(claim) ((claim) ? (void)0 : abort())
#else
#define _ASSERT(claim) ((void)0)
#endif
#define _ASSERTE(claim) _ASSERT(claim)

/* ---- The rest -------------------------------------------------------------------------------------------- */

/* Treats the case of letters of other alphabets as different. */
CP_INLINE int _strnicmp(const char *one, const char *other, size_t count) {
    size_t at;
    for (at = 0; at < count; at++) {
        int a = (unsigned char)one[at], b = (unsigned char)other[at];
        a += a >= 'A' && a <= 'Z' ? 'a' - 'A' : 0;
        b += b >= 'A' && b <= 'Z' ? 'a' - 'A' : 0;
        if (a != b || a == 0)
            return a - b;
    }
    return 0;
}

CP_INLINE int _stricmp(const char *one, const char *other) {
    return _strnicmp(one, other, (size_t)-1);
}

CP_INLINE int strcmpi(const char *one, const char *other) {
    return _stricmp(one, other);
}

CP_INLINE int stricmp(const char *one, const char *other) {
    return _stricmp(one, other);
}

CP_INLINE int strnicmp(const char *one, const char *other, size_t count) {
    return _strnicmp(one, other, count);
}

CP_INLINE errno_t rand_s(unsigned int *to) {
    return to ? cp_random(to, sizeof *to) : EINVAL;
}

/* From the heap, whatever the size: the stack of a caller is not known. */
CP_INLINE void *_malloca(size_t size) {
    return malloc(size);
}

CP_INLINE void _freea(void *memory) {
    free(memory);
}

CP_INLINE __int64 _strtoi64(const char *text, char **end, int base) {
    return strtoll(text, end, base);
}

CP_INLINE unsigned __int64 _strtoui64(const char *text, char **end, int base) {
    return strtoull(text, end, base);
}

CP_INLINE __int64 _atoi64(const char *text) {
    return strtoll(text, NULL, 10);
}

#ifndef __cplusplus
extern char *strdup(const char *);
#endif
#define _strdup strdup

CP_INLINE errno_t fopen_s(FILE **stream, const char *name, const char *mode) {
    if (!stream || !name || !mode)
        return errno = EINVAL;
    *stream = fopen(name, mode);
    return *stream ? 0 : errno;
}

CP_INLINE errno_t localtime_s(struct tm *to, const time_t *from) {
    if (to && from && localtime_r(from, to))
        return 0;
    return errno = EINVAL;
}

CP_INLINE errno_t gmtime_s(struct tm *to, const time_t *from) {
    if (to && from && gmtime_r(from, to))
        return 0;
    return errno = EINVAL;
}

/* As `asctime`, in 26 characters, with two places for the day. */
CP_INLINE errno_t ctime_s(char *to, size_t size, const time_t *from) {
    struct tm parts;
    /* A year of five places has no room. */
    if (!to || size < 26 || !from || !localtime_r(from, &parts) ||
        strftime(to, 26, "%a %b %d %H:%M:%S %Y\n", &parts) == 0)
        return cp_refuse_copy(to, size, EINVAL);
    return 0;
}

#ifndef __cplusplus
extern int posix_memalign(void **, size_t, size_t);
#endif

CP_INLINE void *_aligned_malloc(size_t size, size_t alignment) {
    void *made = NULL;
    int failed = posix_memalign(&made, alignment < sizeof(void *) ? sizeof(void *) : alignment, size);
    if (failed)
        errno = failed;
    return failed ? NULL : made;
}

CP_INLINE void _aligned_free(void *memory) {
    free(memory);
}

#endif
