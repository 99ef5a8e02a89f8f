/* WSASend, WSARecv and the like in their plain form; connections by WSAAccept and WSAConnect. */
#include <winsock2.h>
#include <mswsock.h>
#include <windows.h>

#ifndef _WIN32
#include <sys/mman.h>
#endif

#include "check.h"

static WSABUF buffer(char *bytes, ULONG size)
{
    WSABUF made;
    made.len = size;
    made.buf = bytes;
    return made;
}

/* ---- streams ---------------------------------------------------------------------------------------- */

static void several_buffers_are_one_stream(void)
{
    char head[] = "GET ", tail[] = "/index", first[3], second[16];
    WSABUF out[2], in[2];
    DWORD sent = UNTOUCHED, received = UNTOUCHED, flags = 0;
    SOCKET one, other;
    tcp_pair(&one, &other);
    out[0] = buffer(head, 4);
    out[1] = buffer(tail, 6);
    CHECK_IS(WSASend(one, out, 2, &sent, 0, NULL, NULL), 0);
    CHECK_IS(sent, 10);
    in[0] = buffer(first, sizeof first);
    in[1] = buffer(second, sizeof second);
    flags = MSG_PEEK;
    CHECK_IS(WSARecv(other, in, 2, &received, &flags, NULL, NULL), 0);
    CHECK_IS(received, 10);
    UNLESS_WINE("the flags of a receive stay as they were")
        CHECK_IS(flags, 0); /* requested flags are not returned */
    flags = 0;
    memset(second, 0, sizeof second);
    CHECK_IS(WSARecv(other, in, 2, &received, &flags, NULL, NULL), 0);
    CHECK_IS(received, 10);
    CHECK(memcmp(first, "GET", 3) == 0 && memcmp(second, " /index", 7) == 0);

    /* The end of the stream is 0 bytes, and no error. */
    CHECK_IS(shutdown(one, SD_SEND), 0);
    CHECK_IS(WSARecv(other, in, 2, &received, &flags, NULL, NULL), 0);
    CHECK_IS(received, 0);
    CHECK_SOCKET_ERROR(WSASend(one, out, 2, &sent, 0, NULL, NULL), WSAESHUTDOWN);
    abort_connection(other);
    until(one, POLLHUP);
    UNLESS_WINE("a poll takes the error of a reset") {
        CHECK_SOCKET_ERROR(WSARecv(one, in, 2, &received, &flags, NULL, NULL), WSAECONNRESET);
        CHECK_SOCKET_ERROR(WSARecv(one, in, 2, &received, &flags, NULL, NULL), WSAECONNRESET); /* each time */
    }
    CHECK_IS(closesocket(one), 0);
    CHECK_SOCKET_ERROR(WSARecv(one, in, 2, &received, &flags, NULL, NULL), WSAENOTSOCK);
}

static void what_cannot_be_is_refused(void)
{
    char bytes[4] = "abc";
    WSABUF one = buffer(bytes, sizeof bytes), many[1025];
    DWORD count = 0, flags = 0;
    SOCKET s, other;
    size_t i;
    tcp_pair(&s, &other);
    set_nonblocking(s);
    CHECK_SOCKET_ERROR(WSARecv(s, &one, 1, &count, &flags, NULL, NULL), WSAEWOULDBLOCK);
    CHECK_SOCKET_ERROR(WSARecv(s, NULL, 1, &count, &flags, NULL, NULL), WSAEFAULT);
    UNLESS_WINE("a call without buffers is no mistake")
        CHECK_SOCKET_ERROR(WSARecv(s, &one, 0, &count, &flags, NULL, NULL), WSAEINVAL);
    CHECK_SOCKET_ERROR(WSARecv(s, &one, 1, &count, NULL, NULL, NULL), WSAEFAULT);
#if HAS_SOCKET_CALLS /* Windows may look for the place of the count when there is one. */
    CHECK_SOCKET_ERROR(WSARecv(s, &one, 1, NULL, &flags, NULL, NULL), WSAEFAULT);
#endif
    CHECK_SOCKET_ERROR(WSASend(s, &one, 1, NULL, 0, NULL, NULL), WSAEFAULT);
    CHECK_SOCKET_ERROR(WSASend(s, NULL, 1, &count, 0, NULL, NULL), WSAEFAULT);
    for (i = 0; i < 1025; i++) {
        many[i] = buffer(bytes, 1);
    }
    UNLESS_WINE("more than 1,024 buffers are too many") {
        CHECK_IS(WSASend(s, many, 1025, &count, 0, NULL, NULL), 0);
        CHECK_IS(count, 1025);
    }
    CHECK_IS(closesocket(s), 0);
    CHECK_IS(closesocket(other), 0);
}

