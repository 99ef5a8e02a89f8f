/* cp_socket_accept.h: WSAAccept, WSAConnect, and events by Winsock's names. Included by <winsock2.h>. */
/* Before the guard: a program may include this header first, and <winsock2.h> has it in its place. */
#include <winsock2.h>
#ifndef CP_SOCKET_ACCEPT_H
#define CP_SOCKET_ACCEPT_H

/* ---- Connections ---------------------------------------------------------------------------------- */

#define CF_ACCEPT 0x0000
#define CF_REJECT 0x0001
#define CF_DEFER 0x0002

/* Quality of service: always NULL. */
typedef struct _QUALITYOFSERVICE QOS, *LPQOS;

typedef int(CALLBACK *LPCONDITIONPROC)(LPWSABUF lpCallerId, LPWSABUF lpCallerData, LPQOS lpSQOS, LPQOS lpGQOS,
                                       LPWSABUF lpCalleeId, LPWSABUF lpCalleeData, GROUP *g,
                                       DWORD_PTR dwCallbackData);

/* Closes a connection so that the peer sees it refused: reset. */
CP_INLINE void cp_reject(int connection) {
    struct linger at_once;
    at_once.l_onoff = 1;
    at_once.l_linger = 0;
    cp_setsockopt(connection, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
    cp_close_socket(connection);
}

/* The condition is asked about a connection that the system has accepted, as it is there unless
 * SO_CONDITIONAL_ACCEPT is set: the peer that is rejected is connected first, then reset. The decision cannot be
 * put off: CF_DEFER rejects the connection and fails with WSAEOPNOTSUPP. */
CP_INLINE SOCKET WSAAPI WSAAccept(SOCKET s, struct sockaddr *addr, LPINT addrlen, LPCONDITIONPROC lpfnCondition,
                                  DWORD_PTR dwCallbackData) {
    struct sockaddr_storage peer, own;
    socklen_t peer_size = sizeof peer, own_size = sizeof own;
    int connection;
    /* Checked before there is a connection that could be lost. */
    if (addr && cp_getsockname(cp_descriptor(s), (struct sockaddr *)(void *)&own, &own_size) == 0 &&
        (!cp_is_memory((uintptr_t)addr, sizeof *addr) || !cp_is_memory((uintptr_t)addrlen, sizeof *addrlen) || *addrlen < (INT)(own.ss_family == AF_UNIX ? sizeof own.ss_family : own_size))) {
        cp_set_last_error(WSAEFAULT);
        return INVALID_SOCKET;
    }
    own_size = sizeof own;
    connection = cp_accept(cp_descriptor(s), (struct sockaddr *)(void *)&peer, &peer_size);
    if (connection < 0)
        return INVALID_SOCKET;
    if (lpfnCondition) {
        WSABUF caller, callee;
        GROUP group = 0;
        int answer;
        if (cp_getsockname(connection, (struct sockaddr *)(void *)&own, &own_size) != 0)
            own_size = 0;
        caller.len = (ULONG)peer_size;
        caller.buf = (CHAR *)&peer;
        callee.len = (ULONG)own_size;
        callee.buf = (CHAR *)&own;
        answer = lpfnCondition(&caller, NULL, NULL, NULL, &callee, NULL, &group, dwCallbackData);
        if (answer != CF_ACCEPT) {
            cp_reject(connection);
            cp_set_last_error(answer == CF_REJECT ? WSAECONNREFUSED : WSAEOPNOTSUPP);
            return INVALID_SOCKET;
        }
    }
    if (addr && addrlen) {
        size_t room = *addrlen < 0 ? 0 : (size_t)*addrlen;
        memcpy(addr, &peer, room < peer_size ? room : peer_size);
        *addrlen = (INT)peer_size;
    }
    return (SOCKET)connection;
}

/* What a connect could bring along it does not, with TCP as there. */
CP_INLINE int WSAAPI WSAConnect(SOCKET s, const struct sockaddr *name, int namelen, LPWSABUF lpCallerData,
                                LPWSABUF lpCalleeData, LPQOS lpSQOS, LPQOS lpGQOS) {
    (void)lpCallerData;
    (void)lpSQOS;
    (void)lpGQOS;
    if (lpCalleeData && !cp_is_memory((uintptr_t)lpCalleeData, sizeof *lpCalleeData))
        return cp_wsa_fails(WSAEFAULT);
    if (lpCalleeData)
        lpCalleeData->len = 0;
    return cp_connect(cp_descriptor(s), name, (socklen_t)namelen);
}

/* ---- Byte order ------------------------------------------------------------------------------------- */

CP_INLINE uint64_t htonll(uint64_t value) {
    return (uint64_t)htonl((uint32_t)value) << 32 | htonl((uint32_t)(value >> 32));
}

CP_INLINE uint64_t ntohll(uint64_t value) {
    return htonll(value);
}

/* ---- Events ----------------------------------------------------------------------------------------- */

#ifndef CP_NO_WIN32

#define WSA_WAIT_FAILED WAIT_FAILED
#define WSA_WAIT_EVENT_0 WAIT_OBJECT_0
#define WSA_WAIT_IO_COMPLETION WAIT_IO_COMPLETION
#define WSA_MAXIMUM_WAIT_EVENTS MAXIMUM_WAIT_OBJECTS
#define WSA_INVALID_EVENT ((WSAEVENT)NULL)

CP_INLINE WSAEVENT WSAAPI WSACreateEvent(void) {
    return CreateEventA(NULL, TRUE, FALSE, NULL);
}

CP_INLINE BOOL WSAAPI WSASetEvent(WSAEVENT hEvent) {
    return SetEvent(hEvent);
}

CP_INLINE BOOL WSAAPI WSAResetEvent(WSAEVENT hEvent) {
    return ResetEvent(hEvent);
}

CP_INLINE BOOL WSAAPI WSACloseEvent(WSAEVENT hEvent) {
    return CloseHandle(hEvent);
}

CP_INLINE DWORD WSAAPI WSAWaitForMultipleEvents(DWORD cEvents, const WSAEVENT *lphEvents, BOOL fWaitAll,
                                                DWORD dwTimeout, BOOL fAlertable) {
    return WaitForMultipleObjectsEx(cEvents, lphEvents, fWaitAll, dwTimeout, fAlertable);
}

#endif

#endif
