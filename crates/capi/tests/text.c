/* Error messages, text in its two forms, buffers of a given size. */
#include <winsock2.h>
#ifdef _WIN32
#define STRSAFE_NO_DEPRECATE
#endif
#include <strsafe.h>
#include <windows.h>

#include <stdarg.h>
#include <wchar.h>

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
    /* Invalid text. */
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
#if HAS_SOCKET_CALLS /* Wine checks less */
    CHECK_IS(strncpy_s(NULL, 0, NULL, 0), 0);
    CHECK_IS(strncpy_s(NULL, 0, "1", 1), EINVAL);
    CHECK_IS(strncpy_s(NULL, sizeof text, "1", 0), EINVAL);
    CHECK_IS(strncpy_s(text, 0, "1", 0), EINVAL);
    CHECK_IS(text[0], '1');
    CHECK_IS(strncpy_s(text, sizeof text, NULL, 0), 0);
    CHECK_IS(text[0], 0);
#endif
    CHECK_IS(strncpy_s(text, sizeof text, "123456", 3), 0);
    CHECK(strcmp(text, "123") == 0);
    CHECK_IS(_snprintf(text, sizeof text, "%s", "1234567"), -1);
    CHECK(memcmp(text, "123456", 6) == 0); /* no zero */
    CHECK_IS(_snprintf(text, sizeof text, "%s", "123456"), 6);
    CHECK_IS(_snprintf(text, sizeof text, "%s", "12345"), 5);
    CHECK_IS(_stricmp("Content-Length", "content-length"), 0);
    CHECK(_stricmp("a", "B") < 0);
    CHECK_IS(_strnicmp("GET /", "get x", 4), 0);
#if HAS_SOCKET_CALLS
    CHECK(stricmp("GET", "get") == 0 && strcmpi("a", "B") < 0 && strnicmp("GET /", "get x", 4) == 0);
    {
        char *memory = (char *)_malloca(1 << 20);
        CHECK(memory != NULL);
        memory[(1 << 20) - 1] = 'x';
        _freea(memory);
    }
#endif
}

/* ---- formats of the reference ------------------------------------------------------------------------ */

static int narrow(char *to, size_t size, const char *format, ...)
{
    va_list arguments;
    int length;
    va_start(arguments, format);
    length = vsprintf_s(to, size, format, arguments);
    va_end(arguments);
    return length;
}

static int wide(wchar_t *to, size_t size, const wchar_t *format, ...)
{
    va_list arguments;
    int length;
    va_start(arguments, format);
    length = vswprintf_s(to, size, format, arguments);
    va_end(arguments);
    return length;
}

static int length_of(const char *format, ...)
{
    va_list arguments;
    int length;
    va_start(arguments, format);
    length = _vscprintf(format, arguments);
    va_end(arguments);
    return length;
}

#if HAS_SOCKET_CALLS || defined _WIN64
/* Several functions are given one list, as on Windows, where each has a copy. */
static void the_list_stays_for_another(const char *format, const wchar_t *wide_format, ...)
{
    va_list arguments;
    char text[40], same[40], again[40];
    wchar_t wide_text[40], wide_same[40];
    int length;
    va_start(arguments, wide_format);
    length = _vscprintf(format, arguments);
    CHECK_IS(_vsnprintf(text, 4, format, arguments), -1);
    CHECK_IS(_vsnprintf(text, 40, format, arguments), length);
    CHECK_IS(vsprintf_s(same, 40, format, arguments), length);
    CHECK(StringCchVPrintfA(again, 40, format, arguments) == S_OK);
    CHECK(strcmp(text, same) == 0 && strcmp(text, again) == 0);
    CHECK_IS(_vscwprintf(wide_format, arguments), length);
    CHECK_IS(_vsnwprintf(wide_text, 40, wide_format, arguments), length);
    CHECK_IS(vswprintf_s(wide_same, 40, wide_format, arguments), length);
    CHECK(wcscmp(wide_text, wide_same) == 0);
    CHECK_IS(_vscprintf(format, arguments), length);
    va_end(arguments);
}
#endif

#define CHECK_WIDE(expected, ...) \
    do { \
        wchar_t check_text[200]; \
        int check_length = wide(check_text, 200, __VA_ARGS__); \
        CHECK_IS(check_length, (int)wcslen(expected)); \
        CHECK(wcscmp(check_text, expected) == 0); \
    } while (0)
#define CHECK_NARROW(expected, ...) \
    do { \
        char check_text[200]; \
        int check_length = narrow(check_text, 200, __VA_ARGS__); \
        CHECK_IS(check_length, (int)strlen(expected)); \
        CHECK(strcmp(check_text, expected) == 0); \
    } while (0)

