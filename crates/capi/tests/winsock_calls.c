/* Socket calls as written for Winsock: their results, and the code after each failure. */
#include <winsock2.h>
#include <mswsock.h>
#include <windows.h>

#include <pthread.h>

#include "check.h"

/* The call makes no socket, for this reason. */
#define CHECK_NO_SOCKET(call, code) \
    do { \
        SOCKET check_made; \
        WSASetLastError(0); \
        check_made = (call); \
        CHECK(check_made == INVALID_SOCKET); \
        CHECK_IS(WSAGetLastError(), (code)); \
    } while (0)

static void winsock_is_started_and_cleaned_up(void)
{
    WSADATA data;
    memset(&data, 0xFF, sizeof data);
    CHECK_IS(WSAStartup(WINSOCK_VERSION, &data), 0);
    CHECK_IS(data.wVersion, WINSOCK_VERSION);
    CHECK_IS(data.wVersion, MAKEWORD(2, 2));
    CHECK_IS(LOBYTE(data.wVersion), 2);
    CHECK_IS(HIBYTE(data.wVersion), 2);
    CHECK_IS(data.wHighVersion, MAKEWORD(2, 2));
    CHECK(memchr(data.szDescription, 0, sizeof data.szDescription) != NULL);
    CHECK(memchr(data.szSystemStatus, 0, sizeof data.szSystemStatus) != NULL);
    CHECK_IS(WSACleanup(), 0); /* the other start is still there */
    CHECK_IS(WSAStartup(MAKEWORD(0, 0), &data), WSAVERNOTSUPPORTED);
    CHECK_IS(WSAStartup(MAKEWORD(2, 2), NULL), WSAEFAULT);

    CHECK_IS(WSACleanup(), 0);
    CHECK_SOCKET_ERROR(WSACleanup(), WSANOTINITIALISED);
    CHECK_IS(WSAStartup(MAKEWORD(2, 2), &data), 0);
}

static void *has_an_error_of_its_own(void *argument)
{
    (void)argument;
    CHECK_IS(GetLastError(), 0);
    CHECK_IS(WSAGetLastError(), 0);
    WSASetLastError(WSAEINTR);
    CHECK_IS(GetLastError(), WSAEINTR);
    return NULL;
}

static void the_last_error_is_one_word_for_each_thread(void)
{
    pthread_t thread;
    SetLastError(12345);
    CHECK_IS(GetLastError(), 12345);
    CHECK_IS(WSAGetLastError(), 12345);
    WSASetLastError(WSAEACCES);
    CHECK_IS(GetLastError(), WSAEACCES);
    CHECK_IS(pthread_create(&thread, NULL, has_an_error_of_its_own, NULL), 0);
    CHECK_IS(pthread_join(thread, NULL), 0);
#if HAS_SOCKET_CALLS
    CHECK_IS(WSAGetLastError(), WSAEACCES); /* elsewhere pthread_join sets it */
#endif
    SetLastError(0xFFFFFFFFu);
    CHECK_IS(GetLastError(), 0xFFFFFFFFu);
}

static void what_would_block_says_so(void)
{
    struct sockaddr_in address;
    SOCKET listener = tcp_listener(&address), datagrams = udp_socket(), near, far;
    static char bytes[1 << 16];
    int sent;
    bind_to_loopback(datagrams);
    set_nonblocking(listener);
    set_nonblocking(datagrams);
    CHECK_IS(WSAEWOULDBLOCK, 10035);
    CHECK_NO_SOCKET(accept(listener, NULL, NULL), WSAEWOULDBLOCK);
    CHECK_SOCKET_ERROR(recv(datagrams, bytes, sizeof bytes, 0), WSAEWOULDBLOCK);
    CHECK_SOCKET_ERROR(recvfrom(datagrams, bytes, sizeof bytes, 0, NULL, NULL), WSAEWOULDBLOCK);
    tcp_pair(&near, &far);
    set_nonblocking(near);
    CHECK_SOCKET_ERROR(recv(near, bytes, sizeof bytes, 0), WSAEWOULDBLOCK);
    WSASetLastError(0);
    do {
        sent = (int)send(near, bytes, sizeof bytes, 0);
    } while (sent > 0);
    CHECK_IS(sent, SOCKET_ERROR);
    CHECK_IS(WSAGetLastError(), WSAEWOULDBLOCK);
    CHECK_IS(closesocket(listener), 0);
    CHECK_IS(closesocket(datagrams), 0);
    CHECK_IS(closesocket(near), 0);
    CHECK_IS(closesocket(far), 0);
}

static void a_connect_that_goes_on_would_block(void)
{
    struct sockaddr_in address;
    SOCKET listener = tcp_listener(&address), s = tcp_socket();
    int error = -1, length = sizeof error;
    set_nonblocking(s);
    CHECK_SOCKET_ERROR(connect(s, (struct sockaddr *)&address, sizeof address), WSAEWOULDBLOCK);
    until(s, POLLOUT);
    CHECK_IS(getsockopt(s, SOL_SOCKET, SO_ERROR, (char *)&error, &length), 0);
    CHECK_IS(error, 0);
    CHECK_IS(connect(s, (struct sockaddr *)&address, sizeof address) == 0 ? WSAEISCONN : WSAGetLastError(),
             WSAEISCONN);
    CHECK_SOCKET_ERROR(connect(s, (struct sockaddr *)&address, sizeof address), WSAEISCONN);
    CHECK_IS(closesocket(s), 0);
    CHECK_IS(closesocket(listener), 0);
}

