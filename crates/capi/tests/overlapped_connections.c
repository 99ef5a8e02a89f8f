/* AcceptEx, GetAcceptExSockaddrs, ConnectEx, DisconnectEx, and how they are looked up. Over IPv4, and once more over
 * IPv6. */
#include <winsock2.h>
#include <mswsock.h>

#include "check.h"
#include "overlapped.h"

#define LISTENER_KEY 1u
#define KEY 2u
#define BLOCK ((DWORD)address_size + 16)
/* An address, as calls take it. */
#define TO(address) &(address).any, address_size

/* An address of either family. Both have the port at the same offset. */
typedef union Address {
    struct sockaddr any;
    struct sockaddr_in four;
    struct sockaddr_in6 six;
} Address;

typedef struct Accept {
    OVERLAPPED overlapped; /* first, as the classic servers have it */
    SOCKET s;
    char place[64 + 2 * (sizeof(struct sockaddr_in6) + 16)];
} Accept;

static HANDLE port;
/* Of the sockets that the tests make, and of their addresses. */
static int family = AF_INET, address_size = sizeof(struct sockaddr_in);

#ifdef _WIN32 /* where no library that programs name has the two */
static LPFN_CONNECTEX ConnectEx;
static LPFN_DISCONNECTEX DisconnectEx;

static void look_them_up(void)
{
    GUID connects = WSAID_CONNECTEX, disconnects = WSAID_DISCONNECTEX;
    SOCKET s = tcp_socket();
    DWORD bytes;
    CHECK_IS(WSAIoctl(s, SIO_GET_EXTENSION_FUNCTION_POINTER, &connects, sizeof connects, &ConnectEx,
                      sizeof ConnectEx, &bytes, NULL, NULL),
             0);
    CHECK_IS(WSAIoctl(s, SIO_GET_EXTENSION_FUNCTION_POINTER, &disconnects, sizeof disconnects, &DisconnectEx,
                      sizeof DisconnectEx, &bytes, NULL, NULL),
             0);
    CHECK_IS(closesocket(s), 0);
}

#endif

static SOCKET new_socket(void)
{
    SOCKET s = socket(family, SOCK_STREAM, IPPROTO_TCP);
    CHECK(s != INVALID_SOCKET);
    return s;
}

static Address any_port(void)
{
    static const unsigned char OWN[16] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1};
    Address address;
    memset(&address, 0, sizeof address);
    if (family == AF_INET) {
        address.four = loopback();
    } else {
        address.six.sin6_family = AF_INET6;
        memcpy(&address.six.sin6_addr, OWN, sizeof OWN);
    }
    return address;
}

static Address bind_to_a_port(SOCKET s)
{
    Address address = any_port();
    int size = address_size;
    CHECK_IS(bind(s, TO(address)), 0);
    CHECK_IS(getsockname(s, &address.any, &size), 0);
    CHECK_IS(size, address_size);
    return address;
}

static SOCKET new_listener(Address *address)
{
    SOCKET s = new_socket();
    *address = bind_to_a_port(s);
    CHECK_IS(listen(s, SOMAXCONN), 0);
    return s;
}

static SOCKET connected_to(const Address *address)
{
    SOCKET s = new_socket();
    CHECK_IS(connect(s, TO(*address)), 0);
    return s;
}

static void new_pair(SOCKET *near, SOCKET *far)
{
    Address address;
    SOCKET listener = new_listener(&address);
    *near = connected_to(&address);
    *far = (SOCKET)accept(listener, NULL, NULL);
    CHECK(*far != INVALID_SOCKET);
    associate(*near, port, KEY);
    CHECK_IS(closesocket(listener), 0);
}

static void begin_accept(SOCKET listener, Accept *accept, DWORD data)
{
    DWORD received = UNTOUCHED;
    accept->overlapped = fresh(NULL);
    accept->s = WSASocketW(family, SOCK_STREAM, IPPROTO_TCP, NULL, 0, WSA_FLAG_OVERLAPPED);
    CHECK(accept->s != INVALID_SOCKET);
    CHECK_FALSE(AcceptEx(listener, accept->s, accept->place, data, BLOCK, BLOCK, &received, &accept->overlapped),
                WSA_IO_PENDING);
    CHECK(!HAS_SOCKET_CALLS || received == UNTOUCHED);
}

/* The accept returns the port that the other end reports, and its address. */
static void check_address(const struct sockaddr *told, int size, SOCKET client,
                          int (*ask)(SOCKET, Address *))
{
    Address own, wanted;
    CHECK_IS(size, address_size);
    CHECK_IS(ask(client, &wanted), 0);
    memset(&own, 0, sizeof own);
    memcpy(&own, told, (size_t)size);
    CHECK_IS(own.any.sa_family, family);
    CHECK_IS(own.four.sin_port, wanted.four.sin_port);
    if (family == AF_INET)
        CHECK_IS(own.four.sin_addr.s_addr, wanted.four.sin_addr.s_addr);
    else
        CHECK_IS(memcmp(&own.six.sin6_addr, &wanted.six.sin6_addr, sizeof own.six.sin6_addr), 0);
}

static int own_name(SOCKET s, Address *address)
{
    int size = address_size;
    return getsockname(s, &address->any, &size);
}

static int name_of_peer(SOCKET s, Address *address)
{
    int size = address_size;
    return getpeername(s, &address->any, &size);
}

static void check_addresses(Accept *accept, DWORD data, SOCKET client)
{
    struct sockaddr *local = NULL, *remote = NULL;
    INT local_size = 0, remote_size = 0;
    GetAcceptExSockaddrs(accept->place, data, BLOCK, BLOCK, &local, &local_size, &remote, &remote_size);
    check_address(remote, remote_size, client, own_name);
    check_address(local, local_size, client, name_of_peer);
}

static void check_they_talk(SOCKET one, SOCKET other)
{
    char byte = 0;
    send_all(one, "x", 1);
    receive_all(other, &byte, 1);
    CHECK_IS(byte, 'x');
    send_all(other, "y", 1);
    receive_all(one, &byte, 1);
    CHECK_IS(byte, 'y');
}

/* The accepted socket is the one that the program gave, and keeps its association. */
static void accepts_take_the_connections_in_order(void)
{
    enum { COUNT = 16 };
    Address address;
    SOCKET listener = new_listener(&address), clients[COUNT];
    static Accept accepts[COUNT];
    int place;
    associate(listener, port, LISTENER_KEY);
    for (place = 0; place < COUNT; place++) {
        begin_accept(listener, &accepts[place], 0);
        associate(accepts[place].s, port, KEY);
    }
    for (place = 0; place < COUNT; place++) {
        OVERLAPPED overlapped = fresh(NULL);
        SOCKET number = accepts[place].s;
        char byte = 0;
        clients[place] = connected_to(&address);
        CHECK_ENDED(port, LISTENER_KEY, &accepts[place].overlapped, 0);
        CHECK_IS(accepts[place].s, number);
        CHECK_IS(setsockopt(number, SOL_SOCKET, SO_UPDATE_ACCEPT_CONTEXT, (char *)&listener, sizeof listener), 0);
        check_addresses(&accepts[place], 0, clients[place]);
        check_they_talk(accepts[place].s, clients[place]);
        CHECK_PENDING(receive_into(accepts[place].s, &byte, 1, NULL, &overlapped));
        send_all(clients[place], "z", 1);
        CHECK_ENDED(port, KEY, &overlapped, 1);
        CHECK_IS(byte, 'z');
    }
    for (place = 0; place < COUNT; place++) {
        closesocket(accepts[place].s);
        closesocket(clients[place]);
    }
    CHECK(is_silent(port));
    closesocket(listener);
}

static void a_connection_that_waits_is_accepted_at_once(void)
{
    Address address;
    SOCKET listener = new_listener(&address), client = connected_to(&address);
    Accept accept;
    DWORD received = UNTOUCHED;
    associate(listener, port, LISTENER_KEY);
    accept.overlapped = fresh(NULL);
    accept.s = new_socket();
    CHECK_BEGINS(AcceptEx(listener, accept.s, accept.place, 0, BLOCK, BLOCK, &received, &accept.overlapped));
    CHECK(!HAS_SOCKET_CALLS || received == UNTOUCHED);
    CHECK_ENDED(port, LISTENER_KEY, &accept.overlapped, 0);
    check_they_talk(accept.s, client);
    closesocket(accept.s);
    closesocket(client);
    closesocket(listener);
}

/* AcceptEx, ConnectEx and DisconnectEx always return WSA_IO_PENDING. So each makes a packet, even with
 * FILE_SKIP_COMPLETION_PORT_ON_SUCCESS. */
static void a_pending_result_makes_a_packet_whatever_is_set(void)
{
    enum { MODES = FILE_SKIP_COMPLETION_PORT_ON_SUCCESS | FILE_SKIP_SET_EVENT_ON_HANDLE };
    Address address;
    SOCKET listener = new_listener(&address), client = connected_to(&address), s = new_socket();
    HANDLE event = CreateEventA(NULL, TRUE, FALSE, NULL);
    OVERLAPPED overlapped = fresh(NULL);
    DWORD count = UNTOUCHED;
    Accept accept;
    associate(listener, port, LISTENER_KEY);
    associate(s, port, KEY);
    bind_to_a_port(s);
    CHECK(SetFileCompletionNotificationModes((HANDLE)listener, MODES));
    CHECK(SetFileCompletionNotificationModes((HANDLE)s, MODES));
    accept.overlapped = fresh(NULL);
    accept.s = new_socket();
    CHECK_BEGINS(AcceptEx(listener, accept.s, accept.place, 0, BLOCK, BLOCK, NULL, &accept.overlapped));
    CHECK_ENDED(port, LISTENER_KEY, &accept.overlapped, 0);
    close_both(accept.s, client);
    CHECK_BEGINS(ConnectEx(s, TO(address), NULL, 0, NULL, &overlapped));
    CHECK_ENDED(port, KEY, &overlapped, 0);
    /* The low bit of an event suppresses the packet. */
    accept.overlapped = fresh((HANDLE)((uintptr_t)event | 1));
    accept.s = new_socket();
    CHECK_BEGINS(AcceptEx(listener, accept.s, accept.place, 0, BLOCK, BLOCK, NULL, &accept.overlapped));
    CHECK_IS(WaitForSingleObject(event, SOON), WAIT_OBJECT_0);
    CHECK(GetOverlappedResult((HANDLE)listener, &accept.overlapped, &count, FALSE));
    CHECK(is_silent(port));
#if HAS_SOCKET_CALLS /* Under Wine a disconnect returns TRUE. */
    CHECK_BEGINS(DisconnectEx(s, &overlapped, 0, 0));
    CHECK_ENDED(port, KEY, &overlapped, 0);
#endif
    close_both(accept.s, s);
    closesocket(listener);
    CHECK(CloseHandle(event));
}

