/*
 * cp_text.h: messages of errors, and text between its narrow and its wide form. Included by <windows.h>.
 *
 * Narrow text is UTF-8, whatever code page is named. A wide character has four bytes and is a whole letter.
 */
#ifndef CP_TEXT_H
#define CP_TEXT_H

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cp_memory.h>
#include <cp_ports.h>

/* ---- Narrow and wide ----------------------------------------------------------------------------- */

#define CP_ACP 0
#define CP_OEMCP 1
#define CP_THREAD_ACP 3
#define CP_UTF8 65001
#define MB_PRECOMPOSED 0x1
#define MB_ERR_INVALID_CHARS 0x8
#define WC_ERR_INVALID_CHARS 0x80

CP_INLINE int cp_is_letter(uint32_t letter) {
    return letter <= 0x10FFFF && (letter < 0xD800 || letter >= 0xE000);
}

/* The letter at this position and its number of bytes. Invalid UTF-8 counts as one byte and U+FFFD. */
CP_INLINE uint32_t cp_letter(const unsigned char *text, size_t length, size_t *bytes) {
    static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
    size_t size = text[0] < 0x80 ? 1 : text[0] >= 0xF0 ? 4 : text[0] >= 0xE0 ? 3 : text[0] >= 0xC0 ? 2 : 0;
    uint32_t letter;
    size_t at;
    *bytes = 1;
    if (size == 1)
        return text[0];
    if (size == 0 || size > length || text[0] > 0xF4)
        return 0xFFFD;
    letter = text[0] & (0x7FU >> size);
    for (at = 1; at < size; at++) {
        if ((text[at] & 0xC0) != 0x80)
            return 0xFFFD;
        letter = letter << 6 | (text[at] & 0x3FU);
    }
    if (letter < least[size] || !cp_is_letter(letter))
        return 0xFFFD;
    *bytes = size;
    return letter;
}

/* Writes a letter's bytes, those of U+FFFD for an invalid one, and returns their number. */
CP_INLINE size_t cp_put_letter(uint32_t letter, unsigned char *to) {
    if (!cp_is_letter(letter))
        letter = 0xFFFD;
    if (letter < 0x80) {
        to[0] = (unsigned char)letter;
        return 1;
    }
    if (letter < 0x800) {
        to[0] = (unsigned char)(0xC0 | letter >> 6);
        to[1] = (unsigned char)(0x80 | (letter & 0x3F));
        return 2;
    }
    if (letter < 0x10000) {
        to[0] = (unsigned char)(0xE0 | letter >> 12);
        to[1] = (unsigned char)(0x80 | (letter >> 6 & 0x3F));
        to[2] = (unsigned char)(0x80 | (letter & 0x3F));
        return 3;
    }
    to[0] = (unsigned char)(0xF0 | letter >> 18);
    to[1] = (unsigned char)(0x80 | (letter >> 12 & 0x3F));
    to[2] = (unsigned char)(0x80 | (letter >> 6 & 0x3F));
    to[3] = (unsigned char)(0x80 | (letter & 0x3F));
    return 4;
}

CP_INLINE int cp_text_fails(DWORD code) {
    SetLastError(code);
    return 0;
}

/* Returns the number of characters written, or needed if there is no room. The final zero counts if
 * the text's length is given as -1. */
CP_INLINE int WINAPI MultiByteToWideChar(UINT CodePage, DWORD dwFlags, LPCSTR lpMultiByteStr,
                                         int cbMultiByte, LPWSTR lpWideCharStr, int cchWideChar) {
    const unsigned char *text = (const unsigned char *)lpMultiByteStr;
    size_t length, at = 0, written = 0, bytes;
    (void)CodePage;
    if (!text || cbMultiByte == 0 || cbMultiByte < -1 || cchWideChar < 0 ||
        (cchWideChar > 0 && (!lpWideCharStr || (const void *)lpWideCharStr == (const void *)text)))
        return cp_text_fails(ERROR_INVALID_PARAMETER);
    length = cbMultiByte < 0 ? strlen(lpMultiByteStr) + 1 : (size_t)cbMultiByte;
    while (at < length) {
        uint32_t letter = cp_letter(text + at, length - at, &bytes);
        if (letter == 0xFFFD && bytes == 1 && (dwFlags & MB_ERR_INVALID_CHARS))
            return cp_text_fails(ERROR_NO_UNICODE_TRANSLATION);
        if (cchWideChar > 0) {
            if (written == (size_t)cchWideChar)
                return cp_text_fails(ERROR_INSUFFICIENT_BUFFER);
            lpWideCharStr[written] = (WCHAR)letter;
        }
        written++;
        at += bytes;
    }
    return (int)written;
}

