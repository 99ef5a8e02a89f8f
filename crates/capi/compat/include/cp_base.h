/* cp_base.h: the reference's types, as they are here. Included by the headers of this directory. */
#ifndef CP_BASE_H
#define CP_BASE_H

#include <ctype.h>
#include <limits.h>
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

/* ---- Absent functions ------------------------------------------------------------------------- */

/* Before a declaration: calling the function is a compiler error with the reason.
 * CP_NO_ERROR_ATTRIBUTE has the same effect as a compiler without an attribute for that. */
#if defined __has_attribute && !defined CP_NO_ERROR_ATTRIBUTE
#if __has_attribute(__error__)
#define CP_REFUSED(text) __attribute__((__error__(text)))
#define CP_TELLS_ARGUMENTS
#endif
#endif
#ifndef CP_REFUSED
#define CP_REFUSED(text) __attribute__((__unavailable__(text)))
#endif
#define CP_ABSENT(what) CP_REFUSED("not available on Linux: see PORTING.md of completion-port (" what ")")

/* An argument that must be NULL. In C, a value that is certainly not NULL is passed to `refuse`, an
 * absent function. Any other value may be NULL, so it is passed on and checked at run time. Where
 * absent functions are marked by __unavailable__, even naming `refuse` would be an error, so
 * everything is passed on. C++ uses overloads instead, where a pointer to `cp_nothing` is NULL. */
#ifdef CP_TELLS_ARGUMENTS
#define CP_UNLESS(is_refused, argument, refuse) __builtin_choose_expr(is_refused, refuse(argument), (argument))
#else
#define CP_UNLESS(is_refused, argument, refuse) (argument)
#endif
struct cp_nothing;

/* In C a compiler may guess the declaration of an unknown function. The program then fails to link, or gets half of a
 * pointer. C++ never guesses. A command-line flag would not do, because g++ warns about it. */
#if !defined __cplusplus && !defined CP_IMPLICIT_FUNCTIONS
#pragma GCC diagnostic error "-Wimplicit-function-declaration"
#endif

/* ---- Words of the reference's compilers -------------------------------------------------------- */

/* Sources for the reference name the libraries they need by #pragma comment. (Before GCC 13 a C++
 * compiler wants -Wno-unknown-pragmas instead, which is in the pkg-config file.) */
#pragma GCC diagnostic ignored "-Wunknown-pragmas"

/* With -fms-extensions, some are keywords of Clang, too. */
#ifdef __clang__
#pragma clang diagnostic push
#pragma clang diagnostic ignored "-Wkeyword-macro"
#endif

/* There is one calling convention. */
#ifndef WINAPI
#define WINAPI
#define WINAPIV
#define APIENTRY
#define CALLBACK
#define NTAPI
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

#ifndef _cdecl
#define _cdecl
#endif
#ifndef _stdcall
#define _stdcall
#endif
#ifndef __fastcall
#define __fastcall
#endif
#ifndef __vectorcall
#define __vectorcall
#endif
#ifndef __forceinline
#define __forceinline inline __attribute__((__always_inline__))
#endif
#ifndef FORCEINLINE
#define FORCEINLINE static __forceinline
#endif
#ifndef _inline
#define _inline inline
#endif
#ifndef __int64
#define __int8 char
#define __int16 short
#define __int32 int
#define __int64 long long
#endif
#ifndef __w64
#define __w64
#endif
#ifndef __unaligned
#define __unaligned
#endif
#ifndef UNALIGNED
#define UNALIGNED
#endif

#ifndef __debugbreak
#define __debugbreak() __builtin_trap()
#endif
#ifndef __assume
#define __assume(claim) ((void)0)
#endif

/* The parts of a declaration it may contain. Those about building a library or optimising have no
 * effect here. */
#ifndef __declspec
#define __declspec(what) CP_DECLSPEC_##what
#endif
#ifdef __clang__
#pragma clang diagnostic pop
#endif
#define CP_DECLSPEC_align(bytes) __attribute__((__aligned__(bytes)))
#define CP_DECLSPEC_allocate(section)
#define CP_DECLSPEC_deprecated __attribute__((__deprecated__))
#define CP_DECLSPEC_dllexport
#define CP_DECLSPEC_dllimport
#define CP_DECLSPEC_noalias
#define CP_DECLSPEC_noinline __attribute__((__noinline__))
#define CP_DECLSPEC_noreturn __attribute__((__noreturn__))
#define CP_DECLSPEC_nothrow
#define CP_DECLSPEC_novtable
#define CP_DECLSPEC_restrict
#define CP_DECLSPEC_selectany __attribute__((__weak__))
/* It may precede `static`, unlike __thread. */
#ifdef __cplusplus
#define CP_DECLSPEC_thread thread_local
#else
#define CP_DECLSPEC_thread _Thread_local
#endif
#define DECLSPEC_ALIGN(bytes) CP_DECLSPEC_align(bytes)
#define DECLSPEC_NOINLINE CP_DECLSPEC_noinline
#define DECLSPEC_NORETURN CP_DECLSPEC_noreturn

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
typedef double DOUBLE;
typedef PVOID *PPVOID;
typedef BYTE *PUINT8;
typedef uint32_t *PUINT32;
typedef uint64_t *PUINT64;
typedef LONG NTSTATUS;
typedef DWORD LCID, ACCESS_MASK;
typedef WORD LANGID, ATOM;

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
} GUID, *LPGUID, IID, CLSID;

