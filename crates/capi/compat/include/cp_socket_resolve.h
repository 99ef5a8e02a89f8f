/*
 * cp_socket_resolve.h: host names and addresses with Winsock's codes, in narrow and wide text. Included by
 * <winsock2.h>.
 *
 * The system's headers hide struct addrinfo in plain C11. Then this header declares nothing either.
 */
/* Before the guard: a program may include this header first, and <winsock2.h> has it in its place. */
#include <winsock2.h>
#ifndef CP_SOCKET_RESOLVE_H
#define CP_SOCKET_RESOLVE_H

#include <stdlib.h>

#include <cp_text.h>

typedef struct addrinfo ADDRINFOA, *PADDRINFOA;

typedef struct addrinfoW {
    int ai_flags;
    int ai_family;
    int ai_socktype;
    int ai_protocol;
    size_t ai_addrlen;
    PWSTR ai_canonname;
    struct sockaddr *ai_addr;
    struct addrinfoW *ai_next;
} ADDRINFOW, *PADDRINFOW;

#ifdef AI_PASSIVE

/* ---- Narrow text ------------------------------------------------------------------------------------ */

#ifndef CP_NO_SOCKET_CALLS
#ifdef __cplusplus
extern "C" {
#endif
/* Like the socket calls of <winsock2.h>: the system's declaration with another symbol. */
extern int getaddrinfo(const char *__restrict, const char *__restrict, const struct addrinfo *__restrict,
                       struct addrinfo **__restrict) __asm__("cp_getaddrinfo");
extern int getnameinfo(const struct sockaddr *__restrict, socklen_t, char *__restrict, socklen_t, char *__restrict,
                       socklen_t, int) __asm__("cp_getnameinfo");
#ifdef __cplusplus
}
#endif

#undef EAI_AGAIN
#undef EAI_BADFLAGS
#undef EAI_FAIL
#undef EAI_FAMILY
#undef EAI_MEMORY
#undef EAI_NODATA
#undef EAI_NONAME
#undef EAI_SERVICE
#undef EAI_SOCKTYPE
#define EAI_AGAIN WSATRY_AGAIN
#define EAI_BADFLAGS WSAEINVAL
#define EAI_FAIL WSANO_RECOVERY
#define EAI_FAMILY WSAEAFNOSUPPORT
#define EAI_MEMORY WSA_NOT_ENOUGH_MEMORY
#define EAI_NODATA WSANO_DATA
#define EAI_NONAME WSAHOST_NOT_FOUND
#define EAI_SERVICE WSATYPE_NOT_FOUND
#define EAI_SOCKTYPE WSAESOCKTNOSUPPORT

/* The system's function knows only the system's codes. */
#define gai_strerror gai_strerrorA
#endif

#define GetAddrInfoA getaddrinfo
#define FreeAddrInfoA freeaddrinfo
#define GetNameInfoA getnameinfo

#define GAI_STRERROR_BUFFER_SIZE 1024

/* The text stays valid. */
CP_INLINE char *gai_strerrorA(int ecode) {
    const char *text = cp_message((uint32_t)ecode);
    if (!text)
        text = "The code is not one of these functions.";
    return (char *)(uintptr_t)text;
}

/* ---- Wide text ---------------------------------------------------------------------------------------- */

/* The text stays valid until the thread's next call. */
CP_INLINE WCHAR *gai_strerrorW(int ecode) {
    static __thread WCHAR text[256];
    if (!MultiByteToWideChar(CP_UTF8, 0, gai_strerrorA(ecode), -1, text, 256))
        text[0] = L'\0';
    return text;
}

CP_INLINE VOID WSAAPI FreeAddrInfoW(PADDRINFOW pAddrInfo) {
    while (pAddrInfo) {
        PADDRINFOW next = pAddrInfo->ai_next;
        free(pAddrInfo);
        pAddrInfo = next;
    }
}

/* One block: the struct, the address and the name. */
CP_INLINE PADDRINFOW cp_wide_address(const struct addrinfo *narrow) {
    size_t room = (narrow->ai_addrlen + 7U) & ~(size_t)7;
    int letters = narrow->ai_canonname ? MultiByteToWideChar(CP_UTF8, 0, narrow->ai_canonname, -1, NULL, 0) : 0;
    PADDRINFOW wide = (PADDRINFOW)calloc(1, sizeof *wide + room + (size_t)letters * sizeof(WCHAR));
    if (!wide)
        return NULL;
    wide->ai_flags = narrow->ai_flags;
    wide->ai_family = narrow->ai_family;
    wide->ai_socktype = narrow->ai_socktype;
    wide->ai_protocol = narrow->ai_protocol;
    wide->ai_addrlen = narrow->ai_addrlen;
    if (narrow->ai_addr) {
        wide->ai_addr = (struct sockaddr *)(void *)(wide + 1);
        memcpy(wide->ai_addr, narrow->ai_addr, narrow->ai_addrlen);
    }
    if (letters > 0) {
        wide->ai_canonname = (PWSTR)(void *)((char *)(wide + 1) + room);
        MultiByteToWideChar(CP_UTF8, 0, narrow->ai_canonname, -1, wide->ai_canonname, letters);
    }
    return wide;
}

