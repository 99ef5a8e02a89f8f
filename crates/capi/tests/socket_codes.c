/* What socket calls return where the system's own call has another answer than Windows: the codes and the last error. */
#include <stdlib.h>
#ifndef FD_SETSIZE /* it isn't, whatever a system header has for its own sets */
#define FD_SETSIZE 100
#endif
#include <winsock2.h>
#include <mswsock.h>
#include <ws2tcpip.h>
#include <windows.h>

#include "check.h"

typedef char a_set_has_the_room_that_the_program_defines[sizeof(fd_set) == 101 * sizeof(SOCKET) ? 1 : -1];

/* ---- shutdown ------------------------------------------------------------------------------------------- */

/* A shutdown that fails leaves no trace on the connection that comes after it. */
static void a_stream_without_a_peer_is_not_shut(void)
{
    struct sockaddr_in address;
    SOCKET listener = tcp_listener(&address), s = tcp_socket(), other;
    char bytes[4];
    CHECK_SOCKET_ERROR(shutdown(s, SD_SEND), WSAENOTCONN);
    CHECK_SOCKET_ERROR(shutdown(s, SD_RECEIVE), WSAENOTCONN);
    CHECK_SOCKET_ERROR(shutdown(s, SD_BOTH), WSAENOTCONN);
    CHECK_SOCKET_ERROR(shutdown(s, 3), WSAEINVAL);
    CHECK_IS(connect(s, (struct sockaddr *)&address, sizeof address), 0);
    other = accept(listener, NULL, NULL);
    CHECK(other != INVALID_SOCKET);
    send_all(s, "sent", 4);
    receive_all(other, bytes, 4);
    send_all(other, "back", 4);
    receive_all(s, bytes, 4);
    CHECK_IS(shutdown(other, SD_SEND), 0);
    CHECK_IS(recv(s, bytes, 4, 0), 0); /* the peer's end, not its own */
    CHECK_IS(closesocket(s), 0);
    CHECK_IS(closesocket(other), 0);
    CHECK_IS(closesocket(listener), 0);
}

/* Each sort of receive; a stream's bytes that have come before are not received any more either. */
static void what_is_shut_receives_nothing(void)
{
    struct sockaddr_in address;
    SOCKET s, other, pair[2];
    OVERLAPPED overlapped;
    char byte;
    WSABUF buffer;
    DWORD count = 0, flags = 0;
    int way;
    buffer.buf = &byte;
    buffer.len = 1;
    tcp_pair(&pair[0], &pair[1]);
    s = udp_socket();
    address = bind_to_loopback(s);
    other = udp_socket();
    send_all(pair[1], "x", 1);
    send_to(other, "x", 1, &address);
    CHECK_IS(shutdown(pair[0], SD_RECEIVE), 0);
    CHECK_IS(shutdown(s, SD_RECEIVE), 0); /* a datagram socket needs no peer for that */
    for (way = 0; way < 2; way++) {
        SOCKET shut = way == 0 ? pair[0] : s;
        memset(&overlapped, 0, sizeof overlapped);
        CHECK_SOCKET_ERROR(recv(shut, &byte, 1, 0), WSAESHUTDOWN);
        CHECK_SOCKET_ERROR(recvfrom(shut, &byte, 1, 0, NULL, NULL), WSAESHUTDOWN);
        CHECK_SOCKET_ERROR(WSARecv(shut, &buffer, 1, &count, &flags, NULL, NULL), WSAESHUTDOWN);
        CHECK_SOCKET_ERROR(WSARecv(shut, &buffer, 1, NULL, &flags, &overlapped, NULL), WSAESHUTDOWN);
        CHECK_SOCKET_ERROR(WSARecvFrom(shut, &buffer, 1, NULL, &flags, NULL, NULL, &overlapped, NULL), WSAESHUTDOWN);
    }
    send_all(pair[0], "y", 1); /* the other half is open */
    receive_all(pair[1], &byte, 1);
    send_to(s, "y", 1, &address);
    CHECK_IS(closesocket(pair[0]), 0);
    CHECK_IS(closesocket(pair[1]), 0);
    CHECK_IS(closesocket(s), 0);
    CHECK_IS(closesocket(other), 0);
}

