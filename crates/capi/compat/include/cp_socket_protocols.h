/*
 * cp_socket_protocols.h: which protocols there are, and sockets made by their descriptions. Included by <winsock2.h>.
 *
 * What programs want to know by it is whether a socket's handle is one of the system's own, so that
 * FILE_SKIP_COMPLETION_PORT_ON_SUCCESS may be set: that is always so here.
 */
/* Before the guard: a program may include this header first, and <winsock2.h> has it in its place. */
#include <winsock2.h>
#ifndef CP_SOCKET_PROTOCOLS_H
#define CP_SOCKET_PROTOCOLS_H

#include <stddef.h>
#include <string.h>
#include <unistd.h>


#define MAX_PROTOCOL_CHAIN 7
#define BASE_PROTOCOL 1
#define LAYERED_PROTOCOL 0
#define WSAPROTOCOL_LEN 255
#define BIGENDIAN 0x0000
#define LITTLEENDIAN 0x0001
#define SECURITY_PROTOCOL_NONE 0x0000
#define FROM_PROTOCOL_INFO (-1)

#define XP1_CONNECTIONLESS 0x00000001
#define XP1_GUARANTEED_DELIVERY 0x00000002
#define XP1_GUARANTEED_ORDER 0x00000004
#define XP1_MESSAGE_ORIENTED 0x00000008
#define XP1_PSEUDO_STREAM 0x00000010
#define XP1_GRACEFUL_CLOSE 0x00000020
#define XP1_EXPEDITED_DATA 0x00000040
#define XP1_SUPPORT_BROADCAST 0x00000200
#define XP1_SUPPORT_MULTIPOINT 0x00000400
#define XP1_IFS_HANDLES 0x00020000
#define XP1_PARTIAL_MESSAGE 0x00040000
#define PFL_MATCHES_PROTOCOL_ZERO 0x00000008

typedef struct _WSAPROTOCOLCHAIN {
    int ChainLen;
    DWORD ChainEntries[MAX_PROTOCOL_CHAIN];
} WSAPROTOCOLCHAIN, *LPWSAPROTOCOLCHAIN;

#define CP_PROTOCOL_INFO(character) \
    { \
        DWORD dwServiceFlags1; \
        DWORD dwServiceFlags2; \
        DWORD dwServiceFlags3; \
        DWORD dwServiceFlags4; \
        DWORD dwProviderFlags; \
        GUID ProviderId; \
        DWORD dwCatalogEntryId; \
        WSAPROTOCOLCHAIN ProtocolChain; \
        int iVersion; \
        int iAddressFamily; \
        int iMaxSockAddr; \
        int iMinSockAddr; \
        int iSocketType; \
        int iProtocol; \
        int iProtocolMaxOffset; \
        int iNetworkByteOrder; \
        int iSecurityScheme; \
        DWORD dwMessageSize; \
        DWORD dwProviderReserved; \
        character szProtocol[WSAPROTOCOL_LEN + 1]; \
    }
struct _WSAPROTOCOL_INFOA CP_PROTOCOL_INFO(CHAR);
struct _WSAPROTOCOL_INFOW CP_PROTOCOL_INFO(WCHAR);

/* Describes the requested protocol with index `place`, if there are that many. */
CP_INLINE BOOL cp_protocol(const INT *wanted, int place, WSAPROTOCOL_INFOA *info) {
    int at, protocol;
    for (at = 0; (protocol = cp_known_protocol(at, info)) != 0; at++) {
        BOOL is_wanted = !wanted;
        int number;
        for (number = 0; wanted && wanted[number]; number++)
            is_wanted = is_wanted || wanted[number] == protocol;
        if (is_wanted && place-- == 0)
            return TRUE;
    }
    return FALSE;
}

/* How many are wanted; refused if there is not room for all. */
CP_INLINE int cp_protocols(const INT *wanted, const void *place, LPDWORD room, size_t each) {
    WSAPROTOCOL_INFOA info;
    DWORD needed;
    int count = 0;
    if (!cp_is_memory((uintptr_t)room, sizeof *room) || (wanted && !cp_is_memory((uintptr_t)wanted, sizeof *wanted)))
        return cp_wsa_fails(WSAEFAULT);
    while (cp_protocol(wanted, count, &info))
        count++;
    needed = (DWORD)((size_t)count * each);
    if (*room < needed || (!cp_is_memory((uintptr_t)place, needed) && count)) {
        *room = needed;
        return cp_wsa_fails(WSAENOBUFS);
    }
    return count;
}

CP_INLINE int WSAAPI WSAEnumProtocolsA(LPINT lpiProtocols, LPWSAPROTOCOL_INFOA lpProtocolBuffer,
                                       LPDWORD lpdwBufferLength) {
    int count = cp_protocols(lpiProtocols, lpProtocolBuffer, lpdwBufferLength, sizeof *lpProtocolBuffer), place;
    for (place = 0; place < count; place++)
        cp_protocol(lpiProtocols, place, lpProtocolBuffer + place);
    return count;
}

CP_INLINE int WSAAPI WSAEnumProtocolsW(LPINT lpiProtocols, LPWSAPROTOCOL_INFOW lpProtocolBuffer,
                                       LPDWORD lpdwBufferLength) {
    int count = cp_protocols(lpiProtocols, lpProtocolBuffer, lpdwBufferLength, sizeof *lpProtocolBuffer), place;
    for (place = 0; place < count; place++) {
        WSAPROTOCOL_INFOA info;
        size_t letter;
        cp_protocol(lpiProtocols, place, &info);
        memcpy(lpProtocolBuffer + place, &info, offsetof(WSAPROTOCOL_INFOA, szProtocol));
        for (letter = 0; letter <= WSAPROTOCOL_LEN; letter++)
            lpProtocolBuffer[place].szProtocol[letter] = (WCHAR)info.szProtocol[letter];
    }
    return count;
}

