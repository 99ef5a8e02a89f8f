/* cp_socket_ioctl.h: the requests of WSAIoctl that apply here. Included by <winsock2.h> and
 * <mstcpip.h>. */
/* Before the guard: a program may include this header first, and <winsock2.h> has it in its place. */
#include <winsock2.h>
#ifndef CP_SOCKET_IOCTL_H
#define CP_SOCKET_IOCTL_H

/* The system has IOC_IN and IOC_OUT, too, and means other bits by them. */
#define IOC_WS2 0x08000000U
#define IOC_VENDOR 0x18000000U
#define _WSAIO(group, number) (0x20000000U | (group) | (number))
#define _WSAIOR(group, number) (0x40000000U | (group) | (number))
#define _WSAIOW(group, number) (0x80000000U | (group) | (number))
#define _WSAIORW(group, number) (0xC0000000U | (group) | (number))

/* The system's header has it only if it is asked for more. */
#ifndef SIOCATMARK
#define SIOCATMARK 0x8905
#endif

#define SIO_KEEPALIVE_VALS _WSAIOW(IOC_VENDOR, 4)
#define SIO_UDP_CONNRESET _WSAIOW(IOC_VENDOR, 12)
#define SIO_LOOPBACK_FAST_PATH _WSAIOW(IOC_VENDOR, 16)

/* The functions of <mswsock.h>, by their GUIDs. */
#define SIO_GET_EXTENSION_FUNCTION_POINTER _WSAIORW(IOC_WS2, 6)

/* To the reference its members are of type u_long, which has four bytes there. */
struct tcp_keepalive {
    ULONG onoff;
    ULONG keepalivetime;
    ULONG keepaliveinterval;
};

/* In whole seconds, rounded up, and one at least: the system counts no less. */
CP_INLINE int cp_keep_alive_seconds(ULONG milliseconds) {
    return milliseconds == 0 ? 1 : (int)((milliseconds - 1) / 1000 + 1);
}

/* Ten probes are sent, as there. */
CP_INLINE int cp_keep_alive(int descriptor, const struct tcp_keepalive *wanted) {
    int on = wanted->onoff != 0, probes = 10;
    int idle = cp_keep_alive_seconds(wanted->keepalivetime);
    int interval = cp_keep_alive_seconds(wanted->keepaliveinterval);
    const int most = 32767; /* seconds, to the system */
    if (idle > most)
        idle = most;
    if (interval > most)
        interval = most;
    /* A socket that is no TCP stream refuses these, not the first one. */
    if (on && (cp_setsockopt(descriptor, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof idle) != 0 ||
               cp_setsockopt(descriptor, IPPROTO_TCP, TCP_KEEPINTVL, &interval, sizeof interval) != 0 ||
               cp_setsockopt(descriptor, IPPROTO_TCP, TCP_KEEPCNT, &probes, sizeof probes) != 0)) {
        if (cp_last_error() != WSAENOTSOCK)
            cp_set_last_error(WSAENOPROTOOPT);
        return SOCKET_ERROR;
    }
    return cp_setsockopt(descriptor, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
}

/* A command that this does not know fails with WSAEOPNOTSUPP. */
CP_INLINE int cp_wsa_ioctl(SOCKET s, DWORD command, const void *in, DWORD in_size, void *out, DWORD out_size,
                           DWORD *returned) {
    u_long value = 0;
    DWORD number = 0;
    int done;
    socklen_t size = sizeof done;
    if (!cp_is_memory((uintptr_t)returned, sizeof *returned))
        return cp_wsa_fails(WSAEFAULT);
    *returned = 0;
    switch (command) {
    case SIO_KEEPALIVE_VALS: {
        struct tcp_keepalive wanted;
        if (in_size < sizeof wanted || !cp_is_memory((uintptr_t)in, sizeof wanted))
            return cp_wsa_fails(WSAEFAULT);
        memcpy(&wanted, in, sizeof wanted);
        return cp_keep_alive(cp_descriptor(s), &wanted);
    }
    case SIO_UDP_CONNRESET:
        /* Here only a connected socket gets this report, so there is nothing to turn off. The rest
         * cannot be turned on. */
        if (in_size < sizeof number || !cp_is_memory((uintptr_t)in, sizeof number))
            return cp_wsa_fails(WSAEFAULT);
        memcpy(&number, in, sizeof number);
        if (number)
            return cp_wsa_fails(WSAEOPNOTSUPP);
        return cp_getsockopt(cp_descriptor(s), SOL_SOCKET, SO_TYPE, &done, &size);
    case SIO_GET_EXTENSION_FUNCTION_POINTER: {
        const void *function;
        if (in_size < 16 || !cp_is_memory((uintptr_t)in, 16) || out_size < sizeof function ||
            !cp_is_memory((uintptr_t)out, sizeof function))
            return cp_wsa_fails(WSAEFAULT);
        if (cp_getsockopt(cp_descriptor(s), SOL_SOCKET, SO_TYPE, &done, &size) != 0)
            return SOCKET_ERROR;
        function = cp_extension(in);
        if (!function)
            return cp_wsa_fails(WSAEINVAL);
        memcpy(out, &function, sizeof function);
        *returned = sizeof function;
        return 0;
    }
    default:
        break;
    }
    if (command != (DWORD)FIONBIO && command != (DWORD)FIONREAD && command != (DWORD)SIOCATMARK)
        return cp_wsa_fails(WSAEOPNOTSUPP);
    if (command == (DWORD)FIONBIO) {
        if (in_size < sizeof number || !cp_is_memory((uintptr_t)in, sizeof number))
            return cp_wsa_fails(WSAEFAULT);
        memcpy(&number, in, sizeof number);
        value = number;
    } else if (out_size < sizeof number || !cp_is_memory((uintptr_t)out, sizeof number)) {
        return cp_wsa_fails(WSAEFAULT);
    }
    done = cp_ioctl_socket(cp_descriptor(s), command, &value);
    if (done == 0 && command != (DWORD)FIONBIO) {
        number = (DWORD)value;
        memcpy(out, &number, sizeof number);
        *returned = sizeof number;
    }
    return done;
}

/* It has finished when it returns, even with an OVERLAPPED. Like WSARecv, it rejects a completion routine. */
CP_INLINE int WSAAPI WSAIoctl(SOCKET s, DWORD dwIoControlCode, LPVOID lpvInBuffer, DWORD cbInBuffer,
                              LPVOID lpvOutBuffer, DWORD cbOutBuffer, LPDWORD lpcbBytesReturned,
                              LPWSAOVERLAPPED lpOverlapped,
                              LPWSAOVERLAPPED_COMPLETION_ROUTINE lpCompletionRoutine) {
    DWORD returned = 0;
    int done;
    if (!lpOverlapped)
        return cp_wsa_ioctl(s, dwIoControlCode, lpvInBuffer, cbInBuffer, lpvOutBuffer, cbOutBuffer, lpcbBytesReturned);
    if (lpCompletionRoutine)
        return cp_wsa_fails(WSAEOPNOTSUPP);
    if (cp_begin_instant(cp_descriptor(s), lpOverlapped) != 0)
        return SOCKET_ERROR;
    done = cp_wsa_ioctl(s, dwIoControlCode, lpvInBuffer, cbInBuffer, lpvOutBuffer, cbOutBuffer, &returned);
    if (done != 0)
        return done;
    if (lpcbBytesReturned)
        *lpcbBytesReturned = returned;
    return cp_end_instant(cp_descriptor(s), lpOverlapped, returned);
}

#endif