static void formats_are_those_of_the_reference(void)
{
    const long long large = -0x123456789ALL;
    CHECK_NARROW("-78187493530|78187493530", "%I64d|%I64u", large, (unsigned long long)-large);
    CHECK_NARROW("123456789a|    7|7    |00007", "%I64x|%5I64d|%-5I64d|%05I64d", -large, 7LL, 7LL, 7LL);
    CHECK_NARROW("7 8 9", "%I32d %Id %Iu", 7, (INT_PTR)8, (SIZE_T)9);
    CHECK_NARROW("-1 255", "%I32d %I32u", -1, 255U);
    CHECK_NARROW("wide narrow w n", "%S %s %C %c", L"wide", "narrow", L'w', 'n');
    CHECK_NARROW("wide wide narrow", "%ls %ws %hs", L"wide", L"wide", "narrow");
    CHECK_NARROW("100% 5", "100%% %I64d", 5LL);
    CHECK_WIDE(L"wide narrow w n", L"%s %S %c %C", L"wide", "narrow", L'w', 'n');
    CHECK_WIDE(L"wide wide narrow", L"%ls %ws %hs", L"wide", L"wide", "narrow");
    CHECK_WIDE(L"  ab|ab  |  a|a", L"%4s|%-4s|%3.1s|%.1s", L"ab", L"ab", L"ab", L"ab");
    CHECK_WIDE(L"   w|w   ", L"%4c|%-4c", L'w', L'w');
    CHECK_WIDE(L"  ab|ab  ", L"%*s|%*s", 4, L"ab", -4, L"ab");
    CHECK_WIDE(L"-78187493530|78187493530", L"%I64d|%I64u", large, (unsigned long long)-large);
    CHECK_WIDE(L"-5 5 17 1f 1F 0x1f", L"%d %u %o %x %X %#x", -5, 5U, 15U, 31U, 31U, 31U);
    CHECK_WIDE(L"+5| 5|005|  005", L"%+d|% d|%.3d|%5.3d", 5, 5, 5, 5);
    CHECK_WIDE(L"1.50 1.5", L"%.2f %g", 1.5, 1.5);
    CHECK_WIDE(L"-1 65535 100%", L"%hd %hu 100%%", 0x1FFFF, 0x1FFFF);
    CHECK_WIDE(L"-1 18446744073709551615", L"%lld %llu", -1LL, ~0ULL);
    CHECK_WIDE(L"(null) (null)", L"%s %S", (wchar_t *)NULL, (char *)NULL);
    CHECK_IS(length_of("%I64d %S", 12345LL, L"abc"), 9);
    CHECK_IS(length_of("%d", 12345), 5);
}

#if HAS_SOCKET_CALLS
static void a_format_may_have_any_length_and_letter(void)
{
    static char narrow_text[2000];
    static wchar_t wide_text[2000];
    CHECK_WIDE(L"\x20AC \x1F600", L"%S", "\xE2\x82\xAC \xF0\x9F\x98\x80");
    CHECK_NARROW("\xE2\x82\xAC\xC3\xA4", "%S%C", L"\x20AC", L'\xE4');
    CHECK_WIDE(L"\xE4|", L"%c|", L'\xE4');
    CHECK_IS(narrow(narrow_text, 2000, "%1000I64d|%.900I64d", 1LL, 2LL), 1901);
    CHECK(narrow_text[999] == '1' && narrow_text[1001] == '0' && narrow_text[1900] == '2');
    CHECK_IS(wide(wide_text, 2000, L"%1000d|%.900f", 1, 0.5), 1903);
    CHECK(wide_text[999] == L'1' && wide_text[1002] == L'.');
    /* Invalid formats are reported, and nothing is written through pointers. */
    CHECK_IS(narrow(narrow_text, 100, "%I64n", narrow_text), -1);
    CHECK_IS(errno, EINVAL);
    CHECK_IS(narrow_text[0], 0);
    CHECK_IS(wide(wide_text, 100, L"%y", 1), -1);
    CHECK_IS(wide(wide_text, 100, L"%", 1), -1);
    CHECK_IS(wide(wide_text, 100, L"%5", 1), -1);
    CHECK_IS(wide(NULL, 100, L"a"), -1);
    CHECK_IS(wide(wide_text, 0, L"a"), -1);
    CHECK_IS(wide(wide_text, 100, NULL), -1);
    CHECK_IS(wide(wide_text, 3, L"%s", L"abc"), -1);
    CHECK_IS(errno, ERANGE);
    CHECK_IS(wide_text[0], 0);
    CHECK_IS(narrow(narrow_text, 3, "%S", L"abc"), -1);
    CHECK_IS(errno, ERANGE);
    CHECK_IS(length_of(NULL), -1);
    CHECK_IS(_snwprintf(NULL, 4, L"a"), -1);
    CHECK_IS(StringCchPrintfA(narrow_text, 5, "%ls", L"abcdef"), STRSAFE_E_INSUFFICIENT_BUFFER);
    CHECK(strcmp(narrow_text, "abcd") == 0);
}
#endif

