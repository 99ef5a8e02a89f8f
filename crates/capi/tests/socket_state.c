/* select, WSAPoll, WSAIoctl, and addresses as text and in parts. */
#define FD_SETSIZE 100 /* also if a system header with its own definition comes first */
#include <stdlib.h>
#include <winsock2.h>
#include <mstcpip.h>
#include <ws2tcpip.h>
#include <windows.h>

#include <pthread.h>

#include "check.h"

#if HAS_SOCKET_CALLS
/* ---- Protocols ---------------------------------------------------------------------------------------- */

static void protocols_are_told_and_sockets_made_of_them(void)
{
    WSAPROTOCOL_INFOW infos[8];
    WSAPROTOCOL_INFOA narrow[8];
    INT wanted[] = {IPPROTO_UDP, 0};
    DWORD room = 0;
    SOCKET s;
    int type = 0, size = (int)sizeof type, place;
    CHECK_SOCKET_ERROR(WSAEnumProtocolsW(NULL, NULL, NULL), WSAEFAULT);
    CHECK_SOCKET_ERROR(WSAEnumProtocolsW(NULL, NULL, &room), WSAENOBUFS);
    CHECK_IS(room, 4 * sizeof *infos);
    CHECK_IS(WSAEnumProtocolsW(NULL, infos, &room), 4);
    for (place = 0; place < 4; place++)
        CHECK(infos[place].dwServiceFlags1 & XP1_IFS_HANDLES);
    room = sizeof *narrow;
    CHECK_SOCKET_ERROR(WSAEnumProtocolsA(wanted, narrow, &room), WSAENOBUFS);
    CHECK_IS(room, 2 * sizeof *narrow);
    CHECK_IS(WSAEnumProtocolsA(wanted, narrow, &room), 2);
    CHECK_IS(narrow[0].iAddressFamily, AF_INET);
    CHECK_IS(narrow[1].iAddressFamily, AF_INET6);
    CHECK_IS(narrow[1].iProtocol, IPPROTO_UDP);
    CHECK(strcmp(narrow[1].szProtocol, "UDP/IPv6") == 0);
    s = WSASocketA(FROM_PROTOCOL_INFO, FROM_PROTOCOL_INFO, FROM_PROTOCOL_INFO, &narrow[0], 0, WSA_FLAG_OVERLAPPED);
    CHECK(s != INVALID_SOCKET);
    CHECK_IS(getsockopt(s, SOL_SOCKET, SO_TYPE, (char *)&type, &size), 0);
    CHECK_IS(type, SOCK_DGRAM);
    closesocket(s);
}

/* SO_PROTOCOL_INFO returns the same description as WSAEnumProtocols. */
static void a_socket_tells_its_protocol(void)
{
    static const struct {
        int family, type, protocol;
    } kinds[] = {{AF_INET, SOCK_STREAM, IPPROTO_TCP},
                 {AF_INET, SOCK_DGRAM, IPPROTO_UDP},
                 {AF_INET6, SOCK_STREAM, IPPROTO_TCP},
                 {AF_INET6, SOCK_DGRAM, IPPROTO_UDP}};
    WSAPROTOCOL_INFOA infos[4], narrow;
    WSAPROTOCOL_INFOW wides[4], wide;
    DWORD room = sizeof infos, wide_room = sizeof wides;
    int i, size;
    SOCKET s;
    CHECK_IS(WSAEnumProtocolsA(NULL, infos, &room), 4);
    CHECK_IS(WSAEnumProtocolsW(NULL, wides, &wide_room), 4);
    for (i = 0; i < 4; i++) {
        s = socket(kinds[i].family, kinds[i].type, 0);
        if (s == INVALID_SOCKET && kinds[i].family == AF_INET6)
            continue; /* a system without IPv6 */
        size = (int)sizeof narrow;
        memset(&narrow, 0xFF, sizeof narrow);
        CHECK_IS(getsockopt(s, SOL_SOCKET, SO_PROTOCOL_INFOA, (char *)&narrow, &size), 0);
        CHECK_IS(size, sizeof narrow);
        CHECK_IS(narrow.iAddressFamily, kinds[i].family);
        CHECK_IS(narrow.iSocketType, kinds[i].type);
        CHECK_IS(narrow.iProtocol, kinds[i].protocol);
        CHECK(narrow.dwServiceFlags1 & XP1_IFS_HANDLES);
        CHECK(memcmp(&narrow, &infos[i], sizeof narrow) == 0);
        size = (int)sizeof wide;
        CHECK_IS(getsockopt(s, SOL_SOCKET, SO_PROTOCOL_INFOW, (char *)&wide, &size), 0);
        CHECK_IS(size, sizeof wide);
        CHECK(memcmp(&wide, &wides[i], sizeof wide) == 0);

        size = (int)sizeof narrow - 1;
        CHECK_SOCKET_ERROR(getsockopt(s, SOL_SOCKET, SO_PROTOCOL_INFOA, (char *)&narrow, &size), WSAEFAULT);
        CHECK_IS(size, sizeof narrow);
        CHECK_SOCKET_ERROR(getsockopt(s, SOL_SOCKET, SO_PROTOCOL_INFOW, (char *)&wide, &size), WSAEFAULT);
        CHECK_SOCKET_ERROR(getsockopt(s, SOL_SOCKET, SO_PROTOCOL_INFO, NULL, &size), WSAEFAULT);
        CHECK_IS(closesocket(s), 0);
    }
    s = socket(AF_UNIX, SOCK_STREAM, 0);
    size = (int)sizeof narrow;
    CHECK_IS(getsockopt(s, SOL_SOCKET, SO_PROTOCOL_INFOA, (char *)&narrow, &size), 0);
    CHECK_IS(narrow.iAddressFamily, AF_UNIX);
    CHECK(narrow.dwServiceFlags1 & XP1_IFS_HANDLES);
    CHECK(!(narrow.dwServiceFlags1 & XP1_MESSAGE_ORIENTED));
    CHECK_IS(closesocket(s), 0);
    CHECK_SOCKET_ERROR(getsockopt(s, SOL_SOCKET, SO_PROTOCOL_INFOA, (char *)&narrow, &size), WSAENOTSOCK);
}

#endif

