/*
 * winsock2.h: the part of Winsock that socket state notifications need, on Linux.
 *
 * HOW SOCKET CALLS ARE MAPPED
 *
 * <sys/socket.h> declares `recv`, `send`, `accept` and so on. It may be included before or after
 * this header. This header declares them again, exactly as the system does, but with another
 * symbol: in this unit, from here on, `recv` is cp_recv of this library. So
 * - none of them is a macro: members, parameters and functions of other scopes may have these
 *   names;
 * - `&recv` is a function like any other; calls in the system's and in Winsock's style both
 *   compile;
 * - units that do not include this header call the system. They can exchange sockets freely with
 *   others.
 *
 * The cp_ functions call the system's; "Socket calls" in <completion_port.h> lists the differences.
 * One remains: the length of an address or option is an `int` in Winsock, and a socklen_t, which is
 * unsigned, here. C++ has templates for this; in C the warning about the sign is turned off.
 *
 * If the system's header has inline definitions (_FORTIFY_SOURCE adds them for recv and recvfrom),
 * inline definitions here replace them, and so also their check of the buffer. Clang cannot do
 * that: with it, this header must come before <sys/socket.h>, which <completion_port.h> includes.
 *
 * Opt-out: with CP_NO_SOCKET_CALLS defined, none of this happens. The calls are the system's, with
 * errno. The library detects numbers closed by close(2), and the program may call cp_set_last_error
 * itself.
 *
 * WHAT DIFFERS  SOCKET is an unsigned number of the size of a pointer, as there; its value is a
 *               descriptor. wchar_t has four bytes, u_long has eight, DWORD is an int.
 *               docs/PORTING.md has the rest.
 */
#ifndef CP_WINSOCK2_H
#define CP_WINSOCK2_H

#include <windows.h>

#if defined __clang__ && defined __USE_FORTIFY_LEVEL && __USE_FORTIFY_LEVEL > 0 && \
    !defined CP_NO_SOCKET_CALLS && !defined CP_SOCKET_CALLS_ARE_PLAIN
#error "With Clang and _FORTIFY_SOURCE include <winsock2.h> before <sys/socket.h> and <completion_port.h>"
#endif

/* For the reference, an address has four bytes, two words or one number, all in `S_un`. The
 * system's struct has only `s_addr`. It gets the other names here as well, unless the system's
 * header came first. */
typedef union cp_in_addr_parts {
    struct {
        UCHAR s_b1, s_b2, s_b3, s_b4;
    } S_un_b;
    struct {
        USHORT s_w1, s_w2;
    } S_un_w;
    ULONG S_addr;
} cp_in_addr_parts;
#ifndef _NETINET_IN_H
#define s_addr : 0; __extension__ union { in_addr_t s_addr; cp_in_addr_parts S_un; }
/* An IPv6 address is a union `u` of bytes and words. The system's struct has such a union, too. These macros turn its
 * names, which are reserved ones of glibc and of musl, into the reference's. `s6_addr` and the like refer to it. */
#define __in6_u u
#define __u6_addr8 Byte
#define __u6_addr16 Word
#define __in6_union u
#define __s6_addr Byte
#define __s6_addr16 Word
#include <netinet/in.h>
#undef s_addr
#define s6_bytes u.Byte
#define s6_words u.Word
#endif

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/time.h>

/* ---- Types --------------------------------------------------------------------------------- */

typedef unsigned char u_char;
typedef unsigned short u_short;
typedef unsigned int u_int;
typedef unsigned long u_long;

typedef UINT_PTR SOCKET;
typedef unsigned int GROUP;
typedef USHORT ADDRESS_FAMILY;

#define INVALID_SOCKET ((SOCKET)(~(SOCKET)0))
#define SOCKET_ERROR (-1)

/* The longest queue that the system allows: it limits the requested length. */
#define SOMAXCONN_HINT(backlog) (backlog)

#define SD_RECEIVE 0x00
#define SD_SEND 0x01
#define SD_BOTH 0x02