static void failures_have_winsock_codes(void)
{
    SOCKET stream = tcp_socket(), datagrams = udp_socket(), closed = tcp_socket(), keeper, near, far;
    struct sockaddr_in refuses = an_address_that_refuses(&keeper), taken = bind_to_loopback(datagrams);
    struct sockaddr_in somewhere = loopback(), other;
    SOCKET another = udp_socket();
    char byte = 'x';
    static char much[70000];
    int value = 1, length = sizeof other, i;
    uintptr_t file, ends[2];

    CHECK_IS(closesocket(closed), 0);
    CHECK_SOCKET_ERROR(closesocket(closed), WSAENOTSOCK);
    CHECK_SOCKET_ERROR(closesocket(INVALID_SOCKET), WSAENOTSOCK);
    CHECK_SOCKET_ERROR(recv(closed, &byte, 1, 0), WSAENOTSOCK);
    CHECK_SOCKET_ERROR(send(closed, &byte, 1, 0), WSAENOTSOCK);
    CHECK_SOCKET_ERROR(listen(closed, 1), WSAENOTSOCK);
    CHECK_SOCKET_ERROR(shutdown(closed, SD_BOTH), WSAENOTSOCK);
    CHECK_SOCKET_ERROR(getsockname(closed, (struct sockaddr *)&other, &length), WSAENOTSOCK);
    CHECK_NO_SOCKET(accept(closed, NULL, NULL), WSAENOTSOCK);
    open_file_and_pipe(&file, ends);
    CHECK_SOCKET_ERROR(recv((SOCKET)file, &byte, 1, 0), WSAENOTSOCK);
    CHECK_SOCKET_ERROR(closesocket((SOCKET)file), WSAENOTSOCK); /* and it stays open */
    close_file_and_pipe(file, ends);

    CHECK_NO_SOCKET(socket(9999, SOCK_STREAM, 0), WSAEAFNOSUPPORT);
    CHECK_SOCKET_ERROR(bind(another, (struct sockaddr *)&taken, sizeof taken), WSAEADDRINUSE);
    CHECK_SOCKET_ERROR(connect(stream, (struct sockaddr *)&refuses, sizeof refuses), WSAECONNREFUSED);
    UNLESS_WINE("a receive behind a refused connect finds the end of a stream")
        CHECK_SOCKET_ERROR(recv(stream, &byte, 1, 0), WSAENOTCONN);
    CHECK_SOCKET_ERROR(getpeername(stream, (struct sockaddr *)&other, &length), WSAENOTCONN);
    CHECK_SOCKET_ERROR(shutdown(stream, SD_SEND), WSAENOTCONN);
    CHECK_SOCKET_ERROR(sendto(datagrams, much, sizeof much, 0, (struct sockaddr *)&taken, sizeof taken),
                       WSAEMSGSIZE);
    CHECK_SOCKET_ERROR(setsockopt(stream, SOL_SOCKET, 9999, (const char *)&value, sizeof value), WSAENOPROTOOPT);
    length = sizeof value;
    CHECK_SOCKET_ERROR(getsockopt(stream, SOL_SOCKET, 9999, (char *)&value, &length), WSAENOPROTOOPT);
    for (i = 0; i < 2; i++) {
        int mark = i == 0 ? SO_RCVLOWAT : SO_SNDLOWAT;
        CHECK_SOCKET_ERROR(setsockopt(stream, SOL_SOCKET, mark, (const char *)&value, sizeof value), WSAENOPROTOOPT);
        length = sizeof value;
        CHECK_SOCKET_ERROR(getsockopt(stream, SOL_SOCKET, mark, (char *)&value, &length), WSAENOPROTOOPT);
    }
    UNLESS_WINE("who cannot listen at all is told that the address is wrong")
        CHECK_SOCKET_ERROR(listen(datagrams, 1), WSAEOPNOTSUPP);
    somewhere.sin_addr.s_addr = htonl(0xC6336401); /* 198.51.100.1: no machine has it */
    CHECK_IS(closesocket(stream), 0);
    stream = tcp_socket();
    CHECK_SOCKET_ERROR(bind(stream, (struct sockaddr *)&somewhere, sizeof somewhere), WSAEADDRNOTAVAIL);

    /* A failing send raises no signal. */
    tcp_pair(&near, &far);
    CHECK_IS(shutdown(near, SD_SEND), 0);
    CHECK_SOCKET_ERROR(send(near, &byte, 1, 0), WSAESHUTDOWN);
    CHECK_IS(closesocket(near), 0);
    CHECK_IS(closesocket(far), 0);
    tcp_pair(&near, &far);
    abort_connection(far);
    until(near, POLLERR);
    CHECK_SOCKET_ERROR(send(near, &byte, 1, 0), WSAECONNRESET);
    WSASetLastError(0);
    CHECK_IS(send(near, &byte, 1, 0), SOCKET_ERROR);
    CHECK(WSAGetLastError() == WSAECONNRESET || WSAGetLastError() == WSAECONNABORTED ||
          WSAGetLastError() == WSAESHUTDOWN);
    CHECK_IS(closesocket(near), 0);

    CHECK_IS(closesocket(stream), 0);
    CHECK_IS(closesocket(datagrams), 0);
    CHECK_IS(closesocket(another), 0);
    CHECK_IS(closesocket(keeper), 0);
}

