/*
 * cp_socket_text.h: socket addresses as text, with their ports: WSAAddressToString, WSAStringToAddress. Included by
 * <winsock2.h>.
 *
 *   1.2.3.4        1.2.3.4:80
 *   fe80::1%2      [fe80::1%2]:80
 */
/* Before the guard: a program may include this header first, and <winsock2.h> has it in its place. */
#include <winsock2.h>
#ifndef CP_SOCKET_TEXT_H
#define CP_SOCKET_TEXT_H

#include <stdio.h>


/* Room for the longest text: brackets, an address, a scope, a port and a zero. */
#define CP_ADDRESS_TEXT 80

/* Reads a number in decimal digits that is at most `most` and takes up the whole text. */
CP_INLINE BOOL cp_text_number(const char *text, ULONGLONG most, ULONGLONG *number) {
    *number = 0;
    if (!*text)
        return FALSE;
    for (; *text; text++) {
        if (*text < '0' || *text > '9')
            return FALSE;
        *number = *number * 10 + (ULONGLONG)(*text - '0');
        if (*number > most)
            return FALSE;
    }
    return TRUE;
}

/* Ends the text at the letter, if it contains it, and returns the text after it. */
CP_INLINE char *cp_text_cut(char *text, char letter) {
    char *at = strchr(text, letter);
    if (at)
        *at++ = '\0';
    return at;
}

CP_INLINE BOOL cp_text_to_ipv4(char *text, struct sockaddr_in *address) {
    char *port = cp_text_cut(text, ':');
    ULONGLONG number = 0;
    memset(address, 0, sizeof *address);
    address->sin_family = AF_INET;
    if (port && !cp_text_number(port, 0xFFFF, &number))
        return FALSE;
    address->sin_port = htons((uint16_t)number);
    return inet_pton(AF_INET, text, &address->sin_addr) == 1;
}

CP_INLINE BOOL cp_text_to_ipv6(char *text, struct sockaddr_in6 *address) {
    char *scope, *port = NULL;
    ULONGLONG number = 0;
    memset(address, 0, sizeof *address);
    address->sin6_family = AF_INET6;
    if (*text == '[') {
        port = cp_text_cut(++text, ']');
        if (!port || (*port && *port != ':') || (*port && !cp_text_number(port + 1, 0xFFFF, &number)))
            return FALSE;
        address->sin6_port = htons((uint16_t)number);
    }
    scope = cp_text_cut(text, '%');
    number = 0;
    if (scope && !cp_text_number(scope, 0xFFFFFFFF, &number))
        return FALSE;
    address->sin6_scope_id = (uint32_t)number;
    return inet_pton(AF_INET6, text, &address->sin6_addr) == 1;
}

/* The provider makes no difference. */
CP_INLINE INT WSAAPI WSAStringToAddressA(LPSTR AddressString, INT AddressFamily, LPWSAPROTOCOL_INFOA lpProtocolInfo,
                                         LPSOCKADDR lpAddress, LPINT lpAddressLength) {
    union {
        struct sockaddr_in four;
        struct sockaddr_in6 six;
    } address;
    char text[CP_ADDRESS_TEXT];
    INT size = (INT)(AddressFamily == AF_INET ? sizeof address.four : sizeof address.six);
    (void)lpProtocolInfo;
    if (AddressFamily != AF_INET && AddressFamily != AF_INET6)
        return cp_wsa_fails(WSAEINVAL);
    if (!lpAddress || !lpAddressLength)
        return cp_wsa_fails(WSAEFAULT);
    if (*lpAddressLength < size) {
        *lpAddressLength = size;
        return cp_wsa_fails(WSAEFAULT);
    }
    if (!AddressString || strlen(AddressString) >= sizeof text)
        return cp_wsa_fails(WSAEINVAL);
    memcpy(text, AddressString, strlen(AddressString) + 1);
    if (!(AddressFamily == AF_INET ? cp_text_to_ipv4(text, &address.four) : cp_text_to_ipv6(text, &address.six)))
        return cp_wsa_fails(WSAEINVAL);
    memcpy(lpAddress, &address, (size_t)size);
    *lpAddressLength = size;
    return 0;
}