/* Describes a socket so that WSASocket makes a duplicate of it, whose operations complete on the same port. Only within
 * the process: otherwise the call fails with WSAEOPNOTSUPP, and unix(7) has a way. */
CP_INLINE int WSAAPI WSADuplicateSocketA(SOCKET s, DWORD dwProcessId, LPWSAPROTOCOL_INFOA lpProtocolInfo) {
    socklen_t size = sizeof(int);
    if (!cp_is_memory((uintptr_t)lpProtocolInfo, sizeof *lpProtocolInfo))
        return cp_wsa_fails(WSAEFAULT);
    if (dwProcessId != (DWORD)getpid())
        return cp_wsa_fails(WSAEOPNOTSUPP);
    memset(lpProtocolInfo, 0, sizeof *lpProtocolInfo);
    if (cp_getsockopt(cp_descriptor(s), SOL_SOCKET, 39 /* SO_DOMAIN */, &lpProtocolInfo->iAddressFamily, &size) < 0
        || cp_getsockopt(cp_descriptor(s), SOL_SOCKET, SO_TYPE, &lpProtocolInfo->iSocketType, &size) < 0
        || cp_getsockopt(cp_descriptor(s), SOL_SOCKET, 38 /* SO_PROTOCOL */, &lpProtocolInfo->iProtocol, &size) < 0)
        return SOCKET_ERROR;
    lpProtocolInfo->dwServiceFlags1 = XP1_IFS_HANDLES;
    lpProtocolInfo->dwProviderReserved = (DWORD)s + 1;
    return 0;
}

CP_INLINE int WSAAPI WSADuplicateSocketW(SOCKET s, DWORD dwProcessId, LPWSAPROTOCOL_INFOW lpProtocolInfo) {
    WSAPROTOCOL_INFOA info;
    if (!cp_is_memory((uintptr_t)lpProtocolInfo, sizeof *lpProtocolInfo))
        return cp_wsa_fails(WSAEFAULT);
    if (WSADuplicateSocketA(s, dwProcessId, &info) < 0)
        return SOCKET_ERROR;
    memset(lpProtocolInfo, 0, sizeof *lpProtocolInfo);
    memcpy(lpProtocolInfo, &info, offsetof(WSAPROTOCOL_INFOA, szProtocol));
    return 0;
}

/* Whether a socket is created overlapped makes no difference: every socket supports operations. A
 * description supplies the arguments that the call leaves open. */
CP_INLINE SOCKET WSAAPI WSASocketA(int af, int type, int protocol, LPWSAPROTOCOL_INFOA lpProtocolInfo,
                                   GROUP g, DWORD dwFlags) {
    (void)g;
    if (lpProtocolInfo &&
        !cp_is_memory((uintptr_t)lpProtocolInfo, offsetof(WSAPROTOCOL_INFOA, szProtocol))) {
        cp_set_last_error(WSAEFAULT);
        return INVALID_SOCKET;
    }
    if (lpProtocolInfo && lpProtocolInfo->dwProviderReserved)
        return (SOCKET)(INT_PTR)cp_duplicate_socket((int)(lpProtocolInfo->dwProviderReserved - 1),
                                                    !(dwFlags & WSA_FLAG_NO_HANDLE_INHERIT));
    if (lpProtocolInfo) {
        if (af == FROM_PROTOCOL_INFO || af == AF_UNSPEC)
            af = lpProtocolInfo->iAddressFamily;
        if (type == FROM_PROTOCOL_INFO || type == 0)
            type = lpProtocolInfo->iSocketType;
        if (protocol == FROM_PROTOCOL_INFO || protocol == 0)
            protocol = lpProtocolInfo->iProtocol;
    }
    if (dwFlags & WSA_FLAG_NO_HANDLE_INHERIT)
        type |= 02000000; /* SOCK_CLOEXEC */
    return (SOCKET)(INT_PTR)cp_socket(af, type, protocol);
}

/* Both descriptions have the needed members at the same offsets. */
CP_INLINE SOCKET WSAAPI WSASocketW(int af, int type, int protocol, LPWSAPROTOCOL_INFOW lpProtocolInfo,
                                   GROUP g, DWORD dwFlags) {
    return WSASocketA(af, type, protocol, (LPWSAPROTOCOL_INFOA)(void *)lpProtocolInfo, g, dwFlags);
}

#if defined UNICODE || defined _UNICODE
#define WSASocket WSASocketW
#define WSADuplicateSocket WSADuplicateSocketW
#define WSAEnumProtocols WSAEnumProtocolsW
#define SO_PROTOCOL_INFO SO_PROTOCOL_INFOW
typedef WSAPROTOCOL_INFOW WSAPROTOCOL_INFO, *LPWSAPROTOCOL_INFO;
#else
#define WSASocket WSASocketA
#define WSADuplicateSocket WSADuplicateSocketA
#define WSAEnumProtocols WSAEnumProtocolsA
#define SO_PROTOCOL_INFO SO_PROTOCOL_INFOA
typedef WSAPROTOCOL_INFOA WSAPROTOCOL_INFO, *LPWSAPROTOCOL_INFO;
#endif

#endif