typedef struct _SECURITY_ATTRIBUTES {
    DWORD nLength;
    LPVOID lpSecurityDescriptor;
    BOOL bInheritHandle;
} SECURITY_ATTRIBUTES, *PSECURITY_ATTRIBUTES, *LPSECURITY_ATTRIBUTES;

typedef union _ULARGE_INTEGER {
    __extension__ struct {
        DWORD LowPart;
        DWORD HighPart;
    };
    struct {
        DWORD LowPart;
        DWORD HighPart;
    } u;
    ULONGLONG QuadPart;
} ULARGE_INTEGER, *PULARGE_INTEGER;

#define MAX_PATH 260
#define MAXDWORD 0xFFFFFFFFU
#define DWORD_MAX 0xFFFFFFFFU

/* In C++ the standard library has functions of these names. */
#if !defined NOMINMAX && !defined __cplusplus
#ifndef max
#define max(a, b) (((a) > (b)) ? (a) : (b))
#endif
#ifndef min
#define min(a, b) (((a) < (b)) ? (a) : (b))
#endif
#endif

#define SUCCEEDED(result) ((HRESULT)(result) >= 0)
#define FAILED(result) ((HRESULT)(result) < 0)
#define S_OK ((HRESULT)0)
#define S_FALSE ((HRESULT)1)
#define E_FAIL ((HRESULT)0x80004005)
#define E_INVALIDARG ((HRESULT)0x80070057)
#define E_OUTOFMEMORY ((HRESULT)0x8007000E)
#define HRESULT_FROM_WIN32(code) \
    ((HRESULT)(code) <= 0 ? (HRESULT)(code) : (HRESULT)(((code) & 0xFFFF) | 0x80070000U))

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
#ifndef RTL_NUMBER_OF
#define RTL_NUMBER_OF(array) (sizeof(array) / sizeof((array)[0]))
#endif
#ifndef CONTAINING_RECORD
#define CONTAINING_RECORD(address, type, field) ((type *)((char *)(address) - offsetof(type, field)))
#endif
#ifndef DBG_UNREFERENCED_PARAMETER
#define DBG_UNREFERENCED_PARAMETER(name) ((void)(name))
#define UNREFERENCED_LOCAL_VARIABLE(name) ((void)(name))
#endif
#ifndef FIELD_OFFSET
#define FIELD_OFFSET(type, field) ((LONG)offsetof(type, field))
#endif
typedef struct HWND__ *HWND;

#define RtlZeroMemory(to, size) ((void)memset((to), 0, (size)))
#define RtlFillMemory(to, size, value) ((void)memset((to), (value), (size)))
#define RtlCopyMemory(to, from, size) ((void)memcpy((to), (from), (size)))
#define RtlMoveMemory(to, from, size) ((void)memmove((to), (from), (size)))
#define ZeroMemory(to, size) ((void)memset((to), 0, (size)))
#define SecureZeroMemory RtlSecureZeroMemory
#define FillMemory(to, size, value) ((void)memset((to), (value), (size)))
#define CopyMemory(to, from, size) ((void)memcpy((to), (from), (size)))
#define MoveMemory(to, from, size) ((void)memmove((to), (from), (size)))

/* Also if nothing reads it afterwards. */
CP_INLINE PVOID RtlSecureZeroMemory(PVOID ptr, SIZE_T cnt) {
    memset(ptr, 0, cnt);
    __asm__ __volatile__("" : : "r"(ptr) : "memory");
    return ptr;
}

#if defined UNICODE || defined _UNICODE
typedef WCHAR TCHAR, *PTSTR, *LPTSTR;
typedef LPCWSTR PCTSTR, LPCTSTR;
#define TEXT(literal) L##literal
#else
typedef CHAR TCHAR, *PTSTR, *LPTSTR;
typedef LPCSTR PCTSTR, LPCTSTR;
#define TEXT(literal) literal
#endif

#endif
