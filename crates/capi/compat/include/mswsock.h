/*
 * mswsock.h: the reference's extension functions: AcceptEx, ConnectEx, DisconnectEx, TransmitFile,
 * TransmitPackets, and the numbers of WSARecvMsg and WSASendMsg.
 *
 * What differs: an accept temporarily needs a second descriptor. The connection replaces the given
 * socket, so a duplicate of that socket does not become the connection. A socket that was
 * disconnected with TF_REUSE_SOCKET is a new one with the same number: it may be connected without
 * being bound, and is no longer bound.
 */
#ifndef CP_MSWSOCK_H
#define CP_MSWSOCK_H

#include <winsock2.h>

/* By these the reference hands them out. */
#define WSAID_ACCEPTEX {0xb5367df1, 0xcbac, 0x11cf, {0x95, 0xca, 0x00, 0x80, 0x5f, 0x48, 0xa1, 0x92}}
#define WSAID_GETACCEPTEXSOCKADDRS \
    {0xb5367df2, 0xcbac, 0x11cf, {0x95, 0xca, 0x00, 0x80, 0x5f, 0x48, 0xa1, 0x92}}
#define WSAID_CONNECTEX {0x25a207b9, 0xddf3, 0x4660, {0x8e, 0xe9, 0x76, 0xe5, 0x8c, 0x74, 0x06, 0x3e}}
#define WSAID_TRANSMITFILE \
    {0xb5367df0, 0xcbac, 0x11cf, {0x95, 0xca, 0x00, 0x80, 0x5f, 0x48, 0xa1, 0x92}}
#define WSAID_TRANSMITPACKETS \
    {0xd9689da0, 0x1f90, 0x11d3, {0x99, 0x71, 0x00, 0xc0, 0x4f, 0x68, 0xc8, 0x76}}
#define WSAID_DISCONNECTEX \
    {0x7fda2e11, 0x8630, 0x436f, {0xa0, 0x31, 0xf5, 0x36, 0xa6, 0xee, 0xc1, 0x57}}

#define WSAID_WSARECVMSG {0xf689d7c8, 0x6f1f, 0x436b, {0x8a, 0x53, 0xe5, 0x4f, 0xe3, 0x51, 0xc3, 0x22}}
#define WSAID_WSASENDMSG {0xa441e712, 0x754f, 0x43ca, {0x84, 0xa7, 0x0d, 0xee, 0x44, 0xcf, 0x60, 0x6d}}

typedef BOOL(WINAPI *LPFN_ACCEPTEX)(SOCKET sListenSocket, SOCKET sAcceptSocket, PVOID lpOutputBuffer,
                                    DWORD dwReceiveDataLength, DWORD dwLocalAddressLength,
                                    DWORD dwRemoteAddressLength, LPDWORD lpdwBytesReceived,
                                    LPOVERLAPPED lpOverlapped);
typedef VOID(WINAPI *LPFN_GETACCEPTEXSOCKADDRS)(PVOID lpOutputBuffer, DWORD dwReceiveDataLength,
                                                DWORD dwLocalAddressLength,
                                                DWORD dwRemoteAddressLength,
                                                struct sockaddr **LocalSockaddr,
                                                LPINT LocalSockaddrLength,
                                                struct sockaddr **RemoteSockaddr,
                                                LPINT RemoteSockaddrLength);
typedef BOOL(WINAPI *LPFN_CONNECTEX)(SOCKET s, const struct sockaddr *name, int namelen,
                                     PVOID lpSendBuffer, DWORD dwSendDataLength,
                                     LPDWORD lpdwBytesSent, LPOVERLAPPED lpOverlapped);
typedef BOOL(WINAPI *LPFN_DISCONNECTEX)(SOCKET s, LPOVERLAPPED lpOverlapped, DWORD dwFlags,
                                        DWORD dwReserved);

typedef struct _TRANSMIT_FILE_BUFFERS {
    LPVOID Head;
    DWORD HeadLength;
    LPVOID Tail;
    DWORD TailLength;
} TRANSMIT_FILE_BUFFERS, *PTRANSMIT_FILE_BUFFERS, *LPTRANSMIT_FILE_BUFFERS;

typedef struct _TRANSMIT_PACKETS_ELEMENT {
    ULONG dwElFlags;
    ULONG cLength;
    __extension__ union {
        __extension__ struct {
            LARGE_INTEGER nFileOffset;
            HANDLE hFile;
        };
        PVOID pBuffer;
    };
} TRANSMIT_PACKETS_ELEMENT, *PTRANSMIT_PACKETS_ELEMENT, *LPTRANSMIT_PACKETS_ELEMENT;

#define TP_ELEMENT_MEMORY 1
#define TP_ELEMENT_FILE 2
#define TP_ELEMENT_EOP 4

#define TF_DISCONNECT 0x01
#define TF_REUSE_SOCKET 0x02
#define TF_WRITE_BEHIND 0x04
#define TF_USE_DEFAULT_WORKER 0x00
#define TF_USE_SYSTEM_THREAD 0x10
#define TF_USE_KERNEL_APC 0x20