static void a_datagram_socket_that_is_shut_sends_nothing(void)
{
    struct sockaddr_in address;
    SOCKET s = udp_socket(), receiver = udp_socket();
    address = bind_to_loopback(receiver);
    bind_to_loopback(s);
    CHECK_IS(shutdown(s, SD_SEND), 0);
    CHECK_IS(shutdown(s, SD_SEND), 0);
    CHECK_SOCKET_ERROR(sendto(s, "x", 1, 0, (struct sockaddr *)&address, sizeof address), WSAESHUTDOWN);
    CHECK_IS(closesocket(s), 0);
    CHECK_IS(closesocket(receiver), 0);
}

/* ---- connect -------------------------------------------------------------------------------------------- */

/* Also behind one that had to wait, whose end a program may learn by asking again. */
static void a_second_connect_says_that_there_is_a_connection(void)
{
    struct sockaddr_in address;
    SOCKET listener = tcp_listener(&address), s = tcp_socket();
    fd_set writes;
    set_nonblocking(s);
    CHECK_SOCKET_ERROR(connect(s, (struct sockaddr *)&address, sizeof address), WSAEWOULDBLOCK);
    FD_ZERO(&writes);
    FD_SET(s, &writes);
    CHECK_IS(select(0, NULL, &writes, NULL, NULL), 1);
    CHECK_SOCKET_ERROR(connect(s, (struct sockaddr *)&address, sizeof address), WSAEISCONN);
    CHECK_SOCKET_ERROR(connect(s, (struct sockaddr *)&address, sizeof address), WSAEISCONN);
    CHECK_IS(closesocket(s), 0);
    /* A datagram socket may be connected again. */
    s = udp_socket();
    CHECK_IS(connect(s, (struct sockaddr *)&address, sizeof address), 0);
    CHECK_IS(connect(s, (struct sockaddr *)&address, sizeof address), 0);
    CHECK_IS(closesocket(s), 0);
    CHECK_IS(closesocket(listener), 0);
}

static void what_an_accept_has_is_not_connected(void)
{
    struct sockaddr_in address;
    SOCKET listener = tcp_listener(&address), given = tcp_socket();
    char room[2 * (sizeof(struct sockaddr_in) + 16)];
    OVERLAPPED overlapped;
    memset(&overlapped, 0, sizeof overlapped);
    CHECK_FALSE(AcceptEx(listener, given, room, 0, sizeof room / 2, sizeof room / 2, NULL, &overlapped), WSA_IO_PENDING);
    CHECK_SOCKET_ERROR(connect(given, (struct sockaddr *)&address, sizeof address), WSAEINVAL);
    CHECK_IS(closesocket(listener), 0);
    CHECK_IS(closesocket(given), 0);
}

/* The block of the local address may be left out. */
static void an_accept_may_tell_the_peer_alone(void)
{
    struct sockaddr_in address, peer;
    SOCKET listener = tcp_listener(&address), given = tcp_socket(), s;
    struct sockaddr *local = (struct sockaddr *)&address, *remote = NULL;
    char room[sizeof(struct sockaddr_in) + 16];
    OVERLAPPED overlapped;
    DWORD count = UNTOUCHED;
    int local_size = 77, remote_size = 0, size = (int)sizeof peer;
    memset(&overlapped, 0, sizeof overlapped);
    overlapped.hEvent = CreateEventA(NULL, TRUE, FALSE, NULL);
    CHECK_FALSE(AcceptEx(listener, given, room, 0, 0, sizeof room, NULL, &overlapped), WSA_IO_PENDING);
    s = tcp_connected_to(&address);
    CHECK_IS(getsockname(s, (struct sockaddr *)&peer, &size), 0);
    CHECK(GetOverlappedResult((HANDLE)listener, &overlapped, &count, TRUE));
    CHECK_IS(count, 0);
    GetAcceptExSockaddrs(room, 0, 0, sizeof room, &local, &local_size, &remote, &remote_size);
    CHECK(local == (struct sockaddr *)&address);
    CHECK_IS(local_size, 77);
    CHECK_IS(remote_size, sizeof peer);
    CHECK_IS(((struct sockaddr_in *)(void *)remote)->sin_port, peer.sin_port);
    send_all(s, "x", 1);
    receive_all(given, room, 1);
    CHECK_IS(closesocket(s), 0);
    CHECK_IS(closesocket(given), 0);
    CHECK_IS(closesocket(listener), 0);
    CloseHandle(overlapped.hEvent);
}

/* ---- socket --------------------------------------------------------------------------------------------- */