CP_INLINE INT WSAAPI WSAStringToAddressW(LPWSTR AddressString, INT AddressFamily, LPWSAPROTOCOL_INFOW lpProtocolInfo,
                                         LPSOCKADDR lpAddress, LPINT lpAddressLength) {
    char text[CP_ADDRESS_TEXT];
    size_t at = 0;
    (void)lpProtocolInfo;
    /* No address contains a non-ASCII letter or is this long. */
    while (AddressString && AddressString[at] && at < sizeof text - 1) {
        text[at] = AddressString[at] > 0 && AddressString[at] < 0x80 ? (char)AddressString[at] : '?';
        at++;
    }
    if (at == sizeof text - 1)
        text[0] = '?';
    text[at] = '\0';
    return WSAStringToAddressA(AddressString ? text : NULL, AddressFamily, NULL, lpAddress, lpAddressLength);
}

/* Returns 0 if it is not an address of a known family. */
CP_INLINE size_t cp_address_to_text(const SOCKADDR *address, DWORD size, char *text) {
    char host[INET6_ADDRSTRLEN], scope[12] = "";
    union {
        struct sockaddr_in four;
        struct sockaddr_in6 six;
    } of;
    int length = 0;
    if (size >= sizeof of.four && address->sa_family == AF_INET) {
        memcpy(&of.four, address, sizeof of.four);
        inet_ntop(AF_INET, &of.four.sin_addr, host, sizeof host);
        length = of.four.sin_port ? snprintf(text, CP_ADDRESS_TEXT, "%s:%u", host, ntohs(of.four.sin_port))
                                  : snprintf(text, CP_ADDRESS_TEXT, "%s", host);
    } else if (size >= sizeof of.six && address->sa_family == AF_INET6) {
        memcpy(&of.six, address, sizeof of.six);
        inet_ntop(AF_INET6, &of.six.sin6_addr, host, sizeof host);
        if (of.six.sin6_scope_id)
            snprintf(scope, sizeof scope, "%%%u", of.six.sin6_scope_id);
        length = of.six.sin6_port
                     ? snprintf(text, CP_ADDRESS_TEXT, "[%s%s]:%u", host, scope, ntohs(of.six.sin6_port))
                     : snprintf(text, CP_ADDRESS_TEXT, "%s%s", host, scope);
    }
    return length > 0 ? (size_t)length + 1 : 0;
}

/* Stores the text, and the room it needs including its zero; 0 after a failure. */
CP_INLINE DWORD cp_address_text(const SOCKADDR *address, DWORD size, const void *room, LPDWORD letters, char *text) {
    size_t needed;
    if (!address || !letters || size < sizeof address->sa_family || !(needed = cp_address_to_text(address, size, text))) {
        cp_wsa_fails(WSAEINVAL);
        return 0;
    }
    if (!room || *letters < needed) {
        *letters = (DWORD)needed;
        cp_wsa_fails(WSAEFAULT);
        return 0;
    }
    *letters = (DWORD)needed;
    return (DWORD)needed;
}

CP_INLINE INT WSAAPI WSAAddressToStringA(LPSOCKADDR lpsaAddress, DWORD dwAddressLength,
                                         LPWSAPROTOCOL_INFOA lpProtocolInfo, LPSTR lpszAddressString,
                                         LPDWORD lpdwAddressStringLength) {
    char text[CP_ADDRESS_TEXT];
    DWORD length = cp_address_text(lpsaAddress, dwAddressLength, lpszAddressString, lpdwAddressStringLength, text);
    (void)lpProtocolInfo;
    if (!length)
        return SOCKET_ERROR;
    memcpy(lpszAddressString, text, length);
    return 0;
}

CP_INLINE INT WSAAPI WSAAddressToStringW(LPSOCKADDR lpsaAddress, DWORD dwAddressLength,
                                         LPWSAPROTOCOL_INFOW lpProtocolInfo, LPWSTR lpszAddressString,
                                         LPDWORD lpdwAddressStringLength) {
    char text[CP_ADDRESS_TEXT];
    DWORD length = cp_address_text(lpsaAddress, dwAddressLength, lpszAddressString, lpdwAddressStringLength, text), at;
    (void)lpProtocolInfo;
    if (!length)
        return SOCKET_ERROR;
    for (at = 0; at < length; at++)
        lpszAddressString[at] = (WCHAR)text[at];
    return 0;
}

#if defined UNICODE || defined _UNICODE
#define WSAAddressToString WSAAddressToStringW
#define WSAStringToAddress WSAStringToAddressW
#else
#define WSAAddressToString WSAAddressToStringA
#define WSAStringToAddress WSAStringToAddressA
#endif

#endif