typedef struct sockaddr SOCKADDR, *PSOCKADDR, *LPSOCKADDR;
typedef struct sockaddr_in SOCKADDR_IN, *PSOCKADDR_IN, *LPSOCKADDR_IN;
typedef struct sockaddr_in6 SOCKADDR_IN6, *PSOCKADDR_IN6, *LPSOCKADDR_IN6;
typedef struct sockaddr_storage SOCKADDR_STORAGE, *PSOCKADDR_STORAGE, *LPSOCKADDR_STORAGE;
typedef struct in_addr IN_ADDR, *PIN_ADDR, *LPIN_ADDR;
typedef struct in6_addr IN6_ADDR, *PIN6_ADDR, *LPIN6_ADDR;
typedef struct hostent HOSTENT, *PHOSTENT, *LPHOSTENT;
typedef struct linger LINGER, *PLINGER, *LPLINGER;
typedef struct timeval TIMEVAL, *PTIMEVAL, *LPTIMEVAL;
typedef struct servent SERVENT, *PSERVENT, *LPSERVENT;
typedef struct ip_mreq IP_MREQ, *PIP_MREQ;
typedef struct ipv6_mreq IPV6_MREQ, *PIPV6_MREQ;

/* Names that only the reference defines. */
#define SO_DONTLINGER ((int)(~SO_LINGER))
#define SO_CONNECT_TIME 0x700C
#define SO_PROTOCOL_INFOA 0x2004
#define SO_PROTOCOL_INFOW 0x2005
#define SO_EXCLUSIVEADDRUSE ((int)(~SO_REUSEADDR))
#define SO_UPDATE_ACCEPT_CONTEXT 0x700B
#define SO_UPDATE_CONNECT_CONTEXT 0x7010

/* ---- Starting up ---------------------------------------------------------------------------- */

#define WSADESCRIPTION_LEN 256
#define WSASYS_STATUS_LEN 128
#define WINSOCK_VERSION MAKEWORD(2, 2)

typedef struct WSAData {
    WORD wVersion;
    WORD wHighVersion;
    unsigned short iMaxSockets;
    unsigned short iMaxUdpDg;
    char *lpVendorInfo;
    char szDescription[WSADESCRIPTION_LEN + 1];
    char szSystemStatus[WSASYS_STATUS_LEN + 1];
} WSADATA, *LPWSADATA;

/* Other calls work without it. */
CP_INLINE int WSAAPI WSAStartup(WORD wVersionRequested, LPWSADATA lpWSAData) {
    if (!cp_is_memory((uintptr_t)lpWSAData, sizeof *lpWSAData))
        return WSAEFAULT;
    memset(lpWSAData, 0, sizeof *lpWSAData);
    lpWSAData->wHighVersion = WINSOCK_VERSION;
    lpWSAData->wVersion = WINSOCK_VERSION;
    if (LOBYTE(wVersionRequested) < 2 || wVersionRequested == MAKEWORD(2, 0) ||
        wVersionRequested == MAKEWORD(2, 1))
        lpWSAData->wVersion = wVersionRequested;
    if (LOBYTE(wVersionRequested) == 0)
        return WSAVERNOTSUPPORTED;
    memcpy(lpWSAData->szDescription, "completion-port", sizeof "completion-port");
    memcpy(lpWSAData->szSystemStatus, "Running", sizeof "Running");
    cp_startup();
    return 0;
}

CP_INLINE int WSAAPI WSACleanup(void) {
    return cp_cleanup();
}

CP_INLINE int WSAAPI WSAGetLastError(void) {
    return (int)cp_last_error();
}

CP_INLINE void WSAAPI WSASetLastError(int iError) {
    cp_set_last_error((uint32_t)iError);
}

/* ---- Socket state notifications -------------------------------------------------------------- */

#define SOCK_NOTIFY_REGISTER_EVENT_NONE 0x00
#define SOCK_NOTIFY_REGISTER_EVENT_IN 0x01
#define SOCK_NOTIFY_REGISTER_EVENT_OUT 0x02
#define SOCK_NOTIFY_REGISTER_EVENT_HANGUP 0x04
#define SOCK_NOTIFY_REGISTER_EVENTS_ALL                                 \
    (SOCK_NOTIFY_REGISTER_EVENT_IN | SOCK_NOTIFY_REGISTER_EVENT_OUT |   \
     SOCK_NOTIFY_REGISTER_EVENT_HANGUP)

#define SOCK_NOTIFY_EVENT_IN SOCK_NOTIFY_REGISTER_EVENT_IN
#define SOCK_NOTIFY_EVENT_OUT SOCK_NOTIFY_REGISTER_EVENT_OUT
#define SOCK_NOTIFY_EVENT_HANGUP SOCK_NOTIFY_REGISTER_EVENT_HANGUP
#define SOCK_NOTIFY_EVENT_ERR 0x40
#define SOCK_NOTIFY_EVENT_REMOVE 0x80
#define SOCK_NOTIFY_EVENTS_ALL \
    (SOCK_NOTIFY_REGISTER_EVENTS_ALL | SOCK_NOTIFY_EVENT_ERR | SOCK_NOTIFY_EVENT_REMOVE)