static void what_the_protocol_says_may_be_left_out(void)
{
    static const struct {
        int family, type, protocol, code, made;
    } cases[] = {
        {AF_INET, 0, IPPROTO_TCP, 0, SOCK_STREAM},
        {AF_INET, 0, IPPROTO_UDP, 0, SOCK_DGRAM},
        {AF_INET, 0, 0, 0, SOCK_STREAM},
        {AF_INET6, 0, IPPROTO_UDP, 0, SOCK_DGRAM},
        {AF_UNSPEC, 0, IPPROTO_TCP, 0, SOCK_STREAM},
        {AF_UNSPEC, SOCK_DGRAM, IPPROTO_UDP, 0, SOCK_DGRAM},
        {AF_UNSPEC, SOCK_STREAM, 0, WSAEINVAL, 0},
        {AF_UNSPEC, 0, 0, WSAEINVAL, 0},
        {AF_UNSPEC, 0xdead, 0, WSAEINVAL, 0},
        {AF_UNSPEC, SOCK_STREAM, 0xdead, WSAEPROTONOSUPPORT, 0},
        {AF_UNSPEC, 0xdead, IPPROTO_UDP, WSAESOCKTNOSUPPORT, 0},
        {AF_INET, 0xdead, IPPROTO_TCP, WSAESOCKTNOSUPPORT, 0},
        {AF_INET, -1, IPPROTO_TCP, WSAESOCKTNOSUPPORT, 0},
        {AF_INET, 0, 0xdead, WSAEPROTONOSUPPORT, 0},
        {AF_INET, SOCK_STREAM, 0xdead, WSAEPROTONOSUPPORT, 0},
        {AF_INET, SOCK_STREAM, IPPROTO_UDP, WSAEPROTONOSUPPORT, 0},
        {0xdead, SOCK_STREAM, IPPROTO_TCP, WSAEAFNOSUPPORT, 0},
        {0xdead, 0xdead, IPPROTO_TCP, WSAESOCKTNOSUPPORT, 0},
    };
    unsigned i;
    for (i = 0; i < sizeof cases / sizeof *cases; i++) {
        int way, type = 0, size = (int)sizeof type;
        for (way = 0; way < 2; way++) {
            SOCKET s;
            WSASetLastError(77);
            s = way == 0 ? (SOCKET)socket(cases[i].family, cases[i].type, cases[i].protocol)
                         : WSASocketA(cases[i].family, cases[i].type, cases[i].protocol, NULL, 0, WSA_FLAG_OVERLAPPED);
            CHECK_IS(WSAGetLastError(), cases[i].code);
            CHECK_IS(s == INVALID_SOCKET, cases[i].code != 0);
            if (s == INVALID_SOCKET)
                continue;
            CHECK_IS(getsockopt(s, SOL_SOCKET, SO_TYPE, (char *)&type, &size), 0);
            CHECK_IS(type, cases[i].made);
            CHECK_IS(closesocket(s), 0);
        }
    }
}

/* WSASocket takes missing arguments from the description. */
static void a_description_fills_in_what_is_left_out(void)
{
    WSAPROTOCOL_INFOA infos[8];
    DWORD room = sizeof infos, sent = 0;
    INT wanted[] = {IPPROTO_UDP, 0};
    int type = 0, size = (int)sizeof type;
    char byte = 'x';
    WSABUF buffer;
    SOCKET s;
    buffer.buf = &byte;
    buffer.len = 1;
    CHECK(WSAEnumProtocolsA(wanted, infos, &room) >= 1);
    s = WSASocketA(0, 0, 0, infos, 0, WSA_FLAG_OVERLAPPED);
    CHECK(s != INVALID_SOCKET);
    CHECK_IS(getsockopt(s, SOL_SOCKET, SO_TYPE, (char *)&type, &size), 0);
    CHECK_IS(type, SOCK_DGRAM);
    CHECK_SOCKET_ERROR(WSASend(s, &buffer, 1, NULL, 0, NULL, NULL), WSAEFAULT);
    CHECK_IS(closesocket(s), 0);
    CHECK_SOCKET_ERROR(WSASend(INVALID_SOCKET, &buffer, 1, NULL, 0, NULL, NULL), WSAENOTSOCK);
    CHECK_SOCKET_ERROR(WSASend(s, &buffer, 1, &sent, 0, NULL, NULL), WSAENOTSOCK);
}