/* A duplicate within the process. */
static void a_socket_is_duplicated(void)
{
    SOCKET one, other, again;
    WSAPROTOCOL_INFOA info;
    WSAPROTOCOL_INFOW wide;
    char byte = 0;
    tcp_pair(&one, &other);
#if HAS_SOCKET_CALLS
    CHECK_SOCKET_ERROR(WSADuplicateSocketA(one, GetCurrentProcessId() + 1, &info), WSAEOPNOTSUPP);
#endif
    CHECK_SOCKET_ERROR(WSADuplicateSocketA(one, GetCurrentProcessId(), NULL), WSAEFAULT);
    CHECK_SOCKET_ERROR(WSADuplicateSocketA(INVALID_SOCKET, GetCurrentProcessId(), &info), WSAENOTSOCK);
    CHECK_IS(WSADuplicateSocketA(one, GetCurrentProcessId(), &info), 0);
    CHECK_IS(info.iSocketType, SOCK_STREAM);
    again = WSASocketA(info.iAddressFamily, info.iSocketType, info.iProtocol, &info, 0, WSA_FLAG_OVERLAPPED);
    CHECK(again != INVALID_SOCKET && again != one);
    CHECK_IS(closesocket(one), 0);
    send_all(again, "x", 1);
    receive_all(other, &byte, 1);
    CHECK_IS(byte, 'x');
    CHECK_IS(WSADuplicateSocketW(again, GetCurrentProcessId(), &wide), 0);
    one = WSASocketW(FROM_PROTOCOL_INFO, FROM_PROTOCOL_INFO, FROM_PROTOCOL_INFO, &wide, 0, WSA_FLAG_OVERLAPPED);
    CHECK(one != INVALID_SOCKET);
    closesocket(again);
    closesocket(one);
    CHECK_IS(recv(other, &byte, 1, 0), 0);
    closesocket(other);
}

static void lingering_is_turned_off_by_either_option(void)
{
    SOCKET s = tcp_socket();
    struct linger linger;
    int on = 1, off = 0, value = 7, size = (int)sizeof linger;
    linger.l_onoff = 1;
    linger.l_linger = 5;
    CHECK_IS(setsockopt(s, SOL_SOCKET, SO_LINGER, (char *)&linger, sizeof linger), 0);
    CHECK_IS(setsockopt(s, SOL_SOCKET, SO_DONTLINGER, (char *)&on, sizeof on), 0);
    CHECK_IS(getsockopt(s, SOL_SOCKET, SO_LINGER, (char *)&linger, &size), 0);
    CHECK_IS(linger.l_onoff, 0);
    size = (int)sizeof value;
    CHECK_IS(getsockopt(s, SOL_SOCKET, SO_DONTLINGER, (char *)&value, &size), 0);
    CHECK_IS(value, 1);
    CHECK_IS(setsockopt(s, SOL_SOCKET, SO_DONTLINGER, (char *)&off, sizeof off), 0);
    CHECK_IS(getsockopt(s, SOL_SOCKET, SO_DONTLINGER, (char *)&value, &size), 0);
    CHECK_IS(value, 0);
    CHECK_SOCKET_ERROR(setsockopt(s, SOL_SOCKET, SO_DONTLINGER, NULL, 0), WSAEFAULT);
    CHECK_SOCKET_ERROR(setsockopt(99999, SOL_SOCKET, SO_DONTLINGER, (char *)&on, sizeof on), WSAENOTSOCK);
    closesocket(s);
}

static void a_handle_is_inherited_or_not(void)
{
    SOCKET s = tcp_socket();
    HANDLE event = CreateEventA(NULL, TRUE, FALSE, NULL);
    CHECK(SetHandleInformation((HANDLE)s, HANDLE_FLAG_INHERIT, 0));
    CHECK(!is_inherited(s));
    CHECK(SetHandleInformation((HANDLE)s, HANDLE_FLAG_INHERIT, HANDLE_FLAG_INHERIT));
    CHECK(is_inherited(s));
    CHECK(SetHandleInformation((HANDLE)s, 0, HANDLE_FLAG_INHERIT));
    CHECK(SetHandleInformation(event, HANDLE_FLAG_INHERIT, 0));
#if HAS_SOCKET_CALLS
    CHECK_FALSE(SetHandleInformation((HANDLE)s, HANDLE_FLAG_PROTECT_FROM_CLOSE, HANDLE_FLAG_PROTECT_FROM_CLOSE),
                ERROR_NOT_SUPPORTED);
    CHECK_FALSE(SetHandleInformation(event, HANDLE_FLAG_INHERIT, HANDLE_FLAG_INHERIT), ERROR_NOT_SUPPORTED);
#endif
    CHECK_FALSE(SetHandleInformation((HANDLE)(uintptr_t)99999, HANDLE_FLAG_INHERIT, 0), ERROR_INVALID_HANDLE);
    closesocket(s);
    CHECK(CloseHandle(event));
}

/* ---- Ports that are in use ------------------------------------------------------------------------------ */

static int flag_of(SOCKET s, int name)
{
    int value = 7, size = sizeof value;
    CHECK_IS(getsockopt(s, SOL_SOCKET, name, (char *)&value, &size), 0);
    CHECK_IS(size, sizeof value);
    return value;
}

static int set_flag(SOCKET s, int name, int value)
{
    return setsockopt(s, SOL_SOCKET, name, (const char *)&value, sizeof value);
}

static int binds(SOCKET s, const struct sockaddr_in *address)
{
    return bind(s, (const struct sockaddr *)address, (int)sizeof *address);
}

/* Makes a connection and closes its accepted end first, so that it holds the port for a while. */
static SOCKET left_connection(SOCKET listener, const struct sockaddr_in *address, SOCKET *accepted)
{
    SOCKET client = tcp_connected_to(address), served = accept(listener, NULL, NULL);
    char byte;
    CHECK(served != INVALID_SOCKET);
    CHECK_IS(flag_of(served, SO_REUSEADDR), 0);
    if (accepted) {
        *accepted = served;
        return client;
    }
    CHECK_IS(closesocket(served), 0);
    CHECK_IS(recv(client, &byte, 1, 0), 0);
    return client;
}

static void a_server_starts_again_at_its_port(void)
{
    int how;
    for (how = 0; how < 3; how++) {
        struct sockaddr_in address;
        SOCKET listener = tcp_socket(), client, other, accepted = INVALID_SOCKET, second;
        CHECK_IS(set_flag(listener, SO_EXCLUSIVEADDRUSE, how == 2), 0);
        address = bind_to_loopback(listener);
        CHECK_IS(listen(listener, 5), 0);
        CHECK_IS(flag_of(listener, SO_REUSEADDR), 0);
        client = left_connection(listener, &address, NULL);
        closesocket(client);
        other = left_connection(listener, &address, how == 1 ? &accepted : NULL);
        second = tcp_socket();
        CHECK_SOCKET_ERROR(binds(second, &address), WSAEADDRINUSE); /* there is a listener */
        closesocket(listener);
        if (how != 1)
            closesocket(other); /* otherwise the connection stays open */
#if HAS_SOCKET_CALLS
        {
            /* Without the option the port is in use. */
            int plain = (int)syscall(SYS_socket, AF_INET, SOCK_STREAM, 0);
            CHECK_IS(syscall(SYS_bind, plain, &address, sizeof address), -1);
            CHECK_IS(errno, EADDRINUSE);
            CHECK_IS(close(plain), 0);
        }
#endif
        listener = tcp_socket();
        CHECK_IS(set_flag(listener, SO_EXCLUSIVEADDRUSE, how == 2), 0);
        CHECK_IS(binds(listener, &address), 0);
        CHECK_IS(flag_of(listener, SO_REUSEADDR), 0);
        /* A bound socket has the port to itself, whether it listens or not. */
        CHECK_SOCKET_ERROR(binds(second, &address), WSAEADDRINUSE);
        CHECK_IS(listen(listener, 5), 0);
        CHECK_SOCKET_ERROR(binds(second, &address), WSAEADDRINUSE);
        client = left_connection(listener, &address, NULL);
        if (how == 1) {
            closesocket(other);
            closesocket(accepted);
        }
        closesocket(client);
        closesocket(second);
        closesocket(listener);
    }
}

