/*
 * cp_socket_buffers.h: WSASend, WSARecv, WSASendTo and WSARecvFrom in their plain form. Included by <winsock2.h>.
 *
 * With an OVERLAPPED they are not available yet: the compiler says so where it can tell, else the call fails. See
 * `cp_overlapped_argument`.
 */
#ifndef CP_SOCKET_BUFFERS_H
#define CP_SOCKET_BUFFERS_H

#include <winsock2.h>

#ifndef MSG_PARTIAL
#define MSG_PARTIAL CP_PARTIAL
#endif
#define MSG_PUSH_IMMEDIATE 0x20000000

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
    /* Also of a datagram that was cut, which is a failure. */
    if (size && from && *size > 0)
        *size = (int)room;
    return done;
}

CP_INLINE int WSAAPI WSASend(SOCKET s, LPWSABUF lpBuffers, DWORD dwBufferCount, LPDWORD lpNumberOfBytesSent,
                             DWORD dwFlags, cp_overlapped_argument lpOverlapped,
                             LPWSAOVERLAPPED_COMPLETION_ROUTINE lpCompletionRoutine) {
    (void)lpCompletionRoutine;
    return lpOverlapped ? cp_wsa_fails(WSAEOPNOTSUPP)
                        : cp_wsa_send(s, lpBuffers, dwBufferCount, lpNumberOfBytesSent, dwFlags, NULL, 0);
}

CP_INLINE int WSAAPI WSASendTo(SOCKET s, LPWSABUF lpBuffers, DWORD dwBufferCount, LPDWORD lpNumberOfBytesSent,
                               DWORD dwFlags, const struct sockaddr *lpTo, int iTolen,
                               cp_overlapped_argument lpOverlapped,
                               LPWSAOVERLAPPED_COMPLETION_ROUTINE lpCompletionRoutine) {
    (void)lpCompletionRoutine;
    return lpOverlapped ? cp_wsa_fails(WSAEOPNOTSUPP)
                        : cp_wsa_send(s, lpBuffers, dwBufferCount, lpNumberOfBytesSent, dwFlags, lpTo, iTolen);
}

CP_INLINE int WSAAPI WSARecv(SOCKET s, LPWSABUF lpBuffers, DWORD dwBufferCount, LPDWORD lpNumberOfBytesRecvd,
                             LPDWORD lpFlags, cp_overlapped_argument lpOverlapped,
                             LPWSAOVERLAPPED_COMPLETION_ROUTINE lpCompletionRoutine) {
    (void)lpCompletionRoutine;
    return lpOverlapped ? cp_wsa_fails(WSAEOPNOTSUPP)
                        : cp_wsa_receive(s, lpBuffers, dwBufferCount, lpNumberOfBytesRecvd, lpFlags, NULL, NULL);
}

CP_INLINE int WSAAPI WSARecvFrom(SOCKET s, LPWSABUF lpBuffers, DWORD dwBufferCount, LPDWORD lpNumberOfBytesRecvd,
                                 LPDWORD lpFlags, struct sockaddr *lpFrom, LPINT lpFromlen,
                                 cp_overlapped_argument lpOverlapped,
                                 LPWSAOVERLAPPED_COMPLETION_ROUTINE lpCompletionRoutine) {
    (void)lpCompletionRoutine;
    return lpOverlapped ? cp_wsa_fails(WSAEOPNOTSUPP)
                        : cp_wsa_receive(s, lpBuffers, dwBufferCount, lpNumberOfBytesRecvd, lpFlags, lpFrom,
                                         lpFromlen);
}

#ifndef __cplusplus
/* As for `ioctlsocket`, the call's own name comes out, so that members of these names can be called. */
#define WSASend(s, lpBuffers, dwBufferCount, lpSent, dwFlags, lpOverlapped, lpRoutine)               \
    WSASend(s, lpBuffers, dwBufferCount, lpSent, dwFlags,                                            \
            CP_UNLESS_ADDRESS(lpOverlapped, cp_overlapped), lpRoutine)
#define WSASendTo(s, lpBuffers, dwBufferCount, lpSent, dwFlags, lpTo, iTolen, lpOverlapped, lpRoutine) \
    WSASendTo(s, lpBuffers, dwBufferCount, lpSent, dwFlags, lpTo, iTolen,                            \
              CP_UNLESS_ADDRESS(lpOverlapped, cp_overlapped), lpRoutine)
#define WSARecv(s, lpBuffers, dwBufferCount, lpRecvd, lpFlags, lpOverlapped, lpRoutine)              \
    WSARecv(s, lpBuffers, dwBufferCount, lpRecvd, lpFlags,                                           \
            CP_UNLESS_ADDRESS(lpOverlapped, cp_overlapped), lpRoutine)
#define WSARecvFrom(s, lpBuffers, dwBufferCount, lpRecvd, lpFlags, lpFrom, lpFromlen, lpOverlapped, lpRoutine) \
    WSARecvFrom(s, lpBuffers, dwBufferCount, lpRecvd, lpFlags, lpFrom, lpFromlen,                    \
                CP_UNLESS_ADDRESS(lpOverlapped, cp_overlapped), lpRoutine)
#endif

#endif
