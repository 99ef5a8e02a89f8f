/*
 * cp_socket_buffers.h: WSASend, WSARecv, WSASendTo and WSARecvFrom in their plain form. Included by <winsock2.h>.
 *
 * With an OVERLAPPED they are not available yet, which the compiler says; in C a variable counts as one, whatever
 * it holds.
 */
#ifndef CP_SOCKET_BUFFERS_H
#define CP_SOCKET_BUFFERS_H

#include <winsock2.h>

#ifndef MSG_PARTIAL
#define MSG_PARTIAL CP_PARTIAL
#endif
#define MSG_PUSH_IMMEDIATE 0x20000000

CP_INLINE int cp_wsa_overlapped(void) {
    cp_set_last_error(WSAEOPNOTSUPP);
    return SOCKET_ERROR;
}

CP_INLINE int cp_wsa_send(SOCKET s, const WSABUF *buffers, DWORD count, DWORD *sent, DWORD flags,
                          const struct sockaddr *to, int size) {
    return cp_send_buffers(cp_descriptor(s), (const cp_buffer *)(const void *)buffers, count, sent, flags, to,
                           to ? (socklen_t)size : 0);
}

CP_INLINE int cp_wsa_receive(SOCKET s, const WSABUF *buffers, DWORD count, DWORD *received, DWORD *flags,
                             struct sockaddr *from, int *size) {
    socklen_t room = size && *size > 0 ? (socklen_t)*size : 0;
    int done = cp_receive_buffers(cp_descriptor(s), (const cp_buffer *)(const void *)buffers, count, received,
                                  flags, from, size ? &room : NULL);
    if (size && from && done == 0)
        *size = (int)room;
    return done;
}

#ifdef __cplusplus

inline int WSAAPI WSASend(SOCKET s, LPWSABUF lpBuffers, DWORD dwBufferCount, LPDWORD lpNumberOfBytesSent,
                          DWORD dwFlags, cp_nothing *, LPWSAOVERLAPPED_COMPLETION_ROUTINE) {
    return cp_wsa_send(s, lpBuffers, dwBufferCount, lpNumberOfBytesSent, dwFlags, NULL, 0);
}
inline int WSAAPI WSASendTo(SOCKET s, LPWSABUF lpBuffers, DWORD dwBufferCount, LPDWORD lpNumberOfBytesSent,
                            DWORD dwFlags, const struct sockaddr *lpTo, int iTolen, cp_nothing *,
                            LPWSAOVERLAPPED_COMPLETION_ROUTINE) {
    return cp_wsa_send(s, lpBuffers, dwBufferCount, lpNumberOfBytesSent, dwFlags, lpTo, iTolen);
}
inline int WSAAPI WSARecv(SOCKET s, LPWSABUF lpBuffers, DWORD dwBufferCount, LPDWORD lpNumberOfBytesRecvd,
                          LPDWORD lpFlags, cp_nothing *, LPWSAOVERLAPPED_COMPLETION_ROUTINE) {
    return cp_wsa_receive(s, lpBuffers, dwBufferCount, lpNumberOfBytesRecvd, lpFlags, NULL, NULL);
}
inline int WSAAPI WSARecvFrom(SOCKET s, LPWSABUF lpBuffers, DWORD dwBufferCount, LPDWORD lpNumberOfBytesRecvd,
                              LPDWORD lpFlags, struct sockaddr *lpFrom, LPINT lpFromlen, cp_nothing *,
                              LPWSAOVERLAPPED_COMPLETION_ROUTINE) {
    return cp_wsa_receive(s, lpBuffers, dwBufferCount, lpNumberOfBytesRecvd, lpFlags, lpFrom, lpFromlen);
}

/* With an OVERLAPPED, or a struct that begins with one. */
template <class Overlapped>
CP_NOT_YET int WSASend(SOCKET, LPWSABUF, DWORD, LPDWORD, DWORD, Overlapped *,
                       LPWSAOVERLAPPED_COMPLETION_ROUTINE);
template <class Overlapped>
CP_NOT_YET int WSASendTo(SOCKET, LPWSABUF, DWORD, LPDWORD, DWORD, const struct sockaddr *, int, Overlapped *,
                         LPWSAOVERLAPPED_COMPLETION_ROUTINE);
template <class Overlapped>
CP_NOT_YET int WSARecv(SOCKET, LPWSABUF, DWORD, LPDWORD, LPDWORD, Overlapped *,
                       LPWSAOVERLAPPED_COMPLETION_ROUTINE);
