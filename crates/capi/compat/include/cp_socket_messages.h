/*
 * cp_socket_messages.h: datagrams with control data: WSAMSG, its macros, and WSASendMsg. Included by <winsock2.h>.
 *
 * Control data has the system's layout. IN_PKTINFO is the system's struct, which has an additional member.
 */
/* Before the guard: a program may include this header first, and <winsock2.h> has it in its place. */
#include <winsock2.h>
#ifndef CP_SOCKET_MESSAGES_H
#define CP_SOCKET_MESSAGES_H

typedef struct _WSAMSG {
    LPSOCKADDR name;
    INT namelen;
    LPWSABUF lpBuffers;
    ULONG dwBufferCount;
    WSABUF Control;
    ULONG dwFlags;
} WSAMSG, *PWSAMSG, *LPWSAMSG;

/* The kernel's layout. The system's own struct may end with an array, and could then not be a member of another struct.
 * */
typedef struct _WSACMSGHDR {
    SIZE_T cmsg_len;
    INT cmsg_level;
    INT cmsg_type;
} WSACMSGHDR, *PWSACMSGHDR, *LPWSACMSGHDR;

#define WSA_CMSGHDR_ALIGN(length) (((length) + sizeof(SIZE_T) - 1) & ~(sizeof(SIZE_T) - 1))
#define WSA_CMSGDATA_ALIGN(length) WSA_CMSGHDR_ALIGN(length)
#define WSA_CMSG_SPACE(length) (WSA_CMSGDATA_ALIGN(sizeof(WSACMSGHDR) + WSA_CMSGHDR_ALIGN(length)))
#define WSA_CMSG_LEN(length) (WSA_CMSGDATA_ALIGN(sizeof(WSACMSGHDR)) + (length))
#define WSA_CMSG_DATA(header) ((UCHAR *)(header) + WSA_CMSGDATA_ALIGN(sizeof(WSACMSGHDR)))
#define WSA_CMSG_FIRSTHDR(message) cp_first_control(message)
#define WSA_CMSG_NXTHDR(message, header) cp_next_control((message), (header))

/* Returns the header there, if it lies entirely within the control data. */
CP_INLINE LPWSACMSGHDR cp_control_at(const WSAMSG *message, size_t offset) {
    if (!message->Control.buf || offset > message->Control.len ||
        message->Control.len - offset < sizeof(WSACMSGHDR))
        return NULL;
    return (LPWSACMSGHDR)(void *)(message->Control.buf + offset);
}

CP_INLINE LPWSACMSGHDR cp_first_control(const WSAMSG *message) {
    return cp_control_at(message, 0);
}

CP_INLINE LPWSACMSGHDR cp_next_control(const WSAMSG *message, const WSACMSGHDR *header) {
    size_t at, size;
    if (!header)
        return cp_first_control(message);
    at = (size_t)((const char *)header - message->Control.buf);
    size = (size_t)header->cmsg_len;
    if (size < sizeof(WSACMSGHDR) || size > message->Control.len)
        return NULL;
    return cp_control_at(message, at + WSA_CMSGHDR_ALIGN(size));
}

typedef struct in_pktinfo IN_PKTINFO, *PIN_PKTINFO;

/* glibc declares the struct only with _GNU_SOURCE. Without it, the name is left to the kernel's headers. */
#if defined __GLIBC__ && !defined __USE_GNU
typedef struct cp_in6_pktinfo {
    struct in6_addr ipi6_addr;
    unsigned ipi6_ifindex;
} IN6_PKTINFO, *PIN6_PKTINFO;
#else
typedef struct in6_pktinfo IN6_PKTINFO, *PIN6_PKTINFO;
#endif

typedef INT(WSAAPI *LPFN_WSARECVMSG)(SOCKET s, LPWSAMSG lpMsg, LPDWORD lpdwNumberOfBytesRecvd,
                                     LPWSAOVERLAPPED lpOverlapped,
                                     LPWSAOVERLAPPED_COMPLETION_ROUTINE lpCompletionRoutine);
typedef INT(WSAAPI *LPFN_WSASENDMSG)(SOCKET s, LPWSAMSG lpMsg, DWORD dwFlags, LPDWORD lpNumberOfBytesSent,
                                     LPWSAOVERLAPPED lpOverlapped,
                                     LPWSAOVERLAPPED_COMPLETION_ROUTINE lpCompletionRoutine);

/* The reference provides WSARecvMsg only by its GUID: programs use its name for a variable. */
CP_INLINE int WSAAPI WSASendMsg(SOCKET Handle, LPWSAMSG lpMsg, DWORD dwFlags, LPDWORD lpNumberOfBytesSent,
                                LPWSAOVERLAPPED lpOverlapped,
                                LPWSAOVERLAPPED_COMPLETION_ROUTINE lpCompletionRoutine) {
    return cp_send_message(Handle, lpMsg, dwFlags, lpNumberOfBytesSent, lpOverlapped,
                           lpCompletionRoutine ? "" : NULL);
}

#endif