#ifndef _WIN32

/* Where a connection has come from is known also if it was reset before it was accepted. */
static void the_peer_of_a_connection_that_was_reset_is_told(void)
{
    Address address, wanted, told;
    SOCKET listener = new_listener(&address), client = connected_to(&address);
    struct linger at_once = {1, 0};
    struct sockaddr *local = NULL, *remote = NULL;
    INT local_size = 0, remote_size = 0;
    DWORD received = UNTOUCHED;
    Accept accept;
    associate(listener, port, LISTENER_KEY);
    CHECK_IS(own_name(client, &wanted), 0);
    CHECK_IS(setsockopt(client, SOL_SOCKET, SO_LINGER, (char *)&at_once, sizeof at_once), 0);
    closesocket(client);
    accept.overlapped = fresh(NULL);
    accept.s = new_socket();
    CHECK_BEGINS(AcceptEx(listener, accept.s, accept.place, 0, BLOCK, BLOCK, &received, &accept.overlapped));
    CHECK_ENDED(port, LISTENER_KEY, &accept.overlapped, 0);
    GetAcceptExSockaddrs(accept.place, 0, BLOCK, BLOCK, &local, &local_size, &remote, &remote_size);
    CHECK_IS(remote_size, address_size);
    memcpy(&told, remote, (size_t)remote_size);
    CHECK_IS(told.four.sin_port, wanted.four.sin_port);
    CHECK_IS(local_size, address_size);
    closesocket(accept.s);
    closesocket(listener);
}

/* A number had a connection, where a short read leaves nothing, and now has datagrams, where it
 * leaves others. The library was not notified and trusts the number. */
static void what_follows_a_connection_is_asked_what_it_is(void)
{
    Address address;
    SOCKET listener = new_listener(&address), client = connected_to(&address);
    DWORD received = UNTOUCHED;
    OVERLAPPED first = fresh(NULL), second = fresh(NULL);
    int ends[2];
    char bytes[2][16];
    Accept accept;
    associate(listener, port, LISTENER_KEY);
    accept.overlapped = fresh(NULL);
    accept.s = new_socket();
    CHECK_BEGINS(AcceptEx(listener, accept.s, accept.place, 0, BLOCK, BLOCK, &received, &accept.overlapped));
    CHECK_ENDED(port, LISTENER_KEY, &accept.overlapped, 0);
    associate(accept.s, port, LISTENER_KEY);
    CHECK_IS(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends), 0);
    CHECK_IS(syscall(SYS_dup3, ends[0], (int)accept.s, 0), accept.s);
    associate(accept.s, port, KEY);
    CHECK_PENDING(receive_into(accept.s, bytes[0], sizeof bytes[0], NULL, &first));
    CHECK_PENDING(receive_into(accept.s, bytes[1], sizeof bytes[1], NULL, &second));
    CHECK_IS(write(ends[1], "one", 3), 3);
    CHECK_IS(write(ends[1], "other", 5), 5);
    CHECK_ENDED(port, KEY, &first, 3);
    CHECK_ENDED(port, KEY, &second, 5);
    closesocket(accept.s);
    syscall(SYS_close, ends[0]);
    syscall(SYS_close, ends[1]);
    close_both(client, listener);
}

/* An accept asks whether the listener listens each time, also if its accepts are in flight. */
static void a_listener_that_was_shut_is_none(void)
{
    Address address;
    SOCKET listener = new_listener(&address);
    DWORD received = UNTOUCHED;
    Accept waits, late;
    associate(listener, port, LISTENER_KEY);
    begin_accept(listener, &waits, 0);
    CHECK_IS(shutdown(listener, SD_BOTH), 0);
    late.overlapped = fresh(NULL);
    late.s = new_socket();
    CHECK_FALSE(AcceptEx(listener, late.s, late.place, 0, BLOCK, BLOCK, &received, &late.overlapped), WSAEINVAL);
    CHECK_FAILED(port, LISTENER_KEY, &waits.overlapped, 0, ERROR_INVALID_PARAMETER);
    close_both(waits.s, late.s);
    closesocket(listener);
}

#endif

static void first_data_comes_with_the_connection(void)
{
    Address address;
    SOCKET listener = new_listener(&address), silent, talker;
    Accept first, second;
    associate(listener, port, LISTENER_KEY);
    begin_accept(listener, &first, 64);
    begin_accept(listener, &second, 64);
    silent = connected_to(&address);
    CHECK(is_silent(port));
    /* A silent client holds its own accept only. */
    talker = connected_to(&address);
    send_all(talker, "hello", 5);
    CHECK_ENDED(port, LISTENER_KEY, &second.overlapped, 5);
    CHECK(memcmp(second.place, "hello", 5) == 0);
    check_addresses(&second, 64, talker);
    check_they_talk(second.s, talker);
    /* Its accept is found and cancelled by the listener, as before. */
    CHECK(CancelIoEx((HANDLE)listener, &first.overlapped));
    CHECK_FAILED(port, LISTENER_KEY, &first.overlapped, 0, ERROR_OPERATION_ABORTED);
    closesocket(silent);
    closesocket(talker);
    closesocket(first.s);
    closesocket(second.s);
    closesocket(listener);
}

/* An accept of either kind gets the next connection, even while earlier accepts wait for silent clients. The
 * connections may come before or after the accepts. */
static void silent_clients_hold_no_other_accept(void)
{
    enum { COUNT = 4 };
    Address address;
    SOCKET listener = new_listener(&address), clients[COUNT];
    static Accept accepts[COUNT];
    int come_first, place;
    associate(listener, port, LISTENER_KEY);
    for (come_first = 0; come_first < 2; come_first++) {
        for (place = 0; place < COUNT; place++) {
            Accept *accept = &accepts[place];
            DWORD data = place % 2 == 0 ? 64 : 0;
            if (come_first) {
                clients[place] = connected_to(&address);
                accept->overlapped = fresh(NULL);
                accept->s = new_socket();
                CHECK_BEGINS(
                    AcceptEx(listener, accept->s, accept->place, data, BLOCK, BLOCK, NULL, &accept->overlapped));
                if (data == 0)
                    CHECK_ENDED(port, LISTENER_KEY, &accept->overlapped, 0);
            } else {
                begin_accept(listener, accept, data);
            }
        }
        for (place = 0; place < COUNT && !come_first; place++) {
            clients[place] = connected_to(&address);
            if (place % 2 == 1)
                CHECK_ENDED(port, LISTENER_KEY, &accepts[place].overlapped, 0);
        }
        CHECK(is_silent(port));
        /* The last one sends first; the other one announces that it will send nothing. */
        send_all(clients[2], "hello", 5);
        CHECK_ENDED(port, LISTENER_KEY, &accepts[2].overlapped, 5);
        CHECK(memcmp(accepts[2].place, "hello", 5) == 0);
        CHECK_IS(shutdown(clients[0], SD_SEND), 0);
        CHECK_ENDED(port, LISTENER_KEY, &accepts[0].overlapped, 0);
        for (place = 1; place < COUNT; place++)
            check_they_talk(accepts[place].s, clients[place]);
        for (place = 0; place < COUNT; place++)
            close_both(accepts[place].s, clients[place]);
    }
    CHECK(is_silent(port));
    closesocket(listener);
}

/* Some clients stay silent, some speak late, and some accepts are cancelled meanwhile. Each accept
 * ends when its own client acts, and the listener keeps accepting. */
static void each_accept_waits_for_its_own_client(void)
{
    enum { COUNT = 12 };
    Address address;
    SOCKET listener = new_listener(&address), clients[COUNT], client;
    static Accept accepts[COUNT];
    Accept plain;
    int place;
    char byte;
    associate(listener, port, LISTENER_KEY);
    for (place = 0; place < COUNT; place++)
        begin_accept(listener, &accepts[place], 64);
    for (place = 0; place < COUNT; place++)
        clients[place] = connected_to(&address);
    CHECK(is_silent(port));
    for (place = 0; place < COUNT; place += 3) {
        CHECK(CancelIoEx((HANDLE)listener, &accepts[place].overlapped));
        CHECK_FAILED(port, LISTENER_KEY, &accepts[place].overlapped, 0, ERROR_OPERATION_ABORTED);
        closesocket(accepts[place].s);
#if HAS_SOCKET_CALLS /* Windows does not define what happens to the connection. */
        CHECK_IS(recv(clients[place], &byte, 1, 0), 0);
#endif
        /* The next connection is the next accept's. */
        begin_accept(listener, &plain, 0);
        client = connected_to(&address);
        CHECK_ENDED(port, LISTENER_KEY, &plain.overlapped, 0);
        check_they_talk(plain.s, client);
        close_both(plain.s, client);
    }
    for (place = COUNT - 1; place >= 0; place--) {
        if (place % 3 == 1) {
            byte = (char)place;
            send_all(clients[place], &byte, 1);
            CHECK_ENDED(port, LISTENER_KEY, &accepts[place].overlapped, 1);
            CHECK_IS(accepts[place].place[0], place);
            check_they_talk(accepts[place].s, clients[place]);
            closesocket(accepts[place].s);
            closesocket(clients[place]);
        } else if (place % 3 == 2) {
#if HAS_SOCKET_CALLS /* Windows does not define how it reports a reset. */
            abort_connection(clients[place]);
            CHECK_FAILED(port, LISTENER_KEY, &accepts[place].overlapped, 0, ERROR_NETNAME_DELETED);
#else
            closesocket(clients[place]);
            CHECK_ENDED(port, LISTENER_KEY, &accepts[place].overlapped, 0);
#endif
            closesocket(accepts[place].s);
        } else {
            closesocket(clients[place]);
        }
    }
    CHECK(is_silent(port));
    closesocket(listener);
}

