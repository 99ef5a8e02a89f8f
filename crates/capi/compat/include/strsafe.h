/* strsafe.h: text in buffers of a given size. Text that does not fit is truncated, and the result
 * reports it. */
#ifndef CP_STRSAFE_H
#define CP_STRSAFE_H

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <windows.h>

#define STRSAFE_MAX_CCH 2147483647
#define STRSAFE_E_INSUFFICIENT_BUFFER ((HRESULT)0x8007007A)
#define STRSAFE_E_INVALID_PARAMETER ((HRESULT)0x80070057)

__attribute__((__format__(__printf__, 3, 0))) CP_INLINE HRESULT StringCchVPrintfA(LPSTR to, size_t size,
                                                                                  LPCSTR format,
                                                                                  va_list arguments) {
    int length;
    if (size == 0 || size > STRSAFE_MAX_CCH)
        return STRSAFE_E_INVALID_PARAMETER;
    length = cp_vsnprintf(to, size, format, arguments);
    return length >= 0 && (size_t)length < size ? S_OK : STRSAFE_E_INSUFFICIENT_BUFFER;
}

__attribute__((__format__(__printf__, 3, 4))) CP_INLINE HRESULT StringCchPrintfA(LPSTR to, size_t size,
                                                                                 LPCSTR format, ...) {
    va_list arguments;
    HRESULT result;
    va_start(arguments, format);
    result = StringCchVPrintfA(to, size, format, arguments);
    va_end(arguments);
    return result;
}

CP_INLINE HRESULT StringCchCopyNA(LPSTR to, size_t size, LPCSTR from, size_t count) {
    size_t length = 0;
    if (size == 0 || size > STRSAFE_MAX_CCH)
        return STRSAFE_E_INVALID_PARAMETER;
    while (length < count && length + 1 < size && from[length]) {
        to[length] = from[length];
        length++;
    }
    to[length] = '\0';
    return length == count || !from[length] ? S_OK : STRSAFE_E_INSUFFICIENT_BUFFER;
}

CP_INLINE HRESULT StringCchCopyA(LPSTR to, size_t size, LPCSTR from) {
    return StringCchCopyNA(to, size, from, STRSAFE_MAX_CCH);
}

CP_INLINE HRESULT StringCchLengthA(LPCSTR text, size_t most, size_t *length) {
    size_t count = 0;
    if (length)
        *length = 0;
    if (!text || most > STRSAFE_MAX_CCH)
        return STRSAFE_E_INVALID_PARAMETER;
    while (count < most && text[count])
        count++;
    if (count == most)
        return STRSAFE_E_INVALID_PARAMETER;
    if (length)
        *length = count;
    return S_OK;
}

CP_INLINE HRESULT StringCchCatA(LPSTR to, size_t size, LPCSTR from) {
    size_t length;
    HRESULT result = StringCchLengthA(to, size, &length);
    return result == S_OK ? StringCchCopyA(to + length, size - length, from) : result;
}

/* A byte is a character. */
#define StringCbVPrintfA StringCchVPrintfA
#define StringCbPrintfA StringCchPrintfA
#define StringCbCopyNA StringCchCopyNA
#define StringCbCopyA StringCchCopyA
#define StringCbLengthA StringCchLengthA
#define StringCbCatA StringCchCatA

#if !defined UNICODE && !defined _UNICODE
#define StringCchVPrintf StringCchVPrintfA
#define StringCchPrintf StringCchPrintfA
#define StringCchCopyN StringCchCopyNA
#define StringCchCopy StringCchCopyA
#define StringCchLength StringCchLengthA
#define StringCchCat StringCchCatA
#define StringCbVPrintf StringCchVPrintfA
#define StringCbPrintf StringCchPrintfA
#define StringCbCopyN StringCchCopyNA
#define StringCbCopy StringCchCopyA
#define StringCbLength StringCchLengthA
#define StringCbCat StringCchCatA
#endif

#endif