static void a_client_starts_again_at_its_port(void)
{
    struct sockaddr_in address, own;
    SOCKET listener = tcp_listener(&address), client = tcp_socket(), served;
    char byte;
    do { /* repeat if another program takes the port first */
        own = bind_to_loopback(client);
        closesocket(client);
        client = tcp_socket();
    } while (binds(client, &own) != 0);
    CHECK_IS(connect(client, (struct sockaddr *)&address, sizeof address), 0);
    served = accept(listener, NULL, NULL);
    CHECK_IS(shutdown(client, SD_SEND), 0);
    CHECK_IS(recv(served, &byte, 1, 0), 0);
    closesocket(served);
    CHECK_IS(recv(client, &byte, 1, 0), 0);
    closesocket(client);
    client = tcp_socket();
    CHECK_IS(binds(client, &own), 0);
    CHECK_IS(flag_of(client, SO_REUSEADDR), 0);
    closesocket(client);
    closesocket(listener);
}

/* ---- Buffer sizes -------------------------------------------------------------------------------------- */

static int room_of(SOCKET s, int name)
{
    return flag_of(s, name);
}

/* The system's actual size, whatever the program has set. */
static int own_room(SOCKET s, int name)
{
#if HAS_SOCKET_CALLS
    int value = 0;
    socklen_t size = sizeof value;
    CHECK_IS(syscall(SYS_getsockopt, (int)s, SOL_SOCKET, name, &value, &size), 0);
    return value;
#else
    (void)s;
    (void)name;
    return 0;
#endif
}

static void room_is_what_the_program_has_set(void)
{
    struct sockaddr_in address;
    const int names[] = {SO_SNDBUF, SO_RCVBUF};
    int kind, i;
    SOCKET listener, near, far;
    WSAPROTOCOL_INFOA info;
    for (kind = 0; kind < 2; kind++) {
        for (i = 0; i < 2; i++) {
            SOCKET s = kind ? udp_socket() : tcp_socket();
            int usual = own_room(s, names[i]);
            CHECK_IS(set_flag(s, names[i], 0), 0);
            CHECK_IS(room_of(s, names[i]), 0);
            CHECK_IS(own_room(s, names[i]), usual); /* unchanged, and not 0 */
            CHECK_IS(set_flag(s, names[i], 30000), 0);
            CHECK_IS(room_of(s, names[i]), 30000);
            CHECK(own_room(s, names[i]) >= (HAS_SOCKET_CALLS ? 0x10000 : 0)); /* less would be slow */
            CHECK_IS(set_flag(s, names[i], 100000), 0);
            CHECK(own_room(s, names[i]) >= (HAS_SOCKET_CALLS ? 100000 : 0));
            CHECK_IS(set_flag(s, names[i], 0), 0);
            CHECK_IS(room_of(s, names[i]), 0);
#if HAS_SOCKET_CALLS
            CHECK_SOCKET_ERROR(setsockopt(s, SOL_SOCKET, names[i], (const char *)&usual, 3), WSAEFAULT);
            CHECK_SOCKET_ERROR(setsockopt(s, SOL_SOCKET, names[i], NULL, 4), WSAEFAULT);
#endif
            CHECK_IS(room_of(s, names[i]), 0);
            closesocket(s);
            CHECK_SOCKET_ERROR(set_flag(s, names[i], 0), WSAENOTSOCK);
        }
    }
    /* A duplicate is the same socket. */
    near = tcp_socket();
    CHECK_IS(set_flag(near, SO_RCVBUF, 40000), 0);
    CHECK_IS(WSADuplicateSocketA(near, GetCurrentProcessId(), &info), 0);
    far = WSASocketA(info.iAddressFamily, info.iSocketType, info.iProtocol, &info, 0, WSA_FLAG_OVERLAPPED);
    CHECK(far != INVALID_SOCKET);
    CHECK_IS(room_of(far, SO_RCVBUF), 40000);
    closesocket(near);
    closesocket(far);
    /* A connection inherits its listener's sizes. */
    listener = tcp_listener(&address);
    CHECK_IS(set_flag(listener, SO_RCVBUF, 40000), 0);
    near = tcp_connected_to(&address);
    far = accept(listener, NULL, NULL);
    CHECK_IS(room_of(far, SO_RCVBUF), 40000);
    closesocket(near);
    closesocket(far);
    closesocket(listener);
}

#if HAS_SOCKET_CALLS

enum { IN_FLIGHT = 128, LENGTH = 1400 };

/* With a receive in flight for each, no datagram is lost if the system grants enough room. */
static void receives_in_flight_are_room_for_datagrams(int asked)
{
    static OVERLAPPED overlapped[IN_FLIGHT];
    static char bytes[IN_FLIGHT][LENGTH], datagram[LENGTH];
    SOCKET s = udp_socket(), from = udp_socket();
    struct sockaddr_in address = bind_to_loopback(s);
    int i, sent, usual = own_room(s, SO_RCVBUF), most = 0;
    FILE *limit = fopen("/proc/sys/net/core/rmem_max", "r");
    if (asked >= 0)
        CHECK_IS(set_flag(s, SO_RCVBUF, asked), 0);
    memset(overlapped, 0, sizeof overlapped);
    for (i = 0; i < IN_FLIGHT; i++) {
        DWORD flags = 0;
        WSABUF buffer;
        buffer.len = LENGTH;
        buffer.buf = bytes[i];
        CHECK_SOCKET_ERROR(WSARecv(s, &buffer, 1, NULL, &flags, &overlapped[i], NULL), WSA_IO_PENDING);
    }
    if (limit) {
        CHECK_IS(fscanf(limit, "%d", &most), 1);
        fclose(limit);
    }
    if (most > 4 << 20)
        most = 4 << 20;
    if (most * 2 > usual)
        CHECK(own_room(s, SO_RCVBUF) >= most * 2);
    CHECK(asked < 0 || room_of(s, SO_RCVBUF) == asked);
    sent = most >= 1 << 20 && asked != 0 ? IN_FLIGHT : 16; /* otherwise there is too little room for all */
    for (i = 0; i < sent; i++)
        send_to(from, datagram, LENGTH, &address);
    for (i = 0; i < sent; i++) {
        DWORD count = 0, flags = 0;
        CHECK(WSAGetOverlappedResult(s, &overlapped[i], &count, TRUE, &flags));
        CHECK_IS(count, LENGTH);
    }
    closesocket(s);
    for (; i < IN_FLIGHT; i++) {
        DWORD count = 0;
        CHECK(!GetOverlappedResult((HANDLE)s, &overlapped[i], &count, TRUE));
    }
    closesocket(from);
}