static void options_that_no_socket_has(void)
{
    SOCKET s = udp_socket();
    struct linger linger;
    DWORD seconds = 0;
    int value = 1, size = (int)sizeof value;
    CHECK_SOCKET_ERROR(getsockopt(s, 0x1234ffff, 1, (char *)&value, &size), WSAEINVAL);
    CHECK_SOCKET_ERROR(getsockopt(s, -1, 1, (char *)&value, &size), WSAEINVAL);
    CHECK_SOCKET_ERROR(setsockopt(s, 0x1234ffff, 1, (char *)&value, sizeof value), WSAEINVAL);
    size = (int)sizeof linger;
    CHECK_SOCKET_ERROR(getsockopt(s, SOL_SOCKET, SO_LINGER, (char *)&linger, &size), WSAENOPROTOOPT);
    size = (int)sizeof seconds;
    CHECK_IS(getsockopt(s, SOL_SOCKET, SO_CONNECT_TIME, (char *)&seconds, &size), 0);
    CHECK_IS(seconds, 0xFFFFFFFF); /* a datagram socket is never connected */
    CHECK_IS(closesocket(s), 0);
}

/* ---- results -------------------------------------------------------------------------------------------- */

/* The last error is that of the last socket call, also if that has succeeded; but what cleans up leaves it alone. */
static void success_is_the_last_error_too(void)
{
    struct sockaddr_in address;
    struct pollfd one;
    SOCKET pair[2], s = tcp_socket(), gone = tcp_socket();
    char byte = 'x';
    WSABUF buffer;
    DWORD count = 0, flags = 0;
    int value = 1, size = (int)sizeof value;
    u_long left;
    buffer.buf = &byte;
    buffer.len = 1;
#define CLEARS(call, result) (WSASetLastError(77), CHECK_IS((call), (result)), CHECK_IS(WSAGetLastError(), 0))
    address = loopback();
    CLEARS(bind(s, (struct sockaddr *)&address, sizeof address), 0);
    tcp_pair(&pair[0], &pair[1]);
    CLEARS(send(pair[0], &byte, 1, 0), 1);
    CLEARS(recv(pair[1], &byte, 1, 0), 1);
    CLEARS(WSASend(pair[0], &buffer, 1, &count, 0, NULL, NULL), 0);
    CLEARS(WSARecv(pair[1], &buffer, 1, &count, &flags, NULL, NULL), 0);
    CLEARS(setsockopt(s, SOL_SOCKET, SO_KEEPALIVE, (char *)&value, sizeof value), 0);
    CLEARS(getsockopt(s, SOL_SOCKET, SO_KEEPALIVE, (char *)&value, &size), 0);
    CLEARS(ioctlsocket(s, FIONREAD, &left), 0);
    one.fd = pair[0];
    one.events = POLLOUT;
    CLEARS(WSAPoll(&one, 1, 0), 1);
    CLEARS(shutdown(pair[0], SD_SEND), 0);
    WSASetLastError(77);
    CHECK_IS(closesocket(gone), 0);
    CHECK_IS(WSAGetLastError(), 77);
    CHECK_IS(closesocket(pair[0]), 0);
    CHECK_IS(closesocket(pair[1]), 0);
    CHECK_IS(closesocket(s), 0);
}

/* A status that the program has stored, whose sign it may have extended. */
static void a_status_has_32_bits(void)
{
    SOCKET s = tcp_socket();
    OVERLAPPED overlapped;
    DWORD count, flags;
    memset(&overlapped, 0, sizeof overlapped);
    overlapped.InternalHigh = 5;
    overlapped.Internal = (ULONG_PTR)(LONG_PTR)(LONG)0xC0000120;
    CHECK_FALSE(WSAGetOverlappedResult(s, &overlapped, &count, FALSE, &flags), WSA_OPERATION_ABORTED);
    overlapped.Internal = (ULONG_PTR)(LONG_PTR)(LONG)0xC000020D;
    CHECK_FALSE(WSAGetOverlappedResult(s, &overlapped, &count, FALSE, &flags), WSAECONNRESET);
    overlapped.Internal = 0xC0000023;
    CHECK_FALSE(WSAGetOverlappedResult(s, &overlapped, &count, FALSE, &flags), WSAEFAULT);
    overlapped.Internal = 0xC000C0DE; /* no code of its own */
    CHECK_FALSE(WSAGetOverlappedResult(s, &overlapped, &count, FALSE, &flags), WSAEINVAL);
    /* Without a place for the flags the call still stores the count. */
    overlapped.Internal = 0;
    count = UNTOUCHED;
    CHECK_FALSE(WSAGetOverlappedResult(s, &overlapped, &count, FALSE, NULL), WSAEFAULT);
    CHECK_IS(count, 5);
    CHECK_IS(closesocket(s), 0);
}

