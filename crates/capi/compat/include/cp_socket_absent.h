/* cp_socket_absent.h: Winsock's functions that are not here. See <cp_absent.h>. Included by <winsock2.h>. */
/* Before the guard: a program may include this header first, and <winsock2.h> has it in its place. */
#include <winsock2.h>
#ifndef CP_SOCKET_ABSENT_H
#define CP_SOCKET_ABSENT_H

#define FD_READ 0x01
#define FD_WRITE 0x02
#define FD_OOB 0x04
#define FD_ACCEPT 0x08
#define FD_CONNECT 0x10
#define FD_CLOSE 0x20
#define FD_READ_BIT 0
#define FD_WRITE_BIT 1
#define FD_OOB_BIT 2
#define FD_ACCEPT_BIT 3
#define FD_CONNECT_BIT 4
#define FD_CLOSE_BIT 5
#define FD_MAX_EVENTS 10

typedef struct _WSANETWORKEVENTS {
    long lNetworkEvents;
    int iErrorCode[FD_MAX_EVENTS];
} WSANETWORKEVENTS, *LPWSANETWORKEVENTS;

#ifdef __cplusplus
extern "C" {
#endif

CP_ABSENT("events of sockets: register the socket with a port")
extern int WSAAPI WSAEventSelect(SOCKET s, WSAEVENT hEventObject, long lNetworkEvents);
CP_ABSENT("events of sockets: register the socket with a port")
extern int WSAAPI WSAEnumNetworkEvents(SOCKET s, WSAEVENT hEventObject, LPWSANETWORKEVENTS lpNetworkEvents);
CP_ABSENT("windows and their messages: register the socket with a port")
extern int WSAAPI WSAAsyncSelect(SOCKET s, HANDLE hWnd, u_int wMsg, long lEvent);
CP_ABSENT("getaddrinfo, then connect")
extern BOOL WSAAPI WSAConnectByNameA(SOCKET s, LPCSTR nodename, LPCSTR servicename, LPDWORD LocalAddressLength,
                                     LPSOCKADDR LocalAddress, LPDWORD RemoteAddressLength,
                                     LPSOCKADDR RemoteAddress, const struct timeval *timeout,
                                     LPWSAOVERLAPPED Reserved);
CP_ABSENT("getaddrinfo, then connect")
extern BOOL WSAAPI WSAConnectByNameW(SOCKET s, LPWSTR nodename, LPWSTR servicename, LPDWORD LocalAddressLength,
                                     LPSOCKADDR LocalAddress, LPDWORD RemoteAddressLength,
                                     LPSOCKADDR RemoteAddress, const struct timeval *timeout,
                                     LPWSAOVERLAPPED Reserved);
CP_ABSENT("shutdown, which says as much")
extern int WSAAPI WSASendDisconnect(SOCKET s, LPWSABUF lpOutboundDisconnectData);
CP_ABSENT("shutdown, which says as much")
extern int WSAAPI WSARecvDisconnect(SOCKET s, LPWSABUF lpInboundDisconnectData);

#ifdef __cplusplus
}
#endif

#if defined UNICODE || defined _UNICODE
#define WSAConnectByName WSAConnectByNameW
#define WSADuplicateSocket WSADuplicateSocketW
#else
#define WSAConnectByName WSAConnectByNameA
#define WSADuplicateSocket WSADuplicateSocketA
#endif

#endif