#endif

static void a_port_is_shared_or_exclusive(void)
{
    struct sockaddr_in address;
    SOCKET one = tcp_socket(), other = tcp_socket(), datagrams = udp_socket(), more = udp_socket();
    CHECK_IS(flag_of(one, SO_REUSEADDR), 0);
    CHECK_IS(flag_of(one, SO_EXCLUSIVEADDRUSE), 0);
    CHECK_IS(set_flag(one, SO_REUSEADDR, 5), 0);
    CHECK_IS(flag_of(one, SO_REUSEADDR), 1);
    CHECK_SOCKET_ERROR(set_flag(one, SO_EXCLUSIVEADDRUSE, 1), WSAEINVAL);
    CHECK_IS(set_flag(one, SO_EXCLUSIVEADDRUSE, 0), 0);
    CHECK_IS(set_flag(one, SO_REUSEADDR, 0), 0);
    CHECK_IS(set_flag(one, SO_EXCLUSIVEADDRUSE, 1), 0);
    CHECK_IS(flag_of(one, SO_EXCLUSIVEADDRUSE), 1);
    CHECK_SOCKET_ERROR(set_flag(one, SO_REUSEADDR, 1), WSAEINVAL);
    CHECK_IS(flag_of(one, SO_REUSEADDR), 0);
    CHECK_SOCKET_ERROR(setsockopt(one, SOL_SOCKET, SO_EXCLUSIVEADDRUSE, NULL, 4), WSAEFAULT);
    CHECK_IS(set_flag(one, SO_EXCLUSIVEADDRUSE, 0), 0);
    /* Both set the option. */
    CHECK_IS(set_flag(one, SO_REUSEADDR, 1), 0);
    CHECK_IS(set_flag(other, SO_REUSEADDR, 1), 0);
    address = bind_to_loopback(one);
    CHECK_IS(binds(other, &address), 0);
    CHECK_IS(listen(one, 1), 0);
#if HAS_SOCKET_CALLS
    CHECK_IS(listen(other, 1), 0);
#endif
    CHECK_IS(flag_of(one, SO_REUSEADDR), 1);
    CHECK_IS(set_flag(datagrams, SO_REUSEADDR, 1), 0);
    address = bind_to_loopback(datagrams);
    CHECK_SOCKET_ERROR(binds(more, &address), WSAEADDRINUSE);
    CHECK_IS(set_flag(more, SO_REUSEADDR, 1), 0);
    CHECK_IS(binds(more, &address), 0);
    closesocket(one);
    CHECK_SOCKET_ERROR(set_flag(one, SO_EXCLUSIVEADDRUSE, 1), WSAENOTSOCK);
    CHECK_SOCKET_ERROR(set_flag(one, SO_REUSEADDR, 1), WSAENOTSOCK);
    closesocket(other);
    closesocket(datagrams);
    closesocket(more);
}

#if HAS_SOCKET_CALLS
/* A socket that has not set the option does not share a port. */
static void a_port_is_shared_by_those_who_want_that(void)
{
    int how;
    for (how = 0; how < 4; how++) {
        int first_listens = how & 1, is_exclusive = how & 2;
        struct sockaddr_in address;
        SOCKET one = tcp_socket(), other = tcp_socket(), third = tcp_socket(), client, served;
        CHECK_IS(set_flag(one, SO_REUSEADDR, 1), 0);
        CHECK_IS(set_flag(other, SO_EXCLUSIVEADDRUSE, is_exclusive), 0);
        CHECK_IS(set_flag(third, SO_REUSEADDR, 1), 0);
        address = bind_to_loopback(one);
        if (first_listens)
            CHECK_IS(listen(one, 5), 0);
        CHECK_SOCKET_ERROR(binds(other, &address), WSAEADDRINUSE);
        CHECK_IS(binds(third, &address), 0);
        CHECK_SOCKET_ERROR(binds(other, &address), WSAEADDRINUSE);
        CHECK_IS(listen(third, 5), 0);
        CHECK_SOCKET_ERROR(binds(other, &address), WSAEADDRINUSE);
        if (!first_listens)
            CHECK_IS(listen(one, 5), 0);
        closesocket(third);
        /* Connections of a listener that shares its port do not prevent a bind, with or without the option. */
        client = tcp_connected_to(&address);
        served = accept(one, NULL, NULL);
        CHECK_IS(set_flag(served, SO_REUSEADDR, 0), 0);
        closesocket(one);
        CHECK_IS(binds(other, &address), 0);
        CHECK_IS(listen(other, 5), 0);
        third = tcp_socket();
        CHECK_IS(set_flag(third, SO_REUSEADDR, 1), 0);
        CHECK_SOCKET_ERROR(binds(third, &address), WSAEADDRINUSE);
        closesocket(other);
        CHECK_IS(binds(third, &address), 0);
        CHECK_IS(listen(third, 5), 0);
        closesocket(served);
        closesocket(client);
        closesocket(third);
    }
}

static struct sockaddr_in contested;
static pthread_barrier_t contest;

static void *binds_again_and_again(void *unused)
{
    SOCKET s = tcp_socket();
    int i;
    pthread_barrier_wait(&contest);
    for (i = 0; i < 20; i++)
        CHECK_SOCKET_ERROR(binds(s, &contested), WSAEADDRINUSE);
    closesocket(s);
    return unused;
}

/* Nobody else is bound to the port while a server begins to listen. A connection holds it, too. */
static void a_server_that_begins_to_listen_keeps_its_port(void)
{
    int round;
    CHECK_IS(pthread_barrier_init(&contest, NULL, 2), 0);
    for (round = 0; round < tries(100, 1000); round++) {
        SOCKET listener = tcp_listener(&contested), client = left_connection(listener, &contested, NULL);
        pthread_t thread;
        closesocket(client);
        closesocket(listener);
        listener = tcp_socket();
        CHECK_IS(binds(listener, &contested), 0);
        CHECK_IS(pthread_create(&thread, NULL, binds_again_and_again, NULL), 0);
        pthread_barrier_wait(&contest);
        CHECK_IS(listen(listener, 5), 0);
        CHECK_IS(pthread_join(thread, NULL), 0);
        closesocket(listener);
    }
    pthread_barrier_destroy(&contest);
}
#endif

/* ---- select ------------------------------------------------------------------------------------------- */