#define SOCK_NOTIFY_OP_NONE 0x00
#define SOCK_NOTIFY_OP_ENABLE 0x01
#define SOCK_NOTIFY_OP_DISABLE 0x02
#define SOCK_NOTIFY_OP_REMOVE 0x04

#define SOCK_NOTIFY_TRIGGER_ONESHOT 0x01
#define SOCK_NOTIFY_TRIGGER_PERSISTENT 0x02
#define SOCK_NOTIFY_TRIGGER_LEVEL 0x04
#define SOCK_NOTIFY_TRIGGER_EDGE 0x08
#define SOCK_NOTIFY_TRIGGER_ALL                                         \
    (SOCK_NOTIFY_TRIGGER_ONESHOT | SOCK_NOTIFY_TRIGGER_PERSISTENT |     \
     SOCK_NOTIFY_TRIGGER_LEVEL | SOCK_NOTIFY_TRIGGER_EDGE)

typedef struct SOCK_NOTIFY_REGISTRATION {
    SOCKET socket;
    PVOID completionKey;
    UINT16 eventFilter;
    UINT8 operation;
    UINT8 triggerFlags;
    DWORD registrationResult;
} SOCK_NOTIFY_REGISTRATION;

CP_INLINE DWORD WSAAPI ProcessSocketNotifications(HANDLE completionPort, UINT32 registrationCount,
                                                  SOCK_NOTIFY_REGISTRATION *registrationInfos,
                                                  UINT32 timeoutMs, ULONG completionCount,
                                                  OVERLAPPED_ENTRY *completionPortEntries,
                                                  UINT32 *receivedEntryCount) {
    return cp_process_notifications(completionPort, registrationCount,
                                    (cp_registration *)(void *)registrationInfos, timeoutMs,
                                    completionCount, (cp_entry *)(void *)completionPortEntries,
                                    receivedEntryCount);
}

CP_INLINE UINT32 SocketNotificationRetrieveEvents(const OVERLAPPED_ENTRY *notification) {
    return notification->dwNumberOfBytesTransferred;
}

/* ---- Types of operations ---------------------------------------------------------------------- */

typedef OVERLAPPED WSAOVERLAPPED, *LPWSAOVERLAPPED;
typedef HANDLE WSAEVENT, *LPWSAEVENT;

typedef struct _WSABUF {
    ULONG len;
    CHAR *buf;
} WSABUF, *LPWSABUF;

typedef void(CALLBACK *LPWSAOVERLAPPED_COMPLETION_ROUTINE)(DWORD dwError, DWORD cbTransferred,
                                                           LPWSAOVERLAPPED lpOverlapped,
                                                           DWORD dwFlags);
typedef int(WSAAPI *LPFN_WSARECV)(SOCKET, LPWSABUF, DWORD, LPDWORD, LPDWORD, LPWSAOVERLAPPED,
                                  LPWSAOVERLAPPED_COMPLETION_ROUTINE);
typedef int(WSAAPI *LPFN_WSASEND)(SOCKET, LPWSABUF, DWORD, LPDWORD, DWORD, LPWSAOVERLAPPED,
                                  LPWSAOVERLAPPED_COMPLETION_ROUTINE);
typedef int(WSAAPI *LPFN_WSARECVFROM)(SOCKET, LPWSABUF, DWORD, LPDWORD, LPDWORD, struct sockaddr *,
                                      LPINT, LPWSAOVERLAPPED, LPWSAOVERLAPPED_COMPLETION_ROUTINE);
typedef int(WSAAPI *LPFN_WSASENDTO)(SOCKET, LPWSABUF, DWORD, LPDWORD, DWORD,
                                    const struct sockaddr *, int, LPWSAOVERLAPPED,
                                    LPWSAOVERLAPPED_COMPLETION_ROUTINE);

typedef struct _WSAPROTOCOL_INFOA WSAPROTOCOL_INFOA, *LPWSAPROTOCOL_INFOA;
typedef struct _WSAPROTOCOL_INFOW WSAPROTOCOL_INFOW, *LPWSAPROTOCOL_INFOW;

#define WSA_INFINITE INFINITE
#define WSA_FLAG_OVERLAPPED 0x01
#define WSA_FLAG_NO_HANDLE_INHERIT 0x80