/* The client has connected and said nothing. */
static void what_waits_for_first_data_may_be_associated_and_closed(void)
{
    Address address;
    SOCKET listener = new_listener(&address), client;
    Accept accept;
    int is_closed;
    associate(listener, port, LISTENER_KEY);
    for (is_closed = 0; is_closed <= HAS_SOCKET_CALLS; is_closed++) { /* Windows does not define what happens to it */
        begin_accept(listener, &accept, 64);
        client = connected_to(&address);
        CHECK(is_silent(port));
        associate(accept.s, port, KEY);
        CHECK(is_silent(port));
        if (is_closed) {
            CHECK_IS(closesocket(accept.s), 0);
            CHECK_FAILED(port, LISTENER_KEY, &accept.overlapped, 0, ERROR_OPERATION_ABORTED);
        } else {
            send_all(client, "hello", 5);
            CHECK_ENDED(port, LISTENER_KEY, &accept.overlapped, 5);
            check_they_talk(accept.s, client);
            closesocket(accept.s);
        }
        CHECK(is_silent(port));
        closesocket(client);
    }
    closesocket(listener);
}

#ifndef _WIN32
typedef struct Race {
    SOCKET listener;
    Accept accept;
    /* What gets the number of the socket, or none if it is cancelled and not closed. */
    int stranger;
} Race;

/* Ends an accept as soon as it has its connection, which has brought no data yet. */
static DWORD WINAPI end_when_connected(LPVOID argument)
{
    Race *race = (Race *)argument;
    Address address;
    socklen_t size;
    do
        size = (socklen_t)sizeof address;
    while (syscall(SYS_getpeername, (int)race->accept.s, &address, &size) != 0);
    if (race->stranger < 0) {
        CHECK(CancelIoEx((HANDLE)race->listener, &race->accept.overlapped));
    } else {
        CHECK_IS(closesocket(race->accept.s), 0);
        CHECK_IS(dup2(race->stranger, (int)race->accept.s), race->accept.s);
    }
    return 0;
}

/* Closing between the accept and the first data: the operation ends, and never reads from the next
 * socket with the number. */
static void an_accept_ends_when_its_connection_is_closed_just_then(void)
{
    Address address;
    SOCKET listener = new_listener(&address), client, near, far;
    static Race race;
    char byte;
    int round, rounds = is_slow() ? 10 : 300;
    associate(listener, port, LISTENER_KEY);
    tcp_pair(&near, &far);
    send_all(far, "x", 1);
    until(near, POLLIN);
    race.listener = listener;
    for (round = 0; round < rounds; round++) {
        HANDLE thread;
        race.stranger = round % 2 == 0 ? (int)near : -1;
        begin_accept(listener, &race.accept, 64);
        thread = CreateThread(NULL, 0, end_when_connected, &race, 0, NULL);
        CHECK(thread != NULL);
        client = connected_to(&address);
        CHECK_FAILED(port, LISTENER_KEY, &race.accept.overlapped, 0, ERROR_OPERATION_ABORTED);
        CHECK_IS(WaitForSingleObject(thread, SOON), WAIT_OBJECT_0);
        CHECK(CloseHandle(thread));
        closesocket(race.accept.s);
        closesocket(client);
    }
    receive_all(near, &byte, 1);
    CHECK_IS(byte, 'x');
    CHECK(is_silent(port));
    close_both(near, far);
    closesocket(listener);
}

#endif

#if HAS_SOCKET_CALLS /* Windows does not document what it carries over. */
/* What a program may set of the socket that it gives. */
typedef struct Option {
    const char *name;
    int level, which, of_family; /* 0: of both */
    int value, second;           /* the second one of a pair */
} Option;

static const Option OPTIONS[] = {
#define OPTION(level, name, of_family, value) {#name, level, name, of_family, value, 0}
    OPTION(SOL_SOCKET, SO_KEEPALIVE, 0, 1),
    {"SO_LINGER", SOL_SOCKET, SO_LINGER, 0, 1, 7},
    OPTION(SOL_SOCKET, SO_OOBINLINE, 0, 1),
    OPTION(SOL_SOCKET, SO_DONTROUTE, 0, 1),
    OPTION(SOL_SOCKET, SO_RCVTIMEO, 0, 1200),
    OPTION(SOL_SOCKET, SO_SNDTIMEO, 0, 2400),
    OPTION(SOL_SOCKET, SO_SNDBUF, 0, 30000),
    OPTION(SOL_SOCKET, SO_RCVBUF, 0, 40000),
    OPTION(IPPROTO_TCP, TCP_NODELAY, 0, 1),
    OPTION(IPPROTO_TCP, TCP_KEEPIDLE, 0, 111),
    OPTION(IPPROTO_TCP, TCP_KEEPINTVL, 0, 11),
    OPTION(IPPROTO_TCP, TCP_KEEPCNT, 0, 3),
    OPTION(IPPROTO_IP, IP_TOS, 0, 0x10),
    OPTION(IPPROTO_IP, IP_TTL, 0, 77),
    OPTION(IPPROTO_IPV6, IPV6_UNICAST_HOPS, AF_INET6, 78),
    OPTION(IPPROTO_IPV6, IPV6_TCLASS, AF_INET6, 0x20),
#undef OPTION
};
enum { OPTION_COUNT = sizeof OPTIONS / sizeof *OPTIONS };

/* What the socket has of an option. */
static void get_option(SOCKET s, const Option *option, int values[2])
{
    int size = (int)sizeof(int) * (option->which == SO_LINGER ? 2 : 1);
    values[0] = values[1] = 0;
    CHECK_IS(getsockopt(s, option->level, option->which, (char *)values, &size), 0);
}

static void what_the_program_has_set_goes_on(void)
{
    Address address;
    SOCKET listener = new_listener(&address);
    int place, begun_before;
    for (place = 0; place < OPTION_COUNT; place++) {
        const Option *option = &OPTIONS[place];
        int wanted[2] = {option->value, option->second}, set[2], plain[2], carried[2];
        int size = (int)sizeof(int) * (option->which == SO_LINGER ? 2 : 1);
        if (option->of_family != 0 && option->of_family != family)
            continue;
        /* Before the call, and during the accept. */
        for (begun_before = 0; begun_before < 2; begun_before++) {
            SOCKET client, accepted;
            Accept accept_ex;
            accept_ex.s = new_socket();
            accept_ex.overlapped = fresh(NULL);
            if (begun_before)
                CHECK_FALSE(AcceptEx(listener, accept_ex.s, accept_ex.place, 0, BLOCK, BLOCK, NULL,
                                     &accept_ex.overlapped),
                            WSA_IO_PENDING);
            CHECK_IS(setsockopt(accept_ex.s, option->level, option->which, (char *)wanted, size), 0);
            get_option(accept_ex.s, option, set);
            if (!begun_before)
                CHECK_FALSE(AcceptEx(listener, accept_ex.s, accept_ex.place, 0, BLOCK, BLOCK, NULL,
                                     &accept_ex.overlapped),
                            WSA_IO_PENDING);
            client = connected_to(&address);
            until_ended(&accept_ex.overlapped);
            get_option(accept_ex.s, option, carried);
            if (carried[0] != set[0] || carried[1] != set[1])
                fprintf(stderr, "%s\n", option->name);
            CHECK_IS(carried[0], set[0]);
            CHECK_IS(carried[1], set[1]);
            close_both(accept_ex.s, client);
            /* A connection has another value by default. */
            client = connected_to(&address);
            accepted = (SOCKET)accept(listener, NULL, NULL);
            CHECK(accepted != INVALID_SOCKET);
            get_option(accepted, option, plain);
            CHECK(plain[0] != set[0]);
            close_both(accepted, client);
        }
    }
    closesocket(listener);
}

#endif

static void it_blocks_as_the_program_has_said(void)
{
    Address address;
    SOCKET listener = new_listener(&address), client;
    Accept accept;
    DWORD time = 5;
    char byte;
    int is_nonblocking;
    for (is_nonblocking = 0; is_nonblocking < 2; is_nonblocking++) {
        begin_accept(listener, &accept, 0);
        CHECK_IS(setsockopt(accept.s, SOL_SOCKET, SO_RCVTIMEO, (char *)&time, sizeof time), 0);
        if (is_nonblocking)
            set_nonblocking(accept.s);
        client = connected_to(&address);
        until_ended(&accept.overlapped);
        CHECK_SOCKET_ERROR((int)recv(accept.s, &byte, 1, 0), is_nonblocking ? WSAEWOULDBLOCK : WSAETIMEDOUT);
        close_both(accept.s, client);
    }
    closesocket(listener);
}

/* There is no connection to accept, as this code says. */
static int accept_none(SOCKET listener, int code)
{
    SOCKET accepted;
    WSASetLastError(0);
    accepted = (SOCKET)accept(listener, NULL, NULL);
    return accepted == INVALID_SOCKET && WSAGetLastError() == code;
}

/* A listener that has accepts in flight blocks in the calls that block, if the program has not said otherwise. */
static void a_listener_still_blocks_in_accept(void)
{
    Address address;
    SOCKET listener = new_listener(&address), client, accepted;
    Accept first;
    u_long mode = 1;
    DWORD time = 5;
    begin_accept(listener, &first, 0);
    client = connected_to(&address);
    until_ended(&first.overlapped);
    closesocket(client);
    closesocket(first.s);
    CHECK_IS(setsockopt(listener, SOL_SOCKET, SO_RCVTIMEO, (char *)&time, sizeof time), 0);
#if HAS_SOCKET_CALLS /* An accept of Windows has no limit. */
    CHECK(accept_none(listener, WSAETIMEDOUT));
#endif
    client = connected_to(&address);
    accepted = (SOCKET)accept(listener, NULL, NULL);
    CHECK(accepted != INVALID_SOCKET);
    check_they_talk(client, accepted);
    closesocket(accepted);
    closesocket(client);
    CHECK_IS(ioctlsocket(listener, FIONBIO, &mode), 0);
    CHECK(accept_none(listener, WSAEWOULDBLOCK));
    mode = 0;
    CHECK_IS(ioctlsocket(listener, FIONBIO, &mode), 0);
#if HAS_SOCKET_CALLS
    CHECK(accept_none(listener, WSAETIMEDOUT));
#endif
    closesocket(listener);
}