CP_INLINE INT cp_resolve_fails(DWORD code) {
    cp_set_last_error(code);
    return (INT)code;
}

#define CP_LONGEST_NAME 1025

/* NULL stays NULL. A name that is too long has no host. */
CP_INLINE BOOL cp_narrow_name(PCWSTR wide, char *room, const char **narrow) {
    *narrow = wide ? room : NULL;
    return !wide || WideCharToMultiByte(CP_UTF8, 0, wide, -1, room, CP_LONGEST_NAME, NULL, NULL) > 0;
}

CP_INLINE INT WSAAPI GetAddrInfoW(PCWSTR pNodeName, PCWSTR pServiceName, const ADDRINFOW *pHints,
                                  PADDRINFOW *ppResult) {
    char node_room[CP_LONGEST_NAME], service_room[CP_LONGEST_NAME];
    const char *node, *service;
    struct addrinfo hints, *found, *it;
    PADDRINFOW *end = ppResult;
    INT code;
    if (!ppResult)
        return cp_resolve_fails(WSAEFAULT);
    *ppResult = NULL;
    if (!cp_narrow_name(pNodeName, node_room, &node) || !cp_narrow_name(pServiceName, service_room, &service))
        return cp_resolve_fails(WSAHOST_NOT_FOUND);
    memset(&hints, 0, sizeof hints);
    if (pHints) {
        if (pHints->ai_addrlen || pHints->ai_canonname || pHints->ai_addr || pHints->ai_next)
            return cp_resolve_fails(WSANO_RECOVERY);
        hints.ai_flags = pHints->ai_flags;
        hints.ai_family = pHints->ai_family;
        hints.ai_socktype = pHints->ai_socktype;
        hints.ai_protocol = pHints->ai_protocol;
    }
    code = cp_getaddrinfo(node, service, pHints ? &hints : NULL, &found);
    if (code)
        return code;
    for (it = found; it; it = it->ai_next) {
        *end = cp_wide_address(it);
        if (!*end) {
            FreeAddrInfoW(*ppResult);
            *ppResult = NULL;
            cp_freeaddrinfo(found);
            return cp_resolve_fails(WSA_NOT_ENOUGH_MEMORY);
        }
        end = &(*end)->ai_next;
    }
    cp_freeaddrinfo(found);
    return 0;
}

/* Sizes are in characters. */
CP_INLINE INT WSAAPI GetNameInfoW(const SOCKADDR *pSockaddr, socklen_t SockaddrLength, WCHAR *pNodeBuffer,
                                  DWORD NodeBufferSize, WCHAR *pServiceBuffer, DWORD ServiceBufferSize, INT Flags) {
    char node[CP_LONGEST_NAME], service[CP_LONGEST_NAME];
    INT code;
    if ((pNodeBuffer && !NodeBufferSize) || (pServiceBuffer && !ServiceBufferSize))
        return cp_resolve_fails(WSAEINVAL);
    code = cp_getnameinfo(pSockaddr, SockaddrLength, pNodeBuffer ? node : NULL, sizeof node,
                          pServiceBuffer ? service : NULL, sizeof service, Flags);
    if (code)
        return code;
    if ((pNodeBuffer && !MultiByteToWideChar(CP_UTF8, 0, node, -1, pNodeBuffer, (int)NodeBufferSize)) ||
        (pServiceBuffer && !MultiByteToWideChar(CP_UTF8, 0, service, -1, pServiceBuffer, (int)ServiceBufferSize)))
        return cp_resolve_fails(ERROR_INSUFFICIENT_BUFFER);
    return 0;
}

#if defined UNICODE || defined _UNICODE
typedef ADDRINFOW ADDRINFOT, *PADDRINFOT;
#define GetAddrInfo GetAddrInfoW
#define FreeAddrInfo FreeAddrInfoW
#define GetNameInfo GetNameInfoW
#else
typedef ADDRINFOA ADDRINFOT, *PADDRINFOT;
#define GetAddrInfo GetAddrInfoA
#define FreeAddrInfo FreeAddrInfoA
#define GetNameInfo GetNameInfoA
#endif

#endif /* AI_PASSIVE */

#endif