static void sets_are_counts_and_arrays(void)
{
    struct fd_set set;
    LPFD_SET sockets = &set;
    SOCKET s;
    CHECK_IS(sizeof set, (FD_SETSIZE + 1) * sizeof(SOCKET));
    FD_ZERO(&set);
    CHECK_IS(set.fd_count, 0);
    for (s = 1000; s < 1000 + FD_SETSIZE + 3; s++) {
        FD_SET(s, &set);
        if (set.fd_count == 3)
            FD_SET(s, sockets); /* it is listed once */
    }
    CHECK_IS(sockets->fd_count, 100); /* a full set stays unchanged */
    CHECK_IS(set.fd_array[0], 1000);
    CHECK_IS(set.fd_array[99], 1099);
    CHECK(FD_ISSET(1099, &set) && !FD_ISSET(1100, &set) && __WSAFDIsSet(1050, &set));
    FD_CLR(1000, &set);
    FD_CLR(1100, &set);
    FD_CLR(1099, &set);
    CHECK_IS(set.fd_count, 98);
    CHECK_IS(set.fd_array[0], 1001);
    CHECK_IS(set.fd_array[97], 1098);
    CHECK(!FD_ISSET(1000, &set) && !FD_ISSET(1099, &set));
}

#if HAS_SOCKET_CALLS
#define LIMIT(time) (time)
#else
#define LIMIT(time) ((PTIMEVAL)(time)) /* some headers lack the const, but it is never written */
#endif

static fd_set set_of(SOCKET s)
{
    fd_set set;
    FD_ZERO(&set);
    FD_SET(s, &set);
    return set;
}

/* The sets that report a socket within the limit: reading (1), writing (2) and exceptions (4). */
static int selected(SOCKET s, int wanted, const struct timeval *limit)
{
    fd_set reads = set_of(s), writes = reads, excepts = reads;
    int count = select(0, wanted & 1 ? &reads : NULL, wanted & 2 ? &writes : NULL, wanted & 4 ? &excepts : NULL,
                       LIMIT(limit));
    int found = (wanted & 1 && FD_ISSET(s, &reads) ? 1 : 0) | (wanted & 2 && FD_ISSET(s, &writes) ? 2 : 0) |
                (wanted & 4 && FD_ISSET(s, &excepts) ? 4 : 0);
    CHECK_IS(count, (found & 1) + (found >> 1 & 1) + (found >> 2));
    return found;
}

static const struct timeval at_once = {0, 0}, a_while = {0, A_WHILE * 1000}, soon = {SOON / 1000, 0};

static void sockets_are_selected(void)
{
    struct sockaddr_in address;
    SOCKET listener = tcp_listener(&address), near, far;
    fd_set reads, writes, both;
    struct timeval limit = a_while;
    ULONGLONG began = GetTickCount64();
    char byte;
    tcp_pair(&near, &far);
    reads = set_of(near);
    CHECK_IS(select(0, &reads, NULL, NULL, &limit), 0);
    CHECK(GetTickCount64() - began >= A_WHILE - 1);
    CHECK_IS(limit.tv_usec, A_WHILE * 1000); /* nothing is written there */
    CHECK_IS(reads.fd_count, 0);
    CHECK_IS(selected(near, 7, &at_once), 2);
    send_all(far, "x", 1);
    CHECK_IS(selected(near, 1, &soon), 1);
    CHECK_IS(selected(near, 7, NULL), 3);
    CHECK_IS(selected(listener, 7, &at_once), 0);
    closesocket(far);
    CHECK_IS(recv(near, &byte, 1, 0), 1);
    CHECK_IS(selected(near, 1, &soon), 1); /* the end of the stream */
    far = tcp_connected_to(&address);
    CHECK_IS(selected(listener, 1, &soon), 1);

    /* Counts all sets. Ready sockets keep their order. */
    FD_ZERO(&both);
    FD_SET(far, &both);
    FD_SET(listener, &both);
    FD_SET(near, &both);
    reads = writes = both;
    CHECK_IS(select(-1, &reads, &writes, &both, LIMIT(&soon)), 4);
    CHECK_IS(reads.fd_count, 2);
    CHECK_IS(reads.fd_array[0], listener);
    CHECK_IS(reads.fd_array[1], near);
    CHECK_IS(writes.fd_count, 2);
    CHECK_IS(writes.fd_array[0], far);
    CHECK_IS(both.fd_count, 0);
    both = set_of(near); /* one set for two */
    CHECK_IS(select(0, &both, &both, NULL, LIMIT(&soon)), 1);
    CHECK_IS(both.fd_count, 1);
    CHECK_IS(both.fd_array[0], near);
    closesocket(near);
    closesocket(far);
    closesocket(listener);
}

static void what_cannot_be_selected_is_refused(void)
{
    SOCKET s = udp_socket(), gone = udp_socket();
    struct timeval negative = {0, -1}, long_ago = {-1, 0};
    fd_set set = set_of(s), none;
    uintptr_t file, ends[2];
    FD_ZERO(&none);
    CHECK_SOCKET_ERROR(select(0, NULL, NULL, NULL, NULL), WSAEINVAL);
    CHECK_SOCKET_ERROR(select(0, NULL, NULL, NULL, LIMIT(&at_once)), WSAEINVAL);
    CHECK_SOCKET_ERROR(select(5, &none, &none, &none, LIMIT(&at_once)), WSAEINVAL);
#if HAS_SOCKET_CALLS
    CHECK_SOCKET_ERROR(select(0, &set, NULL, NULL, &negative), WSAEINVAL);
    CHECK_SOCKET_ERROR(select(0, &set, NULL, NULL, &long_ago), WSAEINVAL);
#else
    (void)negative;
    (void)long_ago;
#endif
    closesocket(gone);
    FD_SET(gone, &set);
    CHECK_SOCKET_ERROR(select(0, &set, NULL, NULL, NULL), WSAENOTSOCK);
    CHECK_SOCKET_ERROR(select(0, NULL, NULL, &set, LIMIT(&at_once)), WSAENOTSOCK);
    CHECK_IS(set.fd_count, 2);
    set = set_of(INVALID_SOCKET);
    CHECK_SOCKET_ERROR(select(0, &set, NULL, NULL, NULL), WSAENOTSOCK);
#if HAS_SOCKET_CALLS
    open_file_and_pipe(&file, ends);
    set = set_of((SOCKET)ends[0]);
    CHECK_SOCKET_ERROR(select(0, &set, NULL, NULL, NULL), WSAENOTSOCK);
    close_file_and_pipe(file, ends);
#else
    (void)file;
    (void)ends;
#endif
    closesocket(s);
}