#ifndef _WIN32

static DWORD WINAPI accept_and_wait(LPVOID argument)
{
    CHECK(accept_none(*(SOCKET *)argument, WSAENOTSOCK));
    return 0;
}

/* A waiting call on it ends when another thread closes it, and takes nothing from the next socket
 * with the number. */
static void a_call_on_a_listener_that_is_closed_accepts_nothing(void)
{
    Address address, another;
    SOCKET listener = new_listener(&address), other = new_listener(&another), client, accepted;
    Accept first;
    HANDLE thread;
    begin_accept(listener, &first, 0);
    client = connected_to(&address);
    until_ended(&first.overlapped);
    closesocket(client);
    closesocket(first.s);
    thread = CreateThread(NULL, 0, accept_and_wait, &listener, 0, NULL);
    until_the_others_sleep(); /* it waits */
    CHECK_IS(closesocket(listener), 0);
    CHECK_IS(fcntl((int)other, F_DUPFD, (int)listener), listener);
    client = connected_to(&another);
    CHECK_IS(WaitForSingleObject(thread, SOON), WAIT_OBJECT_0);
    accepted = (SOCKET)accept(other, NULL, NULL);
    check_they_talk(client, accepted);
    CHECK(CloseHandle(thread));
    CHECK_IS(close((int)listener), 0);
    close_both(client, accepted);
    closesocket(other);
}

#endif

static void accepts_are_cancelled(void)
{
    Address address;
    SOCKET listener = new_listener(&address);
    Accept accept;
#if HAS_SOCKET_CALLS
    SOCKET client;
    char byte;
#endif
    associate(listener, port, LISTENER_KEY);
    begin_accept(listener, &accept, 0);
    CHECK(CancelIoEx((HANDLE)listener, &accept.overlapped));
    CHECK_FAILED(port, LISTENER_KEY, &accept.overlapped, 0, ERROR_OPERATION_ABORTED);
    /* The socket may be given to another accept. */
    accept.overlapped = fresh(NULL);
    CHECK_FALSE(AcceptEx(listener, accept.s, accept.place, 0, BLOCK, BLOCK, NULL, &accept.overlapped),
                WSA_IO_PENDING);
#if HAS_SOCKET_CALLS /* Windows does not define what happens to an accept whose socket is closed. */
    /* To close it cancels, too. */
    CHECK_IS(closesocket(accept.s), 0);
    CHECK_FAILED(port, LISTENER_KEY, &accept.overlapped, 0, ERROR_OPERATION_ABORTED);
    /* Nothing replaces the next socket with the number. */
    begin_accept(listener, &accept, 0);
    CHECK_IS(another(accept.s), accept.s);
    client = connected_to(&address);
    CHECK_FAILED(port, LISTENER_KEY, &accept.overlapped, 0, ERROR_OPERATION_ABORTED);
    send_to_itself(accept.s);
    closesocket(accept.s);
    CHECK_IS(recv(client, &byte, 1, 0), 0);
    closesocket(client);
    begin_accept(listener, &accept, 0);
#endif
    /* The listener closed. */
    CHECK_IS(closesocket(listener), 0);
    CHECK_FAILED(port, LISTENER_KEY, &accept.overlapped, 0, ERROR_OPERATION_ABORTED);
    closesocket(accept.s);
    CHECK(is_silent(port));
}

/* The listener passed to an accepted socket must be a socket. */
static void a_listener_that_is_none_is_refused(void)
{
    Address address;
    SOCKET listener = new_listener(&address), client = connected_to(&address), closed = new_socket();
    uintptr_t file, ends[2];
    Accept accept;
    open_file_and_pipe(&file, ends);
    accept.s = new_socket();
    accept.overlapped = fresh(NULL);
    CHECK_BEGINS(AcceptEx(listener, accept.s, accept.place, 0, BLOCK, BLOCK, NULL, &accept.overlapped));
    until_ended(&accept.overlapped);
    closesocket(closed);
#define UPDATE(s, value, size) setsockopt(s, SOL_SOCKET, SO_UPDATE_ACCEPT_CONTEXT, (const char *)(value), size)
    CHECK_IS(UPDATE(accept.s, &listener, sizeof listener), 0);
    CHECK_SOCKET_ERROR(UPDATE(accept.s, NULL, sizeof listener), WSAEFAULT);
    UNLESS_WINE("anything is taken for the listener of an accepted socket") {
        CHECK_SOCKET_ERROR(UPDATE((SOCKET)file, &listener, sizeof listener), WSAENOTSOCK);
        CHECK_SOCKET_ERROR(UPDATE(accept.s, &listener, 0), WSAEFAULT);
        CHECK_SOCKET_ERROR(UPDATE(accept.s, &listener, sizeof(int)), WSAEFAULT);
        CHECK_SOCKET_ERROR(UPDATE(accept.s, &closed, sizeof closed), WSAENOTSOCK);
        CHECK_SOCKET_ERROR(UPDATE(accept.s, &file, sizeof file), WSAENOTSOCK);
        closed = INVALID_SOCKET;
        CHECK_SOCKET_ERROR(UPDATE(accept.s, &closed, sizeof closed), WSAENOTSOCK);
    }
#undef UPDATE
    close_file_and_pipe(file, ends);
    close_both(accept.s, client);
    closesocket(listener);
}

#ifndef _WIN32
/* The time that the processor has had for this process, in milliseconds. */
static long busy_time(void)
{
    struct rusage usage;
    CHECK_IS(getrusage(RUSAGE_SELF, &usage), 0);
    return (long)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) * 1000
           + (long)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1000;
}

/* The accept waits without spinning, whichever thread performs it, and continues when there is a
 * descriptor. */
static void an_accept_waits_for_descriptors(void)
{
    enum { TIME = 100 };
    int round;
    if (is_slow()) { /* Valgrind closes descriptors beyond the limit: the connection is lost */
        printf("SKIPPED an accept that waits for descriptors: Valgrind has a limit of its own\n");
        return;
    }
    for (round = 0; round < 4; round++) {
        int has_port = round & 1, is_connected_first = round >> 1;
        Address address;
        SOCKET listener = new_listener(&address), client = new_socket();
        Accept accept;
        struct rlimit before, none;
        DWORD count;
        ULONG_PTR key;
        LPOVERLAPPED which;
        long busy;
        int next;
        if (has_port)
            associate(listener, port, LISTENER_KEY);
        accept.overlapped = fresh(NULL);
        accept.s = new_socket();
#define BEGIN() \
    CHECK_FALSE(AcceptEx(listener, accept.s, accept.place, 0, BLOCK, BLOCK, NULL, &accept.overlapped), WSA_IO_PENDING)
        if (!is_connected_first)
            BEGIN();
        CHECK_IS(getrlimit(RLIMIT_NOFILE, &before), 0);
        next = fcntl((int)listener, F_DUPFD_CLOEXEC, 0);
        CHECK(next >= 0);
        CHECK_IS(close(next), 0);
        none = before;
        none.rlim_cur = (rlim_t)next;
        CHECK_IS(setrlimit(RLIMIT_NOFILE, &none), 0);
        CHECK_IS(connect(client, TO(address)), 0);
        if (is_connected_first)
            BEGIN();
#undef BEGIN
        busy = busy_time();
        CHECK_FALSE(GetQueuedCompletionStatus(port, &count, &key, &which, TIME), WAIT_TIMEOUT);
        CHECK(!HasOverlappedIoCompleted(&accept.overlapped));
        CHECK(busy_time() - busy < TIME / 2);
        CHECK_IS(setrlimit(RLIMIT_NOFILE, &before), 0);
        until_ended(&accept.overlapped);
        CHECK_IS(status_of(accept.overlapped.Internal), SUCCEEDED_WELL);
        if (has_port)
            CHECK_ENDED(port, LISTENER_KEY, &accept.overlapped, 0);
        check_they_talk(accept.s, client);
        close_both(accept.s, client);
        closesocket(listener);
    }
}

#endif

static void bad_accepts_are_refused(void)
{
    Address address;
    SOCKET listener = new_listener(&address), no_listener = new_socket(), bound = new_socket(), udp = udp_socket();
    Accept accept, other;
    accept.s = new_socket();
    accept.overlapped = fresh(NULL);
    bind_to_a_port(bound);
#define ACCEPT(l, s, place, local, remote, overlapped) AcceptEx(l, s, place, 0, local, remote, NULL, overlapped)
    CHECK_FALSE(ACCEPT(listener, accept.s, accept.place, BLOCK, BLOCK, NULL), WSA_INVALID_PARAMETER);
#if HAS_SOCKET_CALLS
    CHECK_FALSE(ACCEPT(listener, accept.s, NULL, BLOCK, BLOCK, &accept.overlapped), WSAEFAULT);
#endif
    UNLESS_WINE("an accept begins with too little room for an address") {
        CHECK_FALSE(ACCEPT(listener, accept.s, accept.place, BLOCK - 1, BLOCK, &accept.overlapped), WSAEINVAL);
        CHECK_FALSE(ACCEPT(listener, accept.s, accept.place, BLOCK, BLOCK - 1, &accept.overlapped), WSAEINVAL);
    }
    CHECK_FALSE(ACCEPT(INVALID_SOCKET, accept.s, accept.place, BLOCK, BLOCK, &accept.overlapped), WSAENOTSOCK);
    CHECK_FALSE(ACCEPT(listener, INVALID_SOCKET, accept.place, BLOCK, BLOCK, &accept.overlapped), WSAENOTSOCK);
    UNLESS_WINE("an accept begins on a socket that does not listen")
        CHECK_FALSE(ACCEPT(no_listener, accept.s, accept.place, BLOCK, BLOCK, &accept.overlapped), WSAEINVAL);
    UNLESS_WINE("an accept begins with a socket that is bound, or is no stream") {
        CHECK_FALSE(ACCEPT(listener, bound, accept.place, BLOCK, BLOCK, &accept.overlapped), WSAEINVAL);
        CHECK_FALSE(ACCEPT(listener, udp, accept.place, BLOCK, BLOCK, &accept.overlapped), WSAEINVAL);
    }
    CHECK_FALSE(ACCEPT(listener, accept.s, accept.place, BLOCK, BLOCK, &accept.overlapped), WSA_IO_PENDING);
    other.overlapped = fresh(NULL);
    CHECK_FALSE(ACCEPT(listener, accept.s, other.place, BLOCK, BLOCK, &other.overlapped), WSAEINVAL);
    CHECK(CancelIoEx((HANDLE)listener, NULL));
    until_ended(&accept.overlapped);
    closesocket(accept.s);
    closesocket(bound);
    closesocket(udp);
    closesocket(no_listener);
    closesocket(listener);
}