static void wide_text_is_copied_and_told(void)
{
    wchar_t text[6] = L"";
    char narrow_text[6];
    char *end;
    CHECK_IS(_snwprintf(text, 6, L"%s", L"1234567"), -1);
    CHECK(wmemcmp(text, L"123456", 6) == 0); /* no zero */
    CHECK_IS(_snwprintf(text, 6, L"%s", L"123456"), 6);
    CHECK_IS(_snwprintf(text, 6, L"%s", L"12345"), 5);
    CHECK_IS(swprintf_s(text, 6, L"%d", 12345), 5);
    CHECK_IS(_scwprintf(L"%s %d", L"abc", 17), 6);
    CHECK_IS(_scprintf("%s %d", "abc", 17), 6);
    CHECK_IS(_snprintf(NULL, 0, "%s", "abcdef"), 6);
    CHECK_IS(_snprintf(narrow_text, 6, "%ls", L"abcdef"), 6);
    CHECK(memcmp(narrow_text, "abcdef", 6) == 0);
    CHECK_IS(wcscpy_s(text, 6, L"abc"), 0);
    CHECK_IS(wcscat_s(text, 6, L"de"), 0);
    CHECK(wcscmp(text, L"abcde") == 0);
    CHECK_IS(wcsncpy_s(text, 6, L"1234567", _TRUNCATE), STRUNCATE);
    CHECK(wcscmp(text, L"12345") == 0);
    CHECK_IS(wcsncpy_s(text, 6, L"123456", 3), 0);
    CHECK(wcscmp(text, L"123") == 0);
#if HAS_SOCKET_CALLS
    CHECK_IS(wcscat_s(text, 6, L"456"), ERANGE);
    CHECK_IS(text[0], 0);
    CHECK_IS(wcscpy_s(text, 6, L"123456"), ERANGE);
    CHECK_IS(wcsncpy_s(text, 6, L"123456", 6), ERANGE);
    CHECK_IS(wcscpy_s(NULL, 6, L"1"), EINVAL);
    CHECK_IS(wcscpy_s(text, 0, L"1"), EINVAL);
    CHECK_IS(wcscpy_s(text, 6, NULL), EINVAL);
    CHECK_IS(wcsncpy_s(text, 6, NULL, 1), EINVAL);
    CHECK_IS(wcsncpy_s(NULL, 0, NULL, 0), 0);
    CHECK_IS(wcsncpy_s(NULL, 6, L"1", 0), EINVAL);
    CHECK_IS(wcsncpy_s(text, 6, L"123456", 3), 0);
    CHECK_IS(wcsncpy_s(text, 6, NULL, 0), 0);
    CHECK_IS(text[0], 0);
    CHECK_IS(wcscat_s(text, 6, NULL), EINVAL);
    wmemset(text, L'x', 6);
    CHECK_IS(wcscat_s(text, 6, L"y"), EINVAL);
    CHECK_IS(strnlen_s("four", 10), 4);
    CHECK_IS(strnlen_s("four", 3), 3);
    CHECK_IS(strnlen_s(NULL, 3), 0);
    CHECK_IS(wcsnlen_s(L"four", 10), 4);
    CHECK_IS(wcsnlen_s(NULL, 3), 0);
#endif
    CHECK_IS(_wcsicmp(L"Content-Length", L"content-length"), 0);
    CHECK(_wcsicmp(L"a", L"B") < 0 && _wcsicmp(L"b", L"A") > 0 && _wcsicmp(L"a", L"ab") < 0);
    CHECK_IS(_wcsnicmp(L"GET /", L"get x", 4), 0);
    CHECK_IS(_strtoi64("-9223372036854775808x", &end, 10), INT64_MIN);
    CHECK_IS(*end, 'x');
    CHECK(_strtoui64("FFFFFFFFFFFFFFFF", NULL, 16) == UINT64_MAX);
    CHECK_IS(_strtoui64("0x10", NULL, 0), 16);
    errno = 0;
    CHECK(_strtoi64("99999999999999999999", NULL, 10) == INT64_MAX && errno == ERANGE);
    CHECK_IS(_atoi64("-12345678901"), -12345678901LL);
#if defined __cplusplus && HAS_SOCKET_CALLS
    CHECK_IS(swprintf_s(text, L"%s", L"abc"), 3);
    CHECK_IS(wcscpy_s(text, L"123456"), ERANGE);
    CHECK_IS(wcscpy_s(text, L"12"), 0);
    CHECK_IS(wcscat_s(text, L"34"), 0);
    CHECK_IS(wcsncpy_s(text, L"123456", _TRUNCATE), STRUNCATE);
#endif
}

/* ---- additional functions of the reference's C library --------------------------------------------------- */

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
#if HAS_SOCKET_CALLS || defined _WIN64
    the_list_stays_for_another("%s, %d", L"%hs, %d", "a text", 1234567890);
    the_list_stays_for_another("%s, %I64d", L"%hs, %I64d", "a text", (long long)1 << 40);
#endif
    an_error_has_a_message();
    a_message_that_is_not_there_is_an_error();
#if HAS_SOCKET_CALLS
    text_has_two_forms();
#endif
    what_does_not_fit_is_told();
    formats_are_those_of_the_reference();
#if HAS_SOCKET_CALLS
    a_format_may_have_any_length_and_letter();
#endif
    wide_text_is_copied_and_told();
    times_have_parts_and_text();
    memory_is_copied_if_there_is_room();
    files_are_opened();
    return finish();
}