typedef BOOL(WINAPI *LPFN_TRANSMITFILE)(SOCKET hSocket, HANDLE hFile, DWORD nNumberOfBytesToWrite,
                                        DWORD nNumberOfBytesPerSend, LPOVERLAPPED lpOverlapped,
                                        LPTRANSMIT_FILE_BUFFERS lpTransmitBuffers, DWORD dwReserved);
typedef BOOL(WINAPI *LPFN_TRANSMITPACKETS)(SOCKET hSocket, LPTRANSMIT_PACKETS_ELEMENT lpPacketArray,
                                           DWORD nElementCount, DWORD nSendSize, LPOVERLAPPED lpOverlapped,
                                           DWORD dwFlags);

#define SIO_GET_MULTIPLE_EXTENSION_FUNCTION_POINTER cp_registered_io()

/* Registered I/O: its functions are got by the ioctl above. */
typedef struct RIO_BUFFERID_t *RIO_BUFFERID;
typedef struct RIO_CQ_t *RIO_CQ;
typedef struct RIO_RQ_t *RIO_RQ;

#ifdef __cplusplus
extern "C" {
#endif
CP_ABSENT("registered I/O: WSARecv and WSASend") extern DWORD cp_registered_io(void);
#ifdef __cplusplus
}
#endif

CP_INLINE BOOL WINAPI AcceptEx(SOCKET sListenSocket, SOCKET sAcceptSocket, PVOID lpOutputBuffer,
                               DWORD dwReceiveDataLength, DWORD dwLocalAddressLength, DWORD dwRemoteAddressLength,
                               LPDWORD lpdwBytesReceived, LPOVERLAPPED lpOverlapped) {
    return cp_accept_ex(sListenSocket, sAcceptSocket, lpOutputBuffer, dwReceiveDataLength, dwLocalAddressLength,
                        dwRemoteAddressLength, lpdwBytesReceived, lpOverlapped);
}

CP_INLINE VOID WINAPI GetAcceptExSockaddrs(PVOID lpOutputBuffer, DWORD dwReceiveDataLength,
                                           DWORD dwLocalAddressLength, DWORD dwRemoteAddressLength,
                                           struct sockaddr **LocalSockaddr, LPINT LocalSockaddrLength,
                                           struct sockaddr **RemoteSockaddr, LPINT RemoteSockaddrLength) {
    cp_accepted_addresses(lpOutputBuffer, dwReceiveDataLength, dwLocalAddressLength, dwRemoteAddressLength,
                          LocalSockaddr, LocalSockaddrLength, RemoteSockaddr, RemoteSockaddrLength);
}

/* The reference has this one by its GUID only. */
CP_INLINE BOOL WINAPI ConnectEx(SOCKET s, const struct sockaddr *name, int namelen, PVOID lpSendBuffer,
                                DWORD dwSendDataLength, LPDWORD lpdwBytesSent, LPOVERLAPPED lpOverlapped) {
    return cp_connect_ex(s, name, namelen, lpSendBuffer, dwSendDataLength, lpdwBytesSent, lpOverlapped);
}

CP_INLINE BOOL WINAPI DisconnectEx(SOCKET s, LPOVERLAPPED lpOverlapped, DWORD dwFlags, DWORD dwReserved) {
    return cp_disconnect_ex(s, lpOverlapped, dwFlags, dwReserved);
}

/* How many bytes go by each send is the system's affair. */
CP_INLINE BOOL WINAPI TransmitFile(SOCKET hSocket, HANDLE hFile, DWORD nNumberOfBytesToWrite,
                                   DWORD nNumberOfBytesPerSend, LPOVERLAPPED lpOverlapped,
                                   LPTRANSMIT_FILE_BUFFERS lpTransmitBuffers, DWORD dwReserved) {
    return cp_transmit_file(hSocket, hFile, nNumberOfBytesToWrite, nNumberOfBytesPerSend, lpOverlapped,
                            lpTransmitBuffers, dwReserved);
}

/* The reference has this one by its GUID only. */
CP_INLINE BOOL WINAPI TransmitPackets(SOCKET hSocket, LPTRANSMIT_PACKETS_ELEMENT lpPacketArray, DWORD nElementCount,
                                      DWORD nSendSize, LPOVERLAPPED lpOverlapped, DWORD dwFlags) {
    return cp_transmit_packets(hSocket, lpPacketArray, nElementCount, nSendSize, lpOverlapped, dwFlags);
}

/* The reference's module exports these three. It provides the others only by their GUIDs. */
CP_EXPORTS_BEGIN(mswsock)
    CP_EXPORT("mswsock", AcceptEx),
    CP_EXPORT("mswsock", GetAcceptExSockaddrs),
    CP_EXPORT("mswsock", TransmitFile),
CP_EXPORTS_END

#endif
