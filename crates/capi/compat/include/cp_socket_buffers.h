/*
 * cp_socket_buffers.h: WSASend, WSARecv, WSASendTo and WSARecvFrom. Included by <winsock2.h>.
 *
 * Without an OVERLAPPED they return when they are finished, like recv and send. With one they start
 * an operation.
 *
 * There are no APCs: a completion routine is refused with WSAEOPNOTSUPP, and nothing is started.
 * See PORTING.md.
 */
/* Before the guard: a program may include this header first, and <winsock2.h> has it in its place. */
#include <winsock2.h>
#ifndef CP_SOCKET_BUFFERS_H
#define CP_SOCKET_BUFFERS_H

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
    socklen_t room;
    int done;
    if ((uintptr_t)size < 65536) /* NULL, or not a pointer */
        size = NULL;
    room = size && *size > 0 ? (socklen_t)*size : 0;
    done = cp_receive_buffers(cp_descriptor(s), (const cp_buffer *)(const void *)buffers, count, received,
                                  flags, from, size ? &room : NULL);
    /* Also of a datagram that was cut, which is a failure. */
    if (size && from && *size > 0)
        *size = (int)room;
    return done;
}

CP_INLINE int WSAAPI WSASendTo(SOCKET s, LPWSABUF lpBuffers, DWORD dwBufferCount, LPDWORD lpNumberOfBytesSent,
                               DWORD dwFlags, const struct sockaddr *lpTo, int iTolen, LPWSAOVERLAPPED lpOverlapped,
                               LPWSAOVERLAPPED_COMPLETION_ROUTINE lpCompletionRoutine) {
    if (!lpOverlapped)
        return cp_wsa_send(s, lpBuffers, dwBufferCount, lpNumberOfBytesSent, dwFlags, lpTo, iTolen);
    if (lpCompletionRoutine)
        return cp_wsa_fails(WSAEOPNOTSUPP);
    return cp_start_send(cp_descriptor(s), (const cp_buffer *)(const void *)lpBuffers, dwBufferCount,
                         lpNumberOfBytesSent, dwFlags, lpTo, iTolen, lpOverlapped);
}

CP_INLINE int WSAAPI WSASend(SOCKET s, LPWSABUF lpBuffers, DWORD dwBufferCount, LPDWORD lpNumberOfBytesSent,
                             DWORD dwFlags, LPWSAOVERLAPPED lpOverlapped,
                             LPWSAOVERLAPPED_COMPLETION_ROUTINE lpCompletionRoutine) {
    return WSASendTo(s, lpBuffers, dwBufferCount, lpNumberOfBytesSent, dwFlags, NULL, 0, lpOverlapped,
                     lpCompletionRoutine);
}

CP_INLINE int WSAAPI WSARecvFrom(SOCKET s, LPWSABUF lpBuffers, DWORD dwBufferCount, LPDWORD lpNumberOfBytesRecvd,
                                 LPDWORD lpFlags, struct sockaddr *lpFrom, LPINT lpFromlen,
                                 LPWSAOVERLAPPED lpOverlapped,
                                 LPWSAOVERLAPPED_COMPLETION_ROUTINE lpCompletionRoutine) {
    if (!lpOverlapped)
        return cp_wsa_receive(s, lpBuffers, dwBufferCount, lpNumberOfBytesRecvd, lpFlags, lpFrom, lpFromlen);
    if (lpCompletionRoutine)
        return cp_wsa_fails(WSAEOPNOTSUPP);
    return cp_start_receive(cp_descriptor(s), (const cp_buffer *)(const void *)lpBuffers, dwBufferCount,
                            lpNumberOfBytesRecvd, lpFlags, lpFrom, lpFromlen, lpOverlapped);
}

CP_INLINE int WSAAPI WSARecv(SOCKET s, LPWSABUF lpBuffers, DWORD dwBufferCount, LPDWORD lpNumberOfBytesRecvd,
                             LPDWORD lpFlags, LPWSAOVERLAPPED lpOverlapped,
                             LPWSAOVERLAPPED_COMPLETION_ROUTINE lpCompletionRoutine) {
    return WSARecvFrom(s, lpBuffers, dwBufferCount, lpNumberOfBytesRecvd, lpFlags, NULL, NULL, lpOverlapped,
                       lpCompletionRoutine);
}

CP_INLINE BOOL WSAAPI WSAGetOverlappedResult(SOCKET s, LPWSAOVERLAPPED lpOverlapped, LPDWORD lpcbTransfer,
                                             BOOL fWait, LPDWORD lpdwFlags) {
    return cp_overlapped_result(cp_descriptor(s), lpOverlapped, lpcbTransfer, lpdwFlags, fWait ? INFINITE : 0,
                                CP_IN_WINSOCK);
}

#endif