#if HAS_NOTIFICATIONS
/* A port reports new data once, and enabling costs nothing after a read that has found the end. */
static void a_read_into_buffers_drains_as_any_other(void)
{
    char bytes[64];
    WSABUF in = buffer(bytes, sizeof bytes);
    DWORD received, flags = 0;
    SOCKET one, other;
    HANDLE port = new_port(1);
    int i;
    tcp_pair(&one, &other);
    set_nonblocking(one);
    CHECK_IS(enable(port, one, 7, FILTER_IN, LEVEL_ONCE), ERROR_SUCCESS);
    for (i = 0; i < 3; i++) {
        send_all(other, "data", 4);
        CHECK_NEXT(port, 7, SOCK_NOTIFY_EVENT_IN);
        CHECK_IS(WSARecv(one, &in, 1, &received, &flags, NULL, NULL), 0);
        CHECK_IS(received, 4);
        CHECK_IS(enable(port, one, 7, FILTER_IN, LEVEL_ONCE), ERROR_SUCCESS);
        CHECK(is_silent(port));
    }
    CHECK_IS(closesocket(one), 0);
    CHECK_IS(closesocket(other), 0);
    CHECK_IS(CloseHandle(port), TRUE);
}

#endif

/* ---- datagrams ---------------------------------------------------------------------------------------- */

static void a_datagram_is_cut_and_told(void)
{
    char head[] = "ab", tail[] = "cdef", first[2], second[8];
    WSABUF out[2], in[2];
    DWORD sent, received = UNTOUCHED, flags = 0;
    SOCKET s = udp_socket(), from = udp_socket();
    struct sockaddr_in to = bind_to_loopback(s), sender = bind_to_loopback(from);
    struct sockaddr_in told[2];
    int size = sizeof told[0];
    out[0] = buffer(head, 2);
    out[1] = buffer(tail, 4);
    in[0] = buffer(first, sizeof first);
    in[1] = buffer(second, sizeof second);
    CHECK_IS(WSASendTo(from, out, 2, &sent, 0, (struct sockaddr *)&to, sizeof to, NULL, NULL), 0);
    CHECK_IS(sent, 6);
    CHECK_IS(WSARecvFrom(s, in, 2, &received, &flags, (struct sockaddr *)told, &size, NULL, NULL), 0);
    CHECK_IS(received, 6);
    CHECK_IS(flags, 0);
    CHECK_IS(size, sizeof told[0]);
    CHECK_IS(told[0].sin_port, sender.sin_port);
    CHECK(memcmp(first, "ab", 2) == 0 && memcmp(second, "cdef", 4) == 0);
    CHECK_IS(WSASendTo(from, out, 2, &sent, 0, (struct sockaddr *)&to, sizeof to, NULL, NULL), 0);
    in[1] = buffer(second, 1);
    second[1] = 'X';
    memset(told, 0, sizeof told);
    size = sizeof told;
    CHECK_SOCKET_ERROR(WSARecvFrom(s, in, 2, &received, &flags, (struct sockaddr *)told, &size, NULL, NULL),
                       WSAEMSGSIZE);
    CHECK_IS(size, sizeof told[0]);
    CHECK_IS(told[0].sin_port, sender.sin_port);
    UNLESS_WINE("of a datagram that was cut neither flags nor count are told") {
        CHECK_IS(flags, MSG_PARTIAL);
        CHECK_IS(received, 3);
    }
    CHECK(second[0] == 'c' && second[1] == 'X');
    CHECK_IS(closesocket(s), 0);
    CHECK_IS(closesocket(from), 0);
}

