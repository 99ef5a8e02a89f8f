/* cp_base.h: the reference's types, as they are here. Included by the headers of this directory. */
#ifndef CP_BASE_H
#define CP_BASE_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/types.h>
#include <wchar.h>

#include <completion_port_internals.h>

/* In C++ functions in headers are inline, in C each unit has its own. */
#ifdef __cplusplus
#define CP_INLINE inline
#else
#define CP_INLINE static inline
#endif

/* Sources for the reference name the libraries they need by #pragma comment. (Before GCC 13 a C++ compiler
 * wants -Wno-unknown-pragmas instead, which the pkg-config file says.) */
#pragma GCC diagnostic ignored "-Wunknown-pragmas"

/* There is one calling convention. */
#ifndef WINAPI
#define WINAPI
#define WINAPIV
#define APIENTRY
#define CALLBACK
#define PASCAL
#define WSAAPI
#endif
#ifndef FAR
#define FAR
#define NEAR
#endif
#ifndef __cdecl
#define __cdecl
#endif
#ifndef __stdcall
#define __stdcall
#endif

#ifndef CONST
#define CONST const
#endif
#ifndef VOID
#define VOID void
#endif
#ifndef TRUE
#define TRUE 1
#endif
#ifndef FALSE
#define FALSE 0
#endif

/* A DWORD has 32 bits, as it has there; so it is an int and not a long. */
typedef char CHAR, *PCHAR, *PSTR, *LPSTR;
typedef const char *PCSTR, *LPCSTR;
typedef wchar_t WCHAR, *PWCHAR, *PWSTR, *LPWSTR; /* of four bytes */
typedef const wchar_t *PCWSTR, *LPCWSTR;
typedef unsigned char UCHAR, *PUCHAR, BYTE, *PBYTE, *LPBYTE, BOOLEAN;
typedef int16_t SHORT, *PSHORT, INT16;
typedef uint16_t USHORT, *PUSHORT, WORD, *PWORD, *LPWORD, UINT16;
typedef int INT, *PINT, *LPINT, BOOL, *PBOOL, *LPBOOL;
typedef unsigned int UINT, *PUINT;
typedef int32_t LONG, *PLONG, *LPLONG, INT32, LONG32, HRESULT;
typedef uint32_t ULONG, *PULONG, DWORD, *PDWORD, *LPDWORD, UINT32, ULONG32, DWORD32;
typedef int8_t INT8;
typedef uint8_t UINT8;
typedef int64_t INT64, LONG64, LONGLONG, *PLONG64, *PLONGLONG;
typedef uint64_t UINT64, ULONG64, DWORD64, ULONGLONG, DWORDLONG, *PULONG64, *PULONGLONG;
typedef intptr_t INT_PTR, LONG_PTR, *PLONG_PTR, SSIZE_T;
typedef uintptr_t UINT_PTR, ULONG_PTR, *PUINT_PTR, *PULONG_PTR, DWORD_PTR, *PDWORD_PTR, *LPDWORD_PTR;
typedef size_t SIZE_T, *PSIZE_T;
typedef void *PVOID, *LPVOID;
typedef const void *LPCVOID, *PCVOID;
typedef float FLOAT;

typedef void *HANDLE, **PHANDLE, **LPHANDLE;
typedef struct HINSTANCE__ *HINSTANCE, *HMODULE;
/* The one type of function that may be cast to any other. */
typedef void (*FARPROC)(void);

#define INVALID_HANDLE_VALUE ((HANDLE)(LONG_PTR)-1)
#define INFINITE 0xFFFFFFFFU

typedef union _LARGE_INTEGER {
    __extension__ struct {
        DWORD LowPart;
        LONG HighPart;
    };
    struct {
        DWORD LowPart;
        LONG HighPart;
    } u;
    LONGLONG QuadPart;
} LARGE_INTEGER, *PLARGE_INTEGER;

typedef struct _GUID {
    uint32_t Data1;
    uint16_t Data2;
    uint16_t Data3;
    uint8_t Data4[8];
} GUID;

typedef struct _SECURITY_ATTRIBUTES {
    DWORD nLength;
    LPVOID lpSecurityDescriptor;
    BOOL bInheritHandle;
} SECURITY_ATTRIBUTES, *PSECURITY_ATTRIBUTES, *LPSECURITY_ATTRIBUTES;

#define MAKEWORD(low, high) \
    ((WORD)(((BYTE)(((DWORD_PTR)(low)) & 0xff)) | ((WORD)((BYTE)(((DWORD_PTR)(high)) & 0xff))) << 8))
#define MAKELONG(low, high) \
    ((LONG)(((WORD)(((DWORD_PTR)(low)) & 0xffff)) | ((DWORD)((WORD)(((DWORD_PTR)(high)) & 0xffff))) << 16))
#define LOWORD(value) ((WORD)(((DWORD_PTR)(value)) & 0xffff))
#define HIWORD(value) ((WORD)((((DWORD_PTR)(value)) >> 16) & 0xffff))
#define LOBYTE(value) ((BYTE)(((DWORD_PTR)(value)) & 0xff))
#define HIBYTE(value) ((BYTE)((((DWORD_PTR)(value)) >> 8) & 0xff))

#ifndef UNREFERENCED_PARAMETER
#define UNREFERENCED_PARAMETER(name) ((void)(name))
#endif
#ifndef ARRAYSIZE
#define ARRAYSIZE(array) (sizeof(array) / sizeof((array)[0]))
#endif
#ifndef CONTAINING_RECORD
#define CONTAINING_RECORD(address, type, field) ((type *)((char *)(address) - offsetof(type, field)))
#endif
#define ZeroMemory(to, size) ((void)memset((to), 0, (size)))
#define FillMemory(to, size, value) ((void)memset((to), (value), (size)))
#define CopyMemory(to, from, size) ((void)memcpy((to), (from), (size)))
#define MoveMemory(to, from, size) ((void)memmove((to), (from), (size)))

#if defined UNICODE || defined _UNICODE
typedef WCHAR TCHAR, *LPTSTR;
typedef LPCWSTR LPCTSTR;
#define TEXT(literal) L##literal
#else
typedef CHAR TCHAR, *LPTSTR;
typedef LPCSTR LPCTSTR;
#define TEXT(literal) literal
#endif

#endif
