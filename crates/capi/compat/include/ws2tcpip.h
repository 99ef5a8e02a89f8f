/* ws2tcpip.h: addresses as text, and what sources for the reference expect of addresses beside <winsock2.h>. */
#ifndef CP_WS2TCPIP_H
#define CP_WS2TCPIP_H

#include <winsock2.h>

/* Room for any address of the family, and its zero. */
#ifndef INET_ADDRSTRLEN
#define INET_ADDRSTRLEN 16
#endif
#ifndef INET6_ADDRSTRLEN
#define INET6_ADDRSTRLEN 46
#endif

/* NULL if it fails: WSAEAFNOSUPPORT, or ERROR_INVALID_PARAMETER if there is too little room. */
CP_INLINE PCSTR WSAAPI InetNtopA(INT Family, const VOID *pAddr, PSTR pStringBuf, size_t StringBufSize) {
    PCSTR text = NULL;
    if (Family != AF_INET && Family != AF_INET6)
        cp_set_last_error(WSAEAFNOSUPPORT);
    else if (!pAddr || !pStringBuf ||
             !(text = inet_ntop(Family, pAddr, pStringBuf,
                                (socklen_t)(StringBufSize < 1024 ? StringBufSize : 1024))))
        cp_set_last_error(ERROR_INVALID_PARAMETER);
    return text;
}

/* 1; 0 if the text is not an address; -1 on failure: WSAEAFNOSUPPORT or WSAEFAULT. */
CP_INLINE INT WSAAPI InetPtonA(INT Family, PCSTR pszAddrString, PVOID pAddrBuf) {
    if (Family != AF_INET && Family != AF_INET6) {
        cp_set_last_error(WSAEAFNOSUPPORT);
        return -1;
    }
    if (!pszAddrString || !pAddrBuf) {
        cp_set_last_error(WSAEFAULT);
        return -1;
    }
    return inet_pton(Family, pszAddrString, pAddrBuf);
}

CP_INLINE PCWSTR WSAAPI InetNtopW(INT Family, const VOID *pAddr, PWSTR pStringBuf, size_t StringBufSize) {
    char text[INET6_ADDRSTRLEN];
    size_t at, length;
    if (!InetNtopA(Family, pAddr, text, sizeof text))
        return NULL;
    length = strlen(text) + 1;
    if (!pStringBuf || StringBufSize < length) {
        cp_set_last_error(ERROR_INVALID_PARAMETER);
        return NULL;
    }
    for (at = 0; at < length; at++)
        pStringBuf[at] = (WCHAR)text[at];
    return pStringBuf;
}

CP_INLINE INT WSAAPI InetPtonW(INT Family, PCWSTR pszAddrString, PVOID pAddrBuf) {
    char text[INET6_ADDRSTRLEN];
    size_t at = 0;
    if (!pszAddrString)
        return InetPtonA(Family, NULL, pAddrBuf);
    /* Longer text, or text with other letters, is not an address. */
    do {
        WCHAR letter = pszAddrString[at];
        text[at] = letter > 0 && letter < 0x80 ? (char)letter : letter ? '?' : '\0';
    } while (text[at] && ++at < sizeof text);
    if (at == sizeof text)
        text[0] = '\0';
    return InetPtonA(Family, text, pAddrBuf);
}

CP_EXPORTS_BEGIN(tcpip)
    CP_EXPORT("ws2_32", InetNtopA),
    CP_EXPORT("ws2_32", InetPtonA),
    CP_EXPORT("ws2_32", InetNtopW),
    CP_EXPORT("ws2_32", InetPtonW),
CP_EXPORTS_END

#if defined UNICODE || defined _UNICODE
#define InetNtop InetNtopW
#define InetPton InetPtonW
#else
#define InetNtop InetNtopA
#define InetPton InetPtonA
#endif

#endif