/* A failed connect is an exception, a reset connection is readable, and a stream that was never connected is neither. */
static void exceptions_are_failed_connects_and_urgent_bytes(void)
{
    SOCKET keeper, fresh = tcp_socket(), s = tcp_socket(), near, far, listener;
    struct sockaddr_in refuses = an_address_that_refuses(&keeper), address;
    int error = 0, size = sizeof error, on = 1;
    char byte;
    CHECK_IS(selected(fresh, 7, &at_once), 0);
    CHECK_IS(selected(fresh, 7, &a_while), 0);
    set_nonblocking(s);
    CHECK_SOCKET_ERROR(connect(s, (struct sockaddr *)&refuses, sizeof refuses), WSAEWOULDBLOCK);
    CHECK_IS(selected(s, 6, &soon), 4);
    CHECK_IS(selected(s, 7, &at_once), 4);
    CHECK_IS(selected(s, 3, &a_while), 0);
    CHECK_IS(getsockopt(s, SOL_SOCKET, SO_ERROR, (char *)&error, &size), 0);
    CHECK_IS(error, WSAECONNREFUSED);
    CHECK_IS(selected(s, 7, &soon), 4);
    closesocket(s);

    /* A connect whose success is detected in another way, if at all: later errors are not its failure. */
    listener = tcp_listener(&address);
    s = tcp_socket();
    set_nonblocking(s);
    CHECK_SOCKET_ERROR(connect(s, (struct sockaddr *)&address, sizeof address), WSAEWOULDBLOCK);
    CHECK_IS(selected(s, 6, &soon), 2);
    far = accept(listener, NULL, NULL);
    abort_connection(far);
    if (getenv("TEST_IS_EMULATED") == NULL) { /* an emulator does not report whether the socket was ever connected */
        CHECK_IS(selected(s, 5, &soon), 1);
        CHECK_IS(selected(s, 4, &a_while), 0);
    }
    closesocket(s);
    s = tcp_connected_to(&address);
    far = accept(listener, NULL, NULL);
    abort_connection(s);
    CHECK_IS(selected(far, 5, &soon), 1);
    closesocket(far);
    closesocket(listener);

    tcp_pair(&near, &far);
    CHECK_IS(send(far, "!", 1, MSG_OOB), 1);
    CHECK_IS(selected(near, 4, &soon), 4);
    CHECK_IS(selected(near, 5, &soon), 4);
    CHECK_IS(recv(near, &byte, 1, MSG_OOB), 1);
    CHECK_IS(selected(near, 4, &at_once), 0);
    CHECK_IS(setsockopt(near, SOL_SOCKET, SO_OOBINLINE, (char *)&on, sizeof on), 0);
    CHECK_IS(send(far, "!", 1, MSG_OOB), 1);
    CHECK_IS(selected(near, 5, &soon), 1);
    closesocket(near);
    closesocket(far);
    closesocket(fresh);
    closesocket(keeper);
}

typedef struct Blocked {
    SOCKET s;
    int reads, count, is_there, code;
} Blocked;

static void *waits_in_select(void *argument)
{
    Blocked *it = (Blocked *)argument;
    fd_set set = set_of(it->s);
    it->count = select(0, it->reads ? &set : NULL, NULL, it->reads ? NULL : &set, NULL);
    it->code = WSAGetLastError();
    it->is_there = FD_ISSET(it->s, &set);
    return NULL;
}

/* A socket that another thread closes is readable, or an error. */
static void a_blocked_select_sees_a_socket_closed(void)
{
    int reads, attempt;
    for (reads = 0; reads <= 1; reads++) {
        for (attempt = 0; attempt < 1000; attempt++) {
            pthread_t thread;
            Blocked it;
            it.s = udp_socket();
            it.reads = reads;
            CHECK_IS(pthread_create(&thread, NULL, waits_in_select, &it), 0);
            until_the_others_sleep();
            CHECK_IS(closesocket(it.s), 0);
            CHECK_IS(pthread_join(thread, NULL), 0);
            if (it.count == 1) {
                CHECK(reads && it.is_there);
                break;
            }
            CHECK_IS(it.count, SOCKET_ERROR);
            CHECK_IS(it.code, WSAENOTSOCK);
            if (!reads)
                break; /* otherwise it was closed before the wait began */
        }
        CHECK(attempt < 1000);
    }
}

static volatile LONG64 passed_on;
static volatile LONG is_over;

static void *selects_again_and_again(void *unused)
{
    (void)unused;
    while (!InterlockedCompareExchange(&is_over, 0, 0)) {
        SOCKET s = (SOCKET)InterlockedCompareExchange64(&passed_on, 0, 0);
        fd_set set;
        FD_ZERO(&set);
        FD_SET(s, &set);
        if (select(0, &set, NULL, NULL, NULL) != 1)
            CHECK_IS(WSAGetLastError(), WSAENOTSOCK);
    }
    return NULL;
}

/* Whenever the socket is closed the wait ends, also if that is just before it begins. */
static void a_select_that_begins_sees_a_socket_closed(void)
{
    int round, rounds = is_slow() ? 200 : 3000;
    pthread_t thread;
    NOT_ON_WINE("its server fails where a number is polled of which another thread is making a socket")
    is_over = 0;
    passed_on = (LONG64)udp_socket();
    CHECK_IS(pthread_create(&thread, NULL, selects_again_and_again, NULL), 0);
    for (round = 0; round < rounds; round++) {
        volatile int delay;
        for (delay = 0; delay < round * 37 % 3000; delay++)
            continue;
        CHECK_IS(closesocket((SOCKET)passed_on), 0);
        if (round % 8 == 0)
            Sleep(1);
        InterlockedExchange64(&passed_on, (LONG64)udp_socket());
    }
    InterlockedExchange(&is_over, 1);
    CHECK_IS(closesocket((SOCKET)passed_on), 0);
    CHECK_IS(pthread_join(thread, NULL), 0);
}

/* A set in the program's own memory may be larger than FD_SETSIZE. */
static void large_sets_are_selected(void)
{
    enum { MANY = 3 * FD_SETSIZE };
    struct { u_int count; SOCKET sockets[MANY]; } set, writes;
    int i;
    set.count = MANY;
    for (i = 0; i < MANY; i++)
        set.sockets[i] = udp_socket();
    send_to_itself(set.sockets[MANY - 2]);
    writes = set;
    CHECK_IS(select(0, (fd_set *)(void *)&set, (fd_set *)(void *)&writes, NULL, LIMIT(&soon)), MANY + 1);
    CHECK_IS(set.count, 1);
    CHECK_IS(set.sockets[0], writes.sockets[MANY - 2]);
    for (i = 0; i < MANY; i++)
        closesocket(writes.sockets[i]);
}

/* ---- WSAPoll ------------------------------------------------------------------------------------------ */

static WSAPOLLFD asked(SOCKET s, SHORT events)
{
    WSAPOLLFD made;
    made.fd = s;
    made.events = events;
    made.revents = 0x7FFF;
    return made;
}

