/* cp_socket_names.h: Winsock's functions for GetProcAddress. Included by <winsock2.h>. */
/* Before the guard: a program may include this header first, and <winsock2.h> has it in its place. */
#include <winsock2.h>
#ifndef CP_SOCKET_NAMES_H
#define CP_SOCKET_NAMES_H

#include <sys/utsname.h>


/* ---- With the reference's types ------------------------------------------------------------------------ */

/* A program that looks up one of these calls it with the reference's types, whose sizes differ from those of the
 * system's function. */
CP_INLINE SOCKET WSAAPI cp_named_accept(SOCKET s, struct sockaddr *addr, int *addrlen) {
    return (SOCKET)(INT_PTR)cp_accept(cp_descriptor(s), addr, (socklen_t *)(void *)addrlen);
}

CP_INLINE SOCKET WSAAPI cp_named_socket(int af, int type, int protocol) {
    return (SOCKET)(INT_PTR)cp_socket(af, type, protocol);
}

/* The reference treats a negative length as invalid. */
CP_INLINE int cp_named_length(int length, size_t *whole) {
    *whole = length < 0 ? 0 : (size_t)length;
    return length < 0 ? cp_wsa_fails(WSAEFAULT) : 0;
}

CP_INLINE int WSAAPI cp_named_recv(SOCKET s, char *buf, int len, int flags) {
    size_t whole;
    return cp_named_length(len, &whole) ? SOCKET_ERROR : (int)cp_recv(cp_descriptor(s), buf, whole, flags);
}

CP_INLINE int WSAAPI cp_named_recvfrom(SOCKET s, char *buf, int len, int flags, struct sockaddr *from, int *fromlen) {
    size_t whole;
    return cp_named_length(len, &whole)
               ? SOCKET_ERROR
               : (int)cp_recvfrom(cp_descriptor(s), buf, whole, flags, from, (socklen_t *)(void *)fromlen);
}

CP_INLINE int WSAAPI cp_named_send(SOCKET s, const char *buf, int len, int flags) {
    size_t whole;
    return cp_named_length(len, &whole) ? SOCKET_ERROR : (int)cp_send(cp_descriptor(s), buf, whole, flags);
}

CP_INLINE int WSAAPI cp_named_sendto(SOCKET s, const char *buf, int len, int flags, const struct sockaddr *to,
                                     int tolen) {
    size_t whole;
    return cp_named_length(len, &whole)
               ? SOCKET_ERROR
               : (int)cp_sendto(cp_descriptor(s), buf, whole, flags, to, (socklen_t)tolen);
}

/* Plain C11 may hide the system's own function. */
CP_INLINE int WSAAPI cp_named_gethostname(char *name, int namelen) {
    struct utsname here;
    size_t length = 0;
    if (uname(&here) == 0)
        length = strlen(here.nodename) + 1;
    if (!name || namelen < 0 || length == 0 || (size_t)namelen < length)
        return cp_wsa_fails(WSAEFAULT);
    memcpy(name, here.nodename, length);
    return 0;
}

/* In C++ there are two functions of the name. */
CP_INLINE int WSAAPI cp_named_ioctlsocket(SOCKET s, long cmd, u_long *argp) {
    return cp_ioctl_socket(cp_descriptor(s), (unsigned long)cmd, argp);
}

CP_INLINE u_long WSAAPI cp_named_htonl(u_long hostlong) {
    return htonl((uint32_t)hostlong);
}

CP_INLINE u_long WSAAPI cp_named_ntohl(u_long netlong) {
    return ntohl((uint32_t)netlong);
}

CP_INLINE u_long WSAAPI cp_named_inet_addr(const char *cp) {
    return inet_addr(cp);
}

/* The others have arguments and results of the same sizes. Each address is that of this library's function, whether or
 * not the unit uses its socket calls. */

CP_EXPORTS_BEGIN(winsock)
    CP_EXPORT("ws2_32", WSAStartup),
    CP_EXPORT("ws2_32", WSACleanup),
    CP_EXPORT("ws2_32", WSAGetLastError),
    CP_EXPORT("ws2_32", WSASetLastError),
    CP_EXPORT("ws2_32", ProcessSocketNotifications),
    CP_EXPORT("ws2_32", closesocket),
    CP_EXPORT_OF("ws2_32", "ioctlsocket", cp_named_ioctlsocket),
    CP_EXPORT("ws2_32", WSAAccept),
    CP_EXPORT("ws2_32", WSAConnect),