#ifndef _WIN32
/* Two streams that are not TCP; they report resets as far as possible. */
static void local_pair(SOCKET *one, SOCKET *other)
{
    int pair[2];
    CHECK_IS(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
    *one = (SOCKET)pair[0];
    *other = (SOCKET)pair[1];
}

#endif

/* The system reports it once, the reference each time. */
static void after_a_reset_every_receive_fails(void)
{
    enum { BY_RECEIVE, BY_SEND, BY_OPTION, WAYS };
#if HAS_SOCKET_CALLS
    struct sockaddr_in address;
    SOCKET listener;
#endif
    SOCKET near, far;
    char byte = 'x';
    int way, i, error, length;
    NOT_ON_WINE("a poll takes the error of a reset");
    for (way = 0; way < WAYS; way++) {
        tcp_pair(&near, &far);
        abort_connection(far);
        until(near, POLLERR);
        if (way == BY_SEND) {
            CHECK_SOCKET_ERROR(send(near, &byte, 1, 0), WSAECONNRESET);
        } else if (way == BY_OPTION) {
            length = sizeof error;
            CHECK_IS(getsockopt(near, SOL_SOCKET, SO_ERROR, (char *)&error, &length), 0);
            CHECK_IS(error, WSAECONNRESET);
        }
        for (i = 0; i < 3; i++) {
            CHECK_SOCKET_ERROR(recv(near, &byte, 1, 0), WSAECONNRESET);
#if HAS_SOCKET_CALLS
            CHECK_IS(errno, ECONNRESET);
#endif
            CHECK_SOCKET_ERROR(recv(near, &byte, 1, MSG_PEEK), WSAECONNRESET);
            CHECK_SOCKET_ERROR(recvfrom(near, &byte, 1, 0, NULL, NULL), WSAECONNRESET);
        }

#if HAS_SOCKET_CALLS
        /* Connected again, it works as if new. */
        memset(&address, 0, sizeof address);
        CHECK_IS(connect(near, (struct sockaddr *)&address, sizeof address), 0); /* AF_UNSPEC: not any more */
        listener = tcp_listener(&address);
        CHECK_IS(connect(near, (struct sockaddr *)&address, sizeof address), 0);
        far = accept(listener, NULL, NULL);
        CHECK_IS(closesocket(far), 0);
        CHECK_IS(recv(near, &byte, 1, 0), 0);
        CHECK_IS(closesocket(listener), 0);
#endif
        CHECK_IS(closesocket(near), 0);
    }

    /* After the end of the stream, a write first reports a reset. */
    tcp_pair(&near, &far);
    CHECK_IS(shutdown(far, SD_SEND), 0);
    until(near, POLLRDHUP);
    send_all(near, "x", 1);
    until(far, POLLIN);
    CHECK_IS(closesocket(far), 0); /* with something left that it has not read */
    until(near, POLLERR);
    CHECK_IS(recv(near, &byte, 1, 0), 0);
    CHECK_SOCKET_ERROR(send(near, &byte, 1, 0), WSAECONNRESET);
    CHECK_SOCKET_ERROR(recv(near, &byte, 1, 0), WSAECONNRESET);
    CHECK_SOCKET_ERROR(recv(near, &byte, 1, 0), WSAECONNRESET);
    CHECK_IS(closesocket(near), 0);

#ifndef _WIN32
    local_pair(&near, &far);
    send_all(near, "x", 1);
    CHECK_IS(closesocket(far), 0); /* with something left that it has not read */
    for (i = 0; i < 3; i++) {
        CHECK_SOCKET_ERROR(recv(near, &byte, 1, 0), WSAECONNRESET);
    }
    CHECK_IS(closesocket(near), 0);
#endif
}

#ifndef _WIN32
/* It is the socket that was reset, not its number. */
static void the_next_socket_of_a_number_was_not_reset(void)
{
    SOCKET near, far;
    char byte;
    int pair[2];
    tcp_pair(&near, &far);
    abort_connection(far);
    until(near, POLLERR);
    CHECK_SOCKET_ERROR(recv(near, &byte, 1, 0), WSAECONNRESET);
    CHECK_IS(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
    CHECK_IS(dup2(pair[0], (int)near), (int)near); /* closes it unseen */
    CHECK_IS(close(pair[0]), 0);
    CHECK_IS(close(pair[1]), 0);
    CHECK_IS(recv(near, &byte, 1, 0), 0);
    CHECK_IS(closesocket(near), 0);
}

#endif

enum { PEER_IS_THERE, PEER_HAS_SHUT, PEER_HAS_CLOSED, PEER_HAS_ABORTED, PEERS };

static void let_the_peer_end(SOCKET near, SOCKET far, int peer)
{
    if (peer == PEER_HAS_SHUT) {
        CHECK_IS(shutdown(far, SD_SEND), 0);
    } else if (peer == PEER_HAS_CLOSED) {
        CHECK_IS(closesocket(far), 0);
    } else if (peer == PEER_HAS_ABORTED) {
        abort_connection(far);
    }
    if (peer != PEER_IS_THERE) {
        until(near, peer == PEER_HAS_ABORTED ? POLLERR : POLLRDHUP);
    }
}

static void what_is_sent_behind_a_shutdown_fails(SOCKET near, SOCKET far, int half, int peer, int is_first)
{
    char byte = 'x';
    int i;
    if (!is_first) {
        let_the_peer_end(near, far, peer);
    }
    CHECK_IS(shutdown(near, half), 0);
    if (is_first) {
        let_the_peer_end(near, far, peer);
    }
    for (i = 0; i < 3; i++) {
        CHECK_SOCKET_ERROR(send(near, &byte, 1, 0), WSAESHUTDOWN);
#if HAS_SOCKET_CALLS
        CHECK_IS(errno, ESHUTDOWN);
#endif
        CHECK_SOCKET_ERROR(sendto(near, &byte, 1, 0, NULL, 0), WSAESHUTDOWN);
    }
    if (peer == PEER_HAS_ABORTED) {
        UNLESS_WINE("a poll takes the error of a reset")
            CHECK_SOCKET_ERROR(recv(near, &byte, 1, 0), WSAECONNRESET);
    }
    CHECK_IS(closesocket(near), 0);
    if (peer == PEER_IS_THERE || peer == PEER_HAS_SHUT) {
        CHECK_IS(closesocket(far), 0);
    }
}

/* Whatever the peer did, before or after that. */
static void who_has_shut_its_sending_half_cannot_send(void)
{
    static const int halves[] = {SD_SEND, SD_BOTH};
    SOCKET near, far;
    int peer, half, is_first;
    for (half = 0; half < 2; half++) {
        for (peer = 0; peer < PEERS; peer++) {
            for (is_first = 0; is_first < 2; is_first++) {
                if (peer == PEER_HAS_ABORTED && (half == 1 || !is_first)) {
                    /* A connection that has ended cannot be shut down, and a peer that reads
                     * nothing learns nothing. */
                    continue;
                }
                tcp_pair(&near, &far);
                what_is_sent_behind_a_shutdown_fails(near, far, halves[half], peer, is_first);
#ifndef _WIN32
                if (peer != PEER_HAS_ABORTED) {
                    local_pair(&near, &far);
                    what_is_sent_behind_a_shutdown_fails(near, far, halves[half], peer, is_first);
                }
#endif
            }
        }
    }
}

static void a_successful_setsockopt_clears_the_last_error(void)
{
    SOCKET s = udp_socket(), other = udp_socket();
    int on = 1;
    DWORD milliseconds = 1000;
    SetLastError(WSAEINTR);
    CHECK_IS(setsockopt(s, SOL_SOCKET, SO_REUSEADDR, (const char *)&on, sizeof on), 0);
    CHECK_IS(GetLastError(), 0);
    SetLastError(WSAEINTR);
    CHECK_IS(setsockopt(s, SOL_SOCKET, SO_RCVTIMEO, (const char *)&milliseconds, sizeof milliseconds), 0);
    CHECK_IS(WSAGetLastError(), 0);
    SetLastError(WSAEINTR);
    CHECK_IS(setsockopt(other, SOL_SOCKET, SO_EXCLUSIVEADDRUSE, (const char *)&on, sizeof on), 0);
    CHECK_IS(WSAGetLastError(), 0);
    CHECK_IS(closesocket(other), 0);
    CHECK_SOCKET_ERROR(setsockopt(s, SOL_SOCKET, 9999, (const char *)&on, sizeof on), WSAENOPROTOOPT);
    CHECK_IS(closesocket(s), 0);
}

static void check_flag(SOCKET s, int level, int name, int on, int size)
{
    int told = 0, got = 4;
    unsigned char byte = 0xA5;
    CHECK_IS(setsockopt(s, level, name, (const char *)&on, size), 0);
    CHECK_IS(getsockopt(s, level, name, (char *)&told, &got), 0);
    CHECK_IS(told != 0, on);
    got = 1;
    CHECK_IS(getsockopt(s, level, name, (char *)&byte, &got), 0);
    CHECK_IS(byte, on);
    CHECK_IS(got, 1);
}

/* A boolean may have one byte, or two. */
static void a_flag_may_be_a_byte(void)
{
    static const struct {
        int family, type, level, name;
    } flags[] = {
        {AF_INET, SOCK_STREAM, SOL_SOCKET, SO_REUSEADDR},
        {AF_INET, SOCK_STREAM, SOL_SOCKET, SO_EXCLUSIVEADDRUSE},
        {AF_INET, SOCK_STREAM, SOL_SOCKET, SO_KEEPALIVE},
        {AF_INET, SOCK_DGRAM, SOL_SOCKET, SO_BROADCAST},
        {AF_INET, SOCK_STREAM, SOL_SOCKET, SO_OOBINLINE},
        {AF_INET, SOCK_STREAM, SOL_SOCKET, SO_DONTROUTE},
        {AF_INET, SOCK_STREAM, SOL_SOCKET, SO_DONTLINGER},
        {AF_INET, SOCK_STREAM, IPPROTO_TCP, TCP_NODELAY},
        {AF_INET, SOCK_DGRAM, IPPROTO_IP, IP_MULTICAST_LOOP},
        {AF_INET6, SOCK_STREAM, IPPROTO_IPV6, IPV6_DONTFRAG},
        {AF_INET6, SOCK_DGRAM, IPPROTO_IPV6, IPV6_MULTICAST_LOOP},
        {AF_INET6, SOCK_DGRAM, IPPROTO_IPV6, IPV6_V6ONLY},
    };
    size_t place;
    int size, on;
    for (place = 0; place < sizeof flags / sizeof flags[0]; place++) {
        SOCKET s = socket(flags[place].family, flags[place].type, 0);
        int level = flags[place].level, name = flags[place].name;
        CHECK(s != INVALID_SOCKET);
        for (size = 1; size <= 4; size += size) {
            for (on = 1; on >= 0; on--) {
                if (name == SO_DONTROUTE && !on) {
                    UNLESS_WINE("SO_DONTROUTE cannot be turned off")
                        check_flag(s, level, name, on, size);
                } else {
                    check_flag(s, level, name, on, size);
                }
            }
        }
        UNLESS_WINE("some options take a value of no bytes")
            CHECK_SOCKET_ERROR(setsockopt(s, level, name, (const char *)&on, 0), WSAEFAULT);
        CHECK_SOCKET_ERROR(setsockopt(s, level, name, NULL, 4), WSAEFAULT);
        size = 0;
        CHECK_SOCKET_ERROR(getsockopt(s, level, name, (char *)&on, &size), WSAEFAULT);
        closesocket(s);
    }
}

#if HAS_SOCKET_CALLS
/* A refused value changes nothing. */
static void a_value_that_is_too_short_is_a_bad_pointer(void)
{
    static const struct {
        int level, name, least;
    } options[] = {
        {SOL_SOCKET, SO_LINGER, sizeof(struct linger)}, {SOL_SOCKET, SO_RCVTIMEO, 4},  {SOL_SOCKET, SO_SNDTIMEO, 4},
        {SOL_SOCKET, SO_RCVBUF, 4},                     {SOL_SOCKET, SO_SNDBUF, 4},    {IPPROTO_IPV6, IPV6_UNICAST_HOPS, 1},
        {IPPROTO_IPV6, IPV6_MULTICAST_HOPS, 1},         {IPPROTO_IPV6, IPV6_V6ONLY, 1},
    };
    static const char nothing[sizeof(struct linger)] = {0};
    char before[sizeof(struct linger)], after[sizeof(struct linger)];
    size_t place;
    SOCKET s = socket(AF_INET6, SOCK_STREAM, 0);
    CHECK(s != INVALID_SOCKET);
    for (place = 0; place < sizeof options / sizeof options[0]; place++) {
        int level = options[place].level, name = options[place].name, least = options[place].least, size;
        int whole = least < 4 ? 4 : least;
        size = whole;
        CHECK_IS(getsockopt(s, level, name, before, &size), 0);
        CHECK_SOCKET_ERROR(setsockopt(s, level, name, nothing, least - 1), WSAEFAULT);
        CHECK_SOCKET_ERROR(setsockopt(s, level, name, NULL, whole), WSAEFAULT);
        size = least - 1;
        CHECK_SOCKET_ERROR(getsockopt(s, level, name, after, &size), WSAEFAULT);
        size = whole;
        CHECK_IS(getsockopt(s, level, name, after, &size), 0);
        CHECK(memcmp(before, after, (size_t)whole) == 0);
    }
    closesocket(s);
}
#endif

/* The number of routers that a packet may pass may have one byte, or two. */
static void a_number_of_hops_may_be_a_byte(void)
{
    static const int names[] = {IPV6_UNICAST_HOPS, IPV6_MULTICAST_HOPS};
    int place, size;
    SOCKET s = socket(AF_INET6, SOCK_DGRAM, 0);
    CHECK(s != INVALID_SOCKET);
    for (place = 0; place < 2; place++) {
        for (size = 1; size <= 4; size += size) {
            int hops = 10 + size, seen = 0, whole = sizeof seen;
            CHECK_IS(setsockopt(s, IPPROTO_IPV6, names[place], (const char *)&hops, size), 0);
            CHECK_IS(getsockopt(s, IPPROTO_IPV6, names[place], (char *)&seen, &whole), 0);
            CHECK_IS(seen, hops);
        }
    }
    closesocket(s);
}

static void an_address_that_is_too_short_is_a_bad_pointer(void)
{
    struct sockaddr_in address = loopback();
    SOCKET s = tcp_socket(), u = udp_socket();
    CHECK_SOCKET_ERROR(bind(s, (struct sockaddr *)&address, 4), WSAEFAULT);
    UNLESS_WINE("a connect takes an address that is too short")
        CHECK_SOCKET_ERROR(connect(s, (struct sockaddr *)&address, 4), WSAEFAULT);
    CHECK_SOCKET_ERROR(bind(u, (struct sockaddr *)&address, 4), WSAEFAULT);
#if HAS_SOCKET_CALLS
    CHECK_SOCKET_ERROR(bind(s, (struct sockaddr *)&address, -1), WSAEFAULT);
    CHECK_SOCKET_ERROR(connect(s, (struct sockaddr *)&address, -1), WSAEFAULT);
    {
        SOCKET six = socket(AF_INET6, SOCK_DGRAM, 0);
        struct sockaddr_in6 own;
        WSABUF part = {1, (CHAR *)&own};
        DWORD sent;
        OVERLAPPED overlapped;
        int size;
        memset(&own, 0, sizeof own);
        memset(&overlapped, 0, sizeof overlapped);
        own.sin6_family = AF_INET6;
        own.sin6_addr.s6_addr[15] = 1;
        own.sin6_port = htons(9);
        for (size = 24; size < 28; size++) { /* the system takes that */
            const struct sockaddr *it = (const struct sockaddr *)&own;
            CHECK_SOCKET_ERROR(bind(six, it, size), WSAEFAULT);
            CHECK_SOCKET_ERROR(connect(six, it, size), WSAEFAULT);
            CHECK_SOCKET_ERROR(WSAConnect(six, it, size, NULL, NULL, NULL, NULL), WSAEFAULT);
            CHECK_SOCKET_ERROR(sendto(six, (const char *)&own, 1, 0, it, size), WSAEFAULT);
            CHECK_SOCKET_ERROR(WSASendTo(six, &part, 1, &sent, 0, it, size, NULL, NULL), WSAEFAULT);
            CHECK_SOCKET_ERROR(WSASendTo(six, &part, 1, &sent, 0, it, size, &overlapped, NULL), WSAEFAULT);
        }
        closesocket(six);
    }
#endif
    CHECK_IS(bind(s, (struct sockaddr *)&address, sizeof address), 0);
    CHECK_SOCKET_ERROR(bind(s, (struct sockaddr *)&address, sizeof address), WSAEINVAL);
    CHECK_IS(closesocket(s), 0);
    CHECK_IS(closesocket(u), 0);
}

/* u_long has eight bytes here. */
static void ioctlsocket_reads_and_writes_a_whole_u_long(void)
{
    struct {
        u_long before, value, after;
    } words;
    SOCKET near, far;
    char byte;
    unsigned shift;
    tcp_pair(&near, &far);
    words.before = words.after = (u_long)0x5A5A5A5A5A5A5A5Au;
    for (shift = 0; shift < 8 * sizeof(u_long); shift++) {
        words.value = (u_long)1 << shift;
        CHECK_IS(ioctlsocket(near, FIONBIO, &words.value), 0);
        CHECK(is_nonblocking(near));
        CHECK_SOCKET_ERROR(recv(near, &byte, 1, 0), WSAEWOULDBLOCK);
        words.value = 0;
        CHECK_IS(ioctlsocket(near, FIONBIO, &words.value), 0);
        CHECK(!is_nonblocking(near));
    }
    words.value = ~(u_long)0;
    CHECK_IS(ioctlsocket(near, FIONREAD, &words.value), 0);
    CHECK_IS(words.value, 0);
    {
#ifdef _WIN32
        u_long doubled[3] = {UNTOUCHED, 1, UNTOUCHED};
        u_long *none = NULL;
#else
        DWORD doubled[3] = {UNTOUCHED, 1, UNTOUCHED}; /* of four bytes: its neighbours stay as they are */
        DWORD *none = NULL;
#endif
        CHECK_IS(ioctlsocket(near, FIONBIO, &doubled[1]), 0);
        CHECK(is_nonblocking(near));
        doubled[1] = UNTOUCHED;
        CHECK_IS(ioctlsocket(near, FIONREAD, &doubled[1]), 0);
        CHECK(doubled[0] == UNTOUCHED && doubled[1] == 0 && doubled[2] == UNTOUCHED);
        CHECK_IS(ioctlsocket(near, FIONBIO, doubled + 1), 0);
        CHECK(!is_nonblocking(near));
        CHECK_IS(ioctlsocket(near, (long)0x8004667E, &doubled[0]), 0); /* as the reference numbers it */
        CHECK(is_nonblocking(near));
        doubled[0] = 0;
        CHECK_IS(ioctlsocket(near, (int)0x8004667E, &doubled[0]), 0);
        CHECK(!is_nonblocking(near));
        CHECK_SOCKET_ERROR(ioctlsocket(near, FIONREAD, none), WSAEFAULT);
        CHECK_SOCKET_ERROR(ioctlsocket(near, FIONREAD, 0), WSAEFAULT);
    }
    send_all(far, "hello", 5);
    while (words.value < 5) {
        words.value = ~(u_long)0;
        CHECK_IS(ioctlsocket(near, FIONREAD, &words.value), 0);
    }
    CHECK_IS(words.value, 5);
    CHECK(words.before == (u_long)0x5A5A5A5A5A5A5A5Au && words.after == words.before);
    CHECK_SOCKET_ERROR(ioctlsocket(near, FIONREAD, NULL), WSAEFAULT);
    WSASetLastError(0);
    CHECK_IS(ioctlsocket(near, 0x1234, &words.value), SOCKET_ERROR);
    CHECK(WSAGetLastError() == WSAEINVAL || WSAGetLastError() == WSAEOPNOTSUPP);
    CHECK_IS(closesocket(near), 0);
    CHECK_SOCKET_ERROR(ioctlsocket(near, FIONREAD, &words.value), WSAENOTSOCK);
    CHECK_IS(closesocket(far), 0);
}

/* Lengths of addresses and options are ints under Winsock. */
static void lengths_are_ints(void)
{
    struct sockaddr_in address, peer, own;
    SOCKET listener = tcp_listener(&address), client = tcp_connected_to(&address), accepted, datagrams;
    int length = (int)sizeof peer, value = 0, guard[3];
    char byte;
    memset(&peer, 0, sizeof peer);
    accepted = accept(listener, (struct sockaddr *)&peer, &length);
    CHECK(accepted != INVALID_SOCKET);
    CHECK_IS(length, sizeof peer);
    length = (int)sizeof own;
    CHECK_IS(getsockname(client, (struct sockaddr *)&own, &length), 0);
    CHECK(peer.sin_port == own.sin_port && peer.sin_addr.s_addr == own.sin_addr.s_addr);
    length = (int)sizeof own;
    CHECK_IS(getpeername(client, (struct sockaddr *)&own, &length), 0);
    CHECK_IS(length, sizeof own);
    CHECK(address.sin_port == own.sin_port);

    datagrams = udp_socket();
    address = bind_to_loopback(datagrams);
    send_to(datagrams, "x", 1, &address);
    length = (int)sizeof peer;
    CHECK_IS(recvfrom(datagrams, &byte, 1, 0, (struct sockaddr *)&peer, &length), 1);
    CHECK_IS(length, sizeof peer);
    CHECK(peer.sin_port == address.sin_port);

    length = sizeof value;
    CHECK_IS(getsockopt(datagrams, SOL_SOCKET, SO_TYPE, (char *)&value, &length), 0);
    CHECK_IS(value, SOCK_DGRAM);
    CHECK_IS(length, sizeof value);
    guard[0] = guard[1] = guard[2] = -1;
    length = sizeof guard[1];
    CHECK_IS(getsockopt(datagrams, SOL_SOCKET, SO_ERROR, (char *)&guard[1], &length), 0);
    CHECK(guard[0] == -1 && guard[1] == 0 && guard[2] == -1);
    value = 1;
    CHECK_IS(setsockopt(client, SOL_SOCKET, SO_REUSEADDR, (const char *)&value, sizeof value), 0);
    value = 0;
    CHECK_IS(getsockopt(client, SOL_SOCKET, SO_REUSEADDR, (char *)&value, &length), 0);
    CHECK(value != 0);
    CHECK_IS(closesocket(listener), 0);
    CHECK_IS(closesocket(client), 0);
    CHECK_IS(closesocket(accepted), 0);
    CHECK_IS(closesocket(datagrams), 0);
}

/* Time-outs are a DWORD of milliseconds under Winsock. */
static void time_outs_are_milliseconds(void)
{
    SOCKET s = udp_socket();
    DWORD milliseconds = 30, seen = 0;
    int length = sizeof seen, way;
    char byte;
    bind_to_loopback(s);
    for (way = 0; way < 2; way++) {
        int option = way == 0 ? SO_RCVTIMEO : SO_SNDTIMEO;
        milliseconds = 1230;
        CHECK_IS(setsockopt(s, SOL_SOCKET, option, (const char *)&milliseconds, sizeof milliseconds), 0);
        length = sizeof seen;
        seen = 0;
        CHECK_IS(getsockopt(s, SOL_SOCKET, option, (char *)&seen, &length), 0);
        CHECK(seen >= 1230 && seen <= 1240); /* the kernel counts in ticks */
        CHECK_IS(length, sizeof seen);
    }
    milliseconds = 30;
    CHECK_IS(setsockopt(s, SOL_SOCKET, SO_RCVTIMEO, (const char *)&milliseconds, sizeof milliseconds), 0);
    WSASetLastError(0);
    CHECK_IS(recv(s, &byte, 1, 0), SOCKET_ERROR);
    CHECK(WSAGetLastError() == WSAETIMEDOUT || WSAGetLastError() == WSAEWOULDBLOCK);
    CHECK_IS(closesocket(s), 0);
}

/* Under Winsock an accepted socket blocks or not as its listener does. */
static void an_accepted_socket_blocks_as_its_listener_does(void)
{
    struct sockaddr_in address;
    SOCKET listener = tcp_listener(&address), client, accepted;
    u_long on;
    char byte;
    for (on = 0; on < 2; on++) {
        u_long argument = on;
        CHECK_IS(ioctlsocket(listener, FIONBIO, &argument), 0);
        client = tcp_connected_to(&address);
        until(listener, POLLIN);
        accepted = accept(listener, NULL, NULL);
        CHECK(accepted != INVALID_SOCKET);
        CHECK_IS(is_nonblocking(accepted), on);
        if (on) {
            CHECK_SOCKET_ERROR(recv(accepted, &byte, 1, 0), WSAEWOULDBLOCK);
        }
        CHECK_IS(closesocket(client), 0);
        CHECK_IS(closesocket(accepted), 0);
    }
    CHECK_IS(closesocket(listener), 0);
}

static void sockets_are_made_by_the_longer_call_too(void)
{
    SOCKET s = WSASocket(AF_INET, SOCK_DGRAM, IPPROTO_UDP, NULL, 0, WSA_FLAG_OVERLAPPED);
    CHECK(s != INVALID_SOCKET);
    CHECK_IS(closesocket(s), 0);
    s = WSASocketW(AF_INET, SOCK_STREAM, IPPROTO_TCP, NULL, 0, WSA_FLAG_OVERLAPPED | WSA_FLAG_NO_HANDLE_INHERIT);
    CHECK(s != INVALID_SOCKET);
    CHECK(!is_inherited(s));
    CHECK_IS(closesocket(s), 0);
    CHECK_NO_SOCKET(WSASocketA(9999, SOCK_STREAM, 0, NULL, 0, 0), WSAEAFNOSUPPORT);
}

static void a_stream_is_closed_in_its_directions(void)
{
    SOCKET near, far;
    char byte;
    CHECK_IS(SD_RECEIVE, 0);
    CHECK_IS(SD_SEND, 1);
    CHECK_IS(SD_BOTH, 2);
    tcp_pair(&near, &far);
    send_all(near, "x", 1);
    CHECK_IS(shutdown(near, SD_SEND), 0);
    receive_all(far, &byte, 1);
    CHECK_IS(recv(far, &byte, 1, 0), 0);
    send_all(far, "y", 1);
    receive_all(near, &byte, 1);
    CHECK_IS(byte, 'y');
    CHECK_IS(shutdown(near, SD_BOTH), 0);
    CHECK_IS(closesocket(near), 0);
    CHECK_IS(closesocket(far), 0);
}

/* An unbound socket has no address and does not listen. A listener does not connect. */
static void sockets_are_bound_before_they_have_an_address(void)
{
    struct sockaddr_in address, refuses;
    SOCKET s = tcp_socket(), datagrams = udp_socket(), keeper, listener, near, far;
    int size = sizeof address;
    CHECK_SOCKET_ERROR(getsockname(s, (struct sockaddr *)&address, &size), WSAEINVAL);
    CHECK_SOCKET_ERROR(getsockname(datagrams, (struct sockaddr *)&address, &size), WSAEINVAL);
    CHECK_IS(size, sizeof address);
    CHECK_SOCKET_ERROR(listen(s, 1), WSAEINVAL);
    CHECK_SOCKET_ERROR(getsockname(s, (struct sockaddr *)&address, &size), WSAEINVAL);
    UNLESS_WINE("who cannot listen at all is told that the address is wrong")
        CHECK_SOCKET_ERROR(listen(datagrams, 1), WSAEOPNOTSUPP);
    send_to_itself(datagrams);
    CHECK_IS(getsockname(datagrams, (struct sockaddr *)&address, &size), 0);
    closesocket(datagrams);
    bind_to_loopback(s);
    CHECK_IS(listen(s, 1), 0);
    CHECK_IS(listen(s, 2), 0);
    refuses = an_address_that_refuses(&keeper);
    CHECK_SOCKET_ERROR(connect(s, (struct sockaddr *)&refuses, sizeof refuses), WSAEINVAL);
    closesocket(s);
    closesocket(keeper);
    listener = tcp_listener(&address);
    near = tcp_connected_to(&address);
    far = accept(listener, NULL, NULL);
    CHECK_IS(getsockname(near, (struct sockaddr *)&address, &size), 0); /* assigned by the connect */
    UNLESS_WINE("who cannot listen at all is told that the address is wrong")
        CHECK_SOCKET_ERROR(listen(near, 1), WSAEISCONN);
    CHECK_SOCKET_ERROR(connect(near, (struct sockaddr *)&address, sizeof address), WSAEISCONN);
    closesocket(near);
    closesocket(far);
    closesocket(listener);
}

#if HAS_SOCKET_CALLS
/* A call with too little room writes nothing and loses nothing: neither a connection nor a datagram nor an error. */
static void a_call_without_room_takes_nothing(void)
{
    struct sockaddr_in address, listens, refuses;
    SOCKET listener = tcp_listener(&listens), client = tcp_connected_to(&listens), accepted, datagrams = udp_socket();
    SOCKET keeper;
    struct sockaddr *place = (struct sockaddr *)&address;
    struct linger linger;
    int none = 0, negative = -1, little = sizeof address - 1, size, error;
    char byte;
    int *const shorts[] = {NULL, &none, &negative, &little};
    size_t i;
    memset(&address, 0x55, sizeof address);
    for (i = 0; i < sizeof shorts / sizeof *shorts; i++) {
        CHECK_NO_SOCKET(accept(listener, place, shorts[i]), WSAEFAULT);
        CHECK_NO_SOCKET(WSAAccept(listener, place, shorts[i], NULL, 0), WSAEFAULT);
        CHECK_SOCKET_ERROR(getsockname(listener, place, shorts[i]), WSAEFAULT);
        CHECK_SOCKET_ERROR(getpeername(client, place, shorts[i]), WSAEFAULT);
    }
    CHECK_SOCKET_ERROR(getsockname(listener, NULL, &little), WSAEFAULT);
    CHECK_SOCKET_ERROR(getpeername(client, NULL, &little), WSAEFAULT);
    CHECK_IS(address.sin_family, 0x5555);
    CHECK_IS(little, sizeof address - 1);
    set_nonblocking(listener);
    size = sizeof address;
    accepted = accept(listener, place, &size);
    CHECK(accepted != INVALID_SOCKET);
    CHECK_IS(size, sizeof address);
    CHECK_IS(address.sin_family, AF_INET);

    bind_to_loopback(datagrams);
    send_to_itself(datagrams);
    for (i = 0; i < sizeof shorts / sizeof *shorts; i++)
        CHECK_SOCKET_ERROR(recvfrom(datagrams, &byte, 1, 0, place, shorts[i]), WSAEFAULT);
    CHECK_IS(recvfrom(datagrams, &byte, 1, 0, place, &size), 1);
    /* A stream reports no sender, whatever the room. */
    for (i = 0; i < sizeof shorts / sizeof *shorts; i++) {
        send_all(client, "x", 1);
        CHECK_IS(recvfrom(accepted, &byte, 1, 0, place, shorts[i]), 1);
    }

    closesocket(client);
    client = tcp_socket();
    refuses = an_address_that_refuses(&keeper);
    set_nonblocking(client);
    CHECK_SOCKET_ERROR(connect(client, (struct sockaddr *)&refuses, sizeof refuses), WSAEWOULDBLOCK);
    until(client, POLLERR);
    size = 3;
    CHECK_SOCKET_ERROR(getsockopt(client, SOL_SOCKET, SO_ERROR, (char *)&error, &size), WSAEFAULT);
    CHECK_SOCKET_ERROR(getsockopt(client, SOL_SOCKET, SO_ERROR, (char *)&error, NULL), WSAEFAULT);
    size = sizeof error;
    CHECK_SOCKET_ERROR(getsockopt(client, SOL_SOCKET, SO_ERROR, NULL, &size), WSAEFAULT);
    CHECK_IS(getsockopt(client, SOL_SOCKET, SO_ERROR, (char *)&error, &size), 0);
    CHECK_IS(error, WSAECONNREFUSED);
    size = sizeof linger - 1;
    CHECK_SOCKET_ERROR(getsockopt(client, SOL_SOCKET, SO_LINGER, (char *)&linger, &size), WSAEFAULT);
    closesocket(client);
    CHECK_NO_SOCKET(accept(client, place, &none), WSAENOTSOCK);
    CHECK_SOCKET_ERROR(getsockname(client, place, &none), WSAENOTSOCK);
    size = 3;
    CHECK_SOCKET_ERROR(getsockopt(client, SOL_SOCKET, SO_ERROR, (char *)&error, &size), WSAENOTSOCK);
    closesocket(accepted);
    closesocket(datagrams);
    closesocket(listener);
    closesocket(keeper);
}
#endif

#if HAS_SOCKET_CALLS

/* A local listener with a full queue refuses a connect, or makes it wait for as long as the program allows. */
static void a_full_queue_refuses_a_local_connect(void)
{
    enum { MANY = 16 };
    struct sockaddr_un address;
    socklen_t size = sizeof address;
    SOCKET listener = socket(AF_UNIX, SOCK_STREAM, 0), s[MANY], last = socket(AF_UNIX, SOCK_STREAM, 0);
    int i, limit = 20;
    memset(&address, 0, sizeof address);
    address.sun_family = AF_UNIX;
    CHECK_IS(bind(listener, (struct sockaddr *)&address, sizeof address.sun_family), 0);
    CHECK_IS(getsockname(listener, (struct sockaddr *)&address, &size), 0);
    CHECK_IS(listen(listener, 0), 0);
    for (i = 0; i < MANY; i++) {
        s[i] = socket(AF_UNIX, SOCK_STREAM, 0);
        set_nonblocking(s[i]);
        if (connect(s[i], (struct sockaddr *)&address, size) != 0)
            break;
    }
    CHECK(0 < i && i < MANY);
    CHECK_IS(WSAGetLastError(), WSAECONNREFUSED);
    CHECK_IS(setsockopt(last, SOL_SOCKET, SO_SNDTIMEO, (const char *)&limit, sizeof limit), 0);
    CHECK_SOCKET_ERROR(connect(last, (struct sockaddr *)&address, size), WSAETIMEDOUT);
    /* Each of them connects once there is room. */
    closesocket(accept(listener, NULL, NULL));
    CHECK_IS(connect(s[i], (struct sockaddr *)&address, size), 0);
    closesocket(accept(listener, NULL, NULL));
    CHECK_IS(connect(last, (struct sockaddr *)&address, size), 0);
    for (; i >= 0; i--)
        closesocket(s[i]);
    closesocket(last);
    closesocket(listener);
}

/* A non-blocking socket that lingers is not closed before its data has arrived. */
static void who_does_not_block_does_not_linger(void)
{
    static char bytes[1 << 16];
    SOCKET near, far;
    struct linger linger;
    long sent = 0, received = 0;
    int done, attempts = 0;
    linger.l_onoff = 1;
    linger.l_linger = SOON / 1000;
    tcp_pair(&near, &far);
    CHECK_IS(setsockopt(near, SOL_SOCKET, SO_LINGER, (const char *)&linger, sizeof linger), 0);
    set_nonblocking(near);
    while ((done = (int)send(near, bytes, sizeof bytes, 0)) > 0)
        sent += done;
    CHECK_SOCKET_ERROR(closesocket(near), WSAEWOULDBLOCK);
    CHECK_FALSE(CloseHandle((HANDLE)near), WSAEWOULDBLOCK);
    while (received < sent) {
        done = (int)recv(far, bytes, sizeof bytes, 0);
        CHECK(done > 0);
        received += done;
    }
    while (closesocket(near) != 0) { /* until the peer has acknowledged the last bytes */
        CHECK_IS(WSAGetLastError(), WSAEWOULDBLOCK);
        CHECK(attempts++ < SOON);
        Sleep(1);
    }
    CHECK_SOCKET_ERROR(closesocket(near), WSAENOTSOCK);
    CHECK_IS(recv(far, bytes, 1, 0), 0);
    closesocket(far);

    /* A time of 0 resets immediately. */
    tcp_pair(&near, &far);
    set_nonblocking(near);
    while (send(near, bytes, sizeof bytes, 0) > 0) {
    }
    abort_connection(near);
    until(far, POLLERR);
    closesocket(far);
}

#endif

int main(void)
{
    start();
    winsock_is_started_and_cleaned_up();
    the_last_error_is_one_word_for_each_thread();
    what_would_block_says_so();
    a_connect_that_goes_on_would_block();
    failures_have_winsock_codes();
    after_a_reset_every_receive_fails();
#ifndef _WIN32
    the_next_socket_of_a_number_was_not_reset();
#endif
    who_has_shut_its_sending_half_cannot_send();
    a_successful_setsockopt_clears_the_last_error();
    a_flag_may_be_a_byte();
#if HAS_SOCKET_CALLS
    a_value_that_is_too_short_is_a_bad_pointer();
#endif
    a_number_of_hops_may_be_a_byte();
    an_address_that_is_too_short_is_a_bad_pointer();
    ioctlsocket_reads_and_writes_a_whole_u_long();
    lengths_are_ints();
    sockets_are_bound_before_they_have_an_address();
#if HAS_SOCKET_CALLS
    a_call_without_room_takes_nothing();
    a_full_queue_refuses_a_local_connect();
    who_does_not_block_does_not_linger();
#endif
    time_outs_are_milliseconds();
    an_accepted_socket_blocks_as_its_listener_does();
    sockets_are_made_by_the_longer_call_too();
    a_stream_is_closed_in_its_directions();
    return finish();
}