static void connects_complete_and_may_bring_data(void)
{
    Address address;
    SOCKET listener = new_listener(&address), s = new_socket(), accepted;
    const int short_ones[] = {-1, 0, 1, 8, address_size - 1};
    size_t place;
    char hello[] = "hello", bytes[5];
    OVERLAPPED overlapped = fresh(NULL);
    CHECK_FALSE(ConnectEx(s, TO(address), NULL, 0, NULL, &overlapped), WSAEINVAL);
    bind_to_a_port(s);
    associate(s, port, KEY);
    UNLESS_WINE("a connect takes an address that is too short")
        for (place = 0; place < sizeof short_ones / sizeof *short_ones; place++)
            CHECK_FALSE(ConnectEx(s, &address.any, short_ones[place], NULL, 0, NULL, &overlapped),
                        WSAEFAULT);
    CHECK_BEGINS(ConnectEx(s, TO(address), hello, 5, NULL, &overlapped));
    CHECK_ENDED(port, KEY, &overlapped, 5);
    CHECK_IS(setsockopt(s, SOL_SOCKET, SO_UPDATE_CONNECT_CONTEXT, NULL, 0), 0);
    accepted = (SOCKET)accept(listener, NULL, NULL);
    receive_all(accepted, bytes, 5);
    CHECK(memcmp(bytes, "hello", 5) == 0);
    check_they_talk(s, accepted);
    /* The socket blocks, as it did before. */
    CHECK(!is_nonblocking(s));
    CHECK_FALSE(ConnectEx(s, TO(address), NULL, 0, NULL, &overlapped), WSAEISCONN);
    closesocket(s);
    closesocket(accepted);
    closesocket(listener);
}

#if HAS_SOCKET_CALLS /* To Windows a socket that is not connected is a mistake. */
/* SO_UPDATE_CONNECT_CONTEXT: nothing is left for it to do, whatever the socket is. */
static void a_socket_may_be_told_of_its_connect(void)
{
    SOCKET s = new_socket(), closed = new_socket();
    uintptr_t file, ends[2];
    open_file_and_pipe(&file, ends);
    closesocket(closed);
#define UPDATE(s) setsockopt(s, SOL_SOCKET, SO_UPDATE_CONNECT_CONTEXT, NULL, 0)
    CHECK_IS(UPDATE(s), 0);
    CHECK_SOCKET_ERROR(UPDATE((SOCKET)file), WSAENOTSOCK);
    CHECK_SOCKET_ERROR(UPDATE(closed), WSAENOTSOCK);
#undef UPDATE
    close_file_and_pipe(file, ends);
    closesocket(s);
}
#endif

static void a_connect_that_is_refused_fails(void)
{
    SOCKET keeps = new_socket(), s = new_socket(), other; /* bound and not listening: a connect to it is refused */
    Address address = bind_to_a_port(keeps), good;
    SOCKET listener = new_listener(&good);
    OVERLAPPED overlapped = fresh(NULL);
    DWORD count = UNTOUCHED, flags = 0;
    associate(s, port, KEY);
    bind_to_a_port(s);
    CHECK_FALSE(ConnectEx(s, TO(address), NULL, 0, NULL, &overlapped),
                WSA_IO_PENDING);
    CHECK_FAILED(port, KEY, &overlapped, 0, ERROR_CONNECTION_REFUSED);
    CHECK_IS(status_of(overlapped.Internal), CONNECTION_REFUSED);
    CHECK_FALSE(WSAGetOverlappedResult(s, &overlapped, &count, FALSE, &flags), WSAECONNREFUSED);
    UNLESS_WINE("a socket whose connect was refused cannot be connected again") {
        CHECK_BEGINS(ConnectEx(s, TO(good), NULL, 0, NULL, &overlapped));
        CHECK_ENDED(port, KEY, &overlapped, 0);
        other = (SOCKET)accept(listener, NULL, NULL);
        check_they_talk(s, other);
        closesocket(other);
    }
    UNLESS_WINE("a connect takes an address that is too short")
        CHECK_FALSE(ConnectEx(s, NULL, 0, NULL, 0, NULL, &overlapped), WSAEFAULT);
    CHECK_FALSE(ConnectEx(s, TO(good), NULL, 0, NULL, NULL), WSA_INVALID_PARAMETER);
    CHECK_FALSE(ConnectEx(INVALID_SOCKET, TO(good), NULL, 0, NULL, &overlapped),
                WSAENOTSOCK);
    closesocket(s);
    closesocket(listener);
    closesocket(keeps);
}

#if HAS_SOCKET_CALLS
/* A transfer during a connect is refused, unless the connect has ended by then: returns whether it
 * is in flight, and fails. */
static int is_in_flight(int begun, LPOVERLAPPED connect)
{
    CHECK_IS(begun, SOCKET_ERROR);
    if (WSAGetLastError() == WSAENOTCONN)
        return 0;
    CHECK_IS(WSAGetLastError(), WSA_IO_PENDING);
    /* The socket is free for a transfer slightly before the OVERLAPPED reports the end of the
     * connect. */
    until_ended(connect);
    return 1;
}

/* Other calls on the socket may get the error first, which the system reports only once. */
static void a_connect_that_is_refused_fails_whoever_is_told(void)
{
    int round;
    for (round = 0; round < 40; round++) {
        SOCKET keeps = new_socket(), s = new_socket();
        Address address = bind_to_a_port(keeps);
        OVERLAPPED overlapped = fresh(NULL), receive = fresh(NULL);
        int error = -1, size = sizeof error, goes_on = 0;
        char byte;
        associate(s, port, KEY);
        bind_to_a_port(s);
        CHECK_FALSE(ConnectEx(s, TO(address), NULL, 0, NULL, &overlapped), WSA_IO_PENDING);
        switch (round % 4) {
        case 0:
            CHECK_IS(getsockopt(s, SOL_SOCKET, SO_ERROR, (char *)&error, &size), 0);
            break;
        case 1:
            CHECK_IS(recv(s, &byte, 1, 0), SOCKET_ERROR);
            break;
        case 2:
            goes_on = is_in_flight(receive_into(s, &byte, 1, NULL, &receive), &overlapped);
            break;
        default:
            goes_on = is_in_flight(send_from(s, "x", 1, NULL, &receive), &overlapped);
        }
        CHECK_FAILED(port, KEY, &overlapped, 0, ERROR_CONNECTION_REFUSED);
        if (goes_on) {
            DWORD bytes;
            ULONG_PTR key;
            OVERLAPPED *ended = NULL;
            CHECK(!GetQueuedCompletionStatus(port, &bytes, &key, &ended, SOON));
            CHECK(ended == &receive);
        }
        close_both(s, keeps);
    }
    CHECK(is_silent(port));
}

/* The system connects a socket to itself that asks for its own port, at which nothing listens. */
static void a_connect_of_a_socket_to_itself_is_refused(void)
{
    int round;
    for (round = 0; round < 20; round++) {
        SOCKET s = new_socket(), other;
        Address own = bind_to_a_port(s), good, peer;
        SOCKET listener = new_listener(&good);
        OVERLAPPED overlapped = fresh(NULL);
        int size = address_size;
        char byte = 'x';
        associate(s, port, KEY);
        CHECK_FALSE(ConnectEx(s, TO(own), &byte, 1, NULL, &overlapped), WSA_IO_PENDING);
        CHECK_FAILED(port, KEY, &overlapped, 0, ERROR_CONNECTION_REFUSED);
        CHECK_IS(status_of(overlapped.Internal), CONNECTION_REFUSED);
        CHECK_SOCKET_ERROR(getpeername(s, &peer.any, &size), WSAENOTCONN);
        /* It has its port still, and may be connected. */
        size = address_size;
        CHECK_IS(getsockname(s, &peer.any, &size), 0);
        CHECK_IS(peer.four.sin_port, own.four.sin_port);
        CHECK_BEGINS(ConnectEx(s, TO(good), NULL, 0, NULL, &overlapped));
        CHECK_ENDED(port, KEY, &overlapped, 0);
        other = (SOCKET)accept(listener, NULL, NULL);
        check_they_talk(s, other);
        close_both(s, other);
        closesocket(listener);
    }
}

#endif