/* ---- an OVERLAPPED --------------------------------------------------------------------------------------- */

/* A function that passes its own argument on may be given NULL. */
static int sends(SOCKET s, WSABUF *out, const struct sockaddr_in *to, LPWSAOVERLAPPED overlapped)
{
    DWORD sent = UNTOUCHED;
    int done = to ? WSASendTo(s, out, 1, &sent, 0, (const struct sockaddr *)to, sizeof *to, overlapped, NULL)
                  : WSASend(s, out, 1, &sent, 0, overlapped, NULL);
    CHECK_IS(sent, done == 0 ? out->len : UNTOUCHED);
    return done;
}

static int receives(SOCKET s, WSABUF *in, int is_from, LPWSAOVERLAPPED overlapped)
{
    DWORD received = UNTOUCHED, flags = 0;
    LPWSAOVERLAPPED const same = overlapped;
    int done = is_from ? WSARecvFrom(s, in, 1, &received, &flags, NULL, NULL, same, NULL)
                       : WSARecv(s, in, 1, &received, &flags, same, NULL);
    CHECK_IS(received, done == 0 ? in->len : UNTOUCHED);
    return done;
}

static int is_blocking(SOCKET s, DWORD nonblocking, LPWSAOVERLAPPED overlapped)
{
    DWORD returned;
    return WSAIoctl(s, FIONBIO, &nonblocking, sizeof nonblocking, NULL, 0, &returned, overlapped, NULL);
}

static void a_variable_that_is_null_is_no_overlapped(void)
{
    char bytes[] = "ab";
    WSABUF both = buffer(bytes, 2);
    SOCKET s = udp_socket();
    struct sockaddr_in address = bind_to_loopback(s);
    CHECK_IS(sends(s, &both, &address, NULL), 0);
    CHECK_IS(receives(s, &both, 1, NULL), 0);
    CHECK_IS(connect(s, (struct sockaddr *)&address, sizeof address), 0);
    CHECK_IS(sends(s, &both, NULL, NULL), 0);
    CHECK_IS(receives(s, &both, 0, NULL), 0);
    CHECK_IS(is_blocking(s, 1, NULL), 0);
    CHECK_SOCKET_ERROR(receives(s, &both, 0, NULL), WSAEWOULDBLOCK);
    CHECK_SOCKET_ERROR(receives(s, &both, 0, NULL), WSAEWOULDBLOCK); /* nothing was sent */
    CHECK_IS(closesocket(s), 0);
}

/* ---- connections ---------------------------------------------------------------------------------------- */

static int answer;
static struct sockaddr_in caller_was;

static int CALLBACK decides(LPWSABUF caller, LPWSABUF caller_data, LPQOS quality, LPQOS group_quality,
                            LPWSABUF callee, LPWSABUF callee_data, GROUP *group, DWORD_PTR word)
{
    /* No data comes with a connection. What Windows has for such data may be there all the same. */
    CHECK(!HAS_SOCKET_CALLS || (caller_data == NULL && callee_data == NULL));
    CHECK(quality == NULL && group_quality == NULL && group != NULL);
    CHECK_IS(caller->len, sizeof caller_was);
    CHECK_IS(callee->len, sizeof caller_was);
    CHECK_IS(word, 42);
    memcpy(&caller_was, caller->buf, sizeof caller_was);
    return answer;
}

