/* Messages of errors, text in its two forms, buffers whose size is told. */
#include <winsock2.h>
#ifdef _WIN32
#define STRSAFE_NO_DEPRECATE
#endif
#include <strsafe.h>
#include <windows.h>

#include "check.h"

enum { SYSTEM = FORMAT_MESSAGE_FROM_SYSTEM | FORMAT_MESSAGE_IGNORE_INSERTS };

static void an_error_has_a_message(void)
{
    char text[200], other[200];
    WCHAR wide[200];
    char *made = NULL;
    WCHAR *made_wide = NULL;
    DWORD length = FormatMessageA(SYSTEM, NULL, ERROR_INVALID_HANDLE, 0, text, sizeof text, NULL);
    DWORD i;
    CHECK(length > 10 && length == strlen(text));
    CHECK(strcmp(text + length - 2, "\r\n") == 0);
    CHECK(FormatMessageA(SYSTEM, NULL, WSAECONNRESET, MAKELANGID(LANG_NEUTRAL, SUBLANG_DEFAULT), other, sizeof other,
                         NULL) > 10);
    CHECK(strcmp(text, other) != 0);

    /* Without a new line: a space takes its place. */
    CHECK_IS(FormatMessageA(SYSTEM | FORMAT_MESSAGE_MAX_WIDTH_MASK, NULL, ERROR_INVALID_HANDLE, 0, other,
                            sizeof other, NULL),
             length - 1);
    CHECK(strncmp(text, other, length - 2) == 0 && other[length - 2] == ' ');

    /* In memory that LocalFree frees, with as much room as is asked for. */
    CHECK_IS(FormatMessageA(SYSTEM | FORMAT_MESSAGE_ALLOCATE_BUFFER, NULL, ERROR_INVALID_HANDLE, 0,
                            (LPSTR)(void *)&made, 1000, NULL),
             length);
    CHECK(strcmp(made, text) == 0);
    made[999] = 'x';
    CHECK(LocalFree(made) == NULL);
    CHECK_IS(FormatMessageW(SYSTEM | FORMAT_MESSAGE_ALLOCATE_BUFFER, NULL, ERROR_INVALID_HANDLE, 0,
                            (LPWSTR)(void *)&made_wide, 0, NULL),
             length);
    CHECK_IS(FormatMessageW(SYSTEM, NULL, ERROR_INVALID_HANDLE, 0, wide, 200, NULL), length);
    for (i = 0; i <= length; i++) {
        CHECK_IS(wide[i], text[i]);
        CHECK_IS(made_wide[i], text[i]);
    }
    CHECK(LocalFree(made_wide) == NULL);
}

static void a_message_that_is_not_there_is_an_error(void)
{
    char text[4] = "abc", *made = text;
    WCHAR wide[4] = {1, 2, 3, 0}, *made_wide = wide;
    CHECK_FALSE(FormatMessageW(SYSTEM, NULL, ERROR_INVALID_HANDLE, 0, wide, 4, NULL), ERROR_INSUFFICIENT_BUFFER);
#if HAS_SOCKET_CALLS
    CHECK_IS(wide[0], 1);
#endif
    /* Which the program may free. */
    CHECK_FALSE(FormatMessageA(SYSTEM | FORMAT_MESSAGE_ALLOCATE_BUFFER, NULL, 987654, 0, (LPSTR)(void *)&made, 0, NULL),
                ERROR_MR_MID_NOT_FOUND);
    CHECK(made == NULL);
    CHECK_FALSE(FormatMessageW(SYSTEM | FORMAT_MESSAGE_ALLOCATE_BUFFER, NULL, 987654, 0, (LPWSTR)(void *)&made_wide, 0,
                               NULL),
                ERROR_MR_MID_NOT_FOUND);
    CHECK(made_wide == NULL);
#if HAS_SOCKET_CALLS
    CHECK_FALSE(FormatMessageA(SYSTEM | FORMAT_MESSAGE_ALLOCATE_BUFFER, NULL, ERROR_INVALID_HANDLE, 0, NULL, 0, NULL),
                ERROR_INVALID_PARAMETER);
#endif
    CHECK_FALSE(FormatMessageA(SYSTEM, NULL, ERROR_INVALID_HANDLE, 0, text, sizeof text, NULL),
                ERROR_INSUFFICIENT_BUFFER);
    CHECK_IS(text[0], 'a');
    CHECK_FALSE(FormatMessageA(SYSTEM, NULL, 987654, 0, text, sizeof text, NULL), ERROR_MR_MID_NOT_FOUND);
#if HAS_SOCKET_CALLS
    CHECK_FALSE(FormatMessageA(FORMAT_MESSAGE_FROM_STRING, "text", 0, 0, text, sizeof text, NULL), ERROR_NOT_SUPPORTED);
    CHECK_FALSE(FormatMessageA(SYSTEM, NULL, 0, 0, NULL, 200, NULL), ERROR_INVALID_PARAMETER);
#endif
    CHECK_FALSE(FormatMessageA(0, NULL, 0, 0, text, sizeof text, NULL), ERROR_INVALID_PARAMETER);
}