static void sockets_are_polled(void)
{
    struct sockaddr_in address;
    SOCKET listener = tcp_listener(&address), one, other, gone;
    struct pollfd sockets[3];
    WSAPOLLFD many[100];
    ULONGLONG began;
    int i;
    tcp_pair(&one, &other);
    sockets[0] = asked(one, POLLIN);
    sockets[1] = asked(INVALID_SOCKET, POLLIN);
    sockets[2] = asked(listener, POLLRDNORM);
    began = GetTickCount64();
    CHECK_IS(WSAPoll(sockets, 3, 30), 0);
    CHECK(GetTickCount64() - began >= 29);
    CHECK_IS(sockets[0].revents, 0);
    CHECK_IS(sockets[1].revents, POLLNVAL); /* and not counted */
    CHECK_IS(sockets[2].revents, 0);
    sockets[1] = asked(one, POLLOUT);
    CHECK_IS(WSAPoll(sockets, 3, -1), 1);
    CHECK_IS(sockets[1].revents & (POLLOUT | POLLIN), POLLOUT);
    send_all(other, "x", 1);
    until(one, POLLIN);
    CHECK_IS(WSAPoll(sockets, 1, 0), 1);
    CHECK(sockets[0].revents & POLLIN);

    /* A connection that waits to be accepted. */
    gone = tcp_connected_to(&address);
    CHECK_IS(WSAPoll(&sockets[2], 1, -1), 1);
    CHECK(sockets[2].revents & POLLRDNORM);
    CHECK_IS(closesocket(gone), 0);

    /* The end of the peer's stream is a hang-up, also if nothing was asked for. */
    CHECK_IS(shutdown(other, SD_SEND), 0);
    UNLESS_WINE("the end behind data is not told") {
        sockets[0] = asked(one, 0);
        CHECK_IS(WSAPoll(sockets, 1, SOON), 1);
        CHECK_IS(sockets[0].revents, POLLHUP);
    }

    /* More than a few; one of them closed. */
    for (i = 0; i < 100; i++) {
        many[i] = asked(i == 99 ? gone : listener, POLLIN);
    }
    many[0] = asked(one, POLLIN);
    CHECK(WSAPoll(many, 100, 0) >= 2);
    CHECK(many[0].revents & POLLIN);
    CHECK_IS(many[99].revents, POLLNVAL);
    CHECK_IS(closesocket(one), 0);
    CHECK_IS(closesocket(other), 0);
    CHECK_IS(closesocket(listener), 0);
}

static void what_cannot_be_polled_is_refused(void)
{
    SOCKET s = udp_socket();
    WSAPOLLFD one = asked(s, POLLIN | POLLPRI), none = asked(INVALID_SOCKET, POLLIN);
    UNLESS_WINE("a poll may ask for urgent data")
        CHECK_SOCKET_ERROR(WSAPoll(&one, 1, 0), WSAEINVAL);
    UNLESS_WINE("a poll of nothing that is open says that it is no socket")
        CHECK_SOCKET_ERROR(WSAPoll(&none, 1, 0), WSAENOTSOCK);
    CHECK_SOCKET_ERROR(WSAPoll(&one, 0, 0), WSAEINVAL);
    CHECK_SOCKET_ERROR(WSAPoll(NULL, 1, 0), WSAEFAULT);
    CHECK_IS(closesocket(s), 0);
    one = asked(s, POLLIN); /* closed, and the only one */
    UNLESS_WINE("a poll of nothing that is open says that it is no socket") {
        CHECK_SOCKET_ERROR(WSAPoll(&one, 1, -1), WSAENOTSOCK);
        CHECK_IS(one.revents, POLLNVAL);
    }
}

static void a_refused_connect_is_an_error_and_a_hang_up(void)
{
    SOCKET keeps_it_free, s = tcp_socket();
    struct sockaddr_in address = an_address_that_refuses(&keeps_it_free);
    WSAPOLLFD one = asked(s, POLLWRNORM);
    set_nonblocking(s);
    CHECK_SOCKET_ERROR(connect(s, (struct sockaddr *)&address, sizeof address), WSAEWOULDBLOCK);
    CHECK_IS(WSAPoll(&one, 1, SOON), 1);
    UNLESS_WINE("a refused connect is an error alone to a poll")
        CHECK_IS(one.revents & (POLLHUP | POLLERR | POLLWRNORM), POLLHUP | POLLERR | POLLWRNORM);
    CHECK(one.revents & POLLERR);
    CHECK_IS(closesocket(s), 0);
    CHECK_IS(closesocket(keeps_it_free), 0);
}

/* ---- WSAIoctl ------------------------------------------------------------------------------------------- */

static int option(SOCKET s, int level, int name)
{
    /* Windows writes one byte of boolean values. */
    int value = HAS_SOCKET_CALLS ? -1 : 0, size = sizeof value;
    CHECK_IS(getsockopt(s, level, name, (char *)&value, &size), 0);
    return value;
}

static void keep_alive_is_set_for_one_connection(void)
{
    SOCKET s = tcp_socket(), datagrams = udp_socket();
    struct tcp_keepalive wanted = {1, 30000, 1500};
    DWORD returned = UNTOUCHED;
    CHECK_IS(sizeof wanted, 12);
    CHECK_IS(SIO_KEEPALIVE_VALS, 0x98000004u);
    CHECK_IS(WSAIoctl(s, SIO_KEEPALIVE_VALS, &wanted, sizeof wanted, NULL, 0, &returned, NULL, NULL), 0);
    CHECK_IS(returned, 0);
    CHECK_IS(option(s, SOL_SOCKET, SO_KEEPALIVE), 1);
#if HAS_SOCKET_CALLS
    CHECK_IS(option(s, IPPROTO_TCP, TCP_KEEPIDLE), 30);
    CHECK_IS(option(s, IPPROTO_TCP, TCP_KEEPINTVL), 2); /* whole seconds, and not fewer */
    CHECK_IS(option(s, IPPROTO_TCP, TCP_KEEPCNT), 10);
#endif
    wanted.onoff = 0;
    CHECK_IS(WSAIoctl(s, SIO_KEEPALIVE_VALS, &wanted, sizeof wanted, NULL, 0, &returned, NULL, NULL), 0);
    CHECK_IS(option(s, SOL_SOCKET, SO_KEEPALIVE), 0);
#if HAS_SOCKET_CALLS
    wanted.onoff = 1;
    wanted.keepalivetime = wanted.keepaliveinterval = 0;
    CHECK_IS(WSAIoctl(s, SIO_KEEPALIVE_VALS, &wanted, sizeof wanted, NULL, 0, &returned, NULL, NULL), 0);
    CHECK_IS(option(s, IPPROTO_TCP, TCP_KEEPIDLE), 1);
    wanted.keepalivetime = wanted.keepaliveinterval = 0xFFFFFFFF;
    CHECK_IS(WSAIoctl(s, SIO_KEEPALIVE_VALS, &wanted, sizeof wanted, NULL, 0, &returned, NULL, NULL), 0);
    CHECK_IS(option(s, IPPROTO_TCP, TCP_KEEPIDLE), 32767);
    CHECK_SOCKET_ERROR(WSAIoctl(datagrams, SIO_KEEPALIVE_VALS, &wanted, 12, NULL, 0, &returned, NULL, NULL),
                       WSAENOPROTOOPT);
#endif
    CHECK_SOCKET_ERROR(WSAIoctl(s, SIO_KEEPALIVE_VALS, &wanted, 8, NULL, 0, &returned, NULL, NULL), WSAEFAULT);
    CHECK_SOCKET_ERROR(WSAIoctl(s, SIO_KEEPALIVE_VALS, NULL, 12, NULL, 0, &returned, NULL, NULL), WSAEFAULT);
    CHECK_SOCKET_ERROR(WSAIoctl(s, SIO_KEEPALIVE_VALS, &wanted, 12, NULL, 0, NULL, NULL, NULL), WSAEFAULT);
    CHECK_SOCKET_ERROR(WSAIoctl(INVALID_SOCKET, SIO_KEEPALIVE_VALS, &wanted, 12, NULL, 0, &returned, NULL, NULL),
                       WSAENOTSOCK);
    CHECK_IS(closesocket(s), 0);
    CHECK_IS(closesocket(datagrams), 0);
}