template <class Overlapped>
CP_NOT_YET int WSARecvFrom(SOCKET, LPWSABUF, DWORD, LPDWORD, LPDWORD, struct sockaddr *, LPINT, Overlapped *,
                           LPWSAOVERLAPPED_COMPLETION_ROUTINE);

#else

CP_NOT_YET extern LPWSAOVERLAPPED cp_wsa_overlapped_argument(const void *);

CP_INLINE int WSAAPI WSASend(SOCKET s, LPWSABUF lpBuffers, DWORD dwBufferCount, LPDWORD lpNumberOfBytesSent,
                             DWORD dwFlags, LPWSAOVERLAPPED lpOverlapped,
                             LPWSAOVERLAPPED_COMPLETION_ROUTINE lpCompletionRoutine) {
    (void)lpCompletionRoutine;
    return lpOverlapped ? cp_wsa_overlapped()
                        : cp_wsa_send(s, lpBuffers, dwBufferCount, lpNumberOfBytesSent, dwFlags, NULL, 0);
}

CP_INLINE int WSAAPI WSASendTo(SOCKET s, LPWSABUF lpBuffers, DWORD dwBufferCount, LPDWORD lpNumberOfBytesSent,
                               DWORD dwFlags, const struct sockaddr *lpTo, int iTolen,
                               LPWSAOVERLAPPED lpOverlapped,
                               LPWSAOVERLAPPED_COMPLETION_ROUTINE lpCompletionRoutine) {
    (void)lpCompletionRoutine;
    return lpOverlapped ? cp_wsa_overlapped()
                        : cp_wsa_send(s, lpBuffers, dwBufferCount, lpNumberOfBytesSent, dwFlags, lpTo, iTolen);
}

CP_INLINE int WSAAPI WSARecv(SOCKET s, LPWSABUF lpBuffers, DWORD dwBufferCount, LPDWORD lpNumberOfBytesRecvd,
                             LPDWORD lpFlags, LPWSAOVERLAPPED lpOverlapped,
                             LPWSAOVERLAPPED_COMPLETION_ROUTINE lpCompletionRoutine) {
    (void)lpCompletionRoutine;
    return lpOverlapped ? cp_wsa_overlapped()
                        : cp_wsa_receive(s, lpBuffers, dwBufferCount, lpNumberOfBytesRecvd, lpFlags, NULL, NULL);
}

CP_INLINE int WSAAPI WSARecvFrom(SOCKET s, LPWSABUF lpBuffers, DWORD dwBufferCount, LPDWORD lpNumberOfBytesRecvd,
                                 LPDWORD lpFlags, struct sockaddr *lpFrom, LPINT lpFromlen,
                                 LPWSAOVERLAPPED lpOverlapped,
                                 LPWSAOVERLAPPED_COMPLETION_ROUTINE lpCompletionRoutine) {
    (void)lpCompletionRoutine;
    return lpOverlapped ? cp_wsa_overlapped()
                        : cp_wsa_receive(s, lpBuffers, dwBufferCount, lpNumberOfBytesRecvd, lpFlags, lpFrom,
                                         lpFromlen);
}

/* As for `ioctlsocket`, the call's own name comes out, so that members of these names can be called. */
#define WSASend(s, lpBuffers, dwBufferCount, lpSent, dwFlags, lpOverlapped, lpRoutine)               \
    WSASend(s, lpBuffers, dwBufferCount, lpSent, dwFlags,                                            \
            CP_CONSTANT_OR(lpOverlapped, cp_wsa_overlapped_argument), lpRoutine)
#define WSASendTo(s, lpBuffers, dwBufferCount, lpSent, dwFlags, lpTo, iTolen, lpOverlapped, lpRoutine) \
    WSASendTo(s, lpBuffers, dwBufferCount, lpSent, dwFlags, lpTo, iTolen,                            \
              CP_CONSTANT_OR(lpOverlapped, cp_wsa_overlapped_argument), lpRoutine)
#define WSARecv(s, lpBuffers, dwBufferCount, lpRecvd, lpFlags, lpOverlapped, lpRoutine)              \
    WSARecv(s, lpBuffers, dwBufferCount, lpRecvd, lpFlags,                                           \
            CP_CONSTANT_OR(lpOverlapped, cp_wsa_overlapped_argument), lpRoutine)
#define WSARecvFrom(s, lpBuffers, dwBufferCount, lpRecvd, lpFlags, lpFrom, lpFromlen, lpOverlapped, lpRoutine) \
    WSARecvFrom(s, lpBuffers, dwBufferCount, lpRecvd, lpFlags, lpFrom, lpFromlen,                    \
                CP_CONSTANT_OR(lpOverlapped, cp_wsa_overlapped_argument), lpRoutine)

#endif

#endif