/* ---- Socket calls that only Winsock has ------------------------------------------------------ */

/* The descriptor that a SOCKET is; none if it cannot be one. */
CP_INLINE int cp_descriptor(SOCKET s) {
    return s > 0x7FFFFFFF ? -1 : (int)s;
}

CP_INLINE int cp_wsa_fails(DWORD code) {
    cp_set_last_error(code);
    return SOCKET_ERROR;
}

CP_INLINE int WSAAPI closesocket(SOCKET s) {
    return cp_close_socket(cp_descriptor(s));
}

/* Set in a command in addition to its 32 bits: the argument has four bytes. */
#define CP_OF_FOUR_BYTES (1L << 32)

/* `u_long` has eight bytes here; the system's ioctl would write four. */
CP_INLINE int WSAAPI ioctlsocket(SOCKET s, long cmd, u_long *argp) {
    if ((unsigned long)cmd >> 32 == 1) {
        DWORD *narrow = (DWORD *)(void *)argp;
        u_long value;
        int done;
        if (!cp_is_memory((uintptr_t)narrow, sizeof *narrow))
            return cp_wsa_fails(WSAEFAULT);
        value = *narrow;
        done = cp_ioctl_socket(cp_descriptor(s), (unsigned long)cmd, &value);
        if (done == 0)
            *narrow = (DWORD)value;
        return done;
    }
    return cp_ioctl_socket(cp_descriptor(s), (unsigned long)cmd, argp);
}

/* For the reference, a DWORD or ULONG has the size of a u_long and can replace it. Here the type of
 * the pointer gives the size. NULL counts as a pointer to a u_long; other pointers do not compile. */
#ifdef __cplusplus
template <class Number> struct cp_winsock_number {};
template <> struct cp_winsock_number<DWORD> {
    typedef int result;
};
template <class Number>
inline typename cp_winsock_number<Number>::result ioctlsocket(SOCKET s, long cmd, Number *argp) {
    return ioctlsocket(s, (long)(unsigned int)cmd | CP_OF_FOUR_BYTES, (u_long *)(void *)argp);
}
#elif defined __STDC_VERSION__ && __STDC_VERSION__ >= 201112L
/* The call's own name comes out, with arguments that are as they were for a u_long: a member of that name which
 * takes one is called as it would be otherwise. */
#define ioctlsocket(s, cmd, argp)                                                              \
    ioctlsocket(s,                                                                             \
                _Generic((argp), DWORD *: ((long)(unsigned int)(cmd) | CP_OF_FOUR_BYTES),      \
                         u_long *: (cmd), void *: (cmd), int: (cmd), long: (cmd)),             \
                _Generic((argp), DWORD *: (void *)(uintptr_t)(argp), default: (argp)))
#endif

/* ---- Socket calls that the system has too ----------------------------------------------------- */

#ifndef CP_NO_SOCKET_CALLS

/* How the system declares addresses, and that a call throws nothing. */
#ifdef __GLIBC__
#define CP_ADDRESS __SOCKADDR_ARG
#define CP_CONST_ADDRESS __CONST_SOCKADDR_ARG
#else
#define CP_ADDRESS struct sockaddr *__restrict
#define CP_CONST_ADDRESS const struct sockaddr *
#endif
#if defined __cplusplus && defined __THROW
#define CP_THROWS_NOTHING __THROW
#else
#define CP_THROWS_NOTHING
#endif