static void a_condition_decides_about_a_connection(void)
{
    struct sockaddr_in address, own, told;
    SOCKET listener = tcp_listener(&address), client, server;
    int size = sizeof own;
    char byte;
    client = tcp_socket();
    CHECK_IS(WSAConnect(client, (struct sockaddr *)&address, sizeof address, NULL, NULL, NULL, NULL), 0);
    CHECK_IS(getsockname(client, (struct sockaddr *)&own, &size), 0);
    answer = CF_ACCEPT;
    size = sizeof told;
    server = WSAAccept(listener, (struct sockaddr *)&told, &size, decides, 42);
    CHECK(server != INVALID_SOCKET);
    CHECK_IS(size, sizeof told);
    CHECK_IS(told.sin_port, own.sin_port);
    CHECK_IS(caller_was.sin_port, own.sin_port);
    send_all(client, "x", 1);
    receive_all(server, &byte, 1);
    CHECK_IS(closesocket(server), 0);
    CHECK_IS(closesocket(client), 0);

    answer = CF_REJECT;
    client = tcp_connected_to(&address);
    WSASetLastError(0);
    CHECK(WSAAccept(listener, NULL, NULL, decides, 42) == INVALID_SOCKET);
    CHECK_IS(WSAGetLastError(), WSAECONNREFUSED);
    until(client, POLLHUP);
    UNLESS_WINE("a poll takes the error of a reset")
        CHECK_SOCKET_ERROR(recv(client, &byte, 1, 0), WSAECONNRESET);
    CHECK_IS(closesocket(client), 0);

#if HAS_SOCKET_CALLS
    answer = CF_DEFER; /* rejects it, too */
    client = tcp_connected_to(&address);
    WSASetLastError(0);
    CHECK(WSAAccept(listener, NULL, NULL, decides, 42) == INVALID_SOCKET);
    CHECK_IS(WSAGetLastError(), WSAEOPNOTSUPP);
    until(client, POLLHUP);
    CHECK_IS(closesocket(client), 0);
#endif

    client = tcp_connected_to(&address);
    server = WSAAccept(listener, NULL, NULL, NULL, 0);
    CHECK(server != INVALID_SOCKET);
    CHECK_IS(closesocket(server), 0);
    CHECK_IS(closesocket(client), 0);
    set_nonblocking(listener);
    WSASetLastError(0);
    CHECK(WSAAccept(listener, NULL, NULL, NULL, 0) == INVALID_SOCKET);
    CHECK_IS(WSAGetLastError(), WSAEWOULDBLOCK);
    CHECK_IS(closesocket(listener), 0);
}

/* Functions that a program has looked up may have these names as members. */
struct functions {
    int (*WSASend)(SOCKET, LPWSABUF, DWORD, LPDWORD, DWORD, LPWSAOVERLAPPED, LPWSAOVERLAPPED_COMPLETION_ROUTINE);
};

static int counts_bytes(SOCKET s, LPWSABUF buffers, DWORD count, LPDWORD sent, DWORD flags,
                        LPWSAOVERLAPPED overlapped, LPWSAOVERLAPPED_COMPLETION_ROUTINE routine)
{
    (void)s;
    (void)count;
    (void)flags;
    (void)routine;
    CHECK(overlapped == NULL);
    *sent = buffers->len;
    return 0;
}

static void members_may_have_these_names(void)
{
    struct functions table = {counts_bytes};
    char bytes[3];
    WSABUF one = buffer(bytes, 3);
    DWORD sent;
    CHECK_IS(table.WSASend(0, &one, 1, &sent, 0, NULL, NULL), 0);
    CHECK_IS(sent, 3);
}

/* ---- events --------------------------------------------------------------------------------------------- */

static void events_have_winsocks_names_too(void)
{
    WSAEVENT event = WSACreateEvent();
    CHECK(event != WSA_INVALID_EVENT);
    CHECK_IS(WSAWaitForMultipleEvents(1, &event, FALSE, 0, FALSE), WSA_WAIT_TIMEOUT);
    CHECK_IS(WSASetEvent(event), TRUE);
    CHECK_IS(WSAWaitForMultipleEvents(1, &event, FALSE, WSA_INFINITE, FALSE), WSA_WAIT_EVENT_0);
    CHECK_IS(WSAResetEvent(event), TRUE);
    CHECK_IS(WSAWaitForMultipleEvents(1, &event, TRUE, 0, TRUE), WSA_WAIT_TIMEOUT);
    CHECK_IS(WSACloseEvent(event), TRUE);
}

#if HAS_SOCKET_CALLS

