/*
 * mswsock.h: the reference's extension functions. They are overlapped, and so not available yet: the compiler
 * says it where one is called.
 */
#ifndef CP_MSWSOCK_H
#define CP_MSWSOCK_H

#include <winsock2.h>

/* By these the reference hands them out. */
#define WSAID_ACCEPTEX {0xb5367df1, 0xcbac, 0x11cf, {0x95, 0xca, 0x00, 0x80, 0x5f, 0x48, 0xa1, 0x92}}
#define WSAID_GETACCEPTEXSOCKADDRS \
    {0xb5367df2, 0xcbac, 0x11cf, {0x95, 0xca, 0x00, 0x80, 0x5f, 0x48, 0xa1, 0x92}}
#define WSAID_CONNECTEX {0x25a207b9, 0xddf3, 0x4660, {0x8e, 0xe9, 0x76, 0xe5, 0x8c, 0x74, 0x06, 0x3e}}
#define WSAID_DISCONNECTEX \
    {0x7fda2e11, 0x8630, 0x436f, {0xa0, 0x31, 0xf5, 0x36, 0xa6, 0xee, 0xc1, 0x57}}

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

#define TF_DISCONNECT 0x01
#define TF_REUSE_SOCKET 0x02
#define SIO_GET_MULTIPLE_EXTENSION_FUNCTION_POINTER cp_extension_function()

/* Registered I/O: its functions are got by the ioctl above. */
typedef struct RIO_BUFFERID_t *RIO_BUFFERID;
typedef struct RIO_CQ_t *RIO_CQ;
typedef struct RIO_RQ_t *RIO_RQ;

#ifdef __cplusplus
extern "C" {
#endif
CP_NOT_YET extern BOOL AcceptEx(SOCKET sListenSocket, SOCKET sAcceptSocket, PVOID lpOutputBuffer,
                                DWORD dwReceiveDataLength, DWORD dwLocalAddressLength,
                                DWORD dwRemoteAddressLength, LPDWORD lpdwBytesReceived,
                                LPOVERLAPPED lpOverlapped);
CP_NOT_YET extern VOID GetAcceptExSockaddrs(PVOID lpOutputBuffer, DWORD dwReceiveDataLength,
                                            DWORD dwLocalAddressLength, DWORD dwRemoteAddressLength,
                                            struct sockaddr **LocalSockaddr, LPINT LocalSockaddrLength,
                                            struct sockaddr **RemoteSockaddr, LPINT RemoteSockaddrLength);
CP_NOT_YET extern BOOL ConnectEx(SOCKET s, const struct sockaddr *name, int namelen, PVOID lpSendBuffer,
                                 DWORD dwSendDataLength, LPDWORD lpdwBytesSent, LPOVERLAPPED lpOverlapped);
CP_NOT_YET extern BOOL DisconnectEx(SOCKET s, LPOVERLAPPED lpOverlapped, DWORD dwFlags, DWORD dwReserved);
CP_NOT_YET extern BOOL TransmitFile(SOCKET hSocket, HANDLE hFile, DWORD nNumberOfBytesToWrite,
                                    DWORD nNumberOfBytesPerSend, LPOVERLAPPED lpOverlapped,
                                    LPTRANSMIT_FILE_BUFFERS lpTransmitBuffers, DWORD dwReserved);
#ifdef __cplusplus
}
#endif

#endif