/* Every letter has a narrow form, so the default character is never used. */
CP_INLINE int WINAPI WideCharToMultiByte(UINT CodePage, DWORD dwFlags, LPCWSTR lpWideCharStr,
                                         int cchWideChar, LPSTR lpMultiByteStr, int cbMultiByte,
                                         LPCSTR lpDefaultChar, BOOL *lpUsedDefaultChar) {
    size_t length = 0, at, written = 0;
    (void)CodePage;
    (void)lpDefaultChar;
    if (lpUsedDefaultChar)
        *lpUsedDefaultChar = FALSE;
    if (!lpWideCharStr || cchWideChar == 0 || cchWideChar < -1 || cbMultiByte < 0 ||
        (cbMultiByte > 0 && !lpMultiByteStr))
        return cp_text_fails(ERROR_INVALID_PARAMETER);
    if (cchWideChar > 0)
        length = (size_t)cchWideChar;
    else
        while (lpWideCharStr[length++])
            continue;
    for (at = 0; at < length; at++) {
        unsigned char bytes[4];
        uint32_t letter = (uint32_t)lpWideCharStr[at];
        size_t size;
        if ((dwFlags & WC_ERR_INVALID_CHARS) && !cp_is_letter(letter))
            return cp_text_fails(ERROR_NO_UNICODE_TRANSLATION);
        size = cp_put_letter(letter, bytes);
        if (cbMultiByte > 0) {
            if (written + size > (size_t)cbMultiByte)
                return cp_text_fails(ERROR_INSUFFICIENT_BUFFER);
            memcpy(lpMultiByteStr + written, bytes, size);
        }
        written += size;
    }
    return (int)written;
}

CP_INLINE int WINAPI lstrlenA(LPCSTR lpString) {
    return lpString ? (int)strlen(lpString) : 0;
}

CP_INLINE int WINAPI lstrlenW(LPCWSTR lpString) {
    return lpString ? (int)wcslen(lpString) : 0;
}

/* A debugger would see it; there is none. */
CP_INLINE VOID WINAPI OutputDebugStringA(LPCSTR lpOutputString) {
    (void)lpOutputString;
}

CP_INLINE VOID WINAPI OutputDebugStringW(LPCWSTR lpOutputString) {
    (void)lpOutputString;
}

/* ---- Messages ------------------------------------------------------------------------------------ */

#define FORMAT_MESSAGE_ALLOCATE_BUFFER 0x0100
#define FORMAT_MESSAGE_IGNORE_INSERTS 0x0200
#define FORMAT_MESSAGE_FROM_STRING 0x0400
#define FORMAT_MESSAGE_FROM_HMODULE 0x0800
#define FORMAT_MESSAGE_FROM_SYSTEM 0x1000
#define FORMAT_MESSAGE_ARGUMENT_ARRAY 0x2000
#define FORMAT_MESSAGE_MAX_WIDTH_MASK 0x00FF
#define LANG_NEUTRAL 0x00
#define LANG_ENGLISH 0x09
#define SUBLANG_NEUTRAL 0x00
#define SUBLANG_DEFAULT 0x01
#define SUBLANG_ENGLISH_US 0x01
#define MAKELANGID(primary, sub) ((WORD)((WORD)((sub) << 10) | (WORD)(primary)))

/* The text of a system's message, as it is ended: by a new line, or by a space if lines are not to be broken.
 * Its length; 0 and the last error if there is none. */