#if HAS_SOCKET_CALLS /* Where each letter is one WCHAR, and the code page of the system UTF-8. */
static void text_has_two_forms(void)
{
    const char narrow[] = "a\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80";
    const uint32_t letters[] = {'a', 0xE9, 0x20AC, 0x1F600, 0};
    WCHAR wide[8];
    char back[16];
    int i, count = MultiByteToWideChar(CP_UTF8, 0, narrow, -1, NULL, 0);
    CHECK_IS(count, 5);
    CHECK_IS(MultiByteToWideChar(CP_UTF8, 0, narrow, -1, wide, 8), count);
    for (i = 0; i < count; i++) {
        CHECK_IS((uint32_t)wide[i], letters[i]);
    }
    CHECK_IS(WideCharToMultiByte(CP_ACP, 0, wide, -1, NULL, 0, NULL, NULL), (int)sizeof narrow);
    CHECK_IS(WideCharToMultiByte(CP_ACP, 0, wide, -1, back, sizeof back, NULL, NULL), (int)sizeof narrow);
    CHECK(memcmp(back, narrow, sizeof narrow) == 0);
    /* A length that is given counts no zero. */
    CHECK_IS(MultiByteToWideChar(CP_UTF8, 0, narrow, 3, wide, 8), 2);
    CHECK_IS(WideCharToMultiByte(CP_UTF8, 0, wide, 2, back, sizeof back, NULL, NULL), 3);
    CHECK_FALSE(MultiByteToWideChar(CP_UTF8, 0, narrow, -1, wide, 4), ERROR_INSUFFICIENT_BUFFER);
    CHECK_FALSE(WideCharToMultiByte(CP_UTF8, 0, wide, 2, back, 2, NULL, NULL), ERROR_INSUFFICIENT_BUFFER);
    CHECK_FALSE(MultiByteToWideChar(CP_UTF8, 0, narrow, 0, wide, 4), ERROR_INVALID_PARAMETER);
    /* What is no text. */
    CHECK_FALSE(MultiByteToWideChar(CP_UTF8, MB_ERR_INVALID_CHARS, "a\xC3", -1, wide, 8), ERROR_NO_UNICODE_TRANSLATION);
    CHECK_IS(MultiByteToWideChar(CP_UTF8, 0, "\xC0\x80", -1, wide, 8), 3);
    CHECK_IS(wide[0], 0xFFFD);
    CHECK_IS(MultiByteToWideChar(CP_UTF8, 0, "\xED\xA0\x80", 3, wide, 8), 3);
    wide[0] = (WCHAR)0xD800;
    wide[1] = (WCHAR)0x110000;
    CHECK_FALSE(WideCharToMultiByte(CP_UTF8, WC_ERR_INVALID_CHARS, wide, 1, back, sizeof back, NULL, NULL),
                ERROR_NO_UNICODE_TRANSLATION);
    CHECK_IS(WideCharToMultiByte(CP_UTF8, 0, wide, 2, back, sizeof back, NULL, NULL), 6);
    CHECK(memcmp(back, "\xEF\xBF\xBD\xEF\xBF\xBD", 6) == 0);
    CHECK_IS(lstrlenA("four"), 4);
    CHECK_IS(lstrlenW(NULL), 0);
}

#endif

