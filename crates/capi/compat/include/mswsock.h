/*
 * mswsock.h: the types of the reference's extension functions. The functions themselves are not there
 * yet; GetProcAddress does not find them, and this header declares none.
 */
#ifndef CP_MSWSOCK_H
#define CP_MSWSOCK_H

#include <winsock2.h>

/* By these the reference hands out its extension functions. */
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

#endif