static void other_commands(void)
{
    SOCKET s = udp_socket();
    struct sockaddr_in address = bind_to_loopback(s);
    DWORD on = 1, off = 0, unread = UNTOUCHED, returned = 0;
    char byte;
    CHECK_IS(WSAIoctl(s, FIONBIO, &on, sizeof on, NULL, 0, &returned, NULL, NULL), 0);
    CHECK_SOCKET_ERROR(recv(s, &byte, 1, 0), WSAEWOULDBLOCK);
    send_to(s, "abc", 3, &address);
    until(s, POLLIN);
    CHECK_IS(WSAIoctl(s, FIONREAD, NULL, 0, &unread, sizeof unread, &returned, NULL, NULL), 0);
    CHECK_IS(unread, 3);
    CHECK_IS(returned, 4);
    CHECK_IS(WSAIoctl(s, SIO_UDP_CONNRESET, &off, sizeof off, NULL, 0, &returned, NULL, NULL), 0);
#if HAS_SOCKET_CALLS
    CHECK_SOCKET_ERROR(WSAIoctl(s, SIO_UDP_CONNRESET, &on, sizeof on, NULL, 0, &returned, NULL, NULL), WSAEOPNOTSUPP);
    CHECK_SOCKET_ERROR(WSAIoctl(s, SIO_LOOPBACK_FAST_PATH, &on, sizeof on, NULL, 0, &returned, NULL, NULL),
                       WSAEOPNOTSUPP);
#endif
    CHECK_IS(closesocket(s), 0);
    UNLESS_WINE("errors of datagrams are turned off of a number that names nothing")
        CHECK_SOCKET_ERROR(WSAIoctl(s, SIO_UDP_CONNRESET, &off, sizeof off, NULL, 0, &returned, NULL, NULL), WSAENOTSOCK);
}

/* ---- addresses ------------------------------------------------------------------------------------------- */

static void addresses_have_text(void)
{
    struct in_addr address;
    struct in6_addr longer, again;
    char text[INET6_ADDRSTRLEN];
    WCHAR wide[INET6_ADDRSTRLEN];
    CHECK_IS(InetPtonA(AF_INET, "127.0.0.1", &address), 1);
    CHECK_IS(address.s_addr, htonl(INADDR_LOOPBACK));
    CHECK_IS(InetPtonA(AF_INET, "127.0.0", &address), 0);
    CHECK_IS(InetPtonW(AF_INET, L"10.1.2.3", &address), 1);
    CHECK_IS(address.s_addr, htonl(0x0A010203));
    CHECK_IS(InetPtonW(AF_INET, L"\x0661.1.2.3", &address), 0);
    CHECK_IS(InetPtonW(AF_INET6, L"2001:db8:1111:2222:3333:4444:5555:6666:7777:8888:9999", &longer), 0);
    CHECK_IS(InetPton(AF_INET6, TEXT("2001:db8::1"), &longer), 1);
    CHECK(InetNtop(AF_INET6, &longer, text, sizeof text) == text);
    CHECK(strcmp(text, "2001:db8::1") == 0);
    CHECK(InetNtopW(AF_INET6, &longer, wide, INET6_ADDRSTRLEN) == wide);
    CHECK_IS(InetPtonW(AF_INET6, wide, &again), 1);
    CHECK(memcmp(&again, &longer, sizeof again) == 0);
    SetLastError(0);
    CHECK(InetNtopA(AF_INET6, &longer, text, 5) == NULL);
    UNLESS_WINE("text of an address without room has a status as its error")
        CHECK_IS(GetLastError(), ERROR_INVALID_PARAMETER);
    SetLastError(0);
    CHECK(InetNtopW(AF_INET6, &longer, wide, 11) == NULL);
    UNLESS_WINE("text of an address without room has a status as its error")
        CHECK_IS(GetLastError(), ERROR_INVALID_PARAMETER);
    CHECK_SOCKET_ERROR(InetPtonA(12345, "127.0.0.1", &address), WSAEAFNOSUPPORT);
    SetLastError(0);
    CHECK(InetNtopA(12345, &address, text, sizeof text) == NULL);
    CHECK_IS(WSAGetLastError(), WSAEAFNOSUPPORT);
    CHECK_SOCKET_ERROR(InetPtonA(AF_INET, NULL, &address), WSAEFAULT);
}

static void addresses_have_parts(void)
{
    SOCKADDR_IN address;
    uint64_t wide;
    memset(&address, 0, sizeof address);
    address.sin_addr.S_un.S_addr = htonl(0x0A0B0C0D);
    CHECK_IS(address.sin_addr.s_addr, htonl(0x0A0B0C0D));
    CHECK_IS(address.sin_addr.S_un.S_un_b.s_b1, 10);
    CHECK_IS(address.sin_addr.S_un.S_un_b.s_b4, 13);
    CHECK_IS(address.sin_addr.S_un.S_un_w.s_w2, htons(0x0C0D));
    CHECK_IS(sizeof address, 16);
    CHECK_IS(sizeof address.sin_addr, 4);
    CHECK_IS(ntohll(htonll(0x0102030405060708)), 0x0102030405060708);
    wide = htonll(0x0102030405060708);
    CHECK_IS(*(const BYTE *)&wide, 1);
}

int main(void)
{
    start();
#if HAS_SOCKET_CALLS
    protocols_are_told_and_sockets_made_of_them();
    a_socket_tells_its_protocol();
#endif
    a_socket_is_duplicated();
    lingering_is_turned_off_by_either_option();
    a_handle_is_inherited_or_not();
    a_server_starts_again_at_its_port();
    a_client_starts_again_at_its_port();
    a_port_is_shared_or_exclusive();
#if HAS_SOCKET_CALLS
    a_port_is_shared_by_those_who_want_that();
    a_server_that_begins_to_listen_keeps_its_port();
#endif
    room_is_what_the_program_has_set();
#if HAS_SOCKET_CALLS
    receives_in_flight_are_room_for_datagrams(-1);
    receives_in_flight_are_room_for_datagrams(0);
    receives_in_flight_are_room_for_datagrams(20000);
#endif
    sets_are_counts_and_arrays();
    sockets_are_selected();
    what_cannot_be_selected_is_refused();
    exceptions_are_failed_connects_and_urgent_bytes();
    a_blocked_select_sees_a_socket_closed();
    a_select_that_begins_sees_a_socket_closed();
    large_sets_are_selected();
    sockets_are_polled();
    what_cannot_be_polled_is_refused();
    a_refused_connect_is_an_error_and_a_hang_up();
    keep_alive_is_set_for_one_connection();
    other_commands();
    addresses_have_text();
    addresses_have_parts();
    return finish();
}