static void what_does_not_fit_is_told(void)
{
    char text[6] = "";
    size_t length;
    CHECK_IS(StringCchPrintfA(text, sizeof text, "%d", 12345), S_OK);
    CHECK(strcmp(text, "12345") == 0);
    CHECK_IS(StringCchPrintfA(text, sizeof text, "%d", 123456), STRSAFE_E_INSUFFICIENT_BUFFER);
    CHECK(strcmp(text, "12345") == 0);
    CHECK_IS(StringCchCopy(text, sizeof text, "abc"), S_OK);
    CHECK_IS(StringCchCat(text, sizeof text, "de"), S_OK);
    CHECK_IS(StringCchCat(text, sizeof text, "f"), STRSAFE_E_INSUFFICIENT_BUFFER);
    CHECK(strcmp(text, "abcde") == 0);
    CHECK_IS(StringCbCopyN(text, sizeof text, "wxyz", 2), S_OK);
    CHECK(strcmp(text, "wx") == 0);
    CHECK_IS(StringCchLength(text, sizeof text, &length), S_OK);
    CHECK_IS(length, 2);
    CHECK_IS(StringCchCopy(text, 0, "a"), STRSAFE_E_INVALID_PARAMETER);

    CHECK_IS(sprintf_s(text, sizeof text, "%s", "12345"), 5);
#if HAS_SOCKET_CALLS
    CHECK_IS(sprintf_s(text, sizeof text, "%s", "123456"), -1);
    CHECK_IS(text[0], 0);
#endif
    CHECK_IS(strcpy_s(text, sizeof text, "abc"), 0);
    CHECK_IS(strcat_s(text, sizeof text, "de"), 0);
    CHECK_IS(strcat_s(text, sizeof text, "f"), ERANGE);
    CHECK_IS(text[0], 0);
    CHECK_IS(strcpy_s(text, sizeof text, "123456"), ERANGE);
    CHECK_IS(strncpy_s(text, sizeof text, "1234567", _TRUNCATE), STRUNCATE);
    CHECK(strcmp(text, "12345") == 0);
    CHECK_IS(strncpy_s(text, sizeof text, "abcde", _TRUNCATE), 0);
    CHECK(strcmp(text, "abcde") == 0);
    CHECK_IS(strncpy_s(text, sizeof text, "123456", 6), ERANGE);
    CHECK_IS(text[0], 0);
    CHECK_IS(strncpy_s(text, sizeof text, "123456", 3), 0);
    CHECK(strcmp(text, "123") == 0);
    CHECK_IS(_snprintf(text, sizeof text, "%s", "1234567"), -1);
    CHECK(memcmp(text, "123456", 6) == 0); /* no zero */
    CHECK_IS(_snprintf(text, sizeof text, "%s", "123456"), 6);
    CHECK_IS(_snprintf(text, sizeof text, "%s", "12345"), 5);
    CHECK_IS(_stricmp("Content-Length", "content-length"), 0);
    CHECK(_stricmp("a", "B") < 0);
    CHECK_IS(_strnicmp("GET /", "get x", 4), 0);
}

/* ---- what the reference's C library has besides --------------------------------------------------- */

static void times_have_parts_and_text(void)
{
    const time_t leap_day = 951827696; /* in 2000 */
#if HAS_SOCKET_CALLS
    const time_t far = 400000000000; /* in 14645 */
#endif
    struct tm parts, own;
    char text[30];
    CHECK_IS(gmtime_s(&parts, &leap_day), 0);
    CHECK(parts.tm_year == 100 && parts.tm_mon == 1 && parts.tm_mday == 29 && parts.tm_hour == 12);
    CHECK_IS(localtime_s(&own, &leap_day), 0);
    CHECK_IS(mktime(&own), leap_day);
    CHECK_IS(gmtime_s(NULL, &leap_day), EINVAL);
    CHECK_IS(localtime_s(&own, NULL), EINVAL);
    CHECK_IS(ctime_s(text, 26, &leap_day), 0);
    CHECK(strlen(text) == 25 && memcmp(text + 19, " 2000\n", 6) == 0);
    CHECK_IS(ctime_s(text, 25, &leap_day), EINVAL);
#if HAS_SOCKET_CALLS
    CHECK_IS(text[0], 0);
    text[0] = 'x';
    CHECK_IS(ctime_s(text, sizeof text, &far), EINVAL);
    CHECK_IS(text[0], 0);
#endif
}

static void memory_is_copied_if_there_is_room(void)
{
    char to[4] = "abc";
    CHECK_IS(memcpy_s(to, sizeof to, "xy", 2), 0);
    CHECK(strcmp(to, "xyc") == 0);
    CHECK_IS(memcpy_s(to, 2, "abc", 3), ERANGE);
    CHECK(to[0] == 0 && to[1] == 0 && to[2] == 'c');
    CHECK_IS(memcpy_s(to, sizeof to, NULL, 1), EINVAL);
    CHECK_IS(to[2], 0);
    CHECK_IS(memcpy_s(NULL, 0, NULL, 0), 0);
}

static void files_are_opened(void)
{
    FILE *file = NULL;
#ifdef _WIN32
    CHECK_IS(fopen_s(&file, "NUL", "r"), 0);
    CHECK(file != NULL);
    CHECK_IS(fclose(file), 0);
    CHECK_IS(fopen_s(&file, "none.such", "r"), ENOENT);
    CHECK(file == NULL);
#else
    CHECK_IS(fopen_s(&file, "/dev/null", "r"), 0);
    CHECK(file != NULL);
    CHECK_IS(fclose(file), 0);
    CHECK_IS(fopen_s(&file, "/dev/null/none", "r"), ENOTDIR);
    CHECK(file == NULL);
    CHECK_IS(fopen_s(NULL, "/dev/null", "r"), EINVAL);
#endif
}

int main(void)
{
    start();
    an_error_has_a_message();
    a_message_that_is_not_there_is_an_error();
#if HAS_SOCKET_CALLS
    text_has_two_forms();
#endif
    what_does_not_fit_is_told();
    times_have_parts_and_text();
    memory_is_copied_if_there_is_room();
    files_are_opened();
    return finish();
}