static void a_socket_is_disconnected_and_used_again(void)
{
    Address address;
    SOCKET listener = new_listener(&address), client = connected_to(&address), again;
    Accept accepting;
    OVERLAPPED overlapped = fresh(NULL);
    char byte = 0;
    associate(listener, port, LISTENER_KEY);
    accepting.overlapped = fresh(NULL);
    accepting.s = new_socket();
    associate(accepting.s, port, KEY);
    CHECK_BEGINS(AcceptEx(listener, accepting.s, accepting.place, 0, BLOCK, BLOCK, NULL, &accepting.overlapped));
    CHECK_ENDED(port, LISTENER_KEY, &accepting.overlapped, 0);
    UNLESS_WINE("a disconnect takes flags that mean nothing") {
        CHECK_FALSE(DisconnectEx(accepting.s, &overlapped, 1, 0), WSAEINVAL);
        CHECK_FALSE(DisconnectEx(accepting.s, &overlapped, TF_REUSE_SOCKET, 1), WSAEINVAL);
    }
    CHECK_FALSE(DisconnectEx(INVALID_SOCKET, &overlapped, 0, 0), WSAENOTSOCK);
    CHECK_BEGINS(DisconnectEx(accepting.s, &overlapped, TF_REUSE_SOCKET, 0));
    CHECK_ENDED(port, KEY, &overlapped, 0);
    CHECK_IS(recv(client, &byte, 1, 0), 0);
    UNLESS_WINE("what was disconnected is disconnected once more")
        CHECK_FALSE(DisconnectEx(accepting.s, &overlapped, 0, 0), WSAENOTCONN);
    closesocket(client);
#if HAS_SOCKET_CALLS
    /* By an accept, with the association that it has. */
    begin_accept(listener, &accepting, 0);
    closesocket(accepting.s);
    CHECK_FAILED(port, LISTENER_KEY, &accepting.overlapped, 0, ERROR_OPERATION_ABORTED);
#endif
    again = connected_to(&address);
    CHECK_IS(DisconnectEx(again, NULL, TF_REUSE_SOCKET, 0), TRUE);
    associate(again, port, KEY);
    UNLESS_WINE("a socket that was disconnected cannot be used again") {
        CHECK_BEGINS(ConnectEx(again, TO(address), NULL, 0, NULL, &overlapped));
        CHECK_ENDED(port, KEY, &overlapped, 0);
    }
#if HAS_SOCKET_CALLS
    {
        /* Without reuse a pending receive continues: the peer may still send. */
        OVERLAPPED receiving = fresh(NULL);
        SOCKET peer = (SOCKET)accept(listener, NULL, NULL); /* the peer of the first connection */
        closesocket(peer);
        peer = (SOCKET)accept(listener, NULL, NULL);
        CHECK_PENDING(receive_into(again, &byte, 1, NULL, &receiving));
        CHECK_IS(DisconnectEx(again, NULL, 0, 0), TRUE);
        CHECK_IS(recv(peer, &byte, 1, 0), 0);
        CHECK_ENDED_BY_A_BYTE(peer, port, KEY, &receiving);
        CHECK_PENDING(receive_into(again, &byte, 1, NULL, &receiving));
        closesocket(peer);
        CHECK_ENDED(port, KEY, &receiving, 0);
    }
#endif
    closesocket(again);
    closesocket(listener);
}

#if HAS_SOCKET_CALLS
/* Also if the socket lingers, and if something has come that the program has not read. */
static void what_was_sent_comes_though_the_socket_is_used_again(void)
{
    enum { LONG_TIME = 1000 }; /* in seconds: half of it distinguishes a call that lingers */
    static char bytes[1 << 16];
    int way;
    for (way = 0; way < 4; way++) {
        Address address;
        SOCKET near, far, listener;
        OVERLAPPED overlapped = fresh(NULL);
        struct linger lingers;
        long long sent = 0, come = 0;
        int done;
        ULONGLONG began;
        new_pair(&near, &far);
        lingers.l_onoff = 1;
        lingers.l_linger = LONG_TIME;
        if (way % 2 != 0)
            CHECK_IS(setsockopt(near, SOL_SOCKET, SO_LINGER, (const char *)&lingers, sizeof lingers), 0);
        if (way / 2 != 0) {
            send_all(far, bytes, 20000);
            until(near, POLLIN);
        }
        set_nonblocking(near);
        while ((done = (int)send(near, bytes, sizeof bytes, 0)) > 0)
            sent += done;
        began = GetTickCount64();
        CHECK_BEGINS(DisconnectEx(near, &overlapped, TF_REUSE_SOCKET, 0));
        CHECK(GetTickCount64() - began < LONG_TIME * 500u);
        CHECK_ENDED(port, KEY, &overlapped, 0);
        while ((done = (int)recv(far, bytes, sizeof bytes, 0)) > 0)
            come += done;
        CHECK_IS(done, 0);
        CHECK_IS(come, sent);
        closesocket(far);
        /* It lingers as before. */
        memset(&lingers, 0, sizeof lingers);
        done = sizeof lingers;
        CHECK_IS(getsockopt(near, SOL_SOCKET, SO_LINGER, (char *)&lingers, &done), 0);
        CHECK_IS(lingers.l_linger, way % 2 != 0 ? LONG_TIME : 0);
        listener = new_listener(&address);
        CHECK_BEGINS(ConnectEx(near, TO(address), NULL, 0, NULL, &overlapped));
        CHECK_ENDED(port, KEY, &overlapped, 0);
        far = (SOCKET)accept(listener, NULL, NULL);
        check_they_talk(near, far);
        close_both(near, far);
        closesocket(listener);
    }
}

static int option_of(SOCKET s, int level, int name)
{
    int value = -1, size = (int)sizeof value;
    CHECK_IS(getsockopt(s, level, name, (char *)&value, &size), 0);
    return value;
}

/* Also for the next connection, and the one after it. */
static void what_was_set_stays_when_a_socket_is_used_again(void)
{
    Address address;
    SOCKET listener = new_listener(&address);
    Accept accept;
    OVERLAPPED overlapped;
    int on = 1, none = 0, much = 50000, round, send_room, receive_room;
    accept.s = new_socket();
    CHECK_IS(setsockopt(accept.s, IPPROTO_TCP, TCP_NODELAY, (char *)&on, sizeof on), 0);
    CHECK_IS(setsockopt(accept.s, SOL_SOCKET, SO_SNDBUF, (char *)&none, sizeof none), 0);
    CHECK_IS(setsockopt(accept.s, SOL_SOCKET, SO_RCVBUF, (char *)&much, sizeof much), 0);
    send_room = option_of(accept.s, SOL_SOCKET, SO_SNDBUF);
    receive_room = option_of(accept.s, SOL_SOCKET, SO_RCVBUF);
    for (round = 0; round < 3; round++) {
        SOCKET client = connected_to(&address);
        accept.overlapped = fresh(NULL);
        CHECK_BEGINS(AcceptEx(listener, accept.s, accept.place, 0, BLOCK, BLOCK, NULL, &accept.overlapped));
        CHECK(option_of(accept.s, IPPROTO_TCP, TCP_NODELAY) != 0);
        CHECK_IS(option_of(accept.s, SOL_SOCKET, SO_SNDBUF), send_room);
        CHECK_IS(option_of(accept.s, SOL_SOCKET, SO_RCVBUF), receive_room);
        check_they_talk(accept.s, client);
        overlapped = fresh(NULL);
        CHECK_BEGINS(DisconnectEx(accept.s, &overlapped, TF_REUSE_SOCKET, 0));
        closesocket(client);
    }
    closesocket(accept.s);
    closesocket(listener);
}

#endif

static void nothing_is_sent_behind_a_disconnect(void)
{
    SOCKET near, far;
    OVERLAPPED overlapped = fresh(NULL), sending = fresh(NULL);
    new_pair(&near, &far);
    CHECK_BEGINS(DisconnectEx(near, &overlapped, 0, 0));
    CHECK_ENDED(port, KEY, &overlapped, 0);
    closesocket(far);
    until(near, POLLHUP);
    CHECK_SOCKET_ERROR(send_from(near, "x", 1, NULL, &sending), WSAESHUTDOWN);
    closesocket(near);
}

#if HAS_SOCKET_CALLS
/* DisconnectEx does not wait until the peer reads, even after a send that was cancelled while it waited for that. */
static void a_disconnect_waits_for_no_room(void)
{
    enum { MUCH = 1 << 25 };
    SOCKET near, far;
    OVERLAPPED overlapped = fresh(NULL), sending = fresh(NULL);
    OVERLAPPED_ENTRY entry;
    UINT32 received = 0;
    char *bytes = (char *)calloc(1, MUCH);
    CHECK(bytes != NULL);
    new_pair(&near, &far);
    CHECK_PENDING(send_from(near, bytes, MUCH, NULL, &sending));
    CHECK(CancelIoEx((HANDLE)near, &sending));
    CHECK_IS(take_one(port, SOON, &entry, &received), NO_ERROR);
    CHECK(received == 1 && entry.lpOverlapped == &sending);
    CHECK(entry.dwNumberOfBytesTransferred < MUCH);
    CHECK_BEGINS(DisconnectEx(near, &overlapped, 0, 0));
    CHECK_ENDED(port, KEY, &overlapped, 0);
    close_both(near, far);
    free(bytes);
}

#endif

/* The usual calls of servers after a dialogue that has ended on both sides, in either order. */
static void what_has_ended_on_both_sides_is_disconnected(void)
{
    int is_first;
    /* The emulator does not report a stream's past (TCP_INFO). */
    if (getenv("TEST_IS_EMULATED"))
        return;
    for (is_first = 0; is_first < 2; is_first++) {
        SOCKET near, far;
        OVERLAPPED overlapped = fresh(NULL);
        char byte;
        new_pair(&near, &far);
        CHECK_IS(shutdown(is_first ? near : far, SD_SEND), 0);
        CHECK_IS(recv(is_first ? far : near, &byte, 1, 0), 0);
        CHECK_IS(shutdown(is_first ? far : near, SD_SEND), 0);
        CHECK_IS(recv(is_first ? near : far, &byte, 1, 0), 0);
        until(near, POLLHUP);
        CHECK_BEGINS(DisconnectEx(near, &overlapped, is_first ? TF_REUSE_SOCKET : 0, 0));
        CHECK_ENDED(port, KEY, &overlapped, 0);
        close_both(near, far);
    }
}

static void what_was_reset_is_not_disconnected(void)
{
    SOCKET near, far;
    OVERLAPPED overlapped = fresh(NULL);
    char byte;
    new_pair(&near, &far);
    CHECK_PENDING(receive_into(near, &byte, 1, NULL, &overlapped));
    abort_connection(far);
    CHECK_FAILED(port, KEY, &overlapped, 0, ERROR_NETNAME_DELETED);
    UNLESS_WINE("what was reset is disconnected")
        CHECK_FALSE(DisconnectEx(near, &overlapped, TF_REUSE_SOCKET, 0), WSAENOTCONN);
    closesocket(near);
}

#ifndef _WIN32
/* A listener within the machine, and one connection that fills its queue. Returns the size of its address. */
static int full_listener(struct sockaddr_un *address, SOCKET *listener, SOCKET *first)
{
    int length;
    memset(address, 0, sizeof *address);
    address->sun_family = AF_UNIX;
    /* A name without a file. */
    length = (int)offsetof(struct sockaddr_un, sun_path) + 1
             + snprintf(address->sun_path + 1, sizeof address->sun_path - 1, "connects-%d", (int)getpid());
    *listener = socket(AF_UNIX, SOCK_STREAM, 0);
    CHECK_IS(bind(*listener, (struct sockaddr *)address, length), 0);
    CHECK_IS(listen(*listener, 0), 0);
    *first = socket(AF_UNIX, SOCK_STREAM, 0);
    CHECK_IS(connect(*first, (struct sockaddr *)address, length), 0);
    return length;
}

