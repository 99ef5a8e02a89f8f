/* tchar.h: names that are narrow or wide depending on UNICODE. */
#ifndef CP_TCHAR_H
#define CP_TCHAR_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <wchar.h>

#include <windows.h>

typedef TCHAR _TCHAR;
#define _T(literal) TEXT(literal)
#define _TEXT(literal) TEXT(literal)

/* A program has one entry here. With UNICODE its arguments are not those that `_tmain` declares. */
#if defined UNICODE || defined _UNICODE
#define _tprintf wprintf
#define _ftprintf fwprintf
#define _tcslen wcslen
#define _tcscmp wcscmp
#define _tcscpy wcscpy
#define _tcscpy_s wcscpy_s
#define _tcsncpy_s wcsncpy_s
#define _tcscat_s wcscat_s
#define _tcsnlen wcsnlen_s
#define _tcsicmp _wcsicmp
#define _tcsnicmp _wcsnicmp
#define _tcsncmp wcsncmp
#define _tcschr wcschr
#define _tcsrchr wcsrchr
#define _tcsstr wcsstr
#define _sntprintf _snwprintf
#define _vsntprintf _vsnwprintf
#define _stprintf_s swprintf_s
#define _vstprintf_s vswprintf_s
#define _sctprintf _scwprintf
#define _vsctprintf _vscwprintf
#define _tstoi(text) ((int)wcstol((text), NULL, 10))
#else
#define _tmain main
#define _tprintf printf
#define _ftprintf fprintf
#define _tcslen strlen
#define _tcscmp strcmp
#define _tcscpy strcpy
#define _tcscpy_s strcpy_s
#define _tcsncpy_s strncpy_s
#define _tcscat_s strcat_s
#define _tcsnlen strnlen_s
#define _tcsicmp _stricmp
#define _tcsnicmp _strnicmp
#define _tcsncmp strncmp
#define _tcschr strchr
#define _tcsrchr strrchr
#define _tcsstr strstr
#define _sntprintf _snprintf
#define _vsntprintf _vsnprintf
#define _stprintf_s sprintf_s
#define _vstprintf_s vsprintf_s
#define _sctprintf _scprintf
#define _vsctprintf _vscprintf
#define _tstoi atoi
#endif
#define _ttoi _tstoi

#endif