CP_INLINE DWORD cp_message_text(DWORD flags, DWORD code, char *to, size_t room) {
    const char *end = (flags & FORMAT_MESSAGE_MAX_WIDTH_MASK) == FORMAT_MESSAGE_MAX_WIDTH_MASK ? " " : "\r\n";
    const char *text;
    size_t length;
    if (!(flags & FORMAT_MESSAGE_FROM_SYSTEM)) {
        /* Neither modules nor strings have messages here. */
        SetLastError(flags & (FORMAT_MESSAGE_FROM_STRING | FORMAT_MESSAGE_FROM_HMODULE)
                         ? ERROR_NOT_SUPPORTED
                         : ERROR_INVALID_PARAMETER);
        return 0;
    }
    text = cp_message(code);
    if (!text) {
        SetLastError(ERROR_MR_MID_NOT_FOUND);
        return 0;
    }
    length = strlen(text);
    if (length + strlen(end) + 1 > room) {
        SetLastError(ERROR_INSUFFICIENT_BUFFER);
        return 0;
    }
    memcpy(to, text, length);
    memcpy(to + length, end, strlen(end) + 1);
    return (DWORD)(length + strlen(end));
}

/* Longer than any message. */
#define CP_LONGEST_MESSAGE 256

/* The text and its destination: `*to`, or memory allocated for at least `room` characters, whose
 * address is stored there. Returns the text's length; 0 and the last error on failure. */
CP_INLINE DWORD cp_message_to(DWORD flags, DWORD code, char *text, void **to, DWORD room, size_t character) {
    int allocates = (flags & FORMAT_MESSAGE_ALLOCATE_BUFFER) != 0;
    void *buffer = *to;
    DWORD length;
    if (!buffer) {
        SetLastError(ERROR_INVALID_PARAMETER);
        return 0;
    }
    /* Programs free this even if the call has failed. */
    if (allocates)
        memset(buffer, 0, sizeof(void *));
    length = cp_message_text(flags, code, text, CP_LONGEST_MESSAGE);
    if (length == 0)
        return 0;
    if (allocates) {
        *to = LocalAlloc(LMEM_FIXED, character * (length + 1 > room ? length + 1 : room));
        memcpy(buffer, to, sizeof(void *));
    }
    if (!*to || (!allocates && room < length + 1)) {
        SetLastError(*to ? ERROR_INSUFFICIENT_BUFFER : ERROR_NOT_ENOUGH_MEMORY);
        return 0;
    }
    return length;
}

/* Arguments are looked for in no message of the system. */
CP_INLINE DWORD WINAPI FormatMessageA(DWORD dwFlags, LPCVOID lpSource, DWORD dwMessageId, DWORD dwLanguageId,
                                      LPSTR lpBuffer, DWORD nSize, va_list *Arguments) {
    char text[CP_LONGEST_MESSAGE];
    void *to = lpBuffer;
    DWORD length = cp_message_to(dwFlags, dwMessageId, text, &to, nSize, sizeof(CHAR));
    (void)lpSource;
    (void)dwLanguageId;
    (void)Arguments;
    if (length > 0)
        memcpy(to, text, (size_t)length + 1);
    return length;
}

CP_INLINE DWORD WINAPI FormatMessageW(DWORD dwFlags, LPCVOID lpSource, DWORD dwMessageId, DWORD dwLanguageId,
                                      LPWSTR lpBuffer, DWORD nSize, va_list *Arguments) {
    char text[CP_LONGEST_MESSAGE];
    void *to = lpBuffer;
    DWORD length = cp_message_to(dwFlags, dwMessageId, text, &to, nSize, sizeof(WCHAR));
    DWORD at;
    (void)lpSource;
    (void)dwLanguageId;
    (void)Arguments;
    /* The messages have no letter that is not ASCII. */
    for (at = 0; length > 0 && at <= length; at++)
        ((WCHAR *)to)[at] = (WCHAR)text[at];
    return length;
}

#if defined UNICODE || defined _UNICODE
#define lstrlen lstrlenW
#define OutputDebugString OutputDebugStringW
#define FormatMessage FormatMessageW
#else
#define lstrlen lstrlenA
#define OutputDebugString OutputDebugStringA
#define FormatMessage FormatMessageA
#endif

#endif