#ifndef CP_NO_WIN32
    CP_EXPORT("ws2_32", WSACreateEvent),
    CP_EXPORT("ws2_32", WSASetEvent),
    CP_EXPORT("ws2_32", WSAResetEvent),
    CP_EXPORT("ws2_32", WSACloseEvent),
    CP_EXPORT("ws2_32", WSAWaitForMultipleEvents),
#endif
    CP_EXPORT("ws2_32", WSASendTo),
    CP_EXPORT("ws2_32", WSASend),
    CP_EXPORT("ws2_32", WSARecvFrom),
    CP_EXPORT("ws2_32", WSARecv),
    CP_EXPORT("ws2_32", WSAGetOverlappedResult),
    CP_EXPORT("ws2_32", WSAIoctl),
    CP_EXPORT("ws2_32", WSAPoll),
    CP_EXPORT("ws2_32", WSAEnumProtocolsA),
    CP_EXPORT("ws2_32", WSAEnumProtocolsW),
    CP_EXPORT("ws2_32", WSADuplicateSocketA),
    CP_EXPORT("ws2_32", WSADuplicateSocketW),
    CP_EXPORT("ws2_32", WSASocketA),
    CP_EXPORT("ws2_32", WSASocketW),
    CP_EXPORT_OF("ws2_32", "bind", cp_bind),
    CP_EXPORT_OF("ws2_32", "connect", cp_connect),
    CP_EXPORT_OF("ws2_32", "getpeername", cp_getpeername),
    CP_EXPORT_OF("ws2_32", "getsockname", cp_getsockname),
    CP_EXPORT_OF("ws2_32", "getsockopt", cp_getsockopt),
    CP_EXPORT_OF("ws2_32", "listen", cp_listen),
    CP_EXPORT_OF("ws2_32", "setsockopt", cp_setsockopt),
    CP_EXPORT_OF("ws2_32", "shutdown", cp_shutdown),
    CP_EXPORT_OF("ws2_32", "accept", cp_named_accept),
    CP_EXPORT_OF("ws2_32", "recv", cp_named_recv),
    CP_EXPORT_OF("ws2_32", "recvfrom", cp_named_recvfrom),
    CP_EXPORT_OF("ws2_32", "send", cp_named_send),
    CP_EXPORT_OF("ws2_32", "sendto", cp_named_sendto),
    CP_EXPORT_OF("ws2_32", "socket", cp_named_socket),
    CP_EXPORT_OF("ws2_32", "gethostname", cp_named_gethostname),
    CP_EXPORT_OF("ws2_32", "htonl", cp_named_htonl),
    CP_EXPORT_OF("ws2_32", "inet_addr", cp_named_inet_addr),
    CP_EXPORT_OF("ws2_32", "ntohl", cp_named_ntohl),
    CP_EXPORT("ws2_32", gethostbyaddr),
    CP_EXPORT("ws2_32", gethostbyname),
    CP_EXPORT("ws2_32", getprotobyname),
    CP_EXPORT("ws2_32", getprotobynumber),
    CP_EXPORT("ws2_32", getservbyname),
    CP_EXPORT("ws2_32", getservbyport),
    CP_EXPORT("ws2_32", htons),
    CP_EXPORT("ws2_32", inet_ntoa),
    CP_EXPORT("ws2_32", inet_ntop),
    CP_EXPORT("ws2_32", inet_pton),
    CP_EXPORT("ws2_32", ntohs),
    CP_EXPORT_OF("ws2_32", "select", cp_select),
#ifndef CP_NO_SOCKET_CALLS
    CP_EXPORT("ws2_32", __WSAFDIsSet),
#endif
    CP_EXPORT_OF("ws2_32", "getaddrinfo", cp_getaddrinfo),
    CP_EXPORT_OF("ws2_32", "freeaddrinfo", cp_freeaddrinfo),
    CP_EXPORT_OF("ws2_32", "getnameinfo", cp_getnameinfo),
#ifdef AI_PASSIVE
    CP_EXPORT("ws2_32", GetAddrInfoW),
    CP_EXPORT("ws2_32", FreeAddrInfoW),
    CP_EXPORT("ws2_32", GetNameInfoW),
#endif
    CP_EXPORT("ws2_32", WSAStringToAddressA),
    CP_EXPORT("ws2_32", WSAStringToAddressW),
    CP_EXPORT("ws2_32", WSAAddressToStringA),
    CP_EXPORT("ws2_32", WSAAddressToStringW),
CP_EXPORTS_END

#endif