#ifdef __cplusplus
extern "C" {
#endif
extern int socket(int, int, int) CP_THROWS_NOTHING __asm__("cp_socket");
extern int accept(int, CP_ADDRESS, socklen_t *__restrict) __asm__("cp_accept");
extern int bind(int, CP_CONST_ADDRESS, socklen_t) CP_THROWS_NOTHING __asm__("cp_bind");
extern int listen(int, int) CP_THROWS_NOTHING __asm__("cp_listen");
extern int connect(int, CP_CONST_ADDRESS, socklen_t) __asm__("cp_connect");
extern ssize_t send(int, const void *, size_t, int) __asm__("cp_send");
extern ssize_t sendto(int, const void *, size_t, int, CP_CONST_ADDRESS, socklen_t)
    __asm__("cp_sendto");
extern int shutdown(int, int) CP_THROWS_NOTHING __asm__("cp_shutdown");
extern int getsockopt(int, int, int, void *__restrict, socklen_t *__restrict)
    CP_THROWS_NOTHING __asm__("cp_getsockopt");
extern int setsockopt(int, int, int, const void *, socklen_t)
    CP_THROWS_NOTHING __asm__("cp_setsockopt");
extern int getsockname(int, CP_ADDRESS, socklen_t *__restrict)
    CP_THROWS_NOTHING __asm__("cp_getsockname");
extern int getpeername(int, CP_ADDRESS, socklen_t *__restrict)
    CP_THROWS_NOTHING __asm__("cp_getpeername");

#if defined __USE_FORTIFY_LEVEL && __USE_FORTIFY_LEVEL > 0 && !defined __clang__
/* The system's inline definitions are of a kind that another definition may replace. One for all units
 * of a program: hidden, and the first one will do. */
#define CP_REPLACES __attribute__((__weak__, __visibility__("hidden")))
extern ssize_t recv(int, void *, size_t, int) __asm__("cp_inline_recv");
extern ssize_t recvfrom(int, void *__restrict, size_t, int, CP_ADDRESS, socklen_t *__restrict)
    __asm__("cp_inline_recvfrom");
CP_REPLACES ssize_t recv(int s, void *buf, size_t len, int flags) {
    return cp_recv(s, buf, len, flags);
}
CP_REPLACES ssize_t recvfrom(int s, void *__restrict buf, size_t len, int flags, CP_ADDRESS from,
                             socklen_t *__restrict fromlen) {
    struct sockaddr *address;
    /* What the system takes for an address is a pointer, or a union of pointers to every kind. */
    memcpy(&address, (const void *)&from, sizeof address);
    return cp_recvfrom(s, buf, len, flags, address, fromlen);
}
#undef CP_REPLACES
#else
extern ssize_t recv(int, void *, size_t, int) __asm__("cp_recv");
extern ssize_t recvfrom(int, void *__restrict, size_t, int, CP_ADDRESS, socklen_t *__restrict)
    __asm__("cp_recvfrom");
#endif
#ifdef __cplusplus
}
#endif
#undef CP_ADDRESS
#undef CP_CONST_ADDRESS
#undef CP_THROWS_NOTHING

#ifdef __cplusplus
/* Only for a pointer to an int: whatever the system's declaration takes is the system's, so that no call is
 * ambiguous. */
template <class Length> struct cp_winsock_length {};
template <> struct cp_winsock_length<int> {
    typedef SOCKET socket;
    typedef int result;
};
template <class Length>
inline typename cp_winsock_length<Length>::socket accept(SOCKET s, struct sockaddr *addr,
                                                         Length *addrlen) {
    return (SOCKET)(INT_PTR)cp_accept(cp_descriptor(s), addr, (socklen_t *)addrlen);
}
template <class Length>
inline typename cp_winsock_length<Length>::result recvfrom(SOCKET s, void *buf, size_t len, int flags,
                                                           struct sockaddr *from, Length *fromlen) {
    return (int)cp_recvfrom(cp_descriptor(s), buf, len, flags, from, (socklen_t *)fromlen);
}
template <class Length>
inline typename cp_winsock_length<Length>::result getsockopt(SOCKET s, int level, int optname,
                                                             void *optval, Length *optlen) {
    return cp_getsockopt(cp_descriptor(s), level, optname, optval, (socklen_t *)optlen);
}
template <class Length>
inline typename cp_winsock_length<Length>::result getsockname(SOCKET s, struct sockaddr *name,
                                                              Length *namelen) {
    return cp_getsockname(cp_descriptor(s), name, (socklen_t *)namelen);
}
template <class Length>
inline typename cp_winsock_length<Length>::result getpeername(SOCKET s, struct sockaddr *name,
                                                              Length *namelen) {
    return cp_getpeername(cp_descriptor(s), name, (socklen_t *)namelen);
}
#else
/* For `int *` where the system has `socklen_t *`. */
#pragma GCC diagnostic ignored "-Wpointer-sign"
#endif

#endif /* CP_NO_SOCKET_CALLS */

/* ---- By subject ----------------------------------------------------------------------------------- */

#include <cp_socket_absent.h>
#include <cp_socket_accept.h>
#include <cp_socket_buffers.h>
#include <cp_socket_ioctl.h>
#include <cp_socket_messages.h>
#include <cp_socket_poll.h>
#include <cp_socket_protocols.h>
#include <cp_socket_resolve.h>
#include <cp_socket_select.h>
#include <cp_socket_text.h>

/* After all of them. */
#include <cp_socket_names.h>

#endif