/* ---- urgent data ---------------------------------------------------------------------------------------- */

static SHORT polled(SOCKET s, SHORT events)
{
    struct pollfd one;
    one.fd = s;
    one.events = events;
    one.revents = 0;
    CHECK(WSAPoll(&one, 1, 0) == (one.revents != 0));
    return one.revents;
}

static u_long is_at_mark(SOCKET s)
{
    u_long is_it = 77;
    CHECK_IS(ioctlsocket(s, SIOCATMARK, &is_it), 0);
    return is_it;
}

static void urgent_data_is_a_band_of_its_own(void)
{
    SOCKET s, other;
    struct pollfd one;
    char byte;
    int on = 1;
    tcp_pair(&s, &other);
    CHECK_IS(is_at_mark(s), 1); /* no urgent data */
    send_all(other, "ab", 2);
    CHECK_IS(send(other, "!", 1, MSG_OOB), 1);
    one.fd = s;
    one.events = POLLRDBAND;
    CHECK_IS(WSAPoll(&one, 1, SOON), 1);
    CHECK_IS(one.revents, POLLRDBAND);
    CHECK_IS(is_at_mark(s), 0);
    CHECK_IS(polled(s, POLLRDNORM | POLLRDBAND), POLLRDNORM | POLLRDBAND);
    CHECK_IS(recv(s, &byte, 1, MSG_OOB), 1);
    CHECK_IS(byte, '!');
    CHECK_IS(polled(s, POLLRDBAND | POLLRDNORM), POLLRDNORM);
    receive_all(s, &byte, 1);
    receive_all(s, &byte, 1);
    CHECK_IS(is_at_mark(s), 1);
    CHECK_IS(polled(s, POLLRDNORM | POLLRDBAND | POLLWRNORM), POLLWRNORM);
    /* In line with the rest it is like that. */
    CHECK_IS(setsockopt(s, SOL_SOCKET, SO_OOBINLINE, (char *)&on, sizeof on), 0);
    CHECK_IS(send(other, "!", 1, MSG_OOB), 1);
    one.events = POLLRDNORM;
    CHECK_IS(WSAPoll(&one, 1, SOON), 1);
    CHECK_IS(one.revents, POLLRDNORM);
    CHECK_IS(polled(s, POLLRDBAND), 0);
    CHECK_IS(closesocket(s), 0);
    CHECK_IS(closesocket(other), 0);
}

/* The buffer is not touched, and nothing is received or sent. */
static void a_negative_number_of_bytes_is_refused(void)
{
    struct sockaddr_in address;
    SOCKET near, far, s = udp_socket();
    char bytes[5] = "none";
    int size = -1;
    tcp_pair(&near, &far);
    address = bind_to_loopback(s);
    send_all(far, "data", 4);
    CHECK_SOCKET_ERROR(recv(near, bytes, size, 0), WSAEFAULT);
    CHECK_SOCKET_ERROR(recvfrom(near, bytes, size, 0, NULL, NULL), WSAEFAULT);
    CHECK_SOCKET_ERROR(send(near, bytes, size, 0), WSAEFAULT);
    CHECK_SOCKET_ERROR(sendto(s, bytes, size, 0, (struct sockaddr *)&address, sizeof address), WSAEFAULT);
    CHECK(memcmp(bytes, "none", 4) == 0);
    receive_all(near, bytes, 4);
    CHECK(memcmp(bytes, "data", 4) == 0);
    send_all(near, "back", 4);
    receive_all(far, bytes, 4);
    CHECK(memcmp(bytes, "back", 4) == 0);
    CHECK_IS(closesocket(near), 0);
    CHECK_IS(closesocket(far), 0);
    CHECK_IS(closesocket(s), 0);
}

int main(void)
{
    start();
    a_negative_number_of_bytes_is_refused();
    a_stream_without_a_peer_is_not_shut();
    what_is_shut_receives_nothing();
    a_datagram_socket_that_is_shut_sends_nothing();
    a_second_connect_says_that_there_is_a_connection();
    what_an_accept_has_is_not_connected();
    an_accept_may_tell_the_peer_alone();
    what_the_protocol_says_may_be_left_out();
    a_description_fills_in_what_is_left_out();
    options_that_no_socket_has();
    success_is_the_last_error_too();
    a_status_has_32_bits();
    urgent_data_is_a_band_of_its_own();
    return finish();
}