/* The system has no queue for connects within the machine, and no event announces free space. */
static void a_connect_within_the_machine_waits_for_room(void)
{
    struct sockaddr_un address;
    SOCKET listener, s = socket(AF_UNIX, SOCK_STREAM, 0), first, accepted;
    OVERLAPPED overlapped = fresh(NULL);
    int length = full_listener(&address, &listener, &first);
    associate(s, port, KEY);
    CHECK_FALSE(ConnectEx(s, (struct sockaddr *)&address, length, NULL, 0, NULL, &overlapped), WSA_IO_PENDING);
    CHECK(is_silent(port));
    accepted = (SOCKET)accept(listener, NULL, NULL);
    CHECK(accepted != INVALID_SOCKET);
    CHECK_ENDED(port, KEY, &overlapped, 0);
    close_both(first, accepted);
    accepted = (SOCKET)accept(listener, NULL, NULL);
    check_they_talk(s, accepted);
    close_both(s, accepted);
    closesocket(listener);
}

/* Until its packet is queued, since it may fail. */
static void nothing_begins_on_a_socket_that_is_being_connected(void)
{
    struct sockaddr_un local;
    struct sockaddr_in inet;
    int way, length = 0;
    for (way = 0; way < 2; way++) {
        SOCKET listener, first, s, accepted;
        const struct sockaddr *address = way == 0 ? (struct sockaddr *)&local : (struct sockaddr *)&inet;
        OVERLAPPED overlapped = fresh(NULL), other = fresh(NULL);
        char byte;
        if (way == 0) {
            s = socket(AF_UNIX, SOCK_STREAM, 0);
            length = full_listener(&local, &listener, &first);
        } else {
            s = tcp_socket();
            bind_to_loopback(s);
            listener = tcp_socket();
            inet = bind_to_loopback(listener);
            length = sizeof inet;
            CHECK_IS(listen(listener, 0), 0);
            first = tcp_connected_to(&inet);
        }
        associate(s, port, KEY);
        CHECK_FALSE(ConnectEx(s, address, length, NULL, 0, NULL, &overlapped), WSA_IO_PENDING);
        CHECK_SOCKET_ERROR(receive_into(s, &byte, 1, NULL, &other), WSAENOTCONN);
        CHECK_SOCKET_ERROR(send_from(s, "x", 1, NULL, &other), WSAENOTCONN);
        CHECK_FALSE(ConnectEx(s, address, length, NULL, 0, NULL, &other), WSAEINVAL);
        CHECK_SOCKET_ERROR(connect(s, address, length), WSAEINVAL);
        CHECK(is_silent(port));
        CHECK(CancelIoEx((HANDLE)s, &overlapped));
        CHECK_FAILED(port, KEY, &overlapped, 0, ERROR_OPERATION_ABORTED);
        if (way == 0) { /* it has ended: also with the same OVERLAPPED */
            close_both(first, accepted = (SOCKET)accept(listener, NULL, NULL));
            CHECK_BEGINS(ConnectEx(s, address, length, NULL, 0, NULL, &overlapped));
            CHECK_ENDED(port, KEY, &overlapped, 0);
            accepted = (SOCKET)accept(listener, NULL, NULL);
            CHECK_PENDING(receive_into(s, &byte, 1, NULL, &overlapped));
            CHECK_IS(send_from(s, "x", 1, NULL, &other), 0);
            CHECK_ENDED(port, KEY, &other, 1);
            CHECK_ENDED_BY_A_BYTE(accepted, port, KEY, &overlapped);
            closesocket(accepted);
        } else {
            closesocket(first);
        }
        close_both(s, listener);
    }
}

/* ConnectEx rejects a socket that a non-blocking connect is connecting, and leaves that connect alone. */
static void a_socket_that_the_program_connects_is_refused(void)
{
    struct sockaddr_in inet, own;
    SOCKET listener = tcp_socket(), s = tcp_socket(), first;
    OVERLAPPED overlapped = fresh(NULL);
    int value = -1, size = (int)sizeof value;
    inet = bind_to_loopback(listener);
    CHECK_IS(listen(listener, 0), 0);
    first = tcp_connected_to(&inet); /* the queue is full */
    own = bind_to_loopback(s);
    associate(s, port, KEY);
    set_nonblocking(s);
    CHECK_SOCKET_ERROR(connect(s, (struct sockaddr *)&inet, sizeof inet), WSAEWOULDBLOCK);
    CHECK_FALSE(ConnectEx(s, (struct sockaddr *)&inet, sizeof inet, NULL, 0, NULL, &overlapped), WSAEINVAL);
    CHECK_FALSE(ConnectEx(s, (struct sockaddr *)&own, sizeof own, NULL, 0, NULL, &overlapped), WSAEINVAL);
    CHECK_IS(getsockopt(s, SOL_SOCKET, SO_ERROR, (char *)&value, &size), 0);
    CHECK_IS(value, 0);
    CHECK_SOCKET_ERROR(connect(s, (struct sockaddr *)&inet, sizeof inet), WSAEALREADY);
    CHECK(is_silent(port));
    close_both(s, first);
    closesocket(listener);
}

/* Ends a connect in flight, in one of three ways; its memory is freed after its packet. */
static void end_connect(SOCKET s, const struct sockaddr *address, int length, int way)
{
    LPOVERLAPPED overlapped = (LPOVERLAPPED)malloc(sizeof *overlapped);
    CHECK(overlapped != NULL);
    *overlapped = fresh(NULL);
    CHECK_FALSE(ConnectEx(s, address, length, NULL, 0, NULL, overlapped), WSA_IO_PENDING);
    CHECK(is_silent(port));
    if (way == 0)
        CHECK(CancelIoEx((HANDLE)s, overlapped));
    else if (way == 1)
        CHECK(CancelIo((HANDLE)s));
    else
        CHECK_IS(closesocket(s), 0);
    CHECK_FAILED(port, KEY, overlapped, 0, ERROR_OPERATION_ABORTED);
    free(overlapped);
    CHECK(is_silent(port));
    if (way != 2)
        CHECK_FALSE(CancelIoEx((HANDLE)s, NULL), ERROR_NOT_FOUND);
}

static void a_connect_is_cancelled(void)
{
    struct sockaddr_un address;
    struct sockaddr_in inet;
    SOCKET listener, first, accepted, s;
    int way, length = full_listener(&address, &listener, &first);
    for (way = 0; way < 3; way++) {
        s = socket(AF_UNIX, SOCK_STREAM, 0);
        associate(s, port, KEY);
        end_connect(s, (struct sockaddr *)&address, length, way);
        if (way != 2) { /* nothing of it is left: it may be connected */
            OVERLAPPED overlapped = fresh(NULL);
            accepted = (SOCKET)accept(listener, NULL, NULL);
            close_both(first, accepted);
            CHECK_BEGINS(ConnectEx(s, (struct sockaddr *)&address, length, NULL, 0, NULL, &overlapped));
            CHECK_ENDED(port, KEY, &overlapped, 0);
            first = s;
        }
    }
    close_both(first, listener);
    /* The same where the system itself continues it: it ignores requests to a full queue. */
    listener = tcp_socket();
    inet = bind_to_loopback(listener);
    CHECK_IS(listen(listener, 0), 0);
    first = tcp_connected_to(&inet);
    for (way = 0; way < 3; way++) {
        s = tcp_socket();
        bind_to_loopback(s);
        associate(s, port, KEY);
        end_connect(s, (struct sockaddr *)&inet, sizeof inet, way);
        if (way != 2) { /* the next one goes to its own address, not the first one's */
            OVERLAPPED overlapped = fresh(NULL);
            SOCKET other = tcp_socket();
            struct sockaddr_in good = bind_to_loopback(other);
            CHECK_IS(listen(other, 4), 0);
            CHECK_BEGINS(ConnectEx(s, (struct sockaddr *)&good, sizeof good, NULL, 0, NULL, &overlapped));
            CHECK_ENDED(port, KEY, &overlapped, 0);
            accepted = (SOCKET)accept(other, NULL, NULL);
            check_they_talk(s, accepted);
            close_both(s, accepted);
            closesocket(other);
        }
    }
    close_both(first, listener);
}

/* Whether or not its connection is established before it is cancelled, the packet and the socket
 * agree. */
static void a_connect_that_is_cancelled_when_it_ends_is_over(void)
{
    int round, cancelled = 0;
    for (round = 0; round < 300; round++) {
        SOCKET s = tcp_socket(), listener = tcp_socket(), accepted;
        struct sockaddr_in inet = bind_to_loopback(listener), peer;
        OVERLAPPED overlapped = fresh(NULL);
        OVERLAPPED_ENTRY entry;
        ULONG count = 0;
        int length = sizeof peer;
        bind_to_loopback(s);
        CHECK_IS(listen(listener, 4), 0);
        associate(s, port, KEY);
        CHECK_BEGINS(ConnectEx(s, (struct sockaddr *)&inet, sizeof inet, NULL, 0, NULL, &overlapped));
        CancelIoEx((HANDLE)s, &overlapped);
        CHECK(GetQueuedCompletionStatusEx(port, &entry, 1, &count, SOON, FALSE) && count == 1);
        CHECK(entry.lpOverlapped == &overlapped);
        if (overlapped.Internal == 0) {
            CHECK_IS(getpeername(s, (struct sockaddr *)&peer, &length), 0);
            CHECK_IS(peer.sin_port, inet.sin_port);
        } else {
            cancelled++;
            CHECK_SOCKET_ERROR(getpeername(s, (struct sockaddr *)&peer, &length), WSAENOTCONN);
            CHECK_BEGINS(ConnectEx(s, (struct sockaddr *)&inet, sizeof inet, NULL, 0, NULL, &overlapped));
            CHECK_ENDED(port, KEY, &overlapped, 0);
            CHECK_IS(closesocket((SOCKET)accept(listener, NULL, NULL)), 0); /* that of the first one */
        }
        accepted = (SOCKET)accept(listener, NULL, NULL);
        check_they_talk(s, accepted);
        close_both(s, accepted);
        closesocket(listener);
    }
    CHECK(cancelled > 0);
}

#endif

