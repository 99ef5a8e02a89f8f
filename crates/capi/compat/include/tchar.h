/* tchar.h: names that are narrow or wide as UNICODE says. */
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
#define _tstoi(text) ((int)wcstol((text), NULL, 10))
#else
#define _tmain main
#define _tprintf printf
#define _ftprintf fprintf
#define _tcslen strlen
#define _tcscmp strcmp
#define _tcscpy strcpy
#define _tstoi atoi
#endif
#define _ttoi _tstoi

#endif