/* Returns an address without memory. */
static void *nowhere(void)
{
    void *place = mmap(NULL, 1 << 16, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(place != MAP_FAILED);
    CHECK_IS(munmap(place, 1 << 16), 0);
    return place;
}

#define CHECK_IS_NONE(call) \
    do { \
        SOCKET check_made = (SOCKET)(INT_PTR)(call); \
        CHECK(check_made == INVALID_SOCKET); \
        CHECK_IS(WSAGetLastError(), WSAEFAULT); \
    } while (0)

/* For calls that move no data. */
static void a_pointer_to_no_memory_is_refused(SOCKET s, SOCKET listener, void *bad)
{
    struct sockaddr_in address;
    int value = 1, size = sizeof address;
    DWORD count, number = 1;
    struct sockaddr *name = (struct sockaddr *)bad;
    GUID accept_ex = WSAID_ACCEPTEX;
    LPFN_ACCEPTEX function;
    CHECK_IS(WSAStartup(MAKEWORD(2, 2), (LPWSADATA)bad), WSAEFAULT);
    CHECK_SOCKET_ERROR(ioctlsocket(s, FIONBIO, (u_long *)bad), WSAEFAULT);
    CHECK_SOCKET_ERROR(ioctlsocket(s, FIONREAD, (u_long *)bad), WSAEFAULT);
    CHECK_SOCKET_ERROR(ioctlsocket(s, FIONREAD, (DWORD *)bad), WSAEFAULT);
    CHECK_SOCKET_ERROR(WSAIoctl(s, FIONBIO, bad, 4, NULL, 0, &count, NULL, NULL), WSAEFAULT);
    CHECK_SOCKET_ERROR(WSAIoctl(s, FIONREAD, NULL, 0, bad, 4, &count, NULL, NULL), WSAEFAULT);
    CHECK_SOCKET_ERROR(WSAIoctl(s, FIONBIO, &number, 4, NULL, 0, (DWORD *)bad, NULL, NULL), WSAEFAULT);
    CHECK_SOCKET_ERROR(WSAIoctl(s, SIO_KEEPALIVE_VALS, bad, 12, NULL, 0, &count, NULL, NULL), WSAEFAULT);
    CHECK_SOCKET_ERROR(WSAIoctl(s, SIO_GET_EXTENSION_FUNCTION_POINTER, bad, 16, &function, sizeof function, &count,
                                NULL, NULL), WSAEFAULT);
    CHECK_SOCKET_ERROR(WSAIoctl(s, SIO_GET_EXTENSION_FUNCTION_POINTER, &accept_ex, 16, bad, sizeof function, &count,
                                NULL, NULL), WSAEFAULT);
    CHECK_SOCKET_ERROR(getsockopt(s, SOL_SOCKET, SO_ERROR, (char *)bad, &size), WSAEFAULT);
    CHECK_SOCKET_ERROR(getsockopt(s, SOL_SOCKET, SO_REUSEADDR, (char *)bad, &size), WSAEFAULT);
    CHECK_SOCKET_ERROR(getsockopt(s, SOL_SOCKET, SO_RCVTIMEO, (char *)bad, &size), WSAEFAULT);
    CHECK_SOCKET_ERROR(getsockopt(s, IPPROTO_TCP, TCP_NODELAY, (char *)bad, &size), WSAEFAULT);
    CHECK_SOCKET_ERROR(getsockopt(s, SOL_SOCKET, SO_TYPE, (char *)&value, (int *)bad), WSAEFAULT);
    CHECK_SOCKET_ERROR(setsockopt(s, SOL_SOCKET, SO_KEEPALIVE, (char *)bad, 4), WSAEFAULT);
    CHECK_SOCKET_ERROR(setsockopt(s, SOL_SOCKET, SO_KEEPALIVE, (char *)bad, 1), WSAEFAULT);
    CHECK_SOCKET_ERROR(setsockopt(s, SOL_SOCKET, SO_RCVTIMEO, (char *)bad, 4), WSAEFAULT);
    CHECK_SOCKET_ERROR(setsockopt(s, SOL_SOCKET, SO_UPDATE_ACCEPT_CONTEXT, (char *)bad, 8), WSAEFAULT);
    CHECK_SOCKET_ERROR(setsockopt(s, IPPROTO_TCP, TCP_NODELAY, (char *)bad, 4), WSAEFAULT);
    CHECK_SOCKET_ERROR(getsockname(s, name, &size), WSAEFAULT);
    CHECK_SOCKET_ERROR(getsockname(s, (struct sockaddr *)&address, (int *)bad), WSAEFAULT);
    CHECK_SOCKET_ERROR(getpeername(s, name, &size), WSAEFAULT);
    CHECK_SOCKET_ERROR(getpeername(s, (struct sockaddr *)&address, (int *)bad), WSAEFAULT);
    CHECK_IS_NONE(accept(listener, name, &size));
    CHECK_IS_NONE(accept(listener, (struct sockaddr *)&address, (int *)bad));
    CHECK_IS_NONE(WSAAccept(listener, name, &size, NULL, 0));
    CHECK_IS_NONE(WSAAccept(listener, (struct sockaddr *)&address, (int *)bad, NULL, 0));
    CHECK_IS_NONE(WSASocketA(AF_INET, SOCK_STREAM, 0, (LPWSAPROTOCOL_INFOA)bad, 0, 0));
    CHECK_SOCKET_ERROR(WSADuplicateSocketA(s, GetCurrentProcessId(), (LPWSAPROTOCOL_INFOA)bad), WSAEFAULT);
    CHECK_SOCKET_ERROR(WSADuplicateSocketW(s, GetCurrentProcessId(), (LPWSAPROTOCOL_INFOW)bad), WSAEFAULT);
    CHECK_SOCKET_ERROR(WSAEnumProtocolsA(NULL, NULL, (DWORD *)bad), WSAEFAULT);
    CHECK_SOCKET_ERROR(WSAEnumProtocolsA((int *)bad, NULL, &count), WSAEFAULT);
    CHECK_SOCKET_ERROR(bind(s, name, sizeof address), WSAEFAULT);
    CHECK_SOCKET_ERROR(connect(s, name, sizeof address), WSAEFAULT);
    CHECK_SOCKET_ERROR(WSAConnect(s, (struct sockaddr *)&address, sizeof address, NULL, (LPWSABUF)bad, NULL, NULL),
                       WSAEFAULT);
    /* Memory that the system reads or writes itself. */
    CHECK_SOCKET_ERROR(send(s, (char *)bad, 1, 0), WSAEFAULT);
    CHECK_SOCKET_ERROR(recv(s, (char *)bad, 1, 0), WSAEFAULT);
    CHECK_SOCKET_ERROR(sendto(s, (char *)&value, 1, 0, name, sizeof address), WSAEFAULT);
}

/* For calls that move data or wait for it: an address that cannot be valid. */
static void what_is_no_pointer_is_refused(SOCKET s, SOCKET datagrams, SOCKET listener, void *bad)
{
    char byte = 'x';
    DWORD count = 0, flags = 0;
    WSABUF part;
    WSAOVERLAPPED overlapped;
    struct sockaddr_in address;
    int size = sizeof address;
    fd_set set;
    FD_ZERO(&set);
    FD_SET(s, &set);
    memset(&overlapped, 0, sizeof overlapped);
    part.len = 1;
    part.buf = &byte;
    CHECK_SOCKET_ERROR(WSASend(s, (LPWSABUF)bad, 1, &count, 0, NULL, NULL), WSAEFAULT);
    CHECK_SOCKET_ERROR(WSASend(s, &part, 1, (DWORD *)bad, 0, NULL, NULL), WSAEFAULT);
    CHECK_SOCKET_ERROR(WSASend(s, (LPWSABUF)bad, 1, NULL, 0, &overlapped, NULL), WSAEFAULT);
    CHECK_SOCKET_ERROR(WSASend(s, &part, 1, (DWORD *)bad, 0, &overlapped, NULL), WSAEFAULT);
    CHECK_SOCKET_ERROR(WSASend(s, &part, 1, NULL, 0, (WSAOVERLAPPED *)bad, NULL), WSAEFAULT);
    CHECK_SOCKET_ERROR(WSASendTo(datagrams, &part, 1, NULL, 0, (struct sockaddr *)bad, size, &overlapped, NULL),
                       WSAEFAULT);
    CHECK_SOCKET_ERROR(WSARecv(s, (LPWSABUF)bad, 1, &count, &flags, NULL, NULL), WSAEFAULT);
    CHECK_SOCKET_ERROR(WSARecv(s, &part, 1, (DWORD *)bad, &flags, NULL, NULL), WSAEFAULT);
    CHECK_SOCKET_ERROR(WSARecv(s, &part, 1, &count, (DWORD *)bad, NULL, NULL), WSAEFAULT);
    CHECK_SOCKET_ERROR(WSARecv(s, (LPWSABUF)bad, 1, NULL, &flags, &overlapped, NULL), WSAEFAULT);
    CHECK_SOCKET_ERROR(WSARecv(s, &part, 1, NULL, (DWORD *)bad, &overlapped, NULL), WSAEFAULT);
    CHECK_SOCKET_ERROR(WSARecv(s, &part, 1, NULL, &flags, (WSAOVERLAPPED *)bad, NULL), WSAEFAULT);
    CHECK_SOCKET_ERROR(WSARecvFrom(datagrams, &part, 1, &count, &flags, (struct sockaddr *)bad, &size, NULL, NULL),
                       WSAEFAULT);
    CHECK_SOCKET_ERROR(WSARecvFrom(datagrams, &part, 1, &count, &flags, (struct sockaddr *)&address, (int *)bad, NULL,
                                   NULL), WSAEFAULT);
    CHECK_SOCKET_ERROR(WSARecvFrom(datagrams, &part, 1, NULL, &flags, (struct sockaddr *)&address, (int *)bad,
                                   &overlapped, NULL), WSAEFAULT);
    {
        WSABUF parts[2];
        WSAMSG message;
        LPFN_WSARECVMSG receive;
        GUID receives = WSAID_WSARECVMSG;
        SOCKET made = tcp_socket();
        char room[2 * (sizeof address + 16)];
        const DWORD block = sizeof address + 16;
        parts[0] = part;
        parts[1].len = 1;
        parts[1].buf = (CHAR *)bad;
        CHECK_SOCKET_ERROR(WSASend(s, parts, 2, NULL, 0, &overlapped, NULL), WSAEFAULT);
        CHECK_SOCKET_ERROR(WSASend(s, parts + 1, 1, NULL, 0, &overlapped, NULL), WSAEFAULT);
        CHECK_SOCKET_ERROR(WSARecv(s, parts, 2, NULL, &flags, &overlapped, NULL), WSAEFAULT);
        CHECK_SOCKET_ERROR(WSARecv(datagrams, parts + 1, 1, NULL, &flags, &overlapped, NULL), WSAEFAULT);
        CHECK_IS(WSAIoctl(s, SIO_GET_EXTENSION_FUNCTION_POINTER, &receives, sizeof receives, &receive, sizeof receive,
                          &count, NULL, NULL), 0);
        CHECK_SOCKET_ERROR(receive(datagrams, (LPWSAMSG)bad, &count, &overlapped, NULL), WSAEFAULT);
        CHECK_SOCKET_ERROR(WSASendMsg(datagrams, (LPWSAMSG)bad, 0, &count, &overlapped, NULL), WSAEFAULT);
        memset(&message, 0, sizeof message);
        message.lpBuffers = &part;
        message.dwBufferCount = 1;
        CHECK_SOCKET_ERROR(receive(datagrams, &message, NULL, (WSAOVERLAPPED *)bad, NULL), WSAEFAULT);
        CHECK_SOCKET_ERROR(WSAIoctl(s, SIO_GET_EXTENSION_FUNCTION_POINTER, &receives, sizeof receives, &receive,
                                    sizeof receive, &count, (WSAOVERLAPPED *)bad, NULL), WSAEFAULT);
        CHECK_FALSE(AcceptEx(listener, made, bad, 0, block, block, &count, &overlapped), WSAEFAULT);
        CHECK_FALSE(AcceptEx(listener, made, room, 0, block, block, &count, (OVERLAPPED *)bad), WSAEFAULT);
        CHECK_FALSE(TransmitFile(s, NULL, 0, 0, (OVERLAPPED *)bad, NULL, 0), WSAEFAULT);
        closesocket(made);
    }
    CHECK_SOCKET_ERROR(recvfrom(datagrams, &byte, 1, 0, (struct sockaddr *)bad, &size), WSAEFAULT);
    CHECK_SOCKET_ERROR(recvfrom(datagrams, &byte, 1, 0, (struct sockaddr *)&address, (int *)bad), WSAEFAULT);
    CHECK_SOCKET_ERROR(select(0, (fd_set *)bad, NULL, NULL, NULL), WSAEFAULT);
    CHECK_SOCKET_ERROR(select(0, &set, NULL, (fd_set *)bad, NULL), WSAEFAULT);
    CHECK_SOCKET_ERROR(select(0, &set, NULL, NULL, (struct timeval *)bad), WSAEFAULT);
    CHECK_SOCKET_ERROR(WSAPoll((LPWSAPOLLFD)bad, 1, 0), WSAEFAULT);
}

static void bad_pointers_are_refused(void)
{
    struct sockaddr_in address;
    SOCKET listener = tcp_listener(&address), s = tcp_connected_to(&address), far = accept(listener, NULL, NULL);
    SOCKET waiting = tcp_connected_to(&address), datagrams = udp_socket();
    char byte = 'x';
    send_to_itself(datagrams);
    send_all(far, "x", 1);
    until(s, POLLIN);
    what_is_no_pointer_is_refused(s, datagrams, listener, (void *)(uintptr_t)1);
    what_is_no_pointer_is_refused(s, datagrams, listener, (void *)(uintptr_t)65535);
    if (!is_slow()) { /* Valgrind complains about pointers that the system rejects */
        a_pointer_to_no_memory_is_refused(s, listener, (void *)(uintptr_t)1);
        a_pointer_to_no_memory_is_refused(s, listener, (void *)(uintptr_t)65535);
        a_pointer_to_no_memory_is_refused(s, listener, nowhere());
    }
#ifndef _WIN32
    {
        /* A short address at the end of the memory: nothing behind it is read. */
        const size_t page = (size_t)sysconf(_SC_PAGESIZE);
        char *pages = (char *)mmap(NULL, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        WSABUF part = buffer(&byte, 1);
        WSAOVERLAPPED overlapped;
        CHECK((void *)pages != MAP_FAILED);
        CHECK_IS(mprotect(pages + page, page, PROT_NONE), 0);
        memset(&overlapped, 0, sizeof overlapped);
        memcpy(pages + page - 8, &address, 8);
        CHECK_SOCKET_ERROR(WSASendTo(datagrams, &part, 1, NULL, 0, (struct sockaddr *)(void *)(pages + page - 8), 8,
                                     &overlapped, NULL), WSAEFAULT);
        CHECK_IS(munmap(pages, 2 * page), 0);
    }
#endif
    /* No data was taken. */
    set_nonblocking(datagrams);
    CHECK_IS(recv(datagrams, &byte, 1, 0), 1);
    CHECK_IS(recv(s, &byte, 1, 0), 1);
    CHECK_IS(byte, 'x');
    closesocket(far);
    far = accept(listener, NULL, NULL);
    CHECK(far != INVALID_SOCKET);
    closesocket(far);
    closesocket(waiting);
    closesocket(s);
    closesocket(datagrams);
    closesocket(listener);
}

#endif

int main(void)
{
    start();
#if HAS_SOCKET_CALLS
    bad_pointers_are_refused();
#endif
    several_buffers_are_one_stream();
    what_cannot_be_is_refused();
#if HAS_NOTIFICATIONS
    a_read_into_buffers_drains_as_any_other();
#endif
    a_datagram_is_cut_and_told();
    a_variable_that_is_null_is_no_overlapped();
    a_condition_decides_about_a_connection();
    members_may_have_these_names();
    events_have_winsocks_names_too();
    return finish();
}