static void the_functions_are_looked_up_by_their_guids(void)
{
    SOCKET s = tcp_socket();
    GUID accept_guid = WSAID_ACCEPTEX, addresses = WSAID_GETACCEPTEXSOCKADDRS, connect_guid = WSAID_CONNECTEX,
         disconnect = WSAID_DISCONNECTEX, none = WSAID_ACCEPTEX;
    LPFN_ACCEPTEX accept_ex = NULL;
    LPFN_GETACCEPTEXSOCKADDRS get_addresses = NULL;
    LPFN_CONNECTEX connect_ex = NULL;
    LPFN_DISCONNECTEX disconnect_ex = NULL;
    OVERLAPPED overlapped = fresh(NULL);
    Address address = any_port();
    char place[2 * (sizeof address + 16)];
    DWORD bytes = 0;
#define LOOK_UP(guid, function) \
    WSAIoctl(s, SIO_GET_EXTENSION_FUNCTION_POINTER, &(guid), sizeof(guid), &(function), sizeof(function), &bytes, \
             NULL, NULL)
    CHECK_IS(LOOK_UP(accept_guid, accept_ex), 0);
    CHECK_IS(bytes, sizeof accept_ex);
    CHECK_IS(LOOK_UP(addresses, get_addresses), 0);
    CHECK_IS(LOOK_UP(connect_guid, connect_ex), 0);
    CHECK_IS(LOOK_UP(disconnect, disconnect_ex), 0);
    CHECK(accept_ex && get_addresses && connect_ex && disconnect_ex);
#if HAS_SOCKET_CALLS
    CHECK_FALSE(accept_ex(s, s, NULL, 0, 0, 0, NULL, &overlapped), WSAEFAULT);
    CHECK_FALSE(connect_ex(s, NULL, 0, NULL, 0, NULL, &overlapped), WSAEFAULT);
#endif
    CHECK_FALSE(accept_ex(INVALID_SOCKET, s, place, 0, BLOCK, BLOCK, NULL, &overlapped), WSAENOTSOCK);
    CHECK_FALSE(connect_ex(INVALID_SOCKET, TO(address), NULL, 0, NULL, &overlapped), WSAENOTSOCK);
    CHECK_FALSE(disconnect_ex(s, &overlapped, 0, 0), WSAENOTCONN);
    none.Data2++;
    CHECK_SOCKET_ERROR(LOOK_UP(none, accept_ex), WSAEINVAL);
    UNLESS_WINE("a function is looked up by less than a GUID, or into less than a pointer") {
        CHECK_SOCKET_ERROR(WSAIoctl(s, SIO_GET_EXTENSION_FUNCTION_POINTER, &accept_guid, 15, &accept_ex,
                                    sizeof accept_ex, &bytes, NULL, NULL),
                           WSAEFAULT);
        CHECK_SOCKET_ERROR(WSAIoctl(s, SIO_GET_EXTENSION_FUNCTION_POINTER, &accept_guid, sizeof accept_guid, &accept_ex,
                                    0, &bytes, NULL, NULL),
                           WSAEFAULT);
        CHECK_SOCKET_ERROR(WSAIoctl(s, SIO_GET_EXTENSION_FUNCTION_POINTER, &accept_guid, sizeof accept_guid, NULL, 0,
                                    &bytes, NULL, NULL),
                           WSAEFAULT);
    }
    CHECK_SOCKET_ERROR(WSAIoctl(INVALID_SOCKET, SIO_GET_EXTENSION_FUNCTION_POINTER, &accept_guid,
                                sizeof accept_guid, &accept_ex, sizeof accept_ex, &bytes, NULL, NULL),
                       WSAENOTSOCK);
    CHECK(GetProcAddress(LoadLibraryA("mswsock.dll"), "AcceptEx") != NULL);
    CHECK(GetProcAddress(LoadLibraryA("kernel32"), "CancelIoEx") != NULL);
    closesocket(s);
}

static DWORD connect_time(SOCKET s)
{
    DWORD seconds = UNTOUCHED;
    int size = sizeof seconds;
    CHECK_IS(getsockopt(s, SOL_SOCKET, SO_CONNECT_TIME, (char *)&seconds, &size), 0);
    CHECK_IS(size, sizeof seconds);
    return seconds;
}

/* Servers use it to find clients that are connected and silent. */
static void the_time_of_a_connection_is_told(void)
{
    Address address;
    SOCKET listener = new_listener(&address), clients[2], s = new_socket(), accepted, same, udp = udp_socket(), none = INVALID_SOCKET;
    Accept accept_with_data;
    OVERLAPPED overlapped = fresh(NULL);
    SOCKET times[5];
    DWORD seconds;
    int size = sizeof seconds, i;
    begin_accept(listener, &accept_with_data, 1);
    CHECK_IS(connect_time(accept_with_data.s), 0xFFFFFFFF);
    CHECK_IS(connect_time(s), 0xFFFFFFFF);
    CHECK_IS(connect_time(listener), 0xFFFFFFFF);
    clients[0] = connected_to(&address);
    while (connect_time(accept_with_data.s) == 0xFFFFFFFF)
        SwitchToThread();
    bind_to_a_port(s);
    CHECK_BEGINS(ConnectEx(s, TO(address), NULL, 0, NULL, &overlapped));
    until_ended(&overlapped);
    accepted = (SOCKET)accept(listener, NULL, NULL);
    clients[1] = duplicate(clients[0]); /* of which the library knows nothing */
    CHECK(connect_time(clients[1]) != 0xFFFFFFFF);
    CHECK(connect_time(accept_with_data.s) != 0xFFFFFFFF);
    times[0] = accept_with_data.s;
    times[1] = clients[0];
    times[2] = clients[1];
    times[3] = accepted;
    times[4] = s;
    for (i = 0; i < 5; i++) { /* each is in progress, in seconds */
        DWORD before = connect_time(times[i]), ticks = (DWORD)(GetTickCount64() / 1000), seconds;
        while ((seconds = connect_time(times[i])) == before)
            Sleep(10);
        CHECK(seconds > before && seconds - before <= (DWORD)(GetTickCount64() / 1000) - ticks + 1);
    }
    closesocket(s);
    s = new_socket(); /* perhaps of the same number */
    CHECK_IS(connect_time(s), 0xFFFFFFFF);
    same = connected_to(&address);
    seconds = connect_time(same); /* none of the time of the former one */
    CHECK(seconds < connect_time(clients[0]));
    CHECK_IS(connect_time(udp), 0xFFFFFFFF);
    CHECK_SOCKET_ERROR(getsockopt(none, SOL_SOCKET, SO_CONNECT_TIME, (char *)&seconds, &size), WSAENOTSOCK);
    size = 2;
    CHECK_SOCKET_ERROR(getsockopt(s, SOL_SOCKET, SO_CONNECT_TIME, (char *)&seconds, &size), WSAEFAULT);
    closesocket(accept_with_data.s);
    until_ended(&accept_with_data.overlapped);
    close_both(clients[0], clients[1]);
    close_both(s, accepted);
    close_both(same, udp);
    closesocket(listener);
}

static void connections_of_a_family(void)
{
    accepts_take_the_connections_in_order();
    a_connection_that_waits_is_accepted_at_once();
    a_pending_result_makes_a_packet_whatever_is_set();
#ifndef _WIN32
    the_peer_of_a_connection_that_was_reset_is_told();
    what_follows_a_connection_is_asked_what_it_is();
    a_listener_that_was_shut_is_none();
#endif
    first_data_comes_with_the_connection();
    silent_clients_hold_no_other_accept();
    each_accept_waits_for_its_own_client();
    what_waits_for_first_data_may_be_associated_and_closed();
#ifndef _WIN32
    an_accept_ends_when_its_connection_is_closed_just_then();
#endif
#if HAS_SOCKET_CALLS
    what_the_program_has_set_goes_on();
#endif
    it_blocks_as_the_program_has_said();
    a_listener_still_blocks_in_accept();
#ifndef _WIN32
    a_call_on_a_listener_that_is_closed_accepts_nothing();
#endif
    accepts_are_cancelled();
    a_listener_that_is_none_is_refused();
#ifndef _WIN32
    an_accept_waits_for_descriptors();
#endif
    bad_accepts_are_refused();
    connects_complete_and_may_bring_data();
#if HAS_SOCKET_CALLS
    a_socket_may_be_told_of_its_connect();
#endif
    a_connect_that_is_refused_fails();
#if HAS_SOCKET_CALLS
    a_connect_that_is_refused_fails_whoever_is_told();
    a_connect_of_a_socket_to_itself_is_refused();
#endif
    a_socket_is_disconnected_and_used_again();
#if HAS_SOCKET_CALLS
    what_was_sent_comes_though_the_socket_is_used_again();
    what_was_set_stays_when_a_socket_is_used_again();
#endif
    nothing_is_sent_behind_a_disconnect();
#if HAS_SOCKET_CALLS
    a_disconnect_waits_for_no_room();
#endif
    what_has_ended_on_both_sides_is_disconnected();
    what_was_reset_is_not_disconnected();
}

/* Whether the system has the other family, and an address of it. */
static int has_version_six(void)
{
    SOCKET s = socket(AF_INET6, SOCK_STREAM, IPPROTO_TCP);
    Address address;
    int has;
    family = AF_INET6;
    address_size = sizeof address.six;
    address = any_port();
    has = s != INVALID_SOCKET && bind(s, TO(address)) == 0;
    if (s != INVALID_SOCKET)
        CHECK_IS(closesocket(s), 0);
    if (!has)
        printf("SKIPPED overlapped connections over IPv6: this system has no address of its own\n");
    return has;
}

int main(void)
{
    start();
#ifdef _WIN32
    look_them_up();
#endif
    port = new_port(2);
    connections_of_a_family();
#ifndef _WIN32
    a_connect_within_the_machine_waits_for_room();
    nothing_begins_on_a_socket_that_is_being_connected();
    a_socket_that_the_program_connects_is_refused();
    a_connect_is_cancelled();
    a_connect_that_is_cancelled_when_it_ends_is_over();
#endif
    the_functions_are_looked_up_by_their_guids();
    the_time_of_a_connection_is_told();
    if (has_version_six())
        connections_of_a_family();
    CHECK(CloseHandle(port));
    return finish();
}
